//! perftest's options beside the usual: inline data, the old way to post, on-demand paging,
//! addressing and reports.

use rnic_programs::perftest::expect_report;
use rnic_programs::{Pair, Trial, User, skip};

#[test]
fn options_do_what_they_say() {
    let cases: &[(&str, u64, &[&str])] = &[
        ("ib_send_lat", 64, &["-I", "64", "-s", "64"]),
        ("ib_write_lat", 200, &["-I", "220", "-s", "200"]),
        ("ib_write_bw", 64, &["-I", "64", "-s", "64"]),
        ("ib_send_bw", 65536, &["--use_old_post_send"]),
        ("ib_write_lat", 2, &["--use_old_post_send"]),
        ("ib_write_bw", 65536, &["--odp"]),
        ("ib_read_bw", 65536, &["--odp", "-q", "2"]),
        ("ib_write_bw", 65536, &["-m", "256"]),
        ("ib_read_lat", 2, &["-u", "18", "-o", "1"]),
        ("ib_read_bw", 65536, &["-o", "16"]),
        ("ib_send_bw", 65536, &["-r", "16", "-t", "16", "-Q", "4"]),
        ("ib_write_bw", 65536, &["-l", "8"]),
        ("ib_send_lat", 2, &["--tclass", "104", "--pkey_index", "0"]),
    ];
    let trial = Trial::start("options_do_what_they_say");
    let mut programs: Vec<_> = cases.iter().map(|(program, ..)| *program).collect();
    programs.dedup();
    if !skip::have_programs(trial.name(), &programs) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let pair = Pair::at(&place).gid_x("127.0.0.1", "127.0.0.1");
    for (program, size, options) in cases {
        println!("{program} {options:?}");
        let args = [&["-F", "-n", "128"], *options].concat();
        expect_report(program, &pair.run(program, &args), &[*size]);
    }
}

/// All of them have messages posted before the program polls for the first time: what is answered
/// meanwhile counts, however long that takes, and no connection gives up.
#[test]
fn ten_thousand_busy_queue_pairs() {
    const PROGRAM: &str = "ib_send_bw";
    let trial = Trial::start("ten_thousand_busy_queue_pairs");
    if !skip::have_programs(trial.name(), &[PROGRAM]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let pair = Pair::at(&place).gid_x("127.0.0.1", "127.0.0.1");
    // Without -N perftest looks for the peak among all pairs of messages.
    let args = ["-F", "-N", "-s", "64", "-q", "10000", "-n", "150"];
    expect_report(PROGRAM, &pair.run(PROGRAM, &args), &[64]);
}
