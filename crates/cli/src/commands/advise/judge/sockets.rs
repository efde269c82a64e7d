//! Programs that use sockets.

use super::{Advice, FEW, Judgement, Move, Verdict, measurable};
use crate::commands::advise::evidence::{Evidence, Lane, Sockets};
use crate::commands::advise::rules;
use crate::text::count;
use crate::text::rate;

/// Below this share of the time, a faster network saves nothing to speak of.
const SHARE: f64 = 0.10;
/// Bytes of a turn from which on they are bulk.
const BULK_TURN: f64 = 65536.0;
/// Bytes of a call below which it is a message.
const BULK_CALL: f64 = 4096.0;
/// Share of all bytes that goes one way.
const ONE_WAY: f64 = 0.90;
/// Bytes that are no thin trace, however few calls they took.
const MUCH: u64 = 16 << 20;
/// A trace without news for so long says that the program waits for something else, s.
const LONG: f64 = 2.0;
/// Connections from which on requests are served by many.
const MANY: u64 = 8;

/// Lanes that reach other hosts.
fn network(sockets: &Sockets) -> [&Lane; 3] {
    [&sockets.asks, &sockets.serves, &sockets.datagrams]
}

/// The lane that tells most.
fn main_lane(sockets: &Sockets) -> &Lane {
    // Where both ends are in the trace, the asking one knows how long an answer takes.
    match sockets.asks.calls() * 2 >= sockets.serves.calls() {
        true => &sockets.asks,
        false => &sockets.serves,
    }
}

/// Microseconds from one turn on a connection to the next.
fn period_us(lane: &Lane) -> f64 {
    (lane.answer.mean() + lane.think.mean()) / 1e3
}

/// Seconds of a processor in calls. A receive may wait, so it counts at most as much as a send.
fn call_seconds(lane: &Lane) -> f64 {
    let send = lane.sent.seconds / lane.sent.calls.max(1) as f64;
    let receives = lane.received.seconds.min(send * lane.received.calls as f64);
    lane.sent.seconds + receives
}

/// What part of the time goes into the network: of a turn, or of a processor.
fn share(sockets: &Sockets, lane: &Lane, trip_us: f64, bulk: bool) -> f64 {
    let seconds = sockets.seconds.max(1e-6);
    let of_turn = match lane.trips() {
        0 => 0.0,
        _ => (trip_us / period_us(lane).max(trip_us)).min(1.0),
    };
    let in_calls = call_seconds(lane) / seconds;
    // Bulk that comes has receives that wait for bytes.
    let waits = if bulk { lane.seconds() / seconds } else { 0.0 };
    of_turn.max(in_calls.min(1.0)).max(waits.min(1.0))
}

/// One direction has nearly all bytes, and much at a time.
fn is_bulk(lane: &Lane) -> bool {
    let (out, back) = (&lane.sent, &lane.received);
    let larger = if out.bytes >= back.bytes { out } else { back };
    let turns = larger.turns.count().max(1) as f64;
    larger.bytes as f64 >= ONE_WAY * lane.bytes() as f64
        && larger.bytes as f64 / turns >= BULK_TURN
        && larger.bytes as f64 / larger.calls.max(1) as f64 >= BULK_CALL
}

/// Bytes of a turn: there, and back.
fn turn_sizes(lane: &Lane) -> (f64, f64) {
    let trips = lane.trips().max(1) as f64;
    (
        lane.sent.bytes as f64 / trips,
        lane.received.bytes as f64 / trips,
    )
}

/// Bytes of the messages by which a round trip of this program is measured.
pub fn trip_sizes(sockets: &Sockets) -> (usize, usize) {
    let (out, back) = turn_sizes(main_lane(sockets));
    (measurable(out), measurable(back))
}

fn percent(part: f64) -> String {
    match part * 100.0 {
        some if some < 1.0 => format!("{some:.2}%"),
        some => format!("{some:.0}%"),
    }
}

