//! The leading side: it posts, and takes the times.

use std::time::{Duration, Instant};

use rnic::{Buffer, SendRequest};

use super::rig::{Rig, WHILE};
use super::sender::{Marks, Sender};
use super::{Account, Outcome, Side, decoded, follow};
use crate::commands::study::setup::{Flow, Operation, Setup, Waiting};
use crate::peer::measure::stats::Distribution;
use crate::peer::waiting::PEER_TIMEOUT;
use crate::platform::failure::{Failure, Result};

/// Single operations that are not counted: paths are found and caches filled by them.
const WARM: u64 = 16;
/// Of a stream, this part of the time is not counted.
const WARM_PART: u32 = 16;

pub fn run(side: &mut Side, rig: &Rig, setup: &Setup, time: Duration) -> Result<Outcome> {
    match setup.flow {
        Flow::PingPong if setup.operation == Operation::Write => writes(side, rig, setup, time),
        Flow::PingPong => sends(side, rig, setup, time),
        Flow::OneByOne => one_by_one(side, rig, setup, time),
        Flow::Stream if setup.operation.is_atomic() => atomics(side, rig, setup, time),
        Flow::Stream => stream(side, rig, setup, time),
    }
}

fn outcome(times: Distribution, count: u64, time: Duration, all: u64, lost: u64) -> Outcome {
    Outcome {
        times,
        count,
        time,
        all,
        lost,
        processor_time: Duration::ZERO,
        path_mtu: None,
    }
}

/// Whether so much time has passed, and something was measured in it.
struct Clock {
    start: Instant,
    end: Instant,
}

impl Clock {
    fn new(time: Duration) -> Clock {
        let start = Instant::now();
        Clock {
            start,
            end: start + time,
        }
    }

    fn goes_on(&self, measured: u64) -> bool {
        measured < 4 || Instant::now() < self.end
    }
}

/// Between two messages. A program that polls has no rest.
fn pause(rig: &Rig, setup: &Setup) -> Result<()> {
    if setup.pause_us == 0 {
        return Ok(());
    }
    let pause = Duration::from_micros(setup.pause_us.into());
    if setup.waiting != Waiting::Busy {
        std::thread::sleep(pause);
        return Ok(());
    }
    let start = Instant::now();
    while start.elapsed() < pause {
        if rig.recv_cq.poll_one()?.is_some() {
            return Err(Failure::new("a message that nobody waits for"));
        }
    }
    Ok(())
}

/// SENDs there and back. Where messages may be lost, one that does not come back is sent again.
fn sends(side: &Side, rig: &Rig, setup: &Setup, time: Duration) -> Result<Outcome> {
    let mut sender = Sender::new(side, rig, setup)?;
    let mut times = Distribution::default();
    let (mut number, mut lost) = (0u32, 0);
    let mut all = 0;
    let clock = Clock::new(time);
    while clock.goes_on(times.samples()) {
        pause(rig, setup)?;
        number = number.wrapping_add(1);
        let mut start = Instant::now();
        let mut silence = Duration::ZERO;
        let marks = |number| Marks { number, last: None };
        sender.send(side, 0, marks(number))?;
        loop {
            let Some(answer) = rig.wait(&rig.recv_cq)? else {
                silence += WHILE;
                if side.exchange.is_closed() || silence > PEER_TIMEOUT {
                    return Err(rnic::Error::Timeout(silence).into());
                }
                if rig.may_lose() {
                    lost += 1;
                    number = number.wrapping_add(1);
                    start = Instant::now();
                    sender.send(side, 0, marks(number))?;
                }
                continue;
            };
            let round_trip = start.elapsed();
            let is_its = follow::number_of(&answer).is_none_or(|theirs| theirs == number);
            rig.post_again(answer)?;
            if is_its {
                all += 2;
                if all > 2 * WARM {
                    times.record(round_trip.as_nanos() as u64 / 2);
                }
                break;
            }
        }
    }
    let time = clock.start.elapsed();
    sender.finish(side, Marks::default())?;
    Ok(outcome(times, all, time, all, lost))
}

/// Each side writes into the other's memory, and watches the last byte of its own.
fn writes(side: &Side, rig: &Rig, setup: &Setup, time: Duration) -> Result<Outcome> {
    let mut sender = Sender::new(side, rig, setup)?;
    let mut times = Distribution::default();
    let mut all = 0;
    let mut last = 0;
    let clock = Clock::new(time);
    while clock.goes_on(times.samples()) {
        last = last % (follow::END - 1) + 1;
        let start = Instant::now();
        let marks = Marks {
            number: 0,
            last: Some(last),
        };
        sender.send(side, 0, marks)?;
        follow::watch(side, rig, setup.size - 1, |seen| seen == last)?;
        all += 2;
        if all > 2 * WARM {
            times.record(start.elapsed().as_nanos() as u64 / 2);
        }
    }
    let time = clock.start.elapsed();
    let end = Marks {
        number: 0,
        last: Some(follow::END),
    };
    sender.send(side, 0, end)?;
    // The peer's writes come to an end too: nothing is under way on either side then.
    follow::watch(side, rig, setup.size - 1, |seen| seen == follow::END)?;
    Ok(outcome(times, all, time, all, 0))
}

