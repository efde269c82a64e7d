//! What the device makes of attributes of queue pairs.

use rnic_types::QpType;
use rnic_wire::Service;

/// The service of the packets of such a queue pair.
pub(crate) fn service(qp_type: QpType) -> Service {
    match qp_type {
        QpType::Rc => Service::Rc,
        QpType::Uc => Service::Uc,
        QpType::Ud => Service::Ud,
        QpType::XrcSend | QpType::XrcRecv => Service::Xrc,
    }
}
