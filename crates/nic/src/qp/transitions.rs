//! The state table: which transitions exist, and which attributes each requires and allows.
//!
//! IBTA vol. 1, table 91 (11.2.5.2 "Modify Queue Pair"). The table both enforces and explains.

use super::attr::{QpAttrMask, QpState, QpType};
use crate::error::{Error, Result};

/// One row: a transition of a service type.
struct Row {
    from: QpState,
    to: QpState,
    required: QpAttrMask,
    optional: QpAttrMask,
}

const fn mask(bits: &[QpAttrMask]) -> QpAttrMask {
    let mut all = QpAttrMask(0);
    let mut i = 0;
    while i < bits.len() {
        all = all.or(bits[i]);
        i += 1;
    }
    all
}

use QpAttrMask as M;

const RC: &[Row] = &[
    Row {
        from: QpState::Reset,
        to: QpState::Init,
        required: mask(&[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS]),
        optional: mask(&[]),
    },
    Row {
        from: QpState::Init,
        to: QpState::Init,
        required: mask(&[]),
        optional: mask(&[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS]),
    },
    Row {
        from: QpState::Init,
        to: QpState::Rtr,
        required: mask(&[
            M::AV,
            M::PATH_MTU,
            M::DEST_QPN,
            M::RQ_PSN,
            M::MAX_DEST_RD_ATOMIC,
            M::MIN_RNR_TIMER,
        ]),
        optional: mask(&[M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX]),
    },
    Row {
        from: QpState::Rtr,
        to: QpState::Rts,
        required: mask(&[
            M::TIMEOUT,
            M::RETRY_CNT,
            M::RNR_RETRY,
            M::SQ_PSN,
            M::MAX_QP_RD_ATOMIC,
        ]),
        optional: mask(&[
            M::CUR_STATE,
            M::ALT_PATH,
            M::ACCESS_FLAGS,
            M::MIN_RNR_TIMER,
            M::PATH_MIG_STATE,
        ]),
    },
    Row {
        from: QpState::Rts,
        to: QpState::Rts,
        required: mask(&[]),
        optional: mask(&[
            M::CUR_STATE,
            M::ACCESS_FLAGS,
            M::ALT_PATH,
            M::PATH_MIG_STATE,
            M::MIN_RNR_TIMER,
        ]),
    },
];

fn rows(qp_type: QpType) -> &'static [Row] {
    match qp_type {
        QpType::Rc => RC,
        // No queue pair of these types can be created yet.
        QpType::Uc | QpType::Ud => &[],
    }
}

/// Checks a transition; the error says what is missing or does not belong.
pub(crate) fn check(qp_type: QpType, from: QpState, to: QpState, given: QpAttrMask) -> Result<()> {
    const VERB: &str = "ibv_modify_qp";
    let given = given.without(M::STATE);
    // Any state may go to RESET and ERR, without attributes.
    if matches!(to, QpState::Reset | QpState::Err) {
        return if given.without(M::CUR_STATE).0 == 0 {
            Ok(())
        } else {
            Err(Error::invalid(
                VERB,
                format!("{to:?} takes no attributes, given: {}", given.names()),
            ))
        };
    }
    if matches!(to, QpState::Sqd | QpState::Sqe) {
        return Err(Error::new(
            VERB,
            libc::EOPNOTSUPP,
            format!("{from:?} to {to:?}: the send queue cannot be drained yet"),
        ));
    }
    let Some(row) = rows(qp_type).iter().find(|r| r.from == from && r.to == to) else {
        return Err(Error::invalid(
            VERB,
            format!("a {qp_type:?} queue pair cannot go from {from:?} to {to:?}"),
        ));
    };
    let missing = row.required.without(given);
    if missing.0 != 0 {
        return Err(Error::invalid(
            VERB,
            format!("{from:?} to {to:?} also needs {}", missing.names()),
        ));
    }
    let foreign = given.without(row.required.or(row.optional));
    if foreign.0 != 0 {
        return Err(Error::invalid(
            VERB,
            format!("{from:?} to {to:?} does not take {}", foreign.names()),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
