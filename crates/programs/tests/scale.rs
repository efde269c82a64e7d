//! Ten thousand queue pairs in one process: created, connected in pairs, used and destroyed, in
//! memory that is bounded. `c/scale.c` does the work, and prints the figures of BENCHMARKS.md.

use rnic_programs::{Trial, User, compile};

/// The promise for an idle queue pair, bytes: that of 64 work requests in each of its queues is
/// taken when it is made, so that posting needs none.
const MOST_EACH: u64 = 16 * 1024;

#[test]
fn ten_thousand_queue_pairs() {
    let trial = Trial::start("ten_thousand_queue_pairs");
    let Some(program) = compile::c_program(&trial, "scale") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let finished = place.finish(&program, ["10000"]);
    finished.expect_success();
    print!("{}", finished.stdout);
    assert!(
        finished.stdout.ends_with("done\n"),
        "{}",
        finished.describe()
    );
    let each: u64 = finished
        .stdout
        .split_once(" bytes of memory each")
        .and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok())
        .expect("the program tells the memory per queue pair");
    assert!(each <= MOST_EACH, "{each} bytes for an idle queue pair");
}
