//! What the answers to a send queue say: acknowledgements, NAKs, READ responses, atomic results.

use rnic_wire::{Aeth, NakCode, Operation, Psn, Syndrome, rnr_timer_ns};

use crate::finding::{Finding, What};
use crate::kind::Kind;
use crate::model::{Mark, Message, MtuSource, Outcome};
use crate::notes::Notes;
use crate::packet::Packet;
use crate::tracker::{Elsewhere, FullPacket, Mtu, Tracker, is_mtu, read_span};

impl Tracker {
    /// How well an answer fits this side: 0 not at all. For pairing.
    pub fn expects(&self, psn: Psn, op: Operation) -> u32 {
        let index = match self.find(psn) {
            Some(index) => index,
            None if op.is_read_response() && self.could_be_last_read(psn) => self.live.len() - 1,
            None => return 0,
        };
        let message = &self.live[index];
        let fits = match op {
            Operation::AtomicAcknowledge => {
                matches!(message.kind, Kind::CompareSwap | Kind::FetchAdd)
            }
            Operation::Acknowledge => true,
            _ => matches!(message.kind, Kind::Read | Kind::Flush | Kind::AtomicWrite),
        };
        match (fits, message.is_open()) {
            (false, _) => 0,
            (true, true) if psn == message.last_psn() || psn == message.psn => 4,
            (true, true) => 3,
            (true, false) => 1,
        }
    }

    fn could_be_last_read(&self, psn: Psn) -> bool {
        let (Some(len), Some(last)) = (self.uncertain, self.live.back()) else {
            return false;
        };
        let at = psn.distance_from(last.psn);
        at >= 0 && (at as u32) < read_span(len, 256)
    }

    /// An answer to requests of this side.
    pub fn answer(
        &mut self,
        p: &Packet,
        op: Operation,
        mtu: &mut Mtu,
        notes: &mut Notes,
    ) -> (Option<u64>, Mark) {
        self.answers += 1;
        self.answers_seen.push(p);
        let psn = p.bth.psn;
        if self.next.is_none() {
            self.look_elsewhere(p);
            self.orphans.push(p);
            return (None, Mark::Orphan);
        }
        let sent_again_to = self.repeat.as_ref().map(|repeat| repeat.psns.1);
        let repeat = match &mut self.repeat {
            Some(repeat) => Some(repeat),
            None => self.side.repeats.last_mut(),
        };
        if let Some(repeat) = repeat
            && p.time_ns >= repeat.time
        {
            if repeat.reply.is_none() {
                let sent_to = sent_again_to.unwrap_or(repeat.psns.1);
                repeat.reply = Some((psn, p.number, sent_to));
            }
            if repeat.reply.is_some_and(|(first, ..)| first == psn) {
                repeat.same_replies += 1;
            }
            if psn == repeat.psns.1 {
                repeat.replies += 1;
            }
        }
        match op {
            Operation::Acknowledge => match p.ext.aeth {
                Some(aeth) => self.acknowledge(p, aeth, notes),
                None => (None, Mark::Stray),
            },
            Operation::AtomicAcknowledge => self.atomic(p, notes),
            _ => self.response(p, op, mtu, notes),
        }
    }

    /// Everything up to and including `psn` has arrived. Returns how many messages that completes,
    /// and the last one.
    fn complete_until(&mut self, psn: Psn, p: &Packet) -> (u32, Option<u64>) {
        let covers = |message: &Message| {
            !message.kind.has_answer() && message.last_psn().distance_from(psn) <= 0
        };
        if self.never_answered.as_deref().is_some_and(covers) {
            self.never_answered = None;
        }
        let mut done = Vec::new();
        // READs without an answer stay open; an acknowledgement does not look at them again and
        // again.
        let mut index = self.plain_from.max(self.open_from);
        let newest = self.live.len();
        while let Some(message) = self.live.get_mut(index) {
            if message.last_psn().distance_from(psn) > 0 {
                break;
            }
            // One whose LAST the capture lacks is acknowledged with those behind it.
            let whole = message.complete || index + 1 < newest;
            if message.is_open() && !message.kind.has_answer() {
                if !whole {
                    break;
                }
                done.push(index);
                message.timeouts = 0;
            }
            index += 1;
        }
        self.plain_from = index;
        let shared = done.len() as u32;
        for &index in &done {
            self.live[index].outcome = Outcome::Done {
                time: p.time_ns,
                number: p.number,
                shared,
            };
        }
        self.open = self.open.saturating_sub(u64::from(shared));
        self.advance();
        let last = done.last().map(|&index| self.live[index].id);
        (shared, last)
    }

    fn advance(&mut self) {
        while self
            .live
            .get(self.open_from)
            .is_some_and(|message| !message.is_open())
        {
            self.open_from += 1;
        }
    }

