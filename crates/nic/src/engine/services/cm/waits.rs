//! Connections that have no answer yet: for the report of a program that ends, or is ended, before
//! it knows.

use std::collections::VecDeque;

use super::entry::{Number, Phase};
use super::slab::Key;
use super::state::Cm;
use crate::observe;

/// After how long without an answer that is noted: a program that is killed later has no time for
/// it.
const SOON: u64 = 1_000_000_000;

/// Those that have asked, the oldest first, with the time to look at them.
#[derive(Debug, Default)]
pub(crate) struct Waits(VecDeque<(u64, Key)>);

impl Waits {
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.0.front().map(|(at, _)| *at)
    }
}

impl Cm {
    /// An id has asked its peer.
    pub(crate) fn has_asked(&mut self, key: Key, now: u64) {
        if observe::is_on() {
            self.waits.0.push_back((now.saturating_add(SOON), key));
            self.note(Some(key), observe::cm::asked);
        }
    }

    /// Notes who still has no answer.
    pub(crate) fn look_at_waits(&mut self, now: u64) {
        while let Some((_, key)) = self.waits.0.front().filter(|(at, _)| *at <= now).copied() {
            self.waits.0.pop_front();
            self.note_wait(key, now);
        }
    }

    /// The process ends: notes it of all.
    pub(crate) fn note_waits(&mut self, now: u64) {
        for (_, key) in std::mem::take(&mut self.waits.0) {
            self.note_wait(key, now);
        }
    }

    fn note_wait(&mut self, key: Key, now: u64) {
        let Some(connection) = self.ids.get_mut(key).and_then(|e| e.connection.as_mut()) else {
            return;
        };
        if connection.phase != Phase::Requested || connection.noted {
            return;
        }
        connection.noted = true;
        let silence = self.silence(key, now);
        self.note(Some(key), |attempt| {
            observe::cm::no_answer_yet(attempt, silence, self.ports.as_ref())
        });
    }

    /// An answer has come, perhaps after all.
    pub(crate) fn note_answer(&mut self, key: Key) {
        let connection = self.ids.get(key).and_then(|entry| entry.connection);
        let late = connection.is_some_and(|connection| connection.noted);
        if late || observe::cm::has_told() {
            self.note(Some(key), observe::cm::answered);
        }
    }

    /// How long, and how often, an id has asked in vain.
    pub(crate) fn silence(&self, key: Key, now: u64) -> observe::cm::Silence {
        let connection = self.ids.get(key).and_then(|entry| entry.connection);
        let tries = connection.and_then(|connection| match connection.number {
            Number::Conn(conn) => self.endpoint.tries(conn),
            Number::Sidr(sidr) => self.endpoint.sidr_tries(sidr),
        });
        observe::cm::Silence {
            // The endpoint forgets who never was answered.
            tries: tries.unwrap_or(u32::from(self.endpoint.config().max_retries) + 1),
            waited_ns: connection.map_or(0, |connection| now.saturating_sub(connection.asked_at)),
        }
    }
}
