//! One send queue: its requests put together to messages, what is missing, what came again.
//!
//! The answers to them are in `answers.rs`; what remains to be said at the end is in `closing.rs`.

use std::collections::VecDeque;

use rnic_wire::{Operation, PathMtu, Psn};

use crate::end::End;
use crate::finding::What;
use crate::gaps::Gaps;
use crate::kind::Kind;
use crate::model::{Mark, Message, MtuSource, Outcome, Repeat, Side};
use crate::notes::{Notes, Numbers};
use crate::packet::Packet;
use crate::twice::Twice;

/// PSNs further apart than this belong to different lives of a queue pair. A responder may lag 2^23
/// behind, but nobody has so much under way.
const JUMP: u32 = 1 << 17;
/// Messages that may be.
const MOST_BEHIND: usize = 4096;
/// READs that may be under way: the REQ has 8 bits for their number.
const READS: u32 = 256;
/// Messages that are kept at hand, for answers and repetitions to find them.
const LIVE: usize = 2048;
const LIVE_AT_MOST: usize = 16_384;
/// They begin no further behind the next PSN than this: those that are done with, and those that
/// still wait, of which half of all PSNs is the most that the specification allows. Beyond it PSNs
/// say no longer what comes first.
const BEHIND: u32 = 1 << 22;
const BEHIND_AT_MOST: u32 = 1 << 23;
/// Requests whose packet number is remembered.
const RECENT: usize = 2048;
/// PSNs of the longest message, 2^31 bytes at the smallest path MTU.
const LONGEST: u32 = 1 << 23;

#[derive(Clone, Debug)]
pub(crate) struct Tracker {
    pub end: End,
    pub unreliable: bool,
    pub side: Side,
    /// In boxes, since a late one is put in the middle of thousands.
    pub live: VecDeque<Box<Message>>,
    /// No open message lies before this index of `live`.
    pub open_from: usize,
    /// No message that awaits a mere acknowledgement lies before this one.
    pub plain_from: usize,
    /// The first PSN that was seen.
    pub began: Option<Psn>,
    /// What the peer expects, as answers say that lie outside of what was sent.
    pub elsewhere: Option<Elsewhere>,
    /// One past the last PSN that was sent.
    pub next: Option<Psn>,
    /// Length of the last message, a READ, while the MTU and thus its span are not known.
    pub uncertain: Option<u32>,
    pub gaps: Gaps,
    /// The last retransmission; its packets go on at the PSN.
    pub repeat: Option<Repeat>,
    pub repeat_next: Option<Psn>,
    /// Packets that came again at once.
    pub doubled: Vec<Repeat>,
    /// NAKs that have not been followed: PSN, packet, time.
    pub nak: Option<(Psn, u64, u64)>,
    pub rnr: Option<(Psn, u64, u64, u64)>,
    /// The PSN of the last RNR NAK, until something is acknowledged.
    pub rnr_psn: Option<Psn>,
    pub missing_response: Option<(u64, u64)>,
    /// A READ that was asked for again: its id, and how many responses were left out.
    pub read_again: Option<(u64, u32)>,
    pub recent: VecDeque<(Psn, u64)>,
    pub last_time: u64,
    pub open: u64,
    pub open_reads: u64,
    /// The first message that was put away while it still waited.
    pub never_answered: Option<Box<Message>>,
    pub answers: u64,
    pub orphans: Numbers,
    /// The packet that made `side.most_reads` what it is.
    pub most_reads_at: (u64, u64),
    pub refused: bool,
    pub keep: usize,
    pub requests_seen: Twice,
    pub answers_seen: Twice,
    /// The first FIRST or MIDDLE request packet as long as a path MTU.
    pub full: Option<FullPacket>,
    /// The same of the READ responses, which the other end sent.
    pub full_answer: Option<FullPacket>,
}

/// Answers that name a PSN which was never sent: the two sides count from different ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elsewhere {
    /// What the peer expects.
    pub expects: Psn,
    /// All of them say the same.
    pub same: bool,
    /// How many, and how many of them are NAKs.
    pub count: u64,
    pub naks: u64,
    /// Time and number of the first.
    pub first: (u64, u64),
}

impl Elsewhere {
    /// An answer lies outside by chance, or because its request is not in the capture. A NAK that asks
    /// for something, and an ACK that comes again and again, do not.
    pub fn is_certain(&self) -> bool {
        self.same && (self.naks > 0 || self.count > 1)
    }
}

/// A packet that is as long as its sender's path MTU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FullPacket {
    pub len: u32,
    pub number: u64,
    pub time: u64,
}

impl FullPacket {
    pub fn of(p: &Packet) -> FullPacket {
        FullPacket {
            len: p.payload_len,
            number: p.number,
            time: p.time_ns,
        }
    }
}

