//! From a queue pair that was just made to one that is connected: the attributes of each step,
//! whatever its service.

use std::hash::{BuildHasher, Hasher};

use crate::context::{Context, path_mtu_of};
use crate::device;
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::nic::{Access, AhAttr, GidEntry, PathMtu, QpAttr, QpAttrMask, QpState, QpType};

/// Where a queue pair is, as far as its builder was told.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub(crate) gid: Option<GidEntry>,
    pub(crate) path_mtu: Option<PathMtu>,
}

impl Place {
    /// The address and the largest path MTU.
    pub(crate) fn settle(&self, context: &Context) -> Result<(GidEntry, PathMtu)> {
        let gid = match &self.gid {
            Some(gid) => gid.clone(),
            None => context.routable_gid(1)?,
        };
        let largest = path_mtu_of(&gid);
        let path_mtu = self.path_mtu.map_or(largest, |mtu| mtu.min(largest));
        Ok((gid, path_mtu))
    }
}

/// What is posted to it, or has been begun, completes from here on: as flushed.
pub(crate) fn fail(qp: &device::Qp) {
    let failed = QpAttr {
        qp_state: QpState::Err,
        ..QpAttr::default()
    };
    // Refused by a device that failed or is another process's: nothing completes there any more.
    let _ = qp.modify(&failed, QpAttrMask::STATE);
}

/// The setters that the builders of all queue pairs with a peer have in common: what goes to their
/// `place` and `settings`.
macro_rules! common_setters {
    () => {
        /// The local address; [`Context::routable_gid`](crate::Context::routable_gid) if not set.
        pub fn gid(mut self, gid: &GidEntry) -> Self {
            self.place.gid = Some(gid.clone());
            self
        }

        /// Largest path MTU; what the address's interface takes if not set. The peer may have less.
        pub fn path_mtu(mut self, mtu: PathMtu) -> Self {
            self.place.path_mtu = Some(mtu);
            self
        }

        /// Index of its P_Key in the port's table ([`Context::pkeys`](crate::Context::pkeys)); 0 if
        /// not set.
        pub fn pkey_index(mut self, index: u16) -> Self {
            self.settings.pkey_index = index;
            self
        }

        /// What peers may do through this queue pair, beside the rights of each region; everything
        /// if not set. What the device has not, they cannot do in any case.
        pub fn access(mut self, access: Access) -> Self {
            self.settings.access = access;
            self
        }

        /// Code of the wait that the peer is told when no receive is posted here; 12 (0.64 ms) if
        /// not set.
        pub fn min_rnr_timer(mut self, code: u8) -> Self {
            self.settings.min_rnr_timer = code;
            self
        }

        /// Traffic class (IPv6) or type of service (IPv4) and hop limit of packets; 0 and 64 if not
        /// set.
        pub fn ip_header(mut self, traffic_class: u8, hop_limit: u8) -> Self {
            self.settings.traffic_class = traffic_class;
            self.settings.hop_limit = hop_limit;
            self
        }
    };
}
pub(crate) use common_setters;

/// Attributes of a queue pair that its builder sets. Each service takes those it has a use for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) access: Access,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    /// The program has chosen these two.
    pub(crate) rd_atomic_chosen: bool,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) psn: u32,
    pub(crate) qkey: u32,
    pub(crate) pkey_index: u16,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            access: Access::REMOTE_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_ATOMIC
                | Access::FLUSH_GLOBAL,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            rd_atomic_chosen: false,
            traffic_class: 0,
            hop_limit: 64,
            psn: random_psn(),
            qkey: 0x1111_1111,
            pkey_index: 0,
        }
    }
}

impl Settings {
    /// Takes back what was not asked for and the device has not. The software NIC has everything.
    pub(crate) fn fit(&mut self, context: &Context) {
        let Some(can) = context.raw.told() else {
            return;
        };
        let mut missing = Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
        if !can.atomics {
            missing = missing | Access::REMOTE_ATOMIC;
        }
        self.access = Access(self.access.0 & !missing.0);
        if !self.rd_atomic_chosen {
            self.max_rd_atomic = self.max_rd_atomic.min(can.max_rd_atomic);
            self.max_dest_rd_atomic = self.max_dest_rd_atomic.min(can.max_rd_atomic);
        }
    }

