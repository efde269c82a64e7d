//! What waits in a send queue for a batch leaves although its program never polls again, and in
//! order.

use crate::environment;
use crate::writes_without_polling;

#[test]
fn posts_of_a_program_that_never_polls_arrive() {
    environment::set("RNIC_HOST_PATH", "off");
    writes_without_polling::posts_arrive(false);
}
