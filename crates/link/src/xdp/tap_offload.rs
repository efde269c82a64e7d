//! Tap offload: how rows of packets leave in one piece by an interface without checksum offload,
//! before Linux 6.11.
//!
//! Linux takes packets from a socket in one piece, to be cut behind its IP (GSO, UDP_SEGMENT), only
//! where the interface that they are routed to sums up what it sends; since 6.11 it does that
//! itself where no card does. Cut they can be anyhow: where they come to an interface that cannot,
//! the kernel sums up and cuts right before its driver, which is told once of all packets. So there
//! is an Ethernet interface of our own, a tap, that claims to sum up, and whatever is routed there
//! an eBPF program hands on to the other one, in one piece, to the neighbour that the kernel's
//! tables say. The interface is named `rnic0` or the like, has no address, and is gone with the
//! process.
//!
//! It is for IPv4: for IPv6 the kernel wants a route by an interface before it sends there.

use std::io;

use rnic_wire::ROCE_PORT;
use rnic_wire::ip::Ipv4Header;

use super::ebpf::*;
use super::program::{ETHERNET_LEN, IPV4, UDP};
use crate::netlink::rtnetlink::{NLM_F_CREATE, Request, attributes};
use rnic_sys::{self as sys, Fd, ProgramKind};

// linux/rtnetlink.h, linux/if_link.h, linux/pkt_sched.h, linux/pkt_cls.h
const RTM_NEWLINK: u16 = 16;
const RTM_NEWQDISC: u16 = 36;
const RTM_NEWTFILTER: u16 = 44;
const IFLA_MTU: u16 = 4;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
const TC_H_CLSACT: u32 = 0xffff_fff1;
/// The part of it that sees what leaves.
const TC_H_CLSACT_EGRESS: u32 = 0xffff_fff3;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
/// What the program says is what is done.
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;
const TC_ACT_SHOT: i32 = 2;
const ETH_P_ALL: u16 = 3;

/// The first Linux that sums up by itself.
const SUMS_UP: (u32, u32) = (6, 11);

/// The tap interface.
#[derive(Debug)]
pub(super) struct TapOffload {
    ifindex: u32,
    /// It is there as long as this is open.
    _tap: Fd,
}

impl TapOffload {
    /// Whether one is needed: packets that leave by an interface are not taken from a socket in one
    /// piece.
    pub(super) fn is_needed(interface: &str) -> bool {
        // One that does not say is taken for one of the many that do sum up.
        sys::kernel_version() < SUMS_UP
            && sys::has_checksum_offload(interface).is_ok_and(|offload| !offload)
    }

    /// One that leads to interface number `to`, whose MTU this is.
    ///
    /// # Errors
    /// EPERM: it takes CAP_NET_ADMIN. ENOENT: there is no /dev/net/tun, or no traffic control.
    /// EINVAL before Linux 5.10.
    pub(super) fn to(to: u32, mtu: u32) -> io::Result<TapOffload> {
        let (tap, name) = sys::open_tap("rnic%d")?;
        let (ifindex, ..) = sys::ethernet(&name)?;
        let program = sys::load_program(ProgramKind::TrafficControl, &program(to))?;
        set_up(ifindex, mtu, &program)?;
        Ok(TapOffload { ifindex, _tap: tap })
    }

    /// The number of the interface.
    pub(super) fn ifindex(&self) -> u32 {
        self.ifindex
    }
}

fn set_up(ifindex: u32, mtu: u32, program: &Fd) -> io::Result<()> {
    let named = |kind, name: &[u8], parent, handle, info| {
        let flags = NLM_F_CREATE;
        Request::new(kind, flags, &tcmsg(ifindex, handle, parent, info)).with(TCA_KIND, name)
    };
    named(RTM_NEWQDISC, b"clsact\0", TC_H_CLSACT, 0xffff_0000, 0).apply()?;
    // The upper half is the filter's priority.
    let info = 1 << 16 | u32::from(ETH_P_ALL.to_be());
    let options: [(u16, &[u8]); 3] = [
        (TCA_BPF_FD, &program.raw().to_ne_bytes()),
        (TCA_BPF_NAME, b"rnic\0"),
        (TCA_BPF_FLAGS, &TCA_BPF_FLAG_ACT_DIRECT.to_ne_bytes()),
    ];
    let filter = named(RTM_NEWTFILTER, b"bpf\0", TC_H_CLSACT_EGRESS, 0, info);
    filter.with(TCA_OPTIONS, &attributes(&options)).apply()?;

    // No address of its own; where there is no IPv6, none would come.
    let mode: [(u16, &[u8]); 1] = [(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE])];
    let family = attributes(&[(libc::AF_INET6 as u16, &attributes(&mode))]);
    let link = |flags| Request::new(RTM_NEWLINK, 0, &ifinfomsg(ifindex, flags));
    let _ = link(0).with(IFLA_AF_SPEC, &family).apply();
    // Neighbours are asked for by the interface that it leads to.
    link(libc::IFF_NOARP)
        .with(IFLA_MTU, &mtu.to_ne_bytes())
        .apply()?;
    link(libc::IFF_UP).apply()
}

/// `struct ifinfomsg`: sets these flags.
fn ifinfomsg(ifindex: u32, flags: i32) -> [u8; 16] {
    let mut body = [0; 16];
    body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    body[8..12].copy_from_slice(&flags.to_ne_bytes());
    body[12..].copy_from_slice(&flags.to_ne_bytes());
    body
}

/// `struct tcmsg`.
fn tcmsg(ifindex: u32, handle: u32, parent: u32, info: u32) -> [u8; 20] {
    let mut body = [0; 20];
    for (at, word) in [(4, ifindex), (8, handle), (12, parent), (16, info)] {
        body[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    body
}

/// Hands RoCEv2 over IPv4 on to interface number `to`. All else that somebody sends to the
/// tap interface ends there.
fn program(to: u32) -> Vec<u64> {
    #[derive(Clone, Copy, PartialEq)]
    struct Drop;
    let ip = ETHERNET_LEN as i16;
    let udp = ip + Ipv4Header::LEN as i16;
    let mut p = Program::new();
    // struct __sk_buff: data, data_end
    p.put(LOAD_4, 7, 1, 76, 0);
    p.put(LOAD_4, 8, 1, 80, 0);
    p.ends_within(7, 8, i32::from(udp) + 4, Drop);
    p.put(LOAD_2, 5, 7, 12, 0);
    p.jump(JUMP_UNLESS, 5, as_read(IPV4), Drop);
    p.put(LOAD_1, 5, 7, ip, 0);
    p.jump(JUMP_UNLESS, 5, 0x45, Drop);
    p.put(LOAD_1, 5, 7, ip + 9, 0);
    p.jump(JUMP_UNLESS, 5, UDP, Drop);
    p.put(LOAD_2, 5, 7, udp + 2, 0);
    p.jump(JUMP_UNLESS, 5, as_read(ROCE_PORT), Drop);
    p.put(MOV_IMM, 1, 0, 0, to as i32);
    for nothing in 2..=4 {
        p.put(MOV_IMM, nothing, 0, 0, 0);
    }
    p.put(CALL, 0, 0, 0, REDIRECT_NEIGH);
    p.put(EXIT, 0, 0, 0, 0);

    p.label(Drop);
    p.put(MOV_IMM, 0, 0, 0, TC_ACT_SHOT);
    p.put(EXIT, 0, 0, 0, 0);
    p.finish()
}
