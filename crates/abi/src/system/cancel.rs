//! Waiting for events where a thread may be cancelled.
//!
//! `pthread_cancel(3)` ends a thread that waits in read(2) by unwinding its stack, our frames among
//! it. That is sound if they have nothing to clean up ("plain old frames", RFC 2945): while the
//! thread waits, what prepared the wait has returned with all that it held, and what follows has
//! not begun. The bounds `Copy` see to it, as what is copied has no destructor.

use core::ffi::{c_int, c_ulong, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use libc::pollfd;

use rnic_nic::{Over, Packets, wait_over};

use crate::export::seam::{self, Result, Verb};

unsafe extern "C-unwind" {
    /// The declaration in the libc crate promises that it does not unwind.
    fn read(fd: c_int, buffer: *mut c_void, length: usize) -> isize;
    #[cfg(any(test, thread_sanitizer))]
    fn poll(fds: *mut pollfd, count: c_ulong, timeout: c_int) -> c_int;
}

/// The library's own poll(2) is the one that programs call.
#[cfg(not(any(test, thread_sanitizer)))]
use crate::system::hooks::libc_poll as poll;

/// What `verb` does, which takes an event: `prepare` gives the descriptor, one token of which is an
/// event; `take` takes the event of a token, or says that there is none any more; `give_up` follows
/// a wait that failed. 0, or -1 and errno.
///
/// A cancellation point, as in libibverbs. Callers are plain old frames themselves.
#[inline(always)]
pub fn event(
    verb: Verb,
    prepare: impl Fn() -> Result<c_int> + Copy,
    take: impl Fn() -> Result<bool> + Copy,
    give_up: impl Fn() + Copy,
) -> c_int {
    useful_event(verb, prepare, |_, _, _| Ok(0), take, give_up)
}

/// A descriptor to wait for.
pub const fn readable(fd: c_int) -> pollfd {
    pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Most descriptors that a thread waits for: that of the event, and those of packets.
pub const MOST: usize = 1 + Packets::MOST;

/// As [`event`], for a thread that is of use while it waits. `look` is called first, and again
/// (`woken`) whenever one of the descriptors that it filled in was readable. It gives their number,
/// which is 0 when there is nothing more to wait for in this way. Then the event is taken, or
/// waited for, in read(2). `look`'s third argument: it may have the thread wait in its way.
///
/// read(2) goes on after a signal whose handler was installed with SA_RESTART, poll(2) never does.
/// So the first signal that could mean either ends the wait, as it would end read(2), and from then
/// on threads wait in read(2) alone.
#[inline(always)]
pub fn useful_event(
    verb: Verb,
    prepare: impl Fn() -> Result<c_int> + Copy,
    look: impl Fn(&mut [pollfd; MOST], bool, bool) -> Result<usize> + Copy,
    take: impl Fn() -> Result<bool> + Copy,
    give_up: impl Fn() + Copy,
) -> c_int {
    loop {
        let fd = verb.number(prepare);
        if fd < 0 {
            return -1;
        }
        let mut fds = [readable(-1); MOST];
        let mut woken = false;
        loop {
            let may = WAITS_IN_POLL.load(Ordering::Relaxed);
            let count = verb.number(|| look(&mut fds, woken, may).map(|n| n as c_int));
            if count < 0 {
                return -1;
            }
            if count == 0 {
                break;
            }
            // SAFETY: as many descriptors in a local variable.
            let n = unsafe { poll(fds.as_mut_ptr(), count as c_ulong, -1) };
            woken = true;
            if n < 0 && !goes_on_after_signals() {
                seam::set_errno(libc::EINTR);
                seam::keeping_errno(give_up);
                seam::keeping_errno(|| wait_over(Over::Interrupted));
                return -1;
            }
        }
        let mut token = 0u64;
        // SAFETY: eight bytes of a local variable.
        if unsafe { read(fd, (&raw mut token).cast(), 8) } != 8 {
            seam::keeping_errno(give_up);
            seam::keeping_errno(ended_in_vain);
            return -1;
        }
        wait_over(Over::Done);
        match verb.number(|| take().map(c_int::from)) {
            0 => {}
            1 => return 0,
            _ => return -1,
        }
    }
}

/// errno says how.
fn ended_in_vain() {
    let errno = std::io::Error::last_os_error().raw_os_error();
    wait_over(Over::by_errno(errno.unwrap_or(0)));
}

/// No signal came yet that ends a wait, or may have.
static WAITS_IN_POLL: AtomicBool = AtomicBool::new(true);

/// Signals of a thread's own mistakes: they come while it runs, and interrupt no wait. Runtimes and
/// sanitizers have handlers for them, which restart nothing.
const FAULTS: [c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
];

/// A wait was interrupted: whether it would go on were it in read(2), as far as handlers tell.
fn goes_on_after_signals() -> bool {
    let (mut restarts, mut ends) = (false, false);
    for signal in (1..=64).filter(|signal| !FAULTS.contains(signal)) {
        // SAFETY: an all-zero sigaction is a valid value of that plain C struct, and a place for
        // the answer.
        let action = unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            if libc::sigaction(signal, core::ptr::null(), &mut action) != 0 {
                continue;
            }
            action
        };
        if matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
            continue;
        }
        if action.sa_flags & libc::SA_RESTART != 0 {
            restarts = true;
        } else {
            ends = true;
        }
    }
    if restarts && ends {
        WAITS_IN_POLL.store(false, Ordering::Relaxed);
    }
    !ends
}
