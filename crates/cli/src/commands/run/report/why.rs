//! Why it failed: the first failing work request, what the NIC saw of it, the likely cause, and
//! what to do next.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rnic_nic as nic;

use super::record::{Ends, Failure, Memory, Overrun, Request};
use super::refused::{bad_response, of_refusal, refused};
use super::story::{Story, go_on, is_stopped, seconds};
use super::unanswered::{not_ready, unanswered};
use super::{Report, cm, drops, local, refused_verbs, waits};
use crate::text::count;
use crate::topics::catalogue;
use crate::topics::topic::Kind;

pub fn qp(ends: &Ends) -> String {
    let local = ends.local.as_ref();
    let mut text = local.map_or(String::new(), |local| format!("{local} "));
    text += &format!("QP {:#x}", ends.qpn);
    if let (Some(peer), Some(qpn)) = (&ends.peer, ends.peer_qpn) {
        text += &format!(" -> {peer} QP {qpn:#x}");
    }
    text
}

fn range(addr: u64, length: u64) -> String {
    format!("{addr:#x}..+{length}")
}

pub fn tell(report: &Report, program: &str, status: ExitStatus, faults: bool) -> Option<Story> {
    let mut story = of_first(report, program, status, faults)?;
    story.seen.extend(drops::sentences(report));
    let more = waits::told(report, status)
        .into_iter()
        .map(|wait| waits::sentence(report, wait, false));
    let more: Vec<_> = more.filter(|wait| !story.what.ends_with(wait)).collect();
    story.seen.extend(more);
    Some(story)
}

/// What it was interrupted in, if it waited for its own acknowledgement: that is what kept it, not
/// what had failed before.
fn of_first(report: &Report, program: &str, status: ExitStatus, faults: bool) -> Option<Story> {
    let failed = of_requests(report, program, status, faults);
    let waits = waits::told(report, status);
    match waits.iter().find(|wait| wait.wanted == "acks") {
        Some(wait) => {
            let mut story = waits::ended(report, program, status, wait);
            let requests = !report.failures.is_empty() || !report.refusals.is_empty();
            story
                .seen
                .extend(failed.filter(|_| requests).map(|failed| failed.what));
            Some(story)
        }
        None => failed,
    }
}

fn of_requests(report: &Report, program: &str, status: ExitStatus, faults: bool) -> Option<Story> {
    let failure = report.failures.first();
    let refusal = report.refusals.first();
    let mut story = match (failure, refusal) {
        (Some(failure), None) => of_failure(report, failure, faults),
        (None, Some(refusal)) => of_refusal(report, refusal),
        (Some(failure), Some(refusal)) => {
            // The responder refuses first; the requester's completion is what programs see.
            let sees = |f: &&Failure| f.ends.is_opposite(&refusal.ends) && f.ns >= refusal.ns;
            if failure.ns <= refusal.ns {
                of_failure(report, failure, faults)
            } else if let Some(seen) = report.failures.iter().find(sees) {
                of_failure(report, seen, faults)
            } else {
                of_refusal(report, refusal)
            }
        }
        (None, None) => return without_failure(report, program, status),
    };
    let more = report.failures.len() + report.refusals.len();
    if more > 1 {
        let mut by_status: Vec<(u32, usize)> = Vec::new();
        for failure in &report.failures {
            match by_status.iter_mut().find(|(s, _)| *s == failure.status) {
                Some((_, count)) => *count += 1,
                None => by_status.push((failure.status, 1)),
            }
        }
        let list: Vec<String> = by_status
            .iter()
            .map(|(status, count)| format!("{count} with status {status}"))
            .collect();
        let number = report.failures.len();
        if number > 1 {
            // A process tells of no more.
            let more = if number >= nic::MOST_FAILURES as usize {
                " or more"
            } else {
                ""
            };
            story.seen.push(format!(
                "in all, {number}{more} work requests failed ({}); those with status 5 are a consequence and not counted",
                list.join(", ")
            ));
        }
    }
    Some(story)
}

