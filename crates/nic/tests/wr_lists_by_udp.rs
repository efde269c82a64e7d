//! Lists of work requests, by sockets, where the first of a list may leave as it is posted and the
//! others behind it.

use crate::environment;
use crate::wr_lists;

use proptest::test_runner::{Config, TestCaseError, TestRunner};

#[test]
fn lists_of_all_kinds_keep_their_order() {
    environment::set("RNIC_HOST_PATH", "off");
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(60)
    };
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&wr_lists::lists(), |lists| {
        wr_lists::run(&lists);
        Ok::<_, TestCaseError>(())
    });
    outcome.expect("in order");
}
