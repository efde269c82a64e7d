use std::ptr::null_mut;

use super::*;

/// Pages of our own, the second of which can be taken away.
struct Pages {
    at: *mut u8,
}

const PAGE: usize = 65536;

impl Pages {
    fn new(second: c_int) -> Pages {
        let (rights, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a fresh mapping, of which half is changed.
        let at = unsafe {
            let at = libc::mmap(null_mut(), 2 * PAGE, rights, kind, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(at.byte_add(PAGE), PAGE, second), 0);
            at
        };
        Pages { at: at.cast() }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.at.cast(), 2 * PAGE) };
    }
}

/// Copies give what they should, of all lengths that take different ways.
#[test]
fn copies_are_whole() {
    let from: Vec<u8> = (0..5000_u32).map(|i| (i * 7 + i / 256) as u8).collect();
    for len in (0..300).chain([511, 512, 1000, 1024, 4095, 4096, 4990]) {
        for shift in [0, 1, 3, 8] {
            let mut to = vec![0xee_u8; 5010];
            // SAFETY: both are ours and long enough.
            let copied = unsafe { copy(from[shift..].as_ptr(), to[shift + 1..].as_mut_ptr(), len) };
            assert!(copied);
            assert_eq!(to[shift + 1..][..len], from[shift..][..len], "{len}");
            assert!(to[..=shift].iter().all(|byte| *byte == 0xee));
            assert!(
                to[shift + 1 + len..].iter().all(|byte| *byte == 0xee),
                "{len}"
            );
        }
    }
}

/// Memory that is not there, or may not be written, is said, wherever in the copy it is.
#[test]
fn gone_memory_is_said() {
    if !NOTICES {
        return;
    }
    watch();
    let none = Pages::new(libc::PROT_NONE);
    let read_only = Pages::new(libc::PROT_READ);
    let mut own = vec![0_u8; 4096];
    let own = own.as_mut_ptr();
    for len in [
        1, 3, 4, 7, 8, 15, 16, 31, 32, 33, 64, 65, 127, 128, 129, 200, 1000, 4096,
    ] {
        for there in [0, 1, len / 2, len - 1]
            .into_iter()
            .filter(|there| *there < len)
        {
            // SAFETY: what is not mapped so is what the test is about.
            unsafe {
                let (gone, fixed) = (none.at.add(PAGE - there), read_only.at.add(PAGE - there));
                assert!(!copy(gone, own, len), "{there} of {len}");
                assert!(!copy(own, gone, len), "{there} of {len}");
                assert!(!copy(own, fixed, len), "{there} of {len}");
                assert!(copy(fixed, own, len), "{there} of {len}");
            }
        }
    }
    // SAFETY: as above.
    unsafe {
        for pages in [&none, &read_only] {
            let at = pages.at.add(PAGE);
            for word in [Word::Byte(1), Word::Half(1), Word::Whole(1)] {
                assert!(!store(at, word), "{word:?}");
                assert!(store(pages.at, word), "{word:?}");
            }
            assert_eq!(fetch_add(at.cast(), 1), None);
            assert_eq!(compare_swap(at.cast(), 0, 1), None);
        }
        let word = none.at.add(64).cast();
        assert_eq!(fetch_add(word, 5), Some(0));
        assert_eq!(compare_swap(word, 5, 9), Some(5));
        assert_eq!(compare_swap(word, 5, 7), Some(9));
        assert_eq!(*word, 9);
    }
}

/// What was there before gets every fault that is none of a copy's, also where it was set up after
/// us, and where it goes on with what it had found.
#[test]
fn other_faults_are_handed_on() {
    use std::sync::atomic::AtomicU32;
    if !NOTICES {
        return;
    }
    static FIRST: AtomicU32 = AtomicU32::new(0);
    static SECOND: AtomicU32 = AtomicU32::new(0);
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn first(_: c_int) {
        FIRST.fetch_add(1, Ordering::Relaxed);
    }
    unsafe extern "C" fn second(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        SECOND.fetch_add(1, Ordering::Relaxed);
        let found = FOUND.load(Ordering::Relaxed);
        // SAFETY: the handler that this one had found, which takes three arguments.
        unsafe { std::mem::transmute::<usize, Handler>(found)(signal, info, context) };
    }
    // In a process of its own: handlers are the whole process's.
    // SAFETY: the child calls what a child of a process with threads may call, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: sigaction is plain, and all pointers are to local values.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let mut found: libc::sigaction = std::mem::zeroed();
            let signal = libc::SIGBUS;
            action.sa_sigaction = first as extern "C" fn(c_int) as usize;
            libc::sigaction(signal, &action, null_mut());
            watch();
            libc::raise(signal);
            let once = FIRST.load(Ordering::Relaxed) == 1;
            action.sa_sigaction = second as Handler as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(signal, &action, &mut found);
            FOUND.store(found.sa_sigaction, Ordering::Relaxed);
            watch();
            libc::raise(signal);
            let both = FIRST.load(Ordering::Relaxed) == 2 && SECOND.load(Ordering::Relaxed) == 1;
            libc::_exit(i32::from(!(once && both)));
        }
    }
    let mut status = 0;
    // SAFETY: our own child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "{status:#x}"
    );
}

/// A fault that nobody handles ends the process by its signal, as one that is sent does.
#[test]
fn a_fault_of_nobody_ends_the_process() {
    for sent in [false, true] {
        // SAFETY: as above.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the process is to end here.
            unsafe {
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                watch();
                if sent {
                    libc::raise(libc::SIGSEGV);
                } else {
                    std::ptr::write_volatile(std::ptr::without_provenance_mut::<u8>(8), 1);
                }
                libc::_exit(0);
            }
        }
        let mut status = 0;
        // SAFETY: our own child.
        unsafe { libc::waitpid(child, &mut status, 0) };
        let by = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
        assert_eq!(by, Some(libc::SIGSEGV), "{sent} {status:#x}");
    }
}
