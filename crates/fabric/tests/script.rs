//! Scenarios as text: what is printed reads as the same again, and nonsense is refused with its
//! line.

use rnic_fabric::script::{parse, print};
use rnic_fabric::{Bound, Datagram, Fate, Grant, Incident, Kind, Marked, Measure, Op, Relation};
use rnic_fabric::{Scenario, Shape, To, What, run};
use rnic_nic::MwType;

/// A random one, with what `Scenario::random` leaves out.
fn with_everything(seed: u64) -> Scenario {
    let mut scenario = Scenario::random(seed, &Shape::default());
    let mut rng = fastrand::Rng::with_seed(seed);
    let hosts = scenario.hosts.len();
    let operations = [
        None,
        Some(rnic_wire::Operation::SendMiddle),
        Some(rnic_wire::Operation::Acknowledge),
    ];
    for _ in 0..rng.usize(..4) {
        let first = rng.u64(1..100);
        scenario.fates.push(Marked {
            from: rng.usize(..hosts),
            to: rng.usize(..hosts),
            operation: operations[rng.usize(..3)],
            nth: (first, [first, first + 1, u64::MAX][rng.usize(..3)]),
            fate: [
                Fate::Drop,
                Fate::Corrupt,
                Fate::Duplicate(rng.u64(..100_000)),
                Fate::Duplicate(10_000),
                Fate::Delay(rng.u64(..2_000_000)),
            ][rng.usize(..5)],
        });
    }
    for measure in [Measure::Time, Measure::Packets, Measure::Received] {
        scenario.bounds.push(Bound {
            measure,
            relation: [Relation::AtMost, Relation::Exactly, Relation::AtLeast][rng.usize(..3)],
            value: rng.u64(..600_000_000_000),
        });
    }
    for _ in 0..rng.usize(1..5) {
        scenario.incidents.push(Incident {
            host: rng.usize(..hosts),
            at: rng.u64(..1 << 30),
            what: [
                What::Kill(rng.u64(..3)),
                What::KillCopying,
                What::Stop(rng.u64(..1 << 30)),
                What::StopCopying(rng.u64(..1 << 30)),
                What::Deregister,
            ][rng.usize(..5)],
        });
    }
    // Numbers that nobody has rounded.
    scenario.impairments.loss = rng.f64();
    scenario.impairments.corrupt = rng.f64() / 1e6;
    scenario.impairments.harm_per_psn = [None, Some(0), Some(255)][rng.usize(..3)];
    for host in &mut scenario.hosts {
        host.receive_buffer = rng.usize(1..1 << 30);
    }
    for flow in &mut scenario.flows {
        flow.retry = rng.u8(..8);
        flow.rnr_retry = rng.u8(..8);
        let ops = flow.directions.iter_mut().flat_map(|way| &mut way.ops);
        for op in ops.filter(|_| rng.u8(..4) == 0) {
            op.expect = rnic_nic::Status::RetryExceeded;
        }
    }
    scenario
}

#[test]
fn what_is_printed_reads_as_the_same() {
    for seed in 0..2_000 {
        for scenario in [
            Scenario::random(seed, &Shape::default()),
            with_everything(seed),
        ] {
            let text = print(&scenario);
            let again = parse(&text).unwrap_or_else(|why| panic!("seed {seed}, {why}:\n{text}"));
            assert_eq!(again, scenario, "seed {seed}:\n{text}");
            assert_eq!(print(&again), text);
        }
    }
}

fn group(datagram: &Datagram) -> std::net::IpAddr {
    match datagram.to {
        To::Group(group) => group,
        To::Endpoint(_) => panic!("it goes to no group"),
    }
}