/// One operation after the other, each from its post to its completion.
fn one_by_one(side: &Side, rig: &Rig, setup: &Setup, time: Duration) -> Result<Outcome> {
    let mut sender = Sender::new(side, rig, setup)?;
    let mut times = Distribution::default();
    let mut all = 0;
    let clock = Clock::new(time);
    while clock.goes_on(times.samples()) {
        let start = Instant::now();
        sender.send(side, 0, Marks::default())?;
        let done = rig.completed()?;
        sender.done(done);
        all += 1;
        if all > WARM {
            times.record(start.elapsed().as_nanos() as u64);
        }
    }
    let time = clock.start.elapsed();
    Ok(outcome(times, all, time, all, 0))
}

/// As many under way as the depth allows.
fn stream(side: &Side, rig: &Rig, setup: &Setup, time: Duration) -> Result<Outcome> {
    let mut sender = Sender::new(side, rig, setup)?;
    let (mut posted, mut completed) = (0u64, 0u64);
    let mut qp = 0;
    let warm = Clock::new(time / WARM_PART);
    let mut counted: Option<(Clock, u64)> = None;
    loop {
        while sender.under_way() + setup.batch <= setup.depth {
            for _ in 0..setup.batch {
                sender.add(side, qp, Marks::default())?;
            }
            sender.post(qp)?;
            posted += setup.batch as u64;
            qp = (qp + 1) % rig.queue_pairs();
        }
        let done = rig.completed()?;
        completed += sender.done(done) as u64;
        while let Some(done) = rig.send_cq.poll_one()? {
            completed += sender.done(done.ok()?) as u64;
        }
        match &counted {
            None if !warm.goes_on(completed) => counted = Some((Clock::new(time), completed)),
            Some((clock, before)) if !clock.goes_on(completed - before) => break,
            _ => {}
        }
    }
    let (clock, before) = counted.ok_or_else(|| Failure::new("nothing was measured"))?;
    let time = clock.start.elapsed();
    let count = completed - before;
    posted += sender.finish(side, Marks::default())?;
    Ok(outcome(Distribution::default(), count, time, posted, 0))
}

/// One atomic under way on each queue pair. A compare-and-swap that found another value than it
/// expected is tried again with that one, and counts when it succeeds.
fn atomics(side: &Side, rig: &Rig, setup: &Setup, time: Duration) -> Result<Outcome> {
    /// Words of their own are on cache lines of their own.
    const APART: u64 = 64;
    let mut expected = vec![0u64; rig.queue_pairs()];
    let request = |qp: usize, expected: u64, buffer: Buffer| {
        let place = if setup.spread { qp as u64 * APART } else { 0 };
        let at = side.remote.slice(place, 8)?;
        let request = match setup.operation {
            Operation::FetchAdd => SendRequest::fetch_add(buffer, at, 1),
            _ => SendRequest::compare_swap(buffer, at, expected, expected.wrapping_add(1)),
        };
        Ok::<_, Failure>(request.id(qp as u64))
    };
    for qp in 0..rig.queue_pairs() {
        rig.post(qp, request(qp, 0, side.pd.buffer(8)?)?)?;
    }
    let warm = Clock::new(time / WARM_PART);
    let mut counted: Option<(Clock, u64)> = None;
    let (mut all, mut good) = (0u64, 0u64);
    let clock = loop {
        let done = rig.completed()?;
        let qp = done.id() as usize;
        let found = done.original_value();
        let (Some(found), Some(buffer)) = (found, done.into_buffer()) else {
            return Err(Failure::new("an atomic without its result"));
        };
        all += 1;
        let succeeded = setup.operation == Operation::FetchAdd || found == expected[qp];
        good += u64::from(succeeded);
        expected[qp] = found.wrapping_add(u64::from(succeeded));
        rig.post(qp, request(qp, expected[qp], buffer)?)?;
        match &counted {
            None if !warm.goes_on(all) => counted = Some((Clock::new(time), good)),
            Some((clock, before)) if !clock.goes_on(good - before) => {
                break (clock.start.elapsed(), good - before);
            }
            _ => {}
        }
    };
    let (time, count) = clock;
    for _ in 0..rig.queue_pairs() {
        rig.completed()?;
    }
    Ok(outcome(Distribution::default(), count, time, all, 0))
}

/// Ends the peer's part, and hears what it has to say.
pub fn dismiss(side: &mut Side, rig: &Rig, setup: &Setup) -> Result<Account> {
    let watched = setup.flow == Flow::PingPong && setup.operation == Operation::Write;
    let patience = Instant::now();
    let mut sent: Option<Instant> = None;
    while !side.exchange.is_readable() {
        if patience.elapsed() > PEER_TIMEOUT {
            return Err(rnic::Error::Timeout(PEER_TIMEOUT).into());
        }
        let due = sent.is_none_or(|at| rig.may_lose() && at.elapsed() > WHILE);
        if !watched && due {
            rig.post(0, SendRequest::send_inline(&[]).id(1))?;
            sent = Some(Instant::now());
        }
        // Polling drives the NIC.
        for _ in 0..64 {
            if let Some(done) = rig.send_cq.poll_one()? {
                done.ok()?;
            }
            if let (true, Some(late)) = (rig.may_lose(), rig.recv_cq.poll_one()?) {
                rig.post_again(late.ok()?)?;
            }
        }
    }
    decoded(&side.exchange.recv()?)
}