pub fn judge(evidence: &Evidence, trip_us: f64) -> Judgement {
    let sockets = &evidence.sockets;
    let calls: u64 = network(sockets)
        .iter()
        .fold(0, |sum, lane| sum.saturating_add(lane.calls()));
    if calls == 0 && sockets.stdio == 0 {
        return without_network(evidence);
    }
    if let Some(unseen) = unseen(sockets) {
        return Judgement::new(Verdict::Unknown, &rules::THIN, unseen);
    }
    if sockets.datagrams.calls() > calls / 2 && calls >= FEW {
        return datagrams(sockets);
    }
    let lane = main_lane(sockets);
    let bulk = is_bulk(lane);
    let share = share(sockets, lane, trip_us, bulk);
    let seconds = sockets.seconds.max(1e-6);
    let bytes = lane.bytes();
    let counts = format!(
        "{} and {} in {} s on {}",
        count(calls, "call"),
        bytes_words(bytes),
        round(seconds),
        count(lane.sockets, "connection")
    );
    let thin = calls < FEW && bytes < MUCH;
    if thin && (seconds < LONG || share >= SHARE) {
        let mut why = format!("there were only {counts}");
        if evidence.hidden_sockets {
            why += ", and sockets of which no call told";
        }
        return Judgement::new(Verdict::Unknown, &rules::THIN, why);
    }
    if share < SHARE {
        let most = 1.0 / (1.0 - share);
        return Judgement::new(
            Verdict::NoGain,
            &rules::SHARE,
            format!(
                "the network takes {} of the time ({counts}), so it could be {most:.2} times as fast \
                 at most",
                percent(share)
            ),
        );
    }
    let trips = lane.trips();
    if trips > 0 && lane.sockets as f64 >= 0.5 * trips as f64 && lane.sockets >= MANY {
        return Judgement::new(
            Verdict::NoGain,
            &rules::CONNECT,
            format!(
                "there are {} for {} there and back: keep connections first",
                count(lane.sockets, "connection"),
                count(trips, "trip")
            ),
        );
    }
    if bulk {
        return transfers(sockets, lane, &counts, share);
    }
    let larger = lane.sent.calls.max(lane.received.calls).max(1);
    if 2 * trips >= larger {
        return turns(sockets, lane, &counts, share);
    }
    let mut judgement = Judgement::new(
        Verdict::TwoSided,
        &rules::STREAM,
        format!(
            "messages do not wait for answers: {counts}, {}",
            count(trips, "turn")
        ),
    );
    judgement.leave = Some(calls_of(sockets, lane, larger));
    judgement.advice = parameters(sockets, lane);
    judgement
}

/// What the recorder knows that it did not see.
fn unseen(sockets: &Sockets) -> Option<String> {
    let connections = sockets.asks.sockets.saturating_add(sockets.serves.sockets);
    if sockets.stdio > 0 && sockets.stdio.saturating_mul(2) >= connections {
        return Some(format!(
            "stdio reads or writes {} (fdopen), by calls that the recorder does not see",
            count(sockets.stdio, "socket")
        ));
    }
    (sockets.uncounted > 0).then(|| {
        format!(
            "{} of {} that use sockets had no room in the trace",
            sockets.uncounted,
            count(sockets.processes, "process")
        )
    })
}

fn without_network(evidence: &Evidence) -> Judgement {
    let sockets = &evidence.sockets;
    if evidence.processes == 0 {
        return Judgement::new(
            Verdict::Unknown,
            &rules::THIN,
            "the recorder came into no process: the program is linked statically, or it clears its \
             environment",
        );
    }
    if evidence.hidden_sockets {
        return Judgement::new(
            Verdict::Unknown,
            &rules::THIN,
            "it has sockets and no call of the C library used them, so it makes system calls of its \
             own, as Go and io_uring do",
        );
    }
    if sockets.unix.calls() > 0 {
        return Judgement::new(
            Verdict::NoGain,
            &rules::HOST,
            format!(
                "all {} on sockets were on AF_UNIX sockets",
                count(sockets.unix.calls(), "call")
            ),
        );
    }
    if sockets.listens > 0 {
        return Judgement::new(
            Verdict::Unknown,
            &rules::THIN,
            "it waits for connections, and nobody came: run it with its clients",
        );
    }
    Judgement::new(
        Verdict::NoGain,
        &rules::SHARE,
        format!(
            "no socket carried anything in {} that ran for {} s",
            count(evidence.processes, "process"),
            round(evidence.seconds)
        ),
    )
}

fn datagrams(sockets: &Sockets) -> Judgement {
    let lane = &sockets.datagrams;
    let mut judgement = Judgement::new(
        Verdict::TwoSided,
        &rules::STREAM,
        format!(
            "{} on {} of datagrams",
            count(lane.calls(), "call"),
            count(lane.sockets, "socket")
        ),
    );
    judgement.leave = Some(calls_of(sockets, lane, lane.calls()));
    judgement.advice = vec![
        Advice::new(
            "queue pairs",
            &rules::QPS,
            "UD: one queue pair talks to all",
            count(lane.sockets, "socket"),
        )
        .begin(),
    ];
    judgement
}

fn transfers(sockets: &Sockets, lane: &Lane, counts: &str, share: f64) -> Judgement {
    let out = lane.sent.bytes >= lane.received.bytes;
    let flow = if out { &lane.sent } else { &lane.received };
    let mean = flow.bytes as f64 / flow.calls.max(1) as f64;
    let mut judgement = Judgement::new(
        Verdict::OneSided,
        &rules::BULK,
        format!(
            "{counts}, {} of the bytes one way, {} a turn",
            percent(flow.bytes as f64 / lane.bytes().max(1) as f64),
            bytes_words((flow.bytes as f64 / flow.turns.count().max(1) as f64) as u64)
        ),
    );
    judgement.leave = Some(Move::Bytes {
        share,
        size: measurable(mean.max(BULK_TURN)),
    });
    let way = match (out, std::ptr::eq(lane, &raw const sockets.asks)) {
        (true, _) => "WRITE into a ring of the peer's, with an immediate value at the end",
        (false, true) => "the peer WRITEs, or this side READs what the peer names",
        (false, false) => "READ what the client names, so that it need not push",
    };
    judgement.advice = vec![
        Advice::new("operation", &rules::ONE_SIDED, way, counts.to_owned()).begin(),
        Advice::new(
            "path MTU",
            &rules::MTU,
            "4096",
            format!("mean of {} a call", bytes_words(mean as u64)),
        )
        .begin(),
        Advice::new(
            "pool",
            &rules::POOL,
            format!("one region for at least {} under way", bytes_words(4 << 20)),
            bytes_words(flow.bytes),
        )
        .begin(),
    ];
    judgement
}

