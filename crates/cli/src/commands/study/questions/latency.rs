//! Questions about the time of one operation.

use super::{Figure, Look, Metric, Panel, Question, Series, Varied};
use crate::commands::study::setup::{Operation, Service, Setup, Waiting};

fn by_size(title: &'static str, metric: Metric, series: Vec<Series>) -> Panel {
    Panel {
        title,
        metric,
        varied: Varied::Size,
        x_title: "message size",
        log: false,
        series,
    }
}

fn inlined(mut setup: Setup) -> Setup {
    setup.inline = true;
    setup
}

pub fn inline() -> Question {
    let sizes = [10, 30, 60, 100, 150, 230];
    let send = |size| Setup::ping_pong(Operation::Send, size);
    let (yes, no) = ("inline", "not inline");
    Question {
        id: "inline",
        title: "Inline or not: who carries a short message to the card?",
        panels: vec![by_size(
            "Latency of a SEND, one way",
            Metric::Latency,
            vec![
                Series::new(yes, &sizes, |size| inlined(send(size))).with_model(),
                Series::new(no, &sizes, send).with_model(),
            ],
        )],
        looks: [10, 230]
            .map(|x| Look::Between {
                panel: 0,
                first: yes,
                second: no,
                x,
            })
            .into(),
        figures: [(yes, 1.41), (no, 1.91)]
            .map(|(series, value)| Figure {
                panel: 0,
                series,
                x: 10,
                value,
            })
            .into(),
        why: "An inline message is part of the work request, so a card need not fetch it from memory \
              over PCIe, and the buffer is free at once.",
        note: "A software NIC reads the buffer by the processor's own loads: there is no fetch over \
               PCIe to save. Without inline it has a key to check instead. The dashed model has the \
               fetch of a card.",
    }
}

pub fn operation() -> Question {
    let sizes = [10, 100, 1024, 4096, 10240];
    let short = |setup: Setup| match setup.size <= 220 {
        true => inlined(setup),
        false => setup,
    };
    let (send, write, read) = ("SEND", "WRITE", "READ");
    Question {
        id: "operation",
        title: "SEND, WRITE or READ: which operation for a message?",
        panels: vec![by_size(
            "Latency: SEND and WRITE one way, READ there and back",
            Metric::Latency,
            vec![
                Series::new(send, &sizes, |n| {
                    short(Setup::ping_pong(Operation::Send, n))
                })
                .with_model(),
                Series::new(write, &sizes, |n| {
                    short(Setup::ping_pong(Operation::Write, n))
                })
                .with_model(),
                Series::new(read, &sizes, |n| Setup::one_by_one(Operation::Read, n)).with_model(),
            ],
        )],
        looks: vec![
            Look::Between {
                panel: 0,
                first: read,
                second: write,
                x: 10,
            },
            Look::Between {
                panel: 0,
                first: read,
                second: write,
                x: 10240,
            },
        ],
        figures: [
            (send, 10, 1.41),
            (write, 10, 1.32),
            (read, 10, 2.42),
            (write, 10240, 7.0),
            (read, 10240, 7.6),
        ]
        .map(|(series, x, value)| Figure {
            panel: 0,
            series,
            x,
            value,
        })
        .into(),
        why: "A WRITE is a one-way trip and a READ a round trip: its request goes there and its data \
              comes back. Long messages take so long by themselves that the trip matters less.",
        note: "Between processes of one host, rnic does a WRITE or READ by one system call that \
               copies to or from the other process's memory. That call alone takes a microsecond or \
               more, and a SEND goes through a ring without any. So a short SEND is faster here \
               than a WRITE, and a WRITE takes about as long as a READ. On a card neither is so. What \
               grows with the size is the speed of a copy, and not that of PCIe and a link.",
    }
}

/// Microseconds between messages, where the processor time of waiting is looked at.
const PAUSE: u32 = 1000;

