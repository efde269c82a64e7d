//! Signals: of a program that `rnic run` starts, and of a pipe that nobody reads.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rnic_sys::child;
use rnic_sys::signal::{self, SignalSet};

/// Ends the process quietly when it prints into a pipe that nobody reads (`| head`), as programs in
/// C do. Not where another process is written to by a pipe, whose end is to be told.
pub fn end_on_broken_pipe() {
    signal::end_on_broken_pipe();
}

/// Ends it so now.
pub fn end_by_broken_pipe() -> ! {
    end_on_broken_pipe();
    signal::raise(libc::SIGPIPE);
    // The signal is blocked.
    std::process::exit(128 + libc::SIGPIPE)
}

/// The next ^C is for others, who end and close the pipe that this process reads; the one after it
/// ends this process, too.
pub fn outlive_one_interrupt() {
    signal::outlive_once(libc::SIGINT);
}

/// SIGPIPE was ignored when this process began; the standard library has changed that before
/// `main`.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

#[used]
#[allow(
    unsafe_code,
    reason = "a function that runs before main has to say so by its section"
)]
// SAFETY: the section holds pointers to functions that the loader calls, and this is one.
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = look_at_sigpipe;

extern "C" fn look_at_sigpipe() {
    let ignored = signal::is_ignored(libc::SIGPIPE);
    PIPE_IGNORED.store(ignored, Ordering::Relaxed);
}

/// The program inherits what this process did: which signals are blocked, and which ignored.
/// Programs of services and scripts count on that.
pub fn keep_signals(command: &mut Command) {
    let mut ignored = Vec::new();
    if PIPE_IGNORED.load(Ordering::Relaxed) {
        ignored.push(libc::SIGPIPE);
    }
    if signal::is_ignored(libc::SIGCHLD) {
        ignored.push(libc::SIGCHLD);
    }
    child::inherit_signals(command, &ignored);
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

fn watched_signals() -> SignalSet {
    SignalSet::of(FORWARDED.into_iter().chain([libc::SIGCHLD]))
}

/// A program of which this process is but the shell: it gets the signals, and dies with it.
pub struct Ward {
    child: Child,
}

/// Starts the program, of which [`keep_signals`] knows. From then on the signals are blocked here
/// and waited for by [`Ward::wait`].
pub fn start_ward(command: &mut Command) -> io::Result<Ward> {
    // A SIGCHLD that is ignored would never be delivered.
    signal::set_default(libc::SIGCHLD);
    let before = watched_signals().block();
    child::die_with_parent(command);
    let child = command.spawn();
    if child.is_err() {
        before.block_only();
    }
    Ok(Ward { child: child? })
}

/// How a program ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub status: ExitStatus,
    /// Somebody had asked it to end.
    pub interrupted: bool,
}

/// Signals by which people and their tools end programs.
const ENDS: [i32; 5] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGALRM,
];

impl Ward {
    /// Waits for its end, passing on signals.
    pub fn wait(mut self) -> io::Result<Ended> {
        let watched = watched_signals();
        let mut interrupted = false;
        let ended = |status, interrupted| Ended {
            status,
            interrupted,
        };
        loop {
            child::reap_others(self.child.id());
            if let Some(status) = self.child.try_wait()? {
                return Ok(ended(status, interrupted));
            }
            let received = watched.wait();
            interrupted |= received
                .as_ref()
                .is_some_and(|received| ENDS.contains(&received.signal));
            // The terminal and the kernel tell the whole group themselves.
            let Some(received) = received.filter(|received| !received.by_kernel) else {
                continue;
            };
            if received.signal == libc::SIGCHLD {
                continue;
            }
            // Sent to the whole group, it has reached the program already: then this may be the
            // end. Only SIGCHLD is taken, so that no other signal is lost.
            SignalSet::of([libc::SIGCHLD]).wait_for(Duration::from_millis(20));
            if let Some(status) = self.child.try_wait()? {
                return Ok(ended(status, interrupted));
            }
            signal::send(&self.child, received.signal);
        }
    }
}

/// Ends this process as the program ended: with its exit status, or by the same signal.
pub fn end_like(status: ExitStatus) -> ! {
    use std::os::unix::process::ExitStatusExt;
    if let Some(signal) = status.signal() {
        // The program has dumped its own core, if any.
        child::leave_no_core();
        signal::set_default(signal);
        SignalSet::of([signal]).unblock();
        signal::raise(signal);
        std::process::exit(128 + signal);
    }
    std::process::exit(status.code().unwrap_or(1))
}
