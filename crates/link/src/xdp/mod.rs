//! Packets from and to other hosts past the kernel's network stack: AF_XDP, for a process that may
//! (`RNIC_XDP=INTERFACE`).
//!
//! An eBPF program ([`program`]) in front of the interface takes the packets of this process's
//! queue pairs, the kernel copies them to memory that it shares with the process ([`socket`]), or
//! the card writes them there by itself, and a look at that memory is all that receiving takes.
//! What leaves is written there with its Ethernet, IP and UDP headers, to the neighbour that the
//! kernel's own tables say ([`ways`], [`hops`]). So neither the kernel's IP, UDP and sockets nor
//! its firewall see any of it. Long rows of packets take a socket all the same, where the kernel
//! sends them at once ([`rows`]).
//!
//! Everything that is not usual takes the sockets ([`crate::udp`]) as before, each packet for
//! itself: other interfaces, QP 1, multicast, other processes of the host, a neighbour that is not
//! known yet. An interface has room for one process's program; the others' packets pass it. With
//! the process its program goes.
//!
//! It takes CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, of the user namespace that the machine booted
//! with.

mod batches;
mod ebpf;
mod filter;
mod hops;
mod interface;
mod order;
mod program;
mod rows;
mod socket;
mod spec;
mod tap_offload;
mod ways;

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;

use rnic_wire::ip::{IpUdp, Ipv4Header, Ipv6Header, LastHeaders, UDP_LEN};
use rnic_wire::{Flow, IcrcOk, ROCE_PORT};

use crate::LinkCounters;
use crate::staging::batch::{Run, TxBatch};
use crate::staging::datagram::{Arrival, Link};
use crate::staging::path::{Route, default_hop_limits};
use crate::udp::UdpLink;
use crate::udp::waiting::{Moment, Waiting};
use batches::segment_of;
pub(crate) use filter::Filter;
use hops::{Hop, Hops};
use interface::Interface;
use order::{Gate, Held};
use program::{ETHERNET_LEN, IPV4, IPV6};
use rnic_host::log;
use rnic_host::train::{IpIds, IpMarks, Train};
use rnic_sys::{Fd, FdSet};
use rows::Rows;
use socket::{Frame, Socket};
pub use spec::{XdpSpec, XdpSpecError};
pub use ways::Ways;

/// While packets come by AF_XDP, the UDP socket is looked at in every so many calls that found none
/// there, and after so many trains without a look.
const SOCKET_EVERY: u32 = 8;
/// So many calls without packets after which they do not come by AF_XDP any more.
const IN_USE: u32 = 10_000;
/// What a card did not take is offered to it again after this time.
const AGAIN_NS: u64 = 50_000;
/// After this time it is looked whether a driver is at work that said so.
const AT_WORK_NS: u64 = 1_000_000;

/// Which ring's turn it is to be received from: one that always has something starves none of the
/// others.
#[derive(Debug, Default)]
struct Turns {
    /// The ring that is looked at first.
    first: usize,
    /// Trains by AF_XDP since the UDP socket was looked at.
    trains: u32,
}

impl Turns {
    /// The one of `places` that has something, beginning behind the one that had last.
    #[inline]
    fn next(&mut self, places: usize, has: impl Fn(usize) -> bool) -> Option<usize> {
        if places == 1 {
            return has(0).then_some(0);
        }
        let first = self.first.min(places);
        let place = (first..places).chain(0..first).find(|&place| has(place))?;
        self.first = place + 1;
        Some(place)
    }

    /// The UDP socket is to be looked at though packets may lie in memory.
    #[inline]
    fn is_sockets(&self) -> bool {
        self.trains >= SOCKET_EVERY
    }
}

/// The link by AF_XDP, and by UDP for what does not take it.
pub(crate) struct XdpLink {
    udp: UdpLink,
    interfaces: Vec<Interface>,
    hops: Hops,
    /// What no frame was free for.
    waiting: Waiting,
    rows: Rows,
    /// A card did not take all that is in its ring: when to offer it again.
    again: Option<u64>,
    /// All AF_XDP sockets that are received from: numbers of interfaces, and of their sockets.
    rings: Vec<(usize, usize)>,
    turns: Turns,
    /// Of what came by AF_XDP.
    headers: LastHeaders,
    /// Came out of the socket, and comes after what lies in the rings behind shut gates.
    held: Option<Held>,
    /// Calls of `receive` since packets came by AF_XDP.
    idle: u32,
    received: u64,
    default_hop_limits: [u8; 2],
}

