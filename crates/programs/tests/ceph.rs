//! Ceph's daemons and its client over RDMA: objects come back as they were written.

use rnic_programs::ceph::{self, Ceph, Messenger};
use rnic_programs::each::each;
use rnic_programs::place::Place;
use rnic_programs::{Finished, Process, Trial, User, skip};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A cluster starts in seconds; on a busy machine it takes longer.
const TIME: Duration = Duration::from_secs(120);

/// Of objects: less than a packet, more than one, and more than one of Ceph's buffers of 128 KiB.
const SIZES: [usize; 4] = [1, 5_000, 65_536, 1_000_003];

/// Where `bench/programs` unpacks Ceph.
fn unpacked() -> PathBuf {
    match std::env::var_os("RNIC_BENCH_PROGRAMS") {
        Some(folder) => PathBuf::from(folder).join("ceph"),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench-programs/ceph"),
    }
}

/// `rnic run --stats -- env`.
fn under_rnic(place: &Place, host_path: &str) -> Command {
    let mut command = place.command(place.rnic());
    command
        .args(["run", "--stats", "--", "env"])
        .env("RNIC_HOST_PATH", host_path);
    command
}

fn finish(command: Command) -> Finished {
    let finished = Process::spawn(command).wait(TIME);
    finished.expect_success();
    finished
}

/// No part of an object is like another, and no object like another.
fn bytes(size: usize) -> Vec<u8> {
    let mut state = size as u64;
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(size).collect()
}

#[test]
#[ignore = "needs Ceph with RDMA, which bench/programs fetches"]
fn objects_come_back_as_they_were_written() {
    let trial = Trial::start_beside_others("ceph");
    let root = match ceph::find(&unpacked()) {
        Ok(root) => root,
        Err(why) => return skip::skipped(trial.name(), &why),
    };
    each(
        &["on", "off"],
        |host_path| host_path,
        |host_path| {
            // Its monitor's port is fixed.
            let Some(place) = trial.fresh(User::Current) else {
                return;
            };
            let folder = trial.new_folder("ceph", User::Current, 0o700);
            let cluster = Ceph::new(root.clone(), folder.clone());
            let prepare = cluster.prepare(place.command("env"), 3300);
            finish(prepare.expect("own folder"));
            // Of 4,096 receives of 128 KiB each process would have a gigabyte of memory.
            let mut settings = File::options()
                .append(true)
                .open(folder.join("ceph.conf"))
                .expect("written just now");
            writeln!(settings, "ms_async_rdma_receive_queue_len = 256").expect("own folder");
            let by = Messenger::Rdma;
            let serve = cluster.serve(under_rnic(&place, host_path), by);
            let mut server = Process::spawn(serve);
            let rados = |words: &[&str]| {
                let mut command = cluster.rados(under_rnic(&place, host_path), by);
                command.args(words);
                finish(command)
            };
            for size in SIZES {
                let name = size.to_string();
                let written = bytes(size);
                std::fs::write(folder.join("written"), &written).expect("own folder");
                rados(&["put", &name, "written"]);
                let said = rados(&["get", &name, "read"]).stderr;
                assert!(said.contains("over rnic0 in"), "not by RDMA: {said}");
                let read = std::fs::read(folder.join("read")).expect("own folder");
                assert!(read == written, "{size} bytes are not the same");
            }
            assert!(!server.ended(), "{}", server.output_after_end());
        },
    );
}
