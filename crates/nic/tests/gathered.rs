//! What waits in a send queue for company leaves although its program never polls again, and in order.

mod pair;
mod turned_away;

#[test]
fn posts_of_a_program_that_never_polls_arrive() {
    // SAFETY: the only test of this program, and no other thread runs yet.
    unsafe { std::env::set_var("RNIC_HOST_PATH", "off") };
    turned_away::posts_arrive(false);
}
