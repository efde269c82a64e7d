//! Statuses 12 and 13: a peer that does not answer, or has no receive.

use std::net::IpAddr;

use super::injected::Injected;
use super::partitions::{PARTITIONS, partition_of};
use super::peer::{self, Peer};
use super::record::{Ends, Failure, Left};
use super::story::{Story, go_on, is_stopped, seconds};
use super::{Report, named};
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
            .all(|report| &report.dropped)
            .filter(|dropped| dropped.cause == "start psn");
        let mut of_peer = of_peer.filter(|dropped| dropped.ends.is_opposite(&failure.ends));
        of_peer.find_map(|dropped| dropped.expected_psn)
    };
    let expects = request.peer_expects_psn.or_else(told)?;
    (expects != request.start_psn).then_some((expects, request.start_psn))
}

/// Status 12: gone, not ready, packets lost, or answers lost.
pub fn unanswered(report: &Report, failure: &Failure, faults: bool, story: &mut Story) {
    if let Some(request) = &failure.request {
        let answers = match request.heard {
            0 => "nothing came back".to_owned(),
            n => format!("{} came back, but not the answer", count(n, "packet")),
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
    }
    if let Some(bytes) = failure.path_bytes {
        story.seen.push(format!(
            "ICMP messages said that the way takes IP packets of {bytes} bytes; full ones of this connection are longer \
             (hardware heeds no ICMP, nor does rnic, since anybody can forge it)"
        ));
        story.next.push(
            "if no larger packets get through, give the interface that MTU, or ask for a smaller path MTU".to_owned(),
        );
    }
    if failure.ends.is_loop() {
        story.seen.push(LOOP.to_owned());
    }
    match known(report, failure) {
        Some((cause, next)) => {
            story.cause = Some(cause);
            story.next.extend(next);
        }
        None => {
            if faults {
                story.candidates.extend(faults_may_be_why(report, failure));
            }
            guess(report, failure, story);
        }
    }
}

/// What `--faults` did to the packets of this side, and of others of this run, of which the peer may
/// be one.
fn faults_may_be_why(report: &Report, failure: &Failure) -> impl Iterator<Item = String> {
    let own = Injected::of_process(report, failure.process);
    let all = Injected::of_all(report);
    let own_words = own.words().filter(|_| own.harmed());
    let all_words = all.words().filter(|_| all.harmed() && all != own);
    let own_words = own_words.map(|words| format!("--faults: {words}, of this side"));
    let all_words = all_words.map(|words| format!("--faults: {words}, of both sides"));
    own_words.into_iter().chain(all_words)
}

/// A connection of one queue pair with itself, which is allowed, and seldom meant.
pub const LOOP: &str = "the queue pair is connected with itself: its dest_qp_num is its own number";

/// What to do about sides that do not fit.
const CONNECT: &str = "connect both sides (RTR) before either sends; compare QPN, PSN and GID as both sides have them";

/// What to do about a peer that is no more.
const ENDED: &str =
    "see how the peer ended; a side that is done should wait for the other before it leaves";

/// A cause, and what to do.
type Cause = (String, Option<String>);

fn with(cause: String, next: &str) -> Option<Cause> {
    Some((cause, Some(next.to_owned())))
}

/// The cause, where the evidence of this side, of the peer's, or of the kernel leaves no doubt.
fn known(report: &Report, failure: &Failure) -> Option<Cause> {
    if let Some((expects, began)) = other_start(report, failure) {
        if failure.ends.is_loop() {
            return with(
                format!(
                    "the queue pair is connected with itself, as its dest_qp_num is its own number; there it expects PSN \
                     {expects:#x}, and began at {began:#x}"
                ),
                "give the number of the peer's queue pair as dest_qp_num (ibv_modify_qp to RTR); if the loop is meant, the \
                 same PSN as rq_psn and sq_psn",
            );
        }
        return with(
            format!(
                "the start PSNs differ: the peer expects PSN {expects:#x}, this side began at {began:#x}: rq_psn there must be \
                 sq_psn here"
            ),
            "give each side's sq_psn (ibv_modify_qp to RTS) to the other as its rq_psn (to RTR)",
        );
    }
    if let Some(partition) = partition_of(report, failure) {
        return with(partition, PARTITIONS);
    }
    let injected = Injected::of_process(report, failure.process);
    if injected.dropped_all() {
        return with(
            "--faults dropped every packet that this side sent".to_owned(),
            "inject fewer faults (--faults), or none",
        );
    }
    if let Some(cause) = too_long_for_interface(failure) {
        return with(
            cause,
            "give interface and route an MTU that fits, or both sides a smaller path_mtu (ibv_modify_qp to RTR)",
        );
    }
    if let Some(process) = failed_itself(report, failure) {
        let process = report.process(process);
        let cause = format!(
            "the peer's queue pair, of {process}, had failed itself before: look there first"
        );
        return Some((cause, None));
    }
    let state = failure.peer_process.as_deref().unwrap_or("unknown");
    if state == "stopped" {
        let program = failure.peer_program.as_deref().unwrap_or("a process");
        let pid = failure.peer_pid.unwrap_or(0);
        return Some((is_stopped(program, pid), Some(go_on(pid))));
    }
    let peer = peer::of(report, failure);
    // Its queue pair went with it.
    let went = |left: &Left| state == "gone" && left.how == "destroyed";
    if peer.left.is_some_and(went) {
        return with(ended(report, failure, &peer, state)?, ENDED);
    }
    if let Some((cause, next)) = peer.does_not_fit(report, failure) {
        return with(cause, next);
    }
    if let Some((program, pid)) = stopped_elsewhere(report, &peer) {
        return Some((is_stopped(program, pid), Some(go_on(pid))));
    }
    let addresses = failure.ends.local.as_ref().zip(failure.ends.peer.as_ref());
    if let Some((local, remote)) = addresses
        && is_loopback(local)
        && !is_loopback(remote)
        && state == "elsewhere"
    {
        return with(
            format!(
                "this side's GID is {local}, a loopback address, and {remote} is not of this host: no packet from {local} \
                 leaves it"
            ),
            "choose the GID of an address at which the peer can answer (`rnic devices`; sgid_index)",
        );
    }
    if let Some(cause) = ended(report, failure, &peer, state) {
        return with(cause, ENDED);
    }
    match state {
        "own, in error" => with(
            "the peer is a queue pair of this very process that is in ERR".to_owned(),
            CONNECT,
        ),
        "elsewhere" => of_way(failure.ends.peer.as_deref()?, failure.way_errno?),
        _ => None,
    }
}

/// The peer is in another network namespace, and stopped. Of a process number in another process
/// namespace nothing follows, so that its name has to fit.
fn stopped_elsewhere<'a>(report: &'a Report, peer: &Peer<'_>) -> Option<(&'a str, u32)> {
    let connected = peer.connected?.process;
    let process = report
        .all(|report| &report.processes)
        .find(|process| process.id == connected)?;
    let name = rnic_sys::process::name(process.pid)?;
    let is_it = process.program.starts_with(&name);
    (is_it && rnic_nic::is_stopped(process.pid)).then_some((&process.program, process.pid))
}

