//! Shared receive queues.

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rnic_layouts::*;
use rnic_types::{RecvWqe, Result, SrqAttr, SrqAttrMask};

use crate::objects::context::extended;
use crate::objects::cq::Cq;
use crate::objects::memory::Pd;
use crate::objects::qp::{Posted, post_receives};
use crate::objects::xrcd::Xrcd;

/// What to create (`struct ibv_srq_init_attr`).
pub struct SrqInit {
    /// Work requests asked for.
    pub max_wr: u32,
    /// Of one whose receives targets of an XRC domain take: the domain, and where its completions
    /// go.
    pub xrc: Option<(Xrcd, Cq)>,
    /// Comes back in asynchronous events.
    pub cookie: u64,
}

/// A shared receive queue (`ibv_create_srq`).
#[derive(Clone)]
pub struct Srq {
    inner: Arc<Queue>,
}

struct Queue {
    ptr: NonNull<ibv_srq>,
    number: u32,
    pd: Pd,
    _xrc: Option<(Xrcd, Cq)>,
}

// SAFETY: see `Opened`: the library's functions may be called from any thread.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Pd {
    /// Makes a shared receive queue.
    ///
    /// # Errors
    /// The device has none, or none of that size; ENODEV in a forked child.
    pub fn create_srq(&self, init: &SrqInit) -> Result<Srq> {
        const VERB: &str = "ibv_create_srq";
        let context = self.context();
        context.check_alive(VERB)?;
        let srq_context = init.cookie as usize as *mut c_void;
        let attr = ibv_srq_attr {
            max_wr: init.max_wr,
            max_sge: 1,
            srq_limit: 0,
        };
        let asked = [("max_srq_wr", init.max_wr, context.inner.attr.max_srq_wr)];
        let beyond = |error| context.beyond(error, &asked);
        let (ptr, number) = match &init.xrc {
            None => {
                let mut init = ibv_srq_init_attr { srq_context, attr };
                // SAFETY: the domain is alive; the attributes are the call's while it lasts.
                let ptr = unsafe { (context.library().create_srq)(self.ptr(), &mut init) };
                let ptr = context.made(VERB, ptr).map_err(beyond)?;
                // SAFETY: just made.
                (ptr, unsafe { ptr.as_ref().handle })
            }
            Some((xrcd, cq)) => {
                let create = extended!(context, create_srq_ex).ok_or(context.absent(VERB))?;
                let number_of = extended!(context, get_srq_num).ok_or(context.absent(VERB))?;
                let mut init = ibv_srq_init_attr_ex {
                    srq_context,
                    attr,
                    comp_mask: IBV_SRQ_INIT_ATTR_TYPE
                        | IBV_SRQ_INIT_ATTR_PD
                        | IBV_SRQ_INIT_ATTR_XRCD
                        | IBV_SRQ_INIT_ATTR_CQ,
                    srq_type: IBV_SRQT_XRC,
                    pd: self.ptr(),
                    xrcd: xrcd.ptr(),
                    cq: cq.ptr(),
                    tm_cap: [0; 2],
                };
                // SAFETY: an open device; domain, XRC domain and queue are alive.
                let ptr = unsafe { create(context.ptr(), &mut init) };
                let ptr = context.made(VERB, ptr).map_err(beyond)?;
                let mut number = 0;
                // SAFETY: just made; the number is written while the call lasts.
                let given = unsafe { number_of(ptr.as_ptr(), &mut number) };
                if let Err(error) = context.outcome("ibv_get_srq_num", given) {
                    // SAFETY: nobody else has it.
                    unsafe { (context.library().destroy_srq)(ptr.as_ptr()) };
                    return Err(error);
                }
                (ptr, number)
            }
        };
        Ok(Srq {
            inner: Arc::new(Queue {
                ptr,
                number,
                pd: self.clone(),
                _xrc: init.xrc.clone(),
            }),
        })
    }
}

impl Srq {
    /// The library's object, alive as long as the handle.
    pub fn as_ptr(&self) -> *mut c_void {
        self.ptr().cast()
    }

    pub(crate) fn ptr(&self) -> *mut ibv_srq {
        self.inner.ptr.as_ptr()
    }

    /// What senders by XRC name.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// The domain it was made in.
    pub fn pd(&self) -> &Pd {
        &self.inner.pd
    }

    /// See [`Context::check_alive`](crate::Context::check_alive).
    ///
    /// # Errors
    /// ENODEV in a forked child.
    pub fn check_alive(&self, verb: &'static str) -> Result<()> {
        self.inner.pd.context().check_alive(verb)
    }

    /// Sizes and limit (`ibv_query_srq`).
    ///
    /// # Errors
    /// The device does not answer.
    pub fn query(&self) -> Result<SrqAttr> {
        const VERB: &str = "ibv_query_srq";
        let context = self.inner.pd.context();
        context.check_alive(VERB)?;
        let mut attr = ibv_srq_attr {
            max_wr: 0,
            max_sge: 0,
            srq_limit: 0,
        };
        // SAFETY: the queue is alive; the attributes are written while the call lasts.
        let given = unsafe { (context.library().query_srq)(self.ptr(), &mut attr) };
        context.outcome(VERB, given)?;
        Ok(SrqAttr {
            max_wr: attr.max_wr,
            max_sge: attr.max_sge,
            srq_limit: attr.srq_limit,
        })
    }

    /// Changes size or limit (`ibv_modify_srq`).
    ///
    /// # Errors
    /// The device refuses.
    pub fn modify(&self, attr: &SrqAttr, mask: SrqAttrMask) -> Result<()> {
        const VERB: &str = "ibv_modify_srq";
        let context = self.inner.pd.context();
        context.check_alive(VERB)?;
        let mut attr = ibv_srq_attr {
            max_wr: attr.max_wr,
            max_sge: attr.max_sge,
            srq_limit: attr.srq_limit,
        };
        let modify = context.library().modify_srq;
        // SAFETY: the queue is alive; the attributes are read while the call lasts.
        let given = unsafe { modify(self.ptr(), &mut attr, mask.0 as i32) };
        context.outcome(VERB, given)
    }

    /// Posts a receive (`ibv_post_srq_recv`).
    ///
    /// # Errors
    /// The queue is full (ENOMEM), or the device refuses.
    pub fn post_recv(&self, wqe: &RecvWqe) -> Result<Posted> {
        const VERB: &str = "ibv_post_srq_recv";
        let context = self.inner.pd.context();
        context.check_alive(VERB)?;
        // SAFETY: an open device, whose table does not change.
        let post = unsafe { context.inner.ptr.as_ref().ops.post_srq_recv };
        let post = post.ok_or_else(|| context.absent(VERB))?;
        post_receives(VERB, context, wqe, |wr| {
            let mut bad = null_mut();
            // SAFETY: the queue is alive; the request and its list are there while the call lasts.
            let given = unsafe { post(self.ptr(), wr, &mut bad) };
            (given, bad)
        })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let context = self.pd.context();
        if context.is_alive() {
            // SAFETY: of this process, with no event that is not acknowledged.
            unsafe { (context.library().destroy_srq)(self.ptr.as_ptr()) };
        }
    }
}
