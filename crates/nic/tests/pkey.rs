//! A packet of a foreign partition is dropped without a word and counted: no receive, no answer, no
//! change of state (IBTA vol. 1, 9.6.1.1.1 and 10.9.3). The device is a full member of the default
//! partition, so both members of that one reach it.

use crate::pair;
use crate::region;
use crate::stranger;

use std::time::{Duration, Instant};

use crate::region::Region;
use crate::stranger::Stranger;
use rnic_nic::{
    Context, Cq, Pd, Qp, QpAttr, QpAttrMask as M, QpState, QpType, RecvWqe, SgList, stats,
};
use rnic_wire::Service;

const PATIENCE: Duration = Duration::from_secs(20);
const LEN: usize = 64;
/// A UD receive begins with room for a network header.
const GRH: usize = 40;
const QKEY: u32 = 0x1234;
/// Of no process of this host.
const PEER: u32 = 0x00ab_cdef;
/// Of partition 0, of others, and one bit beside the default.
const FOREIGN: [u16; 6] = [0x0000, 0x8000, 0x1234, 0x9234, 0xfffe, 0x7ffe];
/// Full and limited members.
const DEFAULT: [u16; 2] = [0xffff, 0x7fff];

fn bad_pkeys() -> u64 {
    stats().expect("the device is open").1.bad_pkey
}

/// A queue pair that takes what a bare socket sends.
fn open(context: &Context, pd: &Pd, cq: &Cq, qp_type: QpType) -> Qp {
    let mut init = pair::init(cq, cq, None, 8);
    init.qp_type = qp_type;
    let qp = pd.create_qp(&init).expect("a queue pair");
    if qp_type != QpType::Ud {
        pair::reach(context, &qp, PEER, 14);
        return qp;
    }
    let to = |qp_state, mask| {
        let attr = QpAttr {
            qp_state,
            qkey: QKEY,
            port_num: 1,
            ..QpAttr::default()
        };
        qp.modify(&attr, M::STATE | mask).expect("modify");
    };
    to(QpState::Init, M::PKEY_INDEX | M::PORT | M::QKEY);
    to(QpState::Rtr, M(0));
    qp
}

fn drops_foreign_partitions(qp_type: QpType, service: Service) {
    let context = Context::open().expect("a device");
    let pd = context.alloc_pd();
    let cq = context.create_cq(16, None, 0).expect("a queue");
    let qp = open(&context, &pd, &cq, qp_type);
    let target = Region::new(&pd, 2 * (GRH + LEN), |_| 0);
    let stranger = Stranger::new();
    let state = qp.state();
    let before = bad_pkeys();
    let mut dropped = 0;
    for (round, default) in DEFAULT.into_iter().enumerate() {
        let wqe = RecvWqe {
            wr_id: round as u64,
            sges: SgList::from_slice(&[target.sge(round * (GRH + LEN), GRH + LEN)]),
        };
        qp.post_recv(&mut std::iter::once(Ok(wqe))).expect("posted");
        let packet = |fill| match qp_type {
            QpType::Ud => stranger::datagram(qp.qpn(), QKEY, &[fill; LEN]),
            _ => stranger::send_only(service, qp.qpn(), round as u32, &[fill; LEN]),
        };
        for pkey in FOREIGN {
            stranger.send(&stranger::with_pkey(packet(0x66), pkey));
            dropped += 1;
        }
        let start = Instant::now();
        while bad_pkeys() - before < dropped {
            let n = cq.poll(1, &mut |_| ()).expect("polled");
            assert_eq!(n, 0, "{qp_type:?}: a foreign partition completed something");
            let late = start.elapsed() > PATIENCE;
            assert!(!late, "{qp_type:?}: {} of {dropped}", bad_pkeys() - before);
        }
        assert_eq!(qp.state(), state);
        // The same PSN is still expected, and the same receive waits.
        stranger.send(&stranger::with_pkey(packet(0x11), default));
        region::wait(&cq, 1);
    }
    assert_eq!(bad_pkeys() - before, dropped);
    drop(qp);
    assert!(!target.revoke().contains(&0x66));
}

/// One test, as the counters are the process's.
#[test]
fn a_foreign_partition_is_dropped_and_counted() {
    drops_foreign_partitions(QpType::Rc, Service::Rc);
    drops_foreign_partitions(QpType::Uc, Service::Uc);
    drops_foreign_partitions(QpType::Ud, Service::Ud);
}
