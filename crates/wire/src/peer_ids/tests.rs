use super::{DOUBTS, FlowIds, LONGEST_BATCH, Leeway, PeerIds, SOON};
use crate::{Flow, IcrcContext, IcrcError, IcrcOk, ROCE_PORT};
use std::vec::Vec;

/// The clock wraps around.
const START_MS: u32 = u32::MAX - 3;

/// A receiver that knows one source, with flows that differ in their port.
struct Receiver {
    source: PeerIds,
    flows: Vec<FlowIds>,
    leeway: Leeway,
    now_ms: u32,
}

impl Receiver {
    fn new(flows: usize) -> Receiver {
        Receiver {
            source: PeerIds::default(),
            flows: std::vec![FlowIds::default(); flows],
            leeway: Leeway::default(),
            now_ms: START_MS,
        }
    }

    fn without_leeway(flows: usize) -> Receiver {
        Receiver {
            leeway: Leeway::none(START_MS),
            ..Receiver::new(flows)
        }
    }

    fn context(flow: usize) -> IcrcContext {
        IcrcContext::new(&Flow {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            src_port: 50_000 + flow as u16,
            dst_port: ROCE_PORT,
        })
    }

    fn packet(flow: usize, id: u16, df: bool) -> [u8; 64] {
        let mut packet = [0x5a; 64];
        Receiver::context(flow).append(id, df, &mut packet);
        packet
    }

    fn check(&mut self, flow: usize, packet: &[u8]) -> Result<IcrcOk, IcrcError> {
        let context = Receiver::context(flow);
        let now = self.now_ms;
        self.flows[flow].check(&mut self.source, &mut self.leeway, &context, packet, now)
    }

    fn takes_with(&mut self, flow: usize, id: u16, df: bool) -> bool {
        match self.check(flow, &Receiver::packet(flow, id, df)) {
            Ok(ok) => {
                assert_eq!(ok, IcrcOk { ip_id: id, df });
                true
            }
            Err(error) => {
                assert_eq!(error, IcrcError::Unlikely);
                false
            }
        }
    }

    fn takes(&mut self, flow: usize, id: u16) -> bool {
        self.takes_with(flow, id, true)
    }

    /// How many identifications pass now, each tried on a receiver that knows the same.
    fn believes(&self, flow: usize) -> usize {
        let ids = 0..=u16::MAX;
        let passes = |&id: &u16| {
            let mut again = Receiver {
                source: self.source,
                flows: self.flows.clone(),
                leeway: self.leeway,
                now_ms: self.now_ms,
            };
            again.takes(flow, id)
        };
        ids.filter(passes).count()
    }

    /// Time in which corruption used up what leeway it gave.
    fn pass(&mut self, ms: u32) {
        self.now_ms = self.now_ms.wrapping_add(ms);
        self.leeway = Leeway::none(self.now_ms);
    }

    /// A packet that no identification explains.
    fn corrupted(&mut self, flow: usize) {
        let mut packet = Receiver::packet(flow, 0, true);
        packet[20] ^= 1;
        assert_eq!(self.check(flow, &packet), Err(IcrcError::Mismatch));
    }
}

/// What the table in the module's documentation says.
#[test]
fn without_leeway_few_identifications_are_believed() {
    let mut nothing_known = Receiver::without_leeway(2);
    assert_eq!(nothing_known.believes(0), 4);

    // It starts over: single datagrams, then a batch.
    for _ in 0..5 {
        assert!(nothing_known.takes(0, 0));
    }
    let mut starts_over = nothing_known;
    starts_over.leeway = Leeway::none(START_MS);
    assert_eq!(starts_over.believes(0), 4);
    for id in 0..20 {
        assert!(starts_over.takes(0, id));
    }
    starts_over.leeway = Leeway::none(START_MS);
    assert_eq!(starts_over.believes(0), 7);
    assert_eq!(starts_over.believes(1), 4, "a new flow");

    let mut counts = Receiver::new(2);
    for id in 1000..1020 {
        assert!(counts.takes(0, id));
    }
    counts.leeway = Leeway::none(START_MS);
    assert_eq!((counts.believes(0), counts.believes(1)), (11, 11));
    for id in 3000..3020 {
        counts.leeway = Leeway::default();
        assert!(counts.takes(1, id));
    }
    counts.leeway = Leeway::none(START_MS);
    assert_eq!((counts.believes(0), counts.believes(1)), (22, 11));
}

