//! The state table: which transitions exist, and which attributes each requires and allows.
//!
//! IBTA vol. 1, table 91 (11.2.5.2 "Modify Queue Pair"), with the differences that programs know
//! from Linux, whose kernel checks before any device does (`ib_modify_qp_is_ok`): RESET does not go
//! to ERR, and IBV_QP_CUR_STATE only belongs to transitions whose start may have changed behind the
//! program's back. The table both enforces and explains.

use crate::{QpAttrMask as M, QpState, QpType};

/// One row: a transition of some service types.
struct Row {
    types: &'static [QpType],
    from: QpState,
    to: QpState,
    required: M,
    optional: M,
}

const fn row(
    types: &'static [QpType],
    from: QpState,
    to: QpState,
    required: M,
    optional: M,
) -> Row {
    Row {
        types,
        from,
        to,
        required,
        optional,
    }
}

/// The union of attributes.
const fn all(bits: &[M]) -> M {
    let mut all = M(0);
    let mut i = 0;
    while i < bits.len() {
        all = all.or(bits[i]);
        i += 1;
    }
    all
}

use QpState::{Err as Broken, Init, Reset, Rtr, Rts, Sqd, Sqe};
use QpType::{Rc, Uc, Ud, XrcRecv, XrcSend};

const NONE: M = M(0);
/// What may change in every state from RTR on, of the types that have a requester but no responder
/// that answers.
const PATH: M = all(&[M::ALT_PATH, M::ACCESS_FLAGS, M::PATH_MIG_STATE]);
/// The same of types whose responder sends RNR NAKs.
const PATH_RNR: M = PATH.or(M::MIN_RNR_TIMER);
const CONNECT: M = all(&[M::AV, M::PATH_MTU, M::DEST_QPN, M::RQ_PSN]);
const CONNECT_RESPONDER: M = CONNECT.or(all(&[M::MAX_DEST_RD_ATOMIC, M::MIN_RNR_TIMER]));
const RETRIES: M = all(&[
    M::TIMEOUT,
    M::RETRY_CNT,
    M::RNR_RETRY,
    M::SQ_PSN,
    M::MAX_QP_RD_ATOMIC,
]);
const INIT_CONNECTED: M = all(&[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS]);
const INIT_DATAGRAM: M = all(&[M::PKEY_INDEX, M::PORT, M::QKEY]);
const RTR_CONNECTED: M = all(&[M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX]);
const RTR_DATAGRAM: M = all(&[M::PKEY_INDEX, M::QKEY]);
const CUR: M = M::CUR_STATE;
const DRAINED_PATH: M = PATH.or(all(&[M::AV, M::PKEY_INDEX]));
const DRAINED: M = DRAINED_PATH.or(all(&[M::PORT, M::TIMEOUT]));
const DRAINED_REQUESTER: M = all(&[M::RETRY_CNT, M::RNR_RETRY, M::MAX_QP_RD_ATOMIC]);
const DRAINED_RESPONDER: M = all(&[M::MAX_DEST_RD_ATOMIC, M::MIN_RNR_TIMER]);

const CONNECTED: &[QpType] = &[Rc, Uc, XrcSend, XrcRecv];
const EVERY: &[QpType] = &[Rc, Uc, Ud, XrcSend, XrcRecv];

