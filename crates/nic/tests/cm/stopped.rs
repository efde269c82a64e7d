//! Another process is stopped while it changes the table of ports: who wants a port waits for it,
//! and nobody else does.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rnic_nic::QpType;
use rnic_nic::cm::{EventChannel, Id, PortSpace};

/// The table of ports that this process has open, opened once more: locks of this descriptor are as
/// those of another process.
fn table() -> File {
    let open = std::fs::read_dir("/proc/self/fd").expect("/proc");
    let mut paths = open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    let path = paths.find(|path| path.ends_with("ports"));
    let path = path.expect("the device is open, and with it the table");
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.expect("it is this user's")
}

/// Locks all of it, or lets go.
fn lock(file: &File, how: i32) {
    // SAFETY: of plain C integers; all zeros are a value of it.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = how as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: `range` is the structure that the command takes.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &range) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_process_that_is_stopped_holds_up_those_alone_who_want_a_port() {
    const HERE: ([u8; 4], u16) = ([127, 0, 0, 1], 0);
    let events = EventChannel::new().expect("an event channel");
    let id = || Id::new(&events, PortSpace::Tcp, QpType::Rc, 0).expect("an id");
    let (bound, free) = (id(), id());
    let table = table();
    lock(&table, libc::F_WRLCK);
    std::thread::scope(|scope| {
        let (done, outcome) = channel();
        let bound = &bound;
        scope.spawn(move || done.send(bound.bind(HERE.into())));
        let start = Instant::now();
        // The engine is free all the time: each of these needs it.
        for turn in 0..100 {
            // Whoever waits for others does not for ever.
            if turn >= 5 && start.elapsed() > Duration::from_secs(1) {
                break;
            }
            free.route().expect("an answer");
            let early = outcome.recv_timeout(Duration::from_micros(100));
            assert_eq!(early.err(), Some(RecvTimeoutError::Timeout), "it waits");
        }
        lock(&table, libc::F_UNLCK);
        let outcome = outcome.recv().expect("an outcome");
        outcome.expect("a port, as soon as the other one goes on");
    });
    assert!(bound.route().expect("an answer").local.is_some());
}