/// The longest packet of the request leaves by neither interface nor route of this host.
fn too_long_for_interface(failure: &Failure) -> Option<String> {
    /// UDP, BTH and ICRC.
    const ALWAYS: u64 = 8 + 12 + 4;
    const RETH: u64 = 16;
    let takes = failure.interface_bytes?;
    let request = failure.request.as_ref()?;
    let path_mtu = failure.path_mtu?;
    let more = match failure.operation.as_str() {
        "SEND" => 0,
        "RDMA WRITE" => RETH,
        _ => return None,
    };
    let ip = match failure.ends.peer.as_deref()?.contains(':') {
        true => 40,
        false => 20,
    };
    let packet = request
        .length
        .min(path_mtu)
        .saturating_add(ip + ALWAYS + more);
    (packet > takes).then(|| {
        format!(
            "interface or route here takes IP packets of {takes} bytes, and those of this request have {packet} \
             (path_mtu {path_mtu}): the kernel refuses to send them (EMSGSIZE)"
        )
    })
}

/// The peer's process whose queue pair failed before. Of two that wait for each other neither is
/// the cause.
fn failed_itself(report: &Report, failure: &Failure) -> Option<u64> {
    let before = |ends: &Ends, ns: u64| {
        ends.is_opposite(&failure.ends) && (failure.since_ns..failure.ns).contains(&ns)
    };
    let mut failures = report.all(|report| &report.failures);
    let failed = failures.find(|f| before(&f.ends, f.ns) && f.status != failure.status);
    let mut refusals = report.all(|report| &report.refusals);
    let mut refused = || refusals.find(|r| before(&r.ends, r.ns));
    failed
        .map(|f| f.process)
        .or_else(|| refused().map(|r| r.process))
}