/// Takes the interfaces of `spec`, as far as that is possible; where it is not, it says why on
/// standard error. `Err`: none at all. `receiver`: the UDP socket.
pub(crate) fn open(
    spec: &XdpSpec,
    udp: UdpLink,
    receiver: &Fd,
    always_tap_offload: bool,
) -> Result<(XdpLink, Filter), UdpLink> {
    let mut interfaces = Vec::new();
    let mut numbers = Vec::new();
    let mut tables = Vec::new();
    let arrivals = FdSet::new().and_then(|set| set.add(receiver, 0).map(|()| set));
    let arrivals = match arrivals {
        Ok(arrivals) => arrivals,
        Err(error) => {
            log(format_args!("RNIC_XDP: {error}; packets take UDP sockets"));
            return Err(udp);
        }
    };
    let add = |socket: &Socket| arrivals.add(socket.fd(), 0);
    for (name, way) in &spec.0 {
        let opened = Interface::open(name, *way, always_tap_offload).and_then(|opened| {
            let added = opened.0.sockets.iter().try_for_each(add);
            added.map(|()| opened).map_err(|error| error.to_string())
        });
        match opened {
            Ok((interface, index, its_tables)) => {
                interfaces.push(interface);
                numbers.push(index);
                tables.push(its_tables);
            }
            Err(why) => log(format_args!(
                "RNIC_XDP={name}: {why}; its packets take UDP sockets"
            )),
        }
    }
    if interfaces.is_empty() {
        return Err(udp);
    }
    let ways = match Ways::open(numbers) {
        Ok(ways) => Arc::new(ways),
        Err(error) => {
            log(format_args!(
                "RNIC_XDP: rtnetlink: {error}; packets take UDP sockets"
            ));
            return Err(udp);
        }
    };
    let leaves_rows = interfaces.iter().all(Interface::leaves_rows);
    let numbered = interfaces.iter().enumerate();
    let rings = numbered.flat_map(|(i, opened)| (0..opened.sockets.len()).map(move |k| (i, k)));
    let link = XdpLink {
        udp,
        rings: rings.collect(),
        interfaces,
        hops: Hops::new(ways.clone()),
        waiting: Waiting::default(),
        rows: Rows::default(),
        again: None,
        turns: Turns::default(),
        headers: LastHeaders::default(),
        held: None,
        idle: IN_USE,
        received: 0,
        default_hop_limits: default_hop_limits(),
    };
    Ok((link, Filter::new(tables, arrivals, ways, leaves_rows)))
}

impl XdpLink {
    /// Where packets of a run go by AF_XDP; `None`: the kernel has them.
    #[inline]
    fn hop(&mut self, run: &Run, now: u64) -> Option<Hop> {
        let route = run.route.as_ref()?;
        let hop = self.hops.of(route, now)?;
        let headers = if route.flow.dst.is_ipv4() {
            Ipv4Header::LEN
        } else {
            Ipv6Header::LEN
        };
        // What is too long the kernel refuses.
        (run.segment + UDP_LEN + headers <= self.interfaces[hop.interface].mtu).then_some(hop)
    }

    /// The same, but for runs that take the socket since they, or others of their path in this
    /// batch, are long.
    #[inline]
    fn way(
        &mut self,
        run: &Run,
        batch: &[Run],
        now: u64,
        counters: &mut LinkCounters,
    ) -> Option<Hop> {
        let hop = self.hop(run, now)?;
        let route = run.route.as_ref()?;
        if !self.rows.concern(route) {
            return Some(hop);
        }
        let mut rows = std::mem::take(&mut self.rows);
        let takes_socket = rows.take_socket(batch, route, || self.may_leave(hop, now, counters));
        self.rows = rows;
        (!takes_socket).then_some(hop)
    }

    /// The tap interface by which the kernel takes runs of several packets, if they need one. The
    /// kernel was asked for the way before.
    fn tap(&self, route: &Route) -> Option<NonZeroU32> {
        let Flow { src, dst, .. } = route.flow;
        if !route.may_pass_network_stack() || !dst.is_ipv4() {
            return None;
        }
        let interface = self.hops.interface(src, dst)?;
        let tap = self.interfaces[interface].tap.as_ref()?;
        NonZeroU32::new(tap.ifindex())
    }

