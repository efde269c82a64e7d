//! Connections that did not come about: what the connection manager did, and why.

use super::Report;
use super::partitions::PARTITIONS;
use super::record::Attempt;
use super::story::{self, Story, seconds};
use super::unanswered::of_way;
use crate::topics::catalogue;
use crate::topics::topic::Kind;

/// What a side is that had asked for a connection, and did not get it.
const OUTCOMES: [&str; 4] = [
    "rejected",
    "datagrams refused",
    "unreachable",
    "address error",
];

/// The words about the last connection that a program wanted and did not get, then or later.
pub fn tell(report: &Report) -> Option<Story> {
    let attempts = &report.attempts;
    let wanted = |attempt: &&Attempt| {
        OUTCOMES.contains(&attempt.what.as_str()) && !went_the_next_time(report, attempt)
    };
    if let Some(attempt) = attempts.iter().rfind(wanted) {
        return Some(of_attempt(report, attempt));
    }
    // Still waiting when the program ended.
    let waiting =
        |attempt: &&Attempt| attempt.what == "no answer yet" && !was_answered(report, attempt);
    if let Some(attempt) = attempts.iter().rfind(waiting) {
        return Some(of_attempt(report, attempt));
    }
    // Only the side that was asked ran here.
    let left = |attempt: &&Attempt| attempt.what == "asker left";
    if let Some(attempt) = attempts.iter().rfind(left) {
        return Some(of_one_who_left(report, attempt));
    }
    let asked = |attempt: &&Attempt| {
        matches!(
            attempt.what.as_str(),
            "nobody listens" | "other service" | "backlog full" | "path mtu" | "partition"
        )
    };
    attempts
        .iter()
        .rfind(asked)
        .map(|attempt| of_request(report, attempt))
}

/// No peer has refused a connection, and no time has run out: the program has ended before.
pub fn was_early(report: &Report) -> bool {
    let over = |attempt: &Attempt| OUTCOMES.contains(&attempt.what.as_str());
    !report.attempts.iter().any(over)
}

/// The program asked the same service again, and got what it wanted.
fn went_the_next_time(report: &Report, attempt: &Attempt) -> bool {
    report.attempts.iter().any(|other| {
        other.what == "answered"
            && other.ns > attempt.ns
            && (other.process, &other.service, &other.peer)
                == (attempt.process, &attempt.service, &attempt.peer)
    })
}

/// It had no answer yet when that was noted, but got one later.
fn was_answered(report: &Report, attempt: &Attempt) -> bool {
    let ends = |a: &Attempt| {
        (
            a.process,
            a.service.clone(),
            a.local.clone(),
            a.peer.clone(),
        )
    };
    report
        .attempts
        .iter()
        .any(|other| other.what == "answered" && ends(other) == ends(attempt))
}

fn wish(attempt: &Attempt) -> String {
    let peer = attempt.peer.as_deref().unwrap_or("the peer");
    let from = match &attempt.local {
        Some(local) => format!("{local} -> {peer}"),
        None => peer.to_owned(),
    };
    let space = attempt.service.split_whitespace().next();
    format!("{from} ({})", space.unwrap_or("RDMA CM"))
}

fn of_attempt(report: &Report, attempt: &Attempt) -> Story {
    let mut story = Story {
        what: format!(
            "{}: no connection {}: ",
            report.process(attempt.process),
            wish(attempt)
        ),
        ..Story::default()
    };
    match attempt.what.as_str() {
        "rejected" => rejected(report, attempt, &mut story),
        "datagrams refused" => datagrams_refused(report, attempt, &mut story),
        "address error" => address(attempt, &mut story),
        _ => unanswered(report, attempt, &mut story),
    }
    story
}

/// The side that was asked has not answered, or its answer was too late.
fn of_one_who_left(report: &Report, attempt: &Attempt) -> Story {
    let peer = attempt.peer.as_deref().unwrap_or("a client");
    let mut story = Story {
        what: format!(
            "{}: no connection with {peer}, which had asked for one: it went away before {}",
            report.process(attempt.process),
            match attempt.accepted == Some(true) {
                true => "the answer of rdma_accept reached it",
                false => "this program answered",
            }
        ),
        ..Story::default()
    };
    story.next.push(match attempt.accepted == Some(true) {
        true => "look at the client's output".to_owned(),
        false => "let the server take its events (rdma_get_cm_event) and answer each request by rdma_accept or rdma_reject"
            .to_owned(),
    });
    story
}

