//! What is remembered while nothing moves on: evidence, should the retries run out.

use super::Requester;
use crate::rc::{MAX_MESSAGE, Shared};
use crate::{Evidence, SendFailed, Time};

/// After this long without a receive the peer is said to have none for good, and after this long a
/// stopped one to be stopped.
const NEVER_NS: u64 = 1_000_000_000;
/// The RNR retry count that means for ever.
const RNR_FOREVER: u8 = 7;

/// The oldest position got no (good) answer. Kept from the first retry that it costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    /// The position.
    at: u64,
    /// When it was first sent, as far as is known.
    since: Option<Time>,
    /// When a retry was last used up.
    last: Option<Time>,
    /// Retries used up.
    tries: u32,
    /// RNR NAKs, whether they cost a retry or not.
    rnr_naks: u32,
    /// Packets that had come before.
    received: u64,
    reported: bool,
    /// The peer was found stopped: silent since, and when it was looked at last.
    stopped: Option<(Time, Time)>,
    reported_stopped: bool,
}

impl Requester {
    /// The stall of the oldest position, begun if it is new.
    fn stalled(&mut self, since: Option<Time>, sh: &Shared) -> &mut Stall {
        let at = self.una.pos;
        let kept = self.stall.take().filter(|stall| stall.at == at);
        self.stall.insert(kept.unwrap_or(Stall {
            at,
            since,
            last: None,
            tries: 0,
            rnr_naks: 0,
            received: sh.counters.packets_received,
            reported: false,
            stopped: None,
            reported_stopped: false,
        }))
    }

    /// A retry is about to be used up at `now`; the packet left `ago_ns` before, if that is known.
    #[cold]
    pub(super) fn note_retry(&mut self, now: Option<Time>, ago_ns: u64, sh: &Shared) {
        let since = now.map(|now| Time(now.0.saturating_sub(ago_ns)));
        let stall = self.stalled(since, sh);
        stall.tries += 1;
        stall.last = now.or(stall.last);
    }

    /// An RNR NAK came; the evidence if it is time to say that no receive will ever be posted.
    #[cold]
    pub(super) fn note_rnr(&mut self, now: Time, sh: &Shared) -> Option<Evidence> {
        let stall = self.stalled(Some(now), sh);
        stall.rnr_naks += 1;
        stall.tries += 1;
        stall.last = Some(now);
        let waited_ns = now.0.saturating_sub(stall.since?.0);
        if stall.reported || sh.attr.rnr_retry != RNR_FOREVER || waited_ns < NEVER_NS {
            return None;
        }
        stall.reported = true;
        Some(Evidence::ReceiverNeverReady {
            naks: stall.rnr_naks,
            waited_ns,
        })
    }

    /// The peer, silent for `ago_ns`, is stopped; the evidence if it is time to say so.
    #[cold]
    pub(super) fn note_stopped(&mut self, now: Time, ago_ns: u64, sh: &Shared) -> Option<Evidence> {
        let silent_since = Time(now.0.saturating_sub(ago_ns));
        let stall = self.stalled(Some(silent_since), sh);
        let (since, _) = stall.stopped.unwrap_or((silent_since, now));
        stall.stopped = Some((since, now));
        let waited_ns = now.0.saturating_sub(since.0);
        if stall.reported_stopped || waited_ns < NEVER_NS {
            return None;
        }
        stall.reported_stopped = true;
        Some(Evidence::PeerStopped {
            waited_ns,
            srq: self.awaited_srq(sh),
        })
    }

    /// What there is to say of the oldest WQE, which fails.
    pub(crate) fn failure_evidence(&self, sh: &Shared) -> Option<Evidence> {
        let front = self.queue.front()?;
        let stall = self.stall.filter(|stall| stall.at == self.una.pos);
        let received_ever = sh.counters.packets_received;
        Some(Evidence::SendFailed(SendFailed {
            op: front.wqe.op,
            len: front.wqe.data.len(),
            longest: MAX_MESSAGE,
            psn: self.psn_of(self.una.pos),
            sent: front.started() && self.max.pos > front.start.pos,
            tries: stall.map_or(0, |stall| stall.tries),
            received: stall.map_or(0, |stall| received_ever - stall.received),
            received_ever,
            answered: self.una.pos > 0,
            start_psn: self.base,
            // Later it is an echo.
            peer_expects: self.peer_expects.filter(|_| self.una.pos == 0),
            waited_ns: stall
                .and_then(|stall| Some(stall.last?.0.saturating_sub(stall.since?.0)))
                .unwrap_or(0),
            stopped_ns: stall
                .and_then(|stall| stall.stopped)
                .map_or(0, |(since, last)| last.0.saturating_sub(since.0)),
            response: self.wrong_response,
        }))
    }
}

