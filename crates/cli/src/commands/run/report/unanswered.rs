//! Statuses 12 and 13: a peer that does not answer, or has no receive.

use super::Report;
use super::partitions::{PARTITIONS, partition_of};
use super::record::Failure;
use super::story::{Story, go_on, is_stopped, seconds};
use crate::text::count;

/// The PSN that the peer expects and the one at which this side began, if they differ and nothing was
/// ever acknowledged: as the peer's answers say, or as its own side of the run counted.
fn other_start(report: &Report, failure: &Failure) -> Option<(u32, u32)> {
    let request = failure
        .request
        .as_ref()
        .filter(|request| !request.answered)?;
    let told = || {
        let of_peer = report
            .dropped
            .iter()
            .filter(|dropped| dropped.cause == "start psn");
        let mut of_peer = of_peer.filter(|dropped| dropped.ends.is_opposite(&failure.ends));
        of_peer.find_map(|dropped| dropped.expected_psn)
    };
    let expects = request.peer_expects_psn.or_else(told)?;
    (expects != request.start_psn).then_some((expects, request.start_psn))
}

/// Status 12: gone, not ready, packets lost, or answers lost.
pub fn unanswered(report: &Report, failure: &Failure, faults: bool, story: &mut Story) {
    let (heard, answered) = match &failure.request {
        Some(request) => {
            let answers = match (request.heard, failure.vendor_err) {
                (0, _) => "nothing came back".to_owned(),
                (n, _) => format!("{} came back, but not the answer", count(n, "packet")),
            };
            let ever = match (request.heard_ever, request.answered) {
                (0, _) => "the peer's queue pair has never answered",
                (_, false) => "no request of this connection was ever acknowledged",
                (_, true) => "it had acknowledged earlier ones",
            };
            story.seen.push(format!(
                "PSN {:#08x} was sent {} in {}; {answers}; {ever}",
                request.psn,
                count(request.tries.max(1).into(), "time"),
                seconds(request.waited_ns)
            ));
            (request.heard, u64::from(request.answered))
        }
        None => (0, 0),
    };
    if let Some(bytes) = failure.path_bytes {
        story.seen.push(format!(
            "ICMP messages said that the way takes IP packets of {bytes} bytes; full ones of this connection are longer \
             (hardware heeds no ICMP, nor does rnic, since anybody can forge it)"
        ));
        story.next.push(
            "if no larger packets get through, give the interface that MTU, or ask for a smaller path MTU".to_owned(),
        );
    }
    if let Some((expects, began)) = other_start(report, failure) {
        story.cause = Some(format!(
            "the start PSNs differ: the peer expects PSN {expects:#x}, this side began at {began:#x}: rq_psn there must be sq_psn here"
        ));
        story.next.push(
            "give each side's sq_psn (ibv_modify_qp to RTS) to the other as its rq_psn (to RTR)"
                .to_owned(),
        );
        return;
    }
    let peer_qpn = failure.ends.peer_qpn.unwrap_or(0);
    let stopped_ns = failure
        .request
        .as_ref()
        .map_or(0, |request| request.stopped_ns);
    let failed_itself = report
        .failures
        .iter()
        .map(|f| (&f.ends, f.ns, f.process))
        .chain(report.refusals.iter().map(|r| (&r.ends, r.ns, r.process)))
        .find(|(ends, ns, _)| ends.is_opposite(&failure.ends) && *ns < failure.ns);
    let peer = failure.peer_process.as_deref().unwrap_or("unknown");
    let partition = partition_of(report, failure);
    let cause = if let Some((_, _, process)) = failed_itself {
        format!(
            "the peer's queue pair, of {}, had failed itself before: look there first",
            report.process(process)
        )
    } else if let Some(partition) = &partition {
        partition.clone()
    } else {
        match (peer, heard, answered) {
            ("stopped", ..) => is_stopped(
                failure.peer_program.as_deref().unwrap_or("a process"),
                failure.peer_pid.unwrap_or(0),
            ),
            ("gone", ..) if stopped_ns > 0 => format!(
                "the peer process has ended after it was stopped for {} (SIGSTOP, a debugger's breakpoint, Ctrl-Z): no \
                 process of this user on this host has QP {peer_qpn:#x} now",
                seconds(stopped_ns)
            ),
            ("gone", ..) => format!(
                "the peer process has ended: no process of this user on this host has QP {peer_qpn:#x} now"
            ),
            ("own, not connected", ..) => {
                "the peer is a queue pair of this very process that is destroyed, or was never moved to RTR".to_owned()
            }
            ("own, in error", ..) => "the peer is a queue pair of this very process that is in ERR".to_owned(),
            ("alive" | "own", _, 0) => {
                "the peer process runs, but its queue pair does not answer: not in RTR yet, another QPN, another \
                 start PSN (its rq_psn must be this side's sq_psn), another type (RC, UC), or it expects another address"
                    .to_owned()
            }
            ("alive" | "own", 0, _) => {
                "the peer process runs, but its queue pair fell silent: destroyed, reset, or in ERR".to_owned()
            }
            (_, 1.., _) => "packets get through in part: they are lost on the way there or back".to_owned(),
            (_, _, 0) => {
                "host unreachable, UDP port 4791 blocked by a firewall, a wrong GID or QPN, or the peer's queue pair \
                 is not in RTR yet"
                    .to_owned()
            }
            _ => {
                "the peer's process has ended or is stopped (a debugger's breakpoint, Ctrl-Z), or its queue pair is \
                 destroyed or in ERR; or the network broke"
                    .to_owned()
            }
        }
    };
    story.cause = Some(match faults {
        true => format!("{cause}. Mind that --faults damages what this side sends"),
        false => cause,
    });
    story.next.push(match peer {
        _ if partition.is_some() => PARTITIONS.to_owned(),
        "stopped" => go_on(failure.peer_pid.unwrap_or(0)),
        "gone" => "see how the peer ended; a side that is done should wait for the other before it leaves".to_owned(),
        "alive" | "own" | "own, not connected" | "own, in error" => {
            "connect both sides (RTR) before either sends; compare QPN, PSN and GID as both sides have them".to_owned()
        }
        _ => format!(
            "ping {}; tcpdump -ni any udp port 4791 on both hosts",
            failure.ends.peer.as_deref().unwrap_or("PEER")
        ),
    });
}

/// Status 13: no receive.
pub fn not_ready(failure: &Failure, story: &mut Story) {
    if let Some(request) = &failure.request {
        story.seen.push(format!(
            "the peer answered {} within {} that it has no receive posted (RNR NAK)",
            count(request.tries.max(1).into(), "time"),
            seconds(request.waited_ns)
        ));
    }
    story.cause = Some("the peer posts its receives too late or too few".to_owned());
    story.next.push(
        "post receives before the sender starts, or set rnr_retry to 7, which waits for ever"
            .to_owned(),
    );
}
