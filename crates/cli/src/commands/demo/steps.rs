//! One of each operation, explained.
//!
//! Both processes know the order. For each step the leading one says what happens, the following
//! one looks at its memory and its completions and answers over the channel whether every byte is
//! as it should be.

use std::fmt;
use std::sync::atomic::Ordering;

use rnic::{CompletionOpcode, RemoteMemory, SendRequest};

use crate::commands::dissect::Operation;
use crate::peer::node::Station;
use crate::platform::failure::{Failure, Result};
use crate::platform::out;
use crate::text::count;

/// Memory is not as it should be.
#[derive(Debug)]
pub struct Mismatch {
    what: &'static str,
    at: usize,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: wrong from byte {} on", self.what, self.at)
    }
}

fn same(what: &'static str, found: &[u8], expected: &[u8]) -> std::result::Result<(), Mismatch> {
    if found == expected {
        return Ok(());
    }
    let at = found.iter().zip(expected).position(|(a, b)| a != b);
    Err(Mismatch {
        what,
        at: at.unwrap_or(found.len().min(expected.len())),
    })
}

fn require(what: &'static str, holds: bool) -> Result<()> {
    match holds {
        true => Ok(()),
        false => Err(Mismatch { what, at: 0 }.into()),
    }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i.wrapping_mul(167) ^ (i >> 8) ^ seed) as u8)
        .collect()
}

const MESSAGE: usize = 6000;
const WRITTEN: usize = 100_000;
const WRITE_AT: usize = 4321;
const READ: usize = 150_000;
const IMM: [u8; 4] = *b"done";
const IMM_LEN: usize = 10_000;
/// Where the word for atomics is in the region.
const WORD: usize = 1 << 20;
/// Filling of memory that nothing may touch.
const UNTOUCHED: u8 = 0xa5;

const OK: &[u8] = b"ok";

/// Answers the leader: all well.
fn approve(station: &mut Station) -> Result<()> {
    Ok(station.exchange.send(OK)?)
}

pub fn follow(station: &mut Station) -> Result<()> {
    // 1. The receive is posted before the peer is told to send.
    station.qp.post_recv(station.pd.buffer(MESSAGE)?, 1)?;
    station.exchange.barrier()?;
    let got = station.received()?;
    same("the message", got.data(), &pattern(MESSAGE, 1))?;
    approve(station)?;

    // 2. WRITE: nothing here completes; the leader says when to look.
    station.region.copy_in(0, &vec![UNTOUCHED; WORD])?;
    station.exchange.barrier()?;
    station.exchange.barrier()?;
    let mut memory = vec![0; WORD];
    station.region.copy_out(0, &mut memory)?;
    let mut expected = vec![UNTOUCHED; WORD];
    expected[WRITE_AT..WRITE_AT + WRITTEN].copy_from_slice(&pattern(WRITTEN, 2));
    same("the written memory or its surroundings", &memory, &expected)?;
    approve(station)?;

    // 3. WRITE with immediate: takes a receive, which needs no memory.
    station.qp.post_recv_empty(3)?;
    station.exchange.barrier()?;
    let got = station.received()?;
    require("the completion of a write with immediate", {
        got.opcode() == CompletionOpcode::RecvRdmaWithImm
            && got.imm() == Some(IMM)
            && got.byte_len() == IMM_LEN
    })?;
    let mut memory = vec![0; IMM_LEN];
    station.region.copy_out(0, &mut memory)?;
    same("the written memory", &memory, &pattern(IMM_LEN, 3))?;
    approve(station)?;

    // 4. READ of memory that only grants reading.
    let shared = station
        .pd
        .share(station.pd.buffer_from(&pattern(READ, 4))?)?;
    station.exchange.send(&shared.remote().to_bytes())?;
    station.exchange.barrier()?;
    same("the read memory", &shared, &pattern(READ, 4))?;
    approve(station)?;

    // 5., 6. Atomics.
    station.region.store_u64(WORD, 41, Ordering::SeqCst)?;
    station.exchange.barrier()?;
    station.exchange.barrier()?;
    require(
        "the word after compare-and-swap",
        station.region.load_u64(WORD, Ordering::SeqCst)? == 1000,
    )?;
    approve(station)?;
    station.exchange.barrier()?;
    require(
        "the word after fetch-and-add",
        station.region.load_u64(WORD, Ordering::SeqCst)? == 1007,
    )?;
    approve(station)
}

/// In these lines where the terminal has room for them, else as one paragraph.
fn say(lines: &[&str]) {
    let print = |text: &str| super::say("   ", "   ", text);
    match out::columns() {
        Some(columns) if columns < out::WIDTH => print(&lines.join(" ")),
        _ => lines.iter().for_each(|line| print(line)),
    }
}

/// Prints a step's title and explanation, and in the end how many packets it took.
struct Step {
    operation: Operation,
    sent: u64,
    received: u64,
    requests: u64,
}

/// Requests that this side has made and that are done.
fn requests(station: &Station) -> u64 {
    let by = station.qp.counters().requested;
    let kinds = [by.send, by.write, by.read, by.atomic];
    kinds.iter().map(|traffic| traffic.messages).sum()
}

impl Step {
    fn begin(station: &Station, title: &str, explanation: &[&str]) -> Step {
        crate::say!("{title}");
        say(explanation);
        let counters = station.qp.counters();
        Step {
            operation: Operation {
                title: title.to_owned(),
                text: explanation.join(" "),
                requests: 0,
                result: String::new(),
            },
            requests: requests(station),
            sent: counters.packets_sent,
            received: counters.packets_received,
        }
    }