fn turns(sockets: &Sockets, lane: &Lane, counts: &str, share: f64) -> Judgement {
    let trips = lane.trips();
    let per_second = trips as f64 / sockets.seconds.max(1e-6);
    let open = sockets.most_open.max(1);
    let (out, back) = turn_sizes(lane);
    let rpc = open >= MANY;
    let shape = format!(
        "{} wait for their answer ({} on at most {}): {} there, {} back; the network takes {} of \
         the time",
        count(trips, "message"),
        rate(per_second),
        count(open, "open connection"),
        bytes_words(out as u64),
        bytes_words(back as u64),
        percent(share)
    );
    let (verdict, rule) = match rpc {
        true => (Verdict::Rpc, &rules::LOCKSTEP),
        false => (Verdict::Rsockets, &rules::SHIM),
    };
    let mut judgement = Judgement::new(verdict, rule, format!("{counts}; {shape}"));
    // With many at once a message waits for the others, not for the network.
    judgement.leave = Some(match open > 2 {
        true => calls_of(sockets, lane, trips),
        false => Move::Turns {
            period_us: period_us(lane),
            out: measurable(out),
            back: measurable(back),
            shim: !rpc,
        },
    });
    judgement.advice = parameters(sockets, lane);
    judgement
}

/// What calls take of a processor.
fn calls_of(sockets: &Sockets, lane: &Lane, turns: u64) -> Move {
    let turns = turns.max(1) as f64;
    let turn_us = sockets.seconds * 1e6 / turns;
    let calls_us = (call_seconds(lane) * 1e6 / turns).min(turn_us);
    Move::Calls {
        turn_us,
        calls_us,
        size: measurable(lane.bytes() as f64 / lane.calls().max(1) as f64),
    }
}

/// Values to begin with.
fn parameters(sockets: &Sockets, lane: &Lane) -> Vec<Advice> {
    let mut all = Vec::new();
    let sizes = &lane.sent.sizes;
    let small = sizes.up_to(255);
    let of_all = format!(
        "{small} of {} have at most 255 B, and 90 of 100 at most {} B",
        count(lane.sent.calls, "send"),
        sizes.quantile(0.9)
    );
    all.push(
        match small * 2 >= lane.sent.calls {
            true => Advice::new(
                "inline limit",
                &rules::INLINE,
                format!("max_inline_data {}", sizes.quantile(0.9).min(255) + 1),
                of_all,
            ),
            false => Advice::new("inline limit", &rules::INLINE, "nothing inline", of_all),
        }
        .begin(),
    );
    let per_second = lane.calls() as f64 / sockets.seconds.max(1e-6);
    let rates = format!(
        "{} of messages, {}",
        rate(per_second),
        count(sockets.waits, "wait")
    );
    all.push(
        match per_second >= 10_000.0 {
            true => Advice::new(
                "waiting",
                &rules::POLL,
                "poll, and sleep when nothing comes for a while",
                rates,
            ),
            false => Advice::new("waiting", &rules::POLL, "events", rates),
        }
        .begin(),
    );
    let depth = sockets.most_open.clamp(1, 64).next_power_of_two() * 2;
    all.push(
        Advice::new(
            "depth and signals",
            &rules::SIGNAL,
            format!(
                "send queues of {}, one request in {} signaled",
                depth.max(16),
                depth.max(16) / 2
            ),
            format!("at most {} at once", count(sockets.most_open, "connection")),
        )
        .begin(),
    );
    if sockets.most_open >= 16 {
        all.push(
            Advice::new(
                "shared receives",
                &rules::SRQ,
                "one shared receive queue (SRQ) for all connections",
                format!("at most {} at once", count(sockets.most_open, "connection")),
            )
            .begin(),
        );
    }
    if sockets.most_open > 64 {
        all.push(
            Advice::new(
                "queue pairs",
                &rules::QPS,
                "UD for messages of at most a path MTU, or XRC",
                format!("at most {} at once", count(sockets.most_open, "connection")),
            )
            .begin(),
        );
    }
    all
}

/// Bytes with their unit.
pub fn bytes_words(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{:.0} kB", bytes as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.0} MB", bytes as f64 / 1e6),
        _ => format!("{:.0} GB", bytes as f64 / 1e9),
    }
}

/// Seconds with as many digits as mean something.
fn round(seconds: f64) -> String {
    match seconds {
        0.0..10.0 => format!("{seconds:.2}"),
        _ => format!("{seconds:.0}"),
    }
}