    fn acknowledge(&mut self, p: &Packet, aeth: Aeth, notes: &mut Notes) -> (Option<u64>, Mark) {
        let psn = p.bth.psn;
        let next = self.next.unwrap_or(psn);
        if !matches!(aeth.syndrome, Syndrome::Ack { .. }) {
            self.count_nak(aeth.syndrome);
        }
        self.look_elsewhere(p);
        if psn.distance_from(next) >= 0 && self.uncertain.is_none() {
            self.orphans.push(p);
            notes.add(
                p.number,
                |finding| matches!(finding.what, What::GhostAck { .. }),
                || Finding {
                    side: self.end,
                    time: p.time_ns,
                    packets: vec![p.number],
                    bad: Vec::new(),
                    what: What::GhostAck { psn },
                },
            );
            return (None, Mark::Orphan);
        }
        match aeth.syndrome {
            Syndrome::Ack { .. } => self.positive(p),
            Syndrome::RnrNak { timer } => self.rnr(p, rnr_timer_ns(timer), notes),
            Syndrome::Nak(NakCode::PsnSequenceError) => self.sequence_error(p, notes),
            Syndrome::Nak(code) => self.refuse(p, code),
            Syndrome::Reserved(syndrome) => {
                let what = What::OddSyndrome { syndrome };
                notes.at(self.end, p.time_ns, &[p.number], what);
                let id = self.find(psn).map(|index| self.live[index].id);
                (id, Mark::Stray)
            }
        }
    }

    /// Notes what the peer expects, if it is nothing that was sent.
    fn look_elsewhere(&mut self, p: &Packet) {
        let psn = p.bth.psn;
        let (expects, nak) = match p.ext.aeth.map(|aeth| aeth.syndrome) {
            Some(Syndrome::Ack { .. }) => (psn.next(), false),
            Some(Syndrome::Nak(NakCode::PsnSequenceError)) => (psn, true),
            _ => return,
        };
        let was_sent = match (self.began, self.next) {
            (Some(began), Some(next)) => {
                expects.distance_from(began) >= 0 && expects.distance_from(next) <= 0
            }
            _ => false,
        };
        if was_sent || self.uncertain.is_some() {
            return;
        }
        let known = self.elsewhere.get_or_insert(Elsewhere {
            expects,
            same: true,
            count: 0,
            naks: 0,
            first: (p.time_ns, p.number),
        });
        known.same &= known.expects == expects;
        known.count += 1;
        known.naks += u64::from(nak);
    }

    fn count_nak(&mut self, syndrome: Syndrome) {
        let naks = &mut self.side.naks;
        match naks.iter_mut().find(|(known, _)| *known == syndrome) {
            Some((_, count)) => *count += 1,
            None => naks.push((syndrome, 1)),
        }
    }

    fn positive(&mut self, p: &Packet) -> (Option<u64>, Mark) {
        let psn = p.bth.psn;
        let (completes, last) = self.complete_until(psn, p);
        if completes > 0 {
            self.side.acks.0 += 1;
            self.side.acks.1 += u64::from(completes);
            (self.nak, self.rnr, self.rnr_psn) = (None, None, None);
            return (last, Mark::Ack { completes });
        }
        let covering = self.find(psn);
        let id = covering.map(|index| self.live[index].id);
        if let Some(message) = covering.and_then(|index| self.live.get_mut(index))
            && message.is_open()
        {
            message.timeouts = 0;
            self.side.partial_acks += 1;
            return (id, Mark::Ack { completes: 0 });
        }
        self.side.duplicate_acks += 1;
        (id, Mark::DuplicateAck)
    }

    fn rnr(&mut self, p: &Packet, timer_ns: u64, notes: &mut Notes) -> (Option<u64>, Mark) {
        let psn = p.bth.psn;
        self.complete_until(psn.prev(), p);
        self.rnr = Some((psn, p.number, p.time_ns, timer_ns));
        self.rnr_psn = Some(psn);
        self.nak = None;
        let mark = Mark::Rnr { timer_ns };
        let Some(index) = self.find(psn) else {
            return (None, mark);
        };
        let message = &mut self.live[index];
        message.rnr_naks += 1;
        message.timeouts = 0;
        let id = message.id;
        let make = || Finding {
            side: self.end,
            time: p.time_ns,
            packets: vec![p.number],
            bad: Vec::new(),
            what: What::Rnr {
                message: id,
                timer_ns,
                times: 1,
            },
        };
        let end = self.end;
        let same = |finding: &mut Finding| match &mut finding.what {
            What::Rnr { message, times, .. } if *message == id && finding.side == end => {
                *times += 1;
                true
            }
            _ => false,
        };
        notes.add(p.number, same, make);
        (Some(id), mark)
    }

    fn sequence_error(&mut self, p: &Packet, notes: &mut Notes) -> (Option<u64>, Mark) {
        let psn = p.bth.psn;
        self.complete_until(psn.prev(), p);
        self.nak = Some((psn, p.number, p.time_ns));
        let id = self.find(psn).map(|index| self.live[index].id);
        if let Some(message) = self.find(psn).and_then(|index| self.live.get_mut(index)) {
            message.timeouts = 0;
        }
        let mut packets = vec![p.number];
        let what = if self.rnr_psn == Some(psn) {
            What::NakAfterRnr { psn }
        } else {
            let sent = self.packet_of(psn);
            packets.splice(0..0, sent);
            What::Lost { psn, sent }
        };
        notes.at(self.end, p.time_ns, &packets, what);
        let code = NakCode::PsnSequenceError;
        (id, Mark::Nak { code })
    }

