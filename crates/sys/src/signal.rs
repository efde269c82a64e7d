//! Signals: dispositions, and which of them a process takes by asking (signal(7)).

use std::time::Duration;

/// What a signal does unless somebody changes that.
pub fn set_default(signal: i32) {
    // SAFETY: SIG_DFL is a valid disposition of any signal; for a number that is none it fails.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// The process ends quietly when it prints into a pipe that nobody reads (`| head`), as programs in
/// C do. The standard library's macros would panic.
pub fn end_on_broken_pipe() {
    set_default(libc::SIGPIPE);
}

/// Without the signal that ends a process which writes behind the limit of a file's size (`ulimit
/// -f`, setrlimit(2)): the call fails with EFBIG alone.
pub fn without_file_size_signal<T>(f: impl FnOnce() -> T) -> T {
    let set = SignalSet::of([libc::SIGXFSZ]);
    let before = set.block();
    let result = f();
    // It came to this thread, if it came.
    set.wait_for(Duration::ZERO);
    before.block_only();
    result
}

/// The signal is ignored.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: sigaction is a plain structure, for which zeros are a valid value.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set; the pointer is to a local value.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), &mut now) } == 0;
    known && now.sa_sigaction == libc::SIG_IGN
}

/// The next such signal does nothing, and the one after it what it does by default. System calls
/// that it interrupts go on. One that is ignored stays so.
pub fn outlive_once(signal: i32) {
    extern "C" fn nothing(_: i32) {}
    if is_ignored(signal) {
        return;
    }
    // SAFETY: sigaction is a plain structure, for which zeros are a valid value.
    let mut once: libc::sigaction = unsafe { std::mem::zeroed() };
    once.sa_sigaction = nothing as extern "C" fn(i32) as libc::sighandler_t;
    once.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
    // SAFETY: the handler does nothing, so it may run at any time; the pointer is to a local value.
    unsafe { libc::sigaction(signal, &once, std::ptr::null_mut()) };
}

/// Sends this process a signal. It returns if the signal is blocked, ignored or handled.
pub fn raise(signal: i32) {
    // SAFETY: what a signal does is what the process has set up for it.
    unsafe { libc::raise(signal) };
}

/// Sends a signal to a process that this one started and has not waited for, so that its number is
/// its own.
pub fn send(child: &std::process::Child, signal: i32) {
    // SAFETY: takes no pointer.
    unsafe { libc::kill(child.id() as i32, signal) };
}

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalSet(pub(crate) libc::sigset_t);

impl std::fmt::Debug for SignalSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignalSet")
    }
}

/// A signal that was waited for.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Its number.
    pub signal: i32,
    /// The kernel sent it, as of a terminal, and no process did.
    pub by_kernel: bool,
}

impl SignalSet {
    /// Of these signals.
    pub fn of(signals: impl IntoIterator<Item = i32>) -> SignalSet {
        // SAFETY: sigset_t is a plain bit set, which sigemptyset fills; numbers of no signals are
        // refused.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in signals {
                libc::sigaddset(&mut set, signal);
            }
            SignalSet(set)
        }
    }

    /// The signals that are blocked now.
    pub fn blocked() -> SignalSet {
        SignalSet::change(libc::SIG_BLOCK, None)
    }

    /// Blocks these signals, too; gives those that were blocked before.
    pub fn block(&self) -> SignalSet {
        SignalSet::change(libc::SIG_BLOCK, Some(self))
    }

    /// Blocks these signals no more.
    pub fn unblock(&self) {
        SignalSet::change(libc::SIG_UNBLOCK, Some(self));
    }

    /// Blocks these signals and no others.
    pub fn block_only(&self) {
        SignalSet::change(libc::SIG_SETMASK, Some(self));
    }

    fn change(how: i32, set: Option<&SignalSet>) -> SignalSet {
        let set = set.map_or(std::ptr::null(), |set| &raw const set.0);
        // SAFETY: sigset_t is plain; both pointers are to values of that type, or null.
        unsafe {
            let mut old: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(how, set, &mut old);
            SignalSet(old)
        }
    }

    /// Waits for one of these signals, which are blocked; `None`: another one was handled.
    pub fn wait(&self) -> Option<Received> {
        // SAFETY: siginfo_t is a plain structure, for which zeros are a valid value; both pointers
        // are to values that live across the call.
        let (signal, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (libc::sigwaitinfo(&self.0, &mut info), info)
        };
        (signal > 0).then_some(Received {
            signal,
            by_kernel: info.si_code > 0,
        })
    }

    /// Waits for one of these signals, or until the time is over.
    pub fn wait_for(&self, time: Duration) {
        let time = libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        };
        // SAFETY: both pointers are to values that live across the call; nothing is asked of the
        // signal.
        unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &time) };
    }
}