/// The program failed, but no work request did.
fn without_failure(report: &Report, program: &str, status: ExitStatus) -> Option<Story> {
    // Ended from outside: somebody knows why.
    let stopped = matches!(
        status.signal(),
        Some(libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGPIPE | libc::SIGKILL)
    );
    if !status.success()
        && let Some(overrun) = report.overruns.first()
    {
        return Some(overran(report, program, status, overrun));
    }
    // What nothing can end, whatever the peer does, goes before what the peer could end.
    let waits = waits::told(report, status);
    if let [wait] = waits[..]
        && let mut story = waits::ended(report, program, status, wait)
        && story.cause.is_some()
    {
        let waiting = report.waiting.iter();
        story.seen.extend(waiting.map(|waiting| {
            format!(
                "{} had {} in {}: its peer had no receive posted",
                qp(&waiting.ends),
                count(waiting.naks, "RNR NAK"),
                seconds(waiting.waited_ns)
            )
        }));
        return Some(story);
    }
    if !status.success()
        && let Some(waiting) = report.waiting.first()
    {
        return Some(Story {
            what: format!(
                "{program} {}; {}: {} had waited for a receive of the peer",
                report.ending(status),
                report.process(waiting.process),
                qp(&waiting.ends)
            ),
            seen: vec![format!(
                "{} in {}: the peer had no receive posted, and rnr_retry 7 means to wait for ever",
                count(waiting.naks, "RNR NAK"),
                seconds(waiting.waited_ns)
            )],
            cause: Some("the peer posts no receives, or stopped to repost them".to_owned()),
            next: vec![
                "let the peer post receives, or set rnr_retry to 6 or less to get an error (status 13)".to_owned(),
                "rnic explain 13".to_owned(),
            ],
            ..Story::default()
        });
    }
    if !status.success()
        && let Some(stopped) = report.stopped.iter().find(|stopped| stopped.still)
    {
        return Some(Story {
            what: format!(
                "{program} {}; {}: {} had waited for a process that is stopped",
                report.ending(status),
                report.process(stopped.process),
                qp(&stopped.ends)
            ),
            seen: vec![format!(
                "no answer for {} and longer; a stopped peer costs no retry",
                seconds(stopped.waited_ns)
            )],
            cause: Some(is_stopped(&stopped.peer_program, stopped.peer_pid)),
            next: vec![go_on(stopped.peer_pid)],
            ..Story::default()
        });
    }
    // A client that waits for an answer is what people stop; one that was refused says so.
    if !status.success()
        && let Some(attempt) = cm::tell(report)
    {
        // It ended since a call of its own was refused, and not for want of patience.
        if !stopped
            && cm::was_early(report)
            && let Some(mut story) = refused_verbs::tell_of_cm(report)
        {
            story.what = format!("{program} {}; {}", report.ending(status), story.what);
            story.seen.push(attempt.what);
            return Some(story);
        }
        return Some(attempt);
    }
    if let Some(wait) = waits.first() {
        return Some(waits::ended(report, program, status, wait));
    }
    // A call may be refused before any device is opened.
    let opened = report.processes.iter().any(|p| p.opened);
    if status.success() || stopped || !(opened || report.verbs.iter().any(|verb| !verb.survived)) {
        return None;
    }
    let mut story = Story {
        what: format!(
            "{program} {}; no work request had failed",
            report.ending(status)
        ),
        ..Story::default()
    };
    if refused_verbs::tell_last(report, &mut story) {
        return Some(story);
    }
    let probed = refused_verbs::tell_probes(report, &mut story);
    if let Some(flushed) = report.flushed.first() {
        story.seen.push(format!(
            "{}: work request {} was flushed (status 5) because the program itself moved the queue pair to ERR",
            qp(&flushed.ends),
            flushed.wr_id
        ));
        story
            .next
            .push("look for what made the program end the connection".to_owned());
    } else if report.of_a_part {
        // The other parts of the program may have used the device, and this one not.
        return None;
    } else if !drops::sentences(report).is_empty() {
        // [`tell`] says so.
    } else {
        // What it saw is all it knows: an answer may have been an error to the program.
        let other = if probed { "no other" } else { "no" };
        story.seen.push(format!(
            "rnic saw {other} refused call; see the program's own messages"
        ));
    }
    Some(story)
}

