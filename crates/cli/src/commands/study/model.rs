//! The cost model of a card. docs/study.md has the formula in words.

use super::card::Card;
use super::questions::Metric;
use super::setup::{Flow, Operation, Setup, Waiting};

/// What the model says of a setup, in the units of the metric; `None`: it says nothing.
pub fn value(card: &Card, setup: &Setup, metric: Metric) -> Option<f64> {
    match metric {
        Metric::Latency => Some(latency_us(card, setup)),
        Metric::Messages => rate(card, setup),
        Metric::Bytes => rate(card, setup).map(|rate| rate * setup.size as f64),
        Metric::Processor => None,
    }
}

/// Of one operation, from its post until its bytes are there.
fn latency_us(card: &Card, setup: &Setup) -> f64 {
    const PAGE: usize = 4096;
    let get = |name| card.get(name);
    let inline = setup.inline && setup.size as f64 <= get("inline_bytes");
    let way = match setup.operation {
        // What it brings is not fetched from the memory of this side.
        Operation::Read | Operation::FetchAdd | Operation::CompareSwap => get("read_us"),
        Operation::Write | Operation::Send => {
            let extra = match setup.operation {
                Operation::Send => get("send_extra_us"),
                _ => 0.0,
            };
            let fetch = if inline { 0.0 } else { get("fetch_us") };
            get("write_us") + extra + fetch
        }
    };
    let event = match setup.waiting {
        Waiting::Event => get("event_us"),
        // What comes soon is polled.
        Waiting::Busy | Waiting::Adaptive => 0.0,
    };
    let pages = setup.size.div_ceil(PAGE) as f64;
    let registration = match setup.register_each {
        true => get("register_us") + get("register_page_us") * pages,
        false => 0.0,
    };
    way + setup.size as f64 * get("byte_ns") / 1e3 + event + registration
}

/// Operations per second: those of the part that is slowest.
fn rate(card: &Card, setup: &Setup) -> Option<f64> {
    /// Of a WRITE or READ of this service; the path MTU of a card, where none is set.
    const PATH_MTU: usize = 4096;
    if setup.operation == Operation::CompareSwap {
        // How often one fails is not a matter of the card alone.
        return None;
    }
    let get = |name| card.get(name);
    let doorbells = get("doorbell_ns") / setup.batch as f64;
    let completions = get("completion_ns") / setup.signal_every as f64;
    let processor = get("post_ns") + doorbells + completions;
    let missed = (1.0 - get("cached_qps") / setup.queue_pairs as f64).max(0.0);
    let mut card_ns = 1e3 / get("message_rate") * (1.0 + missed * get("miss_cost"));
    if setup.operation.is_atomic() {
        card_ns = card_ns.max(1e3 / get("atomic_rate"));
    }
    let packets = setup
        .size
        .div_ceil(setup.path_mtu.unwrap_or(PATH_MTU))
        .max(1);
    let wire_bytes = setup.size as f64 + packets as f64 * get("packet_bytes");
    let link = wire_bytes * 8.0 / get("link_rate");
    // A WRITE completes when its acknowledgement is back: a trip as long as that of a READ.
    let there_and_back = match setup.operation {
        Operation::Read | Operation::FetchAdd | Operation::CompareSwap => latency_us(card, setup),
        Operation::Write | Operation::Send => {
            latency_us(card, setup) + get("read_us") - get("write_us")
        }
    };
    let under_way = match setup.flow {
        Flow::Stream if setup.operation.is_atomic() => setup.queue_pairs,
        Flow::Stream => setup.depth,
        Flow::PingPong | Flow::OneByOne => 1,
    };
    let window = there_and_back * 1e3 / under_way as f64;
    let slowest = [processor, card_ns, link, window]
        .into_iter()
        .fold(0.0, f64::max);
    Some(1e9 / slowest)
}

#[cfg(test)]
mod tests {
    use super::super::card::tests::built_in;
    use super::*;

