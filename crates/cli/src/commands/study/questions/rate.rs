//! Questions about how much gets through.

use super::{Look, Metric, Panel, Question, Series, Varied};
use crate::commands::study::setup::{Operation, Setup};
use crate::peer::bulk::usual_depth;

fn by_count(title: &'static str, x_title: &'static str, series: Vec<Series>) -> Panel {
    Panel {
        title,
        metric: Metric::Messages,
        varied: Varied::Count,
        x_title,
        log: false,
        series,
    }
}

/// Short inline WRITEs: little beside the work for a request.
fn short(depth: usize) -> Setup {
    let mut setup = Setup::stream(Operation::Write, 32, depth);
    setup.inline = true;
    setup
}

fn along(series: &'static str, from: u64, to: u64) -> Look {
    Look::Along {
        panel: 0,
        series,
        from,
        to,
    }
}

pub fn signaled() -> Question {
    let every = [1, 2, 4, 8, 16, 32, 64];
    let name = "WRITE of 32 B";
    Question {
        id: "signaled",
        title: "A completion for each request, or for every Nth?",
        panels: vec![by_count(
            "Rate, 128 requests under way",
            "requests for each signaled one",
            vec![
                Series::new(name, &every, |n| {
                    let mut setup = short(128);
                    setup.signal_every = n;
                    setup
                })
                .with_model(),
            ],
        )],
        looks: vec![along(name, 1, 64)],
        figures: Vec::new(),
        why: "A completion stands for all requests before it. Fewer of them are fewer entries to \
              write and to poll. One in half a queue is enough; without any, the queue fills up.",
        note: "A card writes each completion over PCIe; rnic writes it into memory that the \
               processor has in its cache. The model has a cost for the completion of a card.",
    }
}

pub fn batch() -> Question {
    let batches = [1, 2, 4, 8, 16, 32];
    let name = "WRITE of 32 B";
    Question {
        id: "batch",
        title: "One post for each request, or a list of them?",
        panels: vec![by_count(
            "Rate, 128 requests under way",
            "requests in one post",
            vec![
                Series::new(name, &batches, |n| {
                    let mut setup = short(128);
                    (setup.batch, setup.signal_every) = (n, 32);
                    setup
                })
                .with_model(),
            ],
        )],
        looks: vec![along(name, 1, 32)],
        figures: Vec::new(),
        why: "A list of requests is handed over by one call and one doorbell, whatever its length.",
        note: "A doorbell is a write to the card's registers over PCIe, which rnic does not have: it \
               saves a lock and a round of its engine instead. On the other hand a single short \
               request leaves at once, and a list goes through the engine. The model has the doorbell \
               of a card.",
    }
}

pub fn depth() -> Question {
    let depths = [1, 2, 4, 8, 16, 32, 64, 128];
    Question {
        id: "depth",
        title: "How many requests to have under way?",
        panels: vec![by_count(
            "Rate of 64 B",
            "requests under way",
            [("WRITE", Operation::Write), ("READ", Operation::Read)]
                .map(|(name, operation)| {
                    let stream = |n| Setup::stream(operation, 64, n);
                    Series::new(name, &depths, stream).with_model()
                })
                .into(),
        )],
        looks: vec![along("WRITE", 1, 128), along("READ", 1, 128)],
        figures: Vec::new(),
        why: "With one request at a time the rate is one for each round trip. More under way fill the \
              time of the trip, until some part of the way has no rest.",
        note: "Between processes of one host the trip is short and the two processors do the NIC's \
               work, so a few requests fill it. A network with a longer trip needs more of them.",
    }
}

pub fn mtu() -> Question {
    let mtus = [256, 512, 1024, 2048, 4096];
    let name = "WRITE of 64 KiB";
    Question {
        id: "mtu",
        title: "How long may a packet be?",
        panels: vec![Panel {
            metric: Metric::Bytes,
            varied: Varied::PathMtu,
            ..by_count(
                "Throughput",
                "path MTU",
                vec![
                    Series::new(name, &mtus, |mtu| {
                        let mut setup = Setup::stream(Operation::Write, 65536, 16);
                        setup.path_mtu = Some(mtu);
                        setup
                    })
                    .with_model(),
                ],
            )
        }],
        looks: vec![along(name, 256, 4096)],
        figures: Vec::new(),
        why: "Each packet has headers and is work for both ends, so fewer and longer ones carry more.",
        note: "Through shared memory a packet of rnic has up to 16 KiB, whatever the path MTU is; then \
               it makes no difference. `RNIC_HOST_PATH=off rnic study mtu`, or two hosts, show it over \
               UDP, where a packet costs far more than on a card. In the model a packet costs its \
               headers alone.",
    }
}

