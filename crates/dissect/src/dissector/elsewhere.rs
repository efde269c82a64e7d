//! Answers that fit no request by their PSNs, since the two sides count from different ones.

use std::collections::HashMap;
use std::net::IpAddr;

use super::Dissector;
use crate::model::Pairing;
use crate::tracker::Elsewhere;

/// What there is between two addresses in one direction: conversations of requests that had no answer,
/// and of answers that had no requests.
#[derive(Default)]
struct Lonely {
    requests: Vec<usize>,
    answers: Vec<usize>,
}

impl Dissector {
    /// Puts answers that name what was never sent to the only requests that they can be of.
    pub(crate) fn join_elsewhere(&mut self) {
        let mut lonely: HashMap<(IpAddr, IpAddr, u8), Lonely> = HashMap::new();
        for (index, live) in self.live.iter().enumerate() {
            if live.is_paired() || live.merged.is_some() {
                continue;
            }
            let (src, dst) = (live.ends[0].addr, live.ends[1].addr);
            let service = live.service.code();
            let [requests, answers] = [&live.trackers[0], &live.trackers[1]];
            if requests.began.is_some() && answers.answers == 0 {
                let of = lonely.entry((src, dst, service)).or_default();
                of.requests.push(index);
            } else if requests.began.is_none() && answers.answers > 0 {
                let of = lonely.entry((dst, src, service)).or_default();
                of.answers.push(index);
            }
        }
        for Lonely { requests, answers } in lonely.into_values() {
            let ([of], [by]) = (&requests[..], &answers[..]) else {
                continue;
            };
            let told = self.live[*by].trackers[1].elsewhere;
            let later = self.live[*by].time.0 >= self.live[*of].time.0;
            if later && told.as_ref().is_some_and(Elsewhere::is_certain) {
                self.join(*of, *by);
            }
        }
    }

    /// The answers of conversation `by` belong to the requests of conversation `of`.
    fn join(&mut self, of: usize, by: usize) {
        let gone = &mut self.live[by];
        gone.merged = Some((of, true));
        let (qpn, port) = (gone.ends[1].qpn, gone.ends[0].src_port);
        let (packets, numbers, time) = (gone.packets[0], gone.numbers, gone.time.1);
        let (elsewhere, answers) = (gone.trackers[1].elsewhere, gone.trackers[1].answers);
        let naks = std::mem::take(&mut gone.trackers[1].side.naks);
        let ecn = std::mem::take(&mut gone.ecn_marked);
        let live = &mut self.live[of];
        live.pairing = Pairing::Inferred {
            request: live.numbers.0,
            answer: numbers.0,
            others: 0,
        };
        live.ends[0].qpn = qpn;
        live.ends[1].src_port = port;
        live.packets[1] += packets;
        live.numbers.1 = live.numbers.1.max(numbers.1);
        live.time.1 = live.time.1.max(time);
        live.ecn_marked.append(&ecn);
        let tracker = &mut live.trackers[0];
        tracker.elsewhere = elsewhere;
        tracker.answers = answers;
        tracker.side.naks = naks;
    }
}
