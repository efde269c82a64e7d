//! What threads waited for when the program was interrupted, or wait for while it hangs.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::Report;
use super::record::{Ends, Id, Poster, Queue, Wait};
use super::story::{Story, seconds};
use crate::text::count;

/// What futures of a queue pair wait for, in a record.
const FUTURE_MESSAGE: &str = "future message";
const FUTURE_COMPLETION: &str = "future completion";
const FUTURE_ROOM: &str = "future room";

/// Signals of a mistake of the program's own: what other threads wait for is not its reason.
const FAULTS: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
];

/// A shell's exit status of a program that a signal ended is 128 and that; timeout(1) has 124.
const BY_SIGNAL: std::ops::RangeInclusive<i32> = 124..=128 + 64;

/// The waits that the end of the program is to be told with: none, unless it was interrupted. The
/// one that says most is the first.
pub fn told(report: &Report, status: ExitStatus) -> Vec<&Wait> {
    let interrupted = match (status.signal(), status.code()) {
        (Some(signal), _) => !FAULTS.contains(&signal),
        (None, Some(0)) => false,
        (None, code) => report.interrupted || code.is_some_and(|code| BY_SIGNAL.contains(&code)),
    };
    if !interrupted {
        return Vec::new();
    }
    let lasted = |wait: &&Wait| matches!(wait.over.as_deref(), None | Some("interrupted" | "end"));
    let mut waits: Vec<&Wait> = report.waits.iter().filter(lasted).collect();
    let rank = |wait: &Wait| match wait.wanted.as_str() {
        "acks" => 0,
        "completion" | "cq event" | FUTURE_MESSAGE | FUTURE_COMPLETION | FUTURE_ROOM => 1,
        "cm event" | "sockets" => 2,
        "descriptors" => 3,
        _ => 4,
    };
    waits.sort_by_key(|wait| (rank(wait), wait.since));
    waits
}

/// How long, as far as is known.
fn lasted(report: &Report, wait: &Wait) -> u64 {
    let until = match wait.over {
        None => report.read_at,
        Some(_) => wait.ns,
    };
    until.saturating_sub(wait.since)
}

/// One sentence. `still`: it goes on.
pub fn sentence(report: &Report, wait: &Wait, still: bool) -> String {
    let has = if still { "has " } else { "" };
    let time = seconds(lasted(report, wait));
    let process = report.process(wait.process);
    let verb = &wait.verb;
    match wait.wanted.as_str() {
        "acks" => {
            let open = wait.taken.saturating_sub(wait.acknowledged);
            let named = match wait.events.as_deref() {
                None | Some("") => String::new(),
                Some(events) => format!(" ({events})"),
            };
            format!(
                "{process}: {verb} {has}waited {time} for {} of {}{named} that the program took and did not acknowledge",
                count(open, "event"),
                wait.object.as_deref().unwrap_or("the object")
            )
        }
        "completion" => format!(
            "{process}: {verb} {has}found nothing in {} for {time}",
            queues(wait)
        ),
        "cq event" => format!(
            "{process}: {verb} {has}waited {time} for an event of {}",
            match &wait.cqs[..] {
                [] => "a channel that no completion queue reports to".to_owned(),
                _ => queues(wait),
            }
        ),
        "cm event" => {
            format!("{process}: {verb} {has}waited {time} for an event of the connection manager")
        }
        "sockets" => format!("{process}: {verb} {has}waited {time}"),
        FUTURE_MESSAGE | FUTURE_COMPLETION | FUTURE_ROOM => {
            let futures = match wait.futures {
                0 | 1 => "a future".to_owned(),
                several => count(several, "future"),
            };
            let have = match wait.futures {
                2.. if still => "have ",
                _ => has,
            };
            let what = match wait.wanted.as_str() {
                FUTURE_MESSAGE => "a message",
                FUTURE_COMPLETION => "the completion of a request",
                _ => "room in the send queue",
            };
            let qpn = wait.future_qpn.unwrap_or_default();
            format!("{process}: {futures} of QP {qpn:#x} {have}waited {time} for {what}")
        }
        "descriptors" => format!(
            "{process}: a thread {has}slept {time} in {verb} on the descriptors of {}",
            sources(wait)
        ),
        _ => {
            format!("{process}: {verb} {has}waited {time} for an asynchronous event, and none came")
        }
    }
}

