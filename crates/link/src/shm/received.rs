//! A packet as it is given out, by whichever way it came. It is defined here, as only packets that
//! came through memory have parts of their own: a ring, and perhaps a payload that still has to be
//! fetched.

use std::net::IpAddr;
use std::ops::ControlFlow;

use rnic_host::train::IpMarks;
use rnic_wire::PathMtu;

use super::detached::Detached;

/// A ring of this process's, by which packets came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingId(pub(super) u64);

/// A packet that arrived: ICRC right, QPN ours.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// UDP source port; 0 of what came through memory.
    pub src_port: u16,
    /// Traffic class and hop limit, if it came by a wire that tells.
    pub marks: Option<IpMarks>,
    /// From the first byte of the BTH to the last pad byte, without ICRC.
    pub bytes: &'a [u8],
    /// Where its payload is, if it came through memory without it, and its sender's path MTU: then
    /// `bytes` are its headers.
    pub detached: Option<(Detached<'a>, PathMtu)>,
    /// Destination QPN from the BTH; `MULTICAST_QPN`: `dst` is a multicast group.
    pub dest_qpn: u32,
    /// The ring by which it came, if it came through memory.
    pub ring: Option<RingId>,
}

/// Takes a packet, or leaves it for later.
pub(crate) type Deliver<'a> = dyn FnMut(&Received<'_>) -> ControlFlow<()> + 'a;
