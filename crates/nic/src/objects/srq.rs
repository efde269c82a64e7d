//! Shared receive queues (IBTA vol. 1, 10.2.9).
//!
//! Receives posted here serve whichever attached queue pair has a message first. They outlive queue
//! pairs: neither ERR nor destruction of one flushes them. A receive's place is free again when its
//! completion was polled, as on hardware.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rnic_transport::{Fifo, RecvWqe};
pub use rnic_types::{SrqAttr, SrqAttrMask};
use rustix_futex_sync::Mutex;

use crate::device::{MAX_SGE, MAX_SRQ_WR};
use crate::driving::Nic;
use crate::engine::Engine;
use crate::error::{self, Error, Result};
use crate::objects::cq::Cq;
use crate::objects::pd::Pd;
use crate::objects::requests::take_each;
use crate::objects::xrcd::Xrcd;
use crate::queues::{AsyncEvent, Queue, Slots, SrqShared, XrcPart};

/// What to create (`struct ibv_srq_init_attr`).
#[derive(Clone, Debug)]
pub struct SrqInit {
    /// Work requests asked for; it gets at least as many.
    pub max_wr: u32,
    /// Scatter entries of one work request.
    pub max_sge: u32,
    /// The XRC domain whose targets take receives from it, and where its completions go; `None`: it
    /// is one for queue pairs of other services.
    pub xrc: Option<(Xrcd, Cq)>,
    /// Comes back in asynchronous events.
    pub cookie: u64,
}

/// A shared receive queue. Destroyed when the last handle, queue pairs' included, is dropped.
#[derive(Clone, Debug)]
pub struct Srq {
    inner: Arc<SrqHandle>,
}

#[derive(Debug)]
struct SrqHandle {
    shared: Arc<SrqShared>,
    pd: Pd,
    /// Of an XRC one.
    xrcd: Option<Xrcd>,
}

impl SrqHandle {
    fn nic(&self) -> &Nic {
        &self.pd.context().shared.nic
    }
}

impl Pd {
    /// Makes a shared receive queue.
    ///
    /// # Errors
    /// EINVAL for sizes of 0 or beyond the device's, ENOMEM when the device's are all in use.
    pub fn create_srq(&self, init: &SrqInit) -> Result<Srq> {
        Srq::new(self, init)
    }
}

impl Srq {
    pub(crate) fn new(pd: &Pd, init: &SrqInit) -> Result<Srq> {
        const VERB: &str = "ibv_create_srq";
        let max_wr = round_capacity(VERB, init.max_wr)?;
        if init.max_sge > MAX_SGE {
            return Err(Error::invalid(
                VERB,
                format!(
                    "max_sge {} is more than the device's {MAX_SGE}",
                    init.max_sge
                ),
            ));
        }
        if let Some((xrcd, cq)) = &init.xrc
            && (cq.shared.context_id(), xrcd.context().id())
                != (pd.context().id(), pd.context().id())
        {
            return Err(Error::invalid(
                VERB,
                "the XRC domain or the completion queue belongs to another context than the protection domain",
            ));
        }
        let mut receives = Fifo::default();
        receives
            .try_reserve(max_wr as usize)
            .map_err(|_| error::no_memory(VERB))?;
        let nic = &pd.context().shared.nic;
        nic.check_alive(VERB)?;
        let (mut engine, number) = nic.shard(0).lock_with(Engine::allocate_srqn)?;
        let shared = Arc::new(SrqShared {
            number,
            owner: pd.context().shared.owner.clone(),
            pd: pd.shared.id,
            max_sge: init.max_sge.max(1),
            xrc: init.xrc.as_ref().map(|(xrcd, cq)| XrcPart {
                domain: xrcd.domain().clone(),
                cq: cq.shared.clone(),
            }),
            slots: Arc::new(Slots::shared()),
            cookie: init.cookie,
            users: AtomicU32::new(0),
            queue: Mutex::new(Queue {
                receives,
                awaited: false,
                max_wr,
                limit: 0,
            }),
            retired: AtomicBool::new(false),
        });
        engine.srqs.insert(shared.clone());
        drop(engine);
        pd.shared.users.fetch_add(1, Ordering::AcqRel);
        if let Some(xrc) = &shared.xrc {
            xrc.cq.enter(0);
        }
        let xrcd = init.xrc.as_ref().map(|(xrcd, _)| xrcd.clone());
        if let Some(xrcd) = &xrcd {
            xrcd.add_user();
        }
        Ok(Srq {
            inner: Arc::new(SrqHandle {
                shared,
                pd: pd.clone(),
                xrcd,
            }),
        })
    }

