//! `ibv_post_send` and `ibv_post_recv`: work requests of C become WQEs.

use core::ffi::c_int;

use crate::c::*;
use crate::convert::wr::{POST_RECV, chain, one_receive, receives, send_wqe, short_send};
use crate::export::seam::{self, Errno};
use crate::handles::object::from_c;
use crate::handles::qp::QpObject;

/// The `post_send` operation.
pub unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    seam::data_status(|| {
        let mut last = wr;
        // SAFETY: a queue pair of ours, or NULL.
        let outcome = unsafe { from_c::<QpObject>(qp) }.and_then(|object| {
            // SAFETY: the program's list of work requests.
            let short = unsafe { short_send(wr) };
            if short.is_some_and(|short| object.nic.post_short(short)) {
                return Ok(());
            }
            // SAFETY: the program's list of work requests.
            let mut wqes = unsafe { chain(wr, |wr: &ibv_send_wr| wr.next) }.map(|wr| {
                last = std::ptr::from_ref(wr).cast_mut();
                // SAFETY: as above.
                unsafe { send_wqe(object, wr) }
            });
            object
                .nic
                .post_send(&mut wqes)
                .map_err(|(_, error)| Errno::from(error))
        });
        if outcome.is_err() && !bad_wr.is_null() {
            // SAFETY: the caller's variable.
            unsafe { *bad_wr = last };
        }
        outcome
    })
}

/// The `post_recv` operation.
pub unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    seam::data_status(|| {
        let mut last = wr;
        // SAFETY: a queue pair of ours, or NULL.
        let outcome = unsafe { from_c::<QpObject>(qp) }.and_then(|object| {
            // SAFETY: the program's list of work requests.
            let one = unsafe { one_receive(wr) };
            if one.is_some_and(|(wr_id, sge)| object.nic.post_one_recv(wr_id, sge)) {
                return Ok(());
            }
            // SAFETY: the program's list of work requests.
            let mut wqes = unsafe { receives(POST_RECV, wr, &mut last, object.cap.max_recv_sge) };
            object
                .nic
                .post_recv(&mut wqes)
                .map_err(|(_, error)| Errno::from(error))
        });
        if outcome.is_err() && !bad_wr.is_null() {
            // SAFETY: the caller's variable.
            unsafe { *bad_wr = last };
        }
        outcome
    })
}
