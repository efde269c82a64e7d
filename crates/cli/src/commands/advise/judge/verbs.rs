//! Programs that use verbs.

use super::{Advice, FEW, Judgement, Verdict, measurable, ping_pong};
use crate::commands::advise::evidence::Verbs;
use crate::commands::advise::rules;
use crate::commands::study::questions::Metric;
use crate::commands::study::setup::{Operation, Setup, Waiting};
use crate::text::count;
use crate::text::rate;

use super::sockets::bytes_words;

/// Inline data that every usual card takes.
const INLINE: u64 = 255;
/// Part of all requests from which on a habit counts.
const HABIT: f64 = 0.10;

/// How messages follow each other.
struct Shape {
    /// Requests wait for messages of the peer, or for their own completion.
    one_at_a_time: bool,
    /// The peer sends as many.
    both_ways: bool,
    operation: Operation,
    size: usize,
    waiting: Waiting,
}

fn shape(verbs: &Verbs) -> Shape {
    let requests = &verbs.requests;
    let counts = [
        (Operation::Send, requests.send.count()),
        (Operation::Write, requests.write.count()),
        (Operation::Read, requests.read.count()),
        (Operation::FetchAdd, requests.atomic.count()),
    ];
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    let operation = most.map_or(Operation::Send, |(operation, _)| operation);
    let both_ways = verbs.both_ways >= 0.5;
    let (completions, arms) = (verbs.polls, verbs.arms);
    Shape {
        one_at_a_time: verbs.mean_depth < 3.0 && (both_ways || verbs.deepest <= 2),
        both_ways,
        operation,
        size: match operation {
            Operation::FetchAdd => 8,
            _ => measurable(verbs.mean_size()),
        },
        waiting: match arms as f64 >= 0.2 * completions as f64 && arms > 0 {
            true => Waiting::Event,
            false => Waiting::Busy,
        },
    }
}

impl Shape {
    /// Each message waits for the one that answers it.
    fn is_ping_pong(&self) -> bool {
        self.one_at_a_time && self.both_ways
    }

    fn setup(&self, verbs: &Verbs) -> Setup {
        let mut setup = match (self.one_at_a_time, self.operation) {
            (true, Operation::Send | Operation::Write) if self.both_ways => {
                ping_pong(self.operation, self.size, self.waiting)
            }
            (true, operation) => Setup::one_by_one(operation, self.size),
            (false, operation) => {
                let depth = (verbs.mean_depth as usize).clamp(1, 128);
                let mut setup = Setup::stream(operation, self.size, depth);
                setup.signal_every = signal_every(verbs).min(depth.div_ceil(2)).max(1);
                setup.batch = batch(verbs).min(depth);
                setup
            }
        };
        setup.waiting = self.waiting;
        let requests = verbs.requests.count().max(1) as f64;
        setup.inline = verbs.inline as f64 / requests > 0.5 && self.size <= INLINE as usize + 1;
        if self.operation.is_atomic() {
            setup.inline = false;
        }
        setup
    }

    fn metric(&self) -> Metric {
        match (self.one_at_a_time, self.size) {
            (true, _) => Metric::Latency,
            (false, 0..16384) => Metric::Messages,
            (false, _) => Metric::Bytes,
        }
    }
}

fn signal_every(verbs: &Verbs) -> usize {
    let requests = verbs.requests.count().max(1) as f64;
    (requests / verbs.signaled.max(1) as f64)
        .round()
        .clamp(1.0, 128.0) as usize
}

fn batch(verbs: &Verbs) -> usize {
    let requests = verbs.requests.count().max(1) as f64;
    (requests / verbs.posts.max(1) as f64)
        .round()
        .clamp(1.0, 128.0) as usize
}