    /// The finding is made when the message is put away: more of it may come behind the NAK.
    fn refuse(&mut self, p: &Packet, code: NakCode) -> (Option<u64>, Mark) {
        let psn = p.bth.psn;
        self.complete_until(psn.prev(), p);
        let mark = Mark::Nak { code };
        let Some(index) = self.find(psn) else {
            return (None, mark);
        };
        let message = &mut self.live[index];
        let id = message.id;
        if message.is_open() {
            self.open = self.open.saturating_sub(1);
            if message.kind.has_answer() {
                self.open_reads = self.open_reads.saturating_sub(1);
            }
            message.outcome = Outcome::Refused {
                time: p.time_ns,
                number: p.number,
                code,
            };
            self.refused = true;
            self.advance();
        }
        (Some(id), mark)
    }

    fn atomic(&mut self, p: &Packet, _notes: &mut Notes) -> (Option<u64>, Mark) {
        let psn = p.bth.psn;
        self.complete_until(psn.prev(), p);
        let Some(index) = self.find(psn) else {
            self.orphans.push(p);
            return (None, Mark::Orphan);
        };
        let message = &mut self.live[index];
        let id = message.id;
        message.original = p.ext.atomic_ack.map(|ack| ack.original);
        if !message.is_open() {
            self.side.duplicate_responses += 1;
            return (Some(id), Mark::DuplicateResponse);
        }
        self.finish_answer(index, p);
        (Some(id), Mark::AtomicAnswer)
    }

    fn finish_answer(&mut self, index: usize, p: &Packet) {
        let message = &mut self.live[index];
        message.timeouts = 0;
        message.outcome = Outcome::Done {
            time: p.time_ns,
            number: p.number,
            shared: 1,
        };
        self.open = self.open.saturating_sub(1);
        self.open_reads = self.open_reads.saturating_sub(1);
        self.advance();
    }

    fn response(
        &mut self,
        p: &Packet,
        op: Operation,
        mtu: &mut Mtu,
        notes: &mut Notes,
    ) -> (Option<u64>, Mark) {
        let psn = p.bth.psn;
        let full = matches!(
            op,
            Operation::ReadResponseFirst | Operation::ReadResponseMiddle
        );
        if full && is_mtu(p.payload_len) {
            self.full_answer.get_or_insert(FullPacket::of(p));
            mtu.get_or_insert((p.payload_len, MtuSource::Payload));
        }
        if let (Some(len), Some((mtu, _))) = (self.uncertain, *mtu)
            && let Some(last) = self.live.back_mut()
        {
            last.span = read_span(len, mtu);
            self.next = Some(last.last_psn().next());
            self.uncertain = None;
        }
        if self.find(psn).is_none() && self.could_be_last_read(psn) {
            let last = self.live.len() - 1;
            let message = &mut self.live[last];
            message.span = psn.distance_from(message.psn).max(0) as u32 + 1;
            self.next = Some(message.last_psn().next());
        }
        let Some(index) = self.find(psn) else {
            self.orphans.push(p);
            return (None, Mark::Orphan);
        };
        if !self.live[index].kind.has_answer() {
            self.orphans.push(p);
            return (Some(self.live[index].id), Mark::Stray);
        }
        let first = self.live[index].psn;
        self.complete_until(first.prev(), p);
        let message = &mut self.live[index];
        let id = message.id;
        let at = psn.distance_from(first).max(0) as u32;
        message.first_answer.get_or_insert(p.time_ns);
        if at == 0 {
            message.first_response.get_or_insert(p.number);
        }
        message.timeouts = 0;
        if !message.is_open() || at < message.answered {
            self.side.duplicate_responses += 1;
            return (Some(id), Mark::DuplicateResponse);
        }
        if self.read_again == Some((id, at)) {
            self.read_again = None;
            let whole = matches!(
                op,
                Operation::ReadResponseFirst | Operation::ReadResponseOnly
            );
            if !whole {
                let what = What::MiddleAnswer { message: id };
                notes.at(self.end, p.time_ns, &[p.number], what);
            }
        }
        let missing = at - message.answered;
        if missing > 0 {
            message.answer_gap = true;
            self.missing_response = Some((p.number, p.time_ns));
            let what = What::ResponseGap {
                psn: first.add(message.answered),
                count: missing,
            };
            notes.at(self.end, p.time_ns, &[p.number], what);
        }
        message.answered = at + 1;
        message.answered_bytes += u64::from(p.payload_len);
        message.last_response = Some(p.number);
        let last = matches!(
            op,
            Operation::ReadResponseLast | Operation::ReadResponseOnly
        );
        if last && !message.answer_gap {
            self.finish_answer(index, p);
        }
        let index = at + 1;
        let mark = match missing {
            0 => Mark::Response { index },
            missing => Mark::ResponseAfterGap { index, missing },
        };
        (Some(id), mark)
    }
}
