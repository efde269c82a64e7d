//! Datagrams: batches that leave (GSO), trains that arrive (GRO).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;

use rustix::ioctl;
use rustix::net::{self, SendFlags};

use crate::raw::raw;
use crate::{Addr, Fd, control, option_of};

/// sendto(2), never raising SIGPIPE; without an address on a connected socket.
pub fn send_to(fd: &Fd, bytes: &[u8], to: Option<&Addr>) -> io::Result<usize> {
    let sent = match to {
        Some(to) => net::sendto(fd, bytes, SendFlags::NOSIGNAL, to),
        None => net::send(fd, bytes, SendFlags::NOSIGNAL),
    };
    Ok(sent?)
}

/// Bytes of a socket's send buffer in use (SIOCOUTQ, udp(7)): with their overhead, until the card
/// is through with them.
pub fn unsent(fd: &Fd) -> io::Result<usize> {
    const SIOCOUTQ: ioctl::Opcode = libc::TIOCOUTQ as ioctl::Opcode;
    // SAFETY: the call writes one int, as this type says.
    let bytes = unsafe { ioctl::ioctl(fd, ioctl::Getter::<SIOCOUTQ, libc::c_int>::new()) }?;
    Ok(bytes.max(0) as usize)
}

/// Datagrams for which a socket's receive buffer had no room (SO_MEMINFO).
pub fn overrun(fd: &Fd) -> io::Result<u64> {
    // linux/sock_diag.h: SK_MEMINFO_DROPS, the last one.
    // SAFETY: any bytes are integers.
    let words: [u32; 9] = unsafe { option_of(fd, libc::SOL_SOCKET, libc::SO_MEMINFO)? };
    Ok(words[8].into())
}

/// What one message of [`send_many`] is made of.
pub struct Message<'a> {
    /// Payload: one datagram, or several of `segment` bytes each.
    pub bytes: &'a [u8],
    /// Let the kernel cut `bytes` into datagrams of this length (UDP_SEGMENT); 0: one datagram.
    pub segment: u16,
    /// Where to; `None` on a connected socket.
    pub to: Option<&'a Addr>,
    /// The interface by which it leaves, whatever the routes say (IP_PKTINFO); only over IPv4, and
    /// with a `segment`.
    pub by: Option<NonZeroU32>,
}

/// Most messages that one call of [`send_many`] takes.
pub const SEND_MANY: usize = 64;

const SEGMENT_SPACE: usize = control::space(2);

/// What goes with a message that is cut: the length of its segments, and the interface perhaps.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct SendControl([u8; SEGMENT_SPACE + control::space(size_of::<libc::in_pktinfo>())]);

impl SendControl {
    const EMPTY: SendControl =
        SendControl([0; SEGMENT_SPACE + control::space(size_of::<libc::in_pktinfo>())]);

    fn new(segment: u16, by: Option<NonZeroU32>) -> SendControl {
        let mut c = SendControl::EMPTY;
        let (first, second) = c.0.split_at_mut(SEGMENT_SPACE);
        control::begin(first, libc::SOL_UDP, libc::UDP_SEGMENT, 2)
            .copy_from_slice(&segment.to_ne_bytes());
        if let Some(by) = by {
            // struct in_pktinfo: the interface, and two addresses that stay open.
            let len = size_of::<libc::in_pktinfo>();
            control::begin(second, libc::IPPROTO_IP, libc::IP_PKTINFO, len)[..4]
                .copy_from_slice(&by.get().to_ne_bytes());
        }
        c
    }

    /// How much of it a message has.
    fn len(message: &Message<'_>) -> usize {
        match (message.segment, message.by) {
            (0, _) => 0,
            (_, None) => SEGMENT_SPACE,
            (_, Some(_)) => size_of::<SendControl>(),
        }
    }
}

fn message_header(
    message: &Message<'_>,
    iov: &mut libc::iovec,
    control: &SendControl,
) -> libc::msghdr {
    *iov = libc::iovec {
        iov_base: message.bytes.as_ptr().cast_mut().cast(),
        iov_len: message.bytes.len(),
    };
    // SAFETY: msghdr is a C struct of integers and pointers, for which all zero bytes are a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    if let Some(to) = message.to {
        header.msg_name = to.bytes.as_ptr().cast_mut().cast();
        header.msg_namelen = to.len;
    }
    header.msg_iov = iov;
    header.msg_iovlen = 1;
    let len = SendControl::len(message);
    if len != 0 {
        header.msg_control = control.0.as_ptr().cast_mut().cast();
        header.msg_controllen = len as _;
    }
    header
}

