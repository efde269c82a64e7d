//! The state table refuses what IBTA table 91 and Linux refuse, and says why.

use alloc::string::ToString;

use super::*;

const STATES: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Broken];

fn is_allowed(qp_type: QpType, from: QpState, to: QpState, given: M) -> bool {
    check(qp_type, from, to, given).is_ok()
}

#[test]
fn the_usual_way_up_is_allowed() {
    let init = M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS;
    let rtr = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    let rtr_rc = rtr | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    let rts = M::STATE | M::SQ_PSN;
    let rts_rc = rts | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
    let datagram = M::STATE | M::PKEY_INDEX | M::PORT | M::QKEY;
    for (qp_type, masks) in [
        (Rc, [init, rtr_rc, rts_rc]),
        (Uc, [init, rtr, rts]),
        (Ud, [datagram, M::STATE, rts]),
        (XrcSend, [init, rtr, rts_rc]),
        (XrcRecv, [init, rtr_rc, rts | M::TIMEOUT]),
    ] {
        for ((from, to), mask) in [(Reset, Init), (Init, Rtr), (Rtr, Rts)]
            .into_iter()
            .zip(masks)
        {
            assert!(is_allowed(qp_type, from, to, mask), "{qp_type:?} to {to:?}");
        }
    }
}

#[test]
fn every_missing_attribute_is_named() {
    let mut seen = 0;
    for row in TABLE {
        for &qp_type in row.types {
            for bit in (0..32)
                .map(|i| M(1 << i))
                .filter(|b| row.required.contains(*b))
            {
                let given = row.required.without(bit);
                let error = check(qp_type, row.from, row.to, given).unwrap_err();
                assert_eq!((error.missing, error.superfluous), (bit, NONE));
                assert!(error.to_string().contains(&bit.names()), "{error}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 49);
}

/// Whatever the transition: its own attributes are taken, each other one is refused and named.
#[test]
fn foreign_attributes_are_refused() {
    for row in TABLE {
        for &qp_type in row.types {
            let whole = row.required | row.optional;
            assert!(is_allowed(qp_type, row.from, row.to, whole | M::STATE));
            for bit in (1..32).map(|i| M(1 << i)).filter(|b| !whole.contains(*b)) {
                let error = check(qp_type, row.from, row.to, whole | bit).unwrap_err();
                assert_eq!((error.missing, error.superfluous), (NONE, bit));
                assert!(error.to_string().contains(&bit.names()), "{error}");
            }
        }
    }
}

/// Programs that treat an XRC connection like RC work.
#[test]
fn an_xrc_half_ignores_what_concerns_the_other() {
    let rtr = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    let rtr = rtr | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    let rts = M::STATE | M::SQ_PSN | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
    for qp_type in [Rc, XrcSend, XrcRecv] {
        assert_eq!(
            check_transition(qp_type, Init, Rtr, rtr),
            Ok(meant(qp_type, rtr))
        );
        assert_eq!(
            check_transition(qp_type, Rtr, Rts, rts),
            Ok(meant(qp_type, rts))
        );
    }
    assert_eq!(meant(Uc, rts), rts);
}

/// A transition has one rule for each type.
#[test]
fn no_row_hides_another() {
    let mut seen = std::collections::HashSet::new();
    for row in TABLE {
        for &qp_type in row.types {
            assert!(seen.insert((qp_type, row.from, row.to)));
        }
    }
}

#[test]
fn states_cannot_be_skipped_but_always_left() {
    for &qp_type in EVERY {
        for (from, to) in [
            (Reset, Rtr),
            (Reset, Rts),
            (Init, Rts),
            (Rtr, Sqd),
            (Rts, Init),
            (Sqd, Rtr),
            (Broken, Init),
            (Broken, Rts),
        ] {
            for given in [M::STATE, M(u32::MAX)] {
                let refused = check(qp_type, from, to, given).unwrap_err();
                assert!(!refused.exists, "{refused}");
            }
        }
        for from in STATES {
            assert!(is_allowed(qp_type, from, Reset, M::STATE));
            // Linux has no way from RESET to ERR.
            let allowed = from != Reset;
            assert_eq!(is_allowed(qp_type, from, Broken, M::STATE), allowed);
            // Only an error leads to SQE.
            assert!(!is_allowed(qp_type, from, Sqe, M::STATE));
        }
    }
    for qp_type in [Rc, XrcSend, XrcRecv] {
        assert!(!is_allowed(qp_type, Sqe, Rts, M::STATE));
    }
}

/// What is missing and what is too much is told at once.
#[test]
fn an_error_names_all_that_is_wrong() {
    let given = M::STATE | M::PKEY_INDEX | M::PORT | M::SQ_PSN | M::QKEY;
    let refused = check_transition(Rc, Reset, Init, given).unwrap_err();
    assert_eq!(refused.missing, M::ACCESS_FLAGS);
    assert_eq!(refused.superfluous, M::SQ_PSN | M::QKEY);
    let said = "RESET to INIT also needs IBV_QP_ACCESS_FLAGS, \
                and does not take IBV_QP_QKEY | IBV_QP_SQ_PSN";
    assert_eq!(refused.to_string(), said);
}