/// Completions that did not come, since their queue was full.
fn overran(report: &Report, program: &str, status: ExitStatus, overrun: &Overrun) -> Story {
    Story {
        what: format!(
            "{program} {}; {}: {}: completion queue {} overran (IBV_EVENT_CQ_ERR)",
            report.ending(status),
            report.process(overrun.process),
            qp(&overrun.ends),
            overrun.cq
        ),
        seen: vec![
            "the completion that found no room is lost, and so is each one after it; its queue pairs are in ERR".to_owned(),
        ],
        cause: Some(format!(
            "the completion queue has {}, all of them were taken by completions that nobody had polled, and one more came",
            count(overrun.capacity, "entry")
        )),
        next: vec![
            "make the queue as long as all send and receive queues together that use it (cqe of ibv_create_cq), or poll more often"
                .to_owned(),
            "rnic explain IBV_EVENT_CQ_ERR".to_owned(),
        ],
        ..Story::default()
    }
}

fn of_failure(report: &Report, failure: &Failure, faults: bool) -> Story {
    let topic = catalogue::numbered(Kind::Status, failure.status).next();
    let mut what = format!(
        "{}: {}: ",
        report.process(failure.process),
        qp(&failure.ends)
    );
    what += &match failure.queue.as_str() {
        "receive" => format!("receive work request {}", failure.wr_id),
        _ => format!("work request {} ({})", failure.wr_id, failure.operation),
    };
    what += &format!(
        " completed with status {}{}, vendor_err {:#04x}",
        failure.status,
        topic.map_or(String::new(), |topic| format!(" ({})", topic.text)),
        failure.vendor_err
    );
    let mut story = Story {
        what,
        ..Story::default()
    };
    if let Some(request) = &failure.request {
        story.seen.extend(asked(failure, request));
    }
    match failure.status {
        1 => local::length(report, failure, &mut story),
        2 => local::operation(failure, &mut story),
        6 => local::window(failure, &mut story),
        4 => memory(failure, &mut story),
        7 => bad_response(report, failure, &mut story),
        9..=11 => refused(report, failure, &mut story),
        12 => unanswered(report, failure, faults, &mut story),
        13 => not_ready(failure, &mut story),
        _ => {}
    }
    if story.cause.is_none() && story.candidates.is_empty() {
        let causes = topic.map_or(&[][..], |topic| topic.causes);
        story.candidates = causes.iter().map(|cause| (*cause).to_owned()).collect();
    }
    story.next.push(format!(
        "rnic explain {}      all causes of this status",
        failure.status
    ));
    story
}

/// What the work request wanted.
fn asked(failure: &Failure, request: &Request) -> Option<String> {
    match (request.remote_addr, request.rkey) {
        (Some(addr), Some(rkey)) => Some(format!(
            "{} of {}, remote address {addr:#x}, rkey {rkey:#x}",
            failure.operation,
            count(request.length, "byte")
        )),
        _ if request.length > 0 => Some(format!(
            "{} of {}",
            failure.operation,
            count(request.length, "byte")
        )),
        _ => None,
    }
}

/// Status 4: which entry, and what it lacks.
fn memory(failure: &Failure, story: &mut Story) {
    let Some(memory) = &failure.memory else {
        return;
    };
    story.cause = Some(fault(memory, "lkey", "the scatter/gather entry"));
    story.next.push(match memory.fault.as_str() {
        "no right" => "register the region with IBV_ACCESS_LOCAL_WRITE".to_owned(),
        "other pd" => "register the region in the queue pair's protection domain".to_owned(),
        "unknown key" if memory.deregistered.is_some() => {
            "deregister only after the completion was polled".to_owned()
        }
        "unmapped" => KEEP_IT.to_owned(),
        "unknown key" if memory.swapped => BYTE_ORDER.to_owned(),
        _ => "compare address, length and lkey of the entry with those of ibv_reg_mr".to_owned(),
    });
}

