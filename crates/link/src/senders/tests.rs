//! Flows and sources are told apart, none that was good is displaced by what is not, and both
//! tables stay small.

use rnic_wire::ROCE_PORT;

use super::*;

fn flow(source: u32, port: u16) -> Flow {
    Flow {
        src: std::net::Ipv4Addr::from(0x0a00_0000 + source).into(),
        dst: [10, 255, 0, 1].into(),
        src_port: port,
        dst_port: ROCE_PORT,
    }
}

fn packet(flow: &Flow, id: u16) -> [u8; 40] {
    let mut packet = [7; 40];
    IcrcContext::new(flow).append(id, true, &mut packet);
    packet
}

fn takes(senders: &mut Senders, flow: &Flow, id: u16) -> bool {
    let packet = packet(flow, id);
    let result = senders.of(flow).check(&packet, IpIds::Hidden, 0, 0);
    assert!(result.is_ok() || result == Err(IcrcError::Unlikely));
    result.is_ok()
}

fn garbage(senders: &mut Senders, flow: &Flow) {
    let mut packet = packet(flow, 0);
    packet[12] ^= 1;
    let result = senders.of(flow).check(&packet, IpIds::Hidden, 0, 0);
    assert_eq!(result, Err(IcrcError::Mismatch));
}

/// So much of it that there is no leeway left.
fn storm(senders: &mut Senders) {
    for n in 0..10_000 {
        garbage(senders, &flow(1 << 20 | n, 9));
    }
}

fn know(senders: &mut Senders, flow: &Flow, id: u16) {
    while !takes(senders, flow, id) {}
    takes(senders, flow, id);
    takes(senders, flow, id);
}

#[test]
fn senders_are_told_apart_by_all_of_their_flow() {
    let mut senders = Senders::default();
    let other = |port| Flow {
        dst: [10, 255, 0, 2].into(),
        ..flow(1, port)
    };
    // More than there are places: some are displaced, nobody is taken for another.
    for port in 0..20_000 {
        for flow in [flow(1, port), other(port), flow(2, port)] {
            let sender = senders.of(&flow);
            assert_eq!(sender.flow.icrc, IcrcContext::new(&flow));
            assert!(takes(&mut senders, &flow, 0));
        }
    }
    assert_eq!(senders.flows.places.len(), MANY * WAYS);
}

/// What many flows of a source do is known of it, however many they are.
#[test]
fn a_source_is_known_by_all_of_its_flows() {
    let mut senders = Senders::default();
    for port in 0..30_000 {
        know(&mut senders, &flow(1, port), 0);
    }
    storm(&mut senders);
    // Fewer than give leeway again, more than there is room for.
    for port in 0..5000 {
        assert!(!takes(&mut senders, &flow(1, port), 77), "{port}");
        assert!(takes(&mut senders, &flow(1, port), 0), "{port}");
    }
}

/// Garbage from as many addresses and ports as there are does not wash away what is known.
#[test]
fn garbage_displaces_nobody() {
    let mut senders = Senders::default();
    for source in 0..100 {
        know(&mut senders, &flow(source, 5), 1000);
    }
    for n in 0..100_000u32 {
        garbage(&mut senders, &flow(1 << 20 | n, 9));
        garbage(&mut senders, &flow(n % 100, n as u16 | 0x100));
    }
    for source in 0..100 {
        // It is known to count, and where it is.
        assert!(takes(&mut senders, &flow(source, 5), 1001), "{source}");
        assert!(takes(&mut senders, &flow(source, 6), 1002), "{source}");
    }
}

/// Forged addresses with right ICRCs displace the sender that was silent longest, and take no more
/// memory than there is.
#[test]
fn forged_addresses_take_bounded_memory() {
    let mut senders = Senders::default();
    for n in 0..200_000 {
        know(&mut senders, &flow(n, 5), 1000);
        if n % 64 == 0 {
            assert!(takes(&mut senders, &flow(1 << 20, 5), 1000), "{n}");
        }
    }
    assert_eq!(senders.flows.places.len(), MANY * WAYS);
    assert_eq!(senders.sources.places.len(), MANY * WAYS);
    storm(&mut senders);
    assert!(
        takes(&mut senders, &flow(1 << 20, 6), 1001),
        "in use all the time"
    );
}

/// A sender without a place in its set is known as soon as it has sent something good.
#[test]
fn a_newcomer_finds_its_place() {
    let mut senders = Senders::default();
    for n in 0..40_000 {
        know(&mut senders, &flow(n, 5), 1000);
    }
    storm(&mut senders);
    for n in 0..500 {
        let newcomer = flow(1 << 21 | n, 5);
        assert!(!takes(&mut senders, &newcomer, 500));
        assert!(takes(&mut senders, &newcomer, 501));
        garbage(&mut senders, &flow(1 << 22 | n, 5));
        garbage(&mut senders, &newcomer);
        assert!(takes(&mut senders, &newcomer, 502), "{n}");
    }
}

#[test]
fn a_table_that_grows_forgets_nobody() {
    let mut senders = Senders::default();
    let mut grown = 0;
    for n in 0..600 {
        let places = senders.sources.places.len();
        know(&mut senders, &flow(n, 5), 1000);
        grown += u32::from(senders.sources.places.len() > places);
    }
    assert!(grown > 0);
    storm(&mut senders);
    let known = (0..600).filter(|&n| takes(&mut senders, &flow(n, 6), 1001));
    assert_eq!(known.count(), 600);
}

/// Whatever the secret is, addresses next to each other do not crowd into a few sets.
#[test]
fn neighbouring_addresses_spread_with_any_secret() {
    for _ in 0..20_000 {
        let secret = [sys::random_u64(), sys::random_u64() | 1];
        let mut sets = [0u8; MANY];
        for n in 0..600u32 {
            let address = IpAddr::V4(std::net::Ipv4Addr::from(0x0a00_0000 + n));
            sets[address.hash(secret) as usize % MANY] += 1;
        }
        let most = sets.into_iter().max().unwrap_or(0);
        assert!(
            usize::from(most) <= 2 * WAYS,
            "{most} in a set with {secret:x?}"
        );
    }
}
