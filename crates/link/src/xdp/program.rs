//! Which packets are taken from an interface: an eBPF program in front of the kernel's IP.
//!
//! It takes what is certainly for a queue pair of this process: RoCEv2 in Ethernet, over IPv4
//! without options or IPv6 without extension headers, no fragment, no batch that the sender left to
//! others to cut (GSO), to a QPN of one of its ranges and to an address that it has paths from to
//! other hosts. All else goes on to the kernel as if the program were not there: other traffic, QP
//! 1, multicast, packets for other processes or to be forwarded.
//!
//! Behind the driver a batch may come, of a sender that left it to others to cut, or that GRO put
//! together. It takes the socket, and so does what comes after it, which would overtake it else,
//! until the socket was found empty ([`super::order`]).
//!
//! The kernel throws away what comes by a wire from an address that nobody behind a wire has. So
//! connections within the host cannot be reached from outside, and what claims to come from this
//! host, from loopback or from many is left to it.

use std::io;
use std::net::IpAddr;

use rnic_wire::Bth;
use rnic_wire::ROCE_PORT;
use rnic_wire::ip::{Ipv4Header, Ipv6Header, UDP_LEN};

use super::ebpf::*;
use super::order::Gate;
use rnic_host::registry::{RANGE_BITS, range_of};
use rnic_sys::{BpfMap, Fd, MapKind, ProgramKind, load_program};

/// Bytes of an Ethernet header.
pub(super) const ETHERNET_LEN: usize = 14;
/// EtherTypes.
pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
/// IP's protocol number.
pub(super) const UDP: i32 = 17;
/// Addresses that a process may have paths from at once.
const ADDRESSES: u32 = 1024;
const RANGES: u32 = 1 << (24 - RANGE_BITS);

/// What an address is to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Nothing.
    None,
    /// This host's, and paths within the host begin or end there: packets to it and from it are the
    /// kernel's.
    Within,
    /// This host's, and paths to other hosts begin there: packets to it are taken, those from it
    /// are the kernel's.
    Outside,
}

/// The program's tables.
#[derive(Debug)]
pub(super) struct Tables {
    /// By QPN range: not zero if it is ours.
    ranges: BpfMap,
    /// Addresses of this host ([`key_of`]): not zero if packets to it are ours.
    addresses: BpfMap,
    /// By the queue of the network card.
    sockets: BpfMap,
    /// Of the interface: what is longer is a batch.
    mtu: u32,
    /// Where batches come: what a [`Gate`] is.
    gate: Option<BpfMap>,
}

impl Tables {
    /// For an interface with this MTU. Nothing is taken yet. `batches`: some may come, and one that
    /// would be taken were it shorter shuts the [gate](Tables::gate).
    pub(super) fn new(queues: u32, mtu: u32, batches: bool) -> io::Result<Tables> {
        let gate = batches.then(BpfMap::shared);
        Ok(Tables {
            ranges: BpfMap::new(MapKind::Array, 4, RANGES)?,
            addresses: BpfMap::new(MapKind::Hash, 16, ADDRESSES)?,
            sockets: BpfMap::new(MapKind::Sockets, 4, queues)?,
            mtu,
            gate: gate.transpose()?,
        })
    }

    /// Packets to QPNs of this one's range are ours.
    pub(super) fn take_range(&self, qpn: u32) -> io::Result<()> {
        self.ranges.set(&range_of(qpn).to_ne_bytes(), 1)
    }

    /// What is known of an address from now on.
    pub(super) fn set_address(&self, address: IpAddr, use_of_it: Use) -> io::Result<()> {
        let key = key_of(address);
        match use_of_it {
            Use::None => self.addresses.remove(&key),
            Use::Within => self.addresses.set(&key, 0),
            Use::Outside => self.addresses.set(&key, 1),
        }
    }

    /// What arrives at this queue goes to this socket.
    pub(super) fn set_socket(&self, queue: u32, socket: &Fd) -> io::Result<()> {
        self.sockets.set(&queue.to_ne_bytes(), socket.raw() as u32)
    }

    /// Nothing is taken while this is shut; `None` where no batches are expected.
    pub(super) fn gate(&self) -> io::Result<Option<Gate>> {
        self.gate.as_ref().map(|map| Gate::of(map.fd())).transpose()
    }

    /// The program, kept by the kernel.
    pub(super) fn load(&self) -> io::Result<Fd> {
        load_program(ProgramKind::Xdp, &self.program())
    }

