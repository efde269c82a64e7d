//! Handles of queue pairs: several may be open of an XRC target, and the queue pair ends with the
//! last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use rustix_futex_sync::Mutex;

use super::Qp;
use crate::driving::Shard;
use crate::engine::{Engine, QpEntry};
use crate::error::{self, Error, Result};
use crate::objects::context::ContextShared;
use crate::objects::pd::Pd;
use crate::objects::srq::Srq;
use crate::objects::xrcd::Xrcd;
use crate::queues::{
    AsyncEvent, Listener, QpCap, QpShared, QpState, QpType, ReceiveSource, Slots, Target,
};

/// Numbers handles.
static NEXT: AtomicU64 = AtomicU64::new(1);

#[derive(Debug)]
pub(super) struct QpHandle {
    number: u64,
    pub(super) shared: Arc<QpShared>,
    /// The engine that has the queue pair.
    pub(super) shard: Arc<Shard>,
    target: Arc<QpTarget>,
    pub(super) context: Arc<ContextShared>,
    cookie: u64,
    /// By which it was made or opened.
    xrcd: Option<Xrcd>,
    /// Somebody retires it, or has.
    retired: AtomicBool,
    /// It was retired to the end.
    gone: AtomicBool,
}

/// The queue pair itself, which all its handles hold. It ends as the last of them is retired or
/// dropped, and has a listener until then.
#[derive(Debug)]
pub(crate) struct QpTarget {
    shared: Arc<QpShared>,
    /// The engine that has it, for good: its number is from one of that engine's ranges.
    shard: Arc<Shard>,
    pd: Pd,
    ended: AtomicBool,
    /// Outlives the queue pair.
    _srq: Option<Srq>,
}

impl Xrcd {
    /// Makes a queue pair of type [`QpType::XrcRecv`] in RESET. `cookie`
    /// comes back in its events.
    ///
    /// # Errors
    /// ENOMEM when the device's queue pairs are all in use.
    pub fn create_qp(&self, cookie: u64) -> Result<Qp> {
        Qp::new_target(self, cookie)
    }

    /// One more handle to a queue pair of the domain (`ibv_open_qp(3)`), which is destroyed with
    /// the last. `cookie` comes back in its events, which all handles get, this one from
    /// [`Qp::listen`] on.
    ///
    /// # Errors
    /// EINVAL if the domain has no such queue pair.
    pub fn open_qp(&self, qpn: u32, cookie: u64) -> Result<Qp> {
        let target = self.domain().target(qpn);
        let target = target.and_then(|target| target.downcast::<QpTarget>().ok());
        let opened = target.and_then(|target| Qp::open(target, self, cookie));
        opened.ok_or_else(|| {
            Error::invalid(
                "ibv_open_qp",
                format!("the domain has no XRC_RECV queue pair {qpn:#x} of this process"),
            )
        })
    }
}

impl Qp {
    /// The target of an XRC connection (`IBV_QPT_XRC_RECV`).
    pub(crate) fn new_target(xrcd: &Xrcd, cookie: u64) -> Result<Qp> {
        let nic = &xrcd.context().shared.nic;
        nic.check_alive("ibv_create_qp")?;
        // Its requests work in the protection domains of the shared receive queues that they name;
        // this one is empty.
        let pd = xrcd.context().empty_pd();
        // Where the shared receive queues have their numbers.
        let shard = nic.shard(0);
        let (mut engine, qpn) = shard.lock_with(Engine::allocate_qpn)?;
        let shared = Arc::new(QpShared {
            qpn,
            owner: xrcd.context().shared.owner.clone(),
            pd: pd.shared.id,
            send_cq: None,
            recv_cq: None,
            source: ReceiveSource::Xrc(xrcd.domain().clone()),
            cap: QpCap::default(),
            listeners: Mutex::default(),
            slots: Arc::new(Slots::default()),
            qp_type: QpType::XrcRecv,
            sq_sig_all: false,
            usage: None,
            state: AtomicU8::new(QpState::Reset as u8),
            removed: AtomicBool::new(false),
        });
        engine
            .insert_qp(QpEntry::new(shared.clone()))
            .map_err(|_| error::no_memory("ibv_create_qp"))?;
        drop(engine);
        let shard = shard.clone();
        let qp = Qp::attach(shared, shard, &pd, None, Some(xrcd), cookie);
        let target: Arc<Target> = qp.inner.target.clone();
        xrcd.domain().add_target(qp.qpn(), &target);
        Ok(qp)
    }

