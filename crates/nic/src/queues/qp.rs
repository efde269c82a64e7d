//! Queue pairs, as the engine and a program's handles share them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rnic_transport::{Pd, QpEvent};
use rustix_futex_sync::Mutex;

use super::cq::CqShared;
use super::domain::Domain;
use super::owner::Owner;
use super::slots::Slots;
use super::srq::SrqShared;
use super::usage::Usage;
use rnic_types::{AsyncEvent, QpCap, QpState, QpType};

/// Where a queue pair's receives come from.
#[derive(Debug)]
pub(crate) enum ReceiveSource {
    /// Its own receive queue.
    Own,
    /// A shared one.
    Srq(Arc<SrqShared>),
    /// The shared receive queues of an XRC domain, as requests name them.
    Xrc(Arc<Domain>),
}

/// What a queue pair's handle and its entry in the engine share.
#[derive(Debug)]
pub(crate) struct QpShared {
    pub(crate) qpn: u32,
    pub(crate) owner: Arc<Owner>,
    pub(crate) pd: Pd,
    pub(crate) send_cq: Option<Arc<CqShared>>,
    pub(crate) recv_cq: Option<Arc<CqShared>>,
    pub(crate) source: ReceiveSource,
    pub(crate) cap: QpCap,
    pub(crate) listeners: Mutex<Vec<Listener>>,
    pub(crate) slots: Arc<Slots>,
    pub(crate) qp_type: QpType,
    pub(crate) sq_sig_all: bool,
    /// How it is used, if somebody wants to know.
    pub(crate) usage: Option<Box<Usage>>,
    pub(crate) state: AtomicU8,
    /// Out of the engine before its handle was dropped: that was retired, or the device closed.
    pub(crate) removed: AtomicBool,
}

impl QpShared {
    /// Where its completions go, except those of XRC shared receive queues.
    pub(crate) fn cqs(&self) -> impl Iterator<Item = &Arc<CqShared>> {
        self.send_cq.iter().chain(&self.recv_cq)
    }

    /// Its transport service, for people.
    pub(crate) fn type_name(&self) -> &'static str {
        self.qp_type.name()
    }

    pub(crate) fn qp_type(&self) -> QpType {
        self.qp_type
    }

    pub(crate) fn state(&self) -> QpState {
        QpState::from_ibv(u32::from(self.state.load(Ordering::Acquire))).unwrap_or(QpState::Err)
    }

    pub(crate) fn set_removed(&self) {
        self.set_state(QpState::Reset);
        self.removed.store(true, Ordering::Release);
    }

    pub(crate) fn set_state(&self, state: QpState) {
        self.state.store(state as u8, Ordering::Release);
    }
}

/// Whom the asynchronous events of a queue pair are for: one for each handle.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Of its handle.
    pub(crate) number: u64,
    pub(crate) owner: Arc<Owner>,
    pub(crate) cookie: u64,
    /// The cookie means something.
    pub(crate) listens: bool,
}

impl QpShared {
    /// Tells every handle's owner.
    pub(crate) fn post_event(&self, event: QpEvent) {
        let listeners = self.listeners.lock();
        for listener in listeners.iter().filter(|listener| listener.listens) {
            let cookie = listener.cookie;
            listener.owner.post_event(AsyncEvent::Qp { cookie, event });
        }
    }

    /// A handle was opened in another context.
    pub(crate) fn has_listener_outside(&self, context: u64) -> bool {
        let listeners = self.listeners.lock();
        listeners.iter().any(|other| other.owner.id != context)
    }
}