    fn end(self, station: &mut Station) -> Result<Operation> {
        let answer = station.exchange.recv()?;
        if answer != OK {
            return Err(Failure::new(
                "the peer process does not agree with what arrived",
            ));
        }
        let counters = station.qp.counters();
        let sent = counters.packets_sent - self.sent;
        let result = format!(
            "verified; {} out, {} in",
            count(sent, "packet"),
            counters.packets_received - self.received
        );
        crate::say!("   -> {result}\n");
        Ok(Operation {
            requests: requests(station) - self.requests,
            result,
            ..self.operation
        })
    }
}

/// Does all of them, and gives what was said of each.
pub fn lead(station: &mut Station) -> Result<Vec<Operation>> {
    let mut done = vec![
        send(station)?,
        write(station)?,
        write_with_imm(station)?,
        read(station)?,
    ];
    done.extend(atomics(station)?);
    Ok(done)
}

fn send(station: &mut Station) -> Result<Operation> {
    station.exchange.barrier()?;
    let step = Step::begin(
        station,
        "1. SEND and RECEIVE",
        &[
            &format!(
                "The peer has posted a receive: {MESSAGE} bytes of its memory that wait for a message."
            ),
            "This process posts a send. The NIC makes packets of it, the peer's NIC puts them into that memory",
            "and acknowledges them. Both get a completion, and the peer checks the bytes.",
        ],
    );
    station.qp.post(SendRequest::send(
        station.pd.buffer_from(&pattern(MESSAGE, 1))?,
    ))?;
    station.sent()?;
    step.end(station)
}

fn write(station: &mut Station) -> Result<Operation> {
    station.exchange.barrier()?;
    let to = station.remote.slice(WRITE_AT as u64, WRITTEN as u64)?;
    let step = Step::begin(
        station,
        "2. RDMA WRITE",
        &[
            &format!(
                "The peer has told the address of a memory region and its key (rkey {:#010x}).",
                to.rkey
            ),
            &format!(
                "This process writes {WRITTEN} bytes at offset {WRITE_AT} of it. The peer's program takes no part"
            ),
            "and gets no completion; told to look, it finds these bytes changed, and none around them.",
        ],
    );
    station.qp.post(SendRequest::write(
        station.pd.buffer_from(&pattern(WRITTEN, 2))?,
        to,
    ))?;
    station.sent()?;
    station.exchange.barrier()?;
    step.end(station)
}

fn write_with_imm(station: &mut Station) -> Result<Operation> {
    station.exchange.barrier()?;
    let step = Step::begin(
        station,
        "3. RDMA WRITE with immediate",
        &[
            "As before, but with four bytes beside the data, which end a receive of the peer:",
            "its completion says that the write is there, and shows \"done\".",
        ],
    );
    let to = station.remote.slice(0, IMM_LEN as u64)?;
    let data = station.pd.buffer_from(&pattern(IMM_LEN, 3))?;
    station.qp.post(SendRequest::write(data, to).imm(IMM))?;
    station.sent()?;
    step.end(station)
}

fn read(station: &mut Station) -> Result<Operation> {
    let from = RemoteMemory::from_bytes(&station.exchange.recv()?)?;
    let step = Step::begin(
        station,
        "4. RDMA READ",
        &[
            &format!(
                "This process fetches {READ} bytes of another region of the peer, whose program again takes no"
            ),
            "part: one request packet out, the data comes in as responses.",
        ],
    );
    station
        .qp
        .post(SendRequest::read(station.pd.buffer(READ)?, from))?;
    let got = station.sent()?;
    same("the bytes read", got.data(), &pattern(READ, 4))?;
    station.exchange.barrier()?;
    step.end(station)
}

fn atomics(station: &mut Station) -> Result<[Operation; 2]> {
    station.exchange.barrier()?;
    let word = station.remote.slice(WORD as u64, 8)?;
    let buffer = station.pd.buffer(8)?;
    let step = Step::begin(
        station,
        "5. Atomic COMPARE-AND-SWAP",
        &[
            "A word of the peer's memory holds 41. Swap in 999 if it is 40: it is not, so nothing changes and",
            "41 comes back. Swap in 1000 if it is 41: done.",
        ],
    );
    station
        .qp
        .post(SendRequest::compare_swap(buffer, word, 40, 999))?;
    let got = station.sent()?;
    require(
        "the value found by compare-and-swap",
        got.original_value() == Some(41),
    )?;
    station.qp.post(SendRequest::compare_swap(
        station.pd.buffer(8)?,
        word,
        41,
        1000,
    ))?;
    let got = station.sent()?;
    require(
        "the value found by compare-and-swap",
        got.original_value() == Some(41),
    )?;
    station.exchange.barrier()?;
    let first = step.end(station)?;

    let step = Step::begin(
        station,
        "6. Atomic FETCH-AND-ADD",
        &[
            "Add 7 to the same word, at once and only once, whoever else adds to it: 1000 comes back, and 1007",
            "is there.",
        ],
    );
    station
        .qp
        .post(SendRequest::fetch_add(station.pd.buffer(8)?, word, 7))?;
    let got = station.sent()?;
    require(
        "the value found by fetch-and-add",
        got.original_value() == Some(1000),
    )?;
    station.exchange.barrier()?;
    Ok([first, step.end(station)?])
}
