//! Processes of this host that are stopped: by SIGSTOP, a terminal, a debugger, or a cgroup that is
//! frozen (`docker pause`).
//!
//! Such a process executes nothing until somebody lets it go on, and its silence says nothing of
//! its queue pairs. The kernel tells by procfs. A process that this one may not look at counts as
//! one that runs.

use std::ffi::CString;

use rnic_sys as sys;

/// How long an answer is as good as a new one, ns: many queue pairs may lead to one process.
const FRESH_NS: u64 = 2_000_000;
/// Processes of which the answer is kept.
const KEPT: usize = 16;

/// What was found out lately.
#[derive(Debug, Default)]
pub struct Stopped {
    /// Process, when it was looked at, and whether it was stopped.
    known: Vec<(u32, u64, bool)>,
}

impl Stopped {
    /// The process is another one, and stopped, or was up to two milliseconds ago.
    pub fn is(&mut self, pid: u32, now_ns: u64) -> bool {
        let fresh = |at: u64| now_ns.saturating_sub(at) < FRESH_NS;
        self.known.retain(|(_, at, _)| fresh(*at));
        if let Some((.., stopped)) = self.known.iter().find(|(who, ..)| *who == pid) {
            return *stopped;
        }
        let stopped = is_stopped(pid);
        if self.known.len() < KEPT {
            self.known.push((pid, now_ns, stopped));
        }
        stopped
    }
}

/// The process is stopped now, and another one. Takes some microseconds.
pub fn is_stopped(pid: u32) -> bool {
    // This process runs.
    if pid == std::process::id() {
        return false;
    }
    let state = match state_of(&format!("/proc/{pid}/stat")) {
        // The first thread has ended, the others go on without it.
        Some(b'Z' | b'X') => state_of_another_thread(pid),
        state => state,
    };
    match state {
        Some(b'T' | b't') => true,
        // Frozen processes look like sleeping ones.
        Some(b'S' | b'D') => read(&format!("/proc/{pid}/cgroup"))
            .is_some_and(|cgroups| is_frozen("/sys/fs/cgroup", &cgroups)),
        _ => false,
    }
}

fn state_of_another_thread(pid: u32) -> Option<u8> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    threads
        .flatten()
        .filter_map(|thread| state_of(thread.path().join("stat").to_str()?))
        .find(|state| !matches!(state, b'Z' | b'X'))
}

/// The letter that proc_pid_stat(5) has for it.
fn state_of(path: &str) -> Option<u8> {
    let stat = read(path)?;
    // A program's name may have spaces and brackets in it; nothing behind it has.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.trim_start().bytes().next()
}

/// One of the cgroups that cgroups(7) lists for a process is frozen, in the hierarchies mounted at
/// `root`.
fn is_frozen(root: &str, cgroups: &str) -> bool {
    cgroups.lines().any(|line| {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            return false;
        };
        if controllers.is_empty() {
            // Version 2, by itself or beside version 1.
            ["", "/unified"].iter().any(|mount| {
                let events = read(&format!("{root}{mount}{path}/cgroup.events"));
                events.is_some_and(|events| events.lines().any(|event| event == "frozen 1"))
            })
        } else if controllers.split(',').any(|name| name == "freezer") {
            let state = read(&format!("{root}/freezer{path}/freezer.state"));
            state.is_some_and(|state| state.trim_end() == "FROZEN")
        } else {
            false
        }
    })
}

/// The beginning of a small file.
fn read(path: &str) -> Option<String> {
    const MOST: usize = 4096;
    let path = CString::new(path).ok()?;
    let file = sys::open_at_following(&path, libc::O_RDONLY, 0).ok()?;
    let mut text = [0; MOST];
    let len = sys::read_at(&file, &mut text, 0).ok()?;
    Some(String::from_utf8_lossy(text.get(..len)?).into_owned())
}

#[cfg(test)]
mod tests {
    //! A process that is stopped is found stopped, and no other.

