//! Another process is stopped while it is at the registry of queue pair numbers: who needs more of
//! them waits, and nobody else does.

use crate::environment;

use std::fs::File;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rnic_nic::{Context, Qp};

/// Numbers of a range.
const RANGE: u32 = 4096;

fn range_of(qp: &Qp) -> u32 {
    qp.qpn() / RANGE
}

/// The lock of the registry that this process has open, opened once more: as another process has
/// it.
fn registry_lock() -> File {
    let open = std::fs::read_dir("/proc/self/fd").expect("/proc");
    let mut paths = open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    let path = paths.find(|path| path.ends_with("lock"));
    File::open(path.expect("the device is open")).expect("it is this user's")
}

#[test]
fn who_waits_for_numbers_does_not_hold_up_the_engine() {
    let dir = std::env::temp_dir().join(format!("rnic-numbers-{}", std::process::id()));
    environment::set("RNIC_RUNTIME_DIR", &dir);
    let context = Context::open().expect("a device");
    let domain = context.open_xrcd(None, true, false).expect("a domain");
    let create = || domain.create_qp(7);
    // All of a range.
    let mut all = vec![create().expect("a queue pair")];
    let first = range_of(&all[0]);
    while all.last().is_some_and(|qp| range_of(qp) == first) {
        all.push(create().expect("a queue pair"));
    }
    let second = range_of(&all[all.len() - 1]);
    all.extend((1..RANGE).map(|_| create().expect("a queue pair")));
    // In whatever order they came.
    let of_second = all.iter().filter(|qp| range_of(qp) == second);
    assert_eq!(of_second.count(), RANGE as usize);
    let lock = registry_lock();
    lock.lock().expect("nobody else is there");
    let third = std::thread::scope(|scope| {
        let (done, outcome) = channel();
        scope.spawn(move || done.send(create()));
        let start = Instant::now();
        for (turn, qp) in all[..100].iter().enumerate() {
            // Whoever waits for others does not for ever.
            if turn >= 5 && start.elapsed() > Duration::from_secs(1) {
                break;
            }
            // The engine is free all the time: this needs it.
            qp.query();
            let early = outcome.recv_timeout(Duration::from_micros(100));
            assert_eq!(early.err(), Some(RecvTimeoutError::Timeout), "it waits");
        }
        lock.unlock().expect("it was locked");
        let outcome = outcome.recv().expect("an outcome");
        outcome.expect("a number, as soon as the other one goes on")
    });
    assert!(![first, second].contains(&range_of(&third)));
    drop((third, all, domain, context));
    let _ = std::fs::remove_dir_all(dir);
}
