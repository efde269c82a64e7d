//! What is posted in ERR is flushed: with the queue pair's number, wherever ERR was entered from, and gone with it.

use rnic_nic::{
    Context, QpAttr, QpAttrMask as M, QpCap, QpInit, QpState, QpType, RecvWqe, SendWqe, Status,
};

#[test]
fn a_queue_pair_that_never_was_connected_flushes_under_its_own_number() {
    let context = Context::open().expect("a device");
    let pd = context.alloc_pd();
    for qp_type in [QpType::Rc, QpType::Uc] {
        let cq = context.create_cq(16, None, 0).expect("a completion queue");
        let qp = pd
            .create_qp(&QpInit {
                qp_type,
                send_cq: cq.clone(),
                recv_cq: cq.clone(),
                srq: None,
                cap: QpCap::default(),
                sq_sig_all: true,
                cookie: 0,
            })
            .expect("a queue pair");
        let to = |qp_state, mask| {
            let attr = QpAttr {
                qp_state,
                port_num: 1,
                ..QpAttr::default()
            };
            qp.modify(&attr, M::STATE | mask).expect("modify");
        };
        to(QpState::Init, M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS);
        to(QpState::Err, M(0));
        let post = || {
            qp.post_recv(&mut std::iter::once(Ok(RecvWqe::default())))
                .expect("posted");
            qp.post_send(&mut std::iter::once(Ok(SendWqe::default())))
                .expect("posted");
        };
        post();
        let mut found = Vec::new();
        cq.poll(16, &mut |wc| found.push((wc.status, wc.qpn)))
            .expect("polled");
        let flushed = (Status::WorkRequestFlushed, qp.qpn());
        assert_eq!(found, [flushed; 2], "{qp_type:?}");
        post();
        drop(qp);
        let left = cq.poll(16, &mut |_| {}).expect("polled");
        assert_eq!(left, 0, "{qp_type:?}: completions outlive the queue pair");
    }
}

#[test]
fn what_was_lost_before_reset_does_not_break_the_next_life() {
    let context = Context::open().expect("a device");
    let pd = context.alloc_pd();
    for _ in 0..20 {
        let cq = context.create_cq(1, None, 0).expect("a completion queue");
        let qp = pd
            .create_qp(&QpInit {
                qp_type: QpType::Rc,
                send_cq: cq.clone(),
                recv_cq: cq.clone(),
                srq: None,
                cap: QpCap::default(),
                sq_sig_all: true,
                cookie: 0,
            })
            .expect("a queue pair");
        let to = |qp_state, mask| {
            let attr = QpAttr {
                qp_state,
                port_num: 1,
                ..QpAttr::default()
            };
            qp.modify(&attr, M::STATE | mask).expect("modify");
        };
        to(QpState::Init, M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS);
        to(QpState::Err, M(0));
        // One more than the completion queue holds.
        let mut two = (0..2).map(|_| Ok(SendWqe::default()));
        qp.post_send(&mut two).expect("posted");
        to(QpState::Reset, M(0));
        cq.poll(16, &mut |_| {}).expect("polled");
        assert_eq!(qp.state(), QpState::Reset);
    }
}
