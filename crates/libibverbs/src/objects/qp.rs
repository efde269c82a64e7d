//! Queue pairs.

use core::ffi::{c_int, c_void};
use core::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rnic_layouts::*;
use rnic_types::{
    Error, Gid, QpAttr, QpAttrMask, QpCap, QpState, QpType, RecvWqe, Result, SendData, SendOp,
    SendWqe,
};
use smallvec::SmallVec;

use crate::convert::{self, OF_SEND};
use crate::objects::context::Context;
use crate::objects::cq::Cq;
use crate::objects::memory::{Mr, Mw, Pd};
use crate::objects::srq::Srq;
use crate::objects::ud::Ah;
use crate::objects::xrcd::Xrcd;

/// All attributes that every version of the library knows: the bits up to IBV_QP_DEST_QPN.
const EVERY: u32 = (IBV_QP_DEST_QPN << 1) - 1;

/// What to create (`struct ibv_qp_init_attr`).
pub struct QpInit {
    /// Transport service.
    pub qp_type: QpType,
    /// Where send completions go.
    pub send_cq: Cq,
    /// Where receive completions go.
    pub recv_cq: Cq,
    /// Where receives come from; `None`: a receive queue of its own.
    pub srq: Option<Srq>,
    /// Sizes asked for.
    pub cap: QpCap,
    /// Every send work request makes a completion.
    pub sq_sig_all: bool,
    /// Comes back in asynchronous events.
    pub cookie: u64,
}

/// A queue pair (`ibv_create_qp`).
#[derive(Clone)]
pub struct Qp {
    inner: Arc<Pair>,
}

struct Pair {
    ptr: NonNull<ibv_qp>,
    qpn: u32,
    qp_type: QpType,
    cap: QpCap,
    context: Context,
    _uses: Uses,
}

/// What a queue pair uses, which goes after it.
#[allow(dead_code, reason = "kept alive")]
enum Uses {
    Queues(Pd, Cq, Cq, Option<Srq>),
    /// Of a target of XRC.
    Domain(Xrcd),
}

// SAFETY: see `Opened`: the library's functions may be called from any thread.
unsafe impl Send for Pair {}
// SAFETY: as above.
unsafe impl Sync for Pair {}

/// A request for the send queue, with the objects that C names by pointer.
pub struct SendWork<'a> {
    /// The request. Its address of a datagram and its keys are not looked at where an object names
    /// them.
    pub wqe: SendWqe,
    /// Of a datagram.
    pub ah: Option<&'a Ah>,
    /// Of a bind: the window, and the region that it opens.
    pub window: Option<(&'a Mw, &'a Mr)>,
}

/// A request was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted;

