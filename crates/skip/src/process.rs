//! Tests that need a process, a thread or a folder of their own.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::skipped;

/// A private folder that is removed in the end.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes one.
    ///
    /// # Panics
    /// If it cannot be made.
    #[allow(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rnic-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.expect("a new folder");
        Folder(path)
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Its name, for a system call.
    ///
    /// # Panics
    /// If the name has a zero byte.
    pub fn c_path(&self) -> CString {
        CString::new(self.0.as_os_str().as_bytes()).expect("no zero byte")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the calling test again in a process that has nothing else to do, and few descriptors, since
/// limits are a process's. True: this is it.
///
/// # Panics
/// If the test fails there.
pub fn alone() -> bool {
    const CHILD: &str = "RNIC_TEST_ALONE";
    if std::env::var_os(CHILD).is_some() {
        // Some tests take all that there are.
        let few = Rlimit {
            current: Some(256),
            maximum: Some(256),
        };
        setrlimit(Resource::Nofile, few).expect("a lower limit");
        return true;
    }
    let name = std::thread::current().name().expect("a test").to_owned();
    let output = std::process::Command::new(std::env::current_exe().expect("this"))
        .args([&name, "--exact", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .expect("a child");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "it ran: {said}");
    false
}

/// Takes all descriptors that are left, for who is [`alone`].
pub fn all_descriptors() -> Vec<OwnedFd> {
    std::iter::from_fn(|| UnixDatagram::unbound().ok().map(OwnedFd::from)).collect()
}

/// Runs `work` in a thread that is in a network namespace of its own; `None`: there cannot be one,
/// which is said.
///
/// # Panics
/// If `work` does.
pub fn in_another_namespace<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    // SAFETY: the thread leaves its network alone; it does not part with the descriptors or the
    // folder that others use.
    let set_up = || unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(Into::into);
    in_a_thread("no network namespace here", set_up, work)
}

/// Runs `work` in a thread that cannot ask sockets for their options; `None`: that cannot be had
/// here, which is said.
///
/// # Panics
/// If `work` does.
pub fn without_options<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    in_a_thread("no filter of system calls here", refuse_options, work)
}

/// Runs `work` in a thread of its own, after `set_up` in it; `what`: what is said if that fails.
fn in_a_thread<T: Send>(
    what: &str,
    set_up: impl FnOnce() -> std::io::Result<()> + Send,
    work: impl FnOnce() -> T + Send,
) -> Option<T> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| match set_up() {
            Ok(()) => Some(work()),
            Err(e) => {
                skipped(&test, &format!("{what}: {e}"));
                None
            }
        });
        thread.join().expect("what is wrong was said")
    })
}

/// From now on getsockopt(2) fails in this thread, as with ENOPROTOOPT.
fn refuse_options() -> std::io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let refusal = libc::SECCOMP_RET_ERRNO | libc::ENOPROTOOPT as u32;
    let call = libc::SYS_getsockopt as u32;
    // The number of the call is the first word of struct seccomp_data.
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refusal),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: `filter` names `steps` and their number; both live through the call, which copies
    // them. The filter is this thread's alone.
    let set = unsafe {
        let (seccomp, mode) = (libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER);
        libc::prctl(seccomp, mode, &raw const filter)
    };
    match set {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
