//! The connection manager in the engine's rounds: datagrams in and out, and what is due.

use rnic_cm::{Address, Admission, Config, Endpoint, Time};
use rnic_host::QP1;
use rnic_host::qp1::range_of_id;
use rnic_host::registry::range_of;
use rnic_link::{AddressVector, PathSpec, Port, Received};
use rnic_wire::Gid;

use super::entry::{Source, Waiting};
use super::event_translation::{admit, wanted};
use super::qp1::{Arrived, Taken};
use super::slab::{Key, Slab};
use super::state::Cm;
use crate::addressing::gid_table::GidEntry;
use crate::engine::Engine;
use crate::host::Host;
use crate::observe;
use rnic_types::cm::EventKind;

impl Cm {
    pub(crate) fn new(link: &Port, host: Host) -> Cm {
        let first = link.qpn_ranges().first().map_or(0, |range| range.first);
        let endpoint = Endpoint::new(Config {
            range: range_of(first) as u16,
            seed: host.random_u64(),
            guid: host.device_guid(),
            ..Config::default()
        });
        let table = host.gid_table();
        let mut cm = Cm {
            host,
            ids: Slab::default(),
            channels: Slab::default(),
            memberships: Slab::default(),
            listeners: Default::default(),
            ports: link.ports(),
            source_ports: link.source_ports(),
            endpoint,
            by_number: Default::default(),
            qp1: Default::default(),
            table: Vec::new(),
            leaving: Default::default(),
            last_words: Default::default(),
            queries: Default::default(),
            life: Default::default(),
            held: Default::default(),
            waits: Default::default(),
            forwards: Vec::new(),
            is_closing: false,
            deadline: None,
        };
        cm.set_table(table);
        cm
    }

    /// The host's addresses are these now.
    fn set_table(&mut self, table: Vec<GidEntry>) {
        let gids: Vec<Gid> = table.iter().map(|row| row.gid).collect();
        self.endpoint.set_gids(&gids);
        self.table = table;
    }

    /// The table was read: if it is news, the port's watcher has not told it yet, or it was read
    /// before that did. So it is read again: an old one would stay.
    pub(crate) fn refresh(&mut self, table: &[GidEntry]) {
        let gids = |table: &[GidEntry]| table.iter().map(|row| row.gid).collect::<Vec<_>>();
        if gids(table) != gids(&self.table) {
            self.set_table(self.host.gid_table());
        }
    }

    pub(crate) fn row_of_gid(&self, gid: Gid) -> Option<&GidEntry> {
        self.table.iter().find(|row| row.gid == gid)
    }

    /// A packet to QP 1.
    pub(crate) fn receive(&mut self, received: &Received<'_>) -> Taken {
        self.qp1.receive(received, self.host.pkeys())
    }

