//! Two NICs in virtual time, joined by a [`Network`].
//!
//! The driver keeps the drive contract of [`Rc`] and checks the queue pair's side of it:
//! `poll_transmit` emits nothing when `wants_transmit` is false and something, or ends a WQE, when
//! it is true; a timer that fired does not stay due; every packet obeys [`network::lint`]. How much
//! is polled at a time, and when, is random: a real engine has other queue pairs to serve and a
//! batch that fills up.

use super::accent::Accent;
use super::memory::{Memory, QpDevice, Queues};
use super::network::{self, Arrived, Impairments, Network};
use rnic_transport::{
    AckRequest, Address, Counters, IoVec, PacketSink, Rc, RcAttr, RecvWqe, SendWqe, ShortSend, Time,
};
use rnic_wire::{MAX_HEADER_LEN, Packet, PathMtu, Usual, pad_len};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A batch of packets with room for `capacity`.
pub struct Batch {
    pub packets: Vec<Vec<u8>>,
    pub capacity: usize,
    /// It goes by memory, with so much payload in a packet.
    pub most_payload: Option<usize>,
    /// So much may be pointed at in a packet; if not 0, it goes by memory.
    pub most_pointed: usize,
    /// Packets that point, by place: bytes of headers, and where the payload is.
    pub pointed: Vec<(usize, usize, Vec<IoVec>)>,
}

impl Batch {
    /// What a packet by memory may stand for; `None`: it goes over the wire.
    pub fn by_memory(&self) -> Option<usize> {
        match self.most_pointed {
            0 => self.most_payload,
            pointed => Some(pointed.max(self.most_payload.unwrap_or(0))),
        }
    }

    /// Bytes that were built.
    pub fn built(&self) -> usize {
        let whole = |(at, packet): (usize, &Vec<u8>)| {
            let pointed = self.pointed.iter().find(|(place, ..)| *place == at);
            pointed.map_or(packet.len(), |(_, headers, _)| *headers)
        };
        self.packets.iter().enumerate().map(whole).sum()
    }

    /// Copies what packets point at, so that they look like others.
    pub fn follow(&mut self, memory: &Memory) {
        for (place, headers, iov) in self.pointed.drain(..) {
            let packet = &mut self.packets[place];
            packet.truncate(headers);
            for entry in iov {
                packet.extend_from_slice(memory.at(entry.at, entry.len));
            }
            let pad = pad_len(packet.len() - headers);
            assert_eq!(packet[1] & 0x30, 0, "nothing is padded");
            packet[1] |= pad << 4;
            packet.resize(packet.len() + usize::from(pad), 0);
        }
    }
}

impl Batch {
    pub fn new(capacity: usize) -> Batch {
        Batch {
            packets: Vec::new(),
            capacity,
            most_payload: None,
            most_pointed: 0,
            pointed: Vec::new(),
        }
    }
}

impl PacketSink for Batch {
    fn packet(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.packets.len() == self.capacity {
            return None;
        }
        // Not zero: a byte that the queue pair forgets to write shall show.
        self.packets.push(vec![0xee; len]);
        self.packets.last_mut().map(Vec::as_mut_slice)
    }

    fn packet_to(&mut self, _: &Address, len: usize) -> Option<&mut [u8]> {
        self.packet(len)
    }

    fn most_payload(&self, mtu: usize) -> usize {
        self.most_payload.unwrap_or(mtu)
    }

    fn most_pointed(&self) -> usize {
        self.most_pointed
    }

    fn point(&mut self, headers: usize, _: PathMtu, iov: &[IoVec]) -> Option<&mut [u8]> {
        let len = iov.iter().map(|entry| entry.len as usize).sum::<usize>();
        assert!((1..=self.most_pointed).contains(&len), "{len} bytes");
        let place = self.packets.len();
        self.packet(headers + len)?;
        self.pointed.push((place, headers, iov.to_vec()));
        Some(&mut self.packets[place][..headers])
    }

