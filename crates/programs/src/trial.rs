//! One test's claim to the machine.

use crate::netns::Netns;
use crate::place::{Place, User};
use crate::{skip, stage};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Tests that share the machine, as many as this at a time: programs that poll keep two cores busy,
/// but most of their time perftest's spend on finding out their clock's rate, and all on starting
/// and ending.
fn turns() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| 2 * cores.get())
}

/// Whether everything runs, however long it takes (`./test full`): a case in all manners, not only
/// in those that take different code. Whole tests that are left to it are `#[ignore = "./test
/// full"]`.
pub fn full() -> bool {
    std::env::var_os("RNIC_TEST_FULL").is_some_and(|value| value != "0")
}

/// Takes as many turns as `wanted`. A turn is the lock of a file that all test processes of this
/// user share, so cargo-nextest, which starts a process for each test, and `cargo test` share the
/// machine alike. The kernel takes the locks of what dies.
fn claim(wanted: usize) -> Vec<File> {
    let uid = rustix::process::geteuid().as_raw();
    let folder = std::env::temp_dir().join(format!("rnic-turns-{uid}"));
    fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let open = |name: String| {
        let mut options = File::options();
        options.create(true).truncate(false).write(true);
        options.open(folder.join(name)).expect("own folder")
    };
    // Nobody passes a test that waits for the whole machine.
    let gate = open("gate".to_owned());
    gate.lock().expect("files can be locked");
    let mut free: Vec<File> = (0..turns()).map(|n| open(n.to_string())).collect();
    let mut held = Vec::new();
    loop {
        let (taken, others): (Vec<_>, Vec<_>) =
            free.into_iter().partition(|turn| turn.try_lock().is_ok());
        held.extend(taken);
        if held.len() >= wanted {
            held.truncate(wanted);
            return held;
        }
        free = others;
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One test's claim to the machine: a turn among the tests, and a scratch folder with the binaries
/// under test.
///
/// Dropping it removes the folder; all processes and places of the test have to be gone by then,
/// which their owners' scopes see to.
#[derive(Debug)]
pub struct Trial {
    name: String,
    folder: PathBuf,
    _turns: Vec<File>,
}

impl Trial {
    /// Waits until no other test runs and prepares the scratch folder. `name` is the test's, for
    /// messages.
    pub fn start(name: &str) -> Trial {
        Trial::with(name, turns())
    }

    /// The same for a test that says nothing about time, and whose programs are in namespaces of
    /// their own: it shares the machine with others of its kind.
    pub fn start_beside_others(name: &str) -> Trial {
        Trial::with(name, 1)
    }

    fn with(name: &str, turns: usize) -> Trial {
        let turns = claim(turns);
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let folder = std::env::temp_dir().join(format!(
            "rnic-test-{}-{}",
            std::process::id(),
            SERIAL.fetch_add(1, Ordering::Relaxed)
        ));
        let trial = Trial {
            name: name.to_owned(),
            folder,
            _turns: turns,
        };
        // Left by a process of this number that was killed.
        let _ = fs::remove_dir_all(&trial.folder);
        fs::create_dir(&trial.folder).expect("the temporary folder is writable");
        fs::set_permissions(&trial.folder, Permissions::from_mode(0o755)).expect("own folder");
        stage::copy_into(&trial.folder);
        trial
    }

    /// The test's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The scratch folder: readable by everybody, written by this process.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A new folder in the scratch folder that belongs to `user`, with the given mode.
    pub fn new_folder(&self, label: &str, user: User, mode: u32) -> PathBuf {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let path = self
            .folder
            .join(format!("{label}{}", SERIAL.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&path).expect("own folder");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("own folder");
        if let Some(id) = user.id() {
            std::os::unix::fs::chown(&path, Some(id), Some(id)).expect("root may give files away");
        }
        path
    }

    /// This machine's own network, as the user who runs the tests, with the registry that this
    /// user's programs share.
    pub fn here(&self) -> Place {
        Place::new(self, None, User::Current, None)
    }

    /// An own network namespace with a loopback interface and nothing else; None, said in words,
    /// where the machine cannot make one.
    pub fn fresh(&self, user: User) -> Option<Place> {
        if !user.available(&self.name) {
            return None;
        }
        let netns = self.netns()?;
        Some(Place::new(self, Some(netns), user, None))
    }

    /// [`fresh`](Self::fresh), or this machine's own network where namespaces cannot be made.
    /// Loopback is there in both.
    pub fn loopback(&self, user: User) -> Option<Place> {
        if !user.available(&self.name) {
            return None;
        }
        let netns = Netns::new().ok();
        match (netns, user) {
            (Some(netns), user) => Some(Place::new(self, Some(netns), user, None)),
            (None, User::Current) => Some(self.here()),
            (None, User::Nobody) => {
                let runtime = self.new_folder("runtime", user, 0o700);
                Some(Place::new(self, None, user, Some(runtime)))
            }
        }
    }

    /// The same network as `place`, for another user.
    pub fn beside(&self, place: &Place, user: User) -> Option<Place> {
        if !user.available(&self.name) {
            return None;
        }
        let runtime = self.new_folder("runtime", user, 0o700);
        Some(Place::new(
            self,
            place.netns().cloned(),
            user,
            Some(runtime),
        ))
    }

    /// Two network namespaces joined by a virtual Ethernet link with 10.77.0.1/24 and 10.77.0.2/24,
    /// fd77::1 and fd77::2, and the given MTU. One user's programs in both share a runtime folder,
    /// as on any machine with `ip netns`.
    pub fn linked(&self, user: User, mtu: u32) -> Option<(Place, Place)> {
        if !user.available(&self.name) {
            return None;
        }
        let left = self.netns()?;
        let right = match left.sibling() {
            Ok(right) => right,
            Err(why) => {
                skip::skipped(
                    &self.name,
                    &format!("network namespaces cannot be made here: {why}"),
                );
                return None;
            }
        };
        left.link(&right, mtu);
        let runtime = self.new_folder("runtime", user, 0o700);
        Some((
            Place::new(self, Some(left), user, Some(runtime.clone())),
            Place::new(self, Some(right), user, Some(runtime)),
        ))
    }

    fn netns(&self) -> Option<Netns> {
        match Netns::new() {
            Ok(netns) => Some(netns),
            Err(why) => {
                skip::skipped(
                    &self.name,
                    &format!("network namespaces cannot be made here: {why}"),
                );
                None
            }
        }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
