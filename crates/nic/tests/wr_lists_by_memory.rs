//! Lists of work requests, by memory.

use crate::ordered;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn lists_of_all_kinds_keep_their_order(lists in ordered::lists()) {
        ordered::run(&lists);
    }
}
