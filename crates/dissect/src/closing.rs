//! What remains to be said of a send queue: when a message is put away, and at the end of the
//! capture.

use crate::finding::{PeerHad, What};
use crate::kind::Kind;
use crate::latency::Latencies;
use crate::model::{Cause, Message, Outcome, Repeat};
use crate::notes::{Notes, Numbers};
use crate::tracker::{Elsewhere, Tracker};

/// No requester is later than this with what it sends again, as long as nothing is known of its
/// timers.
const SLOW_NS: u64 = 50_000_000;

impl Tracker {
    /// Counts a message and keeps it if there is room. Nothing more of it comes, so what became of
    /// it is said now.
    pub fn put_away(&mut self, mut message: Message, notes: &mut Notes) {
        if self.unreliable && message.is_open() {
            let whole = message.complete && message.missing == 0 && !message.headless;
            message.outcome = match whole {
                true => Outcome::Sent,
                // The capture may have begun within the first one.
                false if message.headless && message.id == 1 => Outcome::Cut,
                false => Outcome::Lost,
            };
            if message.outcome == Outcome::Lost {
                let what = What::UcLost {
                    message: message.id,
                    missing: message.missing,
                };
                let packets = [message.begun.1, message.sent.1];
                notes.at(self.end, message.sent.0, &packets, what);
            }
        }
        if let Outcome::Refused { time, number, code } = message.outcome {
            let what = What::Refused {
                message: message.id,
                kind: message.kind,
                code,
                remote: message.remote,
                bytes: message.bytes,
            };
            notes.at(self.end, time, &[message.begun.1, number], what);
        }
        let last = match message.outcome {
            Outcome::Done { time, .. } => time,
            _ => message.sent.0,
        };
        let (from, to) = self.side.time.unwrap_or((message.begun.0, last));
        self.side.time = Some((from.min(message.begun.0), to.max(last)));
        let kind = message.kind;
        self.side.bytes += message.bytes;
        match self
            .side
            .kinds
            .iter_mut()
            .find(|(known, ..)| *known == kind)
        {
            Some((_, count, bytes)) => {
                *count += 1;
                *bytes += message.bytes;
            }
            None => self.side.kinds.push((kind, 1, message.bytes)),
        }
        if let Outcome::Done { time, .. } = message.outcome {
            let ns = time.saturating_sub(message.begun.0);
            latencies(&mut self.side.latencies, kind).push(ns);
        }
        if self.side.messages.len() < self.keep {
            self.side.messages.push(message);
        }
    }

    /// At the end of the capture.
    pub fn finish(&mut self, end_ns: u64, agreed: Agreed, notes: &mut Notes) {
        self.end_repeat();
        if self.captured_twice() {
            self.take_back_repeats(notes);
        }
        for gap in self.gaps.untold() {
            if !self.unreliable {
                let what = What::Gap {
                    psn: gap.from,
                    count: gap.count,
                    came: false,
                };
                notes.at(self.end, gap.time, &[gap.number], what);
            }
        }
        self.tell_doubled(notes);
        let apart = self.counts_from_elsewhere(end_ns, agreed, notes);
        for repeat in &self.side.repeats {
            if !apart && repeat.cause == Cause::Timeout && !repeat.rest_of_read {
                let what = What::Timeout {
                    psn: repeat.psns.0,
                    packets: repeat.packets,
                    last: repeat.numbers.1,
                    waited_ns: repeat.waited_ns,
                    acknowledged_by: repeat.acknowledged_by,
                    peer_had: peer_had(repeat),
                };
                notes.at(self.end, repeat.time, &[repeat.numbers.0], what);
            }
        }
        if !self.unreliable && !self.refused && !apart {
            self.tell_unanswered(end_ns, agreed, notes);
        }
        self.tell_under_way(end_ns, notes);
        while let Some(message) = self.live.pop_front() {
            self.put_away(*message, notes);
        }
    }