    /// Long rows by this interface gain by the socket, and nothing that is on its way past the
    /// stack would be overtaken.
    fn may_leave(&mut self, hop: Hop, now: u64, counters: &mut LinkCounters) -> bool {
        if !self.interfaces[hop.interface].leaves_rows() || !self.waiting.is_empty() {
            return false;
        }
        self.kick(now, counters);
        let interface = &mut self.interfaces[hop.interface];
        let too = !interface.one_queue;
        let socket = interface.sockets.first_mut();
        socket.is_some_and(|socket| socket.is_done(too))
    }

    /// Puts the packets of a run into the ring; false: there is no room.
    fn frame(&mut self, run: &Run, bytes: &[u8], hop: Hop) -> bool {
        let interface = &mut self.interfaces[hop.interface];
        let (Some(route), Some(socket)) = (&run.route, interface.sockets.first_mut()) else {
            return false;
        };
        if !socket.has_room(run.count) {
            return false;
        }
        let ethertype = if route.flow.dst.is_ipv4() { IPV4 } else { IPV6 };
        let mut headers = [0; ETHERNET_LEN + IpUdp::MAX_LEN];
        headers[..6].copy_from_slice(&hop.mac);
        headers[6..12].copy_from_slice(&interface.mac);
        headers[12..14].copy_from_slice(&ethertype.to_be_bytes());
        let prepared = route.headers(self.default_hop_limits);
        let packets = bytes[run.start..run.start + run.len].chunks(run.segment);
        for (k, packet) in packets.enumerate() {
            // The identification is as the ICRC has it.
            let len = ETHERNET_LEN + prepared.emit(k as u16, packet, &mut headers[ETHERNET_LEN..]);
            socket.send(&headers[..len], packet);
        }
        true
    }

    /// Sends a run by AF_XDP; if there is no room it waits.
    fn send_run(
        &mut self,
        run: &Run,
        bytes: &[u8],
        hop: Hop,
        at: Moment,
        counters: &mut LinkCounters,
    ) {
        let full = run.route.as_ref().is_some_and(|r| r.socket.is_full());
        let packets = run.count as u64;
        if !full {
            let mut framed = self.frame(run, bytes, hop);
            if !framed {
                // What is in the ring already may make room.
                self.kick(at.now(), counters);
                framed = self.frame(run, bytes, hop);
            }
            if framed {
                self.waiting.moved();
                counters.tx_packets += packets;
                counters.tx_bytes += run.len as u64;
                counters.tx_xdp_packets += packets;
                if self.interfaces[hop.interface].is_zero_copy() {
                    counters.tx_zero_copy_packets += packets;
                }
                return;
            }
        }
        if !self.waiting.keep(run, bytes, at) {
            counters.tx_errors += packets;
        } else if at.is_first() {
            counters.tx_waited += packets;
        }
    }

    /// Tries what waits, if it is time.
    #[inline]
    fn try_waiting(&mut self, now: u64, counters: &mut LinkCounters) {
        if self.waiting.is_due(now) {
            self.try_again(now, counters);
        }
    }

    #[cold]
    fn try_again(&mut self, now: u64, counters: &mut LinkCounters) {
        for kept in self.waiting.take() {
            match self.hop(&kept.run, now) {
                Some(hop) => {
                    self.send_run(&kept.run, &kept.bytes, hop, kept.at.again(now), counters);
                }
                // The neighbour is lost, or the interface.
                None => counters.tx_errors += kept.run.count as u64,
            }
        }
    }

    /// Has the cards send what is in the rings.
    fn kick(&mut self, now: u64, counters: &mut LinkCounters) {
        self.again = None;
        for socket in self
            .interfaces
            .iter_mut()
            .flat_map(|i| i.sockets.first_mut())
        {
            match socket.kick() {
                Ok((calls, all)) => {
                    counters.tx_syscalls += calls;
                    if !all {
                        let wait = match (socket.is_zero_copy(), calls) {
                            (true, 0) => AT_WORK_NS,
                            _ => AGAIN_NS,
                        };
                        let at = now.saturating_add(wait);
                        self.again = Some(self.again.map_or(at, |again| again.min(at)));
                    }
                }
                // Down, or gone: as a cable that is pulled out.
                Err(_) => counters.tx_errors += 1,
            }
        }
    }

