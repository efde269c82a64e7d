//! Single operations, one after the other.

use std::time::{Duration, Instant};

use rnic::{Buffer, QpState, RemoteMemory, SendRequest, WritableRegion};

use super::stats::Distribution;
use super::{ATOMIC, Operation, POOL, Sender, poll, poll_for_peer};
use crate::peer::node::Station;
use crate::peer::waiting::{PEER_TIMEOUT, SPIN};
use crate::platform::failure::{Failure, Result};

/// Both sides' part; the leading one gets the times.
pub fn run(
    station: &mut Station,
    operation: Operation,
    size: usize,
    rounds: usize,
    lead: bool,
) -> Result<Distribution> {
    match operation {
        Operation::Send => sends(station, size, rounds, lead),
        Operation::Write => writes(station, size, rounds, lead),
        Operation::Read | Operation::Atomic if lead => fetches(station, operation, size, rounds),
        Operation::Read | Operation::Atomic => {
            serve(station)?;
            Ok(Distribution::default())
        }
    }
}

/// Receives of so many bytes that are posted at any time.
fn receives(size: usize) -> usize {
    (POOL / size).clamp(2, 16)
}

fn sends(station: &mut Station, size: usize, rounds: usize, lead: bool) -> Result<Distribution> {
    let mut sender = Sender::new(station, size)?;
    let posted = receives(size).min(rounds);
    for _ in 0..posted {
        station.qp.post_recv(station.pd.buffer(size)?, 0)?;
    }
    let mut left = rounds - posted;
    station.exchange.barrier()?;
    let mut times = Distribution::default();
    for _ in 0..rounds {
        let start = Instant::now();
        if lead {
            sender.post(station, None, 0)?;
        }
        let got = poll(station, &station.recv_cq)?;
        if !lead {
            sender.post(station, None, 0)?;
        } else {
            times.record(start.elapsed().as_nanos() as u64 / 2);
        }
        repost(station, got.into_buffer(), &mut left)?;
    }
    sender.finish(station)?;
    station.exchange.barrier()?;
    Ok(times)
}

fn repost(station: &Station, buffer: Option<Buffer>, left: &mut usize) -> Result<()> {
    if let (Some(buffer), true) = (buffer, *left > 0) {
        *left -= 1;
        station.qp.post_recv(buffer, 0)?;
    }
    Ok(())
}

/// Each side writes into the other's memory and watches the last byte of its own.
fn writes(station: &mut Station, size: usize, rounds: usize, lead: bool) -> Result<Distribution> {
    let mut sender = Sender::new(station, size)?;
    let to = station.remote.slice(0, size as u64)?;
    station.region.copy_in(size - 1, &[0])?;
    station.exchange.barrier()?;
    let mut times = Distribution::default();
    for round in 0..rounds {
        let mark = (round % 255) as u8 + 1;
        let start = Instant::now();
        if lead {
            sender.post(station, Some(to), mark)?;
        }
        watch(station, &station.region, size - 1, mark)?;
        if lead {
            times.record(start.elapsed().as_nanos() as u64 / 2);
        } else {
            sender.post(station, Some(to), mark)?;
        }
    }
    sender.finish(station)?;
    station.exchange.barrier()?;
    Ok(times)
}

/// Waits until a byte has this value. Polling a completion queue meanwhile drives the NIC.
fn watch(station: &Station, region: &WritableRegion, at: usize, value: u8) -> Result<()> {
    let mut start = None;
    loop {
        for _ in 0..64 {
            if region.load_u8(at)? == value {
                return Ok(());
            }
            if let Some(unexpected) = station.recv_cq.poll_one()? {
                unexpected.ok()?;
            }
            if let Some(bulk) = &station.bulk {
                bulk.tend()?;
            }
        }
        let waited = start.get_or_insert_with(Instant::now).elapsed();
        if waited > PEER_TIMEOUT {
            return Err(Failure::new(format!(
                "the peer's write has not arrived in {PEER_TIMEOUT:?}"
            )));
        }
        if waited > SPIN {
            // What failed completes in the send queue, which nobody looks at here.
            if station.qp.state() == QpState::Err {
                while let Some(done) = station.send_cq.poll_one()? {
                    done.ok()?;
                }
            }
            // The peer may need this processor.
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

/// READs or atomics: what was there comes back.
fn fetches(
    station: &mut Station,
    operation: Operation,
    size: usize,
    rounds: usize,
) -> Result<Distribution> {
    let from = station.remote.slice(0, size as u64)?;
    let mut buffer = station.pd.buffer(size.max(ATOMIC))?;
    station.exchange.barrier()?;
    let mut times = Distribution::default();
    for _ in 0..rounds {
        let start = Instant::now();
        station.qp.post(request(operation, buffer, from))?;
        let done = poll(station, &station.send_cq)?;
        times.record(start.elapsed().as_nanos() as u64);
        buffer = done
            .into_buffer()
            .ok_or_else(|| Failure::new("a request without its buffer"))?;
    }
    dismiss(station)?;
    Ok(times)
}

/// One operation with a buffer and the peer's memory.
pub fn request(operation: Operation, buffer: Buffer, target: RemoteMemory) -> SendRequest {
    match operation {
        Operation::Send => SendRequest::send(buffer),
        Operation::Write => SendRequest::write(buffer, target),
        Operation::Read => SendRequest::read(buffer, target),
        Operation::Atomic => SendRequest::fetch_add(buffer, target, 1),
    }
}

/// Answers one-sided operations, by polling, from the barrier that starts the test until
/// [`dismiss`].
pub fn serve(station: &mut Station) -> Result<()> {
    station.qp.post_recv_empty(0)?;
    station.exchange.barrier()?;
    poll_for_peer(station, &station.recv_cq)?;
    station.exchange.barrier()?;
    Ok(())
}

/// Ends the peer's [`serve`].
pub fn dismiss(station: &mut Station) -> Result<()> {
    station.qp.post(SendRequest::send_inline(&[]))?;
    poll(station, &station.send_cq)?;
    station.exchange.barrier()?;
    Ok(())
}
