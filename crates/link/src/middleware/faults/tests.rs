use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::staging::framing::{Numbering, seal};
use crate::staging::path::tests::route;

/// What was sent, and when.
#[derive(Default)]
struct Record(Vec<Vec<u8>>, Vec<u64>);

impl Link for Record {
    fn max_segments(&self, _route: &Route) -> usize {
        64
    }
    fn send(&mut self, batch: &mut TxBatch, now_ns: u64, _counters: &mut LinkCounters) {
        for run in batch.runs() {
            assert_eq!(run.count, 1, "packets leave one by one");
            self.1.push(now_ns);
            self.0.push(batch.bytes(run).to_vec());
        }
    }
    fn receive(&mut self, _buffer: &mut [u8], _thorough: bool) -> io::Result<Arrival> {
        Ok(Arrival::Empty)
    }
}

/// Sends packets 0..n, 40 bytes each with the number in the first four, one flush per `burst`.
fn sent_through(spec: FaultSpec, n: u32, burst: u32) -> Vec<Vec<u8>> {
    counted_through(spec, n, burst).0
}

fn counted_through(spec: FaultSpec, n: u32, burst: u32) -> (Vec<Vec<u8>>, LinkCounters) {
    let route = route("127.0.0.1", "127.0.0.1", 0x5000);
    // Not the route's: its port differs from call to call.
    let context = rnic_wire::IcrcContext::new(&rnic_wire::Flow {
        src_port: 5,
        ..route.flow
    });
    let mut faults = Faults::new(Record::default(), spec);
    let mut batch = TxBatch::default();
    let mut counters = LinkCounters::default();
    let mut now = 1000;
    assert_eq!(faults.max_segments(&route), 1);
    for i in 0..n {
        let packet = batch
            .packet(Some(&route), 40, faults.max_segments(&route))
            .expect("room");
        packet.fill(0);
        packet[..4].copy_from_slice(&i.to_ne_bytes());
        if (i + 1) % burst == 0 || i + 1 == n {
            let (runs, bytes) = batch.parts_mut();
            for run in runs {
                let bytes = &mut bytes[run.start..run.start + run.len];
                seal(bytes, run.segment, &context, Numbering::Single);
            }
            faults.send(&mut batch, now, &mut counters);
            batch.clear();
            now += 10;
        }
    }
    while let Some(timeout) = faults.next_timeout() {
        assert!(timeout > now, "what is due is sent");
        now = timeout;
        faults.send(&mut batch, now, &mut counters);
    }
    assert_eq!(counters.fault_packets, u64::from(n));
    assert_eq!((counters.tx_packets, counters.tx_errors), (0, 0));
    (faults.inner.0, counters)
}

fn number(packet: &[u8]) -> u32 {
    u32::from_ne_bytes(packet[..4].try_into().unwrap())
}

fn spec(text: &str) -> FaultSpec {
    text.parse().expect("a fault spec")
}

#[test]
fn without_faults_nothing_changes() {
    let sent = sent_through(spec("seed=1"), 100, 7);
    assert!(sent.iter().map(|p| number(p)).eq(0..100));
}

#[test]
fn the_same_seed_gives_the_same_faults_and_another_does_not() {
    let text = "drop=10%,dup=10%,reorder=10%,corrupt=10%,seed=";
    let run = |seed: u64| sent_through(spec(&format!("{text}{seed}")), 500, 9);
    assert!(run(42) == run(42));
    assert!(run(42) != run(43));
}

#[test]
fn drop_loses_about_as_many_as_asked() {
    let sent = sent_through(spec("drop=20%,seed=5"), 5000, 16);
    assert!((3800..4200).contains(&sent.len()), "{}", sent.len());
    assert!(sent.windows(2).all(|w| number(&w[0]) < number(&w[1])));
    assert!(sent_through(spec("drop=1,seed=5"), 100, 16).is_empty());
}

#[test]
fn each_fault_is_counted() {
    let (sent, counters) = counted_through(spec("drop=20%,dup=30%,seed=5"), 1000, 16);
    let expected = 1000 - counters.fault_drops + counters.fault_duplicates;
    assert_eq!(sent.len() as u64, expected);
    assert!(counters.fault_drops > 100 && counters.fault_duplicates > 100);
    let counted = |text: &str| counted_through(spec(text), 100, 16).1;
    assert_eq!(counted("corrupt=100%,seed=5").fault_corruptions, 100);
    assert_eq!(counted("reorder=100%,seed=5").fault_reorders, 100);
    assert_eq!(counted("delay=1us,seed=5").fault_reorders, 0);
}

#[test]
fn duplicates_are_exact() {
    let sent = sent_through(spec("dup=100%,seed=5"), 100, 16);
    assert!(sent.iter().map(|p| number(p)).eq((0..200).map(|i| i / 2)));
}

