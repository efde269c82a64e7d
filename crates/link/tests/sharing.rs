//! Many processes on one port: everybody gets his own packets, whoever comes, goes, or is killed.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use crate::common::{Agent, PATIENCE, flood, isolated, isolated_if_possible, now_ns};
use rnic_link::{LinkConfig, RoceLink};

const LO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn handed_over(agents: &mut [Agent]) -> u64 {
    agents.iter_mut().map(|a| a.counter("rx_handed_over")).sum()
}

/// Everybody sends to everybody, one after the other, and everything arrives.
fn all_to_all(agents: &mut [Agent], count: u32, len: usize) {
    for to in 0..agents.len() {
        let qpn = agents[to].qpn + to as u32;
        for (i, agent) in agents.iter_mut().enumerate() {
            agent.send(LO, LO, qpn, i as u32 * count, count, len);
        }
        let all = agents.len() as u32 * count;
        agents[to].expect(LO, qpn, 0, all);
    }
}

/// Sends until packets go straight to their processes, which must happen.
fn until_steered(agents: &mut [Agent]) {
    let start = Instant::now();
    loop {
        let before = handed_over(agents);
        all_to_all(agents, 2, 100);
        if handed_over(agents) == before {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "packets are still handed over");
        for agent in agents.iter_mut() {
            agent.ask("settle");
        }
    }
}

#[test]
fn eight_at_once_each_get_their_own() {
    if !isolated_if_possible("sharing::eight_at_once_each_get_their_own") {
        return;
    }
    let mut agents: Vec<Agent> = (0..8).map(|_| Agent::start(&[])).collect();
    let mut ranges: Vec<u32> = agents.iter().map(|a| a.qpn >> 12).collect();
    ranges.sort_unstable();
    ranges.dedup();
    assert_eq!(ranges.len(), 8, "QPN ranges overlap");
    all_to_all(&mut agents, 20, 1040);
    // All eight send at the same time.
    let targets: Vec<u32> = agents.iter().map(|a| a.qpn + 9).collect();
    for (i, agent) in agents.iter_mut().enumerate() {
        let to = targets[(i + 1) % targets.len()];
        agent.tell(&format!("send {LO} {LO} {to} 0 500 300"));
    }
    for agent in &mut agents {
        assert_eq!(agent.wait(), ["ok"]);
    }
    for (agent, qpn) in agents.iter_mut().zip(targets) {
        agent.expect(LO, qpn, 0, 500);
        assert_eq!(agent.counter("rx_bad_icrc"), 0);
    }
}

#[test]
fn packets_are_steered_and_not_handed_over() {
    if !isolated("sharing::packets_are_steered_and_not_handed_over") {
        return;
    }
    let mut agents: Vec<Agent> = (0..5).map(|_| Agent::start(&[])).collect();
    all_to_all(&mut agents, 100, 1040);
    assert_eq!(handed_over(&mut agents), 0);
    // One that leaves in good order: the last of the group moves to its slot, and finds out by
    // itself.
    drop(agents.remove(1));
    until_steered(&mut agents);
    // One that comes.
    agents.push(Agent::start(&[]));
    until_steered(&mut agents);
    // A second range of the same process.
    let more: u32 = agents[2].ask("claim")[0].parse().unwrap();
    agents[0].send(LO, LO, more + 1, 0, 100, 64);
    agents[2].expect(LO, more + 1, 0, 100);
    until_steered(&mut agents);
}

#[test]
fn a_killed_process_harms_nobody() {
    if !isolated("sharing::a_killed_process_harms_nobody") {
        return;
    }
    let mut agents: Vec<Agent> = (0..4).map(|_| Agent::start(&[])).collect();
    all_to_all(&mut agents, 10, 200);
    let dead = agents.remove(1);
    let dead_qpn = dead.qpn;
    // In the middle of a transfer.
    agents[0].tell(&format!("send {LO} {LO} {} 0 2000 1040", dead_qpn + 3));
    dead.kill();
    assert_eq!(agents[0].wait(), ["ok"]);
    all_to_all(&mut agents, 50, 200);
    until_steered(&mut agents);
    // To the dead: counted by whoever gets it, nothing else.
    agents[0].send(LO, LO, dead_qpn, 0, 5, 100);
    until_steered(&mut agents);
    let unknown: u64 = agents.iter_mut().map(|a| a.counter("rx_unknown_qpn")).sum();
    assert!(unknown >= 5, "{unknown}");
    // Its range is free again: newcomers get all ranges in turn, and after a round that one too.
    let start = Instant::now();
    let mut newcomer = Agent::start(&[]);
    assert_ne!(
        newcomer.qpn, dead_qpn,
        "a dead process's QPNs are used again at once"
    );
    loop {
        let claimed: u32 = newcomer.ask("claim")[0].parse().unwrap();
        if claimed == dead_qpn {
            break;
        }
        assert!(
            agents.iter().all(|a| a.qpn != claimed),
            "a live range was given out"
        );
        assert!(start.elapsed() < PATIENCE);
    }
    agents[0].send(LO, LO, dead_qpn + 8, 0, 50, 500);
    newcomer.expect(LO, dead_qpn + 8, 0, 50);
}

