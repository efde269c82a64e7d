//! The state table refuses what IBTA table 91 refuses and says why.

use super::*;

fn errno(from: QpState, to: QpState, given: QpAttrMask) -> Option<i32> {
    check(QpType::Rc, from, to, given).err().map(|e| e.errno())
}

#[test]
fn the_usual_way_up_is_allowed() {
    let init = M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS;
    let rtr = M::STATE
        | M::AV
        | M::PATH_MTU
        | M::DEST_QPN
        | M::RQ_PSN
        | M::MAX_DEST_RD_ATOMIC
        | M::MIN_RNR_TIMER;
    let rts = M::STATE | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN | M::MAX_QP_RD_ATOMIC;
    assert_eq!(errno(QpState::Reset, QpState::Init, init), None);
    assert_eq!(errno(QpState::Init, QpState::Rtr, rtr), None);
    assert_eq!(errno(QpState::Rtr, QpState::Rts, rts), None);
}

#[test]
fn every_missing_attribute_is_named() {
    for row in RC {
        for (bit, name) in [(M::AV, "IBV_QP_AV"), (M::SQ_PSN, "IBV_QP_SQ_PSN")] {
            if row.required.contains(bit) {
                let error =
                    check(QpType::Rc, row.from, row.to, row.required.without(bit)).unwrap_err();
                assert_eq!(error.errno(), libc::EINVAL);
                assert!(error.reason().contains(name), "{error}");
            }
        }
    }
}

#[test]
fn foreign_attributes_are_refused() {
    let init = M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS | M::QKEY;
    let error = check(QpType::Rc, QpState::Reset, QpState::Init, init).unwrap_err();
    assert!(error.reason().contains("IBV_QP_QKEY"), "{error}");
}

#[test]
fn states_cannot_be_skipped_but_always_left() {
    use QpState::*;
    for (from, to) in [
        (Reset, Rtr),
        (Reset, Rts),
        (Init, Rts),
        (Err, Init),
        (Err, Rts),
        (Rts, Init),
    ] {
        assert_eq!(
            errno(from, to, M(u32::MAX)),
            Some(libc::EINVAL),
            "{from:?} {to:?}"
        );
    }
    for from in [Reset, Init, Rtr, Rts, Err] {
        assert_eq!(errno(from, Reset, M::STATE), None);
        assert_eq!(errno(from, Err, M::STATE), None);
    }
}
