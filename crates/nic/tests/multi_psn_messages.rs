//! Messages of any length, from and to anywhere, arrive byte for byte when they go by value in long
//! packets, and nothing beside them is written.

use crate::environment;
use crate::pair;

use crate::region::{Region, wait};
use proptest::prelude::*;
use rnic_nic::{Context, Cq, Pd, Qp, RecvWqe, SendData, SendOp, SendWqe, SgList};

/// Beyond a few long packets.
const LONGEST: usize = 70_000;
const ROOM: usize = LONGEST + 8192;

struct World {
    pd: Pd,
    cq: Cq,
    a: Qp,
    b: Qp,
}

fn world(context: &Context) -> World {
    let pd = context.alloc_pd();
    let cq = context.create_cq(64, None, 0).expect("a completion queue");
    let [a, b] = [(); 2].map(|()| pair::create(&pd, &cq, &cq, None, 16));
    pair::connect(context, &a, &b);
    World { pd, cq, a, b }
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Send,
    Write,
    Read,
}

fn source_byte(i: usize) -> u8 {
    (i * 31 + (i >> 8) * 7) as u8 | 1
}

#[derive(Clone, Copy, Debug)]
struct Case {
    verb: Verb,
    len: usize,
    /// Where the bytes are, and where they go.
    from: usize,
    to: usize,
    /// Where the one side's two pieces part, and how far.
    cut: usize,
    gap: usize,
}

fn exchange(world: &World, case: Case) {
    let World { pd, cq, a, b } = world;
    let Case {
        verb,
        len,
        from,
        to,
        cut,
        gap,
    } = case;
    let source = Region::new(pd, ROOM, source_byte);
    let target = Region::new(pd, ROOM, |_| 0);
    let peer = match verb {
        Verb::Read => source.sge(from, len),
        _ => target.sge(to, len),
    };
    let (remote_addr, rkey) = match verb {
        Verb::Read => (peer.addr, source.mr.rkey()),
        _ => (peer.addr, target.mr.rkey()),
    };
    let (op, data) = match verb {
        Verb::Send => {
            let receive = RecvWqe {
                wr_id: 1,
                sges: SgList::from_slice(&[peer]),
            };
            b.post_recv(&mut std::iter::once(Ok(receive)))
                .expect("posted");
            (SendOp::Send, source.pieces(from, len, cut, gap))
        }
        Verb::Write => (
            SendOp::Write { remote_addr, rkey },
            source.pieces(from, len, cut, gap),
        ),
        Verb::Read => (
            SendOp::Read { remote_addr, rkey },
            target.pieces(to, len, cut, gap),
        ),
    };
    let wqe = SendWqe {
        wr_id: 2,
        op,
        data: SendData::Gather(data),
        signaled: true,
        ..SendWqe::default()
    };
    a.post_send(&mut std::iter::once(Ok(wqe))).expect("posted");
    wait(cq, if matches!(verb, Verb::Send) { 2 } else { 1 });
    let (source, target) = (source.revoke(), target.revoke());
    // The pieces of the one side have a gap, those of the other do not.
    let cut = cut.min(len);
    let (gap_from, gap_to) = match verb {
        Verb::Read => (0, gap),
        _ => (gap, 0),
    };
    let mut expected = vec![0; ROOM];
    for i in 0..len {
        let behind = i >= cut;
        let there = from + i + if behind { gap_from } else { 0 };
        let here = to + i + if behind { gap_to } else { 0 };
        expected[here] = source_byte(there);
    }
    assert!(source.iter().enumerate().all(|(i, b)| *b == source_byte(i)));
    let wrong = target.iter().zip(&expected).position(|(t, e)| t != e);
    assert_eq!(wrong, None, "{case:?}");
}

fn case() -> impl Strategy<Value = Case> {
    let verb = prop_oneof![Just(Verb::Send), Just(Verb::Write), Just(Verb::Read)];
    let len = prop_oneof![
        0usize..3000,
        0..LONGEST,
        (0usize..68).prop_map(|n| n * 1024)
    ];
    (
        verb,
        len,
        0usize..4000,
        0usize..4000,
        0..LONGEST,
        0usize..100,
    )
        .prop_map(|(verb, len, from, to, cut, gap)| Case {
            verb,
            len,
            from,
            to,
            cut,
            gap,
        })
}

#[test]
fn messages_arrive_byte_for_byte() {
    environment::set("RNIC_HOST_PATH", "rings");
    let context = Context::open().expect("a device");
    let world = world(&context);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(400)
    });
    runner
        .run(&case(), |case| {
            exchange(&world, case);
            Ok(())
        })
        .expect("all cases");
    // Several PSNs go by one packet, or this says nothing.
    let before = rnic_nic::port_counters().link.tx_host_packets;
    exchange(
        &world,
        Case {
            verb: Verb::Write,
            len: 64 * 1024,
            from: 0,
            to: 0,
            cut: 0,
            gap: 0,
        },
    );
    let packets = rnic_nic::port_counters().link.tx_host_packets - before;
    assert!((4..16).contains(&packets), "{packets} packets for 64 PSNs");
}