/// What brings the events, of a thread that waits for descriptors.
fn sources(wait: &Wait) -> String {
    let mut sources = Vec::new();
    if wait.channels > 0 {
        sources.push(format!("the completion channel of {}", queues(wait)));
    }
    if wait.cm_channels > 0 {
        sources.push(match wait.cm_channels {
            1 => "the event channel of the connection manager".to_owned(),
            several => format!("{several} event channels of the connection manager"),
        });
    }
    if wait.async_events {
        sources.push("asynchronous events".to_owned());
    }
    if wait.others {
        sources.push("others, which are not the NIC's".to_owned());
    }
    match sources.pop() {
        Some(last) if !sources.is_empty() => format!("{} and {last}", sources.join(", ")),
        last => last.unwrap_or_default(),
    }
}

fn queues(wait: &Wait) -> String {
    match &wait.cqs[..] {
        [] => "no completion queue".to_owned(),
        [only] => format!("CQ {}", only.cq),
        several => {
            let names: Vec<_> = several.iter().map(|queue| queue.cq.to_string()).collect();
            let more = wait.all_cqs.saturating_sub(several.len() as u64);
            let more = match more {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("CQs {}{more}", names.join(", "))
        }
    }
}

/// The closing words of a program that was ended while it waited.
pub fn ended(report: &Report, program: &str, status: ExitStatus, wait: &Wait) -> Story {
    let mut story = explain(wait);
    story.what = format!(
        "{program} {}; {}",
        report.ending(status),
        sentence(report, wait, false)
    );
    story
}

/// The words of `--watch`.
pub fn lasting(report: &Report, wait: &Wait) -> Story {
    let mut story = explain(wait);
    let thread = wait
        .thread
        .map_or(String::new(), |thread| format!(" (thread {thread})"));
    story.what = format!("still waiting{thread}: {}", sentence(report, wait, true));
    let of_it = |ends: &Ends| wait.queue_pairs.iter().any(|own| own.ends.qpn == ends.qpn);
    let mut refused = report.waiting.iter();
    if let Some(refused) = refused.find(|r| r.process == wait.process && of_it(&r.ends))
        && story.cause.is_none()
    {
        story.cause = Some(format!(
            "the peer of QP {:#x} has no receive posted ({}), and rnr_retry 7 means to wait for ever",
            refused.ends.qpn,
            count(refused.naks, "RNR NAK")
        ));
        story.next.push(
            "let the peer post receives, or set rnr_retry to 6 or less to get an error (status 13)"
                .to_owned(),
        );
    }
    story
}

/// What is seen, and what follows from it.
fn explain(wait: &Wait) -> Story {
    let mut story = Story::default();
    match wait.wanted.as_str() {
        "acks" => acks(wait, &mut story),
        "cq event" => event(wait, &mut story),
        "completion" => {
            let cqs = wait.cqs.iter().filter(|queue| queue.overrun);
            story.seen.extend(cqs.map(overran));
            completions(wait, &mut story);
        }
        "cm event" => cm_event(wait, &mut story),
        // Which of them a socket has is known to its own layer alone: facts only.
        "sockets" => {
            let ids = wait.ids.iter().map(id_stands);
            story.seen.extend(ids);
            story.seen.extend(wait.queue_pairs.iter().map(stands));
        }
        "descriptors" => descriptors(wait, &mut story),
        FUTURE_MESSAGE | FUTURE_COMPLETION | FUTURE_ROOM => future(wait, &mut story),
        _ => {}
    }
    story
}

/// What keeps futures of a queue pair asleep, as far as that is known. The Rust API arms the queue.
fn future(wait: &Wait, story: &mut Story) {
    story.seen.extend(wait.queue_pairs.iter().map(stands));
    let [poster] = &wait.queue_pairs[..] else {
        return;
    };
    let is_connected = matches!(poster.state.as_str(), "RTR" | "RTS" | "SQD");
    if hopeless(poster) == Some(Hopeless::State) && !is_connected {
        story.cause =
            Some("the queue pair receives nothing before RTR, and sends nothing before RTS".into());
        story
            .next
            .push("connect it, on both sides, before waiting".to_owned());
    } else if wait.wanted == FUTURE_MESSAGE
        && is_connected
        && poster.receives == 0
        && poster.srq.is_none()
        && wait.cqs.iter().all(|queue| queue.waiting == 0)
    {
        story.cause = Some(
            "no receive is posted: the program holds messages, whose buffers are the next receives"
                .to_owned(),
        );
        story
            .next
            .push("drop each message when it is read, or make max_recv_wr larger".to_owned());
    }
}

fn acks(wait: &Wait, story: &mut Story) {
    story.seen.push(format!(
        "{} taken so far, {} acknowledged",
        count(wait.taken, "event"),
        wait.acknowledged
    ));
    let remedy = wait.remedy.as_deref().unwrap_or("the call for it");
    story.cause = Some(format!(
        "{} returns only when every event that was taken is acknowledged, on any NIC",
        wait.verb
    ));
    story.next.push(format!(
        "call {remedy} for each event that was taken, before {}; a thread that holds one must not call {} itself",
        wait.verb, wait.verb
    ));
}

fn overran(queue: &Queue) -> String {
    format!(
        "CQ {} has overrun: a completion found no room in it, and none enters it any more",
        queue.cq
    )
}

fn holds(queue: &Queue) -> String {
    format!(
        "it holds {}, of {} that it ever had",
        count(queue.waiting, "completion"),
        queue.completions
    )
}

fn event(wait: &Wait, story: &mut Story) {
    for queue in &wait.cqs {
        let armed = match queue.armed.as_str() {
            "never" => "was never armed (ibv_req_notify_cq)",
            "no longer" => "is not armed: it was, and each event disarms it",
            "solicited" => "is armed for solicited completions and errors only",
            _ if queue.moderated => "is armed, and its events are moderated (ibv_modify_cq)",
            _ => "is armed",
        };
        story
            .seen
            .push(format!("CQ {} {armed}; {}", queue.cq, holds(queue)));
        if queue.overrun {
            story.seen.push(overran(queue));
        }
    }
    let complete = wait.all_cqs == wait.cqs.len() as u64;
    if !complete {
        return;
    }
    let armed = |queue: &&Queue| matches!(queue.armed.as_str(), "next" | "solicited");
    if wait.cqs.is_empty() {
        story.cause = Some(
            "no completion queue was made with this channel, or all were destroyed: no event can come"
                .to_owned(),
        );
        story.next.push(
            "give the channel to ibv_create_cq; wait on the channel that the queue has".to_owned(),
        );
    } else if !wait.cqs.iter().any(|queue| armed(&queue)) {
        story.cause = Some(
            "none of the channel's completion queues is armed: completions come without an event"
                .to_owned(),
        );
        story.next.push(
            "call ibv_req_notify_cq before the first wait and again after each event, then poll until the queue is \
             empty, then wait"
                .to_owned(),
        );
    } else if let Some(queue) = wait
        .cqs
        .iter()
        .find(|queue| queue.armed == "solicited" && queue.waiting > 0)
        && wait.cqs.iter().all(|queue| queue.armed != "next")
    {
        story.cause = Some(format!(
            "CQ {} is armed for solicited completions only, and the {} in it brought no event",
            queue.cq,
            count(queue.waiting, "completion")
        ));
        story.next.push(
            "give ibv_req_notify_cq a 0 as solicited_only, or have the sender set IBV_SEND_SOLICITED"
                .to_owned(),
        );
    } else {
        completions(wait, story);
    }
}

/// A thread that waits for what becomes readable first: if that is of one kind, it is as one that
/// waits for that in a call of ours.
fn descriptors(wait: &Wait, story: &mut Story) {
    if wait.untaken > 0 {
        story.seen.push(format!(
            "{} of the completion channel came and {} not taken (ibv_get_cq_event): edge-triggered epoll tells of a \
             channel once until it is empty",
            count(wait.untaken, "event"),
            if wait.untaken == 1 { "was" } else { "were" }
        ));
    }
    match (wait.channels > 0, wait.cm_channels > 0) {
        (true, false) if !wait.others && !wait.async_events && wait.untaken == 0 => {
            event(wait, story);
        }
        (false, true) if !wait.others && !wait.async_events => cm_event(wait, story),
        _ => {
            // Any of the others may be what the program waits for: facts only.
            let mut facts = Story::default();
            if wait.channels > 0 {
                event(wait, &mut facts);
            }
            if wait.cm_channels > 0 {
                cm_event(wait, &mut facts);
            }
            story.seen.append(&mut facts.seen);
            let unarmed = |queue: &Queue| !matches!(queue.armed.as_str(), "next" | "solicited");
            if !wait.cqs.is_empty() && wait.cqs.iter().all(unarmed) {
                story.next.push(
                    "if it is to be woken by completions: ibv_req_notify_cq arms a queue for one event, before the \
                     wait and again after each"
                        .to_owned(),
                );
            }
        }
    }
}

/// Why no completion comes, as far as that is known.
fn completions(wait: &Wait, story: &mut Story) {
    for poster in &wait.queue_pairs {
        story.seen.push(stands(poster));
    }
    let more = wait.all_queue_pairs - (wait.queue_pairs.len() as u64).min(wait.all_queue_pairs);
    if more > 0 {
        story
            .seen
            .push(format!("and {} more", count(more, "queue pair")));
        return;
    }
    if wait.xrc_srqs > 0 {
        return;
    }
    if wait.queue_pairs.is_empty() {
        story.cause = Some("no queue pair completes into it: nothing can come".to_owned());
        story
            .next
            .push("compare send_cq and recv_cq of ibv_create_qp with what is polled".to_owned());
        return;
    }
    let reasons: Option<Vec<Hopeless>> = wait.queue_pairs.iter().map(hopeless).collect();
    let Some(reasons) = reasons else {
        return;
    };
    let alike = reasons.iter().all(|reason| *reason == reasons[0]);
    let (cause, next) = match reasons[0] {
        _ if !alike => (
            "no queue pair that completes into it has anything under way that would",
            "see each queue pair above",
        ),
        Hopeless::Nothing => (
            "nothing is posted that would complete into it",
            "post receives, or signaled sends, before waiting; compare send_cq and recv_cq of ibv_create_qp with what \
             is polled",
        ),
        Hopeless::Unsignaled => (
            "only unsignaled work requests were posted, whose success gives no completion",
            "set IBV_SEND_SIGNALED at least on the last one of each batch, or sq_sig_all",
        ),
        Hopeless::State => (
            "the queue pair receives nothing before RTR, and sends nothing before RTS",
            "move it on (ibv_modify_qp), on both sides, before waiting",
        ),
    };
    story.cause = Some(cause.to_owned());
    story.next.push(next.to_owned());
}

/// Why a queue pair completes nothing, whatever the peer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hopeless {
    Nothing,
    Unsignaled,
    State,
}

