//! Other users of this host may send from each of its addresses. What they say in a peer's name
//! counts for nothing, by whatever way the peer itself speaks.

use crate::pair;
use crate::region;
use crate::stranger;

use std::time::{Duration, Instant};

use crate::region::Region;
use crate::stranger::Stranger;
use rnic_nic::{Context, Cq, Qp, QpType, RecvWqe, SendData, SendWqe, SgList, stats};
use rnic_wire::Service;

const PATIENCE: Duration = Duration::from_secs(20);
const LEN: usize = 64;
const LIE: u8 = 0x66;

/// Polls both until so many packets were dropped as another process's.
fn wait_for_drops(cqs: [&Cq; 2], wanted: u64) {
    let start = Instant::now();
    loop {
        for cq in cqs {
            let n = cq.poll(1, &mut |_| ()).expect("polled");
            assert_eq!(n, 0, "a stranger completed something");
        }
        let (_, drops) = stats().expect("the device is open");
        if drops.wrong_process >= wanted {
            return;
        }
        let rest = start.elapsed() < PATIENCE;
        assert!(rest, "{wanted} should be dropped: {drops:?}");
    }
}

fn send(qp: &Qp, from: &Region, at: usize) {
    let wqe = SendWqe {
        data: SendData::Gather(SgList::from_slice(&[from.sge(at, LEN)])),
        ..SendWqe::default()
    };
    qp.post_send(&mut std::iter::once(Ok(wqe)))
        .map_err(|(_, why)| why)
        .expect("posted");
}

fn receive(qp: &Qp, into: &Region, at: usize) {
    let wqe = RecvWqe {
        wr_id: at as u64,
        sges: SgList::from_slice(&[into.sge(at, LEN)]),
    };
    qp.post_recv(&mut std::iter::once(Ok(wqe))).expect("posted");
}

/// Messages of the peer come, and in between those of a stranger who knows everything: addresses,
/// QPN, PSN. None of his does, be it before the peer's first or later.
fn says_nothing(qp_type: QpType, service: Service) {
    let context = Context::open().expect("a device");
    let pd = context.alloc_pd();
    let cq = || context.create_cq(16, None, 0).expect("a queue");
    let (sent, received) = (cq(), cq());
    let create = || {
        let mut init = pair::init(&sent, &received, None, 8);
        init.qp_type = qp_type;
        pd.create_qp(&init).expect("a queue pair")
    };
    let (a, b) = (create(), create());
    pair::connect(&context, &a, &b);
    let source = Region::new(&pd, 4 * LEN, |at| (at / LEN) as u8 + 1);
    let target = Region::new(&pd, 4 * LEN, |_| 0);
    let stranger = Stranger::new();
    let (_, before) = stats().expect("the device is open");
    let dropped = before.wrong_process;
    for round in 0..4 {
        receive(&b, &target, round * LEN);
        let psn = round as u32;
        for guess in [psn, psn + 1] {
            let lie = stranger::send_only(service, b.qpn(), guess, &[LIE; LEN]);
            stranger.send(&lie);
        }
        wait_for_drops([&sent, &received], dropped + 2 * (round as u64 + 1));
        send(&a, &source, round * LEN);
        region::wait(&sent, 1);
        region::wait(&received, 1);
    }
    let came = target.revoke();
    assert!(
        came.iter()
            .enumerate()
            .all(|(at, b)| *b == (at / LEN) as u8 + 1)
    );
    source.revoke();
}

/// Through shared memory as over UDP, reliable or not: see RNIC_HOST_PATH.
#[test]
fn a_strangers_message_is_none_of_the_peers() {
    says_nothing(QpType::Rc, Service::Rc);
    says_nothing(QpType::Uc, Service::Uc);
}