    /// Nothing was ever acknowledged, and the peer's answers say that it expects what was never sent:
    /// tells of that, instead of what it looks like.
    fn counts_from_elsewhere(&mut self, end_ns: u64, agreed: Agreed, notes: &mut Notes) -> bool {
        let certain = self.elsewhere.filter(Elsewhere::is_certain);
        let (Some(found), Some(began)) = (certain, self.began) else {
            return false;
        };
        let oldest = self.never_answered.iter().chain(&self.live);
        let Some(message) = oldest.into_iter().find(|message| message.is_open()) else {
            return false;
        };
        if self.side.acks.0 > 0 || self.unreliable || message.psn != began {
            return false;
        }
        let given_up = self.given_up(message, end_ns, agreed);
        let packets = [message.begun.1, found.first.1];
        let what = What::StartPsns {
            began,
            expects: found.expects,
            answers: found.count,
            given_up,
        };
        let end = self.end;
        notes.findings.retain(|finding| {
            let said = match finding.what {
                What::Lost { psn, .. } => psn == found.expects,
                What::GhostAck { psn } => psn.next() == found.expects,
                _ => false,
            };
            finding.side != end || !said
        });
        notes.at(end, message.begun.0, &packets, what);
        self.orphans = Numbers::default();
        true
    }

    /// The requests are in the file twice and their answers, too. One of these alone may be so when
    /// a whole window was sent again.
    fn captured_twice(&self) -> bool {
        self.requests_seen.nearly_all(16) && (self.unreliable || self.answers_seen.nearly_all(4))
    }

    /// What looked as if it had been sent again was captured again.
    fn take_back_repeats(&mut self, notes: &mut Notes) {
        let side = &mut self.side;
        self.doubled.append(&mut side.repeats);
        self.doubled.sort_by_key(|repeat| repeat.numbers.0);
        side.doubled_packets += side.repeated_packets;
        (
            side.repeat_count,
            side.repeated_packets,
            side.repeated_bytes,
        ) = (0, 0, 0);
        let live = self.live.iter_mut().map(|message| &mut **message);
        for message in side.messages.iter_mut().chain(live) {
            (message.repeated, message.timeouts) = (0, 0);
        }
        if let Some(message) = &mut self.never_answered {
            (message.repeated, message.timeouts) = (0, 0);
        }
        notes.findings.retain(|finding| {
            let of_repeats = matches!(
                finding.what,
                What::ReadAgain { .. } | What::MiddleAnswer { .. }
            );
            finding.side != self.end || !of_repeats
        });
    }

    /// An unreliable message whose end the capture does not have, with nothing behind it to show
    /// that it is missing.
    fn tell_under_way(&mut self, end_ns: u64, notes: &mut Notes) {
        let Some(last) = self.live.back_mut() else {
            return;
        };
        if !self.unreliable || last.complete || last.missing > 0 || last.headless && last.id > 1 {
            return;
        }
        last.outcome = Outcome::Cut;
        let what = What::EndsWithin {
            message: last.id,
            ns_to_end: end_ns.saturating_sub(last.sent.0),
        };
        let packets = [last.begun.1, last.sent.1];
        notes.at(self.end, last.sent.0, &packets, what);
    }

    /// What came twice at once: by the network, or nearly all of it, by the capture.
    fn tell_doubled(&self, notes: &mut Notes) {
        let (copies, of) = (self.side.doubled_packets, self.side.request_packets);
        let few = self.doubled.iter().take(8);
        let numbers: Vec<_> = few.map(|repeat| repeat.numbers.0).collect();
        if let Some(first) = self.doubled.first()
            && (self.captured_twice()
                || copies >= 4 && copies.saturating_mul(10) >= of.saturating_mul(9))
        {
            let what = What::CapturedTwice { copies, of };
            notes.at(self.end, first.time, &numbers, what);
            return;
        }
        for repeat in &self.doubled {
            let what = What::Early {
                psn: repeat.psns.0,
                packets: repeat.packets,
                waited_ns: repeat.waited_ns,
            };
            notes.at(self.end, repeat.time, &[repeat.numbers.0], what);
        }
    }

