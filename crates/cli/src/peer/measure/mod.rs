//! Latency and bandwidth of one connection, measured by two processes in step.
//!
//! The leading side names a [`Test`] over the channel and takes the times; the following side does
//! its part until [`Test::End`].

mod bandwidth;
mod latency;
pub mod stats;

use std::time::{Duration, Instant};

use rnic::{Buffer, Completion, CompletionQueue, RemoteMemory, SendRequest};
use serde::{Deserialize, Serialize};

use crate::peer::bulk::{Bulk, Moved};
use crate::peer::node::{INLINE, Station};
use crate::peer::waiting::{PEER_TIMEOUT, in_time, poll_hard, wait_for_peer};
use crate::platform::failure::{Failure, Result};
use stats::Distribution;

/// Which operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    Send,
    Write,
    Read,
    /// FETCH-AND-ADD of [`ATOMIC`] bytes.
    Atomic,
}

/// Bytes of an atomic's operand.
pub const ATOMIC: usize = 8;

impl Operation {
    /// Those of messages of any size.
    pub const SIZED: [Operation; 3] = [Operation::Send, Operation::Write, Operation::Read];

    /// Whether its latency is a whole round trip: what there is to wait for comes back.
    pub fn returns(self) -> bool {
        matches!(self, Operation::Read | Operation::Atomic)
    }
}

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Test {
    /// Half a round trip of `size` bytes there and back, for READ a whole operation; `rounds`
    /// times.
    Latency {
        operation: Operation,
        size: usize,
        rounds: usize,
    },
    /// `count` operations of `size` bytes, `depth` of them at once.
    Bandwidth {
        operation: Operation,
        size: usize,
        count: usize,
        depth: usize,
    },
    /// No more.
    End,
}

impl Test {
    /// The one who asks may be anybody: nothing beyond `region` bytes, nothing endless.
    fn check(self, region: usize) -> Result<()> {
        let (size, count) = match self {
            Test::Latency { size, rounds, .. } => (size, rounds),
            Test::Bandwidth { size, count, .. } => (size, count),
            Test::End => return Ok(()),
        };
        match (1..=region).contains(&size) && (1..=MOST).contains(&count) {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "the peer asks for something impossible: {self:?}"
            ))),
        }
    }
}

/// Most operations of one test.
const MOST: usize = 100_000_000;

impl Station {
    /// Tells the peer to take part in `test`.
    fn announce(&mut self, test: Test) -> Result<()> {
        let text = serde_json::to_vec(&test).map_err(|e| Failure::new(e.to_string()))?;
        Ok(self.exchange.send(&text)?)
    }
}

/// Times of single operations.
fn latency(
    station: &mut Station,
    operation: Operation,
    size: usize,
    rounds: usize,
) -> Result<Distribution> {
    station.announce(Test::Latency {
        operation,
        size,
        rounds,
    })?;
    latency::run(station, operation, size, rounds, true)
}

/// Bytes per second.
fn bandwidth(
    station: &mut Station,
    operation: Operation,
    size: usize,
    count: usize,
    depth: usize,
) -> Result<f64> {
    station.announce(Test::Bandwidth {
        operation,
        size,
        count,
        depth,
    })?;
    bandwidth::lead(station, operation, size, count, depth)
}

/// Measures for about `time`: a short run first tells how many rounds that are.
pub fn latency_for(
    station: &mut Station,
    operation: Operation,
    size: usize,
    time: Duration,
) -> Result<Distribution> {
    let trial = latency(station, operation, size, TRIAL)?;
    let rounds = rounds_in(time, operation, &trial);
    latency(station, operation, size, rounds)
}

/// Rounds of a short run that tells how many fit into a time.
const TRIAL: usize = 50;

fn rounds_in(time: Duration, operation: Operation, trial: &Distribution) -> usize {
    let trips = if operation.returns() { 1.0 } else { 2.0 };
    let rounds = time.as_secs_f64() * 1e6 / (trips * trial.mean()).max(0.01);
    rounds.clamp(20.0, MOST as f64) as usize
}

/// As [`latency_for`], with the station's bulk transfer beside it all the while.
pub fn latency_beside(
    station: &mut Station,
    operation: Operation,
    size: usize,
    time: Duration,
) -> Result<(Distribution, Moved)> {
    let trial = beside(station, operation, size, TRIAL)?.0;
    beside(station, operation, size, rounds_in(time, operation, &trial))
}

fn beside(
    station: &mut Station,
    operation: Operation,
    size: usize,
    rounds: usize,
) -> Result<(Distribution, Moved)> {
    if let Some(bulk) = &station.bulk {
        bulk.start()?;
    }
    let times = latency(station, operation, size, rounds)?;
    let moved = station.bulk.as_ref().map(Bulk::stop).transpose()?;
    Ok((times, moved.unwrap_or_default()))
}

/// As [`latency_for`].
pub fn bandwidth_for(
    station: &mut Station,
    operation: Operation,
    size: usize,
    depth: usize,
    time: Duration,
) -> Result<f64> {
    let rate = bandwidth(station, operation, size, 2 * depth, depth)?;
    let count = rate * time.as_secs_f64() / size as f64;
    let count = count.clamp(2.0 * depth as f64, MOST as f64) as usize;
    bandwidth(station, operation, size, count, depth)
}

/// No more tests.
pub fn end(station: &mut Station) -> Result<()> {
    station.announce(Test::End)
}