#[test]
fn each_corrupted_packet_is_another() {
    let clean = sent_through(spec("seed=9"), 1000, 16);
    let sent = sent_through(spec("corrupt=100%,seed=9"), 1000, 16);
    let mut bytes_hit = std::collections::BTreeSet::new();
    let mut counts = std::collections::BTreeSet::new();
    for (a, b) in clean.iter().zip(&sent) {
        assert_ne!(a, b);
        let differing = (0..b.len()).filter(|&at| a[at] != b[at]);
        counts.insert(differing.clone().count());
        bytes_hit.extend(differing);
    }
    assert_eq!(bytes_hit.len(), 44, "everywhere, the ICRC included");
    assert!(counts.len() > 10, "from one byte to many: {counts:?}");
    assert!(sent.iter().any(|packet| packet.len() < 44), "some are cut");
}

#[test]
fn reordering_loses_nothing_and_is_no_further_than_said() {
    let sent = sent_through(spec("reorder=20%,seed=3"), 2000, 16);
    let numbers: Vec<u32> = sent.iter().map(|p| number(p)).collect();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    assert!(sorted.iter().copied().eq(0..2000));
    assert_ne!(numbers, sorted);
    for (at, &n) in numbers.iter().enumerate() {
        assert!((at as i64 - i64::from(n)).abs() < 40, "{n} at {at}");
    }
}

#[test]
fn a_packet_held_back_goes_out_though_no_other_comes() {
    let route = route("127.0.0.1", "127.0.0.1", 0x5000);
    let mut faults = Faults::new(Record::default(), spec("reorder=1,seed=1"));
    let (mut batch, mut counters) = (TxBatch::default(), LinkCounters::default());
    batch.packet(Some(&route), 40, 1).expect("room").fill(0);
    faults.send(&mut batch, 100, &mut counters);
    batch.clear();
    assert!(faults.inner.0.is_empty());
    assert_eq!(faults.next_timeout(), Some(100 + REORDER_PATIENCE_NS));
    faults.send(&mut batch, 99 + REORDER_PATIENCE_NS, &mut counters);
    assert!(faults.inner.0.is_empty());
    faults.send(&mut batch, 100 + REORDER_PATIENCE_NS, &mut counters);
    assert_eq!(faults.inner.0.len(), 1);
    assert_eq!(faults.next_timeout(), None);
}

#[test]
fn delay_holds_every_packet_and_keeps_the_order() {
    let route = route("127.0.0.1", "127.0.0.1", 0x5000);
    let mut faults = Faults::new(Record::default(), spec("delay=10us,seed=1"));
    let (mut batch, mut counters) = (TxBatch::default(), LinkCounters::default());
    for (now, expected) in [(0, 0), (5_000, 0), (10_000, 1), (15_000, 2), (100_000, 4)] {
        batch
            .packet(Some(&route), 40, 1)
            .expect("room")
            .fill(now as u8);
        faults.send(&mut batch, now, &mut counters);
        batch.clear();
        assert_eq!(faults.inner.0.len(), expected, "at {now}");
    }
    assert_eq!(faults.next_timeout(), Some(110_000));
    let order: Vec<u8> = faults.inner.0.iter().map(|p| p[0]).collect();
    assert_eq!(order, [0, 5_000u64 as u8, 10_000u64 as u8, 15_000u64 as u8]);
}

#[test]
fn who_is_delayed_and_held_back_is_not_early() {
    const DELAY: u64 = 10_000;
    let route = route("127.0.0.1", "127.0.0.1", 0x5000);
    let mut faults = Faults::new(
        Record::default(),
        spec("delay=10us,reorder=20%,dup=20%,seed=4"),
    );
    let (mut batch, mut counters) = (TxBatch::default(), LinkCounters::default());
    for n in 0..1000_u32 {
        let packet = batch.packet(Some(&route), 40, 1).expect("room");
        packet[..4].copy_from_slice(&n.to_ne_bytes());
        faults.send(&mut batch, u64::from(n) * 1000, &mut counters);
        batch.clear();
    }
    while let Some(timeout) = faults.next_timeout() {
        faults.send(&mut batch, timeout, &mut counters);
    }
    let Record(packets, times) = &faults.inner;
    assert!(packets.len() > 1000);
    let mut overtaken = 0;
    for (at, packet) in packets.iter().enumerate() {
        let due = u64::from(number(packet)) * 1000 + DELAY;
        assert!(times[at] >= due, "{} at {}", number(packet), times[at]);
        let later = |other: &Vec<u8>| number(other) > number(packet);
        overtaken += usize::from(packets[..at].iter().any(later));
    }
    assert!(overtaken > 100, "{overtaken}");
}

