//! A ring in shared memory, one writer and one reader: slots with a sequence word and the payload
//! behind it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::shared::Shared;
use super::{Side, micros};
use crate::Result;
use crate::stats;

/// Slots of a ring.
const SLOTS: u64 = 1024;
/// The reader tells how far it is once in so many slots.
const REPORT: u64 = 64;
/// A sequence word that means the end.
const OVER: u64 = u64::MAX;
/// A page in front, for the reader's report.
const FRONT: usize = 4096;

/// One direction.
struct Ring {
    shared: Shared,
    /// Words of a slot.
    slot: usize,
    /// Words of payload.
    payload: usize,
}

impl Ring {
    /// Bytes of memory for payloads of `size` bytes.
    fn len(slot: usize) -> usize {
        FRONT + SLOTS as usize * slot * 8
    }

    /// Words of a slot for payloads of `size` bytes: a power of two, so that none straddles cache
    /// lines needlessly.
    fn slot(size: usize) -> usize {
        (1 + size.div_ceil(8)).next_power_of_two()
    }

    /// Both directions: what this process reads (its own memory), and what the peer reads.
    fn pair(side: &mut Side, size: usize, slot: usize) -> Result<(Ring, Ring)> {
        rnic_sys::child::allow_peers();
        let own = Shared::new(Ring::len(slot))?;
        let [pid, number] = side
            .channel
            .numbers([std::process::id().into(), own.number() as u64])?;
        let peer = Shared::of(pid as u32, number as i32, Ring::len(slot))?;
        side.channel.barrier()?;
        let ring = |shared| Ring {
            shared,
            slot,
            payload: size.div_ceil(8),
        };
        Ok((ring(own), ring(peer)))
    }

    fn read_so_far(&self) -> &AtomicU64 {
        self.shared.word(0)
    }

    /// Where a slot begins, in words.
    fn at(&self, sequence: u64) -> usize {
        FRONT / 8 + (sequence % SLOTS) as usize * self.slot
    }

    /// Sequence numbers count from 1, so that a zero is no message.
    fn put(&self, sequence: u64, data: &[u64]) {
        let slot = self.at(sequence);
        for (word, value) in (slot + 1..slot + self.slot).zip(data) {
            self.shared.word(word).store(*value, Ordering::Relaxed);
        }
        self.shared.word(slot).store(sequence, Ordering::Release);
    }

    fn end(&self, sequence: u64) {
        self.shared
            .word(self.at(sequence))
            .store(OVER, Ordering::Release);
    }

    /// Waits for a message; false when there will be none.
    fn take(&self, sequence: u64, data: &mut [u64]) -> bool {
        let slot = self.at(sequence);
        loop {
            let seen = self.shared.word(slot).load(Ordering::Acquire);
            if seen == sequence {
                break;
            }
            if seen == OVER {
                return false;
            }
            std::hint::spin_loop();
        }
        for (value, word) in data.iter_mut().zip(slot + 1..slot + self.slot) {
            *value = self.shared.word(word).load(Ordering::Relaxed);
        }
        true
    }
}

/// Ten bytes in slots of a cache line.
pub fn ping_pong(mut side: Side) -> Result<f64> {
    let (own, peer) = Ring::pair(&mut side, 10, 8)?;
    let mut data = vec![1; own.payload];
    let mut sequence = 1;
    if !side.lead {
        while own.take(sequence, &mut data) {
            peer.put(sequence, &data);
            sequence += 1;
        }
        return Ok(0.0);
    }
    // The clock takes 20 ns, a fifth of what is measured: a few rounds at a time.
    const ROUNDS: u64 = 16;
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < side.time {
        let began = Instant::now();
        for _ in 0..ROUNDS {
            peer.put(sequence, &data);
            own.take(sequence, &mut data);
            sequence += 1;
        }
        times.push(began.elapsed().as_nanos() as f64 / (2 * ROUNDS) as f64);
    }
    peer.end(sequence);
    side.channel.barrier().ok();
    Ok(micros(stats::median(times)))
}

/// Messages one way, as fast as they go; millions per second.
pub fn rate(mut side: Side, size: usize) -> Result<f64> {
    let (own, peer) = Ring::pair(&mut side, size, Ring::slot(size))?;
    let mut data = vec![1; own.payload];
    let mut sequence = 1;
    if !side.lead {
        while own.take(sequence, &mut data) {
            if sequence.is_multiple_of(REPORT) {
                own.read_so_far().store(sequence, Ordering::Release);
            }
            sequence += 1;
        }
        std::hint::black_box(&data);
        side.channel.barrier()?;
        return Ok(0.0);
    }
    let mut read = 0;
    let start = Instant::now();
    while start.elapsed() < side.time {
        for _ in 0..1000 {
            // A slot is free when its last message was read.
            while sequence - read > SLOTS - REPORT {
                read = peer.read_so_far().load(Ordering::Acquire);
                std::hint::spin_loop();
            }
            peer.put(sequence, &data);
            sequence += 1;
        }
    }
    peer.end(sequence);
    // Until all were read.
    side.channel.barrier()?;
    Ok(sequence as f64 / start.elapsed().as_secs_f64() / 1e6)
}