fn hopeless(poster: &Poster) -> Option<Hopeless> {
    let receives = if poster.receives_here {
        poster.receives
    } else {
        0
    };
    let (sends, signaled, unsignaled) = match poster.sends_here {
        true => (poster.sends, poster.signaled, poster.unsignaled),
        false => (0, 0, 0),
    };
    // What it takes from an XRC domain is not counted.
    if poster.qp_type == "XRC" {
        return None;
    }
    match poster.state.as_str() {
        "RESET" | "INIT" if receives + sends > 0 => Some(Hopeless::State),
        "RTS" if receives == 0 && signaled == 0 && unsignaled > 0 => Some(Hopeless::Unsignaled),
        _ if receives == 0 && sends == 0 => Some(Hopeless::Nothing),
        "RTR" if receives == 0 => Some(Hopeless::State),
        _ => None,
    }
}

/// A queue pair, for people.
fn stands(poster: &Poster) -> String {
    let ends = &poster.ends;
    let mut text = format!("QP {:#x}", ends.qpn);
    if let (Some(peer), Some(qpn)) = (&ends.peer, ends.peer_qpn) {
        text += &format!(" -> {peer} QP {qpn:#x}");
    }
    text += &format!(" ({}, {}): ", poster.qp_type, poster.state);
    let mut parts = Vec::new();
    if poster.sends_here {
        let sends = match (poster.sends, poster.signaled) {
            (0, _) => "no send is under way".to_owned(),
            (sends, 0) => format!("{} under way, all unsignaled", count(sends, "send")),
            (sends, _) => format!("{} under way", count(sends, "send")),
        };
        parts.push(match (poster.sends, poster.unsignaled) {
            (0, 1..) => format!(
                "{sends}; since the last completion {} ended that {} not signaled",
                count(poster.unsignaled, "send"),
                if poster.unsignaled == 1 {
                    "was"
                } else {
                    "were"
                }
            ),
            _ => sends,
        });
    }
    if poster.receives_here {
        let of = poster
            .srq
            .map_or(String::new(), |srq| format!(" in SRQ {srq}"));
        let taken = match poster.received {
            0 => "no message has come".to_owned(),
            taken => format!("{} came so far", count(taken, "message")),
        };
        parts.push(match poster.receives {
            0 => format!("no receive is posted{of}, {taken}"),
            receives => format!("{} posted{of}, {taken}", count(receives, "receive")),
        });
    }
    match poster.peer_process.as_deref() {
        Some("gone") => parts.push("the peer's process has ended".to_owned()),
        Some("own, not connected") => parts.push(
            "the peer is a queue pair of this process that is destroyed, or was never moved to RTR"
                .to_owned(),
        ),
        Some("own, in error") => {
            parts.push("the peer is a queue pair of this process that is in ERR".to_owned());
        }
        _ => {}
    }
    text + &parts.join("; ")
}

