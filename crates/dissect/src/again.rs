//! Requests whose PSN lies behind others: overtaken ones, and those that are sent again, with the
//! reason why.

use rnic_wire::{Operation, Psn};

use crate::finding::What;
use crate::gaps::Gap;
use crate::kind::Kind;
use crate::model::{Cause, Mark, Outcome, Repeat};
use crate::notes::Notes;
use crate::packet::Packet;
use crate::tracker::{Mtu, Tracker};

/// A PSN behind a gap that comes within so many packets and nanoseconds was only overtaken.
const REORDER_PACKETS: u64 = 128;
const REORDER_NS: u64 = 4_000_000;

/// No timer runs out sooner: a queue pair's may be set to 8 us, but nobody does.
const SHORTEST_TIMEOUT_NS: u64 = 1_000_000;
/// Retransmissions that are kept.
const REPEATS: usize = 10_000;

impl Tracker {
    /// A PSN that had been missing in `gap`.
    pub fn fill(
        &mut self,
        p: &Packet,
        op: Operation,
        gap: &Gap,
        mtu: &Mtu,
        notes: &mut Notes,
    ) -> (Option<u64>, Mark) {
        let psn = p.bth.psn;
        let asked = self.nak.is_some_and(|(_, _, time)| time >= gap.time);
        let goes_on = self.repeat_next == Some(psn) && self.repeat.is_some();
        let behind = self.side.request_packets - gap.position + 1;
        let soon = behind <= REORDER_PACKETS && p.time_ns.saturating_sub(gap.time) < REORDER_NS;
        let overtaken = soon && !asked && !goes_on;
        if !gap.told {
            let what = if overtaken {
                What::Reordered {
                    psn,
                    behind: behind as u32,
                }
            } else {
                What::Gap {
                    psn: gap.from,
                    count: gap.count,
                    came: true,
                }
            };
            notes.at(self.end, p.time_ns, &[gap.number, p.number], what);
        }
        self.side.missing_packets = self.side.missing_packets.saturating_sub(1);
        self.side.request_packets += 1;
        let kind = Kind::of(p.bth.opcode);
        let place = self.begun_by(psn);
        let before = place.checked_sub(1);
        let index = match before {
            Some(index) if self.live[index].covers(psn) => {
                let message = &mut self.live[index];
                message.missing = message.missing.saturating_sub(1);
                self.part(index, p, op, mtu)
            }
            Some(index)
                if (op.is_middle() || op.is_last())
                    && !self.live[index].complete
                    && kind.continues(self.live[index].kind)
                    && self.live[index].last_psn().next() == psn =>
            {
                self.live[index].span += 1;
                index
            }
            _ => {
                let headless = op.is_middle() || op.is_last();
                let message = self.begin(p, headless, mtu);
                // Only the last message's span can be uncertain.
                if place < self.live.len() {
                    self.uncertain = None;
                }
                self.live.insert(place, Box::new(message));
                self.open_from = self.open_from.min(place);
                self.plain_from = self.plain_from.min(place);
                self.join_next(place, op);
                place
            }
        };
        // A message that began without its FIRST gets it.
        self.add_packet(index, p, op, notes);
        let message = &self.live[index];
        let (id, at) = (message.id, psn.distance_from(message.psn).max(0) as u32 + 1);
        if overtaken {
            self.side.reordered += 1;
            return (Some(id), Mark::Reordered { index: at });
        }
        let waited_since = message.begun.0.min(gap.time);
        let span = if message.kind.has_answer() {
            message.span
        } else {
            1
        };
        let cause = self.repeat_goes_on(p, psn, span, waited_since, None);
        self.live[index].repeated += u32::from(cause != Cause::Early);
        (Some(id), Mark::Repeated { index: at, cause })
    }

