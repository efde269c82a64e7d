//! The end of handles.

use std::thread;

use crate::objects::context::Context;
use crate::objects::qp::QpInit;
use crate::queues::{QpAttr, QpAttrMask, QpCap, QpState, QpType};
use rnic_transport::RecvWqe;

/// Moves it to RESET, as goes in any state.
fn reset(qp: &super::Qp) -> Result<(), i32> {
    let attr = QpAttr {
        qp_state: QpState::Reset,
        ..QpAttr::default()
    };
    let outcome = qp.modify(&attr, QpAttrMask::STATE);
    outcome.map_err(|error| error.errno())
}

#[test]
fn a_retired_handle_is_good_for_nothing_and_the_others_are_not_touched() {
    let context = Context::open().expect("a device");
    let domain = context.open_xrcd(None, true, false).expect("a domain");
    let open = |qpn| domain.open_qp(qpn, 8).map_err(|error| error.errno());
    let first = domain.create_qp(7).expect("a target");
    let qpn = first.qpn();
    let second = open(qpn).expect("another handle of it");
    first.retire();
    first.retire();
    assert!(first.is_gone() && !second.is_gone());
    assert_eq!(reset(&first), Err(libc::EINVAL));
    assert_eq!(reset(&second), Ok(()));
    // With the last one the queue pair ends, although handles are left, and nobody can open it any
    // more.
    second.retire();
    assert!(second.is_gone());
    assert_eq!(reset(&second), Err(libc::EINVAL));
    assert_eq!(second.state(), QpState::Reset);
    assert_eq!(open(qpn).err(), Some(libc::EINVAL));
    assert!(!domain.in_use());
    drop((first, second));
    assert!(!domain.in_use());
}

#[test]
fn it_is_not_gone_before_posts_fail() {
    let context = Context::open().expect("a device");
    let cq = context.create_cq(1, None, 0).expect("a completion queue");
    let init = QpInit {
        qp_type: QpType::Rc,
        send_cq: cq.clone(),
        recv_cq: cq,
        srq: None,
        cap: QpCap {
            max_recv_wr: 64,
            ..QpCap::default()
        },
        sq_sig_all: true,
        cookie: 7,
    };
    let qp = context.alloc_pd().create_qp(&init).expect("a queue pair");
    let attr = QpAttr {
        qp_state: QpState::Init,
        port_num: 1,
        ..QpAttr::default()
    };
    let mask = QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS;
    qp.modify(&attr, QpAttrMask::STATE | mask).expect("modify");
    let receive = || {
        let posted = qp.post_recv(&mut std::iter::once(Ok(RecvWqe::default())));
        posted.map_err(|(_, error)| error.errno())
    };
    assert_eq!(receive(), Ok(()));
    let shared = qp.shared();
    let engine = qp.inner.shard.lock();
    thread::scope(|scope| {
        scope.spawn(|| qp.retire());
        // From here on it only waits for the engine.
        while !shared.listeners.lock().is_empty() {
            thread::yield_now();
        }
        assert!(!qp.is_gone());
        drop(engine);
        while !qp.is_gone() {
            thread::yield_now();
        }
        assert_eq!(receive(), Err(libc::EINVAL));
    });
}
