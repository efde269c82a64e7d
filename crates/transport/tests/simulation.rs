//! Random operations between two NICs over a random network: every operation completes exactly once
//! and in order, both memories are what the oracle says, and nothing is written outside a granted
//! range.
//!
//! `PROPTEST_CASES` sets the number of cases of each property; `PAIR_TRACE=1` prints every packet.
//! A failing case is shrunk and its seed noted in `proptest-regressions/simulation.txt`, to be
//! committed.

use crate::support::network::{Impairments, WireCounters};
use crate::support::oracle::{FlowSpec, Kind, OpSpec, Scenario, Size};
use crate::support::pair::{Pair, Path};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm, TestRng, TestRunner};
use rnic_transport::AckRequest;
use rnic_wire::PathMtu;

/// Cases of a property, unless the environment says otherwise; no shrinking for minutes.
fn config(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/proptest-regressions/simulation.txt",
        ))),
        max_shrink_time: 30_000,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    config
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        1 => Just(Kind::Send),
        1 => Just(Kind::SendImm),
        1 => Just(Kind::SendInvalidate),
        1 => Just(Kind::Write),
        1 => Just(Kind::WriteImm),
        3 => Just(Kind::Read),
        1 => Just(Kind::CompareSwap),
        1 => Just(Kind::FetchAdd),
        1 => Just(Kind::AtomicWrite),
        1 => Just(Kind::Flush),
    ]
}

fn size(largest: u32) -> impl Strategy<Value = Size> {
    prop_oneof![
        2 => Just(Size::Exact(0)),
        12 => (1..=64u32).prop_map(Size::Exact),
        12 => (1..=6u8, -1..=1i8).prop_map(|(count, delta)| Size::Packets { count, delta }),
        2 => (60..=140u8, -2..=2i8).prop_map(|(count, delta)| Size::Packets { count, delta }),
        4 => (0..=16 * 1024u32).prop_map(Size::Exact),
        1 => (0..=largest).prop_map(Size::Exact),
    ]
}

fn delay(longest: u32) -> impl Strategy<Value = u32> {
    prop_oneof![6 => Just(0u32), 3 => 0..=longest / 20, 1 => 0..=longest]
}

fn op(largest: u32) -> impl Strategy<Value = OpSpec> {
    (
        kind(),
        size(largest),
        (
            any::<bool>(),
            prop::bool::weighted(0.1),
            any::<bool>(),
            prop::bool::weighted(0.2),
        ),
        0..=4u8,
        0..=3u8,
        prop_oneof![Just(0u16), 0..300u16],
        delay(100_000),
        delay(400_000),
    )
        .prop_map(
            |(
                kind,
                size,
                (signaled, fence, solicited, inline),
                pieces,
                receive_pieces,
                slack,
                post_delay,
                receive_delay,
            )| OpSpec {
                kind,
                size,
                signaled,
                fence,
                solicited,
                inline,
                pieces,
                receive_pieces,
                slack,
                post_delay,
                receive_delay,
            },
        )
}

fn psn() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(0u32),
        // Wraps during the test.
        0xff_ff00..=0xff_ffffu32,
        // Crosses the sign of the circle's arithmetic.
        0x7f_ff80..=0x80_0000u32,
        0..=0xff_ffffu32,
    ]
}

fn flow(largest: u32, ops: usize) -> impl Strategy<Value = FlowSpec> {
    let ops = move || prop::collection::vec(op(largest), 0..=ops);
    (
        prop::sample::select(PathMtu::ALL.to_vec()),
        [ops(), ops()],
        [psn(), psn()],
        [1..=16u8, 1..=16u8],
        0..=4u8,
        prop_oneof![Just(8_192u32), Just(65_536), Just(262_144)],
        // From 12 on, few messages need ask for an acknowledge.
        6..=13u8,
        1..=8u8,
        any::<bool>(),
        any::<[bool; 2]>(),
        prop::bool::weighted(0.25),
        (
            [path(), path()],
            prop_oneof![Just(AckRequest::Now), Just(AckRequest::Later)],
        ),
    )
        .prop_map(
            |(
                mtu,
                ops,
                sq_psn,
                max_rd_atomic,
                spare_resources,
                window,
                timeout,
                min_rnr_timer,
                shared_receives,
                linux,
                xrc,
                (paths, ack_request),
            )| FlowSpec {
                mtu,
                // An XRC target requests nothing.
                ops: if xrc {
                    [ops[0].clone(), Vec::new()]
                } else {
                    ops
                },
                sq_psn,
                max_rd_atomic,
                spare_resources,
                window,
                timeout,
                retry_cnt: 7,
                rnr_retry: 7,
                min_rnr_timer,
                shared_receives,
                // The accent is that of RC.
                linux: if xrc { [false; 2] } else { linux },
                xrc,
                paths,
                ack_request,
            },
        )
}