    /// A packet that had been missing within a message says whether that is one: the LAST of a
    /// message and the FIRST of the next were lost together. Gives the index of the packet's
    /// message.
    fn part(&mut self, mut index: usize, p: &Packet, op: Operation, mtu: &Mtu) -> usize {
        let psn = p.bth.psn;
        let Some((mtu, _)) = *mtu else { return index };
        if self.live[index].kind.has_answer() {
            return index;
        }
        if op.is_first() || op.is_only() {
            if psn != self.live[index].psn {
                self.split(index, psn, psn, mtu);
                index += 1;
            }
            let message = &mut self.live[index];
            message.headless = false;
            message.remote = p.ext.reth.map(|reth| (reth.va, reth.rkey, reth.dma_len));
        }
        if (op.is_last() || op.is_only()) && psn != self.live[index].last_psn() {
            self.split(index, psn.next(), psn, mtu);
        }
        index
    }

    /// What was taken for one message is two, the second from `at` on. The packet with `now` does
    /// not count yet.
    fn split(&mut self, index: usize, at: Psn, now: Psn, mtu: u32) {
        let first = &mut self.live[index];
        let len = at.distance_from(first.psn).max(1) as u32;
        let missing = self.gaps.between(first.psn, len).min(first.missing);
        let not_yet = u32::from(now.is_before(at));
        let seen = len.saturating_sub(missing + not_yet).min(first.packets);
        let bytes = (u64::from(seen) * u64::from(mtu)).min(first.bytes);
        self.side.message_count += 1;
        let mut rest = first.clone();
        rest.id = self.side.message_count;
        rest.psn = at;
        rest.span = first.span.saturating_sub(len).max(1);
        rest.missing -= missing;
        rest.packets -= seen;
        rest.bytes -= bytes;
        rest.repeated = 0;
        rest.headless = true;
        rest.remote = None;
        rest.begun = rest.sent;
        if first.is_open() {
            self.open += 1;
        } else if matches!(first.outcome, Outcome::Refused { .. }) {
            // One NAK refuses one message; those behind it have no answer.
            rest.outcome = Outcome::Open;
            self.open += 1;
        }
        first.span = len;
        first.missing = missing;
        first.packets = seen;
        first.bytes = bytes;
        first.complete = false;
        self.live.insert(index + 1, rest);
        self.open_from = self.open_from.min(index);
        self.plain_from = self.plain_from.min(index);
    }

    /// A FIRST that fills the gap right before packets of its message which had begun one without
    /// it.
    fn join_next(&mut self, place: usize, op: Operation) {
        if !op.is_first() || place + 1 >= self.live.len() {
            return;
        }
        let first = &self.live[place];
        let rest = &self.live[place + 1];
        if !(rest.headless
            && rest.kind.continues(first.kind)
            && first.last_psn().next() == rest.psn)
        {
            return;
        }
        let Some(rest) = self.live.remove(place + 1) else {
            return;
        };
        self.open = self.open.saturating_sub(1);
        self.side.message_count = self.side.message_count.saturating_sub(1);
        let first = &mut self.live[place];
        first.id = rest.id;
        first.kind = rest.kind;
        first.span += rest.span;
        first.bytes += rest.bytes;
        first.packets += rest.packets;
        first.missing += rest.missing;
        first.complete = rest.complete;
        first.imm = rest.imm;
        first.invalidate = rest.invalidate;
        first.solicited = rest.solicited;
        first.outcome = rest.outcome;
        first.begun = rest.begun.min(first.begun);
        first.sent = rest.sent;
    }

