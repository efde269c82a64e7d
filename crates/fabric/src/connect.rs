//! Takes a queue pair of RC or UC to RTS, without a connection manager.

use rnic_nic::{Access, AhAttr, Gid, Qp, QpAttr, QpAttrMask as M, QpState, QpType};

use crate::scenario::Service;

impl Service {
    pub(crate) fn qp_type(self) -> QpType {
        match self {
            Service::Rc => QpType::Rc,
            Service::Uc => QpType::Uc,
        }
    }
}

/// What a queue pair is told of its peer. The rest is up to the caller.
pub(crate) fn attributes(peer: u32, gid: Gid) -> QpAttr {
    QpAttr {
        qp_access_flags: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        port_num: 1,
        dest_qp_num: peer,
        min_rnr_timer: 1,
        ah: AhAttr {
            dgid: gid,
            sgid_index: 0,
            is_global: true,
            port_num: 1,
            ..AhAttr::default()
        },
        ..QpAttr::default()
    }
}

fn to(qp: &Qp, attr: &QpAttr, qp_state: QpState, mask: M) -> Result<(), String> {
    let attr = QpAttr { qp_state, ..*attr };
    let changed = qp.modify(&attr, M::STATE | mask);
    changed.map_err(|why| why.to_string())
}

/// To INIT, where receives may be posted.
pub(crate) fn to_init(qp: &Qp, attr: &QpAttr) -> Result<(), String> {
    to(
        qp,
        attr,
        QpState::Init,
        M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS,
    )
}

/// From there to RTS.
pub(crate) fn to_rts(qp: &Qp, service: Service, attr: &QpAttr) -> Result<(), String> {
    let (mut rtr, mut rts) = (M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN, M::SQ_PSN);
    if service == Service::Rc {
        rtr = rtr | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        rts = rts | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
    }
    to(qp, attr, QpState::Rtr, rtr)?;
    to(qp, attr, QpState::Rts, rts)
}
