//! Lists of work requests, through shared memory.

use crate::wr_lists;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn lists_of_all_kinds_keep_their_order(lists in wr_lists::lists()) {
        wr_lists::run(&lists);
    }
}