pub fn judge(verbs: &Verbs, seconds: f64) -> Judgement {
    let messages = verbs.messages();
    let requests = &verbs.requests;
    let served = verbs.served_sends.saturating_add(verbs.served_others);
    let counts = format!(
        "{} posted ({} SEND, {} WRITE, {} READ, {} atomic) and {} taken from the peer, {} on \
         average, in {seconds:.2} s",
        count(requests.count(), "request"),
        requests.send.count(),
        requests.write.count(),
        requests.read.count(),
        requests.atomic.count(),
        count(served, "message"),
        bytes_words(verbs.mean_size() as u64)
    );
    let bytes = verbs.requested_bytes.saturating_add(verbs.served_bytes);
    if messages < FEW && bytes < 16 << 20 {
        let why = format!("there were only {counts}");
        return Judgement::new(Verdict::Unknown, &rules::THIN, why);
    }
    let sends = requests.send.count().saturating_add(verbs.served_sends);
    let part = sends as f64 / messages.max(1) as f64;
    let (verdict, rule) = match part {
        0.9.. if shape(verbs).is_ping_pong() => (Verdict::TwoSided, &rules::ANSWERS),
        0.9.. => (Verdict::TwoSided, &rules::STREAM),
        // Some SENDs say what the WRITEs and READs are about.
        0.2..0.9 => (Verdict::Rpc, &rules::LOCKSTEP),
        _ => (Verdict::OneSided, &rules::ONE_SIDED),
    };
    let mut judgement = Judgement::new(verdict, rule, counts);
    if requests.count() > 0 {
        judgement.advice = advice(verbs, seconds);
        // Where each side answers, the peer's messages fill half of the time. They are in the trace
        // if both sides are.
        let apart = match verbs.processes {
            1 if verbs.both_ways >= 0.5 => 2,
            _ => 1,
        };
        let apart = requests.count().saturating_mul(apart);
        judgement.each = Some(verbs.seconds / apart as f64);
        judgement.size = verbs.mean_size();
    }
    judgement
}

fn advice(verbs: &Verbs, seconds: f64) -> Vec<Advice> {
    let shape = shape(verbs);
    let now = shape.setup(verbs);
    let metric = shape.metric();
    let requests = verbs.requests.count();
    let all_of_them = count(requests, "request");
    let mut all = Vec::new();
    let often = |part: u64| part as f64 >= HABIT * requests as f64 && part >= 100;

    let small =
        (verbs.requests.send.up_to(INLINE)).saturating_add(verbs.requests.write.up_to(INLINE));
    let outside = small.saturating_sub(verbs.inline);
    if often(outside) {
        let then = Setup {
            inline: true,
            ..now
        };
        let advice = Advice::new(
            "inline limit",
            &rules::INLINE,
            "send what has at most 256 B with IBV_SEND_INLINE",
            format!("{outside} of {all_of_them} are that short and not inline"),
        );
        all.push(match now.size <= INLINE as usize + 1 {
            true => advice.with(
                Setup {
                    inline: false,
                    ..now
                },
                then,
                metric,
            ),
            false => advice,
        });
    }
    if !shape.one_at_a_time
        && verbs.mean_depth >= 4.0
        && verbs.signaled as f64 > 0.5 * requests as f64
    {
        let half = (verbs.max_send_wr / 2).clamp(2, 64) as usize;
        let every = half.min(now.depth.div_ceil(2)).max(2);
        let then = Setup {
            signal_every: every.min(now.depth),
            ..now
        };
        all.push(
            Advice::new(
                "signal interval",
                &rules::SIGNAL,
                format!("signal one request in {half}"),
                format!(
                    "{} of {all_of_them} are signaled, in a send queue of {}",
                    verbs.signaled, verbs.max_send_wr
                ),
            )
            .with(now, then, metric),
        );
    }
    waiting(verbs, seconds, &shape, now, &mut all);
    if !shape.one_at_a_time
        && verbs.mean_depth >= 8.0
        && batch(verbs) < 2
        && now.size <= 4096
        && !now.operation.is_atomic()
    {
        let then = Setup {
            batch: now.depth.min(16),
            ..now
        };
        all.push(
            Advice::new(
                "post lists",
                &rules::BATCH,
                "post lists of 16 requests",
                format!(
                    "{} in {}",
                    count(requests, "request"),
                    count(verbs.posts, "post")
                ),
            )
            .with(now, then, metric),
        );
    }
    // One after the other, and no message of the peer's to wait for.
    if verbs.deepest <= 2 && !shape.both_ways && requests >= 1000 {
        let stream = |depth| {
            let mut setup = Setup::stream(now.operation, now.size, depth);
            setup.inline = now.inline;
            setup
        };
        all.push(
            Advice::new(
                "depth",
                &rules::DEPTH,
                "keep 16 requests under way, unless each needs the result of the one before",
                format!("at most {} at once, {requests} in all", verbs.deepest),
            )
            .with(
                stream(1),
                stream(16),
                if now.size < 16384 {
                    Metric::Messages
                } else {
                    Metric::Bytes
                },
            ),
        );
    }
    // A message that waits for another one hardly notices a few headers.
    let split = (1..4096).contains(&verbs.path_mtu) && verbs.mean_size() > verbs.path_mtu as f64;
    if split && !shape.one_at_a_time {
        let before = Setup {
            path_mtu: Some(verbs.path_mtu as usize),
            ..now
        };
        let then = Setup {
            path_mtu: Some(4096),
            ..now
        };
        all.push(
            Advice::new(
                "path MTU",
                &rules::MTU,
                "set path_mtu to 4096 on both sides, if the network allows it",
                format!(
                    "path MTU of {}, {} a message",
                    verbs.path_mtu,
                    bytes_words(verbs.mean_size() as u64)
                ),
            )
            .with(before, then, Metric::Bytes),
        );
    }
    if verbs.registrations >= 100 && verbs.registrations as f64 >= 0.05 * verbs.messages() as f64 {
        let size = measurable(verbs.registered_bytes as f64 / verbs.registrations as f64);
        let mut before = Setup::one_by_one(now.operation, now.size.min(size));
        before.register_each = true;
        let after = Setup {
            register_each: false,
            ..before
        };
        all.push(
            Advice::new(
                "pool",
                &rules::POOL,
                "register a pool once, and take buffers from it",
                format!(
                    "{} for {}",
                    count(verbs.registrations, "registration"),
                    count(verbs.messages(), "message")
                ),
            )
            .with(before, after, Metric::Latency),
        );
    }
    let live = verbs.registrations.saturating_sub(verbs.deregistrations);
    if live.max(verbs.registrations - live) > 100 && live > 100 {
        all.push(Advice::new(
            "regions",
            &rules::REGIONS,
            "one large region",
            count(live, "region"),
        ));
    }
    if verbs.queue_pairs > 64 {
        let over = |queue_pairs| Setup {
            queue_pairs,
            inline: now.inline,
            ..Setup::stream(now.operation, now.size, 128)
        };
        let (before, after) = (over((verbs.queue_pairs as usize).min(256)), over(64));
        let advice = Advice::new(
            "queue pairs",
            &rules::QPS,
            "fewer queue pairs: UD, XRC, or threads that share them by a queue",
            count(verbs.queue_pairs, "queue pair"),
        );
        all.push(match metric {
            Metric::Latency => advice,
            _ => advice.with(before, after, metric),
        });
    }
    if verbs.queue_pairs >= 16 && verbs.sharing == 0 && verbs.served_sends > 0 {
        all.push(Advice::new(
            "shared receives",
            &rules::SRQ,
            "one shared receive queue (SRQ)",
            format!(
                "{} with receives of their own",
                count(verbs.queue_pairs, "queue pair")
            ),
        ));
    }
    let atomics = verbs.requests.atomic.count();
    if often(atomics) && atomics >= 1000 {
        all.push(Advice::new(
            "atomics",
            &rules::ATOMICS,
            "have one thread do it and answer by SEND, or take ranges at once",
            format!("{atomics} of {all_of_them}"),
        ));
    }
    if verbs.rnr_naks > 10 && verbs.rnr_naks as f64 > 0.001 * verbs.messages() as f64 {
        all.push(Advice::new(
            "receives",
            &rules::RNR,
            "post more receives, earlier",
            format!(
                "{} in {}",
                count(verbs.rnr_naks, "RNR NAK"),
                count(verbs.messages(), "message")
            ),
        ));
    }
    all
}