/// The peer's process is no more.
fn ended(report: &Report, failure: &Failure, peer: &Peer<'_>, state: &str) -> Option<String> {
    let qpn = failure.ends.peer_qpn.unwrap_or(0);
    let connected = peer.connected.map(|c| c.process);
    let request = failure.request.as_ref();
    let stopped_ns = request.map_or(0, |request| request.stopped_ns);
    let was_there = connected.is_some() || request.is_some_and(|r| r.heard_ever > 0);
    let name = connected.map_or(String::new(), |process| {
        format!(", {},", report.process(process))
    });
    match state {
        "gone" if stopped_ns > 0 => Some(format!(
            "the peer process{name} has ended after it was stopped for {} (SIGSTOP, a debugger's breakpoint, Ctrl-Z): no \
             process of this user on this host has QP {qpn:#x} now",
            seconds(stopped_ns)
        )),
        "gone" if was_there => Some(format!(
            "the peer process{name} has ended: no process of this user on this host has QP {qpn:#x} now"
        )),
        "elsewhere" if connected.is_some_and(|process| report.has_ended(process)) => {
            Some(format!("the peer process{name} has ended"))
        }
        _ => None,
    }
}

/// What the kernel or ICMP said while no answer came, and what to do.
pub fn of_way(peer: &str, error: u32) -> Option<Cause> {
    let (cause, next) = match error.cast_signed() {
        libc::ECONNREFUSED => (
            format!(
                "ICMP says that nothing takes UDP port 4791 at {peer}: no process of that host uses RDMA over it (a firewall \
                 that rejects says the same)"
            ),
            "on the peer: rnic devices; ss -ulpn 'sport = 4791'      does anything listen there?"
                .to_owned(),
        ),
        libc::EHOSTUNREACH => (
            format!("{peer} cannot be reached: ICMP or this host's kernel says so (EHOSTUNREACH)"),
            format!("ping {peer}; ip neigh show {peer}"),
        ),
        libc::ENETUNREACH => (
            format!("no route leads to {peer} (ENETUNREACH)"),
            format!("ip route get {peer}"),
        ),
        libc::EPERM | libc::EACCES => (
            format!("this host's own firewall lets nothing out to UDP port 4791 of {peer}"),
            "nft list ruleset; iptables -L OUTPUT".to_owned(),
        ),
        _ => return None,
    };
    Some((cause, Some(next)))
}

