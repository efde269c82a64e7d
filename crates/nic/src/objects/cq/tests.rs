//! Which engines a poll drives.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use super::*;
use crate::driving::Nic;
use crate::objects::pd::Pd;
use crate::objects::qp::{Qp, QpInit};
use crate::queues::{QpAttr, QpAttrMask as M, QpCap, QpState, QpType};
use rnic_transport::{RecvWqe, SendWqe};
use rnic_types::AhAttr;
use rnic_wire::{Gid, PathMtu};

const PATIENCE: Duration = Duration::from_secs(60);
/// Polls in vain that are surely more than it takes to look at other engines.
const MANY: u32 = 20_000;

struct Side {
    cq: Cq,
    qp: Qp,
}

fn side(context: &Context, pd: &Pd) -> Side {
    let cq = context.create_cq(16, None, 0).expect("a queue");
    let init = QpInit {
        qp_type: QpType::Rc,
        send_cq: cq.clone(),
        recv_cq: cq.clone(),
        srq: None,
        cap: QpCap {
            max_send_wr: 4,
            max_recv_wr: 4,
            ..QpCap::default()
        },
        sq_sig_all: true,
        cookie: 0,
    };
    let qp = pd.create_qp(&init).expect("a queue pair");
    Side { cq, qp }
}

fn connect(context: &Context, qp: &Qp, peer: u32) {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut table = context.gid_table().into_iter();
    let gid = table.find(|entry| entry.addr == here).expect("127.0.0.1");
    let attr = QpAttr {
        port_num: 1,
        path_mtu: Some(PathMtu::M1024),
        dest_qp_num: peer,
        timeout: 14,
        ah: AhAttr {
            dgid: Gid::from(here),
            sgid_index: gid.index as u8,
            is_global: true,
            port_num: 1,
            ..AhAttr::default()
        },
        ..QpAttr::default()
    };
    let to = |qp_state, mask| {
        let attr = QpAttr { qp_state, ..attr };
        qp.modify(&attr, M::STATE | mask).expect("modify");
    };
    to(QpState::Init, M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS);
    let rtr = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    to(QpState::Rtr, rtr | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER);
    let rts = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN;
    to(QpState::Rts, rts | M::MAX_QP_RD_ATOMIC);
}

/// Both ends of a connection are in this process, on two engines, whose threads leave them to those
/// that poll: no tick is ever over here. A thread that polls one queue at a time, as long as it
/// finds nothing, drives the other end, too.
#[test]
fn a_thread_that_polls_in_vain_drives_the_engine_of_the_other_end() {
    let nic = Nic::left_to_polling(2);
    let context = Context::open_on(nic.clone(), None).expect("a device");
    let pd = context.alloc_pd();
    let [left, right] = [(); 2].map(|()| side(&context, &pd));
    assert!(left.cq.shared.shards.only() != right.cq.shared.shards.only());
    connect(&context, &left.qp, right.qp.qpn());
    connect(&context, &right.qp, left.qp.qpn());
    let taken = |side: &Side| side.cq.poll(4, &mut |_| {}).expect("a queue");
    let post = || {
        let receive = &mut std::iter::once(Ok(RecvWqe::default()));
        right.qp.post_recv(receive).map_err(|(_, why)| why)?;
        let send = &mut std::iter::once(Ok(SendWqe::default()));
        left.qp.post_send(send).map_err(|(_, why)| why)
    };
    for message in 0..50 {
        post().expect("posted");
        for side in [&left, &right] {
            let begin = Instant::now();
            while taken(side) == 0 {
                let long = begin.elapsed() > PATIENCE;
                assert!(!long, "message {message}: nobody drives the other engine");
            }
        }
    }
    // What the threads look after themselves a poll of another queue leaves alone.
    nic.is_taken_back();
    post().expect("posted");
    assert!((0..MANY).all(|_| taken(&left) == 0));
    let begin = Instant::now();
    while taken(&right) == 0 {
        assert!(begin.elapsed() < PATIENCE, "its own polls drive it");
    }
}