    fn retract(&mut self) {
        self.packets.pop().expect("retract without a packet");
    }

    fn send_short(&mut self, packet: &[u8]) -> bool {
        let room = self.packets.len() < self.capacity;
        self.packets.extend(room.then(|| packet.to_vec()));
        room
    }
}

/// Posts as the device does by memory: the shortest way that the message can take.
pub fn post_fast(
    rc: &mut Rc,
    now: Time,
    wqe: SendWqe,
    ack_request: AckRequest,
    device: &mut QpDevice<'_>,
    batch: &mut Batch,
) {
    let short = ShortSend::of(&wqe);
    if !short.is_some_and(|short| rc.post_short(now, &short, ack_request, device, batch)) {
        rc.post_fast(now, wqe, device, batch);
    }
}

/// How packets of a queue pair go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path {
    #[default]
    Wire,
    /// With so much payload in a packet.
    Memory(usize),
    /// By memory, where packets may point at so much.
    Pointing(usize),
    /// Now this way, now that, with ever other limits.
    Changing,
}

/// A queue pair and its queues.
pub struct Qp {
    pub rc: Rc,
    pub attr: RcAttr,
    pub queues: Queues,
    /// Speaks like Linux instead of by the book.
    pub accent: Option<Accent>,
    pub path: Path,
    /// Of short messages that are not signaled and leave as they are posted.
    pub ack_request: AckRequest,
    poll_pending: bool,
}

/// A device.
#[derive(Default)]
pub struct Nic {
    pub memory: Memory,
    pub qps: Vec<Qp>,
}

