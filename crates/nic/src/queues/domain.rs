//! XRC domains (IBTA vol. 1, annex A14), as the engine knows them.

use std::any::Any;
use std::sync::{Arc, Weak};

use rnic_host::DomainKey;
use rnic_link::Port;
use rustix_futex_sync::Mutex;

use rnic_sys::FileIdentity;

/// What the handles of a queue pair share. It lies above the engine, which only keeps it.
pub(crate) type Target = dyn Any + Send + Sync;

/// What all openings of a domain share.
#[derive(Debug)]
pub(crate) struct Domain {
    /// What names it to other processes.
    number: u32,
    /// `None`: nobody else can open it.
    file: Option<Arc<FileIdentity>>,
    /// Its XRC_RECV queue pairs by number, as their handles have them: see
    /// [`Xrcd::open_qp`](crate::Xrcd::open_qp).
    targets: Mutex<Vec<(u32, Weak<Target>)>>,
}

impl Domain {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn file(&self) -> Option<&FileIdentity> {
        self.file.as_deref()
    }

    /// A queue pair of type XRC_RECV, which lives as long as `target` does.
    pub(crate) fn add_target(&self, qpn: u32, target: &Arc<Target>) {
        let mut targets = self.targets.lock();
        targets.retain(|(_, known)| known.strong_count() != 0);
        targets.push((qpn, Arc::downgrade(target)));
    }

    /// The target of this number, if it is there.
    pub(crate) fn target(&self, qpn: u32) -> Option<Arc<Target>> {
        let targets = self.targets.lock();
        let mut of_number = targets.iter().filter(|(number, _)| *number == qpn);
        of_number.find_map(|(_, target)| target.upgrade())
    }
}

/// The domains of the process that were opened for a file.
#[derive(Debug, Default)]
pub(crate) struct Domains(Vec<(DomainKey, Weak<Domain>)>);

impl Domains {
    /// The domain that is open for this file.
    pub(crate) fn of(&self, file: &FileIdentity) -> Option<Arc<Domain>> {
        let mut open = self.0.iter().filter_map(|(_, domain)| domain.upgrade());
        open.find(|domain| domain.file.as_ref().is_some_and(|other| other.same(file)))
    }

    /// The file of an open domain, if it is the same as this.
    pub(crate) fn file_like(&self, file: &FileIdentity) -> Option<Arc<FileIdentity>> {
        self.of(file).and_then(|domain| domain.file.clone())
    }

    /// Tells other processes of those that nobody here has open any more.
    pub(crate) fn sweep(&mut self, link: &mut Port) {
        self.0.retain(|(key, domain)| {
            let open = domain.strong_count() != 0;
            if !open {
                link.close_domain(*key);
            }
            open
        });
    }

    /// A new domain, which others find by `file`.
    pub(crate) fn add(
        &mut self,
        number: u32,
        file: Option<(DomainKey, FileIdentity)>,
    ) -> Arc<Domain> {
        let (key, file) = file.unzip();
        let domain = Arc::new(Domain {
            number,
            file: file.map(Arc::new),
            targets: Mutex::new(Vec::new()),
        });
        if let Some(key) = key {
            self.0.push((key, Arc::downgrade(&domain)));
        }
        domain
    }
}