    use super::*;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    /// A program that sleeps, ended with its handle.
    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Sleeper {
            Sleeper(Command::new("sleep").arg("1000").spawn().expect("sleep"))
        }

        fn signal(&self, signal: i32) {
            // SAFETY: takes no pointer; the child has not been waited for, so the number is its
            // own.
            assert_eq!(unsafe { libc::kill(self.0.id() as i32, signal) }, 0);
        }

        /// Signals take effect before long.
        fn becomes(&self, stopped: bool) -> bool {
            let start = Instant::now();
            while is_stopped(self.0.id()) != stopped {
                if start.elapsed() > Duration::from_secs(30) {
                    return false;
                }
                std::thread::yield_now();
            }
            true
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_is_stopped_until_it_goes_on() {
        let sleeper = Sleeper::start();
        assert!(!is_stopped(sleeper.0.id()));
        sleeper.signal(libc::SIGSTOP);
        assert!(sleeper.becomes(true));
        sleeper.signal(libc::SIGCONT);
        assert!(sleeper.becomes(false));
    }

    #[test]
    fn who_has_ended_is_not_stopped() {
        let mut sleeper = Sleeper::start();
        sleeper.signal(libc::SIGSTOP);
        assert!(sleeper.becomes(true));
        // It has ended, although its parent has not noticed; and then it has.
        sleeper.signal(libc::SIGKILL);
        assert!(sleeper.becomes(false));
        sleeper.0.wait().expect("our child");
        assert!(!is_stopped(sleeper.0.id()));
        assert!(!is_stopped(0));
        assert!(!is_stopped(u32::MAX));
    }

    #[test]
    fn a_name_does_not_look_like_a_state() {
        let folder = std::env::temp_dir().join(format!("rnic-stopped-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let stat = folder.join("stat");
        std::fs::write(&stat, "1 (a) T (b) S 1 1").expect("written");
        assert_eq!(state_of(stat.to_str().expect("its name")), Some(b'S'));
        std::fs::write(&stat, "nonsense").expect("written");
        assert_eq!(state_of(stat.to_str().expect("its name")), None);
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn frozen_cgroups_of_both_versions() {
        let root = std::env::temp_dir().join(format!("rnic-frozen-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let file = root.join(file);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            std::fs::write(file, text).expect("written");
        };
        write("two/a/cgroup.events", "populated 1\nfrozen 1\n");
        write("two/b/cgroup.events", "populated 1\nfrozen 0\n");
        write("one/freezer/a/freezer.state", "FROZEN\n");
        write("one/freezer/b/freezer.state", "THAWED\n");
        write("one/unified/a/cgroup.events", "frozen 1\n");
        let at = |mount: &str| root.join(mount).to_str().expect("its name").to_owned();
        assert!(is_frozen(&at("two"), "0::/a\n"));
        assert!(!is_frozen(&at("two"), "0::/b\n"));
        assert!(!is_frozen(&at("two"), "0::/none\n"));
        assert!(is_frozen(&at("one"), "9:cpu:/b\n6:freezer:/a\n0::/b\n"));
        assert!(is_frozen(&at("one"), "6:cpu,freezer:/b\n0::/a\n"));
        assert!(!is_frozen(&at("one"), "9:cpu:/a\n6:freezer:/b\n0::/b\n"));
        assert!(!is_frozen(&at("one"), "nonsense\n\n:\n::\n"));
        let _ = std::fs::remove_dir_all(&root);
    }

    /// Thousands of queue pairs may lead to one process.
    #[test]
    fn an_answer_is_kept_for_a_while() {
        let sleeper = Sleeper::start();
        let pid = sleeper.0.id();
        let mut stopped = Stopped::default();
        assert!(!stopped.is(pid, 0));
        sleeper.signal(libc::SIGSTOP);
        assert!(sleeper.becomes(true));
        assert!(!stopped.is(pid, FRESH_NS - 1));
        assert!(stopped.is(pid, FRESH_NS));
    }
}