impl Pd {
    /// Makes a queue pair in RESET.
    ///
    /// # Errors
    /// The device has no such queue pair; its queues are another device's; ENODEV in a forked
    /// child.
    pub fn create_qp(&self, init: &QpInit) -> Result<Qp> {
        const VERB: &str = "ibv_create_qp";
        let context = self.context();
        context.check_alive(VERB)?;
        let ours = |other: &Context| Arc::ptr_eq(&other.inner, &context.inner);
        let srq = init.srq.as_ref();
        if !ours(init.send_cq.context())
            || !ours(init.recv_cq.context())
            || srq.is_some_and(|srq| !ours(srq.pd().context()))
        {
            return Err(Error::invalid(VERB, "its queues are another device's"));
        }
        let sends_only = init.qp_type == QpType::XrcSend;
        let mut cap = convert::cap_to_c(&init.cap);
        if sends_only || srq.is_some() {
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        let mut attr = ibv_qp_init_attr {
            qp_context: init.cookie as usize as *mut c_void,
            send_cq: init.send_cq.ptr(),
            recv_cq: match sends_only {
                true => null_mut(),
                false => init.recv_cq.ptr(),
            },
            srq: srq.map_or(null_mut(), Srq::ptr),
            cap,
            qp_type: init.qp_type as u32,
            sq_sig_all: c_int::from(init.sq_sig_all),
        };
        // SAFETY: domain and queues are alive; the attributes are the call's while it lasts.
        let ptr = unsafe { (context.library().create_qp)(self.ptr(), &mut attr) };
        let most = &context.inner.attr;
        let ptr = context.made(VERB, ptr).map_err(|error| {
            let asked = [
                ("max_qp_wr", init.cap.max_send_wr, most.max_qp_wr),
                ("max_qp_wr", init.cap.max_recv_wr, most.max_qp_wr),
                ("max_sge", init.cap.max_send_sge, most.max_sge),
                ("max_sge", init.cap.max_recv_sge, most.max_sge),
            ];
            context.beyond(error, &asked)
        })?;
        let (send_cq, recv_cq) = (init.send_cq.clone(), init.recv_cq.clone());
        Ok(Qp {
            inner: Arc::new(Pair {
                ptr,
                // SAFETY: just made; the number does not change.
                qpn: unsafe { ptr.as_ref().qp_num },
                qp_type: init.qp_type,
                cap: convert::cap_from_c(&attr.cap),
                context: context.clone(),
                _uses: Uses::Queues(self.clone(), send_cq, recv_cq, init.srq.clone()),
            }),
        })
    }
}

impl Xrcd {
    /// Makes a target in RESET: it receives for the queues of this domain.
    ///
    /// # Errors
    /// The device refuses; ENODEV in a forked child.
    pub fn create_qp(&self, cookie: u64) -> Result<Qp> {
        let ptr = self.create_target(cookie)?;
        Ok(Qp {
            inner: Arc::new(Pair {
                ptr,
                // SAFETY: just made; the number does not change.
                qpn: unsafe { ptr.as_ref().qp_num },
                qp_type: QpType::XrcRecv,
                cap: QpCap::default(),
                context: self.context().clone(),
                _uses: Uses::Domain(self.clone()),
            }),
        })
    }
}

impl Qp {
    /// The library's object, alive as long as the handle.
    pub fn as_ptr(&self) -> *mut c_void {
        self.ptr().cast()
    }

    fn ptr(&self) -> *mut ibv_qp {
        self.inner.ptr.as_ptr()
    }

    /// The device it belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// See [`Context::check_alive`].
    ///
    /// # Errors
    /// ENODEV in a forked child.
    #[inline]
    pub fn check_alive(&self, verb: &'static str) -> Result<()> {
        self.inner.context.check_alive(verb)
    }

    /// Queue pair number.
    pub fn qpn(&self) -> u32 {
        self.inner.qpn
    }

    /// Transport service.
    pub fn qp_type(&self) -> QpType {
        self.inner.qp_type
    }

    /// The sizes that it got.
    pub fn cap(&self) -> QpCap {
        self.inner.cap
    }