    pub(crate) fn shared(&self) -> &Arc<SrqShared> {
        &self.inner.shared
    }

    /// An XRC one: its receives are for targets of its domain.
    pub fn is_xrc(&self) -> bool {
        self.shared().xrc.is_some()
    }

    /// See [`Cq::check_alive`].
    ///
    /// # Errors
    /// As there.
    pub fn check_alive(&self, verb: &'static str) -> Result<()> {
        self.inner.nic().check_alive(verb)
    }

    /// Its number, 24 bits; no other shared receive queue of the process has it.
    pub fn number(&self) -> u32 {
        self.shared().number
    }

    /// Its protection domain, which the keys of its receives belong to.
    pub fn pd(&self) -> &Pd {
        &self.inner.pd
    }

    /// Queue pairs still use it.
    pub fn in_use(&self) -> bool {
        self.shared().users.load(Ordering::Acquire) != 0
    }

    /// Does what the end of the last handle does, whatever handles there are, and leaves them valid
    /// and good for nothing: calls of them fail. For who has to wait until nobody uses it any more;
    /// no queue pair may. The second time nothing happens.
    ///
    /// On return no limit event of it is posted any more, none waits that nobody has taken, and XRC
    /// domain and completion queue are free of it. Its protection domain stays in use until the
    /// last handle is dropped.
    pub fn retire(&self) {
        self.inner.retire();
    }

    /// It was retired.
    pub fn is_gone(&self) -> bool {
        self.shared().retired.load(Ordering::Acquire)
    }

    /// Sizes, and the limit that is still armed.
    pub fn query(&self) -> SrqAttr {
        let shared = self.shared();
        // In a forked child a thread of the parent may have the lock.
        let (max_wr, srq_limit) = match self.inner.nic().check_alive("ibv_query_srq") {
            Ok(()) => {
                let queue = shared.queue.lock();
                (queue.max_wr, queue.limit)
            }
            Err(_) => (0, 0),
        };
        SrqAttr {
            max_wr,
            max_sge: shared.max_sge,
            srq_limit,
        }
    }

    /// Changes its size, arms its limit event, or both (`ibv_modify_srq(3)`). The event comes once
    /// per arming: as soon as fewer receives than `srq_limit` are posted, and at once if that is so
    /// already.
    ///
    /// # Errors
    /// EINVAL: unknown bits, a limit above the size, a size below the receives in use; nothing has
    /// changed then.
    pub fn modify(&self, attr: &SrqAttr, mask: SrqAttrMask) -> Result<()> {
        const VERB: &str = "ibv_modify_srq";
        let shared = self.shared();
        let nic = self.inner.nic();
        nic.check_alive(VERB)?;
        if mask.0 & !(SrqAttrMask::MAX_WR.0 | SrqAttrMask::LIMIT.0) != 0 {
            return Err(Error::invalid(
                VERB,
                format!("unknown mask bits in {:#x}", mask.0),
            ));
        }
        let mut queue = shared.queue.lock();
        shared.check_there(VERB)?;
        let (mut max_wr, mut limit) = (queue.max_wr, queue.limit);
        if mask.intersects(SrqAttrMask::MAX_WR) {
            max_wr = round_capacity(VERB, attr.max_wr)?;
            let used = shared.slots.recv.used();
            if i64::from(used) > i64::from(max_wr) {
                return Err(Error::invalid(
                    VERB,
                    format!("{used} receives are in use, more than {max_wr}"),
                ));
            }
        }
        if mask.intersects(SrqAttrMask::LIMIT) {
            limit = attr.srq_limit;
        }
        if limit > max_wr {
            return Err(Error::invalid(
                VERB,
                format!("a limit of {limit} on a queue of {max_wr} work requests"),
            ));
        }
        queue
            .receives
            .try_reserve(max_wr as usize)
            .map_err(|_| error::no_memory(VERB))?;
        (queue.max_wr, queue.limit) = (max_wr, limit);
        shared.watch_limit(&mut queue);
        Ok(())
    }

