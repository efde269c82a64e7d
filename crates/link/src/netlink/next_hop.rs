//! Questions to rtnetlink(7): over which neighbour a route leads, and whether it is known. Needs no
//! privilege.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::netlink::rtnetlink::{Attributes, Messages, NLM_F_CREATE, Request, split};
use rnic_sys::{RouteEvent, RouteEvents};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_METRICS: u16 = 8;
const RTAX_MTU: u16 = 2;
const IFLA_MTU: u16 = 4;
/// The route itself is asked for, and not what the kernel has learned of one destination.
const RTM_F_FIB_MATCH: u32 = 0x2000;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// The neighbour is in use.
const NTF_USE: u8 = 1;
/// Type of a route to another host.
const RTN_UNICAST: u8 = 1;
/// A neighbour whose address is known: REACHABLE, STALE, DELAY, PROBE, NOARP, PERMANENT.
const NUD_VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
/// One that is not asked for: NOARP, PERMANENT.
const NUD_LASTING: u16 = 0x40 | 0x80;
/// One to this host.
const RTN_LOCAL: u8 = 2;
/// `struct rtmsg` and `struct ndmsg`.
const BODY_LEN: usize = 12;
/// All that a next hop, or what is known of it, depends on (`RTNLGRP_`): links, neighbours,
/// addresses, routes and rules of both families, and next hops that routes refer to.
pub(crate) const GROUPS: [u32; 9] = [1, 3, 5, 7, 8, 9, 11, 19, 32];

/// The next host on a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    addr: IpAddr,
    ifindex: u32,
}

impl NextHop {
    #[cfg(test)]
    pub(crate) fn new(addr: IpAddr, ifindex: u32) -> NextHop {
        NextHop { addr, ifindex }
    }

    /// The number of the interface that leads there.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }
}

/// What the kernel knows of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// The kernel knows where it is.
    Known {
        /// Its hardware address; `None`: it has none, or none of Ethernet's.
        mac: Option<[u8; 6]>,
        /// It was set by hand, or needs no question, so nobody asks whether it is still there.
        lasting: bool,
    },
    /// It is being looked for, or was not found.
    Sought,
    /// The kernel has never heard of it, or does not say.
    Unheard,
}

impl std::fmt::Display for NextHop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.addr.fmt(f)
    }
}

/// The host that packets to `peer` go to next, over interface `ifindex` if that is not 0; `None`:
/// this one, or the kernel does not say.
pub fn next_hop(peer: IpAddr, ifindex: u32) -> Option<NextHop> {
    let oif = ifindex.to_ne_bytes();
    let scope: &[(u16, &[u8])] = match ifindex {
        0 => &[],
        _ => &[(RTA_OIF, &oif)],
    };
    ask_route(peer, 0, scope)
}

/// The same for packets from this address.
pub(crate) fn next_hop_from(source: IpAddr, peer: IpAddr) -> Option<NextHop> {
    let octets = octets(source);
    ask_route(peer, 8 * octets.len() as u8, &[(RTA_SRC, &octets)])
}

fn ask_route(peer: IpAddr, source_bits: u8, more: &[(u16, &[u8])]) -> Option<NextHop> {
    let answer = route(peer, source_bits, 0, more)?;
    let (_, route, attributes) = split::<BODY_LEN>(&answer)?;
    // rtm_type
    if route[7] != RTN_UNICAST {
        return None;
    }
    let mut hop = NextHop {
        addr: peer,
        ifindex: 0,
    };
    for (kind, value) in Attributes(attributes) {
        match kind {
            RTA_OIF => hop.ifindex = number(value)?,
            RTA_GATEWAY => hop.addr = address(value)?,
            _ => {}
        }
    }
    (hop.ifindex != 0).then_some(hop)
}

/// What the kernel says of a route.
fn route(peer: IpAddr, source_bits: u8, flags: u32, more: &[(u16, &[u8])]) -> Option<Vec<u8>> {
    let mut body = [0; BODY_LEN];
    body[0] = family(peer);
    body[1] = 8 * octets(peer).len() as u8;
    body[2] = source_bits;
    body[8..].copy_from_slice(&flags.to_ne_bytes());
    let mut request = Request::new(RTM_GETROUTE, 0, &body).with(RTA_DST, &octets(peer));
    for (kind, value) in more {
        request = request.with(*kind, value);
    }
    let answer = request.ask().ok()?;
    let (kind, ..) = split::<BODY_LEN>(&answer)?;
    (kind == RTM_NEWROUTE).then_some(answer)
}

