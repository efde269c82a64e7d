//! What a device can do that it does not tell: it is tried.

use rnic_types::{QpCap, QpType};

use crate::objects::context::{Context, extended};
use crate::objects::qp::QpInit;

/// What a device can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Unreliable connections.
    pub uc: bool,
    /// Unreliable datagrams.
    pub ud: bool,
    /// Atomic operations.
    pub atomics: bool,
    /// Shared receive queues.
    pub srq: bool,
    /// XRC.
    pub xrc: bool,
    /// Memory windows of type 2.
    pub windows: bool,
    /// Groups of datagrams.
    pub multicast: bool,
    /// A group's members on the sender's own device get their copies, too.
    pub multicast_loopback: bool,
    /// Failures end as the specification says; see `exact_failures` of rnic's capabilities.
    pub exact_failures: bool,
    /// Failures are told as asynchronous events.
    pub failure_events: bool,
    /// Completions can be stamped.
    pub timestamps: bool,
    /// Most READs and atomics in flight, of a queue pair.
    pub max_rd_atomic: u8,
    /// The most inline data of a queue pair, of those sizes that are tried.
    pub max_inline_data: u32,
}

/// Sizes of inline data that are tried.
const INLINE: [u32; 9] = [1024, 512, 400, 256, 220, 128, 64, 32, 16];

/// Vendor and part of Linux's Soft-RoCE.
const SOFT_ROCE: (u32, u32) = (0xff_ffff, 0);

/// What has to be tried.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    uc: bool,
    ud: bool,
    max_inline_data: u32,
}

impl Context {
    /// Says what the device can do. The first call tries what it does not tell: a few queue pairs
    /// are made and destroyed.
    pub fn abilities(&self) -> Abilities {
        let tried = self.inner.tried.get_or_init(|| Tried {
            uc: self.makes(QpType::Uc, 0),
            ud: self.makes(QpType::Ud, 0),
            max_inline_data: INLINE
                .into_iter()
                .find(|bytes| self.makes(QpType::Rc, *bytes))
                .unwrap_or(0),
        });
        Abilities {
            uc: tried.uc,
            ud: tried.ud,
            max_inline_data: tried.max_inline_data,
            ..self.told()
        }
    }

    /// What the device tells by itself: all but unreliable services and inline data.
    pub fn told(&self) -> Abilities {
        const XRC: u32 = 1 << 20;
        const WINDOWS_2A: u32 = 1 << 23;
        const WINDOWS_2B: u32 = 1 << 24;
        let attr = &self.inner.attr;
        let has = |bits: u32| attr.device_cap_flags & bits != 0;
        // What it does otherwise than the specification no call tells (docs/interop.md).
        let soft_roce = (attr.vendor_id, attr.vendor_part_id) == SOFT_ROCE;
        let rd_atomic = attr.max_qp_rd_atom.min(attr.max_qp_init_rd_atom);
        // SAFETY: an open device, whose table does not change.
        let ops = unsafe { &self.inner.ptr.as_ref().ops };
        Abilities {
            atomics: attr.atomic_cap != 0,
            srq: attr.max_srq > 0 && ops.post_srq_recv.is_some(),
            xrc: has(XRC)
                && extended!(self, open_xrcd).is_some()
                && extended!(self, create_srq_ex).is_some()
                && extended!(self, create_qp_ex).is_some(),
            windows: has(WINDOWS_2A | WINDOWS_2B) && ops.alloc_mw.is_some(),
            multicast: attr.max_mcast_grp > 0,
            multicast_loopback: attr.max_mcast_grp > 0 && !soft_roce,
            exact_failures: !soft_roce,
            failure_events: !soft_roce,
            timestamps: self.stamps(),
            max_rd_atomic: rd_atomic.clamp(0, u8::MAX.into()) as u8,
            ..Abilities::default()
        }
    }

    /// A small queue pair of this service can be made.
    fn makes(&self, qp_type: QpType, max_inline_data: u32) -> bool {
        let (Ok(pd), Ok(cq)) = (self.alloc_pd(), self.create_cq(1, None, 0, false)) else {
            return false;
        };
        let made = pd.create_qp(&QpInit {
            qp_type,
            send_cq: cq.clone(),
            recv_cq: cq,
            srq: None,
            cap: QpCap {
                max_send_wr: 1,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data,
            },
            sq_sig_all: false,
            cookie: 0,
        });
        made.is_ok_and(|qp| qp.cap().max_inline_data >= max_inline_data)
    }
}
