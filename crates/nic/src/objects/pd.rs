//! Protection domains, and what groups them: thread domains and parent domains.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result};
use crate::memory::domains;
use crate::objects::context::Context;

#[derive(Debug)]
pub(crate) struct PdShared {
    pub(crate) id: rnic_transport::Pd,
    pub(crate) context: Context,
    pub(crate) users: Arc<AtomicU32>,
    /// Of an import: what the process that it belongs to calls it.
    foreign: Option<u32>,
    /// What it stands on, in use as long as it exists: the domain of a parent domain or import, a
    /// thread domain.
    #[allow(dead_code, reason = "held")]
    base: Option<PdHold>,
    #[allow(dead_code, reason = "held")]
    thread_domain: Option<Td>,
}

impl Drop for PdShared {
    fn drop(&mut self) {
        domains::leave(self.id.0, std::ptr::from_ref(self).cast());
    }
}

/// A protection domain (`ibv_alloc_pd(3)`), or a parent domain that stands for one.
#[derive(Clone, Debug)]
pub struct Pd {
    pub(crate) shared: Arc<PdShared>,
}

/// Keeps a protection domain in use.
#[derive(Debug)]
pub struct PdHold(Pd);

impl Drop for PdHold {
    fn drop(&mut self) {
        self.0.shared.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A thread domain (`ibv_alloc_td(3)`): a promise that its objects are used by one thread at a
/// time. The device's lock is one for all, so there is nothing to gain from it here.
#[derive(Clone, Debug)]
pub struct Td {
    shared: Arc<Context>,
}

impl Td {
    /// See [`Context::is_alive`].
    pub fn is_alive(&self) -> bool {
        self.shared.is_alive()
    }

    /// A parent domain stands on it.
    pub fn in_use(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }
}

static NEXT_PD: AtomicU32 = AtomicU32::new(1);

impl Context {
    /// Makes a protection domain that nobody can import, in no process: its handles are all there
    /// are.
    pub fn alloc_private_pd(&self) -> Pd {
        self.alloc(false)
    }

    /// Makes a protection domain.
    pub fn alloc_pd(&self) -> Pd {
        self.alloc(true)
    }

    /// One that nobody sees, and in which nothing is.
    pub(crate) fn empty_pd(&self) -> Pd {
        let id = NEXT_PD.fetch_add(1, Ordering::Relaxed);
        Pd::new(id, self, None, None, None)
    }

    fn alloc(&self, importable: bool) -> Pd {
        let pd = self.empty_pd();
        let domain: Arc<domains::Domain> = pd.shared.clone();
        domains::enter(
            pd.number(),
            &domain,
            self.id(),
            &pd.shared.users,
            importable,
        );
        pd
    }

    /// Makes a thread domain.
    pub fn alloc_td(&self) -> Td {
        Td {
            shared: Arc::new(self.clone()),
        }
    }

    /// The protection domain with that [`Pd::number`], whatever context of this process made it; in
    /// an import of another process's context, one of that context. It stays in use until the
    /// result is dropped, or ([`Pd::unimport`]) unimported.
    ///
    /// # Errors
    /// ENOENT: there is none. ENODEV: its process is gone, ETIMEDOUT: or does not answer.
    pub fn import_pd(&self, number: u32) -> Result<Pd> {
        if let Some(origin) = self.origin() {
            let fresh = || NEXT_PD.fetch_add(1, Ordering::Relaxed);
            let id = origin.import_pd(&self.shared.nic, number, fresh)?;
            return Ok(Pd::new(id, self, Some(number), None, None));
        }
        let found = domains::importable(number).and_then(|domain| domain.downcast().ok());
        let shared = found.ok_or_else(|| {
            Error::new(
                "ibv_import_pd",
                libc::ENOENT,
                format!("this process has no protection domain {number}"),
            )
        })?;
        let original = Pd { shared };
        Ok(Pd::new(number, self, None, Some(original.hold()), None))
    }
}

impl Pd {
    fn new(
        id: u32,
        context: &Context,
        foreign: Option<u32>,
        base: Option<PdHold>,
        td: Option<Td>,
    ) -> Pd {
        Pd {
            shared: Arc::new(PdShared {
                id: rnic_transport::Pd(id),
                context: context.clone(),
                users: Arc::default(),
                foreign,
                base,
                thread_domain: td,
            }),
        }
    }

    /// A parent domain: stands for this domain, and counts its own objects.
    ///
    /// # Errors
    /// EINVAL: the thread domain belongs to another context.
    pub fn alloc_parent(&self, td: Option<&Td>) -> Result<Pd> {
        if let Some(td) = td {
            self.check_same_context("ibv_alloc_parent_domain", td.shared.id())?;
        }
        let id = self.shared.id.0;
        let (context, foreign) = (self.context(), self.shared.foreign);
        Ok(Pd::new(
            id,
            context,
            foreign,
            Some(self.hold()),
            td.cloned(),
        ))
    }

    /// The context it was made in.
    pub fn context(&self) -> &Context {
        &self.shared.context
    }

    /// What names it within the process that it belongs to.
    pub fn number(&self) -> u32 {
        self.shared.foreign.unwrap_or(self.shared.id.0)
    }

    /// An import from another process.
    pub(crate) fn is_foreign(&self) -> bool {
        self.shared.foreign.is_some()
    }

    /// Ends an import (`ibv_unimport_pd(3)`): the process that it belongs to may free it. What was
    /// made in it here stays.
    pub fn unimport(self) {
        if let (Some(number), Some(origin)) = (self.shared.foreign, self.context().origin()) {
            origin.unimport_pd(&self.context().shared.nic, number);
        }
    }

    /// Regions, windows, shared receive queues, queue pairs, parent domains or other processes'
    /// imports still belong to it.
    pub fn in_use(&self) -> bool {
        let used = || self.shared.users.load(Ordering::Acquire) != 0;
        // An import may have ended, and only the word of it not been heard yet.
        used() && {
            self.context().shared.nic.hear_neighbours();
            used()
        }
    }

    /// Keeps it in use.
    pub fn hold(&self) -> PdHold {
        self.shared.users.fetch_add(1, Ordering::AcqRel);
        PdHold(self.clone())
    }

    pub(crate) fn check_same_context(&self, verb: &'static str, other: u64) -> Result<()> {
        if self.context().id() == other {
            return Ok(());
        }
        Err(Error::invalid(
            verb,
            "the objects belong to different contexts",
        ))
    }
}
