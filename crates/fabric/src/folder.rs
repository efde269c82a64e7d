//! The runtime folder of a simulated host.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use rnic_nic::SimulatedFolder;

/// A folder that goes with it.
pub(crate) struct Folder(SimulatedFolder);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let memory = PathBuf::from("/dev/shm");
        let base = match memory.is_dir() {
            true => memory,
            false => std::env::temp_dir(),
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rnic-fabric-{}-{number}", std::process::id());
        Folder(SimulatedFolder::at(&base.join(name)))
    }

    /// What its processes share.
    pub(crate) fn shared(&self) -> &SimulatedFolder {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.path());
    }
}