fn host(attempt: &Attempt) -> &str {
    let peer = attempt.peer.as_deref().unwrap_or("PEER");
    let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
    host.trim_matches(['[', ']'])
}

fn rejected(report: &Report, attempt: &Attempt, story: &mut Story) {
    let reason = attempt.reason.unwrap_or(0);
    let topic = catalogue::numbered(Kind::Reject, reason).next();
    story.what += &format!(
        "the peer rejected it, reason {reason}{}: RDMA_CM_EVENT_REJECTED",
        topic.map_or(String::new(), |topic| format!(" ({})", topic.text))
    );
    match reason {
        8 => {
            nobody_listens(report, attempt, story);
            story.next.push(
                "start the server before its clients; check port, port space and address of both"
                    .to_owned(),
            );
        }
        28 => {
            told(attempt, story);
            let other = asked_side(report, attempt, "other service");
            story.cause = match other {
                Some(side) => Some(other_service(report, side)),
                None => refused_by_program(report, attempt),
            };
            if other.is_none() {
                story
                    .next
                    .push("look at the server's output: why did it refuse?".to_owned());
            }
        }
        12 if asked_side(report, attempt, "partition").is_some() => {
            let side = asked_side(report, attempt, "partition");
            story.cause = side.map(no_partition);
            story.next.push(PARTITIONS.to_owned());
        }
        12 => {
            story.cause = Some(format!(
                "the peer's host answers, but says that {} is not one of its GIDs",
                host(attempt)
            ));
            for candidate in [
                "NAT or a router on the way",
                "a Soft-RoCE of the kernel there, whose interface is of another subnet",
            ] {
                story.candidates.push(candidate.to_owned());
            }
            story.next.push(format!(
                "on the peer: ibv_devinfo -v, or rnic devices: is {} among its GIDs?",
                host(attempt)
            ));
        }
        31 => {
            story.cause = Some(
                "the two connection managers speak different versions of the protocol (class version 2 is rnic's and Linux')"
                    .to_owned(),
            );
        }
        _ => told(attempt, story),
    }
    if story.cause.is_none() {
        story.cause = topic.map(|topic| topic.meaning.to_owned());
        let causes = topic.map_or(&[][..], |topic| topic.causes);
        story.candidates = causes.iter().map(|cause| (*cause).to_owned()).collect();
    }
    story.next.push(format!(
        "rnic explain rej {reason}      all causes of this reason"
    ));
}

/// What became of the request at the side that was asked, if that ran under `rnic run`, too.
fn fate<'a>(report: &'a Report, attempt: &Attempt) -> Option<&'a Attempt> {
    let mut sides = report.all(|report| &report.attempts);
    sides.rfind(|side| {
        side.what.starts_with("request")
            && side.peer.is_some()
            && (&side.local, &side.peer) == (&attempt.peer, &attempt.local)
    })
}

/// What the peer's program did to refuse it; `None`: that is not known.
fn refused_by_program(report: &Report, attempt: &Attempt) -> Option<String> {
    let side = fate(report, attempt)?;
    let whose = report.process(side.process);
    match side.what.as_str() {
        "request rejected" => Some(format!("the peer's program, {whose}, called rdma_reject")),
        "request unacceptable" => {
            let verbs = report.all(|report| &report.verbs);
            let why = verbs
                .filter(|verb| (verb.process, verb.verb.as_str()) == (side.process, "rdma_accept"))
                .find(|verb| verb.ns >= side.ns);
            let why = why.map_or(String::new(), |verb| format!(": {}", verb.reason));
            Some(format!(
                "the peer's program, {whose}, called rdma_accept, which was refused there, and the request with it{why}"
            ))
        }
        "request destroyed" => Some(format!(
            "the peer's program, {whose}, called rdma_destroy_id for the request, without rdma_accept or rdma_reject"
        )),
        "request ended" => Some(format!(
            "the peer's program, {whose}, ended, without rdma_accept or rdma_reject for the request"
        )),
        _ => None,
    }
}

/// Says so if the request had come to a program that did not answer it.
fn not_served(report: &Report, attempt: &Attempt) -> Option<String> {
    let side = fate(report, attempt).filter(|side| {
        let what = side.what.as_str();
        matches!(what, "request" | "request destroyed" | "request ended")
    })?;
    Some(format!(
        "the request had come to {} (RDMA_CM_EVENT_CONNECT_REQUEST), which had called neither rdma_accept nor rdma_reject \
         with success",
        report.process(side.process)
    ))
}

