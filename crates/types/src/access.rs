//! Access rights of regions, windows and queue pairs (IBTA vol. 1, 10.6.3; `ibv_reg_mr(3)`).

/// Access rights; the bits of `enum ibv_access_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(pub u32);

impl Access {
    /// The NIC may write on behalf of local work requests.
    pub const LOCAL_WRITE: Access = Access(1);
    /// Peers may RDMA WRITE.
    pub const REMOTE_WRITE: Access = Access(2);
    /// Peers may RDMA READ.
    pub const REMOTE_READ: Access = Access(4);
    /// Peers may execute atomics.
    pub const REMOTE_ATOMIC: Access = Access(8);
    /// Memory windows may be bound.
    pub const MW_BIND: Access = Access(16);
    /// Addresses count from 0 at the first byte.
    pub const ZERO_BASED: Access = Access(32);
    /// On-demand paging.
    pub const ON_DEMAND: Access = Access(64);
    /// Backed by huge pages.
    pub const HUGETLB: Access = Access(128);
    /// Peers may FLUSH to global visibility.
    pub const FLUSH_GLOBAL: Access = Access(256);
    /// Peers may FLUSH to persistence.
    pub const FLUSH_PERSISTENT: Access = Access(512);
    /// First of the optional bits, which a device may ignore (`IBV_ACCESS_OPTIONAL_FIRST`).
    pub const OPTIONAL_FIRST: Access = Access(1 << 20);
    /// Relaxed ordering: the first optional bit.
    pub const RELAXED_ORDERING: Access = Access(1 << 20);

    /// Every bit of `other` is set.
    pub const fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    /// Some bit of `other` is set.
    pub const fn intersects(self, other: Access) -> bool {
        self.0 & other.0 != 0
    }
}

impl core::ops::BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}