/// The longest IP packet that leaves towards `peer`: the interface's MTU, or the route's if
/// somebody set one. What ICMP said of the path does not count. `None`: no way leads there, or the
/// kernel does not say.
pub(crate) fn longest_packet(source: IpAddr, peer: IpAddr, ifindex: u32) -> Option<u32> {
    let (from, oif) = (octets(source), ifindex.to_ne_bytes());
    let mut more: Vec<(u16, &[u8])> = vec![(RTA_SRC, &from)];
    if ifindex != 0 {
        more.push((RTA_OIF, &oif));
    }
    let bits = 8 * from.len() as u8;
    let answer = route(peer, bits, 0, &more)?;
    let (_, way, attributes) = split::<BODY_LEN>(&answer)?;
    if !matches!(way[7], RTN_UNICAST | RTN_LOCAL) {
        return None;
    }
    let longest = interface_mtu(attribute(attributes, RTA_OIF).and_then(number)?)?;
    let set = route(peer, bits, RTM_F_FIB_MATCH, &more).and_then(|answer| {
        let (_, _, attributes) = split::<BODY_LEN>(&answer)?;
        attribute(attribute(attributes, RTA_METRICS)?, RTAX_MTU).and_then(number)
    });
    Some(set.map_or(longest, |set| set.min(longest)))
}

/// By the number of the interface.
fn interface_mtu(ifindex: u32) -> Option<u32> {
    // struct ifinfomsg
    let mut body = [0; 16];
    body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    let answer = Request::new(RTM_GETLINK, 0, &body).ask().ok()?;
    let (kind, _, attributes) = split::<16>(&answer)?;
    let mtu = attribute(attributes, IFLA_MTU).filter(|_| kind == RTM_NEWLINK);
    mtu.and_then(number)
}

fn attribute(attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut all = Attributes(attributes);
    all.find(|(kind, _)| *kind == wanted)
        .map(|(_, value)| value)
}

fn number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

/// What the kernel knows of a neighbour.
pub fn neighbour(hop: &NextHop) -> Neighbour {
    let request = Request::new(RTM_GETNEIGH, 0, &neighbour_body(hop));
    let Ok(answer) = request.with(NDA_DST, &octets(hop.addr)).ask() else {
        return Neighbour::Unheard;
    };
    match split::<BODY_LEN>(&answer) {
        Some((RTM_NEWNEIGH, neighbour, attributes)) => {
            // ndm_state
            let state = u16::from_ne_bytes([neighbour[8], neighbour[9]]);
            if state & NUD_VALID == 0 {
                return Neighbour::Sought;
            }
            let mac = Attributes(attributes)
                .find(|(kind, _)| *kind == NDA_LLADDR)
                .and_then(|(_, value)| value.try_into().ok());
            Neighbour::Known {
                mac,
                lasting: state & NUD_LASTING != 0,
            }
        }
        _ => Neighbour::Unheard,
    }
}

/// Tells the kernel that a neighbour is in use, so that it looks for it, or makes sure of it, as
/// it does of those that it sends to itself. Not for one that is [lasting](Neighbour::Known): since
/// Linux 5.16 that ends its being so. Takes CAP_NET_ADMIN.
pub(crate) fn want(hop: &NextHop) -> io::Result<()> {
    let mut body = neighbour_body(hop);
    // ndm_flags
    body[10] = NTF_USE;
    let request = Request::new(RTM_NEWNEIGH, NLM_F_CREATE, &body);
    request.with(NDA_DST, &octets(hop.addr)).apply()
}

/// What the kernel told of its tables.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    neighbours: Vec<NextHop>,
    /// Something else: any way may be another one.
    other: bool,
}

impl Changes {
    /// All that was told since.
    pub(crate) fn take(events: &RouteEvents) -> Changes {
        let mut changes = Changes::default();
        let mut buffer = vec![0; 16 * 1024];
        while let Some(event) = events.receive(&mut buffer) {
            match event {
                RouteEvent::Told(len) => changes.add(&buffer[..len]),
                RouteEvent::Lost => changes.other = true,
            }
        }
        changes
    }