    /// RESET to INIT.
    pub(crate) fn init(&self, qp: &device::Qp) -> Result<()> {
        let own = match qp.qp_type() {
            QpType::Ud => QpAttrMask::QKEY,
            _ => QpAttrMask::ACCESS_FLAGS,
        };
        let attr = QpAttr {
            qp_state: QpState::Init,
            port_num: 1,
            qp_access_flags: self.access,
            qkey: self.qkey,
            pkey_index: self.pkey_index,
            ..QpAttr::default()
        };
        let always = [QpAttrMask::STATE, QpAttrMask::PKEY_INDEX, QpAttrMask::PORT];
        Ok(qp.modify(&attr, mask(&always) | own)?)
    }

    pub(crate) fn endpoint(&self, gid: &GidEntry, qpn: u32, path_mtu: PathMtu) -> Endpoint {
        Endpoint {
            gid: gid.gid,
            qpn,
            psn: self.psn,
            path_mtu,
        }
    }

    /// INIT to RTR, of a service that has connections.
    pub(crate) fn receive_ready(
        &self,
        qp: &device::Qp,
        gid: &GidEntry,
        local: &Endpoint,
        remote: &Endpoint,
    ) -> Result<()> {
        if local.addr().is_ipv4() != remote.addr().is_ipv4() {
            return Err(Error::GidMismatch {
                local: local.addr(),
                remote: remote.addr(),
            });
        }
        let sgid_index = u8::try_from(gid.index).map_err(|_| Error::UnknownGid {
            what: format!("GID index {} (larger than 255)", gid.index),
        })?;
        let attr = QpAttr {
            qp_state: QpState::Rtr,
            path_mtu: Some(local.path_mtu.min(remote.path_mtu)),
            dest_qp_num: remote.qpn,
            rq_psn: remote.psn,
            max_dest_rd_atomic: self.max_dest_rd_atomic,
            min_rnr_timer: self.min_rnr_timer,
            ah: AhAttr {
                dgid: remote.gid,
                sgid_index,
                hop_limit: self.hop_limit,
                traffic_class: self.traffic_class,
                is_global: true,
                port_num: 1,
                ..AhAttr::default()
            },
            ..QpAttr::default()
        };
        let answers = matches!(qp.qp_type(), QpType::Rc | QpType::XrcRecv);
        let mask = only(
            answers,
            &[
                QpAttrMask::STATE,
                QpAttrMask::AV,
                QpAttrMask::PATH_MTU,
                QpAttrMask::DEST_QPN,
                QpAttrMask::RQ_PSN,
            ],
            &[QpAttrMask::MAX_DEST_RD_ATOMIC, QpAttrMask::MIN_RNR_TIMER],
        );
        Ok(qp.modify(&attr, mask)?)
    }

    /// RTR to RTS.
    pub(crate) fn send_ready(&self, qp: &device::Qp) -> Result<()> {
        let attr = QpAttr {
            qp_state: QpState::Rts,
            sq_psn: self.psn,
            timeout: self.timeout,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            max_rd_atomic: self.max_rd_atomic,
            ..QpAttr::default()
        };
        let awaits_answers = matches!(qp.qp_type(), QpType::Rc | QpType::XrcSend);
        let mask = only(
            awaits_answers,
            &[QpAttrMask::STATE, QpAttrMask::SQ_PSN],
            &[
                QpAttrMask::TIMEOUT,
                QpAttrMask::RETRY_CNT,
                QpAttrMask::RNR_RETRY,
                QpAttrMask::MAX_QP_RD_ATOMIC,
            ],
        );
        Ok(qp.modify(&attr, mask)?)
    }
}

fn mask(bits: &[QpAttrMask]) -> QpAttrMask {
    QpAttrMask(bits.iter().fold(0, |all, bit| all | bit.0))
}

/// `always`, and `more` if `wanted`.
fn only(wanted: bool, always: &[QpAttrMask], more: &[QpAttrMask]) -> QpAttrMask {
    mask(always) | if wanted { mask(more) } else { QpAttrMask(0) }
}

/// The standard library seeds its hashers from the system's randomness.
fn random_psn() -> u32 {
    let hash = std::hash::RandomState::new().build_hasher().finish();
    hash as u32 & 0xff_ffff
}
