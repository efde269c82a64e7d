//! Threads: the device's own, variables of a thread, cancellation, signals, the scheduler.
//!
//! The standard library's threads, and its variables of a thread that are dropped with it, end the
//! process where there is no memory for them: it allocates past any allocator of ours, and the C
//! library registers destructors or aborts. Those here fail.

use std::cell::RefCell;
use std::ffi::{CStr, c_void};
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{NonNull, null, null_mut};
use std::sync::OnceLock;

use crate::raw::raw;

/// A thread of the device's own. It runs on when this is dropped.
#[derive(Debug)]
pub struct Thread(Option<libc::pthread_t>);

/// What a thread is to do.
type Body = Box<dyn FnOnce() + Send>;

extern "C" fn run(body: *mut c_void) -> *mut c_void {
    // SAFETY: the box that `spawn` gave away to this thread.
    let body = unsafe { Box::from_raw(body.cast::<Body>()) };
    // A panic has been reported; nobody waits for an outcome.
    let _ = catch_unwind(AssertUnwindSafe(*body));
    null_mut()
}

/// Starts a thread with that name and size of stack, or a larger one if the C library needs that
/// for itself.
///
/// # Errors
/// EAGAIN: there is no memory for it, or the user has too many.
pub fn spawn(
    name: &'static CStr,
    stack: usize,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<Thread> {
    let body = move || {
        // SAFETY: names the calling thread by a C string.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        body();
    };
    let body: *mut Body = Box::into_raw(Box::new(Box::new(body)));
    let mut thread = 0;
    // SAFETY: attributes and thread are places for the answers; the body is the new thread's from
    // its start on.
    let mut start = |attr: *const libc::pthread_attr_t| unsafe {
        libc::pthread_create(&raw mut thread, attr, run, body.cast())
    };
    // SAFETY: the attributes are initialised before they are used, and destroyed after.
    let mut errno = unsafe {
        let mut attr: libc::pthread_attr_t = std::mem::zeroed();
        match libc::pthread_attr_init(&raw mut attr) {
            0 => {
                libc::pthread_attr_setstacksize(&raw mut attr, stack);
                let errno = start(&raw const attr);
                libc::pthread_attr_destroy(&raw mut attr);
                errno
            }
            errno => errno,
        }
    };
    if errno == libc::EINVAL {
        errno = start(null());
    }
    if errno != 0 {
        // SAFETY: no thread has it.
        drop(unsafe { Box::from_raw(body) });
        return Err(io::Error::from_raw_os_error(errno));
    }
    Ok(Thread(Some(thread)))
}

impl Thread {
    /// The calling thread is it.
    pub fn is_current(&self) -> bool {
        // SAFETY: takes nothing.
        self.0 == Some(unsafe { libc::pthread_self() })
    }

    /// Waits for its end.
    pub fn join(mut self) {
        if let Some(thread) = self.0.take() {
            // SAFETY: a thread that was neither joined nor detached.
            unsafe { libc::pthread_join(thread, null_mut()) };
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some(thread) = self.0 {
            // SAFETY: as above.
            unsafe { libc::pthread_detach(thread) };
        }
    }
}

/// The number that the kernel has given the calling thread.
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_pid() as u32
}

/// A variable of each thread's own, dropped at the thread's end.
#[derive(Debug)]
pub struct PerThread<T: 'static> {
    key: OnceLock<Option<libc::pthread_key_t>>,
    values: PhantomData<fn() -> T>,
}

extern "C" fn end<T>(value: *mut c_void) {
    // SAFETY: the box that `with` left to the thread, which is ending: nothing uses it.
    let value = unsafe { Box::from_raw(value.cast::<RefCell<Option<T>>>()) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}

impl<T> PerThread<T> {
    /// Of nothing in each thread at first.
    #[allow(clippy::new_without_default, reason = "for statics")]
    pub const fn new() -> PerThread<T> {
        PerThread {
            key: OnceLock::new(),
            values: PhantomData,
        }
    }

    /// Shows `look` what the thread has; `None`: there is no room for it.
    pub fn with<R>(&self, look: impl FnOnce(&RefCell<Option<T>>) -> R) -> Option<R> {
        let key = self.key.get_or_init(|| {
            let mut key = 0;
            // SAFETY: a place for the answer, and a function for values of this type.
            let errno = unsafe { libc::pthread_key_create(&raw mut key, Some(end::<T>)) };
            (errno == 0).then_some(key)
        });
        let key = (*key)?;
        // SAFETY: a key that is never deleted, whose values are of this type.
        let value = unsafe { libc::pthread_getspecific(key) }.cast::<RefCell<Option<T>>>();
        let value = match NonNull::new(value) {
            Some(value) => value,
            None => {
                let value = NonNull::from(Box::leak(Box::new(RefCell::new(None))));
                // SAFETY: as above. If it is not taken, it is a box again.
                unsafe {
                    if libc::pthread_setspecific(key, value.as_ptr().cast()) != 0 {
                        drop(Box::from_raw(value.as_ptr()));
                        return None;
                    }
                }
                value
            }
        };
        // SAFETY: lives until the thread ends, and no other thread has it.
        Some(look(unsafe { value.as_ref() }))
    }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

/// With the thread's cancellation off: for what the data path does seldom and by the standard
/// library, whose system calls are cancellation points, where a `pthread_cancel(3)` would unwind us
/// with our locks held.
pub fn uncancelled<T>(body: impl FnOnce() -> T) -> T {
    struct Restore(libc::c_int);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: a state that the C library gave; it may take NULL.
            unsafe { pthread_setcancelstate(self.0, null_mut()) };
        }
    }
    const PTHREAD_CANCEL_DISABLE: libc::c_int = 1;
    let mut old = 0;
    // SAFETY: `old` is a place for the state before.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut old) };
    let _restore = Restore(old);
    body()
}