    /// The oldest message without an answer; those behind it wait for it.
    fn tell_unanswered(&mut self, end_ns: u64, agreed: Agreed, notes: &mut Notes) {
        let oldest = self.never_answered.iter().chain(&self.live);
        let Some(message) = oldest.into_iter().find(|message| message.is_open()) else {
            return;
        };
        let ever_answered = self.answers > 0;
        // The peer's last word was to wait, and it was not sent again since.
        let rnr = self.rnr.is_some_and(|(psn, _, time, _)| {
            let obeyed = self.side.repeats.last();
            message.covers(psn) && obeyed.is_none_or(|repeat| repeat.time < time)
        });
        let after_rnr = message.rnr_naks.saturating_sub(rnr.into());
        let times = message.timeouts.max(after_rnr) + 1;
        let span_ns = message.last_sent.0.saturating_sub(message.begun.0);
        let answered = message.first_answer.is_some() || message.answer_lost.is_some();
        // One timer alone, the first ACK's, says nothing: nobody knows how long it is.
        let waited = message.timeouts > 0 || rnr;
        let what = if waited && self.given_up(message, end_ns, agreed) {
            What::GaveUp {
                message: message.id,
                times,
                span_ns,
                rnr,
                ever_answered,
                answered,
            }
        } else {
            What::Unanswered {
                message: message.id,
                times,
                span_ns,
                ns_to_end: end_ns.saturating_sub(message.last_sent.0),
                rnr,
                ever_answered,
                answered,
            }
        };
        let mut packets = vec![message.begun.1];
        if message.last_sent.1 != message.begun.1 {
            packets.push(message.last_sent.1);
        }
        notes.at(self.end, message.last_sent.0, &packets, what);
    }

    /// Whether no further attempt, and no answer to the last one, is to be expected of a message
    /// that waited before: that the capture ends says nothing.
    fn given_up(&self, message: &Message, end_ns: u64, agreed: Agreed) -> bool {
        let told_to_wait = self.rnr.map_or((0, 0), |(_, _, time, ns)| (time, ns));
        let quiet_ns = end_ns.saturating_sub(message.last_sent.0.max(told_to_wait.0));
        let waits = self.side.repeats.iter().map(|repeat| repeat.waited_ns);
        // One that was never seen to send again may take longer than it was told.
        let longest_ns = waits.max().unwrap_or(SLOW_NS).max(told_to_wait.1);
        if quiet_ns / 2 > longest_ns {
            return true;
        }
        if message.timeouts == 0 {
            // 7 is for ever.
            let limit = agreed.rnr_retries.filter(|&limit| limit < 7);
            return limit.is_some_and(|n| message.rnr_naks > n.into());
        }
        let limit = agreed.retries;
        quiet_ns > longest_ns && limit.is_some_and(|n| message.timeouts >= n.into())
    }
}

/// What the connection manager's messages say of a send queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreed {
    /// READs and atomics that it may have under way.
    pub reads: Option<u8>,
    pub retries: Option<u8>,
    pub rnr_retries: Option<u8>,
}

fn latencies(all: &mut Vec<(Kind, Latencies)>, kind: Kind) -> &mut Latencies {
    let index = match all.iter().position(|(known, _)| *known == kind) {
        Some(index) => index,
        None => {
            all.push((kind, Latencies::default()));
            all.len() - 1
        }
    };
    &mut all[index].1
}

/// A responder acknowledges each duplicate it gets, so answers to a retransmission tell what it had
/// before.
fn peer_had(repeat: &Repeat) -> PeerHad {
    let Some((psn, reply, sent_to)) = repeat.reply else {
        return PeerHad::Unknown;
    };
    let last = repeat.psns.1;
    let beyond_sent = psn.distance_from(sent_to) > 0;
    let short = psn.distance_from(last) < 0;
    if beyond_sent && !short || (repeat.replies > 1 && repeat.packets > 1) {
        return PeerHad::All { reply };
    }
    if psn.distance_from(repeat.psns.0) < 0 {
        return PeerHad::Nothing { reply };
    }
    // An ACK that comes once, behind the repeated packet with its PSN, may be this packet's own.
    if short && (beyond_sent || repeat.same_replies > 1) {
        return PeerHad::UpTo { psn, reply };
    }
    PeerHad::Unknown
}
