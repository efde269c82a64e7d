//! What is posted in ERR is flushed: with the queue pair's number, wherever ERR was entered from,
//! and gone with it.

use crate::pair;

use std::time::{Duration, Instant};

use rnic_nic::{
    Context, QpAttr, QpAttrMask as M, QpCap, QpInit, QpState, QpType, RecvWqe, SendData, SendOp,
    SendWqe, SgList, Sge, Status,
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

/// Each completion gives its own place in the send queue back, and nothing else does.
#[test]
fn a_list_that_fails_as_it_is_posted_gives_each_place_back_once() {
    const LIST: usize = 4;
    let context = Context::open().expect("a device");
    let pd = context.alloc_pd();
    let cq = context.create_cq(64, None, 0).expect("a completion queue");
    let init = QpInit {
        sq_sig_all: false,
        ..pair::init(&cq, &cq, None, 8)
    };
    let create = || pd.create_qp(&init).expect("a queue pair");
    // No region has such a key.
    let nowhere = Sge {
        addr: 4096,
        length: 8,
        lkey: 0xffff_fff0,
    };
    let send = || SendWqe {
        op: SendOp::Send,
        data: SendData::Gather(SgList::from_slice(&[nowhere])),
        ..SendWqe::default()
    };
    // How many it takes that are not polled.
    let room = |qp: &rnic_nic::Qp| {
        let taken = (0..100).take_while(|_| qp.post_send(&mut std::iter::once(Ok(send()))).is_ok());
        let taken = taken.count();
        let mut found = 0;
        cq.poll(64, &mut |_| found += 1).expect("polled");
        assert_eq!(found, taken, "all are flushed");
        taken
    };
    let (by_itself, moved) = (create(), create());
    pair::connect(&context, &by_itself, &moved);
    let mut list = (0..LIST).map(|_| Ok(send()));
    by_itself.post_send(&mut list).expect("posted");
    let mut found = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while found.len() < LIST && Instant::now() < deadline {
        cq.poll(64, &mut |wc| found.push(wc.status))
            .expect("polled");
    }
    let mut expected = [Status::WorkRequestFlushed; LIST];
    expected[0] = Status::LocalProtectionError;
    assert_eq!(found, expected);
    let err = QpAttr {
        qp_state: QpState::Err,
        ..QpAttr::default()
    };
    moved.modify(&err, M::STATE).expect("modify");
    assert_eq!(room(&by_itself), room(&moved));
}
