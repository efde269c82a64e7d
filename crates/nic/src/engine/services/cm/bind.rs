//! Ports, listeners and options.

use std::io;
use std::net::SocketAddr;

use rnic_host::ports::{BindFlags, PortClaim, Ports};
use rnic_wire::cm::{PortSpace, ServiceId};

use super::entry::{Entry, State, Waiting};
use super::slab::Key;
use super::state::Cm;
use crate::error::{Error, Result};
use crate::observe;
use crate::queues::QpType;
use rnic_types::cm::{EventKind, IdOption, PathRecord};

/// Requests that may wait at a listener (`net.rdma_ucm.max_backlog`).
const MOST_BACKLOG: u32 = 1024;

impl Cm {
    pub(crate) fn entry(&mut self, verb: &'static str, key: Key) -> Result<&mut Entry> {
        let entry = self.ids.get_mut(key);
        entry.ok_or_else(|| Error::invalid(verb, "the id was destroyed"))
    }

    /// Takes a port for an id.
    pub(crate) fn claim(
        &mut self,
        verb: &'static str,
        key: Key,
        addr: SocketAddr,
    ) -> Result<PortClaim> {
        let entry = self.entry(verb, key)?;
        let flags = BindFlags {
            reuse_addr: entry.options.reuse_addr,
            af_only: entry.options.af_only,
        };
        let space = entry.port_space;
        let Some(ports) = &self.ports else {
            return Err(Error::new(verb, libc::ENODEV, "the device is closed"));
        };
        let claimed = ports.bind(space, addr, flags, || self.host.random_u64());
        claimed.map_err(|e| {
            Error::new(
                verb,
                e.raw_os_error().unwrap_or(libc::EIO),
                format!(
                    "cannot take {addr} in {space}: {e}{}",
                    holders(ports, space, addr, &e)
                ),
            )
        })
    }

    pub(crate) fn listen(&mut self, key: Key, backlog: i32) -> Result<()> {
        const VERB: &str = "rdma_listen";
        let entry = self.entry(VERB, key)?;
        entry.expect(VERB, &[State::Idle, State::Bound])?;
        if entry.claim.is_none() {
            let claim = self.claim(VERB, key, SocketAddr::from(([0, 0, 0, 0], 0)))?;
            let entry = self.entry(VERB, key)?;
            entry.local = Some(claim.addr());
            entry.claim = Some(claim);
            entry.state = State::Bound;
        }
        let entry = self.entry(VERB, key)?;
        let Some(claim) = &mut entry.claim else {
            return Err(Error::invalid(VERB, "the id has no port"));
        };
        claim.listen().map_err(|e| {
            Error::new(
                VERB,
                e.raw_os_error().unwrap_or(libc::EIO),
                format!("cannot listen on {}: {e}", claim.addr()),
            )
        })?;
        let service = ServiceId::new(entry.port_space, claim.addr().port());
        entry.backlog = match u32::try_from(backlog) {
            Ok(backlog @ 1..=MOST_BACKLOG) => backlog,
            _ => MOST_BACKLOG,
        };
        entry.state = State::Listen;
        self.listeners.add(service, key);
        Ok(())
    }

    pub(crate) fn stop_listening(&mut self, key: Key, entry: &Entry) {
        let (State::Listen, Some(claim)) = (entry.state, &entry.claim) else {
            return;
        };
        let service = ServiceId::new(entry.port_space, claim.addr().port());
        self.listeners.remove(service, key);
        self.held.note_end(service, self.host.now_ns());
    }

    pub(crate) fn set_option(&mut self, key: Key, option: IdOption) -> Result<()> {
        const VERB: &str = "rdma_set_option";
        let pkeys = self.host.pkeys().clone();
        let entry = self.entry(VERB, key)?;
        match option {
            IdOption::Tos(tos) => entry.options.tos = Some(tos),
            IdOption::ReuseAddr(reuse) => {
                if !reuse {
                    entry.expect(VERB, &[State::Idle])?;
                }
                if let Some(claim) = entry.claim.as_mut().filter(|_| reuse) {
                    claim.set_reuse_addr(true).map_err(|e| {
                        let errno = e.raw_os_error().unwrap_or(libc::EIO);
                        Error::new(VERB, errno, format!("cannot share the port: {e}"))
                    })?;
                }
                entry.options.reuse_addr = reuse;
            }
            IdOption::AfOnly(only) => {
                // What a bound id listens for; its port stays taken for the families that it was
                // taken for.
                entry.expect(VERB, &[State::Idle, State::Bound])?;
                entry.options.af_only = Some(only);
            }
            IdOption::AckTimeout(timeout) => {
                if !matches!(entry.qp_type, QpType::Rc | QpType::XrcSend) {
                    return Err(Error::invalid(
                        VERB,
                        format!("queue pairs of type {} have no ACK timeout", entry.qp_type),
                    ));
                }
                if timeout > 31 {
                    return Err(Error::invalid(
                        VERB,
                        format!("ACK timeout {timeout}: possible are 0 to 31"),
                    ));
                }
                entry.options.ack_timeout = Some(timeout);
            }
            IdOption::PkeyIndex(index) => {
                entry.expect(VERB, &[State::Idle, State::Bound, State::AddrResolved])?;
                pkeys.check(VERB, index)?;
                entry.pkey_index = index;
            }
            IdOption::Path(path) => {
                entry.expect(VERB, &[State::AddrResolved])?;
                let index = pkeys.index_in_partition(path.pkey).ok_or_else(|| {
                    let PathRecord { pkey, .. } = path;
                    Error::invalid(
                        VERB,
                        format!("the path's P_Key {pkey:#06x} is of no partition of the port"),
                    )
                })?;
                entry.pkey_index = index;
                entry.path = Some(PathRecord {
                    pkey: pkeys.get(index).unwrap_or(path.pkey),
                    ..path
                });
                entry.state = State::RouteResolved;
                self.post(Waiting::new(key, EventKind::RouteResolved));
            }
        }
        Ok(())
    }
}

impl Entry {
    /// Refuses what does not go in the state that the id is in.
    pub(crate) fn expect(&self, verb: &'static str, states: &[State]) -> Result<()> {
        if states.contains(&self.state) {
            return Ok(());
        }
        let is = match self.state {
            State::Idle => "has no address yet",
            State::Bound => "is bound, its peer is not resolved",
            State::AddrQuery => "is resolving its peer's address",
            State::AddrResolved => "has its address resolved, but not the route",
            State::RouteResolved => "has its route resolved, but is not connected",
            State::Connect => "has been connected, or is about to be",
            State::Disconnect => "was disconnected: make a new one",
            State::Listen => "listens",
        };
        Err(Error::invalid(verb, format!("the id {is}")))
    }
}

/// Who has the port that is in use, for a person.
fn holders(ports: &Ports, space: PortSpace, addr: SocketAddr, error: &io::Error) -> String {
    let taken = [libc::EADDRINUSE, libc::EADDRNOTAVAIL];
    if !error
        .raw_os_error()
        .is_some_and(|errno| taken.contains(&errno))
        || addr.port() == 0
    {
        return String::new();
    }
    let holders = ports.holders(ServiceId::new(space, addr.port()).0);
    let names: Vec<String> = holders.iter().map(observe::cm::name_of).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(": it is taken: {}", names.join(", ")),
    }
}