fn path() -> impl Strategy<Value = Path> {
    prop_oneof![
        3 => Just(Path::Wire),
        2 => Just(Path::Changing),
        1 => prop::sample::select(vec![1usize, 5_000, 64 << 10, 1 << 20]).prop_map(Path::Memory),
        1 => prop::sample::select(vec![32_768usize, 40_000, 1 << 18]).prop_map(Path::Pointing),
    ]
}

fn impairments(harm_per_psn: Option<u8>) -> impl Strategy<Value = Impairments> {
    let probability = || prop_oneof![Just(0.0), 0.0..0.02, 0.0..0.2];
    // One in five in the mean.
    let loss = prop_oneof![1 => Just(0.0), 3 => 0.0..0.2, 6 => 0.2..0.37];
    (
        (loss, [probability(), probability(), probability()]),
        1_000..10_000u64,
        0..2_000u64,
        1_000..200_000u64,
    )
        .prop_map(
            move |((loss, [duplicate, reorder, corrupt]), delay, jitter, detour)| Impairments {
                loss,
                duplicate,
                reorder,
                corrupt,
                delay: delay..delay + jitter + 1,
                detour: 1..detour,
                harm_per_psn,
            },
        )
}

fn scenario(
    impairments: impl Strategy<Value = Impairments>,
    flows: impl Strategy<Value = Vec<FlowSpec>>,
) -> impl Strategy<Value = Scenario> {
    (any::<u64>(), impairments, flows).prop_map(|(seed, impairments, flows)| Scenario {
        seed,
        impairments,
        flows,
    })
}

fn flows(largest: u32, ops: usize, most: usize) -> impl Strategy<Value = Vec<FlowSpec>> {
    prop_oneof![
        4 => prop::collection::vec(flow(largest, ops), 1),
        1 => prop::collection::vec(flow(largest, ops), 1..=most),
    ]
}

/// More steps than any of these scenarios can need.
const STEPS: u64 = 20_000_000;

fn must_succeed(scenario: &Scenario) -> Pair {
    let (mut pair, oracle) = scenario.stage();
    pair.drive_until_idle(STEPS);
    oracle.check_success(&pair);
    pair
}

/// A network without faults, receives posted in time: the fast path, and nothing but it.
fn must_be_smooth(scenario: &Scenario) {
    let (mut pair, oracle) = scenario.stage();
    pair.drive_until_idle(STEPS);
    oracle.check_success(&pair);
    for qp in pair.nics.iter().flat_map(|nic| &nic.qps) {
        let seen = qp.rc.counters();
        assert_eq!(
            (
                seen.retransmitted_packets,
                seen.timeouts,
                seen.sequence_naks_sent + seen.sequence_naks_received,
                seen.rnr_naks_sent + seen.rnr_naks_received,
                seen.naks_received + seen.access_naks_sent + seen.invalid_naks_sent,
                seen.duplicates_received + seen.out_of_sequence + seen.dropped,
            ),
            (0, 0, 0, 0, 0, 0),
            "a smooth run has no incident: {seen:?}"
        );
    }
    let [a, b] = pair.nics.each_ref().map(|nic| {
        nic.qps.iter().fold((0, 0), |(sent, received), qp| {
            let counters = qp.rc.counters();
            (
                sent + counters.packets_sent,
                received + counters.packets_received,
            )
        })
    });
    assert_eq!((a.0, b.0), (b.1, a.1), "every packet sent was counted in");
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn without_faults_nothing_is_ever_repeated(
        mut scenario in scenario(Just(Impairments::none()), flows(1 << 20, 30, 3))
    ) {
        for flow in &mut scenario.flows {
            // Or the last one may be sent again, to ask.
            flow.ack_request = AckRequest::Now;
        }
        for op in scenario.flows.iter_mut().flat_map(|f| f.ops.iter_mut().flatten()) {
            op.receive_delay = 0;
            // Posted one after the other with the receives: never before them.
        }
        must_be_smooth(&scenario);
    }

    #[test]
    fn receives_posted_late_only_cost_time(
        scenario in scenario(Just(Impairments::none()), flows(1 << 20, 30, 3))
    ) {
        must_succeed(&scenario);
    }

    #[test]
    fn faults_only_cost_time(
        scenario in scenario(impairments(Some(2)), flows(256 << 10, 24, 3))
    ) {
        must_succeed(&scenario);
    }

    #[test]
    fn small_messages_in_a_storm(
        scenario in scenario(impairments(Some(2)), flows(600, 60, 2))
    ) {
        must_succeed(&scenario);
    }

    #[test]
    fn bad_luck_ends_honestly(
        mut scenario in scenario(impairments(None), flows(16 << 10, 24, 2)),
        retry_cnt in 0..=3u8,
        rnr_retry in 0..=7u8,
    ) {
        for flow in &mut scenario.flows {
            (flow.retry_cnt, flow.rnr_retry) = (retry_cnt, rnr_retry);
        }
        let (mut pair, oracle) = scenario.stage();
        pair.drive_until_idle(STEPS);
        oracle.check_honest(&pair);
    }
}

