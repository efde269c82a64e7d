//! What the processes of a simulated host share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::shm::SimulatedProcesses;

/// The runtime folder of a simulated host, and what its processes know of each other without
/// asking the kernel, which would take them for one. Each clone is the same folder.
#[derive(Clone, Debug)]
pub struct SimulatedFolder {
    path: PathBuf,
    processes: Arc<SimulatedProcesses>,
}

impl SimulatedFolder {
    /// At that path, where it is made when the first process comes, if it is missing.
    pub fn at(path: &Path) -> SimulatedFolder {
        SimulatedFolder {
            path: path.to_path_buf(),
            processes: Arc::default(),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The process with that [first range](super::Wire::first_range) is stopped, as by SIGSTOP, or
    /// goes on. To stop it is up to the caller: it is others that see it so.
    pub fn set_stopped(&self, first_range: u32, stopped: bool) {
        self.processes.set_stopped(first_range, stopped);
    }

    /// That process is in the middle of a copy to, or from, the memory of each other process that it
    /// may reach without packets; or it ends these copies. It must not run in between.
    pub fn set_copying(&self, first_range: u32, copying: bool) {
        self.processes.set_copying(first_range, copying);
    }

    pub(super) fn processes(&self) -> &Arc<SimulatedProcesses> {
        &self.processes
    }
}
