//! `rnic run --lint`: what works here and would or may fail on hardware, why, and what to do.

use crate::text::count;
use std::collections::HashMap;

use serde_json::{Value, json};

use super::record::Lint;
use super::{Report, stats};

/// Kinds of findings that only both ends together show.
const READS: &str = "reads";
const PATH_MTU: &str = "path mtu";
const TYPES: &str = "types";

/// Compares what the two ends of each connection of this run have agreed on.
pub fn match_ends(report: &mut Report) {
    let mut found = Vec::new();
    let by_ends: HashMap<_, _> = report
        .qps
        .iter()
        .filter_map(|qp| Some((qp.ends.key()?, qp)))
        .collect();
    for qp in &report.qps {
        let opposite = qp.ends.key().map(|(own, peer)| (peer, own));
        let peer = opposite.and_then(|key| by_ends.get(&key));
        let Some(peer) = peer else { continue };
        // One service does not understand another: what else differs is of no matter.
        if is_known(&qp.qp_type) && is_known(&peer.qp_type) && qp.qp_type != peer.qp_type {
            // Said once of each connection.
            if qp.qp_type < peer.qp_type {
                found.push(Lint {
                    process: qp.process,
                    ns: qp.ns,
                    kind: TYPES.to_owned(),
                    object: u64::from(qp.ends.qpn),
                    value: 0,
                    limit: 0,
                    count: 1,
                    more: format!("{} and the peer {}", qp.qp_type, peer.qp_type),
                });
            }
            continue;
        }
        // READs and atomics are of the reliable services.
        let reads = qp.max_rd_atomic.filter(|_| qp.qp_type != "UC");
        let ends = [
            (READS, reads, peer.max_dest_rd_atomic),
            // Said once of each connection.
            (PATH_MTU, qp.path_mtu, peer.path_mtu),
        ];
        for (kind, own, theirs) in ends {
            if let (Some(own), Some(theirs)) = (own, theirs)
                && own > theirs
            {
                found.push(Lint {
                    process: qp.process,
                    ns: qp.ns,
                    kind: kind.to_owned(),
                    object: u64::from(qp.ends.qpn),
                    value: own,
                    limit: theirs,
                    count: 1,
                    more: String::new(),
                });
            }
        }
    }
    report.lints.extend(found);
}

/// Kinds that fail on every hardware. Others need a card with smaller limits, another peer or
/// another order of events.
const CERTAIN: [&str; 4] = ["memlock", "unsignaled", "never ready", TYPES];

/// Services of which both ends are of one type.
fn is_known(qp_type: &str) -> bool {
    matches!(qp_type, "RC" | "UC")
}

fn is_certain(lint: &Lint) -> bool {
    CERTAIN.contains(&lint.kind.as_str())
}

struct Words {
    what: String,
    why: &'static str,
    fix: &'static str,
}

