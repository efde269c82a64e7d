//! Statuses 7 and 9 to 11: a peer that refuses, and answers that are none.

use super::local::{INVALIDATE_WINDOWS, NOT_TO_BE_INVALIDATED, too_long};
use super::record::{Ends, Failure, Memory, Refusal};
use super::story::Story;
use super::why::{BYTE_ORDER, KEEP_IT, fault, qp};
use super::{Report, named};
use crate::text::count;

/// Statuses 9, 10 and 11: the peer refused. If it runs under `rnic run` of this user, in this
/// terminal or another, it has said why.
pub fn refused(report: &Report, failure: &Failure, story: &mut Story) {
    match refusal_of(report, failure) {
        Some(refusal) => {
            story.seen.push(format!(
                "the peer, {}, refused it",
                report.process(refusal.process)
            ));
            let (cause, next) = why_refused(report, refusal);
            let is_of_length = matches!(refusal.why.as_str(), "packet length" | "malformed");
            if !is_of_length || !other_mtu(report, failure, story) {
                story.cause = Some(match failure.ends.is_loop() {
                    true => format!("{ITSELF}: {cause}"),
                    false => cause,
                });
                story.next.extend(next);
            }
        }
        None => {
            story.seen.push(
                "the peer's NIC refused it, and a NAK does not say why; no `rnic run` of this user here has the peer's side"
                    .to_owned(),
            );
            story.next.push(
                "run the peer under `rnic run`, too: it says what it refused, with key, range and right"
                    .to_owned(),
            );
        }
    }
}

/// What the peer noted of the request that failed. Of two processes that claim to be the peer neither
/// is believed.
fn refusal_of<'a>(report: &'a Report, failure: &Failure) -> Option<&'a Refusal> {
    let of_peer = |refusal: &&Refusal| {
        refusal.ends.is_opposite(&failure.ends)
            && (failure.since_ns..=failure.ns).contains(&refusal.ns)
    };
    let told = || report.all(|report| &report.refusals).filter(of_peer);
    let last = told().max_by_key(|refusal| refusal.ns)?;
    told()
        .all(|refusal| refusal.process == last.process)
        .then_some(last)
}

/// The path MTUs of this side and of the peer, where both are known.
fn path_mtus(report: &Report, failure: &Failure) -> Option<(u64, u64)> {
    let opposite = |ends: &Ends| ends.is_opposite(&failure.ends);
    let refusals = report.all(|report| &report.refusals);
    let refusals = refusals.filter(|r| opposite(&r.ends));
    let connected = report.all(|report| &report.connected);
    let connected = connected.filter(|c| opposite(&c.ends));
    let theirs = failure
        .peer_path_mtu
        .or_else(|| refusals.filter_map(|r| r.path_mtu).next_back())
        .or_else(|| connected.filter_map(|c| c.path_mtu).next_back())?;
    Some((failure.path_mtu?, theirs))
}

/// Says so if the two path MTUs differ; false: they do not, or one of them is not known.
fn other_mtu(report: &Report, failure: &Failure, story: &mut Story) -> bool {
    let Some((own, theirs)) = path_mtus(report, failure).filter(|(own, theirs)| own != theirs)
    else {
        return false;
    };
    story.cause = Some(format!(
        "path_mtu differs between the sides: {own} bytes here, {theirs} bytes at the peer, so that each takes the other's \
         packets for too long or too short"
    ));
    story
        .next
        .push("set the smaller path_mtu on both sides (ibv_modify_qp to RTR)".to_owned());
    true
}

/// Status 7: the answer to a READ was of a wrong length, or of the wrong kind.
pub fn bad_response(report: &Report, failure: &Failure, story: &mut Story) {
    let response = failure
        .request
        .as_ref()
        .and_then(|r| Some((r.length, r.response?)));
    if let Some((length, response)) = response {
        story.seen.push(format!(
            "of the {} asked for, a packet brought {response}",
            count(length, "byte")
        ));
    }
    if !other_mtu(report, failure, story)
        && let (Some(_), Some(own)) = (response, failure.path_mtu)
    {
        story.seen.push(format!(
            "path_mtu is {own} bytes here, and the packet was none of those that this makes of the answer"
        ));
        story
            .candidates
            .push("the peer has another path_mtu".to_owned());
        story
            .next
            .push("compare path_mtu of both sides (ibv_modify_qp to RTR)".to_owned());
    }
}