    /// Packets of one sender and one length that lie next to each other in a ring; before what is
    /// held, if anything is.
    fn train(&mut self, buffer: &mut [u8]) -> Option<Train> {
        let (interfaces, rings) = (&mut self.interfaces, &self.rings);
        let holds = self.held.is_some();
        // What is in one may be no packet.
        for _ in rings {
            let has = |place: usize| {
                let (interface, queue) = rings[place];
                let interface = &interfaces[interface];
                !interface.sockets[queue].is_empty() && (!holds || interface.is_shut())
            };
            let (interface, queue) = rings[self.turns.next(rings.len(), has)?];
            let interface = &mut interfaces[interface];
            let socket = &mut interface.sockets[queue];
            let batches = interface.gate.is_some();
            let train = train_of(socket, &mut self.headers, buffer, batches);
            socket.took_all();
            if let Some(train) = train {
                self.idle = 0;
                self.turns.trains += 1;
                self.received += train.len.div_ceil(train.segment) as u64;
                return Some(train);
            }
        }
        None
    }

    /// What the socket has; what comes before it, if anything does.
    fn look_at_socket(&mut self, buffer: &mut [u8], thorough: bool) -> io::Result<Arrival> {
        self.turns.trains = 0;
        for interface in &mut self.interfaces {
            for socket in &interface.sockets {
                socket.refill();
            }
            let in_rings = interface.gate.is_some() && interface.has_arrivals();
            if let Some(gate) = &mut interface.gate {
                gate.is_looked_behind(in_rings);
            }
        }
        let arrival = self.udp.receive(buffer, thorough)?;
        match &arrival {
            Arrival::Train(train) if self.interfaces.iter().any(Interface::holds_earlier) => {
                self.held = Some(Held::new(train, buffer));
                Ok(self.go_on(buffer))
            }
            Arrival::Empty => {
                let gates = self.interfaces.iter_mut().filter_map(|i| i.gate.as_mut());
                gates.for_each(Gate::nothing_was_there);
                Ok(arrival)
            }
            _ => Ok(arrival),
        }
    }

    /// What comes next where something is held.
    #[cold]
    fn go_on(&mut self, buffer: &mut [u8]) -> Arrival {
        match self.train(buffer) {
            Some(train) => Arrival::Train(train),
            None => self
                .held
                .take()
                .map_or(Arrival::Empty, |held| Arrival::Train(held.give(buffer))),
        }
    }
}

/// Takes what is next to each other of one sender and one length; all but packets is thrown away.
/// `batches`: a frame may hold several packets.
fn train_of(
    socket: &mut Socket,
    last: &mut LastHeaders,
    buffer: &mut [u8],
    batches: bool,
) -> Option<Train> {
    let mut train: Option<Train> = None;
    while let Some(frame) = socket.next() {
        let Some((headers, at, len)) = headers_of(socket, last, frame) else {
            socket.took(frame);
            continue;
        };
        let flow = headers.flow;
        let used = train.as_ref().map_or(0, |train| train.len);
        let joins = train.as_ref().is_none_or(|train| {
            train.src == flow.src
                && train.dst == flow.dst
                && train.src_port == flow.src_port
                && train.segment == len
                && train.marks == Some(marks_of(&headers))
        });
        let seen = IcrcOk {
            ip_id: headers.ip_id,
            df: headers.dont_fragment,
        };
        let ids = match &train {
            Some(train) => train.ids.with(used / train.segment, seen),
            None => Some(IpIds::starting(seen)),
        };
        let room = buffer.get_mut(used..used + len).filter(|_| joins);
        let (Some(room), Some(ids)) = (room, ids) else {
            break;
        };
        socket.read(frame, at, room);
        let (segment, ids) = if batches {
            let (segment, of_parts) = segment_of(&headers, room);
            (segment, if segment < len { of_parts } else { ids })
        } else {
            (len, ids)
        };
        if segment < len && used > 0 {
            // It is a train of its own.
            break;
        }
        socket.took(frame);
        train.get_or_insert(Train {
            src: flow.src,
            src_port: flow.src_port,
            dst: flow.dst,
            len: 0,
            segment,
            ids,
            marks: Some(marks_of(&headers)),
        });
        if let Some(train) = &mut train {
            train.len += len;
            train.ids = ids;
        }
        if segment < len {
            break;
        }
    }
    train
}

