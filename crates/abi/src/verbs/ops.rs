//! The table of a context: the operations that `verbs.h` and libibverbs call by it.

use rnic_nic::Context;

use super::{cq, cq_ex, dm, mr, mw, pd, post, qp, query, srq, xrcd};
use crate::c::*;

/// Fills in the operations, and what else programs may read.
pub fn fill(c: &mut verbs_context, device: *mut ibv_device, nic: &Context) {
    c.query_port = Some(query::query_port);
    c.modify_cq = Some(cq::modify_cq);
    c.advise_mr = Some(mr::advise_mr);
    c.alloc_parent_domain = Some(pd::alloc_parent_domain);
    c.alloc_td = Some(pd::alloc_td);
    c.dealloc_td = Some(pd::dealloc_td);
    c.alloc_null_mr = Some(mr::alloc_null_mr);
    c.reg_dm_mr = Some(dm::reg_dm_mr);
    c.alloc_dm = Some(dm::alloc_dm);
    c.free_dm = Some(dm::free_dm);
    c.query_rt_values = Some(query::query_rt_values);
    c.create_cq_ex = Some(cq_ex::create_cq_ex);
    c.query_device_ex = Some(query::query_device_ex);
    c.create_qp_ex = Some(qp::create_qp_ex);
    c.get_srq_num = Some(srq::get_srq_num);
    c.create_srq_ex = Some(srq::create_srq_ex);
    c.open_xrcd = Some(xrcd::open_xrcd);
    c.close_xrcd = Some(xrcd::close_xrcd);
    c.open_qp = Some(qp::open_qp);
    c.sz = size_of::<verbs_context>();
    let context = &mut c.context;
    context.device = device;
    context.ops.alloc_mw = Some(mw::alloc_mw);
    context.ops.bind_mw = Some(mw::bind_mw);
    context.ops.dealloc_mw = Some(mw::dealloc_mw);
    context.ops.poll_cq = Some(cq::poll_cq);
    context.ops.req_notify_cq = Some(cq::req_notify_cq);
    context.ops.post_srq_recv = Some(srq::post_srq_recv);
    context.ops.post_send = Some(post::post_send);
    context.ops.post_recv = Some(post::post_recv);
    // Nothing is ever sent to it; programs dup it, and send it to others.
    context.cmd_fd = nic.cmd_fd();
    context.async_fd = nic.async_fd();
    context.num_comp_vectors = 1;
    context.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    context.abi_compat = usize::MAX;
}
