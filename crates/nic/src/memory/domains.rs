//! The protection domains of the process by number.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use rustix_futex_sync::{Mutex, MutexGuard};

/// The process's protection domains by number, for `ibv_import_pd(3)` and whoever looks from
/// outside.
static ALL: Mutex<Domains> = Mutex::new(BTreeMap::new());

type Domains = BTreeMap<u32, Known>;

/// A domain, as its handles have it. They lie above; the registry only keeps them.
pub(crate) type Domain = dyn Any + Send + Sync;

#[derive(Debug)]
pub(crate) struct Known {
    domain: Weak<Domain>,
    context: u64,
    users: Arc<AtomicU32>,
    importable: bool,
}

/// A protection domain, for whoever looks from outside.
pub(crate) struct DomainFacts {
    pub(crate) number: u32,
    pub(crate) context: u64,
    pub(crate) users: u32,
}

/// The process's protection domains from the place `from` on. Of a parent domain and an import, the
/// one that they stand for.
pub(crate) fn each_from(from: usize, mut tell: impl FnMut(DomainFacts) -> bool) {
    let all = lock_all();
    for (number, known) in all.iter().filter(|(_, pd)| pd.exists()).skip(from) {
        let facts = DomainFacts {
            number: *number,
            context: known.context,
            users: known.users.load(Ordering::Acquire),
        };
        if !tell(facts) {
            return;
        }
    }
}

impl Known {
    fn exists(&self) -> bool {
        self.domain.strong_count() > 0
    }
}

/// The users of domain `number` of that context, for another process that becomes one.
pub(crate) fn users_of(number: u32, context: u64) -> Option<Arc<AtomicU32>> {
    let all = lock_all();
    let known = all.get(&number)?;
    let may = known.importable && known.context == context && known.exists();
    may.then(|| known.users.clone())
}

pub(crate) type AllGuard = MutexGuard<'static, Domains>;

/// Held across fork(2), so that the child finds it free.
pub(crate) fn lock_all() -> AllGuard {
    ALL.lock()
}

/// Enters a domain of that context. `users`: what stands in it.
pub(crate) fn enter(
    number: u32,
    domain: &Arc<Domain>,
    context: u64,
    users: &Arc<AtomicU32>,
    importable: bool,
) {
    let known = Known {
        domain: Arc::downgrade(domain),
        context,
        users: users.clone(),
        importable,
    };
    lock_all().insert(number, known);
}

/// A domain ends: `domain` is where it is. An import has the number of the domain that it is of.
pub(crate) fn leave(number: u32, domain: *const ()) {
    let mut all = lock_all();
    let known = all.get(&number);
    if known.is_some_and(|known| std::ptr::eq(known.domain.as_ptr().cast(), domain)) {
        all.remove(&number);
    }
}

/// The domain of that number, if it may be imported.
pub(crate) fn importable(number: u32) -> Option<Arc<Domain>> {
    let all = lock_all();
    let known = all.get(&number).filter(|known| known.importable);
    known.and_then(|known| known.domain.upgrade())
}