    /// A PSN that has been seen.
    pub fn again(
        &mut self,
        p: &Packet,
        op: Operation,
        mtu: &Mtu,
        notes: &mut Notes,
    ) -> (Option<u64>, Mark) {
        let psn = p.bth.psn;
        if self.contradicts(p, op) {
            let from = self.next.unwrap_or(psn);
            let what = What::Restart { from, to: psn };
            notes.at(self.end, p.time_ns, &[p.number], what);
            self.restart(notes);
            self.next = Some(psn);
            return self.fresh(p, op, 0, mtu, notes);
        }
        let Some(index) = self.find(psn) else {
            // Of a message that began before the capture, or that was put away long ago.
            let cause = self.repeat_goes_on(p, psn, 1, self.last_time, None);
            return (None, Mark::Repeated { index: 1, cause });
        };
        let message = &mut self.live[index];
        let id = message.id;
        let at = psn.distance_from(message.psn).max(0) as u32;
        let before = message.last_sent;
        message.last_sent = (p.time_ns, p.number);
        let acknowledged_by = match message.outcome {
            Outcome::Done { number, .. } => Some(number),
            _ => None,
        };
        // Asked for again from its start although responses had come: like one from its middle, the
        // first one was lost.
        let restarts = at == 0 && message.span > 1 && message.first_answer.is_some();
        let rest_of_read = message.kind.has_answer() && (at > 0 || restarts);
        let mut span = 1;
        if message.kind.has_answer() {
            span = message.span.saturating_sub(at).max(1);
            let response = message.first_response.filter(|_| at == 0);
            let seen = message.answered > at && !message.answer_gap || response.is_some();
            if at > 0 {
                self.read_again = Some((id, at));
            }
            if rest_of_read {
                let numbers = [message.begun.1, p.number];
                let waited_ns = p.time_ns.saturating_sub(before.0);
                let what = What::ReadAgain {
                    message: id,
                    psn,
                    seen,
                    response,
                    waited_ns,
                };
                notes.at(self.end, p.time_ns, &numbers, what);
            }
            let message = &mut self.live[index];
            message.answered = at;
            message.answered_bytes = mtu.map_or(0, |(mtu, _)| u64::from(mtu) * u64::from(at));
            message.answer_gap = false;
        }
        debug_assert!(op.is_request());
        let goes_on = self.repeat_next == Some(psn);
        let cause = self.repeat_goes_on(p, psn, span, before.0, acknowledged_by);
        if let Some(repeat) = &mut self.repeat
            && repeat.packets == 1
        {
            repeat.rest_of_read = rest_of_read;
        }
        self.live[index].repeated += u32::from(cause != Cause::Early);
        // An answer is repeated for a duplicate of whatever cause; an ACK that A had not got is
        // awaited again.
        if let Some(number) = acknowledged_by
            && (self.live[index].kind.has_answer() || cause == Cause::Timeout)
        {
            self.reopen(index, number);
        }
        if cause == Cause::Timeout && !goes_on {
            self.live[index].timeouts += 1;
        }
        (
            Some(id),
            Mark::Repeated {
                index: at + 1,
                cause,
            },
        )
    }

    /// Packet `number` had answered a message, and its sender did not get it.
    fn reopen(&mut self, index: usize, number: u64) {
        let message = &mut self.live[index];
        message.outcome = Outcome::Open;
        message.answer_lost.get_or_insert(number);
        self.open += 1;
        self.open_from = self.open_from.min(index);
        if message.kind.has_answer() {
            self.open_reads += 1;
            return;
        }
        self.plain_from = self.plain_from.min(index);
        // Each message counts once as acknowledged, and an ACK if it is the one of any.
        let by_same = |index: usize| {
            self.live.get(index).is_some_and(
                |message| matches!(message.outcome, Outcome::Done { number: by, .. } if by == number),
            )
        };
        let (acks, completed) = &mut self.side.acks;
        *completed = completed.saturating_sub(1);
        if !by_same(index + 1) && !index.checked_sub(1).is_some_and(by_same) {
            *acks = acks.saturating_sub(1);
        }
    }

    /// Whether a packet with a PSN that has been seen cannot be the same packet again: another
    /// message begins there, so the queue pair has begun a new life.
    fn contradicts(&self, p: &Packet, op: Operation) -> bool {
        if !(op.is_first() || op.is_only()) {
            return false;
        }
        if self.refused {
            // In the error state nothing is sent.
            return true;
        }
        let Some(index) = self.find(p.bth.psn) else {
            return false;
        };
        let message = &self.live[index];
        let kind = Kind::of(p.bth.opcode);
        if !kind.continues(message.kind) {
            return true;
        }
        let whole = message.complete && !message.headless;
        !kind.has_answer() && whole && message.psn != p.bth.psn
    }