    /// Changes attributes and state (`ibv_modify_qp`).
    ///
    /// # Errors
    /// The device refuses.
    pub fn modify(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<()> {
        const VERB: &str = "ibv_modify_qp";
        let context = &self.inner.context;
        context.check_alive(VERB)?;
        let mut attr = convert::attr_to_c(attr);
        let modify = context.library().modify_qp;
        // SAFETY: the queue pair is alive; the attributes are read while the call lasts.
        let given = unsafe { modify(self.ptr(), &mut attr, mask.0 as c_int) };
        context.outcome(VERB, given)
    }

    /// State and attributes now (`ibv_query_qp`). A state that there is not is ERR.
    ///
    /// # Errors
    /// The device does not answer.
    pub fn query(&self) -> Result<QpAttr> {
        const VERB: &str = "ibv_query_qp";
        let context = &self.inner.context;
        context.check_alive(VERB)?;
        let mut attr = ibv_qp_attr::default();
        // SAFETY: pointers and numbers, which may all be zero.
        let mut init: ibv_qp_init_attr = unsafe { core::mem::zeroed() };
        let query = context.library().query_qp;
        // SAFETY: the queue pair is alive; both are written while the call lasts.
        let given = unsafe { query(self.ptr(), &mut attr, EVERY as c_int, &mut init) };
        context.outcome(VERB, given)?;
        let state = QpState::from_ibv(attr.qp_state).unwrap_or(QpState::Err);
        Ok(convert::attr_from_c(&attr, state))
    }

    /// Gets copies of what goes to a group (`ibv_attach_mcast`).
    ///
    /// # Errors
    /// The device refuses.
    pub fn attach_mcast(&self, group: Gid) -> Result<()> {
        self.multicast(
            "ibv_attach_mcast",
            self.context().library().attach_mcast,
            group,
        )
    }

    /// Gets them no longer (`ibv_detach_mcast`).
    ///
    /// # Errors
    /// It was not attached.
    pub fn detach_mcast(&self, group: Gid) -> Result<()> {
        self.multicast(
            "ibv_detach_mcast",
            self.context().library().detach_mcast,
            group,
        )
    }

    fn multicast(
        &self,
        verb: &'static str,
        call: unsafe extern "C" fn(*mut ibv_qp, *const ibv_gid, u16) -> c_int,
        group: Gid,
    ) -> Result<()> {
        self.check_alive(verb)?;
        let gid = ibv_gid { raw: group.0 };
        // SAFETY: the queue pair is alive; the GID is read while the call lasts.
        let given = unsafe { call(self.ptr(), &gid, 0) };
        self.inner.context.outcome(verb, given)
    }

    /// Posts requests in order, as one list (`ibv_post_send`).
    ///
    /// # Errors
    /// How many were posted, and why the next was not. What a library says so unclearly that it may
    /// be posted counts as posted: its memory may be used.
    pub fn post_send<'a>(
        &self,
        works: impl Iterator<Item = SendWork<'a>>,
    ) -> std::result::Result<usize, (usize, Error)> {
        const VERB: &str = "ibv_post_send";
        let context = &self.inner.context;
        self.check_alive(VERB).map_err(|error| (0, error))?;
        let mut slots: SmallVec<[Slot; 1]> = SmallVec::new();
        let mut refused = None;
        for work in works {
            match self.slot(VERB, work) {
                Ok(slot) => slots.push(slot),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let Some(first) = link(&mut slots) else {
            return refused.map_or(Ok(0), |error| Err((0, error)));
        };
        let mut bad = null_mut();
        // SAFETY: the queue pair is alive; requests, lists and inline bytes lie in `slots`, which
        // does not move while the call lasts. The memory that the lists name is registered, or the
        // device refuses it.
        let given = unsafe { (context.inner.ops.post_send)(self.ptr(), first, &mut bad) };
        let outcome = context.outcome(VERB, given);
        if outcome.is_ok() {
            slots.iter().for_each(Slot::name_bound);
        }
        match (outcome, refused) {
            (Ok(()), None) => Ok(slots.len()),
            (Ok(()), Some(error)) => Err((slots.len(), error)),
            (Err(error), _) => {
                // It names none of them, or nothing at all: any of them may be posted.
                let mut requests = slots.iter().map(|slot| &raw const slot.wr);
                let refused = requests.position(|request| request == bad.cast_const());
                Err((refused.unwrap_or(slots.len()), error))
            }
        }
    }

    fn slot(&self, verb: &'static str, work: SendWork<'_>) -> Result<Slot> {
        let context = &self.inner.context;
        let SendWork { wqe, ah, window } = work;
        // Soft-RoCE takes what a service does not have, and fails later or not at all.
        let qp_type = self.inner.qp_type;
        if !wqe.op.is_of(qp_type) {
            let why = format!("a queue pair of type {qp_type} has no such operation");
            return Err(Error::invalid(verb, why));
        }
        let ours = |pd: &Pd| Arc::ptr_eq(&pd.context().inner, &context.inner);
        // SAFETY: numbers and pointers, which may all be zero.
        let mut wr: ibv_send_wr = unsafe { core::mem::zeroed() };
        wr.wr_id = wqe.wr_id | OF_SEND;
        wr.remote_srqn = wqe.srqn;
        let mut rdma = |opcode, remote_addr, rkey| {
            wr.wr.rdma = ibv_wr_rdma { remote_addr, rkey };
            opcode
        };
        wr.opcode = match wqe.op {
            SendOp::Send => IBV_WR_SEND,
            SendOp::SendImm(imm) => {
                wr.imm_data = u32::from_ne_bytes(imm);
                IBV_WR_SEND_WITH_IMM
            }
            SendOp::SendInvalidate(rkey) => {
                wr.imm_data = rkey;
                IBV_WR_SEND_WITH_INV
            }
            SendOp::Write { remote_addr, rkey } => rdma(IBV_WR_RDMA_WRITE, remote_addr, rkey),
            SendOp::Read { remote_addr, rkey } => rdma(IBV_WR_RDMA_READ, remote_addr, rkey),
            SendOp::AtomicWrite { remote_addr, rkey } => {
                rdma(IBV_WR_ATOMIC_WRITE, remote_addr, rkey)
            }
            SendOp::WriteImm {
                remote_addr,
                rkey,
                imm,
            } => {
                let opcode = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, remote_addr, rkey);
                wr.imm_data = u32::from_ne_bytes(imm);
                opcode
            }
            SendOp::CompareSwap {
                remote_addr,
                rkey,
                compare,
                swap,
            } => {
                wr.wr.atomic = ibv_wr_atomic {
                    remote_addr,
                    compare_add: compare,
                    swap,
                    rkey,
                };
                IBV_WR_ATOMIC_CMP_AND_SWP
            }
            SendOp::FetchAdd {
                remote_addr,
                rkey,
                add,
            } => {
                wr.wr.atomic = ibv_wr_atomic {
                    remote_addr,
                    compare_add: add,
                    swap: 0,
                    rkey,
                };
                IBV_WR_ATOMIC_FETCH_AND_ADD
            }
            SendOp::Datagram { to, imm } => {
                let ah = ah.filter(|ah| ours(ah.pd()));
                let ah = ah.ok_or_else(|| Error::invalid(verb, "the way is another device's"))?;
                wr.wr.ud = ibv_wr_ud {
                    ah: ah.ptr().cast(),
                    remote_qpn: to.qpn,
                    remote_qkey: to.qkey,
                };
                wr.imm_data = imm.map_or(0, u32::from_ne_bytes);
                match imm {
                    Some(_) => IBV_WR_SEND_WITH_IMM,
                    None => IBV_WR_SEND,
                }
            }
            SendOp::BindWindow(bind) => {
                let window = window.filter(|(mw, mr)| ours(mw.pd()) && ours(mr.pd()));
                let (mw, mr) = window
                    .and_then(|(mw, mr)| Some((mw.ptr(), mr.ptr()?)))
                    .ok_or_else(|| Error::invalid(verb, "the window is another device's"))?;
                let right = |is: bool, bit: u32| if is { bit } else { 0 };
                wr.extra.bind_mw = ibv_wr_bind_mw {
                    mw,
                    rkey: bind.rkey,
                    bind_info: ibv_mw_bind_info {
                        mr,
                        addr: bind.addr,
                        length: bind.length,
                        mw_access_flags: right(bind.read, IBV_ACCESS_REMOTE_READ)
                            | right(bind.write, IBV_ACCESS_REMOTE_WRITE)
                            | right(bind.atomic, IBV_ACCESS_REMOTE_ATOMIC)
                            | right(bind.zero_based, IBV_ACCESS_ZERO_BASED),
                    },
                };
                IBV_WR_BIND_MW
            }
            SendOp::LocalInvalidate(rkey) => {
                wr.imm_data = rkey;
                IBV_WR_LOCAL_INV
            }
            // `struct ibv_send_wr` has no place for what a FLUSH is of.
            SendOp::Flush(_) => {
                let why = format!("a FLUSH cannot be posted to the device {}", context.name());
                return Err(Error::new(verb, libc::EOPNOTSUPP, why));
            }
        };
        let flag = |is: bool, bit: u32| if is { bit } else { 0 };
        let is_inline = matches!(&wqe.data, SendData::Inline(bytes) if !bytes.is_empty());
        wr.send_flags = flag(wqe.signaled, IBV_SEND_SIGNALED)
            | flag(wqe.solicited, IBV_SEND_SOLICITED)
            | flag(wqe.fence, IBV_SEND_FENCE)
            | flag(is_inline, IBV_SEND_INLINE);
        Ok(Slot {
            wr,
            list: SmallVec::new(),
            data: wqe.data,
        })
    }

    /// Posts a receive (`ibv_post_recv`).
    ///
    /// # Errors
    /// The queue is full (ENOMEM), or the device refuses.
    pub fn post_recv(&self, wqe: &RecvWqe) -> Result<Posted> {
        const VERB: &str = "ibv_post_recv";
        self.check_alive(VERB)?;
        // Soft-RoCE takes what no message will ever land in.
        if matches!(self.inner._uses, Uses::Queues(.., Some(_))) {
            let why = "the queue pair takes its receives from a shared receive queue";
            return Err(Error::invalid(VERB, why));
        }
        let context = &self.inner.context;
        post_receives(VERB, context, wqe, |wr| {
            let mut bad = null_mut();
            let post = context.inner.ops.post_recv;
            // SAFETY: the queue pair is alive; the request and its list are there while the call
            // lasts.
            let given = unsafe { post(self.ptr(), wr, &mut bad) };
            (given, bad)
        })
    }
}

/// A request with all that it points to.
struct Slot {
    wr: ibv_send_wr,
    list: SmallVec<[ibv_sge; 2]>,
    data: SendData,
}

impl Slot {
    /// A window that was bound has the key of the bind from now on. Soft-RoCE compares the field with
    /// the window's last key when it is bound again.
    fn name_bound(&self) {
        if self.wr.opcode != IBV_WR_BIND_MW {
            return;
        }
        // SAFETY: `slot` wrote this member of the union for this operation.
        let bind = unsafe { &self.wr.extra.bind_mw };
        // SAFETY: the window is alive, as the request still borrows it; the field is aligned, and
        // threads of ours change it by this store alone.
        let rkey = unsafe { AtomicU32::from_ptr(&raw mut (*bind.mw).rkey) };
        rkey.store(bind.rkey, Ordering::Relaxed);
    }
}

/// Sets the pointers of requests that do not move any more: each to its list and to the next.
fn link(slots: &mut [Slot]) -> Option<*mut ibv_send_wr> {
    let mut next = null_mut();
    for slot in slots.iter_mut().rev() {
        slot.list = match &slot.data {
            SendData::Gather(list) => list.iter().map(sge).collect(),
            SendData::Inline(bytes) if bytes.is_empty() => SmallVec::new(),
            SendData::Inline(bytes) => SmallVec::from_iter([ibv_sge {
                addr: bytes.as_ptr() as u64,
                length: bytes.len() as u32,
                lkey: 0,
            }]),
        };
        slot.wr.sg_list = slot.list.as_mut_ptr();
        slot.wr.num_sge = slot.list.len() as c_int;
        slot.wr.next = next;
        next = &raw mut slot.wr;
    }
    (!next.is_null()).then_some(next)
}

fn sge(entry: &rnic_types::Sge) -> ibv_sge {
    ibv_sge {
        addr: entry.addr,
        length: entry.length,
        lkey: entry.lkey,
    }
}

/// Posts one receive by this call, which gives what it returned and the request that it refused.
pub(crate) fn post_receives(
    verb: &'static str,
    context: &Context,
    wqe: &RecvWqe,
    post: impl FnOnce(*mut ibv_recv_wr) -> (c_int, *mut ibv_recv_wr),
) -> Result<Posted> {
    let mut list: SmallVec<[ibv_sge; 2]> = wqe.sges.iter().map(sge).collect();
    let mut wr = ibv_recv_wr {
        wr_id: wqe.wr_id,
        next: null_mut(),
        sg_list: list.as_mut_ptr(),
        num_sge: list.len() as c_int,
    };
    let request = &raw mut wr;
    let (given, bad) = post(request);
    match context.outcome(verb, given) {
        // It does not name this request as the refused one, so it may be posted.
        Err(_) if bad != request => Ok(Posted),
        outcome => outcome.map(|()| Posted),
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if self.context.is_alive() {
            // SAFETY: of this process, with no event that is not acknowledged. If the device
            // refuses, it stays, and what it uses stays with it: the device refuses that, too.
            unsafe { (self.context.library().destroy_qp)(self.ptr.as_ptr()) };
        }
    }
}