#[test]
fn a_packet_is_not_overtaken_by_its_own_duplicate() {
    let route = route("127.0.0.1", "127.0.0.1", 0x5000);
    // Some seeds hold it back behind one packet, some behind more.
    for seed in 0..20 {
        let text = format!("reorder=1,dup=1,seed={seed}");
        let mut faults = Faults::new(Record::default(), spec(&text));
        let (mut batch, mut counters) = (TxBatch::default(), LinkCounters::default());
        batch.packet(Some(&route), 40, 1).expect("room").fill(0);
        faults.send(&mut batch, 100, &mut counters);
        assert_eq!(faults.inner.0.len(), 1, "seed {seed}");
        assert_eq!(faults.next_timeout(), Some(100 + REORDER_PATIENCE_NS));
    }
}

#[test]
fn packets_without_a_route_are_counted() {
    let mut faults = Faults::new(Record::default(), spec("seed=1"));
    let (mut batch, mut counters) = (TxBatch::default(), LinkCounters::default());
    batch.packet(None, 40, 1).expect("room");
    faults.send(&mut batch, 0, &mut counters);
    assert_eq!((counters.tx_errors, faults.inner.0.len()), (1, 0));
}

#[test]
fn specs_are_read_and_written() {
    let full = spec("drop=1%, dup=0.5%,reorder=5%,corrupt=0.01,delay=10us,seed=42");
    assert_eq!(
        full,
        FaultSpec {
            drop: 0.01,
            duplicate: 0.005,
            reorder: 0.05,
            corrupt: 0.01,
            delay_ns: 10_000,
            seed: Some(42)
        }
    );
    assert_eq!(spec(&full.to_string()), full);
    assert_eq!(spec(""), FaultSpec::default());
    assert_eq!(spec("delay=1.5ms").delay_ns, 1_500_000);
    assert_eq!(spec("delay=0").delay_ns, 0);
    assert_eq!(spec("delay=1s,duplicate=100%").duplicate, 1.0);
}

#[test]
fn mistakes_are_explained() {
    let error = |text: &str| text.parse::<FaultSpec>().unwrap_err().to_string();
    let expected: BTreeMap<&str, &str> = [
        ("loss=1%", "there is no fault `loss`; known are drop, dup"),
        ("drop", "`drop` has no value"),
        ("drop=200%", "a probability is a percentage"),
        ("drop=-1", "a probability is a percentage"),
        ("drop=NaN", "a probability is a percentage"),
        ("drop=1%,drop=2%", "`drop` is given twice"),
        ("dup=1%,duplicate=2%", "`dup` is given twice"),
        ("delay=10", "a time has a unit"),
        ("delay=1h", "a time has a unit"),
        ("delay=11s", "at most 10 s"),
        ("delay=-1ms", "a time has a unit"),
        ("seed=x", "a seed is a whole number"),
    ]
    .into();
    for (text, part) in expected {
        assert!(error(text).contains(part), "{text}: {}", error(text));
    }
}

proptest! {
    #[test]
    fn display_and_parse_agree(
        p in proptest::array::uniform4(0.0f64..=1.0),
        delay_ns in 0u64..=10_000_000_000,
        seed in any::<Option<u64>>(),
    ) {
        let [drop, duplicate, reorder, corrupt] = p;
        let spec = FaultSpec { drop, duplicate, reorder, corrupt, delay_ns, seed };
        prop_assert_eq!(spec.to_string().parse::<FaultSpec>().unwrap(), spec);
    }

    #[test]
    fn no_text_is_too_strange(text in ".{0,40}") {
        let _ = text.parse::<FaultSpec>();
    }
}

/// What a full socket did not take is tried again although nothing new is sent.
#[test]
fn what_waits_behind_faults_gets_its_time() {
    struct Waits(u32);
    impl Link for Waits {
        fn max_segments(&self, _route: &Route) -> usize {
            1
        }
        fn send(&mut self, _batch: &mut TxBatch, _now_ns: u64, _counters: &mut LinkCounters) {
            self.0 += 1;
        }
        fn receive(&mut self, _buffer: &mut [u8], _thorough: bool) -> io::Result<Arrival> {
            Ok(Arrival::Empty)
        }
        fn next_timeout(&self) -> Option<u64> {
            Some(50)
        }
    }
    let mut faults = Faults::new(Waits(0), FaultSpec::default());
    let mut counters = LinkCounters::default();
    for (now, sent) in [(49, 0), (50, 1)] {
        faults.send(&mut TxBatch::default(), now, &mut counters);
        assert_eq!((faults.inner.0, faults.next_timeout()), (sent, Some(50)));
    }
}
