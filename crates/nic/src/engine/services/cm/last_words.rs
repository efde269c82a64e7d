//! Last words: what has to be said in the name of a process that is killed.
//!
//! The peers on its own host notice that themselves ([`super::life`]). For each connection with
//! another host a process keeps a record in a file of the link. Any process of this host that uses
//! the connection manager sends those of dead processes.

use rnic_cm::{ConnId, LastWords, Time};
use rnic_host::last_words::{DeadProcess, LAST_WORDS_LEN, LastWordsId};
use rnic_link::Port;

use super::entry::{Connection, Number};
use super::slab::Key;
use super::state::Cm;

/// How often to look for the last words of dead processes.
const LOOK: u64 = 1_000_000_000;
/// How long sending them takes: the endpoint says everything four times within this.
pub(crate) const LAST_WORDS_NS: u64 = 1_000_000_000;

/// What is to be done with the link's files, which a call into the connection manager does not have
/// at hand.
#[derive(Debug, Default)]
pub(crate) struct PendingLastWords {
    to_write: Vec<(Key, ConnId)>,
    to_remove: Vec<LastWordsId>,
    /// Their last words are being sent, until then.
    dead: Vec<(DeadProcess, u64)>,
    next_look: u64,
}

impl PendingLastWords {
    pub(crate) fn remove(&mut self, id: Option<LastWordsId>) {
        self.to_remove.extend(id);
    }
}

impl Cm {
    /// The peer may think of the connection as established from now on.
    pub(crate) fn needs_last_words(&mut self, key: Key, conn: ConnId) {
        let entry = self.ids.get(key);
        let Some(connection) = entry.and_then(|entry| entry.connection) else {
            return;
        };
        let remote = connection.terms.ah.dgid;
        if self.row_of_gid(remote).is_none() {
            self.last_words.to_write.push((key, conn));
        }
    }

    /// The connection is over for the peer, too.
    pub(crate) fn needs_no_last_words(&mut self, connection: &mut Connection) {
        self.last_words
            .to_remove
            .extend(connection.last_words.take());
    }

    pub(crate) fn remove_last_words(&mut self, id: Option<LastWordsId>) {
        self.last_words.remove(id);
    }

    /// Brings the files up to date.
    pub(crate) fn update_last_words(&mut self, link: &mut Port) {
        for (key, conn) in std::mem::take(&mut self.last_words.to_write) {
            let entry = self.ids.get_mut(key);
            let Some(connection) = entry.and_then(|entry| entry.connection.as_mut()) else {
                continue;
            };
            let same = matches!(connection.number, Number::Conn(number) if number == conn);
            let Some(last_words) = self.endpoint.last_words(conn).filter(|_| same) else {
                continue;
            };
            let mut record = [0; LAST_WORDS_LEN];
            record[..LastWords::LEN].copy_from_slice(&last_words.to_bytes());
            match link.write_last_words(&record) {
                Ok(written) => connection.last_words = Some(written),
                // A process has the registry's lock, and may even be stopped: at the next look.
                Err(e) if e.kind() == std::io::ErrorKind::TimedOut => {
                    self.last_words.to_write.push((key, conn));
                }
                // Without a record the peer finds out by its own retries.
                Err(_) => {}
            }
        }
        for id in self.last_words.to_remove.drain(..) {
            link.remove_last_words(id);
        }
    }

    /// When to look for those of dead processes; only where the connection manager is in use.
    pub(crate) fn last_words_deadline(&self) -> Option<u64> {
        let wanted = !self.channels.is_empty() || self.leaves_last_words();
        wanted.then_some(self.last_words.next_look)
    }

    /// Sends what dead processes left. True: there was something.
    pub(crate) fn send_last_words(&mut self, link: &mut Port, now: u64) -> bool {
        self.last_words.next_look = now.saturating_add(LOOK);
        self.last_words.dead.retain(|(_, until)| *until > now);
        if self.leaves_last_words() {
            // Removes those of connections that are over by now.
            self.is_leaving();
        }
        let dead = link.take_last_words_of_the_dead();
        let some = !dead.is_empty();
        for process in dead {
            for record in process.last_words() {
                let last_words = record.first_chunk().and_then(LastWords::from_bytes);
                if let Some(last_words) = last_words {
                    self.endpoint.send_last_words(Time(now), &last_words);
                }
            }
            let until = now.saturating_add(LAST_WORDS_NS);
            self.last_words.dead.push((process, until));
        }
        some
    }
}