/// Cause and remedy of a refusal, as the responder knows them.
fn why_refused(report: &Report, refusal: &Refusal) -> (String, Option<String>) {
    let own_receive = || receive_of(report, refusal);
    let fault_of = refusal.memory.as_ref().map(|memory| memory.fault.as_str());
    let (cause, next) = match refusal.why.as_str() {
        "invalidate" if fault_of == Some("no right") => {
            (NOT_TO_BE_INVALIDATED.to_owned(), INVALIDATE_WINDOWS)
        }
        "access" | "invalidate" => match &refusal.memory {
            Some(memory) => (
                fault(memory, "rkey", "the access"),
                match memory.fault.as_str() {
                    "no right" if is_window(memory) => "bind the window with that right",
                    "no right" => "register the region with that right",
                    "unknown key" if is_window(memory) => {
                        "let the peer use a window only between its bind and its invalidation"
                    }
                    "unknown key" if memory.swapped => BYTE_ORDER,
                    "unknown key" => "send the peer the rkey of the region as it is now",
                    "other pd" => "register the region in the queue pair's protection domain",
                    "unmapped" => KEEP_IT,
                    _ => "compare remote address, length and rkey with those of the region",
                },
            ),
            None => (
                "key, range or right of the responder's memory".to_owned(),
                "compare remote address, length and rkey with those of the region",
            ),
        },
        "receive memory" => (
            match own_receive().and_then(|failure| failure.memory.as_ref()) {
                Some(memory) => fault(memory, "lkey", "the posted receive"),
                None => "the posted receive names memory that may not be written".to_owned(),
            },
            match own_receive().and_then(|failure| failure.memory.as_ref()) {
                Some(memory) if memory.fault == "unmapped" => KEEP_IT,
                Some(memory) if memory.fault == "no right" => {
                    "register the receive's region with IBV_ACCESS_LOCAL_WRITE"
                }
                _ => "correct the receive's scatter/gather list",
            },
        ),
        "too long" => (
            too_long(
                refusal.room.unwrap_or(0),
                refusal.length.unwrap_or(0),
                "the posted receive",
            ),
            "post receives as long as the longest message",
        ),
        "not allowed" => (
            format!(
                "qp_access_flags of the responder's queue pair do not allow {}",
                refusal.operation
            ),
            "set them in ibv_modify_qp to INIT (IBV_QP_ACCESS_FLAGS)",
        ),
        "too many reads" => (
            match refusal.limit {
                Some(0) => {
                    "max_dest_rd_atomic of the responder is 0, which allows no READ or atomic"
                        .to_owned()
                }
                limit => format!(
                    "more READs or atomics under way than the responder's max_dest_rd_atomic of {}",
                    limit.unwrap_or(0)
                ),
            },
            "max_rd_atomic of the requester must not exceed it",
        ),
        "unaligned" => (
            "the remote address of an atomic must be a multiple of 8".to_owned(),
            "align it",
        ),
        "packet length" => (
            format!(
                "a packet of {} of payload came ({}, PSN {:#08x}), and path_mtu of the responder is {}: the requester has \
                 another path_mtu",
                count(refusal.length.unwrap_or(0), "byte"),
                refusal.operation,
                refusal.psn,
                refusal.path_mtu.unwrap_or(0)
            ),
            "set the same path_mtu on both sides (ibv_modify_qp to RTR)",
        ),
        _ => (
            format!(
                "{} (PSN {:#08x}) was out of sequence, or its length does not fit its opcode",
                refusal.operation, refusal.psn
            ),
            "rnic run --pcap trace.pcap -- PROGRAM      the packets, for `rnic dissect trace.pcap`",
        ),
    };
    (cause, Some(next.to_owned()))
}

fn is_window(memory: &Memory) -> bool {
    memory.region.as_ref().is_some_and(|region| region.window)
}

/// The receive that failed on the responder's side.
fn receive_of<'a>(report: &'a Report, refusal: &Refusal) -> Option<&'a Failure> {
    report.all(|report| &report.failures).find(|failure| {
        failure.process == refusal.process
            && failure.ends.qpn == refusal.ends.qpn
            && failure.queue == "receive"
    })
}

const ITSELF: &str = "the queue pair is connected with itself, so that its own side answers";

/// Who sent what was refused.
fn sender(report: &Report, refusal: &Refusal) -> String {
    let mut connected = report.all(|report| &report.connected);
    let known = connected.rfind(|c| c.ends.is_opposite(&refusal.ends) && c.ns <= refusal.ns);
    match (known, refusal.peer_pid, &refusal.peer_program) {
        (Some(known), ..) => format!("the peer, {}", report.process(known.process)),
        (None, Some(pid), Some(program)) => format!("the peer, {}", named(program, pid)),
        _ => "the peer".to_owned(),
    }
}

/// Only the responder's side ran here.
pub fn of_refusal(report: &Report, refusal: &Refusal) -> Story {
    let (mut cause, next) = why_refused(report, refusal);
    if refusal.ends.is_loop() {
        cause = format!("{ITSELF}: {cause}");
    }
    let mut story = Story {
        what: format!(
            "{}: {}: refused a request of {} ({}, PSN {:#08x})",
            report.process(refusal.process),
            qp(&refusal.ends),
            sender(report, refusal),
            refusal.operation,
            refusal.psn
        ),
        cause: Some(cause),
        ..Story::default()
    };
    let status = match refusal.why.as_str() {
        "access" | "invalidate" => 10,
        "receive memory" => 11,
        _ => 9,
    };
    if let Some(receive) = receive_of(report, refusal) {
        story.seen.push(format!(
            "its receive work request {} completed with status {}",
            receive.wr_id, receive.status
        ));
    }
    story.seen.push(match refusal.ends.is_loop() {
        true => "its dest_qp_num is its own number".to_owned(),
        false => format!(
            "both queue pairs are in ERR; the peer's work request completes with status {status}"
        ),
    });
    story.next.extend(next);
    story.next.push(format!("rnic explain {status}"));
    story
}