/// The path MTU of a conversation, and where it comes from.
pub(crate) type Mtu = Option<(u32, MtuSource)>;

/// Whether `len` is a path MTU.
pub(crate) fn is_mtu(len: u32) -> bool {
    PathMtu::ALL.iter().any(|mtu| mtu.bytes() as u32 == len)
}

/// How far `psn` lies ahead of `base`, all round.
fn ahead(psn: Psn, base: Psn) -> u32 {
    psn.value().wrapping_sub(base.value()) & 0xff_ffff
}

/// PSNs that a READ of `len` bytes takes.
pub(crate) fn read_span(len: u32, mtu: u32) -> u32 {
    len.div_ceil(mtu.max(1)).max(1)
}

impl Tracker {
    pub fn new(end: End, unreliable: bool, keep: usize) -> Tracker {
        Tracker {
            end,
            unreliable,
            side: Side::default(),
            live: VecDeque::new(),
            open_from: 0,
            plain_from: 0,
            began: None,
            elsewhere: None,
            next: None,
            uncertain: None,
            gaps: Gaps::default(),
            repeat: None,
            repeat_next: None,
            doubled: Vec::new(),
            nak: None,
            rnr: None,
            rnr_psn: None,
            missing_response: None,
            read_again: None,
            recent: VecDeque::new(),
            last_time: 0,
            open: 0,
            open_reads: 0,
            never_answered: None,
            answers: 0,
            orphans: Numbers::default(),
            most_reads_at: (0, 0),
            refused: false,
            keep,
            requests_seen: Twice::default(),
            answers_seen: Twice::default(),
            full: None,
            full_answer: None,
        }
    }

    /// How many messages of `live` begin at `psn` or before it.
    pub fn begun_by(&self, psn: Psn) -> usize {
        let Some(front) = self.live.front() else {
            return 0;
        };
        let base = front.psn;
        let last = self
            .live
            .back()
            .map_or(0, |last| ahead(last.last_psn(), base));
        let at = ahead(psn, base);
        // In front of all of them, if not behind.
        if at > last && psn.is_before(base) {
            return 0;
        }
        self.live
            .partition_point(|message| ahead(message.psn, base) <= at)
    }

    /// Index into `live` of the message that covers `psn`.
    pub fn find(&self, psn: Psn) -> Option<usize> {
        let index = self.begun_by(psn).checked_sub(1)?;
        self.live[index].covers(psn).then_some(index)
    }

    /// The packet that last carried `psn`.
    pub fn packet_of(&self, psn: Psn) -> Option<u64> {
        let found = self.recent.iter().rev().find(|(known, _)| *known == psn);
        found.map(|&(_, number)| number)
    }

    /// A request packet of this side.
    pub fn request(
        &mut self,
        p: &Packet,
        op: Operation,
        mtu: &mut Mtu,
        notes: &mut Notes,
    ) -> (Option<u64>, Mark) {
        let psn = p.bth.psn;
        self.requests_seen.push(p);
        self.look_at_length(p, op, mtu, notes);
        if self.next.is_none() {
            self.next = Some(psn);
        }
        self.began.get_or_insert(psn);
        self.settle_span(psn, mtu);
        let next = self.next.unwrap_or(psn);
        let mut ahead = psn.distance_from(next);
        if ahead.unsigned_abs() > JUMP && !self.may_come_again(psn) {
            notes.at(
                self.end,
                p.time_ns,
                &[p.number],
                What::Restart {
                    from: next,
                    to: psn,
                },
            );
            self.restart(notes);
            self.next = Some(psn);
            ahead = 0;
        }
        let (id, mark) = if ahead >= 0 {
            self.fresh(p, op, ahead as u32, mtu, notes)
        } else if let Some(gap) = self.gaps.fill(psn) {
            self.fill(p, op, &gap, mtu, notes)
        } else {
            self.again(p, op, mtu, notes)
        };
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((psn, p.number));
        self.last_time = p.time_ns;
        self.side.most_outstanding = self.side.most_outstanding.max(self.open);
        if self.open_reads > self.side.most_reads {
            self.side.most_reads = self.open_reads;
            self.most_reads_at = (p.time_ns, p.number);
        }
        self.retire(notes);
        (id, mark)
    }

    /// Whether a PSN that far behind is still of this life: its message awaits an answer, or those
    /// behind it are no more than can be under way. There a READ is one packet, however many PSNs
    /// it takes.
    fn may_come_again(&self, psn: Psn) -> bool {
        let Some(index) = self.find(psn) else {
            return false;
        };
        // Nobody has more messages under way, and nobody makes this look at more.
        if self.live.len() - index > MOST_BEHIND {
            return self.live[index].is_open();
        }
        let weight = |message: &Message| match message.kind.has_answer() {
            true => message.span.min(JUMP / READS),
            false => message.span,
        };
        let behind = self.live.range(index + 1..).map(|message| weight(message));
        self.live[index].is_open() || behind.sum::<u32>() < JUMP
    }