/// The peer's part, until it says [`Test::End`].
pub fn follow(station: &mut Station) -> Result<()> {
    loop {
        let message = station.exchange.recv()?;
        let test: Test = serde_json::from_slice(&message)
            .map_err(|e| Failure::new(format!("not a test: {e}")))?;
        test.check(station.region.remote().len as usize)?;
        match test {
            Test::Latency {
                operation,
                size,
                rounds,
            } => {
                latency::run(station, operation, size, rounds, false)?;
            }
            Test::Bandwidth {
                operation,
                size,
                count,
                ..
            } => bandwidth::follow(station, operation, size, count)?,
            Test::End => return Ok(()),
        }
    }
}

/// The next completion of one of the station's queues; what goes on beside it goes on.
fn poll(station: &Station, cq: &CompletionQueue) -> Result<Completion> {
    match poll_tending(station, cq)? {
        Some(completion) => Ok(completion.ok()?),
        None => Err(rnic::Error::Timeout(PEER_TIMEOUT).into()),
    }
}

/// The same where the other side alone has something to do: as long as it is there.
fn poll_for_peer(station: &Station, cq: &CompletionQueue) -> Result<Completion> {
    Ok(wait_for_peer(&station.exchange, || poll_tending(station, cq))?.ok()?)
}

/// `None`: it has not come for so long that something may be wrong.
fn poll_tending(station: &Station, cq: &CompletionQueue) -> Result<Option<Completion>> {
    let Some(bulk) = station.bulk.as_ref().filter(|bulk| bulk.is_going()) else {
        return in_time(poll_hard(cq));
    };
    let start = Instant::now();
    loop {
        bulk.tend()?;
        if let Some(completion) = cq.poll_one()? {
            return Ok(Some(completion));
        }
        if start.elapsed() > PEER_TIMEOUT {
            return Ok(None);
        }
    }
}

/// Posts messages of one size: inline if they are small, else from a pool of buffers; signals now
/// and then.
struct Sender {
    pool: Vec<Buffer>,
    inline: Vec<u8>,
    size: usize,
    outstanding: usize,
    unsignaled: usize,
    /// Requests that may wait for a signaled one.
    run: usize,
}

/// Bytes of the buffers of a [`Sender`], and of receives, that are worth having beyond the fewest.
const POOL: usize = 32 << 20;

impl Sender {
    fn new(station: &Station, size: usize) -> Result<Sender> {
        let run = (POOL / 2 / size).clamp(1, 16);
        let mut pool = Vec::new();
        if size > INLINE {
            for i in 0..2 * run {
                let mut buffer = station.pd.buffer(size)?;
                buffer.fill(i as u8);
                pool.push(buffer);
            }
        }
        Ok(Sender {
            pool,
            inline: vec![0; size.min(INLINE)],
            size,
            outstanding: 0,
            unsignaled: 0,
            run,
        })
    }

    /// Sends, or writes `to` the peer's memory; the last byte of the message is `mark`.
    fn post(&mut self, station: &Station, to: Option<RemoteMemory>, mark: u8) -> Result<()> {
        while self.outstanding >= 2 * self.run {
            self.reap(station)?;
        }
        let mut request = if self.size <= INLINE {
            if let Some(last) = self.inline.last_mut() {
                *last = mark;
            }
            match to {
                Some(to) => SendRequest::write_inline(&self.inline, to),
                None => SendRequest::send_inline(&self.inline),
            }
        } else {
            let Some(mut buffer) = self.pool.pop() else {
                return Err(Failure::new("the pool is as deep as the queue"));
            };
            buffer[self.size - 1] = mark;
            match to {
                Some(to) => SendRequest::write(buffer, to),
                None => SendRequest::send(buffer),
            }
        };
        self.unsignaled += 1;
        if self.unsignaled < self.run {
            request = request.unsignaled();
        } else {
            request = request.id(self.unsignaled as u64);
            self.unsignaled = 0;
        }
        self.outstanding += 1;
        Ok(station.qp.post(request)?)
    }

    /// Takes one completion and all that it stands for.
    fn reap(&mut self, station: &Station) -> Result<()> {
        let mut done = poll(station, &station.send_cq)?;
        self.outstanding -= done.id() as usize;
        self.pool
            .extend(done.take_released().into_iter().map(|(_, buffer)| buffer));
        self.pool.extend(done.into_buffer());
        Ok(())
    }

    /// Waits until everything has completed; a last signaled message of no bytes vouches for the
    /// rest.
    fn finish(mut self, station: &Station) -> Result<()> {
        // A write of nothing needs no key and no receive.
        let nowhere = RemoteMemory {
            addr: 0,
            len: 0,
            rkey: 0,
        };
        self.outstanding += 1;
        station
            .qp
            .post(SendRequest::write_inline(&[], nowhere).id(self.unsignaled as u64 + 1))?;
        while self.outstanding > 0 {
            self.reap(station)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_tests_are_refused() {
        let latency = |size, rounds| Test::Latency {
            operation: Operation::Write,
            size,
            rounds,
        };
        assert!(latency(4096, 1).check(4096).is_ok());
        assert!(Test::End.check(0).is_ok());
        for test in [
            latency(0, 1),
            latency(4097, 1),
            latency(1, 0),
            latency(1, MOST + 1),
        ] {
            assert!(test.check(4096).is_err(), "{test:?}");
        }
    }
}