impl Nic {
    fn with<R>(&mut self, qp: usize, f: impl FnOnce(&mut Rc, &mut QpDevice<'_>) -> R) -> R {
        self.with_packet(qp, None, f)
    }

    fn with_packet<R>(
        &mut self,
        qp: usize,
        packet: Option<&[u8]>,
        f: impl FnOnce(&mut Rc, &mut QpDevice<'_>) -> R,
    ) -> R {
        let Qp { rc, queues, .. } = &mut self.qps[qp];
        let mut device = QpDevice {
            memory: &mut self.memory,
            queues,
            packet,
        };
        f(rc, &mut device)
    }
}

enum Happening {
    Arrival {
        nic: usize,
        arrived: Arrived,
    },
    PostSend {
        nic: usize,
        qp: usize,
        wqe: SendWqe,
    },
    PostReceive {
        nic: usize,
        qp: usize,
        srq: Option<u32>,
        wqe: RecvWqe,
    },
    Poll {
        nic: usize,
        qp: usize,
    },
}

struct Event {
    at: u64,
    order: u64,
    what: Happening,
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Event) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Two NICs and what is under way between them.
pub struct Pair {
    pub nics: [Nic; 2],
    pub network: Network,
    pub now: u64,
    /// Packets that arrived, with a good ICRC and a known destination.
    pub delivered: u64,
    events: BinaryHeap<Reverse<Event>>,
    order: u64,
    rng: fastrand::Rng,
    /// Poll in random portions instead of until nothing is left.
    pub portions: bool,
    /// Packets after which recovery counts as out of control.
    pub packet_limit: u64,
    /// Print every packet: for hunting.
    pub trace: bool,
}

impl Pair {
    pub fn new(impairments: Impairments, seed: u64) -> Pair {
        let mut rng = fastrand::Rng::with_seed(seed);
        Pair {
            nics: [Nic::default(), Nic::default()],
            network: Network::new(impairments, rng.u64(..)),
            now: 0,
            delivered: 0,
            events: BinaryHeap::new(),
            order: 0,
            portions: rng.bool(),
            rng,
            packet_limit: u64::MAX,
            trace: std::env::var_os("PAIR_TRACE").is_some(),
        }
    }

    /// Adds a queue pair to each NIC, connected with each other and ready to send; gives their
    /// common index.
    pub fn connect(&mut self, attrs: [RcAttr; 2]) -> usize {
        for (nic, attr) in self.nics.iter_mut().zip(attrs) {
            let mut rc = Rc::new();
            rc.receive_ready(attr);
            rc.send_ready(attr);
            // One half of them, by chance.
            rc.send_in_trains(attr.sq_psn.value() % 2 == 0);
            nic.qps.push(Qp {
                rc,
                attr,
                queues: Queues::default(),
                accent: None,
                path: Path::Wire,
                ack_request: AckRequest::Now,
                poll_pending: false,
            });
        }
        self.nics[0].qps.len() - 1
    }

    fn at(&mut self, at: u64, what: Happening) {
        self.order += 1;
        self.events.push(Reverse(Event {
            at,
            order: self.order,
            what,
        }));
    }

    /// Posts a send at a later instant.
    pub fn post_send_at(&mut self, at: u64, nic: usize, qp: usize, wqe: SendWqe) {
        self.at(at, Happening::PostSend { nic, qp, wqe });
    }

    /// Posts a receive at a later instant, to the queue pair or an SRQ of its domain.
    pub fn post_receive_at(
        &mut self,
        at: u64,
        nic: usize,
        qp: usize,
        srq: Option<u32>,
        wqe: RecvWqe,
    ) {
        self.at(at, Happening::PostReceive { nic, qp, srq, wqe });
    }

    /// The instant of the next timer, and whose it is.
    fn next_timer(&self) -> Option<(u64, usize, usize)> {
        let mut first = None;
        for (n, nic) in self.nics.iter().enumerate() {
            for (q, qp) in nic.qps.iter().enumerate() {
                if let Some(Time(at)) = qp.rc.next_timeout()
                    && first.is_none_or(|(best, _, _)| at < best)
                {
                    first = Some((at, n, q));
                }
            }
        }
        first
    }

    /// Lets the next thing happen; false when nothing will ever happen again.
    pub fn step(&mut self) -> bool {
        let event = self.events.peek().map(|Reverse(event)| event.at);
        let timer = self.next_timer();
        match (event, timer) {
            (None, None) => return false,
            (Some(at), timer) if timer.is_none_or(|(t, _, _)| at <= t) => {
                self.now = self.now.max(at);
                let Reverse(event) = self.events.pop().expect("peeked");
                self.happen(event.what);
            }
            (_, Some((at, nic, qp))) => {
                self.now = self.now.max(at);
                let now = Time(self.now);
                self.nics[nic].with(qp, |rc, device| rc.handle_timeout(now, device));
                self.poll(nic, qp);
                let next = self.nics[nic].qps[qp].rc.next_timeout();
                assert!(
                    next.is_none_or(|next| next > now),
                    "timer {next:?} of qp {qp} still due at {now:?} after it fired"
                );
            }
            (Some(_), None) => unreachable!("taken by the second arm"),
        }
        true
    }

    /// Steps until nothing is left to happen.
    ///
    /// # Panics
    /// After `steps` steps: a live lock.
    pub fn drive_until_idle(&mut self, steps: u64) {
        for _ in 0..steps {
            if !self.step() {
                return;
            }
        }
        panic!(
            "not idle after {steps} steps, {} ns; {:?}; {:?}",
            self.now,
            self.network.counters,
            self.counters()
        );
    }

    /// Of all queue pairs, NIC by NIC.
    pub fn counters(&self) -> Vec<Counters> {
        let qps = self.nics.iter().flat_map(|nic| &nic.qps);
        qps.map(|qp| qp.rc.counters()).collect()
    }

    fn happen(&mut self, what: Happening) {
        let now = Time(self.now);
        match what {
            Happening::Arrival { nic, arrived } => {
                let Some(bytes) = self.network.open(now.0, &arrived) else {
                    return;
                };
                let parsed = match arrived.by_memory {
                    Some(mtu) => {
                        let front = &bytes[..bytes.len().min(MAX_HEADER_LEN)];
                        Packet::parse_front(front, bytes.len(), mtu)
                    }
                    None => Packet::parse(bytes),
                };
                let Ok(packet) = parsed else {
                    return;
                };
                let detached = (!arrived.gone).then_some(bytes);
                let Some(qp) = self.nics[nic]
                    .qps
                    .iter()
                    .position(|qp| qp.attr.qpn == packet.bth.dest_qp)
                else {
                    return;
                };
                self.delivered += 1;
                let Qp {
                    rc, attr, accent, ..
                } = &mut self.nics[nic].qps[qp];
                if let Some(accent) = accent
                    && !accent.hears(&packet, rc.rq_psn(), attr.mtu.bytes())
                {
                    return;
                }
                let may = self.rng.bool() && arrived.by_memory.is_none() && !arrived.gone;
                let usual = Usual::parse(bytes).filter(|_| may);
                self.nics[nic].with_packet(qp, detached, |rc, device| {
                    if usual.is_none_or(|(bth, usual)| !rc.take_fast(now, &bth, usual, device)) {
                        rc.handle_packet(now, &packet, device);
                    }
                });
                self.poll_soon(nic, qp);
            }
            Happening::PostSend { nic, qp, wqe } => {
                let (fast, listed) = (self.rng.bool(), self.rng.bool());
                let mut batch = Batch::new(self.rng.usize(..3));
                let ack_request = self.nics[nic].qps[qp].ack_request;
                self.nics[nic].with(qp, |rc, device| {
                    device.queues.note_send(&wqe);
                    if fast && listed {
                        rc.post_fast(now, wqe, device, &mut batch);
                    } else if fast {
                        post_fast(rc, now, wqe, ack_request, device, &mut batch);
                    } else {
                        rc.post_send(wqe);
                    }
                    if rc.is_error() {
                        rc.fail(device);
                    }
                });
                self.emit(nic, qp, batch);
                self.poll_soon(nic, qp);
            }
            Happening::PostReceive { nic, qp, srq, wqe } => {
                self.nics[nic].with(qp, |rc, device| {
                    device.queues.post_receive(srq, wqe);
                    if rc.is_error() {
                        rc.fail(device);
                    }
                });
                self.poll_soon(nic, qp);
            }
            Happening::Poll { nic, qp } => {
                self.nics[nic].qps[qp].poll_pending = false;
                self.poll(nic, qp);
            }
        }
    }

    /// Polls now, or lets a few more packets arrive first.
    fn poll_soon(&mut self, nic: usize, qp: usize) {
        if self.nics[nic].qps[qp].poll_pending {
            return;
        }
        if self.portions && self.rng.bool() {
            self.schedule_poll(nic, qp);
        } else {
            self.poll(nic, qp);
        }
    }

    fn schedule_poll(&mut self, nic: usize, qp: usize) {
        if !self.nics[nic].qps[qp].poll_pending {
            self.nics[nic].qps[qp].poll_pending = true;
            let at = self.now + self.rng.u64(1..2_000);
            self.at(at, Happening::Poll { nic, qp });
        }
    }

    /// Emits what a queue pair has to say.
    fn poll(&mut self, nic: usize, qp: usize) {
        let now = Time(self.now);
        loop {
            let wanted = self.nics[nic].qps[qp].rc.wants_transmit();
            if !wanted && self.rng.u8(..) >= 8 {
                return;
            }
            let (capacity, budget) = if self.portions {
                (self.rng.usize(1..40), self.rng.usize(1..100_000))
            } else {
                (64, usize::MAX)
            };
            let mut batch = Batch::new(capacity);
            let mtu = self.nics[nic].qps[qp].attr.mtu;
            batch.most_payload = match self.nics[nic].qps[qp].path {
                Path::Wire | Path::Pointing(_) => None,
                Path::Memory(most) => Some(most),
                Path::Changing => {
                    let most = [None, Some(1), Some(3), Some(7), Some(64)][self.rng.usize(..5)];
                    // Not always a multiple of the MTU.
                    most.map(|packets| packets * mtu.bytes() + self.rng.usize(..mtu.bytes()))
                }
            };
            batch.most_pointed = match self.nics[nic].qps[qp].path {
                Path::Wire | Path::Memory(_) => 0,
                Path::Pointing(most) => most,
                Path::Changing => [0, 40_000, 1 << 18][self.rng.usize(..3)],
            };
            let ended = self.nics[nic].qps[qp].queues.send_completions.len();
            let fast = self.rng.bool();
            self.nics[nic].with(qp, |rc, device| {
                let said = fast
                    && (rc.acknowledge_fast(device, &mut batch)
                        || rc.answer_fast(device, &mut batch));
                if !said {
                    rc.poll_transmit(now, device, &mut batch, budget);
                }
            });
            let Qp {
                rc, attr, queues, ..
            } = &self.nics[nic].qps[qp];
            let attr = *attr;
            if !wanted {
                assert!(
                    batch.packets.is_empty(),
                    "wants_transmit was false, yet {:?} came out",
                    Packet::parse(&batch.packets[0])
                );
                return;
            }
            assert!(
                !batch.packets.is_empty()
                    || queues.send_completions.len() > ended
                    || !rc.wants_transmit(),
                "wants_transmit stays true, yet nothing happens: {rc:?}"
            );
            let emitted = batch.built();
            let largest = attr.mtu.bytes() + MAX_HEADER_LEN;
            assert!(
                emitted <= budget.saturating_add(largest),
                "{emitted} bytes for a budget of {budget}"
            );
            self.emit(nic, qp, batch);
            if self.portions && self.rng.u8(..) < 64 && self.nics[nic].qps[qp].rc.wants_transmit() {
                self.schedule_poll(nic, qp);
                return;
            }
        }
    }

    /// What a queue pair has emitted goes its way.
    fn emit(&mut self, nic: usize, qp: usize, mut batch: Batch) {
        batch.follow(&self.nics[nic].memory);
        let by_memory = batch.by_memory();
        let attr = self.nics[nic].qps[qp].attr;
        for bytes in batch.packets {
            let (pkey, dest) = (attr.pkey, attr.dest_qpn);
            if let Err(rule) = network::lint(&bytes, attr.mtu, by_memory, pkey, dest) {
                panic!("qp {qp} of nic {nic} emits {rule}");
            }
            if self.trace {
                let packet = Packet::parse(&bytes).expect("linted");
                eprintln!(
                    "{:>9} {nic}.{qp} > {:?} psn {:#x} len {} {}{:?}",
                    self.now,
                    packet.bth.opcode.operation().expect("linted"),
                    packet.bth.psn.value(),
                    packet.payload.len(),
                    if packet.bth.ack_req { "ackreq " } else { "" },
                    packet.ext.aeth
                );
            }
            assert!(
                self.network.counters.sent < self.packet_limit,
                "more than {} packets: recovery out of control; {:?}",
                self.packet_limit,
                self.counters()
            );
            let to = 1 - nic;
            let said = match &mut self.nics[nic].qps[qp].accent {
                Some(accent) => accent.says(bytes),
                None => vec![bytes],
            };
            for bytes in said {
                let by_memory = by_memory.map(|_| attr.mtu);
                for (at, arrived) in self.network.send(self.now, to, bytes, by_memory) {
                    self.at(at, Happening::Arrival { nic: to, arrived });
                }
            }
        }
    }

    /// Everything that the ledgers hold against the queue pairs.
    pub fn violations(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (n, nic) in self.nics.iter().enumerate() {
            for (q, qp) in nic.qps.iter().enumerate() {
                all.extend(
                    qp.queues
                        .violations
                        .iter()
                        .map(|v| format!("nic {n} qp {q}: {v}")),
                );
            }
        }
        all
    }
}
