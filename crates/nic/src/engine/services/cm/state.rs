//! Ids and event channels as the engine knows them. All of it lies under the engine's lock: whoever
//! has that needs no other, and nothing here holds a handle whose end would ask for it again.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rnic_cm::Endpoint;
use rnic_host::SourcePorts;
use rnic_host::ports::Ports;

use super::entry::{Entry, Facts, Handle, TakenEvent, Waiting};
use super::held::Held;
use super::last_words::PendingLastWords;
use super::life::{Leaving, Life};
use super::listeners::Listeners;
use super::qp1::{Arrived, Qp1};
use super::queries::Queries;
use super::slab::{Key, Slab};
use super::waits::Waits;
use crate::addressing::gid_table::GidEntry;
use crate::host::Host;
use rnic_sys::EventFd;

/// An event channel.
#[derive(Debug)]
pub(crate) struct Channel {
    fd: Arc<EventFd>,
    pub(crate) events: VecDeque<Waiting>,
    /// The ids whose events go here.
    ids: BTreeSet<Key>,
}

/// The process's connection manager.
pub(crate) struct Cm {
    pub(crate) host: Host,
    pub(crate) ids: Slab<Entry>,
    pub(crate) channels: Slab<Channel>,
    pub(crate) memberships: Slab<Membership>,
    pub(crate) listeners: Listeners,
    pub(crate) ports: Option<Ports>,
    /// Whose messages from addresses of this host are.
    pub(crate) source_ports: Option<Arc<SourcePorts>>,
    pub(crate) endpoint: Endpoint,
    pub(crate) by_number: BTreeMap<u32, Key>,
    pub(crate) qp1: Qp1,
    /// The host's addresses, as they were last looked at.
    pub(crate) table: Vec<GidEntry>,
    /// Connections of ids that are gone whose peers have not confirmed the end yet, among others.
    pub(crate) leaving: Leaving,
    pub(crate) last_words: PendingLastWords,
    pub(crate) queries: Queries,
    pub(crate) life: Life,
    pub(crate) held: Held,
    pub(crate) waits: Waits,
    /// Requests to be sent once more, to the process that listens by now.
    pub(crate) forwards: Vec<Arrived>,
    /// The process ends, or its NIC: ids are destroyed without its program.
    pub(crate) is_closing: bool,
    /// When something is due.
    pub(crate) deadline: Option<u64>,
}

/// A membership in a multicast group.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) reported: u32,
}

impl Cm {
    /// How many channels, ids, and connections and resolutions there are.
    pub(crate) fn objects(&self) -> (usize, usize, usize) {
        let numbers = self.endpoint.connections() + self.endpoint.resolutions();
        (self.channels.len(), self.ids.len(), numbers)
    }

    /// The ids that have an address.
    pub(crate) fn facts(&self) -> impl Iterator<Item = Facts> {
        let bound = |entry: &&Entry| entry.local.is_some() || entry.source.is_some();
        let ids = self.ids.iter().filter(move |(_, entry)| bound(entry));
        ids.map(|(key, entry)| Facts {
            number: key.place(),
            qpn: entry.qpn,
            qp_type: entry.qp_type,
            port_space: entry.port_space,
            state: entry.state.of_linux(),
            on_device: entry.source.is_some(),
            local: entry.local,
            peer: entry.peer,
        })
    }

    /// The ids whose events go to the channel with that descriptor.
    pub(crate) fn ids_on(&self, fd: RawFd) -> impl Iterator<Item = &Entry> {
        let channel = self.channels.iter().find(|(_, c)| c.fd.fd() == fd);
        let ids = channel.into_iter().flat_map(|(_, channel)| &channel.ids);
        ids.filter_map(|key| self.ids.get(*key))
    }

    /// The descriptors of all channels.
    pub(crate) fn channel_fds(&self) -> Vec<RawFd> {
        self.channels.iter().map(|(_, c)| c.fd.fd()).collect()
    }

    pub(crate) fn add_channel(&mut self, fd: Arc<EventFd>) -> Key {
        self.channels.insert(Channel {
            fd,
            events: VecDeque::new(),
            ids: BTreeSet::new(),
        })
    }

    /// The channel is closed: its ids go with it.
    pub(crate) fn remove_channel(&mut self, key: Key, now: u64) {
        // With all of its events first: no id has to look for its own among them.
        let channel = self.channels.remove(key);
        for id in channel.into_iter().flat_map(|channel| channel.ids) {
            self.destroy(id, now);
        }
    }

    /// Enters an id; `None`: the channel is closed.
    pub(crate) fn add_id(&mut self, entry: Entry) -> Option<Key> {
        let channel = entry.channel;
        self.channels.get(channel)?;
        let key = self.ids.insert(entry);
        self.channels.get_mut(channel)?.ids.insert(key);
        Some(key)
    }

