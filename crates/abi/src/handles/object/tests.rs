use super::all_acknowledged;

#[test]
fn acknowledgements_may_exceed_what_was_delivered() {
    assert!(all_acknowledged(0, 0));
    assert!(!all_acknowledged(0, 1));
    assert!(all_acknowledged(1, 1));
    assert!(all_acknowledged(7, 1));
}

#[test]
fn acknowledgements_are_compared_across_the_wrap() {
    assert!(!all_acknowledged(u32::MAX, 0));
    assert!(all_acknowledged(0, u32::MAX));
    assert!(all_acknowledged(1, 1));
}