/// sendmmsg(2) of up to [`SEND_MANY`] messages; returns how many went, an error only when the first
/// did not.
pub fn send_many(fd: &Fd, messages: &[Message<'_>]) -> io::Result<usize> {
    // The usual handful without clearing room for all.
    if messages.len() <= 4 {
        send_up_to::<4>(fd, messages)
    } else {
        send_up_to::<SEND_MANY>(fd, messages)
    }
}

fn send_up_to<const N: usize>(fd: &Fd, messages: &[Message<'_>]) -> io::Result<usize> {
    let n = messages.len().min(N);
    // SAFETY: mmsghdr and iovec are C structs of integers and pointers, for which all zero bytes
    // are a value.
    let mut headers: [libc::mmsghdr; N] = unsafe { std::mem::zeroed() };
    // SAFETY: iovec is such a struct.
    let mut iovs: [libc::iovec; N] = unsafe { std::mem::zeroed() };
    let mut controls = [SendControl::EMPTY; N];
    for (i, message) in messages[..n].iter().enumerate() {
        if message.segment != 0 {
            controls[i] = SendControl::new(message.segment, message.by);
        }
        headers[i].msg_hdr = message_header(message, &mut iovs[i], &controls[i]);
    }
    let (call, headers) = (libc::SYS_sendmmsg, headers.as_mut_ptr());
    // SAFETY: the first `n` headers point at iovs, controls and buffers that live through the call;
    // only `msg_len` of each header is written.
    unsafe { raw!(call, fd.0, headers, n, libc::MSG_NOSIGNAL) }
}

/// What [`receive`] found out about a datagram, or a train of datagrams merged by GRO.
#[derive(Clone, Copy)]
pub struct Datagram {
    /// Bytes in the buffer.
    pub len: usize,
    /// Sender; `None` for a unix socket without a name.
    pub from: Option<SocketAddr>,
    /// Address it was sent to (IP_PKTINFO).
    pub to: Option<IpAddr>,
    /// Length of each of the merged datagrams (UDP_GRO); 0: a single one.
    pub segment: usize,
    /// It was longer than the buffer.
    pub truncated: bool,
    /// TTL or hop limit (IP_RECVTTL, IPV6_RECVHOPLIMIT).
    pub hop_limit: Option<u8>,
    /// TOS or traffic class (IP_RECVTOS, IPV6_RECVTCLASS).
    pub traffic_class: Option<u8>,
}

/// Room for what is asked for: the size of GRO, hop limit, traffic class, and the destination in one
/// of its two forms.
const CONTROL: usize = 2 * control::space(size_of::<libc::in6_pktinfo>()) + 3 * control::space(4);

#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL]);

/// recvmsg(2) with address, destination and GRO size. Never blocks.
pub fn receive(fd: &Fd, buffer: &mut [u8]) -> io::Result<Datagram> {
    // Cleared, since the kernel leaves out what fills up its messages.
    let mut control = ControlBuffer([0; CONTROL]);
    let mut from = Addr::empty();
    let mut iov = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: msghdr is a C struct of integers and pointers, for which all zero bytes are a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = from.bytes.as_mut_ptr().cast();
    header.msg_namelen = from.bytes.len() as u32;
    header.msg_iov = &raw mut iov;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = CONTROL as _;
    // SAFETY: the kernel writes at most the given lengths into `buffer`, `from.bytes` and
    // `control`, all of which live through the call and are borrowed by nobody else.
    let len = unsafe { raw!(libc::SYS_recvmsg, fd.0, &raw mut header, libc::MSG_DONTWAIT) }?;
    from.len = header.msg_namelen.min(from.bytes.len() as u32);
    let control = &control.0[..(header.msg_controllen as usize).min(CONTROL)];
    let mut out = Datagram {
        len: len.min(buffer.len()),
        from: if from.len > 2 { from.to_inet() } else { None },
        to: None,
        segment: 0,
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
        hop_limit: None,
        traffic_class: None,
    };
    parse_control(control, &mut out);
    Ok(out)
}

pub(super) fn parse_control(control: &[u8], out: &mut Datagram) {
    for (level, kind, data) in control::messages(control) {
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let segment = data.first_chunk().map(|b| i32::from_ne_bytes(*b));
                out.segment = segment.and_then(|n| n.try_into().ok()).unwrap_or(0);
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                out.hop_limit = small(data);
            }
            // Of IPv4 it is one byte.
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                out.traffic_class = small(data);
            }
            // struct in6_pktinfo { struct in6_addr; int ifindex }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                if let Some(octets) = data.first_chunk::<16>() {
                    out.to = Some(IpAddr::V6(Ipv6Addr::from(*octets)).to_canonical());
                }
            }
            // struct in_pktinfo { int ifindex; struct in_addr spec_dst; struct in_addr addr }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                if let Some(octets) = data.get(8..).and_then(<[u8]>::first_chunk::<4>) {
                    out.to = Some(Ipv4Addr::from(*octets).into());
                }
            }
            _ => {}
        }
    }
}

/// A number below 256, in a byte or an int.
fn small(data: &[u8]) -> Option<u8> {
    match data.first_chunk() {
        Some(int) => i32::from_ne_bytes(*int).try_into().ok(),
        None => data.first().copied(),
    }
}