/// A megabyte of each kind, both directions at once, at every MTU and the full rate of faults.
#[test]
fn megabytes_through_the_worst_network() {
    let kinds = [Kind::Write, Kind::Read, Kind::Send, Kind::WriteImm];
    for seed in 0..10 {
        let mtu = PathMtu::ALL[seed % 5];
        let kind = kinds[seed % kinds.len()];
        let op = OpSpec {
            kind,
            size: Size::Exact(1 << 20),
            signaled: true,
            fence: false,
            solicited: false,
            inline: false,
            pieces: 3,
            receive_pieces: 2,
            slack: 0,
            post_delay: 0,
            receive_delay: 0,
        };
        let scenario = Scenario {
            seed: seed as u64,
            impairments: Impairments {
                loss: 0.2,
                duplicate: 0.2,
                reorder: 0.2,
                corrupt: 0.2,
                delay: 1_000..5_000,
                detour: 1_000..100_000,
                harm_per_psn: Some(2),
            },
            flows: vec![FlowSpec {
                mtu,
                ops: [vec![op], vec![op]],
                sq_psn: [0xff_fff0, 0],
                max_rd_atomic: [4, 4],
                spare_resources: 0,
                window: 32 << 10,
                timeout: 6,
                retry_cnt: 7,
                rnr_retry: 7,
                min_rnr_timer: 1,
                shared_receives: false,
                linux: [seed >= 5; 2],
                xrc: false,
                ack_request: AckRequest::Now,
                paths: [Path::Wire, [Path::Wire, Path::Changing][seed / 5]],
            }],
        };
        must_succeed(&scenario);
    }
}

/// As much as a benchmark keeps in flight: sixteen megabyte messages at once, each way, at every
/// MTU and window.
#[test]
fn streams_of_megabytes_without_faults() {
    for mtu in [PathMtu::M1024, PathMtu::M4096] {
        for kind in [Kind::Read, Kind::Write, Kind::Send] {
            for (window, path) in [
                (64 << 10, Path::Wire),
                (256 << 10, Path::Wire),
                (8 << 20, Path::Wire),
                (256 << 10, Path::Memory(64 << 10)),
                (256 << 10, Path::Pointing(64 << 10)),
                (8 << 20, Path::Changing),
            ] {
                let op = OpSpec {
                    kind,
                    size: Size::Exact(1 << 20),
                    signaled: true,
                    fence: false,
                    solicited: false,
                    inline: false,
                    pieces: 1,
                    receive_pieces: 1,
                    slack: 0,
                    post_delay: 0,
                    receive_delay: 0,
                };
                let ops = vec![op; 16];
                must_be_smooth(&Scenario {
                    seed: window,
                    impairments: Impairments::none(),
                    flows: vec![FlowSpec {
                        mtu,
                        ops: [ops.clone(), ops],
                        sq_psn: [0xff_fff0, 0],
                        max_rd_atomic: [16, 16],
                        spare_resources: 0,
                        window: window as u32,
                        timeout: 14,
                        retry_cnt: 7,
                        rnr_retry: 7,
                        min_rnr_timer: 1,
                        shared_receives: false,
                        linux: [false; 2],
                        xrc: false,
                        ack_request: AckRequest::Now,
                        paths: [path; 2],
                    }],
                });
            }
        }
    }
}

