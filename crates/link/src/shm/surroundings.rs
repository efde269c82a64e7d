//! The machine that a process with rings is on: the system, or a simulated host, whose processes
//! are all of this process.
//!
//! The rings, the grants and the copies are the same on both. A simulated host has its own
//! addresses, the time that a copy takes is drawn, and a process that is killed there leaves its
//! memory behind: what the kernel does to such memory on the system, [`SimulatedProcess::die`] does.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::cma::CmaWindow;
use rnic_host::addresses::is_own_address;

/// How long a copy of a process is waited for that may be stopped.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where a process with rings is.
#[derive(Clone, Debug)]
pub(crate) enum Surroundings {
    /// On this machine.
    System,
    /// On a simulated host.
    Simulated(Arc<SimulatedProcess>),
}

impl Surroundings {
    /// Is the address, one of that interface if it is link-local, one of this host's?
    pub(super) fn has_address(&self, ip: IpAddr, scope_id: u32) -> bool {
        match self {
            Surroundings::System => is_own_address(ip, scope_id),
            Surroundings::Simulated(process) => process.addresses.contains(&ip),
        }
    }

    /// The process with that number in the runtime folder is stopped; `pid`: its number for the
    /// kernel.
    pub(super) fn is_stopped(&self, number: u32, pid: u32) -> bool {
        match self {
            Surroundings::System => rnic_host::stopped::is_stopped(pid),
            Surroundings::Simulated(process) => process.is_stopped(number),
        }
    }

    /// What takes the time of copies.
    pub(super) fn stopwatch(&self) -> Stopwatch {
        match self {
            Surroundings::System => Stopwatch::System,
            Surroundings::Simulated(process) => Stopwatch::Drawn(Cell::new(process.draw())),
        }
    }

    /// How long a copy of another process is waited for. Of a simulated host nobody goes on while
    /// this process waits.
    pub(super) fn patience(&self) -> Duration {
        match self {
            Surroundings::System => PATIENCE,
            Surroundings::Simulated(_) => Duration::ZERO,
        }
    }

    /// This process may reach the one with that number by this window.
    pub(super) fn note(&self, number: u32, window: &Arc<CmaWindow>) {
        if let Surroundings::Simulated(process) = self {
            process.note(number, window);
        }
    }
}

/// Takes the time of a copy.
#[derive(Debug, Default)]
pub(super) enum Stopwatch {
    /// By the system's clock.
    #[default]
    System,
    /// Whatever the last random number makes of it.
    Drawn(Cell<u64>),
}

impl Stopwatch {
    /// Does a copy of `len` bytes, and gives how long it took, ns.
    #[inline]
    pub(super) fn time<R>(&self, len: usize, copy: impl FnOnce() -> R) -> (R, u64) {
        match self {
            Stopwatch::System => {
                let start = Instant::now();
                let result = copy();
                (result, start.elapsed().as_nanos() as u64)
            }
            Stopwatch::Drawn(state) => {
                state.set(mix(state.get()));
                // From 4 to 64 GB a second.
                (copy(), len as u64 / (4 + state.get() % 60) + 1)
            }
        }
    }
}

/// The next number of a sequence that looks random (SplitMix64).
fn mix(before: u64) -> u64 {
    let mut z = before.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// What the processes of a simulated host know of each other without asking.
#[derive(Debug, Default)]
pub(crate) struct SimulatedProcesses {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Numbers of those that are stopped.
    stopped: Vec<u32>,
    /// Who may reach whom.
    windows: Vec<(u32, u32, Weak<CmaWindow>)>,
}

impl SimulatedProcesses {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process is stopped, or goes on.
    pub(crate) fn set_stopped(&self, number: u32, stopped: bool) {
        let stopped_ones = &mut self.known().stopped;
        stopped_ones.retain(|other| *other != number);
        if stopped {
            stopped_ones.push(number);
        }
    }

    /// A process is in the middle of a copy, to or from each process that it may reach, or ends
    /// these copies.
    pub(crate) fn set_copying(&self, number: u32, copying: bool) {
        let known = self.known();
        let its = known.windows.iter().filter(|(from, ..)| *from == number);
        for window in its.filter_map(|(.., window)| window.upgrade()) {
            match copying {
                true => window.begin_copy(),
                false => window.end_copy(),
            }
        }
    }

    fn is_stopped(&self, number: u32) -> bool {
        self.known().stopped.contains(&number)
    }
}

/// A process of a simulated host.
#[derive(Debug)]
pub(crate) struct SimulatedProcess {
    /// Its number in the runtime folder.
    number: u32,
    addresses: Vec<IpAddr>,
    others: Arc<SimulatedProcesses>,
    random: AtomicU64,
}

impl SimulatedProcess {
    pub(crate) fn new(
        number: u32,
        addresses: Vec<IpAddr>,
        others: Arc<SimulatedProcesses>,
        seed: u64,
    ) -> SimulatedProcess {
        SimulatedProcess {
            number,
            addresses,
            others,
            random: AtomicU64::new(seed),
        }
    }

    fn draw(&self) -> u64 {
        let drawn = mix(self.random.load(Ordering::Relaxed));
        self.random.store(drawn, Ordering::Relaxed);
        drawn
    }

    pub(crate) fn is_stopped(&self, number: u32) -> bool {
        number != self.number && self.others.is_stopped(number)
    }

    fn note(&self, number: u32, window: &Arc<CmaWindow>) {
        let windows = &mut self.others.known().windows;
        windows.retain(|(.., window)| window.strong_count() > 0);
        windows.push((self.number, number, Arc::downgrade(window)));
    }

    /// The process is killed. It reaches nobody's memory any more, and nobody its, in whose place
    /// somebody else's may be from now on.
    pub(crate) fn die(&self) {
        let known = self.others.known();
        let windows = known.windows.iter();
        let its = windows.filter(|(from, to, _)| [*from, *to].contains(&self.number));
        its.filter_map(|(.., window)| window.upgrade())
            .for_each(|window| window.end());
    }
}
