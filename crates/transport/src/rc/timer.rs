//! The timers of a queue pair: one table, one minimum.

use crate::Time;

/// What a queue pair may be waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Timer {
    /// The peer owes an acknowledge.
    AckTimeout,
    /// The peer had no receive posted and asked for a pause.
    RnrWait,
    /// The peer is slower than usual, on a path that loses packets.
    TailLossProbe,
    /// What left last asks for no acknowledge, and nothing followed that does.
    AckRequest,
}

impl Timer {
    const ALL: [Timer; 4] = [
        Timer::AckTimeout,
        Timer::RnrWait,
        Timer::TailLossProbe,
        Timer::AckRequest,
    ];
}

/// Of a timer that is not set.
const NEVER: Time = Time(u64::MAX);

/// Deadline of each [`Timer`]. Asked with every message: no options, whose order costs several
/// times as much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimerTable {
    deadlines: [Time; Timer::ALL.len()],
}

impl Default for TimerTable {
    fn default() -> TimerTable {
        TimerTable {
            deadlines: [NEVER; Timer::ALL.len()],
        }
    }
}

impl TimerTable {
    pub(crate) fn set(&mut self, timer: Timer, at: Time) {
        self.deadlines[timer as usize] = at;
    }

    pub(crate) fn clear(&mut self, timer: Timer) {
        self.deadlines[timer as usize] = NEVER;
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.deadlines[timer as usize] != NEVER
    }

    pub(crate) fn deadline(&self, timer: Timer) -> Option<Time> {
        self.is_set(timer).then_some(self.deadlines[timer as usize])
    }

    /// It is set, and its time has come.
    pub(crate) fn is_due(&self, timer: Timer, now: Time) -> bool {
        self.is_set(timer) && self.deadlines[timer as usize] <= now
    }

    /// The earliest deadline.
    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        let [first, rest @ ..] = self.deadlines;
        let next = rest.into_iter().fold(first, Time::min);
        (next != NEVER).then_some(next)
    }

    /// Disarms and names one timer that is due.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<Timer> {
        let due = Timer::ALL
            .into_iter()
            .find(|&timer| self.is_due(timer, now))?;
        self.clear(due);
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_is_the_minimum_and_due_timers_fire_once() {
        let mut table = TimerTable::default();
        assert_eq!(table.next(), None);
        table.set(Timer::AckTimeout, Time(30));
        table.set(Timer::RnrWait, Time(20));
        assert_eq!(table.next(), Some(Time(20)));
        assert_eq!(table.take_due(Time(19)), None);
        assert_eq!(table.take_due(Time(30)), Some(Timer::AckTimeout));
        assert_eq!(table.take_due(Time(30)), Some(Timer::RnrWait));
        assert_eq!(table.take_due(Time(30)), None);
        assert_eq!(table.next(), None);
    }
}
