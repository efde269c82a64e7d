//! What calls on one socket mean: which way bytes go, and whose turn it is.
//!
//! Each function is called behind a call of the program's, with what that returned and the times
//! before and behind it.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use rnic_sys::now_ns;
use rnic_sys::tally::{Count, Lane, Spread, Tally, Whole};

use crate::table::{self, Entry, Last};
use crate::{counting, is_on, tally};

/// When a call began; 0: nobody counts.
#[inline]
pub fn begin() -> u64 {
    if is_on() { now_ns() } else { 0 }
}

/// The descriptor's entry and lane, and where to count.
#[inline]
fn of(fd: RawFd) -> Option<(&'static Entry, Lane, &'static Tally)> {
    let entry = table::entry(fd)?;
    let found = entry.lane(fd)?;
    let tally = tally()?;
    if let Some(local) = found.new {
        tally.add(found.lane, Count::Sockets, 1);
        tally.add(found.lane, Count::Local, u64::from(local));
        if matches!(found.lane, Lane::Asks | Lane::Serves) {
            tally.opened(1);
        }
    }
    Some((entry, found.lane, tally))
}

/// A call that receives is about to begin; `None`: nobody counts this descriptor, and no clock is
/// read for it.
#[inline]
pub fn look(fd: RawFd) -> Option<u64> {
    if !is_on() {
        return None;
    }
    table::entry(fd)?.lane_is_counted(fd).then(now_ns)
}

impl Entry {
    #[inline]
    fn lane_is_counted(&self, fd: RawFd) -> bool {
        // A first look counts the socket, which `of` does.
        self.known().is_some() || (self.is_unknown() && of(fd).is_some())
    }
}

/// A call has sent `sent` bytes, or failed.
#[inline]
pub fn sent(fd: RawFd, begin: Option<u64>, sent: isize, of_file: bool) {
    let Some(begin) = begin else { return };
    let Some((entry, lane, tally)) = of(fd) else {
        return;
    };
    if sent <= 0 {
        if sent < 0 {
            failed(tally, lane);
        }
        return;
    }
    let (bytes, now) = (sent as u64, now_ns());
    tally.add(lane, Count::SendNs, now.saturating_sub(begin));
    tally.note(lane, Spread::Sent, bytes);
    tally.active(now);
    if of_file {
        tally.add(lane, Count::FileBytes, bytes);
    }
    if entry.last() != Last::Sent {
        if entry.last() == Last::Received {
            let thought = begin.saturating_sub(entry.at.load(Ordering::Relaxed));
            tally.note(lane, Spread::Think, thought);
            tally.note(lane, Spread::TurnIn, entry.take_bytes());
        }
        entry.turn(Last::Sent);
    }
    entry.add_bytes(bytes);
    entry.at.store(begin, Ordering::Relaxed);
}

/// A call has received `received` bytes, or failed.
#[inline]
pub fn received(fd: RawFd, begin: Option<u64>, received: isize) {
    let Some(begin) = begin else { return };
    let Some((entry, lane, tally)) = of(fd) else {
        return;
    };
    if received <= 0 {
        if received < 0 {
            failed(tally, lane);
        }
        return;
    }
    let (bytes, now) = (received as u64, now_ns());
    tally.add(lane, Count::ReceiveNs, now.saturating_sub(begin));
    tally.note(lane, Spread::Received, bytes);
    tally.active(now);
    if entry.last() != Last::Received {
        if entry.last() == Last::Sent {
            let waited = now.saturating_sub(entry.at.load(Ordering::Relaxed));
            tally.note(lane, Spread::Answer, waited);
            tally.note(lane, Spread::TurnOut, entry.take_bytes());
        }
        entry.turn(Last::Received);
    }
    entry.add_bytes(bytes);
    entry.at.store(now, Ordering::Relaxed);
}

#[cold]
fn failed(tally: &Tally, lane: Lane) {
    if std::io::Error::last_os_error().kind() == std::io::ErrorKind::WouldBlock {
        tally.add(lane, Count::Again, 1);
    }
}

/// A descriptor is closed, or becomes something else.
pub fn closed(fd: RawFd) {
    if is_on()
        && let Some(entry) = table::entry(fd)
    {
        end(entry);
    }
}

/// All descriptors from the first to the last are closed.
pub fn closed_range(first: u32, last: u32) {
    if is_on() {
        table::range(first, last).iter().for_each(end);
    }
}

fn end(entry: &Entry) {
    if let (Some(lane), Some(tally)) = (entry.known(), counting()) {
        let bytes = entry.take_bytes();
        match entry.last() {
            Last::Sent => tally.note(lane, Spread::TurnOut, bytes),
            Last::Received => tally.note(lane, Spread::TurnIn, bytes),
            Last::Nothing => {}
        }
        if matches!(lane, Lane::Asks | Lane::Serves) {
            tally.opened(-1);
        }
    }
    entry.forget();
}

/// A descriptor is a new socket: of no connection (`None`), or of one that the process accepted or
/// opened.
pub fn made(fd: RawFd, accepted: Option<bool>) {
    if !is_on() {
        return;
    }
    if let Some(entry) = table::entry(fd) {
        match accepted {
            None => entry.forget(),
            Some(accepted) => entry.is_new(accepted),
        }
    }
}

/// stdio reads or writes a descriptor from now on, by calls that are not seen.
pub fn is_stdio(fd: RawFd) {
    if let Some((_, lane, tally)) = is_on().then(|| of(fd)).flatten()
        && lane != Lane::Unix
    {
        tally.add_whole(Whole::Stdio, 1);
    }
}

/// The process waits for connections.
pub fn listens() {
    if let Some(tally) = is_on().then(tally).flatten() {
        tally.add_whole(Whole::Listens, 1);
    }
}

/// A call that waits for many descriptors has found `ready` of them. `looks`: it was not to wait.
#[inline]
pub fn waited(begin: u64, ready: i32, looks: bool) {
    if begin == 0 {
        return;
    }
    let Some(tally) = counting() else { return };
    tally.add_whole(Whole::Waits, 1);
    tally.add_whole(Whole::WaitNs, now_ns().saturating_sub(begin));
    if looks {
        tally.add_whole(Whole::Looks, 1);
    }
    match ready {
        1.. => tally.add_whole(Whole::Ready, ready as u64),
        0 => tally.add_whole(Whole::WaitsInVain, 1),
        _ => {}
    }
}