/// What the peer's application said.
fn told(attempt: &Attempt, story: &mut Story) {
    story.seen.push(match attempt.private_data.as_deref() {
        Some(data) if !data.is_empty() => format!("its private data says \"{data}\""),
        _ => "it came without private data".to_owned(),
    });
}

fn nobody_listens(report: &Report, attempt: &Attempt, story: &mut Story) {
    if let Some(side) = asked_side(report, attempt, "nobody listens") {
        story.seen.push(format!(
            "the request reached {}, where nobody listens for it",
            report.process(side.process)
        ));
    }
    match attempt.listeners.as_deref() {
        Some("") => story
            .seen
            .push("on this host nobody listens on any port of rdma_cm".to_owned()),
        Some(listeners) => story.seen.push(format!("listening now: {listeners}")),
        None => {}
    }
    story.cause = Some(format!(
        "nobody listens on {} at {}",
        attempt.service,
        host(attempt)
    ));
}

/// What the side that was asked noted.
fn asked_side<'a>(report: &'a Report, attempt: &Attempt, what: &str) -> Option<&'a Attempt> {
    report
        .attempts
        .iter()
        .rfind(|side| side.what == what && side.service == attempt.service && side.ns <= attempt.ns)
}

fn no_partition(side: &Attempt) -> String {
    format!(
        "its P_Key {:#06x} fits none of the peer's table, {}",
        side.asked_pkey.unwrap_or(0),
        side.pkeys.as_deref().unwrap_or("")
    )
}

fn other_service(report: &Report, side: &Attempt) -> String {
    format!(
        "the listener in {} is for queue pairs of type {}, the request was for {}",
        report.process(side.process),
        side.listener.as_deref().unwrap_or("other"),
        side.asked.as_deref().unwrap_or("others")
    )
}

fn datagrams_refused(report: &Report, attempt: &Attempt, story: &mut Story) {
    let status = attempt.status.unwrap_or(0);
    let topic = catalogue::numbered(Kind::Sidr, status).next();
    story.what += &format!(
        "the peer has no such service for datagrams, status {status}{}: RDMA_CM_EVENT_UNREACHABLE",
        topic.map_or(String::new(), |topic| format!(" ({})", topic.text))
    );
    match status {
        1 => nobody_listens(report, attempt, story),
        2 => {
            told(attempt, story);
            story.cause = refused_by_program(report, attempt)
                .or_else(|| topic.map(|topic| topic.meaning.to_owned()));
        }
        _ => story.cause = topic.map(|topic| topic.meaning.to_owned()),
    }
    story.next.push(format!(
        "rnic explain sidr {status}      all causes of this status"
    ));
}

fn unanswered(report: &Report, attempt: &Attempt, story: &mut Story) {
    let over = attempt.what == "unreachable";
    story.what += if over {
        "nobody answered: RDMA_CM_EVENT_UNREACHABLE, status -110"
    } else {
        "it was still waiting for an answer"
    };
    if let (Some(tries), Some(waited)) = (attempt.tries, attempt.waited_ns) {
        let times = match tries {
            1 => "once".to_owned(),
            tries => format!("{tries} times"),
        };
        let least = if over { "" } else { "at least " };
        story.seen.push(format!(
            "the request was sent {least}{times} in {}, by UDP to port 4791 of {}; nothing came back",
            seconds(waited),
            host(attempt)
        ));
    }
    if let Some(side) = asked_side(report, attempt, "partition") {
        story.cause = Some(format!(
            "the request reached {}, which dropped it: {}",
            report.process(side.process),
            no_partition(side)
        ));
        story.next.push(PARTITIONS.to_owned());
        return;
    }
    if attempt.peer_pid.is_none()
        && let Some(cause) = not_served(report, attempt)
    {
        story.cause = Some(cause);
        story.next.push(
            "let the server take its events (rdma_get_cm_event) and answer each request by rdma_accept or rdma_reject"
                .to_owned(),
        );
        return;
    }
    if let Some(pid) = attempt.peer_pid {
        let program = attempt.peer_program.as_deref().unwrap_or("a process");
        story.cause = Some(story::is_stopped(program, pid));
        story.next.push(story::go_on(pid));
        return;
    }
    let way = attempt.way_errno;
    let way = way.and_then(|error| of_way(host(attempt), error));
    if let (Some((cause, next)), true) = (&way, over) {
        story.cause = Some(cause.clone());
        story.next.extend(next.clone());
    } else {
        // Noted soon after the request, which may have waited much longer.
        story.seen.extend(way.map(|(said, _)| said));
        let several = match attempt.peer_here {
            Some(true) => {
                story
                    .seen
                    .push(format!("{} is an address of this host", host(attempt)));
                [
                    "the server has ended, or has not taken the request",
                    "it runs as another user, or in another network namespace",
                    "it does not use rnic",
                ]
            }
            _ => [
                "the host is down, or no process there uses RDMA",
                "a firewall blocks UDP port 4791 (there or back)",
                "the server takes no request from its event channel",
            ],
        };
        story.candidates.extend(several.map(str::to_owned));
    }
    story.next.push(format!(
        "ping {0}; on both hosts: tcpdump -ni any udp port 4791 and host {0}",
        host(attempt)
    ));
    story.next.push(
        "on the peer: rnic devices; ss -ulpn 'sport = 4791'      does anything listen there?"
            .to_owned(),
    );
    story
        .next
        .push("rnic explain RDMA_CM_EVENT_UNREACHABLE".to_owned());
}