    /// Puts a packet to the retransmission under way, or begins one and says why.
    fn repeat_goes_on(
        &mut self,
        p: &Packet,
        psn: Psn,
        span: u32,
        sent_before: u64,
        acknowledged_by: Option<u64>,
    ) -> Cause {
        let bytes = u64::from(p.payload_len);
        // Over what is lost of it, too.
        let skipped = |next: Psn| {
            let soon = p.time_ns.saturating_sub(self.last_time) < SHORTEST_TIMEOUT_NS;
            psn == next || next.is_before(psn) && soon && self.nak.is_none() && self.rnr.is_none()
        };
        let follows = self.repeat_next.is_some_and(skipped);
        self.repeat_next = Some(psn.add(span));
        if follows && let Some(repeat) = &mut self.repeat {
            repeat.numbers.1 = p.number;
            repeat.psns.1 = psn;
            repeat.packets += 1;
            repeat.bytes += bytes;
            let cause = repeat.cause;
            self.count_repeated(cause, bytes);
            return cause;
        }
        let next = self.repeat_next;
        self.end_repeat();
        self.repeat_next = next;
        let (cause, waited_ns) = self.cause(p, psn, sent_before);
        self.side.repeat_count += u64::from(cause != Cause::Early);
        self.count_repeated(cause, bytes);
        self.repeat = Some(Repeat {
            cause,
            numbers: (p.number, p.number),
            time: p.time_ns,
            psns: (psn, psn),
            packets: 1,
            bytes,
            waited_ns,
            acknowledged_by,
            rest_of_read: false,
            reply: None,
            same_replies: 0,
            replies: 0,
        });
        cause
    }

    fn count_repeated(&mut self, cause: Cause, bytes: u64) {
        if cause == Cause::Early {
            self.side.doubled_packets += 1;
        } else {
            self.side.repeated_packets += 1;
            self.side.repeated_bytes += bytes;
        }
    }

    fn cause(&mut self, p: &Packet, psn: Psn, sent_before: u64) -> (Cause, u64) {
        let since = |time: u64| p.time_ns.saturating_sub(time);
        let same_message = |tracker: &Tracker, named: Psn| {
            named == psn
                || tracker
                    .find(named)
                    .is_some_and(|index| tracker.live[index].covers(psn))
        };
        let rnr = self.rnr.filter(|&(named, ..)| same_message(self, named));
        // What it asked for may have been lost again.
        let nak = self.nak.filter(|&(named, ..)| {
            let beyond = psn.distance_from(named);
            named == psn || beyond > 0 && self.gaps.between(named, beyond as u32) == beyond as u32
        });
        // Both after an RNR NAK in the middle of a message: the later one is obeyed if the timer
        // has not run out.
        if let Some((_, number, time, timer_ns)) = rnr
            && (nak.is_none() || since(time) >= timer_ns)
        {
            (self.rnr, self.nak) = (None, None);
            return (Cause::Rnr { number, timer_ns }, since(time));
        }
        if let Some((_, number, time)) = nak {
            self.nak = None;
            return (Cause::Nak { number }, since(time));
        }
        let waited = since(sent_before);
        if let Some((number, time)) = self.missing_response.take()
            && since(time) < waited / 2
        {
            return (Cause::MissingResponse { number }, since(time));
        }
        if waited < SHORTEST_TIMEOUT_NS {
            return (Cause::Early, waited);
        }
        (Cause::Timeout, waited)
    }

    pub fn end_repeat(&mut self) {
        self.repeat_next = None;
        if let Some(repeat) = self.repeat.take() {
            let all = match repeat.cause {
                Cause::Early => &mut self.doubled,
                _ => &mut self.side.repeats,
            };
            if all.len() < REPEATS {
                all.push(repeat);
            }
        }
    }
}
