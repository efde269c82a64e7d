//! Threads: cancellation, signals, the scheduler.

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

/// With the thread's cancellation off: for what the data path does seldom and by the standard library, whose system calls
/// are cancellation points, where a `pthread_cancel(3)` would unwind us with our locks held.
pub(crate) fn uncancelled<T>(body: impl FnOnce() -> T) -> T {
    struct Restore(libc::c_int);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: a state that the C library gave; it may take NULL.
            unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
        }
    }
    const PTHREAD_CANCEL_DISABLE: libc::c_int = 1;
    let mut old = 0;
    // SAFETY: `old` is a place for the state before.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut old) };
    let _restore = Restore(old);
    body()
}

/// Has the C library call these around fork(2) (pthread_atfork(3)); without memory for it, it does not.
pub(crate) fn at_fork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: functions of this program, or of a library whose handlers the C library forgets when it is unloaded; they
    // take and give nothing.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

/// How often another thread took the core from the calling one, which wanted to go on; 0: never, or it is not known
/// (getrusage(2), `ru_nivcsw`). A processor that stood still as a whole, as virtual ones do, is not counted.
pub(crate) fn times_preempted() -> u64 {
    // SAFETY: the structure is a local value, for which zeros are valid; the kernel fills it or fails.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nivcsw as u64
    }
}

/// Prepares the calling thread to be the background engine: no signals for it, short timer slack, any core.
pub(crate) fn become_background_thread() {
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

/// Asks the scheduler for short turns (Linux 6.12 and later, no privilege): a thread that needs microseconds then gets
/// them soon after it wakes, even on a core where the application spins. Elsewhere nothing changes.
fn ask_for_short_slice() {
    const SLICE_NS: u64 = 100_000;
    // SAFETY: the structure has the size it says; the kernel reads and writes no more than that.
    unsafe {
        let mut attr = SchedAttr::default();
        let size = size_of::<SchedAttr>() as u32;
        if libc::syscall(libc::SYS_sched_getattr, 0, &mut attr, size, 0) != 0
            || attr.policy != libc::SCHED_OTHER as u32
        {
            return;
        }
        attr.size = size;
        attr.runtime = SLICE_NS;
        attr.flags = 0;
        libc::syscall(libc::SYS_sched_setattr, 0, &attr, 0);
    }
}

/// Blocks every signal in this thread while `f` runs; a thread spawned by `f` inherits that.
pub(crate) fn with_signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: zeroed sigset_t values are filled by sigfillset / pthread_sigmask before use.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        result
    }
}

/// A number that no other thread has that is alive, never 0. On x86-64 the thread's own pointer, which is read in one
/// instruction: a variable of the thread's costs a call in a shared library.
#[inline]
pub(crate) fn thread_mark() -> usize {
    #[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
    {
        let mark: usize;
        // SAFETY: the System V ABI keeps the thread pointer at offset 0 of the segment of FS, for reading.
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
