//! A packet as it is given out, by whichever way it came. It is defined here, as only packets that
//! came through memory have parts of their own: a ring, and perhaps a payload that still has to be
//! fetched.

use std::net::IpAddr;
use std::ops::ControlFlow;

use rnic_host::train::IpMarks;
use rnic_wire::ip::{Ipv4Header, UDP_LEN};
use rnic_wire::{Gid, Grh, ICRC_LEN, PathMtu, UdPrefix};

use super::detached::Detached;
use crate::staging::address::Address;

/// A ring of this process's, by which packets came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingId(pub(super) u64);

/// A packet that arrived: ICRC right, QPN ours.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Source address.
    pub src: Address,
    /// Destination address.
    pub dst: Address,
    /// UDP source port; 0 of what came through memory, or not by UDP.
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

impl Received<'_> {
    /// What a UD receive begins with (annex A17, 17.4.5.1): its network header, as far as a UDP
    /// socket shows it. What came through memory has been forwarded by nobody.
    pub fn network_header(&self) -> UdPrefix {
        /// What Linux sends with.
        const HOPS: u8 = 64;
        const UDP: u8 = 17;
        let (traffic_class, hop_limit) = match self.marks {
            Some(marks) => (marks.traffic_class, marks.hop_limit),
            None => (0, HOPS),
        };
        let udp_len = (UDP_LEN + self.bytes.len() + ICRC_LEN) as u16;
        match (self.src, self.dst) {
            (Address::RoceV2(IpAddr::V4(src)), Address::RoceV2(IpAddr::V4(dst))) => {
                UdPrefix::V4(Ipv4Header {
                    tos: traffic_class,
                    // A ring may carry what is longer than any datagram; who takes it looks at the
                    // length of what it brings.
                    total_len: udp_len.wrapping_add(Ipv4Header::LEN as u16),
                    id: 0,
                    dont_fragment: true,
                    ttl: hop_limit,
                    protocol: UDP,
                    src,
                    dst,
                })
            }
            (Address::RoceV2(src), Address::RoceV2(dst)) => UdPrefix::V6(Grh {
                traffic_class,
                flow_label: 0,
                payload_len: udp_len,
                next_header: UDP,
                hop_limit,
                sgid: Gid::from(src).0,
                dgid: Gid::from(dst).0,
            }),
            _ => UdPrefix::None,
        }
    }
}

/// Takes a packet, or leaves it for later.
pub(crate) type Deliver<'a> = dyn FnMut(&Received<'_>) -> ControlFlow<()> + 'a;