    fn program(&self) -> Vec<u64> {
        // Offsets into a frame.
        let ip = ETHERNET_LEN as i16;
        let udp4 = ip + Ipv4Header::LEN as i16;
        let udp6 = ip + Ipv6Header::LEN as i16;
        let (bth4, bth6) = (udp4 + UDP_LEN as i16, udp6 + UDP_LEN as i16);
        let bth = Bth::LEN as i32;
        // On the stack: the addresses looked for, and the range.
        let (address, range, source) = (-16, -20, -40);
        let (first, is_batch) = (-44, -48);
        let mut p = Program::new();
        p.put(MOV, 6, 1, 0, 0);
        p.put(LOAD_4, 7, 6, 0, 0);
        p.put(LOAD_4, 8, 6, 4, 0);
        p.ends_within(7, 8, i32::from(bth4) + bth, Label::Pass);
        p.put(LOAD_2, 5, 7, 12, 0);
        p.jump(JUMP_IF, 5, as_read(IPV6), Label::V6);
        p.jump(JUMP_UNLESS, 5, as_read(IPV4), Label::Pass);

        p.put(LOAD_1, 5, 7, ip, 0);
        p.jump(JUMP_UNLESS, 5, 0x45, Label::Pass);
        p.put(LOAD_2, 5, 7, ip + 2, 0);
        self.look_at_length(&mut p, self.mtu as i32, is_batch, Label::Short4);
        p.put(LOAD_2, 5, 7, ip + 6, 0);
        // More fragments, or an offset.
        p.jump(JUMP_IF_ANY, 5, as_read(0x3fff), Label::Pass);
        p.put(LOAD_1, 5, 7, ip + 9, 0);
        p.jump(JUMP_UNLESS, 5, UDP, Label::Pass);
        p.put(LOAD_2, 5, 7, udp4 + 2, 0);
        p.jump(JUMP_UNLESS, 5, as_read(ROCE_PORT), Label::Pass);
        // What no host is: 0.0.0.0/8, loopback, multicast and all above.
        p.put(LOAD_1, 5, 7, ip + 12, 0);
        p.jump(JUMP_IF, 5, 0, Label::Pass);
        p.jump(JUMP_IF, 5, 127, Label::Pass);
        p.jump(JUMP_IF_GREATER_IMM, 5, 223, Label::Pass);
        for (key, at) in [(source, ip + 12), (address, ip + 16)] {
            p.put(STORE_IMM_8, 10, 0, key, -1);
            p.put(STORE_IMM_4, 10, 0, key + 8, -1);
            p.put(LOAD_4, 5, 7, at, 0);
            p.put(STORE_4, 10, 5, key + 12, 0);
        }
        p.put(LOAD_4, 9, 7, bth4 + 4, 0);
        p.jump(JUMP, 0, 0, Label::Common);

        p.label(Label::V6);
        p.ends_within(7, 8, i32::from(bth6) + bth, Label::Pass);
        p.put(LOAD_2, 5, 7, ip + 4, 0);
        let most = self.mtu as i32 - Ipv6Header::LEN as i32;
        self.look_at_length(&mut p, most, is_batch, Label::Short6);
        p.put(LOAD_1, 5, 7, ip + 6, 0);
        p.jump(JUMP_UNLESS, 5, UDP, Label::Pass);
        p.put(LOAD_2, 5, 7, udp6 + 2, 0);
        p.jump(JUMP_UNLESS, 5, as_read(ROCE_PORT), Label::Pass);
        // Multicast; and ::/64, in which are loopback, no address at all and IPv4's mapped ones.
        p.put(LOAD_1, 5, 7, ip + 8, 0);
        p.jump(JUMP_IF, 5, 0xff, Label::Pass);
        p.put(LOAD_8, 5, 7, ip + 8, 0);
        p.jump(JUMP_IF, 5, 0, Label::Pass);
        for (key, at) in [(source, ip + 8), (address, ip + 24)] {
            for half in [0, 8] {
                p.put(LOAD_8, 5, 7, at + half, 0);
                p.put(STORE_8, 10, 5, key + half, 0);
            }
        }
        p.put(LOAD_4, 9, 7, bth6 + 4, 0);

        p.label(Label::Common);
        // The destination QPN is the last three of four bytes.
        p.put(BIG_ENDIAN, 9, 0, 0, 32);
        p.put(AND_IMM, 9, 0, 0, 0xff_ffff);
        p.put(SHIFT_RIGHT_IMM, 9, 0, 0, RANGE_BITS as i32);
        p.put(STORE_4, 10, 9, range, 0);
        for (table, key) in [(&self.ranges, range), (&self.addresses, address)] {
            p.look_up(table, key);
            p.jump(JUMP_IF, 0, 0, Label::Pass);
            p.put(LOAD_4, 5, 0, 0, 0);
            p.jump(JUMP_IF, 5, 0, Label::Pass);
        }
        p.look_up(&self.addresses, source);
        p.jump(JUMP_UNLESS, 0, 0, Label::Pass);
        if let Some(gate) = &self.gate {
            p.put(CALL, 0, 0, 0, TIME);
            p.put(MOV, 9, 0, 0, 0);
            p.put(SHIFT_RIGHT_IMM, 9, 0, 0, MOMENT_BITS);
            p.put(STORE_IMM_4, 10, 0, first, 0);
            p.look_up(gate, first);
            p.jump(JUMP_IF, 0, 0, Label::Pass);
            p.put(LOAD_4, 5, 10, is_batch, 0);
            p.jump(JUMP_IF, 5, 0, Label::Single);
            p.put(STORE_4, 0, 9, Gate::BATCH, 0);
            p.jump(JUMP, 0, 0, Label::Shut);
            p.label(Label::Single);
            p.put(LOAD_4, 5, 0, Gate::PASSED, 0);
            p.put(LOAD_4, 4, 0, Gate::SEEN, 0);
            p.put(SUBTRACT_4, 4, 5, 0, 0);
            p.jump(JUMP_UNLESS, 4, 0, Label::Shut);
            p.put(LOAD_4, 5, 0, Gate::BATCH, 0);
            p.put(SUBTRACT_4, 9, 5, 0, 0);
            p.jump(JUMP_IF_GREATER_IMM, 9, SOON, Label::Open);
            p.label(Label::Shut);
            p.put(MOV_IMM, 5, 0, 0, 1);
            p.put(ADD_ATOMIC_4, 0, 5, Gate::PASSED, 0);
            p.jump(JUMP, 0, 0, Label::Pass);
            p.label(Label::Open);
        }
        p.map(1, &self.sockets);
        // rx_queue_index
        p.put(LOAD_4, 2, 6, 16, 0);
        // Where no socket is: to the kernel.
        p.put(MOV_IMM, 3, 0, 0, XDP_PASS);
        p.put(CALL, 0, 0, 0, REDIRECT_MAP);
        p.put(EXIT, 0, 0, 0, 0);

        p.label(Label::Pass);
        p.put(MOV_IMM, 0, 0, 0, XDP_PASS);
        p.put(EXIT, 0, 0, 0, 0);
        p.finish()
    }

