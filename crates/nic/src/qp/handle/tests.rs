//! The end of handles.

use std::thread;

use crate::context::Context;
use crate::qp::{QpAttr, QpAttrMask, QpState};

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
    // With the last one the queue pair ends, although handles are left, and nobody can open it any more.
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
    let domain = context.open_xrcd(None, true, false).expect("a domain");
    let qp = domain.create_qp(7).expect("a target");
    let shared = qp.shared();
    let engine = shared.shard.lock();
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
        let refused = qp.post_recv(&mut std::iter::empty());
        assert_eq!(refused.map_err(|(_, e)| e.errno()), Err(libc::EINVAL));
    });
}
