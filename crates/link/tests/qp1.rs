//! QP 1 of a host with many processes: requests reach who listens, answers whose id they name,
//! whoever comes, goes, or is killed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use crate::common::{Agent, PATIENCE, isolated};
use rnic_host::QP1;
use rnic_host::qp1::ID_BITS;

const LO: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LO6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn agents<const N: usize>() -> [Agent; N] {
    std::array::from_fn(|_| Agent::start(&[]))
}

/// A communication id of the agent.
fn id_of(agent: &Agent, count: u32) -> u32 {
    (agent.qpn >> 12) << ID_BITS | count
}

fn total(agents: &mut [Agent], counter: &str) -> u64 {
    agents.iter_mut().map(|a| a.counter(counter)).sum()
}

/// Asks until it is so.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}");
    }
}

fn kept(agents: &mut [Agent]) -> u32 {
    let total = |agent: &mut Agent| agent.ask("total")[0].parse::<u32>().unwrap();
    agents.iter_mut().map(total).sum()
}

fn ok(agent: &mut Agent, command: &str) {
    assert_eq!(agent.ask(command), ["ok"], "{command}");
}

#[test]
fn requests_reach_who_listens() {
    if !isolated("qp1::requests_reach_who_listens") {
        return;
    }
    let mut agents: [Agent; 4] = agents();
    ok(&mut agents[1], "listen 127.0.0.1:7001");
    ok(&mut agents[2], "listen 0.0.0.0:7002");
    ok(&mut agents[3], "listen [::]:7003");
    // Wherever they come first. In one batch, which is steered as one.
    for slot in [0, 1, 2, 3, u32::MAX] {
        agents[0].ask(&format!("steer {slot}"));
        for (to, addr, port) in [(1, LO, 7001), (2, LO, 7002), (3, LO, 7003), (3, LO6, 7003)] {
            ok(
                &mut agents[0],
                &format!("request {addr} {addr} {port} 0 20"),
            );
            agents[to].expect(addr, QP1, 0, 20);
        }
    }
    // The same host, the other family, the other address, the other port: nobody's, and somebody is
    // there to say so.
    let before = total(&mut agents, "rx_packets");
    for (addr, port) in [
        (LO6, 7002),
        ("127.0.0.2".parse().unwrap(), 7001),
        (LO, 7004),
    ] {
        ok(&mut agents[0], &format!("request {addr} {addr} {port} 0 1"));
    }
    until("somebody has them", || kept(&mut agents) == 3);
    assert_eq!(total(&mut agents, "rx_packets") - before, 3);
    for counter in [
        "rx_unknown_qpn",
        "rx_bad_mad",
        "rx_bad_icrc",
        "rx_truncated",
    ] {
        assert_eq!(total(&mut agents, counter), 0, "{counter}");
    }
}

#[test]
fn answers_are_steered_to_whose_id_they_name() {
    if !isolated("qp1::answers_are_steered_to_whose_id_they_name") {
        return;
    }
    let mut agents: [Agent; 4] = agents();
    let ids = agents.each_ref().map(|agent| id_of(agent, 0xf_4241));
    for (to, id) in ids.into_iter().enumerate() {
        for from in [LO, LO6] {
            ok(
                &mut agents[(to + 1) % 4],
                &format!("answer {from} {from} 0 50 {id}"),
            );
            agents[to].expect(from, QP1, 0, 50);
        }
    }
    // In one batch for all of them, too.
    let all = ids.map(|id| id.to_string()).join(" ");
    ok(&mut agents[0], &format!("answer {LO} {LO} 0 50 {all}"));
    for agent in &mut agents {
        agent.expect(LO, QP1, 0, 50);
    }
    assert_eq!(total(&mut agents, "rx_handed_over"), 0);
    // If all come to one of them, he gives the others theirs, and none is lost for want of room.
    agents[0].ask("steer 2");
    ok(&mut agents[0], &format!("answer {LO} {LO} 0 50 {all}"));
    for agent in &mut agents {
        agent.expect(LO, QP1, 0, 50);
    }
    // Fewer than all, if the steering was found to be wrong meanwhile, and mended.
    let handed_over = total(&mut agents, "rx_handed_over");
    assert!((1..=150).contains(&handed_over), "{handed_over}");
    assert_eq!(total(&mut agents, "rx_unknown_qpn"), 0);
}