#[test]
fn everything_is_where_it_belongs() {
    let text = "
        # A comment, and a blank line before.
        seed 0x10
        network delay 1us..5us loss 10% corrupt 0.5% duplicate 100% detour 50us harm 3
        host a 10.0.0.1 polls
        host b fd00::2 wake 20us buffer 5000 queue 8      # another comment
        host c fd00::3
        process d a restless 3us
        kill c at 1us step 7
        stop d at 2us for 1ms copying
        flow uc b c depth 1 receives 2 late 1s timeout 31 retry 0 rnr_retry 1 psn 1 0xffffff
          c send 5 unsignaled after 7us
          b write_imm 0 fence times 3
        flow rc a a
          a' cmp_swap -> retry_exceeded
        srq s b receives 3 late 1us limit 2
        flow rc b c srq s -
          b window type1 atomic
          b window type2 read 5..0x10 zero_based
          b bind 2
          b read 3 through 2
          b send_inv 1 through 2
        ud u b qkey 0x55 joins ff0e::1 depth 2 receives 0 late 2us room 100 psn 9 srq s
        ud v c
          u send 10 to v qkey 6 unsignaled after 1us times 2
          v send_imm 7 to ff0e::1 -> local_length
        drop a a 2..3
        delay b c SEND_ONLY by 3ms
        expect time <= 5ms
        expect timeouts = 0
    ";
    let scenario = parse(text).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(scenario.seed, 16);
    assert_eq!(scenario.impairments.loss, 0.1);
    assert_eq!(scenario.impairments.corrupt, 0.005);
    assert_eq!(scenario.impairments.duplicate, 1.0);
    assert_eq!(scenario.impairments.harm_per_psn, Some(3));
    assert_eq!(scenario.hosts[1].receive_buffer, 5000);
    assert_eq!(scenario.hosts[1].send_queue, 8);
    let [uc, rc, with_windows] = &scenario.flows[..] else {
        panic!("three flows")
    };
    assert_eq!(with_windows.srqs, [Some(0), None]);
    let direction = &with_windows.directions[0];
    let [atomic, read] = direction.windows[..] else {
        panic!("two windows")
    };
    assert_eq!(
        (atomic.mw_type, atomic.grant),
        (MwType::Type1, Grant::Atomic)
    );
    assert_eq!((read.range, read.zero_based), ((5, 16), true));
    let windows = direction.ops.iter().map(|op| (op.kind, op.window));
    let due = [Kind::Bind, Kind::Read, Kind::SendInvalidate].map(|kind| (kind, Some(1)));
    assert!(windows.eq(due));
    let srq = &scenario.srqs[0];
    assert_eq!(
        (srq.host, srq.receives, srq.late, srq.limit),
        (1, 3, 1_000, 2)
    );
    let [u, v] = &scenario.endpoints[..] else {
        panic!("two queue pairs of UD")
    };
    assert_eq!((u.host, u.qkey, u.depth, u.receives), (1, 0x55, 2, 0));
    assert_eq!(
        (u.late, u.room, u.psn, u.srq),
        (2_000, Some(100), 9, Some(0))
    );
    assert_eq!(u.groups, v.datagrams.iter().map(group).collect::<Vec<_>>());
    let datagram = Datagram {
        qkey: Some(6),
        signaled: false,
        after: 1_000,
        ..Datagram::new(To::Endpoint(1), 10)
    };
    assert_eq!(u.datagrams, [datagram; 2]);
    assert!(v.datagrams[0].imm && v.datagrams[0].expect == rnic_nic::Status::LocalLengthError);
    assert_eq!(uc.hosts, [1, 2]);
    assert_eq!((uc.depth, uc.receives, uc.late), (1, 2, 1_000_000_000));
    assert_eq!((uc.timeout, uc.retry, uc.rnr_retry), (31, 0, 1));
    assert_eq!(uc.psns, [1, 0xff_ffff]);
    assert_eq!(uc.directions[0].ops.len(), 3);
    assert!(uc.directions[0].ops[2].fence);
    assert_eq!(uc.directions[1].ops[0].after, 7_000);
    let [first, second] = &rc.directions;
    assert!(first.ops.is_empty());
    assert_eq!(
        second.ops,
        [Op {
            expect: rnic_nic::Status::RetryExceeded,
            ..Op::new(Kind::CompareSwap, 8)
        }]
    );
    assert_eq!(scenario.fates[0].nth, (2, 3));
    assert_eq!(scenario.fates[1].nth, (1, 1));
    assert_eq!(scenario.bounds[0].value, 5_000_000);
    assert_eq!(scenario.hosts[3].address, scenario.hosts[0].address);
    assert_eq!(scenario.hosts[3].restless, 3_000);
    let what = scenario.incidents.iter().map(|incident| incident.what);
    let what: Vec<What> = what.collect();
    assert_eq!(what, [What::Kill(7), What::StopCopying(1_000_000)]);
}