/// What honest senders do costs them nothing as long as nothing is corrupted.
#[test]
fn no_honest_sender_loses_a_packet() {
    // Soft-RoCE: one counter for all flows, jumps, comes round; packets that are lost and change
    // places.
    let mut counts = Receiver::new(7);
    let mut id = 65_000u16;
    for n in 0..300_000u32 {
        id = id.wrapping_add(match n % 1000 {
            0 => 5000,
            1..10 => 40,
            _ => 1,
        });
        let late = u16::from(n % 50 == 7) * 3;
        assert!(
            counts.takes(n as usize % 7, id.wrapping_sub(late)),
            "{n} {id}"
        );
    }
    // rnic: batches of which any part is lost.
    let mut starts_over = Receiver::new(3);
    for n in 0..5000usize {
        for id in 0..(n as u16 * 7 % 64 + 1) {
            if (n + usize::from(id)) % 11 > n % 10 {
                assert!(starts_over.takes(n % 3, id), "{n} {id}");
            }
        }
    }
    // Random ones, and always the same.
    let mut random = Receiver::new(1);
    for n in 0..5000u32 {
        assert!(random.takes(0, (n.wrapping_mul(0x9e37_79b9) >> 16) as u16));
    }
    let mut same = Receiver::new(1);
    for _ in 0..300 {
        assert!(same.takes(0, 0x1234));
    }
}

/// In a storm of corruption a loss within a batch, or an idle time, costs one more packet, and no
/// more.
#[test]
fn without_leeway_a_jump_costs_one_packet() {
    let mut batch = Receiver::without_leeway(1);
    for id in [0, 0, 0, 1, 2, 5, 6, 5, 8] {
        assert!(
            batch.takes(0, id),
            "{id}: three packets are missing at most"
        );
    }
    assert!(!batch.takes(0, 40));
    assert!(batch.takes(0, 41));
    assert!(batch.takes(0, 42));
    assert!(batch.takes(0, 0));
    assert!(batch.takes(0, 1));
    // Also if others in between are corrupted.
    assert!(!batch.takes(0, 50));
    batch.corrupted(0);
    assert!(batch.takes(0, 53));
    assert!(!batch.takes(0, 100));
    assert!(!batch.takes(0, 104));
    assert!(!batch.takes(0, LONGEST_BATCH), "no longer within one");
    assert!(!batch.takes(0, 107));

    let mut counts = Receiver::without_leeway(2);
    assert!(!counts.takes(0, 500));
    assert!(counts.takes(0, 501));
    for id in 502..600 {
        assert!(counts.takes(0, id));
    }
    assert!(!counts.takes(0, 9000), "it was idle");
    assert!(counts.takes(0, 9000 + SOON));
    counts.pass(70);
    assert!(
        counts.takes(0, 9000 + SOON + 78),
        "the counter may have jumped"
    );
    assert_eq!((counts.believes(0), counts.believes(1)), (11, 11));
    counts.pass(70);
    assert_eq!((counts.believes(0), counts.believes(1)), (81, 81));
    counts.pass(100_000);
    assert_eq!(counts.believes(0), 1011);
    // A connection request that is repeated.
    assert!(!counts.takes(0, 20_000));
    counts.pass(6100);
    assert!(counts.takes(0, 26_000));

    // Random ones are believed now and then.
    let mut random = Receiver::without_leeway(1);
    let id = |n: u32| (n.wrapping_mul(0x9e37_79b9) >> 16) as u16;
    let taken = (0..4000).filter(|n| random.takes(0, id(*n))).count();
    assert!(taken >= 1000, "{taken}");
}

#[test]
fn a_change_of_habit_is_believed_at_the_second_packet() {
    let mut receiver = Receiver::new(2);
    for _ in 0..300 {
        assert!(receiver.takes(0, 0));
    }
    // Another host has the address now.
    assert!(!receiver.takes(0, 40_000));
    for id in 40_001..40_100 {
        assert!(receiver.takes(0, id));
    }
    assert!(receiver.takes(1, 40_100), "a flow of that host");
    // Without DF.
    assert!(!receiver.takes_with(0, 7, false));
    for id in 8..300 {
        assert!(receiver.takes_with(0, id, false));
    }
    // Always the same: at the fourth.
    for n in 1..=u32::from(DOUBTS) + 3 {
        assert_eq!(receiver.takes(0, 77), n >= DOUBTS.into(), "{n}");
    }
}

/// A corruption that passes for a change of habit is not confirmed by good packets, nor by ones
/// that fail.
#[test]
fn doubts_end() {
    let mut receiver = Receiver::new(1);
    for _ in 0..300 {
        assert!(receiver.takes(0, 0));
    }
    for _ in 0..20 {
        assert!(!receiver.takes(0, 40_000));
        assert!(receiver.takes(0, 0));
        assert!(!receiver.takes(0, 40_001));
        receiver.corrupted(0);
        assert!(!receiver.takes(0, 40_002));
        receiver.corrupted(0);
    }
    // What is far from the first is another doubt.
    for id in [1000, 30_000, 1001] {
        assert!(!receiver.takes(0, id));
    }
}

