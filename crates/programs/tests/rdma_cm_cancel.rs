//! Cancellation: where libibverbs and librdmacm wait for events, `pthread_cancel(3)` ends the
//! thread.

use rnic_programs::{Trial, User, compile};

/// `rdma_get_cm_event`, `ibv_get_cq_event` and `ibv_get_async_event` in turn; what they waited for
/// goes on to be used.
#[test]
fn who_waits_for_an_event_can_be_cancelled() {
    let trial = Trial::start_beside_others("who_waits_for_an_event_can_be_cancelled");
    let Some(program) = compile::c_program_with(&trial, "cancelled", &["-lrdmacm"]) else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let finished = place.finish(program, [] as [&str; 0]);
    finished.expect_success();
    assert!(
        finished.stdout.contains("all well"),
        "{}",
        finished.describe()
    );
}