/// A requester that gives up before it learns the other side's communication id names nobody;
/// whoever has the request is to hear of it.
#[test]
fn all_are_told_of_a_request_that_was_withdrawn() {
    if !isolated("qp1::all_are_told_of_a_request_that_was_withdrawn") {
        return;
    }
    let mut agents: [Agent; 4] = agents();
    for slot in [0, 3, u32::MAX] {
        agents[0].ask(&format!("steer {slot}"));
        ok(&mut agents[0], &format!("withdraw {LO} {LO} 0 20"));
        for agent in &mut agents {
            agent.expect(LO, QP1, 0, 20);
        }
    }
    assert_eq!(total(&mut agents, "rx_unknown_qpn"), 0);
}

/// Requests would fall to a stopped process by their ports, and so would their repetitions. One
/// process takes them for all; when it is not seen to run any more, another one does.
#[test]
fn a_stopped_process_keeps_requests_from_nobody() {
    if !isolated("qp1::a_stopped_process_keeps_requests_from_nobody") {
        return;
    }
    let mut agents: [Agent; 4] = agents();
    ok(&mut agents[1], "listen 127.0.0.1:7001");
    ok(&mut agents[2], "listen 127.0.0.1:7002");
    // Of many ports: each address has its own.
    let all_arrive = |agents: &mut [Agent; 4], from: usize, to: usize| {
        let before = kept(&mut agents[to..=to]);
        for host in 1..=16 {
            let request = format!("request 127.0.0.{host} 127.0.0.1 {} 0 1", 7000 + to);
            ok(&mut agents[from], &request);
        }
        (0..200).any(|_| kept(&mut agents[to..=to]) == before + 16)
    };
    let handed_over = |agents: &mut [Agent; 4]| {
        let mut counts = [0; 4];
        for (count, agent) in counts.iter_mut().zip(agents) {
            *count = agent.counter("rx_handed_over");
        }
        counts
    };
    let mut taker = 0;
    until("one takes all", || {
        let before = handed_over(&mut agents);
        let arrived = all_arrive(&mut agents, 0, 1) && all_arrive(&mut agents, 0, 2);
        let after = handed_over(&mut agents);
        let others: [u64; 4] = std::array::from_fn(|i| after[i] - before[i]);
        // But what is for it.
        let most = others.iter().position(|n| *n >= 16);
        taker = most.unwrap_or(0);
        arrived && most.is_some() && others.iter().sum::<u64>() == others[taker]
    });
    let listener = if taker == 1 { 2 } else { 1 };
    let sender = if taker == 3 { 0 } else { 3 };
    agents[taker].stop();
    until("all arrive beside a stopped one", || {
        all_arrive(&mut agents, sender, listener)
    });
    agents[taker].go_on();
    until("all arrive again", || {
        all_arrive(&mut agents, taker, listener)
    });
}

#[test]
fn a_killed_listener_is_gone_at_once() {
    if !isolated("qp1::a_killed_listener_is_gone_at_once") {
        return;
    }
    let [mut a, mut b, mut killed] = agents();
    ok(&mut killed, "listen 0.0.0.0:7001");
    // A wildcard has it: EADDRNOTAVAIL.
    assert_eq!(b.ask("listen 127.0.0.1:7001"), ["errno", "99"]);
    let qpn = killed.qpn;
    // A forked child frees nothing that is the parent's, and gets no port in its name.
    ok(&mut killed, "fork");
    let child: i32 = killed.ask("fork-and-stay")[0].parse().unwrap();
    assert_eq!(a.ask(&format!("alive {qpn}")), ["true"]);
    ok(&mut a, &format!("request {LO} {LO} 7001 0 5"));
    killed.expect(LO, QP1, 0, 5);
    let id = id_of(&killed, 1);
    killed.kill();
    // As soon as the child has closed its copies, however long it lives.
    until("the killed one is alive", || {
        a.ask(&format!("alive {qpn}")) == ["false"]
    });
    ok(&mut b, "listen 127.0.0.1:7001");
    ok(&mut a, &format!("request {LO} {LO} 7001 0 5"));
    b.expect(LO, QP1, 0, 5);
    // What is for the dead stays with who has it, for him to answer.
    ok(&mut a, &format!("answer {LO} {LO} 0 7 {id}"));
    let mut living = [a, b];
    until("somebody has them", || kept(&mut living) == 7);
    // SAFETY: takes no pointer; the child is a process of this test.
    unsafe { libc::kill(child, libc::SIGKILL) };
}