fn cm_event(wait: &Wait, story: &mut Story) {
    for id in &wait.ids {
        story.seen.push(id_stands(id));
    }
    let more = wait.all_ids - (wait.ids.len() as u64).min(wait.all_ids);
    if more > 0 {
        story.seen.push(format!("and {} more", count(more, "id")));
        return;
    }
    let idle = |id: &Id| {
        matches!(
            id.standing.as_str(),
            "new" | "bound" | "address resolved" | "route resolved"
        )
    };
    if wait.ids.is_empty() {
        story.cause = Some("no id reports to the channel: no event can come".to_owned());
        story.next.push(
            "give the channel to rdma_create_id; wait on the channel that the id has".to_owned(),
        );
    } else if wait.ids.iter().all(idle) {
        story.cause = Some(
            "nothing was asked of the ids of the channel that would bring an event".to_owned(),
        );
        story.next.push(
            "a server calls rdma_listen; a client rdma_resolve_addr, rdma_resolve_route and rdma_connect, each after \
             the event of the one before"
                .to_owned(),
        );
    }
}

/// An id, for people.
fn id_stands(id: &Id) -> String {
    let local = id.local.as_deref().unwrap_or("no address");
    let peer = id.peer.as_deref().unwrap_or("the peer");
    let service = id.service.as_deref().unwrap_or("a service");
    match id.standing.as_str() {
        "new" => "an id is new: it has no address, and nothing was asked of it".to_owned(),
        "bound" => format!("an id is bound to {local}, and does not listen"),
        "resolving address" => format!("an id waits for the address of {peer} to be resolved"),
        "address resolved" => {
            format!("an id has the address of {peer}; rdma_resolve_route was not called")
        }
        "route resolved" => format!("an id has the route to {peer}; rdma_connect was not called"),
        "listening" => {
            format!(
                "an id listens at {local} ({service}), and nobody asked for a connection meanwhile"
            )
        }
        "asked" => format!("an id asked {peer} ({service}) for a connection, and has no answer"),
        "answered" => {
            format!("an id has the answer of {peer} ({service}), which waits for rdma_establish")
        }
        "request" => format!(
            "an id has a request of {peer}, which the program has neither accepted nor rejected"
        ),
        "accepted" => {
            format!("an id has accepted the request of {peer}, which has not confirmed that yet")
        }
        "connected" => format!("an id is connected with {peer}, and neither side disconnects"),
        "leaving" => format!(
            "an id called rdma_disconnect, and its peer {peer} has not answered that: it does by its own rdma_disconnect or \
             rdma_destroy_id"
        ),
        "disconnected" => format!("an id is disconnected from {peer}"),
        _ => format!("the connection of an id with {peer} has ended, or did not come about"),
    }
}
