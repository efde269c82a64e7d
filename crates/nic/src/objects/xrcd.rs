//! XRC domains (IBTA vol. 1, annex A14): what the targets of connections and the shared receive
//! queues that these name have in common.
//!
//! A domain may be shared by opening it for the same file, in other processes of the user on this
//! host as well: a target here takes requests for the queues of all of them (module `neighbour`). A
//! target itself belongs to the process that made it, and [`Xrcd::open_qp`] finds those of this
//! process.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rnic_host::{DomainError, DomainKey};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::objects::context::Context;
use crate::queues::Domain;
use rnic_sys::FileIdentity;

/// An XRC domain (`ibv_open_xrcd(3)`). Closed when the last handle, those of its objects included,
/// is dropped.
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

static NEXT: AtomicU32 = AtomicU32::new(1);

impl Context {
    /// Opens an XRC domain: for a file, whose other openers share it, in whatever process of the
    /// user on this host, or for `None` alone. `create` and `exclusive` are O_CREAT and O_EXCL of
    /// `ibv_open_xrcd(3)`.
    ///
    /// # Errors
    /// EBADF: not a descriptor. EAGAIN: not open yet, without `create`. EINVAL: open already, with
    /// `exclusive`.
    pub fn open_xrcd(&self, file: Option<RawFd>, create: bool, exclusive: bool) -> Result<Xrcd> {
        Xrcd::open(self, file, create, exclusive)
    }
}

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
                domains.add(NEXT.fetch_add(1, Ordering::Relaxed), key.zip(file))
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
