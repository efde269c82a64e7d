//! Wills: what has to be said in the name of a process that is killed.
//!
//! The peers on its own host notice that themselves ([`super::life`]). For each connection with
//! another host a process keeps a will in a file of the link; whoever of this host's processes uses
//! the connection manager executes those of the dead.

use rnic_cm::{ConnId, Time, Will};
use rnic_host::wills::{Estate, WILL_LEN, WillId};
use rnic_link::RoceLink;

use super::entry::{Connection, Number};
use super::slab::Key;
use super::state::Cm;

/// How often to look for the wills of dead processes.
const LOOK: u64 = 1_000_000_000;
/// How long executing them takes: the endpoint says everything four times within this.
pub(crate) const EXECUTION: u64 = 1_000_000_000;

/// What is to be done with the link's files, which a call into the connection manager does not have
/// at hand.
#[derive(Debug, Default)]
pub(crate) struct Wills {
    to_write: Vec<(Key, ConnId)>,
    to_strike: Vec<WillId>,
    /// Being executed, until then.
    estates: Vec<(Estate, u64)>,
    next_look: u64,
}

impl Wills {
    pub(crate) fn strike(&mut self, will: Option<WillId>) {
        self.to_strike.extend(will);
    }
}

impl Cm {
    /// The peer may think of the connection as established from now on.
    pub(crate) fn needs_will(&mut self, key: Key, conn: ConnId) {
        let entry = self.ids.get(key);
        let Some(connection) = entry.and_then(|entry| entry.connection) else {
            return;
        };
        let remote = connection.terms.ah.dgid;
        if self.row_of_gid(remote).is_none() {
            self.wills.to_write.push((key, conn));
        }
    }

    /// The connection is over for the peer, too.
    pub(crate) fn needs_no_will(&mut self, connection: &mut Connection) {
        self.wills.to_strike.extend(connection.will.take());
    }

    pub(crate) fn strike(&mut self, will: Option<WillId>) {
        self.wills.strike(will);
    }

    /// Brings the files up to date.
    pub(crate) fn settle_wills(&mut self, link: &mut RoceLink) {
        for (key, conn) in std::mem::take(&mut self.wills.to_write) {
            let entry = self.ids.get_mut(key);
            let Some(connection) = entry.and_then(|entry| entry.connection.as_mut()) else {
                continue;
            };
            let same = matches!(connection.number, Number::Conn(number) if number == conn);
            let Some(will) = self.endpoint.will(conn).filter(|_| same) else {
                continue;
            };
            let mut record = [0; WILL_LEN];
            record[..Will::LEN].copy_from_slice(&will.to_bytes());
            match link.write_will(&record) {
                Ok(written) => connection.will = Some(written),
                // Somebody has the registry's lock, who may even be stopped: at the next look.
                Err(e) if e.kind() == std::io::ErrorKind::TimedOut => {
                    self.wills.to_write.push((key, conn));
                }
                // Without one the peer finds out by its own retries.
                Err(_) => {}
            }
        }
        for will in self.wills.to_strike.drain(..) {
            link.strike_will(will);
        }
    }

    /// When to look for those of the dead; only where the connection manager is in use.
    pub(crate) fn will_deadline(&self) -> Option<u64> {
        let wanted = !self.channels.is_empty() || self.leaves_wills();
        wanted.then_some(self.wills.next_look)
    }

    /// Executes what dead processes left. True: there was something.
    pub(crate) fn execute_wills(&mut self, link: &mut RoceLink, now: u64) -> bool {
        self.wills.next_look = now.saturating_add(LOOK);
        self.wills.estates.retain(|(_, until)| *until > now);
        if self.leaves_wills() {
            // Strikes those of connections that are over by now.
            self.is_leaving();
        }
        let estates = link.take_wills_of_the_dead();
        let some = !estates.is_empty();
        for estate in estates {
            for record in estate.wills() {
                let will = record.first_chunk().and_then(Will::from_bytes);
                if let Some(will) = will {
                    self.endpoint.execute(Time(now), &will);
                }
            }
            let until = now.saturating_add(EXECUTION);
            self.wills.estates.push((estate, until));
        }
        some
    }
}