    /// The first handle of a new queue pair, which counts with what it is made of.
    pub(super) fn attach(
        shared: Arc<QpShared>,
        shard: Arc<Shard>,
        pd: &Pd,
        srq: Option<Srq>,
        xrcd: Option<&Xrcd>,
        cookie: u64,
    ) -> Qp {
        pd.shared.users.fetch_add(1, Ordering::AcqRel);
        for cq in shared.cqs() {
            cq.enter(shard.index());
        }
        if let ReceiveSource::Srq(srq) = &shared.source {
            srq.users.fetch_add(1, Ordering::AcqRel);
        }
        let context = pd.context().shared.clone();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        shared.listeners.lock().push(Listener {
            number,
            owner: context.owner.clone(),
            cookie,
            listens: true,
        });
        let target = Arc::new(QpTarget {
            shared,
            shard,
            pd: pd.clone(),
            ended: AtomicBool::new(false),
            _srq: srq,
        });
        Qp::handle(number, target, context, xrcd, cookie)
    }

    /// One more handle of an XRC target, which does not listen yet; `None` if it has ended.
    pub(crate) fn open(target: Arc<QpTarget>, xrcd: &Xrcd, cookie: u64) -> Option<Qp> {
        let context = xrcd.context().shared.clone();
        let mut listeners = target.shared.listeners.lock();
        if listeners.is_empty() {
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        listeners.push(Listener {
            number,
            owner: context.owner.clone(),
            cookie,
            listens: false,
        });
        drop(listeners);
        Some(Qp::handle(number, target, context, Some(xrcd), cookie))
    }

    /// From now on the events of a handle that [`Xrcd::open_qp`] gave come with its cookie: what
    /// that stands for is there.
    pub fn listen(&self) {
        let mut listeners = self.shared().listeners.lock();
        let own = |listener: &&mut Listener| listener.number == self.inner.number;
        if let Some(listener) = listeners.iter_mut().find(own) {
            listener.listens = true;
        }
    }

    /// A handle, which is among the listeners already.
    fn handle(
        number: u64,
        target: Arc<QpTarget>,
        context: Arc<ContextShared>,
        xrcd: Option<&Xrcd>,
        cookie: u64,
    ) -> Qp {
        if let Some(xrcd) = xrcd {
            xrcd.add_user();
        }
        Qp {
            inner: Arc::new(QpHandle {
                number,
                shared: target.shared.clone(),
                shard: target.shard.clone(),
                target,
                context,
                cookie,
                xrcd: xrcd.cloned(),
                retired: AtomicBool::new(false),
                gone: AtomicBool::new(false),
            }),
        }
    }

    /// Does what the end of the handle does, and leaves it valid and good for nothing: calls of it
    /// fail as after [`Context::revoke`](crate::Context::revoke). For who has to wait until nobody
    /// uses it any more. The second time nothing happens.
    ///
    /// On return none of its events is posted any more, and none waits that nobody has taken; if it
    /// was the last handle, no copy in flight can touch memory on behalf of the queue pair, and the
    /// completion queues and the shared receive queue are free of it. Its protection domain stays
    /// in use until it is dropped.
    pub fn retire(&self) {
        self.inner.retire();
    }

    /// It was retired, or ended with its context. Every later call of it knows that, too: not so
    /// while it is being retired.
    pub fn is_gone(&self) -> bool {
        self.inner.gone.load(Ordering::Acquire) || self.shared().removed.load(Ordering::Acquire)
    }
}

impl QpHandle {
    fn retire(&self) {
        if self.retired.swap(true, Ordering::AcqRel) {
            return;
        }
        let (cookie, context) = (self.cookie, &self.context);
        // In a forked child nothing is posted, and a thread of the parent may have had the lock.
        if context.nic.check_alive("ibv_destroy_qp").is_ok() {
            // No event can be posted any more, and then none waits.
            let mut listeners = self.shared.listeners.lock();
            listeners.retain(|listener| listener.number != self.number);
            let last = listeners.is_empty();
            // Its events cannot be told from its own.
            let has_twin = listeners
                .iter()
                .any(|other| (other.cookie, other.owner.id) == (cookie, context.owner.id));
            drop(listeners);
            if !has_twin {
                context.owner.revoke_events(
                    |event| matches!(event, AsyncEvent::Qp { cookie: c, .. } if *c == cookie),
                );
            }
            if last {
                self.target.end();
            }
        }
        if let Some(xrcd) = &self.xrcd {
            xrcd.drop_user();
        }
        self.gone.store(true, Ordering::Release);
    }
}

impl QpTarget {
    fn end(&self) {
        if self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = &self.shared;
        // In a forked child the engine is a dead copy.
        if shared.owner.is_alive() {
            let mut engine = self.shard.lock();
            if !shared.removed.load(Ordering::Acquire) {
                let copies = engine.remove_qp(shared.qpn);
                shared.set_removed();
                // There may be room for others now.
                self.shard.after_drive(engine);
                copies.wait();
                for cq in shared.cqs() {
                    cq.purge(shared.qpn);
                }
            }
        }
        for cq in shared.cqs() {
            cq.leave(self.shard.index());
        }
        if let ReceiveSource::Srq(srq) = &shared.source {
            srq.users.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for QpHandle {
    fn drop(&mut self) {
        self.retire();
    }
}

impl Drop for QpTarget {
    fn drop(&mut self) {
        // In a forked child, handles end and it does not.
        self.end();
        self.pd.shared.users.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