/// Polling against events.
fn waiting(verbs: &Verbs, seconds: f64, shape: &Shape, now: Setup, all: &mut Vec<Advice>) {
    let per_second = verbs.messages() as f64 / seconds.max(1e-6);
    if shape.waiting == Waiting::Event && shape.one_at_a_time && per_second > 1000.0 {
        let mut advice = Advice::new(
            "waiting",
            &rules::POLL,
            "poll the completion queue for a while before the thread sleeps",
            format!(
                "{} armed for {} of completions",
                count(verbs.arms, "time"),
                count(verbs.polls, "poll")
            ),
        );
        let then = Setup {
            waiting: Waiting::Busy,
            ..now
        };
        advice = advice.with(now, then, Metric::Latency);
        advice.by_itself = Some((rnic_settings::WAIT.name, "spin"));
        all.push(advice);
    }
    let vain = verbs.polls_in_vain as f64 / verbs.polls.max(1) as f64;
    if shape.waiting == Waiting::Busy && per_second < 1000.0 && vain > 1000.0 {
        all.push(Advice::new(
            "waiting",
            &rules::POLL,
            "sleep for events: a core is free then, and nothing is slower to speak of",
            format!(
                "{} of messages, {} polls in vain for each that found something",
                rate(per_second),
                vain as u64
            ),
        ));
    }
}