#[test]
fn nonsense_is_refused_with_its_line() {
    let stage = "host a 10.0.0.1\nhost b 10.0.0.2\nhost six fd00::1\nflow uc b a\nflow rc a b\n";
    let refused = [
        (
            "hots c 10.0.0.3",
            "unknown word \"hots\": the ends of this flow are a and b",
        ),
        ("seed", "the seed is missing"),
        ("seed -1", "the seed is \"-1\", not a number"),
        ("seed 1 2", "\"2\" is one word too many"),
        ("host a 10.0.0.9", "something has the name a already"),
        ("host c 10.0.0.1", "there is a host 10.0.0.1 already"),
        ("process a b", "something has the name a already"),
        ("process c d", "there is no host \"d\""),
        ("process c a memory", "a host has no \"memory\""),
        ("kill a", "\"at\" is missing"),
        ("kill c at 1us", "there is no host \"c\""),
        ("kill a at 1us step 0", "the step is 0, not from 1 to"),
        ("kill a at 1us soon", "\"soon\" makes no sense here"),
        ("stop a at 1us", "\"for\" is missing"),
        ("dereg a at 1us copying", "\"copying\" is one word too many"),
        ("host c 0.0.0.0", "0.0.0.0 is not the address of a host"),
        ("host c 10.0.0", "\"10.0.0\" is no IP address"),
        ("host drop 10.0.0.9", "\"drop\" is no name for a host"),
        (
            "host c' 10.0.0.9",
            "a host's name is letters and digits, not \"c'\"",
        ),
        ("host c 10.0.0.9 sleeps", "a host has no \"sleeps\""),
        (
            "host c 10.0.0.9 queue 0",
            "queue is 0, not from 1 to 4294967295",
        ),
        ("network loss 101%", "loss is \"101%\", not from 0% to 100%"),
        ("network loss 0.1", "loss is \"0.1\", not from 0% to 100%"),
        ("network loss", "loss is missing"),
        ("network delay 5us..1us", "the most is less than the least"),
        (
            "network delay 5",
            "delay is \"5\", not a time of at most 600s",
        ),
        ("network delay 601s", "delay is \"601s\", not a time"),
        ("network harm 256", "harm is 256, not from 0 to 255"),
        ("network speed 3", "the network has no \"speed\""),
        ("flow xrc a b", "the service is \"xrc\", not one of rc, uc"),
        ("flow rc a c", "there is no host \"c\""),
        (
            "flow rc a b srq s -",
            "host a has no shared receive queue \"s\"",
        ),
        ("srq a b", "something has the name a already"),
        ("srq s b receives 3 limit 4", "a limit of 4, and 3 receives"),
        ("srq s b depth 3", "a shared receive queue has no \"depth\""),
        (
            "ud ud a",
            "\"ud\" is no name for a queue pair: lines begin so",
        ),
        (
            "ud u a joins 10.0.0.2",
            "\"10.0.0.2\" is no multicast group",
        ),
        ("ud u a joins ff0e::1", "ff0e::1 is of another family"),
        ("ud u a retry 7", "a queue pair of UD has no \"retry\""),
        (
            "a window type3 write 0..1",
            "the window's type is \"type3\"",
        ),
        (
            "a window type1 write 1..1",
            "\"1..1\" is no range of a window",
        ),
        (
            "a window type1 read 0..9 zero_based",
            "a window of type1 is not zero_based",
        ),
        ("a bind 1", "the window is 1, not from 1 to 0"),
        (
            "a send_inv 1",
            "send_inv goes through a window, and names none",
        ),
        ("a send 1 through 1", "an operation has no \"through\""),
        ("flow rc a", "a host is missing"),
        (
            "flow rc a six",
            "one host has an IPv4 address, and the other an IPv6 address",
        ),
        ("flow rc a b depth 0", "depth is 0, not from 1 to 4096"),
        (
            "flow rc a b receives 0",
            "receives is 0, not from 1 to 4096",
        ),
        ("flow rc a b timeout 32", "timeout is 32, not from 0 to 31"),
        ("flow rc a b retry 8", "retry is 8, not from 0 to 7"),
        ("flow rc a b mtu 1500", "there is no path MTU of 1500 bytes"),
        ("flow rc a b psn 0", "a PSN is missing"),
        (
            "flow rc a b psn 0 0x1000000",
            "a PSN is 16777216, not from 0 to 16777215",
        ),
        ("flow rc a b width 1", "a flow has no \"width\""),
        ("flow uc a b\na read 5", "UC has neither READ nor atomics"),
        (
            "flow uc a b\na fetch_add",
            "UC has neither READ nor atomics",
        ),
        (
            "flow rc a a\nb send 1",
            "the ends of this flow are a and a'",
        ),
        (
            "flow rc a b receives 4096\na send 524288",
            "more memory than 1 GiB",
        ),
        (
            "a sendd 5",
            "the operation is \"sendd\", not one of send, send_imm",
        ),
        ("a send", "the length is missing"),
        (
            "a send 524289",
            "the length is 524289, not from 0 to 524288",
        ),
        ("a send 99999999999999999999", "not a number"),
        ("a send 5 times 0", "times is 0, not from 1 to 200000"),
        ("a fetch_add 8", "an operation has no \"8\""),
        (
            "a send 5 -> dropped",
            "the status is \"dropped\", not one of success",
        ),
        ("a send 5 ->", "the status is missing"),
        ("drop a b", "which packet is missing"),
        ("drop a b 0", "a packet's number is 0, not from 1"),
        ("drop a b 5..3", "\"5..3\" names no packets"),
        ("drop a b 1x", "\"1x\" names no packets"),
        ("drop a b HELLO", "which packet is missing"),
        ("drop a b ACK 1 by 5us", "\"by\" is one word too many"),
        ("delay a b 1", "\"by\" is missing"),
        (
            "delay a b 1 after 5us",
            "\"after\" is where \"by\" has to be",
        ),
        (
            "expect luck = 1",
            "what is expected is \"luck\", not one of time, packets",
        ),
        (
            "expect time < 1ms",
            "the relation is \"<\", not one of <=, =, >=",
        ),
        ("expect time <= 5", "the time is \"5\", not a time"),
        (
            "expect packets <= 5ms",
            "the number is \"5ms\", not a number",
        ),
    ];
    for (lines, why) in refused {
        let error = parse(&format!("{stage}{lines}")).err();
        let error = error.unwrap_or_else(|| panic!("{lines:?} is taken"));
        let of_flow = why.contains("memory") || lines.starts_with("flow rc a b receives 0");
        let line = 5 + if of_flow { 1 } else { lines.lines().count() };
        assert_eq!(error.line, line, "{lines:?}: {error}");
        assert!(error.to_string().contains(why), "{lines:?}: {error}");
    }
    let error = parse("seed 1\n# no more").err().map(|e| e.to_string());
    assert_eq!(
        error.as_deref(),
        Some("line 2: the script ends, and has no host")
    );
    let error = parse("a send 1").err().map(|e| e.to_string());
    assert!(error.is_some_and(|e| e.contains("there is no flow yet")));
}