#[test]
fn wrongly_steered_packets_are_handed_over() {
    if !isolated("sharing::wrongly_steered_packets_are_handed_over") {
        return;
    }
    let mut agents: Vec<Agent> = (0..3).map(|_| Agent::start(&[])).collect();
    all_to_all(&mut agents, 10, 200);
    assert_eq!(handed_over(&mut agents), 0);
    for slot in [0, 1, 2, u32::MAX] {
        let before = handed_over(&mut agents);
        // Long runs, short packets, and an odd tail: all of it is handed over, and ICRCs hold
        // behind them.
        for (count, len) in [(1, 12), (60, 1040), (7, 4100)] {
            agents[0].ask(&format!("steer {slot}"));
            all_to_all(&mut agents, count, len);
        }
        assert!(handed_over(&mut agents) > before, "slot {slot}");
        until_steered(&mut agents);
    }
    for agent in &mut agents {
        assert_eq!(agent.counter("rx_bad_icrc"), 0);
        assert_eq!(agent.counter("rx_truncated"), 0);
        assert!(agent.counter("rx_adopted") > 0);
    }
}

/// How many packets to a QPN are in a capture.
fn captured(file: &Path, qpn: u32) -> usize {
    let bytes = std::fs::read(file).expect("a capture");
    let (mut rest, mut count) = (&bytes[24..], 0);
    while !rest.is_empty() {
        let len = u32::from_ne_bytes(rest[8..12].try_into().expect("four bytes")) as usize;
        // Behind the record's header and that of LINUX_SLL.
        let ip = &rest[16 + 16..16 + len];
        let (_, packet) = rnic_wire::ip::IpUdp::parse(ip).expect("an IP packet");
        count += usize::from(packet[5..8] == qpn.to_be_bytes()[1..]);
        rest = &rest[16 + len..];
    }
    count
}

