//! What a queue pair is given for its transitions (`rdma_init_qp_attr`): the attributes and masks
//! of Linux' cma and cm.

use rnic_wire::PathMtu;

use super::PortSpace;
use super::UDP_QKEY;
use super::entry::{Entry, Phase, Terms};
use crate::addressing::address::AhAttr;
use crate::error::{Error, Result};
use crate::memory::Access;
use crate::queues::{QpAttr, QpAttrMask as M, QpState, QpType};

const VERB: &str = "rdma_init_qp_attr";

/// The transport's timeout for a path of this life time to a peer of this delay, both as codes
/// (Linux' cm_ack_timeout).
pub(crate) fn ack_timeout(peer_delay: u8, packet_life_time: u8) -> u8 {
    let timeout = packet_life_time.saturating_add(1);
    let sum = match timeout >= peer_delay {
        true => timeout + u8::from(peer_delay >= timeout - 1),
        false => peer_delay + u8::from(timeout >= peer_delay - 1),
    };
    sum.min(31)
}

impl Entry {
    /// Q_Key of a datagram id.
    pub(crate) fn qkey(&self) -> u32 {
        match self.port_space {
            PortSpace::Udp | PortSpace::Ipoib => UDP_QKEY,
            PortSpace::Tcp | PortSpace::Ib => self.qkey,
        }
    }

    pub(crate) fn qp_attr(&self, state: QpState) -> Result<(QpAttr, M)> {
        if self.source.is_none() {
            return Err(Error::invalid(
                VERB,
                "the id is not on the device: bind it or resolve its peer's address",
            ));
        }
        let terms = self
            .connection
            .as_ref()
            .filter(|_| self.qp_type != QpType::Ud);
        let attr = QpAttr {
            qp_state: state,
            pkey_index: self.pkey_index,
            port_num: 1,
            ..QpAttr::default()
        };
        match (state, terms) {
            (QpState::Init, None) => Ok(self.unconnected(attr)),
            (QpState::Init, Some(connection)) => {
                let mut access = Access::REMOTE_WRITE;
                if connection.terms.responder_resources > 0 {
                    access = access | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
                }
                let attr = QpAttr {
                    qp_access_flags: access,
                    ..attr
                };
                Ok((attr, M::STATE | M::ACCESS_FLAGS | M::PKEY_INDEX | M::PORT))
            }
            // As in Linux: a datagram queue pair learns nothing from its peer.
            (QpState::Rtr | QpState::Rts, _) if self.qp_type == QpType::Ud => {
                Ok(self.unconnected(attr))
            }
            (QpState::Rtr | QpState::Rts, Some(connection))
                if connection.phase != Phase::Requested =>
            {
                Ok(match state {
                    QpState::Rtr => connection.terms.ready_to_receive(attr, self),
                    _ => connection.terms.ready_to_send(attr, self),
                })
            }
            (QpState::Rtr | QpState::Rts, _) => Err(Error::invalid(
                VERB,
                "the peer's queue pair is not known yet: wait for its request or response",
            )),
            _ => Err(Error::invalid(
                VERB,
                format!("the connection manager has nothing to say about {state:?}"),
            )),
        }
    }

    fn unconnected(&self, attr: QpAttr) -> (QpAttr, M) {
        let mask = M::STATE | M::PKEY_INDEX | M::PORT;
        match self.qp_type {
            QpType::Ud => {
                let qkey = self.qkey();
                (QpAttr { qkey, ..attr }, mask | M::QKEY)
            }
            _ => (attr, mask | M::ACCESS_FLAGS),
        }
    }
}

impl Terms {
    /// Those of a service without connection: an address.
    pub(crate) fn of_datagrams(ah: AhAttr, path_mtu: PathMtu) -> Terms {
        Terms {
            ah,
            path_mtu,
            remote_qpn: 0,
            rq_psn: 0,
            sq_psn: 0,
            responder_resources: 0,
            initiator_depth: 0,
            retry_count: 0,
            rnr_retry_count: 0,
            timeout: 0,
        }
    }

    fn ready_to_receive(&self, attr: QpAttr, id: &Entry) -> (QpAttr, M) {
        let attr = QpAttr {
            ah: self.ah,
            path_mtu: Some(self.path_mtu),
            dest_qp_num: self.remote_qpn,
            rq_psn: self.rq_psn,
            ..attr
        };
        let mask = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        match id.qp_type {
            QpType::Rc | QpType::XrcRecv => {
                let attr = QpAttr {
                    max_dest_rd_atomic: self.responder_resources,
                    // Linux' choice: 655 ms.
                    min_rnr_timer: 0,
                    ..attr
                };
                (attr, mask | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER)
            }
            _ => (attr, mask),
        }
    }

    fn ready_to_send(&self, attr: QpAttr, id: &Entry) -> (QpAttr, M) {
        let attr = QpAttr {
            sq_psn: self.sq_psn,
            ..attr
        };
        let mask = M::STATE | M::SQ_PSN;
        let timeout = id.options.ack_timeout.unwrap_or(self.timeout);
        match id.qp_type {
            QpType::Rc | QpType::XrcSend => {
                let attr = QpAttr {
                    retry_cnt: self.retry_count,
                    rnr_retry: self.rnr_retry_count,
                    max_rd_atomic: self.initiator_depth,
                    timeout,
                    ..attr
                };
                let more = M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC | M::TIMEOUT;
                (attr, mask | more)
            }
            QpType::XrcRecv => (QpAttr { timeout, ..attr }, mask | M::TIMEOUT),
            _ => (attr, mask),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ack_timeout;

    #[test]
    fn a_timeout_covers_path_and_peer() {
        // Linux' usual: path 18, delay 15.
        assert_eq!(ack_timeout(15, 18), 19);
        assert_eq!(ack_timeout(15, 15), 17, "as long as the path: twice");
        assert_eq!(ack_timeout(15, 13), 16);
        assert_eq!(ack_timeout(15, 5), 15);
        assert_eq!(ack_timeout(0, 0), 2);
        assert_eq!(ack_timeout(31, 255), 31);
    }
}