    /// A FIRST or MIDDLE packet has exactly the path MTU, the others no more.
    fn look_at_length(&mut self, p: &Packet, op: Operation, mtu: &mut Mtu, notes: &mut Notes) {
        let len = p.payload_len;
        let full = op.is_first() || op.is_middle();
        if full && is_mtu(len) && !matches!(mtu, Some((_, MtuSource::Payload))) {
            // What is sent counts for more than what was agreed.
            *mtu = Some((len, MtuSource::Payload));
        }
        if full && is_mtu(len) {
            self.full.get_or_insert(FullPacket::of(p));
        }
        // The peer may have another one; that is said at the end, once.
        let own = self.full.map(|first| first.len);
        let Some(mtu) = own.or(mtu.map(|(mtu, _)| mtu)) else {
            return;
        };
        if full && len != mtu || len > mtu {
            notes.at(self.end, p.time_ns, &[p.number], What::NotMtu { len, mtu });
        }
    }

    /// The next request's PSN says how many PSNs a READ took.
    fn settle_span(&mut self, psn: Psn, mtu: &mut Mtu) {
        let Some(len) = self.uncertain else { return };
        let Some(last) = self.live.back_mut() else {
            self.uncertain = None;
            return;
        };
        let known = match *mtu {
            Some((mtu, _)) => Some(read_span(len, mtu)),
            None => {
                let span = psn.distance_from(last.psn);
                let fits = |mtu: &PathMtu| read_span(len, mtu.bytes() as u32) as i32 == span;
                let fitting: Vec<_> = PathMtu::ALL.into_iter().filter(fits).collect();
                if let [only] = fitting[..] {
                    *mtu = Some((only.bytes() as u32, MtuSource::ReadSpan));
                }
                (!fitting.is_empty()).then_some(span as u32)
            }
        };
        if let Some(span) = known {
            last.span = span;
            self.next = Some(last.psn.add(span));
            self.uncertain = None;
        }
    }

    pub fn restart(&mut self, notes: &mut Notes) {
        self.end_repeat();
        while let Some(message) = self.live.pop_front() {
            self.put_away(*message, notes);
        }
        (self.open_from, self.plain_from) = (0, 0);
        self.gaps.clear();
        self.uncertain = None;
        (self.nak, self.rnr, self.rnr_psn) = (None, None, None);
        self.refused = false;
        self.never_answered = None;
        self.recent.clear();
    }

    pub fn fresh(
        &mut self,
        p: &Packet,
        op: Operation,
        missing: u32,
        mtu: &Mtu,
        notes: &mut Notes,
    ) -> (Option<u64>, Mark) {
        self.end_repeat();
        self.side.request_packets += 1;
        let psn = p.bth.psn;
        if missing > 0 {
            self.side.missing_packets += u64::from(missing);
        }
        let position = self.side.request_packets;
        self.gaps
            .advance(psn, missing, p.number, p.time_ns, position);
        let kind = Kind::of(p.bth.opcode);
        let continues = op.is_middle() || op.is_last();
        let index = match self.live.back_mut() {
            Some(last)
                if continues
                    && !last.complete
                    && kind.continues(last.kind)
                    && last.last_psn().add(missing + 1) == psn
                    && last.span + missing < LONGEST =>
            {
                last.span += missing + 1;
                last.missing += missing;
                self.live.len() - 1
            }
            last => {
                if let Some(last) = last
                    && !last.complete
                    && missing == 0
                {
                    let (id, began) = (last.id, last.begun.1);
                    notes.at(
                        self.end,
                        p.time_ns,
                        &[began, p.number],
                        What::Unfinished { message: id },
                    );
                }
                if continues && missing == 0 {
                    let at_start = self.live.is_empty();
                    notes.at(
                        self.end,
                        p.time_ns,
                        &[p.number],
                        What::Headless { psn, at_start },
                    );
                }
                let message = self.begin(p, continues, mtu);
                self.live.push_back(Box::new(message));
                self.live.len() - 1
            }
        };
        self.add_packet(index, p, op, notes);
        let message = &self.live[index];
        self.next = Some(message.last_psn().next());
        let at = psn.distance_from(message.psn).max(0) as u32 + 1;
        let mark = match missing {
            0 => Mark::Request { index: at },
            missing => Mark::AfterGap { index: at, missing },
        };
        (Some(message.id), mark)
    }