/// Has the C library call these around fork(2) (pthread_atfork(3)).
///
/// # Errors
/// ENOMEM.
pub fn at_fork(
    prepare: extern "C" fn(),
    parent: extern "C" fn(),
    child: extern "C" fn(),
) -> io::Result<()> {
    // SAFETY: functions of this program, or of a library whose handlers the C library forgets when
    // it is unloaded; they take and give nothing.
    match unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// How often another thread took the core from the calling one, which wanted to go on; 0: never, or
/// it is not known (getrusage(2), `ru_nivcsw`). A processor that stood still as a whole, as virtual
/// ones do, is not counted.
pub fn times_preempted() -> u64 {
    // SAFETY: the structure is a local value, for which zeros are valid; the kernel fills it or
    // fails.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nivcsw as u64
    }
}

/// Prepares the calling thread to be the background engine: no signals for it, short timer slack,
/// any core.
pub fn become_background_thread() {
    // SAFETY: prctl with plain integers; the cpu set is a local value whose size is given.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1usize, 0usize, 0usize, 0usize);
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        for cpu in 0..libc::CPU_SETSIZE as usize {
            libc::CPU_SET(cpu, &mut all);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &all);
    }
    ask_for_short_slice();
}

/// `struct sched_attr` of sched_setattr(2), first published size.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks the scheduler for short turns (Linux 6.12 and later, no privilege): a thread that needs
/// microseconds then gets them soon after it wakes, even on a core where the application spins.
/// Elsewhere nothing changes.
fn ask_for_short_slice() {
    const SLICE_NS: u64 = 100_000;
    // SAFETY: the structure has the size it says; the kernel reads and writes no more than that.
    unsafe {
        let mut attr = SchedAttr::default();
        let size = size_of::<SchedAttr>() as u32;
        if raw!(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0).is_err()
            || attr.policy != libc::SCHED_OTHER as u32
        {
            return;
        }
        attr.size = size;
        attr.runtime = SLICE_NS;
        attr.flags = 0;
        let _ = raw!(libc::SYS_sched_setattr, 0, &raw const attr, 0);
    }
}

/// Blocks every signal in this thread while `f` runs; a thread spawned by `f` inherits that. Not
/// those of a fault: one in a thread that blocks them ends the process, whatever handler there is
/// ([`crate::guarded`]).
pub fn with_signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: zeroed sigset_t values are filled by sigfillset / pthread_sigmask before use.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        for fault in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
        ] {
            libc::sigdelset(&mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, null_mut());
        result
    }
}

/// A number that no other thread has that is alive, never 0. On x86-64 the thread's own pointer,
/// which is read in one instruction: a variable of the thread's costs a call in a shared library.
#[inline]
pub fn thread_mark() -> usize {
    #[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
    {
        let mark: usize;
        // SAFETY: the System V ABI keeps the thread pointer at offset 0 of the segment of FS, for
        // reading.
        unsafe {
            std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) mark, options(nostack, preserves_flags, readonly));
        }
        mark
    }
    #[cfg(not(all(target_arch = "x86_64", target_pointer_width = "64")))]
    {
        thread_local! {
            static MARK: u8 = const { 0 };
        }
        // Without a destructor it can be reached as long as the thread runs.
        MARK.with(|mark| std::ptr::from_ref(mark).addr())
    }
}

#[cfg(test)]
mod tests {
    //! A variable is each thread's own and ends with it; a thread runs what it is given.

    use std::panic::resume_unwind;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_variable_is_of_one_thread_and_dropped_with_it() {
        static MINE: PerThread<Arc<()>> = PerThread::new();
        let kept = Arc::new(());
        let given = kept.clone();
        let thread = std::thread::spawn(move || {
            MINE.with(|mine| *mine.borrow_mut() = Some(given));
            MINE.with(|mine| mine.borrow().as_ref().map(Arc::strong_count))
        });
        assert_eq!(thread.join().unwrap(), Some(Some(2)));
        assert_eq!(Arc::strong_count(&kept), 1);
        assert_eq!(MINE.with(|mine| mine.borrow().is_none()), Some(true));
    }

    #[test]
    fn a_thread_does_what_it_is_to_and_may_panic() {
        static DONE: AtomicBool = AtomicBool::new(false);
        let thread = spawn(c"works", 64 << 10, || DONE.store(true, Ordering::Release)).unwrap();
        assert!(!thread.is_current());
        thread.join();
        assert!(DONE.load(Ordering::Acquire));
        spawn(c"panics", 256 << 10, || resume_unwind(Box::new(())))
            .unwrap()
            .join();
        // Too small a stack is made large enough.
        spawn(c"small", 1, || ()).unwrap().join();
    }
}
