//! Questions to rtnetlink(7): over which neighbour a route leads, and whether he is known. Needs no privilege.
//!
//! By raw system calls: a preloaded library may have its own idea of sockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;
const NLM_F_REQUEST: u16 = 1;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const NDA_DST: u16 = 1;
/// Type of a route to another host.
const RTN_UNICAST: u8 = 1;
/// A neighbour whose address is known: REACHABLE, STALE, DELAY, PROBE, NOARP, PERMANENT.
const NUD_VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
/// nlmsghdr(7).
const HEADER_LEN: usize = 16;
/// `struct rtmsg` and `struct ndmsg`.
const BODY_LEN: usize = 12;

/// The next host on a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextHop {
    addr: IpAddr,
    ifindex: u32,
}

impl std::fmt::Display for NextHop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.addr.fmt(f)
    }
}

/// The host that packets to `peer` go to next; `None`: this one, or the kernel does not say.
pub(crate) fn next_hop(peer: IpAddr, ifindex: u32) -> Option<NextHop> {
    let mut body = [0; BODY_LEN];
    body[0] = family(peer);
    body[1] = if peer.is_ipv4() { 32 } else { 128 };
    let oif = ifindex.to_ne_bytes();
    let scope: &[(u16, &[u8])] = match ifindex {
        0 => &[],
        _ => &[(RTA_OIF, &oif)],
    };
    let answer = ask(RTM_GETROUTE, &body, peer, RTA_DST, scope).ok()?;
    let (kind, route, attributes) = split(&answer)?;
    // rtm_type
    if kind != RTM_NEWROUTE || route[7] != RTN_UNICAST {
        return None;
    }
    let mut hop = NextHop {
        addr: peer,
        ifindex: 0,
    };
    for (kind, value) in Attributes(attributes) {
        match kind {
            RTA_OIF => hop.ifindex = u32::from_ne_bytes(value.try_into().ok()?),
            RTA_GATEWAY => hop.addr = address(value)?,
            _ => {}
        }
    }
    (hop.ifindex != 0).then_some(hop)
}

/// Whether the kernel knows the hardware address of a neighbour; `None`: it has never heard of him, or does not say.
pub(crate) fn is_known(hop: &NextHop) -> Option<bool> {
    let mut body = [0; BODY_LEN];
    body[0] = family(hop.addr);
    body[4..8].copy_from_slice(&hop.ifindex.to_ne_bytes());
    let answer = ask(RTM_GETNEIGH, &body, hop.addr, NDA_DST, &[]).ok()?;
    let (kind, neighbour, _) = split(&answer)?;
    if kind != RTM_NEWNEIGH {
        return None;
    }
    // ndm_state
    let state = u16::from_ne_bytes([neighbour[8], neighbour[9]]);
    Some(state & NUD_VALID != 0)
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

/// Type, body and attributes of an answer.
fn split(answer: &[u8]) -> Option<(u16, &[u8; BODY_LEN], &[u8])> {
    let (header, rest) = answer.split_at_checked(HEADER_LEN)?;
    let len = u32::from_ne_bytes(header[..4].try_into().ok()?) as usize;
    let rest = rest.get(..len.checked_sub(HEADER_LEN)?)?;
    let (body, attributes) = rest.split_first_chunk::<BODY_LEN>()?;
    Some((u16::from_ne_bytes([header[4], header[5]]), body, attributes))
}

/// rtattr by rtattr.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [l0, l1, k0, k1, ..] = *self.0 else {
            return None;
        };
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((u16::from_ne_bytes([k0, k1]), value))
    }
}

/// Sends a question and takes the answer, which is there when sending it returns.
fn ask(
    kind: u16,
    body: &[u8; BODY_LEN],
    addr: IpAddr,
    attribute: u16,
    more: &[(u16, &[u8])],
) -> io::Result<Vec<u8>> {
    let octets = match addr {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let mut message = vec![0; HEADER_LEN];
    message.extend_from_slice(body);
    for (attribute, value) in [(attribute, octets.as_slice())].iter().chain(more) {
        message.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        message.extend_from_slice(&attribute.to_ne_bytes());
        message.extend_from_slice(value);
    }
    let len = message.len() as u32;
    message[..4].copy_from_slice(&len.to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    let mut answer = vec![0; 4096];
    // SAFETY: the descriptor is fresh and owned from its first line on; each pointer goes with the length of its vector.
    unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        let fd = libc::syscall(
            libc::SYS_socket,
            libc::AF_NETLINK,
            kind,
            libc::NETLINK_ROUTE,
        );
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = OwnedFd::from_raw_fd(fd as RawFd);
        let nobody = std::ptr::null::<libc::sockaddr>();
        let raw = fd.as_raw_fd();
        let sent = libc::syscall(
            libc::SYS_sendto,
            raw,
            message.as_ptr(),
            message.len(),
            0,
            nobody,
            0,
        );
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let n = libc::syscall(
            libc::SYS_recvfrom,
            raw,
            answer.as_mut_ptr(),
            answer.len(),
            libc::MSG_DONTWAIT,
            nobody,
            nobody,
        );
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        answer.truncate(n as usize);
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    //! What the kernel answers is taken apart with care.

    use super::*;

    #[test]
    fn attributes_end_where_the_message_does() {
        let mut bytes = Vec::new();
        for (kind, value) in [(4u16, &[1u8, 0, 0, 0][..]), (5, &[10, 0, 0, 1]), (9, &[7])] {
            bytes.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
            bytes.extend_from_slice(&kind.to_ne_bytes());
            bytes.extend_from_slice(value);
        }
        let all: Vec<_> = Attributes(&bytes).collect();
        assert_eq!(
            all,
            [(4, &[1, 0, 0, 0][..]), (5, &[10, 0, 0, 1]), (9, &[7])]
        );
        for end in 0..bytes.len() {
            assert!(Attributes(&bytes[..end]).count() < 3);
        }
        assert_eq!(Attributes(&[0, 0, 1, 0]).count(), 0, "no length");
        assert!(split(&bytes).is_none());
    }

    #[test]
    fn this_host_is_no_neighbour() {
        assert_eq!(next_hop(IpAddr::from([127, 0, 0, 1]), 0), None);
    }
}