    /// Posts receive work requests until the first error.
    ///
    /// # Errors
    /// How many were accepted, and why the next was not: EINVAL (too many SGEs), ENOMEM (full).
    pub fn post_recv(
        &self,
        wqes: &mut dyn Iterator<Item = Result<RecvWqe>>,
    ) -> std::result::Result<(), (usize, Error)> {
        const VERB: &str = "ibv_post_srq_recv";
        let shared = self.shared();
        let nic = self.inner.nic();
        nic.check_alive(VERB).map_err(|e| (0, e))?;
        let mut queue = shared.queue.lock();
        shared.check_there(VERB).map_err(|e| (0, e))?;
        let (accepted, refused) = take_each(wqes, |wqe| {
            let wqe = admit(shared, queue.max_wr, wqe)?;
            shared.slots.recv.take(1);
            queue.receives.push_back(wqe);
            Ok(())
        });
        refused.map_or(Ok(()), |error| Err((accepted, error)))
    }
}

/// May this work request enter the queue?
fn admit(shared: &SrqShared, max_wr: u32, wqe: RecvWqe) -> Result<RecvWqe> {
    const VERB: &str = "ibv_post_srq_recv";
    if wqe.sges.len() > shared.max_sge as usize {
        return Err(Error::invalid(
            VERB,
            format!(
                "{} SGEs, the shared receive queue has {}",
                wqe.sges.len(),
                shared.max_sge
            ),
        ));
    }
    let used = shared.slots.recv.used();
    if i64::from(used) >= i64::from(max_wr) {
        return Err(Error::new(
            VERB,
            libc::ENOMEM,
            format!(
                "shared receive queue full: {used} work requests posted whose completions were not polled"
            ),
        ));
    }
    Ok(wqe)
}

/// Capacity as hardware rounds it: a power of two less one.
fn round_capacity(verb: &'static str, max_wr: u32) -> Result<u32> {
    if max_wr == 0 || max_wr > MAX_SRQ_WR {
        return Err(Error::invalid(
            verb,
            format!("{max_wr} work requests asked for, 1 to {MAX_SRQ_WR} possible"),
        ));
    }
    Ok((max_wr + 1).next_power_of_two() - 1)
}

impl SrqHandle {
    fn retire(&self) {
        let shared = &self.shared;
        if shared.retired.swap(true, Ordering::AcqRel) {
            return;
        }
        // In a forked child the engine is a dead copy, and threads of the parent may have had
        // locks.
        if self.nic().check_alive("ibv_destroy_srq").is_ok() {
            self.nic().lock().srqs.remove(shared.number);
            // Who arms it from now on is refused, and who has done so has sent what is to be
            // revoked.
            shared.queue.lock().limit = 0;
            let cookie = shared.cookie;
            shared.owner.revoke_events(
                |event| matches!(event, AsyncEvent::SrqLimit { cookie: c } if *c == cookie),
            );
            if let Some(xrc) = &shared.xrc {
                xrc.cq.purge_srq(&shared.slots);
            }
        }
        if let Some(xrc) = &shared.xrc {
            xrc.cq.leave(0);
        }
        if let Some(xrcd) = &self.xrcd {
            xrcd.drop_user();
        }
    }
}

impl Drop for SrqHandle {
    fn drop(&mut self) {
        self.retire();
        self.pd.shared.users.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