#[rustfmt::skip]
const TABLE: &[Row] = &[
    row(CONNECTED,        Reset, Init, INIT_CONNECTED,    NONE),
    row(&[Ud],            Reset, Init, INIT_DATAGRAM,     NONE),

    row(CONNECTED,        Init,  Init, NONE,              INIT_CONNECTED),
    row(&[Ud],            Init,  Init, NONE,              INIT_DATAGRAM),

    row(&[Rc, XrcRecv],   Init,  Rtr,  CONNECT_RESPONDER, RTR_CONNECTED),
    row(&[Uc, XrcSend],   Init,  Rtr,  CONNECT,           RTR_CONNECTED),
    row(&[Ud],            Init,  Rtr,  NONE,              RTR_DATAGRAM),

    row(&[Rc],            Rtr,   Rts,  RETRIES,           CUR.or(PATH_RNR)),
    row(&[XrcSend],       Rtr,   Rts,  RETRIES,           CUR.or(PATH)),
    row(&[XrcRecv],       Rtr,   Rts,  all(&[M::TIMEOUT, M::SQ_PSN]), CUR.or(PATH_RNR)),
    row(&[Uc],            Rtr,   Rts,  M::SQ_PSN,         CUR.or(PATH)),
    row(&[Ud],            Rtr,   Rts,  M::SQ_PSN,         CUR.or(M::QKEY)),

    row(&[Rc, XrcRecv],   Rts,   Rts,  NONE,              CUR.or(PATH_RNR)),
    row(&[Uc, XrcSend],   Rts,   Rts,  NONE,              CUR.or(PATH)),
    row(&[Ud],            Rts,   Rts,  NONE,              CUR.or(M::QKEY)),

    row(EVERY,            Rts,   Sqd,  NONE,              M::EN_SQD_ASYNC_NOTIFY),

    row(&[Rc, XrcRecv],   Sqd,   Rts,  NONE,              CUR.or(PATH_RNR)),
    row(&[Uc, XrcSend],   Sqd,   Rts,  NONE,              CUR.or(PATH)),
    row(&[Ud],            Sqd,   Rts,  NONE,              CUR.or(M::QKEY)),

    row(&[Rc],            Sqd,   Sqd,  NONE,              DRAINED.or(DRAINED_REQUESTER).or(DRAINED_RESPONDER)),
    row(&[XrcSend],       Sqd,   Sqd,  NONE,              DRAINED.or(DRAINED_REQUESTER)),
    row(&[XrcRecv],       Sqd,   Sqd,  NONE,              DRAINED.or(DRAINED_RESPONDER)),
    row(&[Uc],            Sqd,   Sqd,  NONE,              DRAINED_PATH),
    row(&[Ud],            Sqd,   Sqd,  NONE,              all(&[M::PKEY_INDEX, M::QKEY])),

    // Only the services whose send errors leave the receive queue alone have this state.
    row(&[Uc],            Sqe,   Rts,  NONE,              CUR.or(M::ACCESS_FLAGS)),
    row(&[Ud],            Sqe,   Rts,  NONE,              CUR.or(M::QKEY)),

    row(EVERY,            Reset, Reset,  NONE, NONE),
    row(EVERY,            Init,  Reset,  NONE, NONE),
    row(EVERY,            Rtr,   Reset,  NONE, NONE),
    row(EVERY,            Rts,   Reset,  NONE, NONE),
    row(EVERY,            Sqd,   Reset,  NONE, NONE),
    row(EVERY,            Sqe,   Reset,  NONE, NONE),
    row(EVERY,            Broken, Reset, NONE, NONE),

    row(EVERY,            Init,  Broken, NONE, NONE),
    row(EVERY,            Rtr,   Broken, NONE, NONE),
    row(EVERY,            Rts,   Broken, NONE, NONE),
    row(EVERY,            Sqd,   Broken, NONE, NONE),
    row(EVERY,            Sqe,   Broken, NONE, NONE),
    row(EVERY,            Broken, Broken, NONE, NONE),
];

/// The attributes that a call means. Those of the other half of an XRC connection are ignored, as
/// Linux ignores them: programs treat both halves as they treat RC.
pub fn meant(qp_type: QpType, given: M) -> M {
    given.without(match qp_type {
        XrcSend => all(&[M::MAX_DEST_RD_ATOMIC, M::MIN_RNR_TIMER]),
        XrcRecv => all(&[M::MAX_QP_RD_ATOMIC, M::RETRY_CNT, M::RNR_RETRY]),
        _ => NONE,
    })
}

/// Why a queue pair may not change as it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransitionError {
    /// Transport service of the queue pair.
    pub qp_type: QpType,
    /// Where it is.
    pub from: QpState,
    /// Where it was to go; where it is, if only attributes were to change.
    pub to: QpState,
    /// There is such a transition, if it is given the right attributes.
    pub exists: bool,
    /// Attributes that the transition needs, and was not given.
    pub missing: M,
    /// Attributes that it was given, and does not take.
    pub superfluous: M,
}

impl core::error::Error for TransitionError {}

impl core::fmt::Display for TransitionError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let TransitionError {
            qp_type, from, to, ..
        } = self;
        if !self.exists && from == to {
            return write!(
                f,
                "no attribute of queue pairs of type {qp_type} may change in {from}"
            );
        }
        if !self.exists {
            return write!(
                f,
                "a queue pair of type {qp_type} cannot go from {from} to {to}"
            );
        }
        write!(f, "{from} to {to} ")?;
        match (self.missing.0, self.superfluous.0) {
            (_, 0) => write!(f, "also needs {}", self.missing.names()),
            (0, _) => write!(f, "does not take {}", self.superfluous.names()),
            _ => write!(
                f,
                "also needs {}, and does not take {}",
                self.missing.names(),
                self.superfluous.names()
            ),
        }
    }
}

/// Checks a change of a queue pair against the state table (`ibv_modify_qp(3)`); gives the
/// attributes that it means, which leaves out those of the other half of an XRC connection. Without
/// STATE in `given`, `to` is `from`.
///
/// # Errors
/// There is no such transition, or what it lacks and what it does not take.
pub fn check_transition(
    qp_type: QpType,
    from: QpState,
    to: QpState,
    given: M,
) -> Result<M, TransitionError> {
    let given = meant(qp_type, given);
    check(qp_type, from, to, given)?;
    Ok(given)
}

/// The same of attributes that are all meant.
fn check(qp_type: QpType, from: QpState, to: QpState, given: M) -> Result<(), TransitionError> {
    let given = given.without(M::STATE);
    let mut rows = TABLE.iter();
    let row = rows.find(|r| r.from == from && r.to == to && r.types.contains(&qp_type));
    let (missing, superfluous) = match row {
        Some(row) => (
            row.required.without(given),
            given.without(row.required.or(row.optional)),
        ),
        None => (NONE, NONE),
    };
    if row.is_some() && missing == NONE && superfluous == NONE {
        return Ok(());
    }
    Err(TransitionError {
        qp_type,
        from,
        to,
        exists: row.is_some(),
        missing,
        superfluous,
    })
}

#[cfg(test)]
mod tests;