/// An address that means its own host, wherever it is said.
fn is_loopback(address: &str) -> bool {
    address
        .parse::<IpAddr>()
        .is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// What it may have been: no more than that is known.
fn guess(report: &Report, failure: &Failure, story: &mut Story) {
    let request = failure.request.as_ref();
    let heard = request.is_some_and(|request| request.heard > 0);
    let answered = request.is_some_and(|request| request.answered);
    let remote = failure.ends.peer.as_deref().unwrap_or("PEER");
    let state = failure.peer_process.as_deref().unwrap_or("unknown");
    let lost = "packets are lost on the way there or back";
    let Story {
        seen, candidates, ..
    } = story;
    if heard {
        candidates.push(lost.to_owned());
    }
    match state {
        "gone" => nobody_has(failure, seen, candidates),
        "alive" | "own" => {
            of_living_peer(report, failure, seen, candidates);
            if candidates.is_empty() {
                candidates.push(lost.to_owned());
            }
        }
        "own, not connected" => candidates.push(
            "the peer is a queue pair of this very process that is destroyed, was never moved to RTR, or is of type UD"
                .to_owned(),
        ),
        // Its side is known, and fits.
        _ if peer::of(report, failure).connected.is_some() => {
            if candidates.is_empty() {
                candidates.push(lost.to_owned());
            }
        }
        _ => {
            // What has answered once is there, and takes this queue pair for its peer.
            let ever = answered || request.is_some_and(|request| request.heard_ever > 0);
            let several = match ever {
                true => &[
                    "the peer's process has ended or is stopped (a debugger's breakpoint, Ctrl-Z)",
                    "its queue pair is destroyed or in ERR",
                    "the network broke",
                ][..],
                false => &[
                    "the host is down, or a firewall drops UDP port 4791 (there or back)",
                    "a wrong GID or QPN",
                    "the peer's queue pair is not in RTR yet, or its process has ended",
                    "the peer's queue pair has another peer (its dest_qp_num or GID), is of another type (qp_type), or is in \
                     another partition (pkey_index)",
                ],
            };
            candidates.extend(several.iter().map(|text| (*text).to_owned()));
        }
    }
    story.next.push(match state {
        "gone" | "alive" | "own" | "own, not connected" => CONNECT.to_owned(),
        _ => format!("ping {remote}; tcpdump -ni any udp port 4791 on both hosts"),
    });
}

/// The peer's address is one of this host, and the number nobody's.
fn nobody_has(failure: &Failure, seen: &mut Vec<String>, candidates: &mut Vec<String>) {
    let qpn = failure.ends.peer_qpn.unwrap_or(0);
    let remote = failure.ends.peer.as_deref().unwrap_or("PEER");
    seen.push(format!(
        "{remote} is an address of this host, and no process of this user here has QP {qpn:#x}"
    ));
    if is_loopback(remote) {
        candidates.push("the peer is on another host, and gave its loopback GID".to_owned());
    }
    candidates.push("a wrong QPN: compare dest_qp_num with the peer's number".to_owned());
    candidates.push("the peer's process has ended, or is of another user".to_owned());
}

/// The process that has the peer's number is there.
fn of_living_peer(
    report: &Report,
    failure: &Failure,
    seen: &mut Vec<String>,
    candidates: &mut Vec<String>,
) {
    let peer = peer::of(report, failure);
    if let (Some(pid), Some(program)) = (failure.peer_pid, &failure.peer_program) {
        seen.push(format!(
            "QP {:#x} is of the numbers of {}, which runs",
            failure.ends.peer_qpn.unwrap_or(0),
            named(program, pid)
        ));
    }
    if let Some(left) = peer.left {
        candidates.push(format!(
            "{} took its queue pair down {} before",
            report.process(left.process),
            seconds(failure.ns.saturating_sub(left.ns))
        ));
    }
    // Its side is known, and fits.
    if peer.connected.is_some() {
        return;
    }
    let answered = failure.request.as_ref().is_some_and(|r| r.answered);
    let several = match answered {
        true => &["its queue pair was destroyed, reset, or is in ERR"][..],
        false => &[
            "its queue pair is not in RTR yet, or was taken down",
            "another QPN, GID or type of queue pair (RC, UC) there or here",
            "another start PSN (its rq_psn must be this side's sq_psn)",
        ],
    };
    candidates.extend(several.iter().map(|text| (*text).to_owned()));
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