pub fn qps() -> Question {
    let counts = [1, 2, 4, 8, 16, 32, 64, 128, 256];
    let name = "WRITE of 32 B";
    Question {
        id: "qps",
        title: "How many queue pairs?",
        panels: vec![by_count(
            "Rate, 64 requests under way over all queue pairs",
            "queue pairs",
            vec![
                Series::new(name, &counts, |n| {
                    let mut setup = short(64);
                    setup.queue_pairs = n;
                    setup
                })
                .with_model(),
            ],
        )],
        looks: vec![along(name, 1, 256)],
        figures: Vec::new(),
        why: "Each queue pair has a context. With more of them than a cache holds, each request first \
              waits for its own.",
        note: "rnic's contexts are in the processor's caches, which are larger than those of a card. \
               What many queue pairs cost it is a round of the engine for each: fewer requests share \
               one. The model has a card that holds 64 contexts.",
    }
}

pub fn srq() -> Question {
    let counts = [1, 4, 16, 64];
    let (own, shared) = ("a receive queue each", "one shared receive queue");
    let send = |n| {
        let mut setup = Setup::stream(Operation::Send, 64, 64);
        (setup.inline, setup.queue_pairs) = (true, n);
        setup
    };
    Question {
        id: "srq",
        title: "A receive queue for each peer, or one for all?",
        panels: vec![by_count(
            "Rate of SENDs of 64 B, 64 under way over all queue pairs",
            "queue pairs",
            vec![
                Series::new(own, &counts, send),
                Series::new(shared, &counts, |n| {
                    let mut setup = send(n);
                    setup.shared_receives = true;
                    setup
                }),
            ],
        )],
        looks: [1, 64]
            .map(|x| Look::Between {
                panel: 0,
                first: shared,
                second: own,
                x,
            })
            .into(),
        figures: Vec::new(),
        why: "Any peer may send all 64 messages, so each queue needs as many buffers: 65 for each queue \
              pair (4160 with 64 of them), or 65 in the shared one.",
        note: "What a shared receive queue saves is memory, here as on a card. Whether it costs speed is \
               a matter of the card; there is no model of it.",
    }
}

pub fn throughput() -> Question {
    let sizes = [64, 256, 1024, 4096, 16384, 65536, 262_144, 1 << 20];
    Question {
        id: "throughput",
        title: "How long must messages be to fill the link?",
        panels: vec![Panel {
            metric: Metric::Bytes,
            varied: Varied::Size,
            log: true,
            ..by_count(
                "Throughput, many under way",
                "message size",
                [
                    ("SEND", Operation::Send),
                    ("WRITE", Operation::Write),
                    ("READ", Operation::Read),
                ]
                .map(|(name, operation)| {
                    let stream = |size| Setup::stream(operation, size, usual_depth(size));
                    let series = Series::new(name, &sizes, stream);
                    match operation {
                        Operation::Write => series.with_model(),
                        _ => series,
                    }
                })
                .into(),
            )
        }],
        looks: vec![
            along("WRITE", 64, 1 << 20),
            Look::Between {
                panel: 0,
                first: "READ",
                second: "WRITE",
                x: 1 << 20,
            },
        ],
        figures: Vec::new(),
        why: "A short message costs as much work as a long one. From some size on, the bytes decide: \
              the link of a card, or a copy by the processor.",
        note: "Between processes of one host there is no link: what is seen at long messages is how fast \
               the processors copy memory. The model has the link of a card (FDR InfiniBand).",
    }
}

pub fn atomics() -> Question {
    let counts = [1, 2, 4, 8, 16];
    let series = |name, operation, spread| {
        Series::new(name, &counts, |n| {
            let mut setup = Setup::stream(operation, 8, 1);
            (setup.queue_pairs, setup.spread) = (n, spread);
            setup
        })
    };
    let (same, own) = ("FETCH-AND-ADD, one word", "FETCH-AND-ADD, a word each");
    let swap = "COMPARE-AND-SWAP, one word";
    Question {
        id: "atomics",
        title: "What do atomics cost when many want the same word?",
        panels: vec![by_count(
            "Updates that succeeded, one request under way on each queue pair",
            "queue pairs",
            vec![
                series(same, Operation::FetchAdd, false).with_model(),
                series(own, Operation::FetchAdd, true),
                series(swap, Operation::CompareSwap, false),
            ],
        )],
        looks: vec![
            along(same, 1, 16),
            Look::Between {
                panel: 0,
                first: swap,
                second: same,
                x: 16,
            },
        ],
        figures: Vec::new(),
        why: "The responder does one atomic after the other. FETCH-AND-ADD always succeeds; \
              COMPARE-AND-SWAP fails if another one came first, and is tried again.",
        note: "A card locks the word, or one of a few slots for all words, for a round trip over PCIe: \
               the model has its limit. rnic does an atomic by an instruction of the processor.",
    }
}