pub fn polling() -> Question {
    let sizes = [10, 100, 1024, 10240];
    let names = ["busy", "adaptive", "event"];
    let ways = [Waiting::Busy, Waiting::Adaptive, Waiting::Event];
    let series = |pause_us: u32, model: bool| {
        let each = names.into_iter().zip(ways).map(move |(name, waiting)| {
            let series = Series::new(name, &sizes, |size| {
                let mut setup = Setup::ping_pong(Operation::Send, size);
                setup.inline = size <= 220;
                (setup.waiting, setup.pause_us) = (waiting, pause_us);
                setup
            });
            match model {
                true => series.with_model(),
                false => series,
            }
        });
        each.collect()
    };
    let between = |panel| Look::Between {
        panel,
        first: "event",
        second: "busy",
        x: 10,
    };
    Question {
        id: "polling",
        title: "Busy, event or adaptive: how to wait for a completion?",
        panels: vec![
            by_size(
                "Latency of a SEND, one way",
                Metric::Latency,
                series(0, true),
            ),
            by_size(
                "Processor time of both processes for each message, one ping-pong every millisecond",
                Metric::Processor,
                series(PAUSE, false),
            ),
        ],
        looks: vec![between(0), between(1)],
        figures: [("busy", 1.4), ("event", 4.8)]
            .map(|(series, value)| Figure {
                panel: 0,
                series,
                x: 10,
                value,
            })
            .into(),
        why: "A thread that polls sees a completion at once, and takes a processor for it all the \
              time. One that sleeps has to be woken: that costs a fixed time for each message.",
        note: "rnic has no card that works while the program sleeps: a sleeping thread, or the NIC's \
               own one, is woken by the packet and does the NIC's work as well. The model adds the \
               wake-up that the texts measured.",
    }
}

pub fn service() -> Question {
    // UD messages have one packet, and Ethernet's usual path MTU is 1024 bytes.
    let sizes = [10, 100, 400, 1000];
    let series = |name, service| {
        Series::new(name, &sizes, |size| {
            let mut setup = Setup::ping_pong(Operation::Send, size);
            setup.inline = size <= 220;
            setup.service = service;
            setup
        })
    };
    Question {
        id: "service",
        title: "RC, UC or UD: what does reliability cost?",
        panels: vec![by_size(
            "Latency of a SEND, one way",
            Metric::Latency,
            vec![
                series("RC", Service::Rc).with_model(),
                series("UC", Service::Uc),
                series("UD", Service::Ud),
            ],
        )],
        looks: ["UC", "UD"]
            .map(|second| Look::Between {
                panel: 0,
                first: "RC",
                second,
                x: 10,
            })
            .into(),
        figures: Vec::new(),
        why: "The message itself takes the same way in all three. RC acknowledges it afterwards, \
              which is work beside the way of the message and no part of it.",
        note: "On a card the services differ in what the card has to remember: RC and UC need a \
               context for each peer, UD one for all. The question `qps` shows what that costs. The \
               model knows no difference of latency.",
    }
}

pub fn registration() -> Question {
    let sizes = [4096, 16384, 65536, 262_144, 1 << 20];
    let (once, each) = ("registered once", "registered for each message");
    let write = |size| Setup::one_by_one(Operation::Write, size);
    Question {
        id: "registration",
        title: "Register memory once, or for each message?",
        panels: vec![Panel {
            log: true,
            ..by_size(
                "Time of a WRITE, from the buffer to its completion",
                Metric::Latency,
                vec![
                    Series::new(once, &sizes, write).with_model(),
                    Series::new(each, &sizes, |size| {
                        let mut setup = write(size);
                        setup.register_each = true;
                        setup
                    })
                    .with_model(),
                ],
            )
        }],
        looks: [4096, 1 << 20]
            .map(|x| Look::Between {
                panel: 0,
                first: each,
                second: once,
                x,
            })
            .into(),
        figures: Vec::new(),
        why: "Registration is a call that prepares each page. Programs that move data by RDMA keep \
              their buffers registered, or have a cache of registrations.",
        note: "rnic pins nothing and fills no page table of a card; what is measured is the new memory \
               and its first use. The model has a card's registration: a system call and each page \
               pinned.",
    }
}
