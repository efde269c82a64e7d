//! System calls that the standard library lacks. Small wrappers: everything else of the program is
//! safe code.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The user for whom files are opened.
pub fn effective_uid() -> u32 {
    effective_ids().0
}

/// Effective user and group.
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: these calls take nothing, cannot fail, and touch no memory.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// The file may be executed by this process.
pub fn may_execute(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: `path` is a valid C string for the whole call.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}

/// The file gives capabilities to whoever executes it (setcap(8)).
pub fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    let name = c"security.capability";
    // SAFETY: both are valid C strings for the whole call, which stores nothing where there is room
    // for nothing.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Ends the process quietly when it prints into a pipe that nobody reads (`| head`), as programs in
/// C do. Not where another process is written to by a pipe, whose end is to be told.
pub fn end_on_broken_pipe() {
    // SAFETY: SIG_DFL is a valid disposition, and no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Ends it so now.
pub fn end_by_broken_pipe() -> ! {
    end_on_broken_pipe();
    // SAFETY: the default disposition ends the process.
    unsafe { libc::raise(libc::SIGPIPE) };
    // The signal is blocked.
    std::process::exit(128 + libc::SIGPIPE)
}

/// The next ^C is for others, who end and close the pipe that this process reads; the one after it
/// ends this process, too.
pub fn outlive_one_interrupt() {
    extern "C" fn nothing(_: i32) {}
    // SAFETY: sigaction is a plain structure, for which zeros are a valid value.
    let mut once: libc::sigaction = unsafe { std::mem::zeroed() };
    once.sa_sigaction = nothing as extern "C" fn(i32) as libc::sighandler_t;
    once.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
    if is_ignored(libc::SIGINT) {
        return;
    }
    // SAFETY: the handler does nothing, so it may run at any time; the pointer is to a local value.
    unsafe { libc::sigaction(libc::SIGINT, &once, std::ptr::null_mut()) };
}

/// The processors this thread may run on.
pub fn allowed_cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(None);
    allowed.map_or(Vec::new(), |set| {
        (0..CpuSet::MAX_CPU)
            .filter(|cpu| set.is_set(*cpu))
            .collect()
    })
}

/// Ties the calling thread to one of them.
pub fn pin_thread(cpu: usize) -> io::Result<()> {
    let mut one = CpuSet::new();
    one.set(cpu);
    Ok(sched_setaffinity(None, &one)?)
}

/// SIGPIPE was ignored when this process began; the standard library has changed that before
/// `main`.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = look_at_sigpipe;

extern "C" fn look_at_sigpipe() {
    PIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: sigaction is a plain structure, for which zeros are a valid value.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set; the pointer is to a local value.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), &mut now) } == 0;
    known && now.sa_sigaction == libc::SIG_IGN
}

/// The program inherits what this process did: which signals are blocked, and which ignored.
/// Programs of services and scripts count on that.
pub fn keep_signals(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: sigset_t is plain.
    let mut mask: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set; the pointer is to a local value.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, std::ptr::null(), &mut mask) };
    let pipe = PIPE_IGNORED.load(Ordering::Relaxed);
    let child = is_ignored(libc::SIGCHLD);
    // SAFETY: before exec only system calls are made, on values that were copied before.
    unsafe {
        command.pre_exec(move || {
            for (signal, ignored) in [(libc::SIGPIPE, pipe), (libc::SIGCHLD, child)] {
                if ignored {
                    libc::signal(signal, libc::SIG_IGN);
                }
            }
            libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            Ok(())
        });
    }
}

/// Signals that whoever sends them to `rnic run` means for the program.
const FORWARDED: [i32; 8] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGCONT,
];

fn watched_signals() -> libc::sigset_t {
    // SAFETY: sigset_t is a plain bit set, which sigemptyset fills; the numbers are valid signals.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in FORWARDED.into_iter().chain([libc::SIGCHLD]) {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// A program of which this process is but the shell: it gets the signals, and dies with it.
pub struct Ward {
    child: std::process::Child,
}

/// What the command starts is killed when this process ends, however it does.
pub fn die_with_parent(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
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

/// Starts the program, of which [`keep_signals`] knows. From then on the signals are blocked here
/// and waited for by [`Ward::wait`].
pub fn start_ward(command: &mut std::process::Command) -> io::Result<Ward> {
    let set = watched_signals();
    // SAFETY: as in `watched_signals`; the old mask is written to a local value.
    let mut old: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to local values. A SIGCHLD that is ignored would never be
    // delivered.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_BLOCK, &set, &mut old);
    }
    die_with_parent(command);
    let child = command.spawn();
    if child.is_err() {
        // SAFETY: `old` is the mask of before.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &old, std::ptr::null_mut()) };
    }
    Ok(Ward { child: child? })
}

impl Ward {
    /// Waits for its end, passing on signals.
    pub fn wait(mut self) -> io::Result<std::process::ExitStatus> {
        let set = watched_signals();
        loop {
            reap_others(self.child.id());
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            // SAFETY: siginfo_t is a plain structure, for which zeros are a valid value.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            // SAFETY: both pointers are to local values.
            let signal = unsafe { libc::sigwaitinfo(&set, &mut info) };
            // The terminal and the kernel tell the whole group themselves.
            let by_kernel = info.si_code > 0;
            if signal <= 0 || signal == libc::SIGCHLD || by_kernel {
                continue;
            }
            // Sent to the whole group, it has reached the program already: then this may be the
            // end.
            self.grace(&set);
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            // SAFETY: kill takes no pointer; the child is not reaped, so its number is its own.
            unsafe { libc::kill(self.child.id() as i32, signal) };
        }
    }

    /// Waits a moment for the child's end.
    fn grace(&self, set: &libc::sigset_t) {
        let moment = libc::timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        // SAFETY: sigset_t is plain; only SIGCHLD is taken, so that no other signal is lost.
        let mut child: libc::sigset_t = *set;
        // SAFETY: pointers to local values.
        unsafe {
            libc::sigemptyset(&mut child);
            libc::sigaddset(&mut child, libc::SIGCHLD);
            libc::sigtimedwait(&child, std::ptr::null_mut(), &moment);
        }
    }
}

/// Takes the exit statuses of whoever else has become a child of this process: of everybody who
/// lost his parent, if this is the first process of a container.
fn reap_others(child: u32) {
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
        if ended == 0 || ended as u32 == child {
            return;
        }
        // SAFETY: no status is asked for.
        unsafe { libc::waitpid(ended, std::ptr::null_mut(), libc::WNOHANG) };
    }
}

/// Ends this process as the program ended: with its exit status, or by the same signal.
pub fn end_like(status: std::process::ExitStatus) -> ! {
    use std::os::unix::process::ExitStatusExt;
    if let Some(signal) = status.signal() {
        let no_core = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: pointers to local values; the default disposition of a signal that ended a
        // process ends this one.
        unsafe {
            // The program has dumped its own core, if any.
            libc::setrlimit(libc::RLIMIT_CORE, &no_core);
            libc::signal(signal, libc::SIG_DFL);
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, signal);
            libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
            libc::raise(signal);
        }
        std::process::exit(128 + signal);
    }
    std::process::exit(status.code().unwrap_or(1))
}