#[test]
fn what_another_process_took_in_is_in_the_capture_once() {
    if !isolated("sharing::what_another_process_took_in_is_in_the_capture_once") {
        return;
    }
    let file = |name: &str| {
        std::env::temp_dir().join(format!("rnic-link-{name}-{}.pcap", std::process::id()))
    };
    let (own, others) = (file("own"), file("others"));
    let option = |file: &Path| format!("PCAP={}", file.display());
    for astray in [None, Some(&others), Some(&own)] {
        let mut agents = [
            Agent::start(&[&option(&own)]),
            Agent::start(&[&astray.map_or("no_gso".into(), |file| option(file))]),
            Agent::start(&[]),
        ];
        let qpn = agents[0].qpn + 1;
        agents[2].ask("steer 1");
        agents[2].send(LO, LO, qpn, 0, 20, 200);
        agents[0].expect(LO, qpn, 0, 20);
        assert!(agents[1].counter("rx_handed_over") > 0);
        drop(agents);
        assert_eq!(captured(&own, qpn), 20, "{astray:?}");
        for file in [&own, &others] {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Interfaces `rn0` and `rn1`, joined, both in this namespace; what leaves by the one comes in by
/// the other as if from another host. `None`: there is no `ip` here.
fn veth() -> Option<(IpAddr, String)> {
    let ip = |words: &str| {
        let status = Command::new("ip").args(words.split(' ')).status();
        status.is_ok_and(|status| status.success())
    };
    if !ip("link add rn0 type veth peer name rn1") {
        return None;
    }
    for words in [
        "addr add 10.77.0.1/24 dev rn0",
        "addr add 10.77.0.2/24 dev rn1",
        "link set rn0 up",
        "link set rn1 up",
    ] {
        assert!(ip(words), "ip {words}");
    }
    for (option, value) in [("accept_local", "1"), ("rp_filter", "0")] {
        let path = format!("/proc/sys/net/ipv4/conf/rn0/{option}");
        std::fs::write(path, value).expect("own namespace");
    }
    let ifindex = std::fs::read_to_string("/sys/class/net/rn0/ifindex").ok();
    // /sys may be that of another namespace.
    let ifindex = ifindex.or_else(|| {
        let out = Command::new("ip")
            .args(["-o", "link", "show", "rn0"])
            .output();
        let text = String::from_utf8(out.ok()?.stdout).ok()?;
        Some(text.split(':').next()?.to_owned())
    })?;
    Some(("10.77.0.2".parse().ok()?, ifindex.trim().to_owned()))
}

/// Linux gives the one copy for a socket that is a group's only member to whatever process steering
/// names, with which it may end: see `groups`.
#[test]
fn the_only_member_of_a_group_gets_what_comes_to_others() {
    if !isolated("sharing::the_only_member_of_a_group_gets_what_comes_to_others") {
        return;
    }
    let Some((sender, ifindex)) = veth() else {
        rnic_skip::skipped("the only member of a group", "no `ip` with veth here");
        return;
    };
    let group: IpAddr = "239.7.7.1".parse().unwrap();
    let all = 0xff_ffff;
    let mut agents: Vec<Agent> = (0..4).map(|_| Agent::start(&[])).collect();
    assert_eq!(agents[2].ask(&format!("join {group} {ifindex}")), ["ok"]);
    for slot in [0, 1, 2, 3, u32::MAX] {
        agents[0].ask(&format!("steer {slot}"));
        agents[3].send(sender, group, all, 0, 20, 500);
        agents[2].expect(sender, all, 0, 20);
    }
    assert_eq!(
        handed_over(&mut agents),
        0,
        "came to those who are not members"
    );
    // Two members have a copy each, whoever is steered to.
    let group: IpAddr = "239.7.7.2".parse().unwrap();
    for member in [1, 2] {
        let join = format!("join {group} {ifindex}");
        assert_eq!(agents[member].ask(&join), ["ok"]);
    }
    agents[0].ask("steer 3");
    let before = handed_over(&mut agents);
    agents[3].send(sender, group, all, 0, 20, 500);
    agents[1].expect(sender, all, 0, 20);
    agents[2].expect(sender, all, 0, 20);
    assert_eq!(handed_over(&mut agents), before);
    for agent in &mut agents {
        assert_eq!(agent.counter("rx_unknown_qpn"), 0);
        assert_eq!(agent.ask("total"), ["0"]);
    }
}

#[test]
fn a_forked_child_gives_up_its_copies_and_harms_nobody() {
    if !isolated("sharing::a_forked_child_gives_up_its_copies_and_harms_nobody") {
        return;
    }
    let mut agents: Vec<Agent> = (0..2).map(|_| Agent::start(&[])).collect();
    all_to_all(&mut agents, 5, 100);
    agents[0].ask("fork");
    all_to_all(&mut agents, 5, 100);
    assert_eq!(handed_over(&mut agents), 0);
    // Neither its range nor its socket was given away.
    let third = Agent::start(&[]);
    assert!(agents.iter().all(|a| a.qpn != third.qpn));
    agents[0].ask("steer 1");
    let qpn = agents[0].qpn;
    agents[1].send(LO, LO, qpn, 0, 5, 100);
    agents[0].expect(LO, qpn, 0, 5);
}

#[test]
fn a_port_taken_by_others_is_explained() {
    if !isolated("sharing::a_port_taken_by_others_is_explained") {
        return;
    }
    // Does not share the port, so it is as foreign as another user's.
    let _other = std::net::UdpSocket::bind("0.0.0.0:4791").unwrap();
    let Err(error) = RoceLink::open(&LinkConfig::default()) else {
        panic!("opened");
    };
    let text = error.to_string();
    assert!(
        text.contains("UDP port 4791 is taken by a program of"),
        "{text}"
    );
    assert!(text.contains("ss -ulnp"), "{text}");
}

/// Who ends receives first what is for others; that ends, too, whatever comes meanwhile, and the
/// others can go on: a process that comes waits for the same lock.
#[test]
fn a_flood_keeps_nobody_from_ending() {
    if !isolated("sharing::a_flood_keeps_nobody_from_ending") {
        return;
    }
    let open = || RoceLink::open(&LinkConfig::default()).expect("open a link");
    let (mut link, start) = (open(), Instant::now());
    let qpn = link.qpn_ranges()[0].first;
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..2 {
        let stop = stop.clone();
        thread::spawn(move || flood(LO, qpn, &stop));
    }
    while link.counters().rx_bad_icrc < 100_000 {
        link.receive(now_ns(start), 256, true, &mut |_| {});
        assert!(start.elapsed() < PATIENCE, "{:?}", link.counters());
    }
    let (sender, ended) = channel();
    thread::spawn(move || {
        drop(link);
        drop(open());
        let _ = sender.send(());
    });
    let end = ended.recv_timeout(PATIENCE);
    stop.store(true, Ordering::Relaxed);
    end.expect("the end, and another begin and end");
}