/// Words in any order are a script or are refused, and what is taken can be printed.
#[test]
fn any_words_are_taken_or_refused() {
    let words: Vec<String> = (0..8)
        .flat_map(|seed| {
            let text = print(&with_everything(seed));
            let words = text.split(' ').map(str::to_owned);
            words.collect::<Vec<_>>()
        })
        .collect();
    for seed in 0..20_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut lines = print(&Scenario::random(
            seed % 50,
            &Shape {
                ops: 2,
                ..Shape::default()
            },
        ));
        for _ in 0..rng.usize(1..8) {
            let at = lines.floor_char_boundary(rng.usize(..=lines.len()));
            match rng.u8(..4) {
                0 => lines.insert(at, rng.char(..)),
                1 => lines.truncate(at),
                2 => lines.insert_str(at, &words[rng.usize(..words.len())]),
                _ => lines.insert_str(
                    at,
                    [" ", "\n", "..", "%", "0x", "99999999999"][rng.usize(..6)],
                ),
            }
        }
        if let Ok(scenario) = parse(&lines) {
            let again = parse(&print(&scenario));
            assert_eq!(again.as_ref(), Ok(&scenario), "seed {seed}:\n{lines}");
        }
    }
}

#[test]
fn a_broken_bound_and_a_packet_that_is_never_sent_are_failures() {
    let stage = "host a 10.0.0.1\nhost b 10.0.0.2\nflow rc a b\na send 1\n";
    let failure = |line: &str| {
        let scenario = parse(&format!("{stage}{line}")).unwrap_or_else(|why| panic!("{why}"));
        run(&scenario).failure.map(|failure| failure.what)
    };
    assert_eq!(failure("expect packets = 2"), None);
    assert_eq!(
        failure("expect packets >= 3").as_deref(),
        Some("`expect packets >= 3`: it was 2")
    );
    assert_eq!(
        failure("drop b a ACK 2..3").as_deref(),
        Some("`drop b a ACK 2..3`: not all of these packets were sent")
    );
    assert_eq!(failure("delay b a ACK 1.. by 1us"), None);
}
