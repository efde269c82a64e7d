//! Processes that this one starts, what they inherit, and how they end.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use crate::signal::SignalSet;

/// What the command starts is killed when the thread that started it ends, however it does.
pub fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec only system calls are made, on values that were copied before.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
            if libc::getppid() as u32 != parent {
                // Killed before the line above took effect.
                libc::raise(libc::SIGKILL);
            }
            Ok(())
        });
    }
}

/// What the command starts begins with these signals ignored, and those blocked that are blocked
/// now.
pub fn inherit_signals(command: &mut Command, ignored: &[i32]) {
    let blocked = SignalSet::blocked();
    let ignored = ignored.to_vec();
    // SAFETY: between fork and exec only system calls are made, on values that were copied before.
    unsafe {
        command.pre_exec(move || {
            for signal in &ignored {
                libc::signal(*signal, libc::SIG_IGN);
            }
            blocked.block_only();
            Ok(())
        });
    }
}

/// Kills the process group of a child that leads one and that was not waited for.
pub fn kill_group(leader: u32) {
    if let Ok(group) = i32::try_from(leader) {
        // SAFETY: takes no memory.
        unsafe { libc::killpg(group, libc::SIGKILL) };
    }
}

/// Waits for whoever is a child of this process and has ended, but for `keep`, which is left for
/// its owner to wait for. The first process of a container gets such children: of everybody who
/// lost his parent.
pub fn reap_others(keep: u32) {
    loop {
        // SAFETY: siginfo_t is a plain structure, for which zeros are a valid value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: the pointer is to a local value; of the structure, what waitid(2) writes is read.
        let ended = unsafe {
            match libc::waitid(libc::P_ALL, 0, &mut info, look) {
                0 => info.si_pid(),
                _ => 0,
            }
        };
        if ended == 0 || ended as u32 == keep {
            return;
        }
        // SAFETY: no status is asked for.
        unsafe { libc::waitpid(ended, std::ptr::null_mut(), libc::WNOHANG) };
    }
}

/// If this process is killed by a signal, it leaves no core file.
pub fn leave_no_core() {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a local value.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
}

/// Processor time of this process and of its children that have ended and were waited for.
pub fn processor_time() -> Duration {
    let time = |who| {
        // SAFETY: rusage is a plain structure, for which zeros are a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a local value.
        unsafe { libc::getrusage(who, &mut usage) };
        let part = |t: libc::timeval| {
            Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
        };
        part(usage.ru_utime) + part(usage.ru_stime)
    };
    time(libc::RUSAGE_SELF) + time(libc::RUSAGE_CHILDREN)
}

/// Ticks per second of /proc/stat.
pub fn ticks_per_second() -> u64 {
    // SAFETY: takes and gives a number.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64
}

/// Processes of this user may reach this one's memory and descriptors, where Yama would ask for it.
pub fn allow_peers() {
    // SAFETY: takes numbers; without Yama it fails, and nothing is needed.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
}

/// The processors this thread may run on.
pub fn allowed_cpus() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let allowed = sched_getaffinity(None);
    allowed.map_or(Vec::new(), |set| {
        (0..CpuSet::MAX_CPU)
            .filter(|cpu| set.is_set(*cpu))
            .collect()
    })
}

/// Ties the calling thread to one of them.
pub fn pin_thread(cpu: usize) -> io::Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut one = CpuSet::new();
    one.set(cpu);
    Ok(sched_setaffinity(None, &one)?)
}