fn marks_of(headers: &IpUdp) -> IpMarks {
    IpMarks {
        traffic_class: headers.traffic_class,
        hop_limit: headers.hop_limit,
    }
}

/// The headers of a packet of RoCEv2, and where in its frame its UDP payload lies and how long it
/// is; `None`: it is none.
#[inline]
fn headers_of(
    socket: &Socket,
    last: &mut LastHeaders,
    frame: Frame,
) -> Option<(IpUdp, usize, usize)> {
    const LONGEST: usize = ETHERNET_LEN + IpUdp::MAX_LEN;
    let mut bytes = [0; LONGEST];
    let len = frame.len.min(LONGEST);
    socket.read(frame, 0, &mut bytes[..len]);
    let front = bytes.get(ETHERNET_LEN..len)?;
    let (headers, payload) = last.parse_front(front, frame.len - ETHERNET_LEN).ok()?;
    let at = ETHERNET_LEN + IpUdp::len_of(front);
    (headers.flow.dst_port == ROCE_PORT && payload > 0).then_some((headers, at, payload))
}

impl Link for XdpLink {
    fn max_segments(&self, route: &Route) -> usize {
        self.udp.max_segments(route)
    }

    fn send(&mut self, batch: &mut TxBatch, now_ns: u64, counters: &mut LinkCounters) {
        self.try_waiting(now_ns, counters);
        self.udp.try_waiting(now_ns, counters);
        let at = Moment::first(now_ns);
        let (all, bytes) = batch.parts_mut();
        self.rows.begin(all);
        let mut runs = all;
        while let [run, rest @ ..] = runs {
            if let Some(hop) = self.way(run, all, now_ns, counters) {
                self.send_run(run, bytes, hop, at, counters);
                runs = rest;
            } else {
                // All that are next to each other, as one call may take several.
                let kernel = |run: &&Run| self.way(run, all, now_ns, counters).is_none();
                let (some, others) = runs.split_at(1 + rest.iter().take_while(kernel).count());
                for route in some.iter().filter_map(|run| run.route.as_ref()) {
                    route.set_tap(self.tap(route));
                }
                self.udp.send_all(some, bytes, at, counters);
                runs = others;
            }
        }
        self.rows.end();
        self.kick(now_ns, counters);
    }

    fn receive(&mut self, buffer: &mut [u8], thorough: bool) -> io::Result<Arrival> {
        if self.held.is_some() {
            return Ok(self.go_on(buffer));
        }
        let by_socket = || self.interfaces.iter().any(Interface::comes_by_socket);
        let looks = self.turns.is_sockets() || by_socket();
        if looks {
            match self.look_at_socket(buffer, thorough)? {
                Arrival::Empty => {}
                arrival => return Ok(arrival),
            }
        }
        if let Some(train) = self.train(buffer) {
            return Ok(Arrival::Train(train));
        }
        self.idle = self.idle.saturating_add(1);
        let is_back_soon =
            !thorough && self.idle < IN_USE && !self.idle.is_multiple_of(SOCKET_EVERY);
        if looks || is_back_soon {
            return Ok(Arrival::Empty);
        }
        self.look_at_socket(buffer, thorough)
    }

    fn next_timeout(&self) -> Option<u64> {
        let timeouts = [
            self.udp.next_timeout(),
            self.waiting.next_timeout(),
            self.again,
        ];
        timeouts.into_iter().flatten().min()
    }

    fn received_by_xdp(&self) -> u64 {
        self.received
    }

    fn overrun(&self) -> u64 {
        let sockets = self.interfaces.iter().flat_map(|i| &i.sockets);
        let by_memory: u64 = sockets.map(Socket::overrun).sum();
        by_memory + self.udp.overrun()
    }

    fn has_arrivals(&self) -> bool {
        let mut interfaces = self.interfaces.iter();
        self.held.is_some() || interfaces.any(|i| i.has_arrivals() || i.is_shut())
    }

    fn has_left(&self) -> bool {
        self.held.is_some()
    }

    fn is_still(&self) -> bool {
        self.idle < IN_USE && !self.has_arrivals()
    }
}

#[cfg(test)]
mod tests;
