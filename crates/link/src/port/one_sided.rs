//! Memory that processes of this host read and write without packets, and packets that are longer
//! than a wire's. A port that has no shared memory says so: none.

use std::sync::Arc;

use rnic_sys::process::Span;
use rnic_wire::PathMtu;

use super::{Port, either};
use crate::shm::by_value::Vacant;
use crate::shm::{Copies, RingId};
use crate::staging::path::PathId;
use crate::{CmaWindow, Grant, GrantName};

impl Port {
    /// The CMA window to the process that a path leads to; `None`: its memory cannot be used
    /// without packets.
    pub fn cma_window(&mut self, path: PathId) -> Option<Arc<CmaWindow>> {
        either!(self, port => port.cma_window(path))
    }

    /// All packets that were given to a path through shared memory were delivered, and their
    /// receiver is done with them.
    #[inline]
    pub fn is_drained(&self, path: PathId) -> bool {
        either!(self, port => port.is_drained(path))
    }

    /// Lets the process whose packets come by that ring reach memory of this one.
    pub fn grant(&mut self, ring: RingId, grant: &Grant) {
        either!(self, port => port.grant(ring, grant));
    }

    /// Takes back all grants that are meant.
    pub fn revoke(&mut self, which: impl Fn(&GrantName) -> bool) -> Copies {
        either!(self, port => port.revoke(which))
    }

    /// The most payload of one multi-PSN packet of this path; 0: there are none.
    #[inline]
    pub fn most_by_value(&self, path: PathId) -> usize {
        either!(self, port => port.most_by_value(path))
    }

    /// [`packet`](Port::packet) for a multi-PSN packet, which is longer than that path MTU. `None`
    /// as well if the path takes none any more.
    pub fn multi_psn_packet(
        &mut self,
        path: PathId,
        headers: usize,
        payload: usize,
        mtu: PathMtu,
    ) -> Option<&mut [u8]> {
        either!(self, port => port.multi_psn_packet(path, headers, payload, mtu))
    }

    /// Room for the headers alone: the payload is in its place, where `place` has copied it to.
    /// `None` as well if it would be lost, or if `place` gave false.
    pub fn vacant(
        &mut self,
        path: PathId,
        headers: usize,
        payload: usize,
        mtu: PathMtu,
        place: impl FnOnce(&Vacant<'_>) -> bool,
    ) -> Option<&mut [u8]> {
        either!(self, port => port.vacant(path, headers, payload, mtu, place))
    }

    /// The payload of the next long packet of this path may go by reference: the packet says where
    /// it is. To be asked once for each.
    #[inline]
    pub fn may_go_by_reference(&self, path: PathId) -> bool {
        either!(self, port => port.may_go_by_reference(path))
    }

    /// As [`packet`](Port::packet), for the headers of a packet whose payload the peer copies from
    /// `pieces` of this process's memory: see
    /// [`RoceLink::by_reference`](crate::RoceLink::by_reference).
    pub fn by_reference(
        &mut self,
        path: PathId,
        headers: usize,
        of: (u32, PathMtu),
        pieces: &[Span],
    ) -> Option<&mut [u8]> {
        either!(self, port => port.by_reference(path, headers, of, pieces))
    }

    /// Another short packet follows right behind the next one: its receiver is woken once for both,
    /// at the latest by [`wake_unwoken`](Port::wake_unwoken), which the caller owes.
    pub fn expect_another(&mut self, follows: bool) {
        either!(self, port => port.expect_another(follows));
    }

    /// Wakes the receiver of a short packet that [`expect_another`](Port::expect_another) kept from
    /// waking it.
    pub fn wake_unwoken(&mut self) {
        either!(self, port => port.wake_unwoken());
    }
}