#[test]
fn the_last_words_of_a_killed_process_are_sent_once() {
    if !isolated("qp1::the_last_words_of_a_killed_process_are_sent_once") {
        return;
    }
    let [mut a, mut b, mut killed, mut orderly] = agents();
    ok(&mut orderly, "last-words 3");
    ok(&mut killed, "last-words 5");
    ok(&mut killed, "fork");
    let child: i32 = killed.ask("fork-and-stay")[0].parse().unwrap();
    drop(orderly);
    assert_eq!(a.ask("take-last-words"), ["last-words"]);
    killed.kill();
    // As soon as the child has closed its copies. Neither asks for the other's.
    until("nobody takes them", || {
        a.tell("take-last-words");
        b.tell("take-last-words");
        let mut got = [a.wait(), b.wait()];
        got.sort();
        assert!(got[0] == ["last-words"], "{got:?}");
        got[1] == ["last-words", "5"]
    });
    assert_eq!(
        [a.ask("take-last-words"), b.ask("take-last-words")],
        [["last-words"], ["last-words"]]
    );
    // SAFETY: takes no pointer; the child is a process of this test.
    unsafe { libc::kill(child, libc::SIGKILL) };
}

#[test]
fn a_listener_that_stopped_listening_gets_nothing_more() {
    if !isolated("qp1::a_listener_that_stopped_listening_gets_nothing_more") {
        return;
    }
    let [mut a, mut b, mut c] = agents();
    for _ in 0..20 {
        ok(&mut b, "listen 0.0.0.0:7001");
        ok(&mut a, &format!("request {LO} {LO} 7001 0 3"));
        b.expect(LO, QP1, 0, 3);
        ok(&mut b, "unlisten");
        ok(&mut c, "listen 0.0.0.0:7001");
        ok(&mut a, &format!("request {LO} {LO} 7001 0 3"));
        c.expect(LO, QP1, 0, 3);
        ok(&mut c, "unlisten");
    }
}

#[test]
fn what_is_no_message_is_a_counted_drop() {
    if !isolated("qp1::what_is_no_message_is_a_counted_drop") {
        return;
    }
    let mut agents: [Agent; 2] = agents();
    let mut sent = 0;
    for slot in [0, 1] {
        agents[0].ask(&format!("steer {slot}"));
        sent += agents[0].ask(&format!("junk {LO} {LO}"))[0]
            .parse::<u64>()
            .unwrap();
        until("all are dropped", || {
            total(&mut agents, "rx_bad_mad") == sent
        });
    }
    assert_eq!(total(&mut agents, "rx_bad_mad"), sent);
    assert_eq!(total(&mut agents, "rx_bad_icrc"), 0);
    for agent in &mut agents {
        assert_eq!(agent.ask("total"), ["0"]);
    }
}

#[test]
fn faults_meet_management_too() {
    if !isolated("qp1::faults_meet_management_too") {
        return;
    }
    let mut b = Agent::start(&[]);
    let mut a = Agent::start(&["FAULTS=corrupt=100%,seed=1"]);
    ok(&mut b, "listen 0.0.0.0:7001");
    ok(&mut a, &format!("request {LO} {LO} 7001 0 50"));
    let mut agents = [a, b];
    // What is hit in its QPN is nobody's, and its ICRC is not looked at; one byte of the BTH,
    // resv8a, no ICRC covers (IBTA vol. 1, A17.3.3), and a packet hit there is right.
    until("all are there", || {
        total(&mut agents, "rx_packets") >= 50 && total(&mut agents, "rx_bad_icrc") >= 10
    });
    assert!(kept(&mut agents) < 10);
}