    /// The owner of an id holds it from now on, by what `make` makes.
    pub(crate) fn adopt<H: Any + Send + Sync>(
        &mut self,
        key: Key,
        make: impl FnOnce(&Entry) -> Arc<H>,
    ) -> Option<Arc<H>> {
        let entry = self.ids.get_mut(key)?;
        let handle = make(entry);
        let held: Arc<Handle> = handle.clone();
        entry.handle = Arc::downgrade(&held);
        Some(handle)
    }

    /// Has an event wait.
    pub(crate) fn post(&mut self, event: Waiting) {
        let Some(entry) = self.ids.get_mut(event.id) else {
            return;
        };
        if !entry.marks.adopted.load(Ordering::Acquire) {
            return;
        }
        if let Some(channel) = self.channels.get_mut(entry.channel) {
            entry.waiting += 1;
            channel.events.push_back(event);
            channel.fd.add(1);
        }
    }

    /// Takes the oldest event of a channel, after its token was taken. `None`: its id has ended, or
    /// is about to.
    pub(crate) fn next_event(&mut self, channel: Key, now: u64) -> Option<TakenEvent> {
        let waiting = self.channels.get_mut(channel)?.events.pop_front()?;
        if let Some((membership, _)) = waiting.multicast {
            self.memberships.get_mut(membership)?.reported += 1;
        }
        let entry = self.ids.get_mut(waiting.id)?;
        entry.waiting -= 1;
        entry.reported += 1;
        entry.backlog += u32::from(waiting.subject.is_some());
        // Its owner may be about to let go of it. A handle that is the last may not end here, under
        // the lock: from here on the event goes to the caller, whatever is in it.
        let Some(owner) = entry.handle.upgrade() else {
            // With its listener goes a request that it was told of.
            if let Some(subject) = waiting.subject {
                self.destroy(subject, now);
            }
            return None;
        };
        Some(TakenEvent {
            kind: waiting.kind,
            status: waiting.status,
            owner,
            subject: waiting.subject,
            multicast: waiting.multicast.map(|(_, uid)| uid),
            param: waiting.param,
        })
    }

    /// Ends an id; gives the number of its events that were taken.
    pub(crate) fn destroy(&mut self, key: Key, now: u64) -> u32 {
        let Some(mut entry) = self.ids.remove(key) else {
            return 0;
        };
        self.stop_listening(key, &entry);
        self.end_connection(key, &mut entry, now);
        for membership in std::mem::take(&mut entry.memberships) {
            self.memberships.remove(membership);
        }
        let mut untaken = Vec::new();
        if let Some(channel) = self.channels.get_mut(entry.channel) {
            channel.ids.remove(&key);
            if entry.waiting > 0 {
                channel.drop_events(
                    |event| event.id == key,
                    |event| untaken.extend(event.subject),
                );
            }
        }
        for request in untaken {
            self.destroy(request, now);
        }
        entry.reported
    }

    /// Has the events of an id go to another channel, also those that wait; gives the number of
    /// those that were taken. `None`: there is no such id or channel.
    pub(crate) fn migrate(&mut self, key: Key, to: Key) -> Option<u32> {
        self.channels.get(to)?;
        let entry = self.ids.get_mut(key)?;
        let reported = entry.reported;
        let from = std::mem::replace(&mut entry.channel, to);
        if from == to {
            return Some(reported);
        }
        let mut moved = Vec::new();
        if let Some(channel) = self.channels.get_mut(from) {
            channel.ids.remove(&key);
            channel.drop_events(|event| event.id == key, |event| moved.push(event));
            for event in &moved {
                if let Some(subject) = event.subject {
                    channel.ids.remove(&subject);
                }
            }
        }
        let subjects = moved.iter().filter_map(|event| event.subject);
        for subject in subjects.clone() {
            if let Some(new) = self.ids.get_mut(subject) {
                new.channel = to;
            }
        }
        let channel = self.channels.get_mut(to)?;
        channel.ids.insert(key);
        channel.ids.extend(subjects);
        channel.fd.add(moved.len() as u64);
        channel.events.extend(moved);
        Some(reported)
    }

    /// Drops the events of a membership that nobody took.
    pub(crate) fn drop_multicast_events(&mut self, key: Key, membership: Key) {
        let Some(entry) = self.ids.get_mut(key) else {
            return;
        };
        let mut dropped = 0;
        if let Some(channel) = self.channels.get_mut(entry.channel) {
            let whose = |event: &Waiting| event.multicast.is_some_and(|(m, _)| m == membership);
            channel.drop_events(whose, |_| dropped += 1);
        }
        entry.waiting -= dropped;
    }
}

impl Channel {
    /// Takes out events with their tokens.
    fn drop_events(&mut self, which: impl Fn(&Waiting) -> bool, mut with: impl FnMut(Waiting)) {
        for event in std::mem::take(&mut self.events) {
            if which(&event) {
                self.fd.try_take();
                with(event);
            } else {
                self.events.push_back(event);
            }
        }
    }
}