/// A NIC has pinned the pages, so that elsewhere the program may seem to work.
pub const KEEP_IT: &str = "call ibv_dereg_mr before munmap, free or mprotect of registered memory; a hardware NIC has pinned \
                       the pages, and would go on with memory that is no longer the program's";

/// Of numbers that the two sides tell each other.
pub const BYTE_ORDER: &str = "send keys, addresses and QPNs in one byte order, and turn them back (htonl and ntohl, htobe64 and be64toh)";

/// What was wrong with an access; `key` is the name of the key.
pub fn fault(memory: &Memory, key: &str, whose: &str) -> String {
    let asked = range(memory.addr, memory.length);
    let named = format!("{key} {:#x}", memory.key);
    let what = match &memory.region {
        Some(region) if region.window => "memory window",
        _ => "region",
    };
    match (memory.fault.as_str(), &memory.region, &memory.deregistered) {
        ("unknown key", _, Some(grave)) => format!(
            "the region of {named} ({}) was deregistered {} before",
            range(grave.addr, grave.length),
            seconds(grave.ago_ns)
        ),
        ("unknown key", Some(region), _) if region.window => format!(
            "the memory window of {named} opens no memory now: it is not bound ({whose} is {asked})"
        ),
        ("unknown key", ..) if memory.swapped => format!(
            "{named} is that of a region in the other byte order: {:#x} ({whose} is {asked})",
            memory.key.swap_bytes()
        ),
        ("unknown key", ..) => format!(
            "no region of that process has {named}: never registered, or long deregistered ({whose} is {asked})"
        ),
        ("out of range", Some(region), _) => {
            let (end, region_end) = (
                u128::from(memory.addr) + u128::from(memory.length),
                u128::from(region.addr) + u128::from(region.length),
            );
            let swapped = memory.addr.swap_bytes();
            let swapped_end = u128::from(swapped) + u128::from(memory.length);
            let order = match swapped >= region.addr && swapped_end <= region_end {
                true => format!(
                    "; in the other byte order its address is {swapped:#x}, which lies in it"
                ),
                false => String::new(),
            };
            let how = if u128::from(memory.addr) >= region_end || end <= u128::from(region.addr) {
                "lies outside".to_owned()
            } else if memory.addr < region.addr {
                format!("begins {} before", count(region.addr - memory.addr, "byte"))
            } else {
                let past = end.saturating_sub(region_end);
                format!("ends {} past", count(past as u64, "byte"))
            };
            format!(
                "{whose}, {asked}, {how} the {what} of {named}, which is {}{order}",
                range(region.addr, region.length)
            )
        }
        ("no right", Some(region), _) => format!(
            "the {what} of {named} lacks {}; it has {}",
            memory.right.as_deref().unwrap_or("IBV_ACCESS_LOCAL_WRITE"),
            match region.access.as_str() {
                "" => "no right beyond local reading",
                access => access,
            }
        ),
        ("other pd", ..) => {
            format!(
                "the {what} of {named} belongs to another protection domain than the queue pair"
            )
        }
        ("unmapped", region, _) => {
            let of = region.as_ref().map_or(String::new(), |region| {
                format!(" of the region {}", range(region.addr, region.length))
            });
            let lacks = match memory.lack.as_deref() {
                Some("mapping") => "is not mapped any more",
                Some("reading") => "is mapped, but may not be read any more (PROT_NONE)",
                Some("writing") => "has become read-only (mprotect, or another mapping)",
                Some("pages") => {
                    "is mapped, but the kernel has no page for it: behind the end of its file"
                }
                _ => "cannot be accessed any more",
            };
            format!("the memory behind {named}, {asked}{of}, {lacks}")
        }
        (other, ..) => format!("{other}: {whose} is {asked}, {named}"),
    }
}
