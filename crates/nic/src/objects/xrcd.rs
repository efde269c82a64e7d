//! XRC domains (IBTA vol. 1, annex A14): what the targets of connections and the shared receive queues that these name
//! have in common.
//!
//! A domain may be shared by opening it for the same file, in other processes of the user on this host as well: a target
//! here takes requests for the queues of all of them (module `neighbour`). A target itself belongs to the process that made
//! it, and [`Xrcd::open_qp`] finds those of this process.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use rnic_host::{DomainError, DomainKey};
use rnic_link::RoceLink;
use rustix_futex_sync::Mutex;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::objects::context::Context;
use crate::objects::qp::{Qp, QpTarget};
use crate::sys::FileIdentity;

/// What all openings of a domain share.
#[derive(Debug)]
pub(crate) struct Domain {
    /// What names it to other processes.
    number: u32,
    /// `None`: nobody else can open it.
    file: Option<Arc<FileIdentity>>,
    /// Its XRC_RECV queue pairs, for [`Xrcd::open_qp`].
    targets: Mutex<Vec<Weak<QpTarget>>>,
}

impl Domain {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn file(&self) -> Option<&FileIdentity> {
        self.file.as_deref()
    }

    pub(crate) fn add_target(&self, target: &Arc<QpTarget>) {
        let mut targets = self.targets.lock();
        targets.retain(|known| known.strong_count() != 0);
        targets.push(Arc::downgrade(target));
    }
}

/// An XRC domain (`ibv_open_xrcd(3)`). Closed when the last handle, those of its objects included, is dropped.
#[derive(Clone, Debug)]
pub struct Xrcd {
    handle: Arc<XrcdHandle>,
}

#[derive(Debug)]
struct XrcdHandle {
    // Dropped in this order.
    domain: Arc<Domain>,
    opened: Opened,
    /// Queue pairs and shared receive queues made through this handle.
    users: AtomicU32,
}

/// The domains of the process that were opened for a file.
#[derive(Debug, Default)]
pub(crate) struct Domains(Vec<(DomainKey, Weak<Domain>)>);

impl Domains {
    /// The domain that is open for this file.
    fn of(&self, file: &FileIdentity) -> Option<Arc<Domain>> {
        let mut open = self.0.iter().filter_map(|(_, domain)| domain.upgrade());
        open.find(|domain| domain.file.as_ref().is_some_and(|other| other.same(file)))
    }

    /// The file of an open domain, if it is the same as this.
    pub(crate) fn file_like(&self, file: &FileIdentity) -> Option<Arc<FileIdentity>> {
        self.of(file).and_then(|domain| domain.file.clone())
    }

    /// Tells other processes of those that nobody here has open any more.
    fn sweep(&mut self, link: &mut RoceLink) {
        self.0.retain(|(key, domain)| {
            let open = domain.strong_count() != 0;
            if !open {
                link.close_domain(*key);
            }
            open
        });
    }
}

static NEXT: AtomicU32 = AtomicU32::new(1);

impl Xrcd {
    pub(crate) fn open(
        context: &Context,
        file: Option<RawFd>,
        create: bool,
        exclusive: bool,
    ) -> Result<Xrcd> {
        const VERB: &str = "ibv_open_xrcd";
        let nic = &context.shared.nic;
        nic.check_alive(VERB)?;
        let file = file
            .map(|fd| {
                FileIdentity::of(fd).map_err(|error| {
                    let errno = error.raw_os_error().unwrap_or(libc::EBADF);
                    Error::new(VERB, errno, format!("descriptor {fd}: {error}"))
                })
            })
            .transpose()?;
        let mut engine = nic.lock();
        let Engine { domains, link, .. } = &mut *engine;
        domains.sweep(link);
        let open = file.as_ref().and_then(|file| domains.of(file));
        let domain = match open {
            Some(_) if exclusive => {
                return Err(Error::invalid(
                    VERB,
                    "O_EXCL, and the domain of this file is open already",
                ));
            }
            Some(domain) => domain,
            None => {
                let key = file.as_ref().map(|file| {
                    let (device, inode) = file.numbers();
                    DomainKey::of(device, inode)
                });
                if let Some(key) = key {
                    link.open_domain(key, create, exclusive).map_err(refused)?;
                }
                let domain = Arc::new(Domain {
                    number: NEXT.fetch_add(1, Ordering::Relaxed),
                    file: file.map(Arc::new),
                    targets: Mutex::new(Vec::new()),
                });
                if let Some(key) = key {
                    domains.0.push((key, Arc::downgrade(&domain)));
                }
                domain
            }
        };
        drop(engine);
        Ok(Xrcd {
            handle: Arc::new(XrcdHandle {
                domain,
                opened: Opened(context.clone()),
                users: AtomicU32::new(0),
            }),
        })
    }

    /// The context it was opened in.
    pub fn context(&self) -> &Context {
        &self.handle.opened.0
    }

    /// Queue pairs or shared receive queues made through this handle are left.
    pub fn in_use(&self) -> bool {
        self.handle.users.load(Ordering::Acquire) != 0
    }

    /// Makes a queue pair of type [`QpType::XrcRecv`](crate::QpType::XrcRecv) in RESET. `cookie` comes back in its events.
    ///
    /// # Errors
    /// ENOMEM when the device's queue pairs are all in use.
    pub fn create_qp(&self, cookie: u64) -> Result<Qp> {
        Qp::new_target(self, cookie)
    }

    /// One more handle to a queue pair of the domain (`ibv_open_qp(3)`), which is destroyed with the last. `cookie` comes
    /// back in its events, which all handles get, this one from [`Qp::listen`] on.
    ///
    /// # Errors
    /// EINVAL if the domain has no such queue pair.
    pub fn open_qp(&self, qpn: u32, cookie: u64) -> Result<Qp> {
        let targets = self.domain().targets.lock();
        let mut alive = targets.iter().filter_map(Weak::upgrade);
        let target = alive.find(|target| target.qpn() == qpn);
        drop(targets);
        let opened = target.and_then(|target| Qp::open(target, self, cookie));
        opened.ok_or_else(|| {
            Error::invalid(
                "ibv_open_qp",
                format!("the domain has no XRC_RECV queue pair {qpn:#x} of this process"),
            )
        })
    }

    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.handle.domain
    }

    pub(crate) fn add_user(&self) {
        self.handle.users.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn drop_user(&self) {
        self.handle.users.fetch_sub(1, Ordering::AcqRel);
    }
}

fn refused(error: DomainError) -> Error {
    const VERB: &str = "ibv_open_xrcd";
    match error {
        DomainError::Open => Error::invalid(
            VERB,
            "O_EXCL, and another process has the domain of this file open",
        ),
        DomainError::NotOpen => Error::new(
            VERB,
            libc::EAGAIN,
            "no domain of this file is open, and O_CREAT is missing",
        ),
        DomainError::Io(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
            Error::new(VERB, errno, format!("the runtime folder: {error}"))
        }
    }
}

/// Ends after the handle's share of the domain has.
#[derive(Debug)]
struct Opened(Context);

impl Drop for Opened {
    fn drop(&mut self) {
        // In a forked child the engine is a dead copy.
        if let Some(mut engine) = self.0.shared.nic.lock_if_alive() {
            let Engine { domains, link, .. } = &mut *engine;
            domains.sweep(link);
        }
    }
}