#[cfg(test)]
mod tests {
    use crate::rc::testing::*;
    use crate::{Evidence, SendFailed, Status};
    use rnic_wire::NakCode;

    fn failed(f: &mut Fixture) -> SendFailed {
        match f.bench.evidence[..] {
            [Evidence::SendFailed(failed)] => failed,
            ref other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_silent_peer() {
        let mut f = Fixture::new();
        f.post(WRITE, 600);
        f.post(WRITE, 10);
        f.poll();
        // The first packet arrives: from there on everything is lost.
        f.feed_ack(sq(0));
        let begun = f.now;
        while f.sends().is_empty() {
            f.fire_ack_timeout();
            f.poll();
        }
        let waited = f.now.0 - begun.0;
        let failed = failed(&mut f);
        assert_eq!((failed.op, failed.len), (WRITE, 600));
        assert_eq!(failed.psn.value(), sq(1), "the oldest without an answer");
        assert!(failed.sent);
        assert_eq!(failed.tries, 4, "once, and three retries");
        assert_eq!((failed.received, failed.received_ever), (0, 1));
        assert_eq!(failed.waited_ns, waited);
    }

    #[test]
    fn a_peer_that_goes_on_asking() {
        let mut f = Fixture::new();
        f.post(WRITE, 10);
        for _ in 0..4 {
            f.poll();
            f.feed_nak(sq(0), NakCode::PsnSequenceError);
        }
        let failed = failed(&mut f);
        assert_eq!(failed.tries, 4);
        assert_eq!(failed.received, 3, "since the first retry");
    }

    /// A peer that expects another first PSN asks for it, or acknowledges the one before it.
    #[test]
    fn a_peer_that_began_elsewhere() {
        for (before, answer) in [(true, sq(0) - 0x20), (false, sq(0) + 0x1000)] {
            let answer = rnic_wire::Psn::new(answer).value();
            let mut f = Fixture::new();
            f.post(WRITE, 10);
            f.poll();
            while f.sends().is_empty() {
                match before {
                    true => f.feed_nak(answer, NakCode::PsnSequenceError),
                    false => f.feed_ack(rnic_wire::Psn::new(answer).prev().value()),
                }
                f.fire_ack_timeout();
                f.poll();
            }
            let failed = failed(&mut f);
            assert!(!failed.answered && failed.received_ever > 0);
            assert_eq!(failed.start_psn.value(), sq(0));
            assert_eq!(failed.peer_expects.map(rnic_wire::Psn::value), Some(answer));
        }
    }

    /// An echo of what was acknowledged before says nothing of the start.
    #[test]
    fn an_echo_is_no_other_start() {
        let mut f = Fixture::new();
        f.post(WRITE, 10);
        f.poll();
        f.feed_ack(sq(0));
        assert_eq!(f.sends(), [(0, Status::Success)]);
        f.post(WRITE, 10);
        f.poll();
        while f.sends().is_empty() {
            f.feed_nak(sq(0), NakCode::PsnSequenceError);
            f.fire_ack_timeout();
            f.poll();
        }
        let failed = failed(&mut f);
        assert!(failed.answered);
        assert_eq!(failed.peer_expects, None);
    }

    #[test]
    fn a_refusal_needs_no_retry() {
        let mut f = Fixture::new();
        f.post(WRITE, 10);
        f.poll();
        f.feed_nak(sq(0), NakCode::RemoteAccessError);
        assert_eq!(f.sends(), [(0, Status::RemoteAccessError)]);
        assert_eq!(f.rc.counters().access_naks_received, 1);
        let failed = failed(&mut f);
        assert_eq!((failed.tries, failed.waited_ns), (0, 0));
    }

    #[test]
    fn who_waits_for_ever_is_told_once() {
        let mut f = Fixture::with(crate::RcAttr {
            rnr_retry: 7,
            ..attr()
        });
        f.post(crate::SendOp::Send, 10);
        for round in 0..5 {
            f.poll();
            // 655 ms each.
            f.feed_syndrome(sq(0), rnic_wire::Syndrome::RnrNak { timer: 0 });
            f.fire_timer();
            assert_eq!(f.bench.evidence.len(), usize::from(round >= 2), "{round}");
        }
        let naks = 3;
        assert!(
            matches!(f.bench.evidence[0], Evidence::ReceiverNeverReady { naks: n, .. } if n == naks),
            "{:?}",
            f.bench.evidence
        );
    }

    #[test]
    fn a_request_that_never_left() {
        let mut f = Fixture::new();
        f.post_with(WRITE, 0, |wqe| {
            let bad = crate::Sge {
                lkey: LKEY + 1,
                ..sge(0, 600)
            };
            wqe.data = crate::SendData::Gather(crate::SgList::from_slice(&[bad]));
        });
        f.poll();
        assert!(!failed(&mut f).sent);
    }
}