fn address(attempt: &Attempt, story: &mut Story) {
    let errno = attempt.errno.unwrap_or(0);
    let topic = catalogue::numbered(Kind::Errno, errno).next();
    story.what += &format!(
        "the address did not resolve: RDMA_CM_EVENT_ADDR_ERROR, status -{errno}{}",
        topic.map_or(String::new(), |topic| format!(" ({})", topic.name))
    );
    story.cause = attempt.reason_text.clone().or_else(|| {
        topic.and_then(|topic| {
            topic
                .causes
                .iter()
                .find(|c| c.contains("rdma_resolve"))
                .map(|c| (*c).to_owned())
        })
    });
    story.next.push(format!(
        "rnic devices; ip route get {}; ping {}",
        host(attempt),
        host(attempt)
    ));
    story.next.push(format!("rnic explain errno {errno}"));
}

/// Requests came in, and were not taken.
fn of_request(report: &Report, side: &Attempt) -> Story {
    let from = side.from.as_deref().unwrap_or("somebody");
    let to = side.address.as_deref().unwrap_or("here");
    let count = report
        .attempts
        .iter()
        .filter(|other| (&other.what, &other.service) == (&side.what, &side.service))
        .count();
    let mut story = Story {
        what: format!(
            "{}: a request from {from} to {to}, {}, was refused",
            report.process(side.process),
            side.service
        ),
        ..Story::default()
    };
    if count > 1 {
        story.seen.push(format!("{count} such requests"));
    }
    story.cause = Some(match side.what.as_str() {
        "nobody listens" => format!("nobody listens on {} at {to}", side.service),
        "other service" => other_service(report, side),
        "partition" => {
            story.what = story
                .what
                .replace("was refused", "was dropped for its P_Key");
            story.next.push(PARTITIONS.to_owned());
            format!(
                "the P_Key {:#06x} of the request fits none of the table here, {}",
                side.asked_pkey.unwrap_or(0),
                side.pkeys.as_deref().unwrap_or("")
            )
        }
        "path mtu" => {
            let bytes = |mtu: Option<u32>| mtu.unwrap_or(0);
            return Story {
                cause: Some(format!(
                    "it asks for a path MTU of {} bytes; the interface here takes {}",
                    bytes(side.asked_mtu),
                    bytes(side.most_mtu)
                )),
                next: vec![
                    "give both interfaces the same MTU, or ask for a smaller path MTU there"
                        .to_owned(),
                    "rnic explain rej 26".to_owned(),
                ],
                ..story
            };
        }
        _ => {
            story.what = story
                .what
                .replace("was refused", "was dropped; the peer asks again");
            "the listener's backlog is full: the application takes its events too slowly, or asked for too small a one \
             (rdma_listen)"
                .to_owned()
        }
    });
    if let Some(listeners) = side.listeners.as_deref().filter(|text| !text.is_empty()) {
        story.seen.push(format!("listening now: {listeners}"));
    }
    story.next.push("rnic explain rej 8".to_owned());
    story
}
