//! What completion queues ask of the engine, which alone keeps time and may change queue pairs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use rustix_futex_sync::Mutex;

use super::cq::CqShared;

const NEVER: u64 = u64::MAX;

/// Written by completion queues, looked at by the engine in every round.
#[derive(Debug)]
pub(crate) struct CqTasks {
    /// When there is something to do next; 0: now.
    next: AtomicU64,
    list: Mutex<List>,
    /// Queues that the engine is done with; any of them may be the last handle of the process's
    /// NIC.
    left: Mutex<Vec<Arc<CqShared>>>,
    any_left: AtomicBool,
}

#[derive(Debug, Default)]
struct List {
    /// Queue pairs whose completions found no room.
    failed: Vec<u32>,
    reminders: Vec<(u64, Weak<CqShared>)>,
}

/// What is due.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Queue pairs to fail.
    pub(crate) failed: Vec<u32>,
    /// Queues to remind of their event.
    pub(crate) reminders: Vec<Arc<CqShared>>,
}

impl Default for CqTasks {
    fn default() -> CqTasks {
        CqTasks {
            next: AtomicU64::new(NEVER),
            list: Mutex::default(),
            left: Mutex::default(),
            any_left: AtomicBool::new(false),
        }
    }
}

impl CqTasks {
    /// A completion of this queue pair was lost.
    pub(super) fn fail(&self, qpn: u32) {
        let mut list = self.list.lock();
        if !list.failed.contains(&qpn) {
            list.failed.push(qpn);
        }
        self.next.store(0, Ordering::Release);
    }

    /// This queue pair is reset: what was lost before is nothing to its next life.
    pub(crate) fn forgive(&self, qpn: u32) {
        self.list.lock().failed.retain(|failed| *failed != qpn);
    }

    /// Has `cq` reminded at this instant.
    pub(super) fn remind(&self, at: u64, cq: &Arc<CqShared>) {
        let mut list = self.list.lock();
        list.reminders.push((at, Arc::downgrade(cq)));
        self.next.fetch_min(at, Ordering::AcqRel);
    }

    /// When [`CqTasks::take`] has something to give.
    #[inline]
    pub(crate) fn next(&self) -> Option<u64> {
        let next = self.next.load(Ordering::Acquire);
        (next != NEVER).then_some(next)
    }

    /// The engine, which is locked, is done with this queue: somebody else lets it go.
    pub(crate) fn leave(&self, cq: Arc<CqShared>) {
        self.left.lock().push(cq);
        self.any_left.store(true, Ordering::Release);
    }

    /// Lets go what the engine has left. It must not be locked: with the last handle everything
    /// ends, for which it is locked.
    #[inline]
    pub(crate) fn let_go(&self) {
        if self.any_left.load(Ordering::Acquire) {
            self.let_all_go();
        }
    }

    #[cold]
    fn let_all_go(&self) {
        self.any_left.store(false, Ordering::Release);
        let left = std::mem::take(&mut *self.left.lock());
        drop(left);
    }

    /// Takes what is due.
    pub(crate) fn take(&self, now: u64) -> Due {
        let mut list = self.list.lock();
        let mut due = Due {
            failed: std::mem::take(&mut list.failed),
            reminders: Vec::new(),
        };
        list.reminders.retain(|(at, cq)| {
            if *at <= now {
                due.reminders.extend(cq.upgrade());
            }
            *at > now
        });
        let next = list.reminders.iter().map(|(at, _)| *at).min();
        self.next.store(next.unwrap_or(NEVER), Ordering::Release);
        due
    }
}