    pub fn begin(&mut self, p: &Packet, headless: bool, mtu: &Mtu) -> Message {
        let kind = Kind::of(p.bth.opcode);
        self.side.message_count += 1;
        self.open += 1;
        if kind.has_answer() {
            self.open_reads += 1;
        }
        let mut span = 1;
        if let (Kind::Read, Some(reth)) = (kind, p.ext.reth) {
            match *mtu {
                Some((mtu, _)) => span = read_span(reth.dma_len, mtu),
                None if reth.dma_len > 256 => self.uncertain = Some(reth.dma_len),
                None => {}
            }
        }
        let reth = p.ext.reth.map(|reth| (reth.va, reth.rkey, reth.dma_len));
        let atomic = p.ext.atomic.map(|atomic| (atomic.va, atomic.rkey, 8));
        let at = (p.time_ns, p.number);
        Message {
            id: self.side.message_count,
            kind,
            psn: p.bth.psn,
            span,
            bytes: 0,
            packets: 0,
            repeated: 0,
            missing: 0,
            complete: false,
            headless,
            imm: None,
            invalidate: None,
            remote: reth.or(atomic),
            operands: p
                .ext
                .atomic
                .map(|atomic| (atomic.swap_or_add, atomic.compare)),
            original: None,
            srqn: p.ext.xrceth.map(|xrceth| xrceth.srqn),
            solicited: false,
            begun: at,
            sent: at,
            last_sent: at,
            timeouts: 0,
            rnr_naks: 0,
            answered: 0,
            answered_bytes: 0,
            answer_lost: None,
            first_answer: None,
            first_response: None,
            last_response: None,
            answer_gap: false,
            outcome: Outcome::Open,
        }
    }

    /// A packet of a message, seen for the first time.
    pub fn add_packet(&mut self, index: usize, p: &Packet, op: Operation, notes: &mut Notes) {
        let end = self.end;
        let message = &mut self.live[index];
        message.packets += 1;
        message.bytes += match (message.kind, p.ext.reth) {
            (Kind::Read, Some(reth)) => u64::from(reth.dma_len),
            _ => u64::from(p.payload_len),
        };
        message.sent = message.sent.max((p.time_ns, p.number));
        message.last_sent = message.sent;
        if op.is_last() || op.is_only() {
            message.complete = true;
            message.kind = Kind::of(p.bth.opcode);
            message.imm = p.ext.imm.map(|imm| imm.0);
            message.invalidate = p.ext.ieth.map(|ieth| ieth.rkey);
            message.solicited = p.bth.solicited;
            if let (Kind::Write | Kind::WriteImm, Some((_, _, promised))) =
                (message.kind, message.remote)
                && message.missing == 0
                && !message.headless
                && u64::from(promised) != message.bytes
            {
                let (id, carried) = (message.id, message.bytes);
                let numbers = [message.begun.1, p.number];
                notes.at(
                    end,
                    p.time_ns,
                    &numbers,
                    What::WrongLength {
                        message: id,
                        promised,
                        carried,
                    },
                );
            }
        }
    }

    /// A datagram: a message of its own.
    pub fn datagram(
        &mut self,
        p: &Packet,
        op: Operation,
        notes: &mut Notes,
    ) -> (Option<u64>, Mark) {
        self.side.request_packets += 1;
        let message = self.begin(p, false, &None);
        let id = message.id;
        self.live.push_back(Box::new(message));
        self.add_packet(self.live.len() - 1, p, op, notes);
        while self.live.len() > 1 {
            if let Some(message) = self.live.pop_front() {
                self.put_away(*message, notes);
            }
        }
        (Some(id), Mark::Datagram)
    }

    /// Puts messages away that are done with, or that nobody can wait for any more.
    pub fn retire(&mut self, notes: &mut Notes) {
        while let (Some(front), Some(next)) = (self.live.front(), self.next) {
            let behind = ahead(next, front.psn);
            let old = behind > BEHIND && !front.is_open() || behind > BEHIND_AT_MOST;
            let many = self.live.len() > LIVE && self.open_from > LIVE / 2;
            // A message is there as long as it is under way, however long it is.
            if !(old && self.live.len() > 1 || many || self.live.len() > LIVE_AT_MOST) {
                return;
            }
            let Some(message) = self.live.pop_front() else {
                return;
            };
            self.open_from = self.open_from.saturating_sub(1);
            self.plain_from = self.plain_from.saturating_sub(1);
            if message.is_open() && !self.unreliable {
                self.open = self.open.saturating_sub(1);
                if message.kind.has_answer() {
                    self.open_reads = self.open_reads.saturating_sub(1);
                }
                self.never_answered.get_or_insert_with(|| message.clone());
            }
            self.put_away(*message, notes);
        }
    }
}
