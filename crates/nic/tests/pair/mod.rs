//! Queue pairs of one process that are connected by 127.0.0.1.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use rnic_nic::{
    Access, AhAttr, Context, Cq, Gid, Mr, PathMtu, Pd, Qp, QpAttr, QpAttrMask as M, QpCap, QpInit,
    QpState, QpType, SendWqe, Srq,
};

/// Everything, for local and remote accesses alike.
pub const RIGHTS: Access = Access(31);

/// An RC queue pair in RESET with room for `depth` work requests each way; each of its sends
/// completes visibly.
#[allow(dead_code, reason = "some tests have queue pairs of another kind")]
pub fn create(pd: &Pd, send_cq: &Cq, recv_cq: &Cq, srq: Option<&Srq>, depth: u32) -> Qp {
    pd.create_qp(&init(send_cq, recv_cq, srq, depth))
        .expect("a queue pair")
}

/// What such a one is made of.
#[allow(dead_code, reason = "some tests have queue pairs of another kind")]
pub fn init(send_cq: &Cq, recv_cq: &Cq, srq: Option<&Srq>, depth: u32) -> QpInit {
    QpInit {
        qp_type: QpType::Rc,
        send_cq: send_cq.clone(),
        recv_cq: recv_cq.clone(),
        srq: srq.cloned(),
        cap: QpCap {
            max_send_wr: depth,
            max_recv_wr: depth,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 64,
        },
        sq_sig_all: true,
        cookie: 0,
    }
}

/// Takes both to RTS.
#[allow(dead_code, reason = "some tests connect in another way")]
pub fn connect(context: &Context, a: &Qp, b: &Qp) {
    reach(context, a, b.qpn(), 14);
    reach(context, b, a.qpn(), 14);
}

/// INIT, RTR and RTS towards `peer` over the loopback address. `timeout`: a code.
pub fn reach(context: &Context, qp: &Qp, peer: u32, timeout: u8) {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let gid = context
        .gid_table()
        .into_iter()
        .find(|entry| entry.addr == here)
        .expect("127.0.0.1 has a GID");
    let attr = QpAttr {
        qp_access_flags: RIGHTS,
        port_num: 1,
        path_mtu: Some(PathMtu::M1024),
        dest_qp_num: peer,
        max_dest_rd_atomic: 4,
        max_rd_atomic: 4,
        min_rnr_timer: 1,
        timeout,
        retry_cnt: 7,
        rnr_retry: 7,
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
    if qp.qp_type() == QpType::Uc {
        to(QpState::Rtr, rtr);
        to(QpState::Rts, M::SQ_PSN);
        return;
    }
    to(QpState::Rtr, rtr | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER);
    let rts = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN;
    to(QpState::Rts, rts | M::MAX_QP_RD_ATOMIC);
}

/// Posts what is in the list, which is empty then.
#[allow(dead_code, reason = "some tests post in another way")]
pub fn post(qp: &Qp, list: &mut Vec<SendWqe>) {
    let mut wqes = list.drain(..).map(Ok);
    qp.post_send(&mut wqes)
        .map_err(|(_, why)| why)
        .expect("posted");
}

/// On return nobody touches the region's memory.
#[allow(dead_code, reason = "some tests leave that to the device's end")]
pub fn deregister(mut mr: Mr) {
    let start = Instant::now();
    // Refused while a copy is under way that has got no processor for a second.
    while mr.try_deregister().is_err() {
        let patience = Duration::from_secs(60);
        assert!(start.elapsed() < patience, "it is in use for ever");
    }
}