fn words(lint: &Lint) -> Words {
    let Lint {
        object,
        value,
        limit,
        more,
        ..
    } = lint;
    let (what, why, fix) = match lint.kind.as_str() {
        "memlock" => (
            format!(
                "{} of registered memory, and only {} may be locked (RLIMIT_MEMLOCK)",
                stats::bytes(*value),
                stats::bytes(*limit)
            ),
            "hardware locks registered memory: ibv_reg_mr fails with ENOMEM",
            "raise the limit (`ulimit -l unlimited`, /etc/security/limits.conf, LimitMEMLOCK= of a systemd unit, --ulimit \
             memlock=-1 of a container), or register less",
        ),
        "unsignaled" => (
            format!(
                "QP {object:#x}: {value} sends in a row without a signaled one, as many as max_send_wr"
            ),
            "the queue's room comes back only when the completion of a later signaled request is polled: the queue is full for \
             good, ibv_post_send fails with ENOMEM",
            "set IBV_SEND_SIGNALED at least once in max_send_wr requests, and poll",
        ),
        "never ready" => (
            format!(
                "QP {object:#x}: rnr_retry is 7 and the peer has posted no receive for {:.1} s ({})",
                *limit as f64 / 1e9,
                count(*value, "RNR NAK")
            ),
            "7 means for ever: the program hangs without an error",
            "let the peer post receives, or set rnr_retry to 6 or less to get an error (status 13)",
        ),
        "late receive" if matches!(more.as_str(), "UD" | "UC") => (
            format!("QP {object:#x} ({more}): the first receive was posted after RTS"),
            "a message that comes before it is lost, and neither side is told: UD and UC have no RNR NAK and no rnr_retry",
            "post receives before the queue pair moves to RTR, or before its number is given to the peer",
        ),
        "late receive" => (
            format!("QP {object:#x}: the first receive was posted after RTS, and rnr_retry is 0"),
            "a message that comes before it is refused, and with rnr_retry 0 on the sender's side that is the end (status 13)",
            "post receives before the queue pair moves to RTR, or set rnr_retry to 7",
        ),
        TYPES => (
            format!("QP {object:#x}: the queue pair is of type {more}"),
            "one service drops the packets of another: RC ends with status 12, and UC loses its messages without a word",
            "create both queue pairs with the same qp_type (ibv_create_qp)",
        ),
        READS => (
            format!(
                "QP {object:#x}: max_rd_atomic is {value}, the peer's max_dest_rd_atomic {limit}"
            ),
            "with more READs or atomics under way than the peer takes, it refuses (status 9)",
            "exchange the values, and use the smaller on both sides",
        ),
        PATH_MTU => (
            format!("QP {object:#x}: path_mtu is {value} bytes, the peer's {limit}"),
            "messages that need more than one packet on either side fail: SENDs and RDMA WRITEs with status 9, READs with status 7, and \
             over UC they are lost without a word",
            "exchange the values, and set the smaller on both sides (IBV_QP_PATH_MTU, ibv_modify_qp to RTR)",
        ),
        "gid" => (
            format!("QP {object:#x}: GIDs of different type: {more} (sgid_index {value})"),
            "between two hosts such packets do not arrive, or the answers do not: status 12, or modifying to RTR fails",
            "choose on both sides the GID of the same type (`rnic devices`, show_gids), usually RoCE v2 with an IPv4 address",
        ),
        "hop limit" => (
            match object {
                0 => format!("hop_limit is 1 in an address handle for {more}"),
                _ => format!("QP {object:#x}: hop_limit is 1, on the way to {more}"),
            },
            "the first router between the two hosts drops such packets: status 12 over RC, and over UC and UD they are lost \
             without a word",
            "set ah_attr.grh.hop_limit to 64, or to what the path record says",
        ),
        "buffer" => (
            match more.as_str() {
                "" => format!(
                    "QP {object:#x}: the buffer of work request {value} was changed before its completion"
                ),
                _ => format!(
                    "QP {object:#x}: the buffer of work request {value} was deregistered before its completion"
                ),
            },
            "hardware reads the buffer at any time until the completion, and again to retransmit: the peer gets a mix of both",
            "wait for the completion before reusing the buffer, or send with IBV_SEND_INLINE",
        ),
        "inline" => (
            format!("QP {object:#x}: max_inline_data {value}"),
            "many NICs take 256 bytes at most, some fewer than 100: ibv_create_qp fails with EINVAL or ENOMEM there",
            "ask for less, and use what ibv_create_qp returns in cap.max_inline_data",
        ),
        "cq" => (
            format!(
                "a completion queue of {}, fed by queues of {value} in all",
                count(*limit, "entry")
            ),
            "when it overruns, completions are lost, IBV_EVENT_CQ_ERR comes, and its queue pairs break",
            "make it as long as all send and receive queues together that use it",
        ),
        other => (other.to_owned(), "", ""),
    };
    Words { what, why, fix }
}

pub fn to_json(report: &Report) -> Value {
    let findings: Vec<Value> = report
        .lints
        .iter()
        .map(|lint| {
            let words = words(lint);
            json!({
                "kind": lint.kind,
                "certain": is_certain(lint),
                "process": report.process(lint.process),
                "object": lint.object,
                "value": lint.value,
                "limit": lint.limit,
                "count": lint.count,
                "what": words.what,
                "why": words.why,
                "fix": words.fix,
            })
        })
        .collect();
    Value::Array(findings)
}

pub fn print(report: &Report) {
    if report.lints.is_empty() {
        crate::remark!("rnic: lint: nothing found that would fail on hardware");
        return;
    }
    for (certain, head) in [
        (
            true,
            "this would fail on hardware, whether it works here or not:",
        ),
        (
            false,
            "this may fail on hardware, whether it works here or not:",
        ),
    ] {
        let of_them = report.lints.iter().filter(|l| is_certain(l) == certain);
        print_kinds(report, head, &of_them.collect::<Vec<_>>());
    }
}

/// Findings under a common head, kind by kind.
fn print_kinds(report: &Report, head: &str, lints: &[&Lint]) {
    if lints.is_empty() {
        return;
    }
    crate::remark!("rnic: lint: {head}");
    let mut kinds: Vec<&str> = Vec::new();
    for lint in lints {
        if !kinds.contains(&lint.kind.as_str()) {
            kinds.push(&lint.kind);
        }
    }
    for kind in kinds {
        let alike: Vec<&Lint> = lints.iter().copied().filter(|l| l.kind == kind).collect();
        for lint in alike.iter().take(MOST) {
            let often = match lint.count {
                1 => String::new(),
                n => format!(" ({n} times or more)"),
            };
            crate::remark!(
                "  {}: {}{often}",
                report.process(lint.process),
                words(lint).what
            );
        }
        if alike.len() > MOST {
            crate::remark!(
                "  ... and {} more alike (all of them: --json)",
                alike.len() - MOST
            );
        }
        let Words { why, fix, .. } = words(alike[0]);
        crate::remark!("    why: {why}");
        crate::remark!("    fix: {fix}");
    }
}

/// Objects with the same finding that are shown.
const MOST: usize = 4;