    /// When [`Engine::attend_to_cm`] has something to do.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    /// The same, with what has arrived.
    #[inline]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.qp1.has_waiting() || self.deadline.is_some_and(|at| at <= now)
    }

    /// Sees to what has arrived and what is due.
    fn attend(&mut self, link: &mut Port, now: u64) {
        for arrived in self.qp1.take_waiting() {
            let last = !self.held.has_room();
            self.hear(arrived, now, last);
        }
        self.look_at_held(now);
        if self.endpoint.poll_timeout().is_some_and(|at| at.0 <= now) {
            self.endpoint.handle_timeout(Time(now));
        }
        self.look_after_peers(link, now);
        self.look_for_neighbours(now);
        self.look_at_waits(now);
    }

    /// Takes a message in; one that nobody listens for is kept for a moment, unless this is the
    /// last look at it.
    pub(crate) fn hear(&mut self, arrived: Arrived, now: u64, last: bool) {
        let Cm {
            endpoint,
            ids,
            listeners,
            table,
            source_ports,
            ..
        } = self;
        let mut early = false;
        // Every user of this host may send from its addresses.
        let is_here = table.iter().any(|row| row.addr == arrived.src);
        let is_from = |id| {
            let (range, source_ports) = (range_of_id(id), source_ports.as_deref());
            source_ports.and_then(|s| s.is_from(range, arrived.src, arrived.src_port))
        };
        endpoint.handle(
            Time(now),
            &arrived.way_back(),
            &|id| !is_here || is_from(id) == Some(true),
            &arrived.mad,
            &mut |incoming| match admit(incoming, ids, listeners, table) {
                Admission::NobodyListens if !last => {
                    early = true;
                    Admission::Drop
                }
                Admission::NobodyListens => {
                    observe::cm::nobody_listens(incoming, wanted(incoming));
                    Admission::NobodyListens
                }
                admission => admission,
            },
        );
        if early {
            self.held.keep(arrived, now);
        }
        // One by one: what was admitted takes its place in the backlog.
        self.take_events(now);
    }

    /// Sends what there is to say, and tells what there is to tell.
    fn settle(&mut self, link: &mut Port, now: u64) -> bool {
        self.take_events(now);
        self.update_last_words(link);
        let (mut sent, mut asked) = (false, false);
        for arrived in std::mem::take(&mut self.forwards) {
            if let Some(vector) = self.vector(&arrived.way_here()) {
                self.qp1
                    .send(link, &vector, arrived.pkey, &arrived.mad, now);
                sent = true;
            }
        }
        while let Some(transmit) = self.endpoint.poll_transmit() {
            asked |= transmit.awaits_answer();
            if let Some(vector) = self.vector(&transmit.address) {
                let pkey = transmit.address.pkey;
                self.qp1.send(link, &vector, pkey, &transmit.mad, now);
                sent = true;
            }
        }
        if asked {
            self.begin_census(link, now);
        }
        let due = self.endpoint.poll_timeout().map(|at| at.0);
        let looks = [
            due,
            self.life.deadline(),
            self.queries.deadline(),
            self.held.deadline(),
            self.waits.deadline(),
            self.last_words_deadline(),
        ];
        self.deadline = looks.into_iter().flatten().min();
        sent
    }

    fn vector(&self, address: &Address) -> Option<AddressVector> {
        let row = self.row_of_gid(address.local_gid)?;
        let spec = PathSpec {
            local: row.addr,
            scope_id: row.scope_id,
            remote: address.remote_gid.ip(),
            dest_qpn: QP1,
            traffic_class: address.traffic_class,
            hop_limit: address.hop_limit,
        };
        Some(spec.into())
    }
}

impl Engine {
    /// What has arrived for the connection manager, and what is due there.
    #[cold]
    pub(crate) fn attend_to_cm(&mut self, now: u64) {
        self.cm.attend(&mut self.link, now);
        self.cm.look_for_deaths(&self.link, now);
        if self.cm.last_words_deadline().is_some_and(|at| at <= now) {
            self.cm.send_last_words(&mut self.link, now);
        }
        self.send_cm(now);
    }

    /// Sends the last words of dead processes; true: there were some.
    pub(crate) fn send_last_words(&mut self, now: u64) -> bool {
        let some = self.cm.send_last_words(&mut self.link, now);
        self.send_cm(now);
        some
    }

    /// What the connection manager has to say leaves. To be called after every call into it.
    pub(crate) fn send_cm(&mut self, now: u64) {
        if self.cm.settle(&mut self.link, now) {
            self.flush(now);
        }
    }

    /// The host's addresses have changed. Who was bound to one that is gone hears of it.
    pub(crate) fn cm_addresses_changed(&mut self, table: Vec<GidEntry>) {
        let now = self.common.host.now_ns();
        let Engine { cm, link, .. } = self;
        cm.qp1.forget_paths(link);
        let there = |source: &Source| {
            let same = |row: &GidEntry| row.addr == source.addr && row.scope_id == source.scope_id;
            table.iter().any(same)
        };
        for key in cm.ids.keys() {
            let Some(entry) = cm.ids.get_mut(key) else {
                continue;
            };
            let lost = entry.source.is_some_and(|source| !there(&source));
            // Once, however often the others change.
            if !std::mem::replace(&mut entry.source_lost, lost) && lost {
                cm.post(Waiting::new(key, EventKind::AddrChange));
            }
        }
        cm.set_table(table);
        self.send_cm(now);
    }

    pub(crate) fn remove_cm_channel(&mut self, channel: Key) {
        let now = self.common.host.now_ns();
        self.cm.remove_channel(channel, now);
        self.send_cm(now);
    }
}