    #[track_caller]
    fn near(found: f64, expected: f64) {
        assert!(
            (found / expected - 1.0).abs() < 0.01,
            "{found}, not {expected}"
        );
    }

    fn latency(setup: Setup) -> f64 {
        value(&built_in(), &setup, Metric::Latency).expect("a latency")
    }

    fn messages(setup: Setup) -> f64 {
        value(&built_in(), &setup, Metric::Messages).expect("a rate")
    }

    fn inline(mut setup: Setup) -> Setup {
        setup.inline = true;
        setup
    }

    /// The model goes through the figures that its parameters are from.
    #[test]
    fn it_gives_the_figures_of_the_texts() {
        near(latency(inline(Setup::ping_pong(Operation::Send, 10))), 1.41);
        near(latency(Setup::ping_pong(Operation::Send, 10)), 1.91);
        near(
            latency(inline(Setup::ping_pong(Operation::Write, 10))),
            1.32,
        );
        near(latency(Setup::one_by_one(Operation::Read, 10)), 2.42);
        near(latency(Setup::ping_pong(Operation::Write, 10240)), 7.0);
        near(latency(Setup::one_by_one(Operation::Read, 10240)), 7.6);
        let mut event = inline(Setup::ping_pong(Operation::Send, 10));
        event.waiting = Waiting::Event;
        near(latency(event), 4.81);
        // A card takes no more inline than it can.
        assert_eq!(
            latency(inline(Setup::ping_pong(Operation::Send, 300))),
            latency(Setup::ping_pong(Operation::Send, 300))
        );
    }

    /// Each parameter of a stream limits it where it should.
    #[test]
    fn the_slowest_part_decides() {
        let write = inline(Setup::stream(Operation::Write, 32, 128));
        let with = |change: fn(&mut Setup)| {
            let mut setup = write;
            change(&mut setup);
            messages(setup)
        };
        // Doorbells and completions.
        near(with(|_| ()), 1e9 / (55.0 + 88.0 + 60.0));
        near(with(|s| s.signal_every = 60), 1e9 / (55.0 + 88.0 + 1.0));
        assert!(with(|s| s.batch = 16) > with(|_| ()));
        // One under way at a time.
        near(with(|s| s.depth = 1), 1e6 / 2.431);
        // Contexts that do not fit into the cache.
        let many = |queue_pairs| {
            let mut setup = write;
            (setup.queue_pairs, setup.batch, setup.signal_every) = (queue_pairs, 32, 64);
            messages(setup)
        };
        assert_eq!(many(1), many(64));
        assert!(many(256) < 0.5 * many(64));
        // Atomics do not go beyond their own rate.
        let atomics = |queue_pairs| {
            let mut setup = Setup::stream(Operation::FetchAdd, 8, 1);
            setup.queue_pairs = queue_pairs;
            messages(setup)
        };
        near(atomics(1), 1e6 / 2.419);
        near(atomics(16), 2.7e6);
        let swap = Setup::stream(Operation::CompareSwap, 8, 1);
        assert_eq!(value(&built_in(), &swap, Metric::Messages), None);
        assert_eq!(value(&built_in(), &swap, Metric::Processor), None);
        // Headers of short packets.
        let bytes = |path_mtu| {
            let mut setup = Setup::stream(Operation::Write, 65536, 16);
            setup.path_mtu = Some(path_mtu);
            value(&built_in(), &setup, Metric::Bytes).expect("a rate")
        };
        near(
            bytes(256) / bytes(4096),
            (4096.0 + 42.0) / 4096.0 * 256.0 / (256.0 + 42.0),
        );
    }

    /// Registration for each message costs by the page.
    #[test]
    fn registration_costs() {
        let cost = |size| {
            let mut setup = Setup::one_by_one(Operation::Write, size);
            let once = latency(setup);
            setup.register_each = true;
            latency(setup) - once
        };
        near(cost(4096), 20.12);
        near(cost(1 << 20), 20.0 + 256.0 * 0.12);
    }
}