/// The account pays for all that corrupted packets were exposed to, and good packets fill it
/// slowly.
#[test]
fn corruption_uses_up_the_leeway() {
    let mut receiver = Receiver::new(1);
    assert_eq!(receiver.believes(0), 1 << 16);
    for _ in 0..64 {
        assert_ne!(receiver.leeway.account, 0);
        receiver.corrupted(0);
    }
    assert_eq!(receiver.believes(0), 4);
    receiver.leeway = Leeway::default();
    receiver.leeway.at_ms = START_MS;
    for _ in 0..3 {
        assert!(receiver.takes(0, 0));
    }
    assert_eq!(receiver.believes(0), usize::from(LONGEST_BATCH));
    for _ in 0..(64 << 16) / 128 {
        receiver.corrupted(0);
    }
    assert_eq!(receiver.believes(0), 4);
    for _ in 0..64 * 128 {
        assert!(receiver.takes(0, 0));
    }
    assert_eq!(receiver.believes(0), 128);
    receiver.corrupted(0);
    assert_eq!(receiver.believes(0), 4);
    // And time does: a stranger is heard a minute later.
    let mut later = Receiver::without_leeway(1);
    later.now_ms = later.now_ms.wrapping_add(59_000);
    assert_eq!(later.believes(0), 4);
    later.now_ms = later.now_ms.wrapping_add(1000);
    assert_eq!(later.believes(0), 1 << 16);
    later.corrupted(0);
    assert_eq!(later.believes(0), 4);
}

#[test]
fn a_header_that_is_seen_is_not_inferred() {
    let context = Receiver::context(0);
    let mut receiver = Receiver::new(1);
    let [flow] = &mut receiver.flows[..] else {
        unreachable!()
    };
    let seen = |ip_id| IcrcOk { ip_id, df: true };
    let packet = Receiver::packet(0, 9, true);
    let mut check = |seen| {
        flow.check_seen(
            &mut receiver.source,
            &mut receiver.leeway,
            &context,
            &packet,
            seen,
            5,
        )
    };
    assert_eq!(check(seen(9)), Ok(seen(9)));
    assert_eq!(check(seen(8)), Err(IcrcError::Mismatch));
    let without = IcrcOk {
        df: false,
        ..seen(9)
    };
    assert_eq!(check(without), Err(IcrcError::Mismatch));
    assert!(flow.is_known() && receiver.source.is_known());
}

#[test]
fn the_guess_follows_the_peer() {
    let mut receiver = Receiver::new(2);
    let guess = |receiver: &Receiver, flow: usize| receiver.flows[flow].expected(&receiver.source);
    assert_eq!(guess(&receiver, 0), 0);
    for id in [0, 0] {
        assert!(receiver.takes(0, id));
    }
    assert_eq!((guess(&receiver, 0), guess(&receiver, 1)), (0, 0));
    assert!(receiver.takes(0, 1));
    assert_eq!(guess(&receiver, 0), 2);
    let mut counts = Receiver::new(2);
    for id in [65_534, 65_535] {
        assert!(counts.takes(0, id));
    }
    assert_eq!((guess(&counts, 0), guess(&counts, 1)), (0, 0));
    assert!(counts.takes(0, 0));
    assert_eq!(guess(&counts, 0), 1);
}

/// The one bit that passes for DF when flipped: see `no_flipped_bit_passes_for_another_id` of the
/// ICRC.
#[test]
fn sees_through_the_bit_that_looks_like_df() {
    let context = Receiver::context(0);
    let mut packet = [0x5a; 1044];
    context.append(0, true, &mut packet);
    let mut receiver = Receiver::new(1);
    assert_eq!(
        receiver.check(0, &packet),
        Ok(IcrcOk { ip_id: 0, df: true })
    );

    // 14 bytes of IPv4 header and the UDP header lie between the ID and the packet. Within a byte
    // the lowest bit comes first; x^-1 is the first bit behind the ID.
    let bit = 1564 - 1 - 8 * (14 + 8);
    packet[bit / 8] ^= 1 << (bit % 8);
    let fooled = context.check_any_df(&packet, 0).unwrap();
    assert!(!fooled.df);
    assert_eq!(context.check(&packet, 0), Err(IcrcError::Mismatch));
    for mut receiver in [receiver, Receiver::new(1)] {
        assert_eq!(receiver.check(0, &packet), Err(IcrcError::Unlikely));
    }
}
