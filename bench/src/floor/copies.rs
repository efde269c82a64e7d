//! Copies of 1 MiB between two processes, as fast as the machine makes them.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Side;
use super::shared::Shared;
use crate::Result;

const MESSAGE: usize = 1 << 20;
/// A page in front, for words that both look at.
const FRONT: usize = 4096;
/// Of the overlapped copies.
const CHUNK: usize = 16 << 10;
const RING: usize = 1 << 20;
/// A word that means the end.
const OVER: u64 = u64::MAX;
/// Words on cache lines of their own.
const TOLD: usize = 0;
const DONE: usize = 64;

fn rate(messages: u64, start: Instant) -> f64 {
    (messages * MESSAGE as u64) as f64 / start.elapsed().as_secs_f64() / 1e9
}

/// The leading side's memory, seen by both.
fn shared(side: &mut Side, len: usize) -> Result<Shared> {
    rnic_sys::child::allow_peers();
    let own = Shared::new(len)?;
    let [pid, number] = side
        .channel
        .numbers([std::process::id().into(), own.number() as u64])?;
    let memory = match side.lead {
        true => own,
        false => Shared::of(pid as u32, number as i32, len)?,
    };
    // Before the other one goes.
    side.channel.barrier()?;
    Ok(memory)
}

/// The sender copies from and to so many buffers in turn; the receiver takes no part, as with RDMA
/// WRITE.
pub fn vm_write(mut side: Side, length: usize, buffers: usize) -> Result<f64> {
    rnic_sys::child::allow_peers();
    let memory = vec![side.lead as u8; length * buffers];
    let [pid, address] = side
        .channel
        .numbers([std::process::id().into(), memory.as_ptr().addr() as u64])?;
    let mut value = 0.0;
    if side.lead {
        let start = Instant::now();
        let mut bytes = 0;
        while start.elapsed() < side.time {
            for (buffer, at) in memory.chunks(length).zip((address..).step_by(length)) {
                if rnic_sys::process::write_bytes(pid as u32, at, buffer)? != length {
                    return Err("process_vm_writev copied a part".into());
                }
                bytes += length;
            }
        }
        value = bytes as f64 / start.elapsed().as_secs_f64() / 1e9;
    }
    side.channel.barrier()?;
    std::hint::black_box(&memory);
    Ok(value)
}

/// The receiver copies what it is told of.
pub fn vm_read(mut side: Side) -> Result<f64> {
    let words = shared(&mut side, FRONT)?;
    let (told, done) = (words.word(TOLD), words.word(DONE));
    let mut buffer = vec![side.lead as u8; MESSAGE];
    let [pid, address] = side
        .channel
        .numbers([std::process::id().into(), buffer.as_ptr().addr() as u64])?;
    if !side.lead {
        for message in 1.. {
            loop {
                match told.load(Ordering::Acquire) {
                    OVER => return Ok(0.0),
                    n if n >= message => break,
                    _ => std::hint::spin_loop(),
                }
            }
            if rnic_sys::process::read_bytes(pid as u32, address, &mut buffer)? != MESSAGE {
                return Err("process_vm_readv copied a part".into());
            }
            done.store(message, Ordering::Release);
        }
    }
    let start = Instant::now();
    let mut messages = 0;
    while start.elapsed() < side.time {
        messages += 1;
        told.store(messages, Ordering::Release);
        while done.load(Ordering::Acquire) < messages {
            std::hint::spin_loop();
        }
    }
    let value = rate(messages, start);
    told.store(OVER, Ordering::Release);
    Ok(value)
}

/// One copies in, the other copies out.
pub fn double_copy(mut side: Side) -> Result<f64> {
    const CHUNKS: u64 = (RING / CHUNK) as u64;
    const PARTS: usize = MESSAGE / CHUNK;
    let memory = shared(&mut side, FRONT + RING)?;
    let (put, taken) = (memory.word(TOLD), memory.word(DONE));
    let at = |chunk: u64| FRONT + (chunk % CHUNKS) as usize * CHUNK;
    let mut buffer = vec![1; MESSAGE];
    side.channel.barrier()?;
    if !side.lead {
        let mut chunk = 0;
        loop {
            let end = put.load(Ordering::Acquire);
            if end == OVER {
                std::hint::black_box(&buffer);
                return Ok(0.0);
            }
            while chunk < end {
                let part = (chunk as usize % PARTS) * CHUNK;
                memory.copy_out(at(chunk), &mut buffer[part..part + CHUNK]);
                chunk += 1;
                taken.store(chunk, Ordering::Release);
            }
            std::hint::spin_loop();
        }
    }
    let start = Instant::now();
    let mut chunk = 0;
    while start.elapsed() < side.time {
        for part in buffer.chunks_exact(CHUNK) {
            while chunk - taken.load(Ordering::Acquire) >= CHUNKS {
                std::hint::spin_loop();
            }
            memory.copy_in(at(chunk), part);
            chunk += 1;
            put.store(chunk, Ordering::Release);
        }
    }
    while taken.load(Ordering::Acquire) < chunk {
        std::hint::spin_loop();
    }
    let value = rate(chunk / PARTS as u64, start);
    put.store(OVER, Ordering::Release);
    Ok(value)
}

/// Into memory that the peer has mapped: what would be possible if all of it were.
pub fn memcpy(mut side: Side) -> Result<f64> {
    let memory = shared(&mut side, MESSAGE)?;
    let buffer = vec![1; MESSAGE];
    let mut value = 0.0;
    if side.lead {
        let start = Instant::now();
        let mut messages = 0;
        while start.elapsed() < side.time {
            memory.copy_in(0, &buffer);
            std::hint::black_box(&memory);
            messages += 1;
        }
        value = rate(messages, start);
    }
    side.channel.barrier()?;
    Ok(value)
}
