//! XRC domains (IBTA vol. 1, annex A14): what the targets of connections and the shared receive queues that these name
//! have in common.
//!
//! A domain may be shared by opening it for the same file. It is one of this process: a domain that another process opened
//! for the same file is another one, whose queues this process's targets do not reach.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::qp::{Qp, QpTarget};
use crate::sys::FileIdentity;

/// What all openings of a domain share.
#[derive(Debug)]
pub(crate) struct Domain {
    /// `None`: nobody else can open it.
    file: Option<FileIdentity>,
    /// Its XRC_RECV queue pairs, for [`Xrcd::open_qp`].
    targets: Mutex<Vec<Weak<QpTarget>>>,
}

impl Domain {
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
    domain: Arc<Domain>,
    context: Context,
    /// Queue pairs and shared receive queues made through this handle.
    users: AtomicU32,
}

/// The domains of the process that were opened for a file.
#[derive(Debug, Default)]
pub(crate) struct Domains(Vec<Weak<Domain>>);

impl Domains {
    /// The domain that is open for this file.
    fn of(&mut self, file: &FileIdentity) -> Option<Arc<Domain>> {
        self.0.retain(|known| known.strong_count() != 0);
        let mut open = self.0.iter().filter_map(Weak::upgrade);
        open.find(|domain| domain.file.as_ref().is_some_and(|other| other.same(file)))
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
        let open = file.as_ref().and_then(|file| engine.domains.of(file));
        let domain = match open {
            Some(_) if exclusive => {
                return Err(Error::invalid(
                    VERB,
                    "O_EXCL, and the domain of this file is open already",
                ));
            }
            Some(domain) => domain,
            None if file.is_some() && !create => {
                return Err(Error::new(
                    VERB,
                    libc::EAGAIN,
                    "no domain of this file is open, and O_CREAT is missing",
                ));
            }
            None => {
                let domain = Arc::new(Domain {
                    file,
                    targets: Mutex::new(Vec::new()),
                });
                if domain.file.is_some() {
                    engine.domains.0.push(Arc::downgrade(&domain));
                }
                domain
            }
        };
        drop(engine);
        Ok(Xrcd {
            handle: Arc::new(XrcdHandle {
                domain,
                context: context.clone(),
                users: AtomicU32::new(0),
            }),
        })
    }

    /// The context it was opened in.
    pub fn context(&self) -> &Context {
        &self.handle.context
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
    /// back in its events, which all handles get.
    ///
    /// # Errors
    /// EINVAL if the domain has no such queue pair.
    pub fn open_qp(&self, qpn: u32, cookie: u64) -> Result<Qp> {
        let targets = self.domain().targets.lock();
        let mut alive = targets.iter().filter_map(Weak::upgrade);
        let target = alive.find(|target| target.qpn() == qpn).ok_or_else(|| {
            Error::invalid(
                "ibv_open_qp",
                format!("the domain has no XRC_RECV queue pair {qpn:#x}"),
            )
        })?;
        drop(targets);
        Ok(Qp::open(target, self, cookie))
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