    fn add(&mut self, messages: &[u8]) {
        for message in Messages(messages) {
            match neighbour_of(message) {
                Some(Ok(hop)) if !self.neighbours.contains(&hop) => self.neighbours.push(hop),
                Some(_) => {}
                None => self.other = true,
            }
        }
    }

    /// Something was said of this neighbour, or of what leads to anybody. `None`: no way is known.
    pub(crate) fn concern(&self, hop: Option<&NextHop>) -> bool {
        self.other || hop.is_some_and(|hop| self.neighbours.contains(hop))
    }
}

/// The neighbour that a message is about, or that it is about one of another kind; `None`: it is
/// about something else.
fn neighbour_of(message: &[u8]) -> Option<Result<NextHop, ()>> {
    let (kind, neighbour, attributes) = split::<BODY_LEN>(message)?;
    if !matches!(kind, RTM_NEWNEIGH | RTM_DELNEIGH) {
        return None;
    }
    let ifindex = u32::from_ne_bytes(neighbour[4..8].try_into().ok()?);
    let addr = Attributes(attributes)
        .find(|(kind, _)| *kind == NDA_DST)
        .and_then(|(_, value)| address(value));
    // A bridge's table has hardware addresses only.
    Some(addr.map(|addr| NextHop { addr, ifindex }).ok_or(()))
}

fn neighbour_body(hop: &NextHop) -> [u8; BODY_LEN] {
    let mut body = [0; BODY_LEN];
    body[0] = family(hop.addr);
    body[4..8].copy_from_slice(&hop.ifindex.to_ne_bytes());
    body
}

fn family(addr: IpAddr) -> u8 {
    match addr {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

fn octets(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct nlmsghdr` and `struct ndmsg`, with or without an address.
    fn told(kind: u16, ifindex: u32, addr: Option<IpAddr>) -> Vec<u8> {
        let hop = NextHop::new(addr.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), ifindex);
        let request = Request::new(kind, 0, &neighbour_body(&hop));
        match addr {
            Some(addr) => request.with(NDA_DST, &octets(addr)).bytes(),
            None => request.with(NDA_LLADDR, &[2; 6]).bytes(),
        }
    }

    /// Or each ARP of a LAN has all ways asked for anew.
    #[test]
    fn what_is_told_of_a_neighbour_concerns_him_alone() {
        let hop = |n, ifindex| NextHop::new(IpAddr::from([10, 0, 0, n]), ifindex);
        let one = hop(1, 3);
        let mut changes = Changes::default();
        changes.add(&told(RTM_NEWNEIGH, 3, None));
        assert!(!changes.concern(Some(&one)), "a bridge's");
        // Two in one buffer.
        let both = [
            told(RTM_DELNEIGH, 3, Some(one.addr)),
            told(RTM_NEWNEIGH, 3, Some(Ipv6Addr::LOCALHOST.into())),
        ]
        .concat();
        changes.add(&both);
        assert!(changes.concern(Some(&one)));
        for other in [hop(2, 3), hop(1, 4)] {
            assert!(!changes.concern(Some(&other)), "{other:?}");
        }
        assert!(!changes.concern(None));
        assert_eq!(changes.neighbours.len(), 2);
        changes.add(&told(RTM_NEWROUTE, 3, Some(one.addr)));
        assert!(changes.concern(Some(&hop(2, 3))) && changes.concern(None));
    }

    /// Wherever a message breaks off: anything may have changed, or nothing was said.
    #[test]
    fn what_is_told_is_taken_apart_with_care() {
        let whole = told(RTM_NEWNEIGH, 3, Some(Ipv6Addr::LOCALHOST.into()));
        for end in 0..whole.len() {
            let mut changes = Changes::default();
            changes.add(&whole[..end]);
            assert!(changes.neighbours.is_empty(), "{end}");
        }
    }

    #[test]
    fn this_host_is_no_neighbour() {
        assert_eq!(next_hop(IpAddr::from([127, 0, 0, 1]), 0), None);
    }
}