    /// A frame whose length, just read, is more than `most` is a batch. It is passed on, at once if
    /// none are expected.
    fn look_at_length(&self, p: &mut Program<Label>, most: i32, is_batch: i16, short: Label) {
        p.put(BIG_ENDIAN, 5, 0, 0, 16);
        if self.gate.is_none() {
            p.jump(JUMP_IF_GREATER_IMM, 5, most, Label::Pass);
            return;
        }
        p.put(STORE_IMM_4, 10, 0, is_batch, 0);
        p.jump(JUMP_UNLESS_GREATER_IMM, 5, most, short);
        p.put(STORE_IMM_4, 10, 0, is_batch, 1);
        p.label(short);
    }
}

/// An address in the table. No IPv6 address that is a host's begins with so many ones as stand
/// before an IPv4 one here; a mapped one, as on a GID, could come by IPv6.
fn key_of(address: IpAddr) -> [u8; 16] {
    let mut key = [0xff; 16];
    match address.to_canonical() {
        IpAddr::V4(v4) => key[12..].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => key = v6.octets(),
    }
    key
}

const XDP_PASS: i32 = 2;

/// A moment is so many bits of nanoseconds: about a millisecond.
const MOMENT_BITS: i32 = 20;
/// For so many moments after a batch the socket is taken by what follows, whatever is known: the
/// batch may still be on its way there.
const SOON: i32 = 3;

/// Places in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    V6,
    Short4,
    Short6,
    Common,
    Single,
    Shut,
    Open,
    Pass,
}

#[cfg(test)]
mod tests;
