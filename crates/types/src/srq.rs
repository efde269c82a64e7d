//! Attributes of shared receive queues (`ibv_modify_srq(3)`).

/// Sizes of a shared receive queue (`struct ibv_srq_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrqAttr {
    /// Work requests it holds.
    pub max_wr: u32,
    /// Scatter entries of one work request.
    pub max_sge: u32,
    /// The event IBV_EVENT_SRQ_LIMIT_REACHED comes when fewer receives than this are posted; 0:
    /// disarmed.
    pub srq_limit: u32,
}

/// Which attributes `ibv_modify_srq(3)` changes; the bits of `enum ibv_srq_attr_mask`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrqAttrMask(pub u32);

impl SrqAttrMask {
    /// The number of work requests it holds.
    pub const MAX_WR: SrqAttrMask = SrqAttrMask(1);
    /// Arms the limit event.
    pub const LIMIT: SrqAttrMask = SrqAttrMask(2);

    /// Some bit of `other` is set.
    pub const fn intersects(self, other: SrqAttrMask) -> bool {
        self.0 & other.0 != 0
    }
}
