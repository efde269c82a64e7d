//! What processes have of the device, for whoever looks from outside.
//!
//! Each process knows its own objects only. So whoever looks asks all processes of his user on this
//! host ([`rnic_host::inquiry`]).

use rnic_host::QpnRange;
use rnic_host::inquiry::{self, Respondent};
use rnic_host::registry::range_of;

use crate::driving::{NicShared, current};
use crate::engine::peer_service::{list_question, listed};
use crate::engine::resources::{decode, decode_carried, decode_counters};
use crate::engine::{Common, PortCounters, sum};

pub use crate::engine::resources::{Carried, Detail, Kind, Path};
pub use crate::observe::Histogram;

/// An object of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The process, as this one sees it.
    pub pid: u32,
    /// No other object of that kind of the device has it (of regions: hardly another).
    pub number: u32,
    /// What it is.
    pub detail: Detail,
}

/// A look at all processes. Who did not answer once is not asked again.
#[derive(Debug, Default)]
pub struct Survey {
    silent: Vec<Respondent>,
}

impl Survey {
    /// All objects of a kind that processes of this user have, this one among them, by number.
    pub fn list(&mut self, kind: Kind) -> Vec<Resource> {
        let mut resources = Vec::new();
        self.ask(kind, &mut |pid, bytes| {
            resources.extend(decode(kind, bytes).map(|(number, detail)| Resource {
                pid,
                number,
                detail,
            }));
        });
        resources.sort_by_key(|resource| resource.number);
        resources
    }

    /// What the ports of all processes of this user have counted together.
    pub fn counters(&mut self) -> PortCounters {
        let mut all = Vec::new();
        self.ask(Kind::Counters, &mut |_, bytes| {
            all.extend(decode_counters(bytes));
        });
        sum(all.into_iter())
    }

    /// What the queue pairs of all processes of this user have carried, this one's among them, by
    /// number. Their processes measure latencies from now on, for ten seconds.
    pub fn carried(&mut self) -> Vec<Carried> {
        let mut all = Vec::new();
        self.ask(Kind::Carried, &mut |pid, bytes| {
            all.extend(decode_carried(pid, bytes));
        });
        all.sort_by_key(|carried| carried.qpn);
        all
    }

    /// The processes that did not answer, or not to the end.
    pub fn silent(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.silent.iter().map(|who| who.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Pages of all processes: the number of the process, and the records.
    fn ask(&mut self, kind: Kind, on_page: &mut dyn FnMut(u32, &[u8])) {
        let own = current().filter(|handle| handle.shared.is_alive());
        if let Some(handle) = &own {
            tell_own(&handle.shared, kind, on_page);
        }
        let left_out = |range: QpnRange| {
            let of = |who: &Respondent| range_of(range.first) == who.first_range;
            let is_own = |common: &Common| common.shard_of(range.first).is_some();
            self.silent.iter().any(of)
                || own
                    .as_ref()
                    .is_some_and(|handle| is_own(&handle.shared.common))
        };
        let silent = inquiry::ask_all(&list_question(kind, 0), &left_out, &mut |who, answer| {
            // Of another version: as if it had none.
            let (next, bytes) = listed(answer)?;
            on_page(who.pid, bytes);
            (next != 0).then(|| list_question(kind, next))
        });
        self.silent.extend(silent);
    }
}

fn tell_own(nic: &NicShared, kind: Kind, on_page: &mut dyn FnMut(u32, &[u8])) {
    nic.each_shard(|shard| {
        let mut from = 0;
        loop {
            // Told without the lock.
            let page = shard.lock().resources(kind, from);
            on_page(std::process::id(), &page.bytes);
            if page.next == 0 {
                break;
            }
            from = page.next;
        }
    });
}