/// The cases of a property one by one, the same in each run.
struct Cases(TestRunner);

impl Cases {
    fn new(seed: u64) -> Cases {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        Cases(TestRunner::new_with_rng(ProptestConfig::default(), rng))
    }

    fn next(&mut self, strategy: &impl Strategy<Value = Scenario>) -> Scenario {
        strategy
            .new_tree(&mut self.0)
            .expect("no filters")
            .current()
    }
}

/// What a row of runs met.
#[derive(Debug, Default)]
struct Met {
    runs: u32,
    /// Runs in which each operation was done.
    completed: u32,
    /// Of IPv4 and of IPv6.
    versions: [u32; 2],
    wire: WireCounters,
}

impl Met {
    fn note(&mut self, pair: &Pair, completed: bool) {
        let seen = pair.network.counters;
        self.runs += 1;
        self.completed += u32::from(completed);
        self.versions[usize::from(!pair.network.is_v4())] += 1;
        self.wire.sent += seen.sent;
        self.wire.lost += seen.lost;
        self.wire.corrupted += seen.corrupted;
        self.wire.refused += seen.refused;
    }

    fn loss(&self) -> f64 {
        self.wire.lost as f64 / self.wire.sent as f64
    }
}

/// One packet in five is lost, wherever it goes and however often that one was lost before, and
/// more are corrupted, double or late. Most connections survive it; the others end with "retry
/// exceeded", and what was reported as done was done.
#[test]
fn one_packet_in_five_is_lost() {
    let storm = impairments(None).prop_map(|impairments| Impairments {
        loss: 0.2,
        ..impairments
    });
    let strategy = scenario(storm, flows(16 << 10, 24, 2));
    let mut cases = Cases::new(20);
    let mut met = Met::default();
    for _ in 0..400 {
        let scenario = cases.next(&strategy);
        let (mut pair, oracle) = scenario.stage();
        pair.drive_until_idle(STEPS);
        let failed = oracle.check_honest(&pair);
        met.note(&pair, failed == 0);
    }
    println!("{:.1}% lost: {met:?}", 100.0 * met.loss());
    assert!((0.19..0.21).contains(&met.loss()), "{met:?}");
    assert!(met.completed >= met.runs * 9 / 10, "{met:?}");
    assert!(met.completed < met.runs, "some end with status 12: {met:?}");
    assert!(met.versions.iter().all(|&n| n > 100), "{met:?}");
}

/// What the properties above meet where no packet is harmed more than twice, so that all must
/// succeed.
#[test]
fn the_properties_meet_as_much_loss_as_they_say() {
    let strategy = scenario(impairments(Some(2)), flows(16 << 10, 24, 3));
    let mut cases = Cases::new(5);
    let mut met = Met::default();
    for _ in 0..200 {
        let scenario = cases.next(&strategy);
        met.note(&must_succeed(&scenario), true);
    }
    println!("{:.1}% lost: {met:?}", 100.0 * met.loss());
    assert!((0.18..0.23).contains(&met.loss()), "{met:?}");
    assert!(met.versions.iter().all(|&n| n > 50), "{met:?}");
}

/// Hours of bad network. `cargo test --release --test all -- --ignored soak`; `SOAK_SEEDS` says how
/// many cases.
#[test]
#[ignore = "takes as long as it is told to"]
fn soak() {
    let seeds: u64 = std::env::var("SOAK_SEEDS")
        .ok()
        .map_or(2_000, |text| text.parse().expect("SOAK_SEEDS is a number"));
    let first: u64 = std::env::var("SOAK_FIRST")
        .ok()
        .map_or(0, |text| text.parse().expect("SOAK_FIRST is a number"));
    for seed in first..first + seeds {
        let strategy = scenario(impairments(Some(2)), flows(1 << 20, 60, 4));
        let scenario = Cases::new(seed).next(&strategy);
        let outcome = std::panic::catch_unwind(|| must_succeed(&scenario));
        assert!(outcome.is_ok(), "SOAK_FIRST={seed} SOAK_SEEDS=1 fails");
    }
}
