//! Memory windows: a part of a region, open to peers for as long as the program likes.

use std::ops::RangeBounds;
use std::sync::Arc;

use crate::device;
use crate::endpoint::RemoteMemory;
use crate::error::{Error, Result};
use crate::nic::{BindWindow, SendOp};
use crate::pd::ProtectionDomain;
use crate::post::SendRequest;
use crate::raw::memory::{WritableRegion, resolve_range};

/// What peers may do through a window; the region must allow at least as much memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowRights {
    /// RDMA READ.
    pub read: bool,
    /// RDMA WRITE.
    pub write: bool,
    /// Atomics.
    pub atomic: bool,
}

/// A memory window of type 2 (`ibv_alloc_mw`): opens a part of a [`WritableRegion`] to the peer of
/// the queue pair that binds it, until it is invalidated, by the program or by the peer's last SEND
/// ([`SendRequest::invalidate`]), or dropped.
///
/// Binding and invalidating are requests for the send queue, done in its order: a SEND posted
/// behind a bind tells the peer of a window that is open already. To open a window costs no
/// registration, which makes it the way to lend memory for one transfer.
///
/// ```
/// # use rnic::{Context, SendRequest, WindowRights};
/// # fn f(qp: rnic::QueuePair) -> Result<(), Box<dyn std::error::Error>> {
/// # let pd = Context::open()?.alloc_pd()?;
/// let region = pd.writable(1 << 20).bindable().build()?;
/// let mut window = pd.window()?;
/// let rights = WindowRights { write: true, ..WindowRights::default() };
/// let (bind, lent) = window.bind(&region, 4096..8192, rights)?;
/// qp.post(bind)?;
/// qp.post(SendRequest::send_inline(&lent.to_bytes()))?;
/// // ... the peer writes and says so with a SEND that invalidates `lent.rkey`.
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MemoryWindow {
    /// Closed when dropped, before the region.
    mw: Arc<device::Mw>,
    /// Key of the latest bind.
    rkey: u32,
    /// What it was bound to last: kept as long as peers may reach it.
    region: Option<WritableRegion>,
    _pd: ProtectionDomain,
}

impl MemoryWindow {
    pub(crate) fn new(pd: &ProtectionDomain) -> Result<MemoryWindow> {
        let mw = pd.raw().alloc_mw()?;
        Ok(MemoryWindow {
            rkey: mw.first_rkey(),
            mw: Arc::new(mw),
            region: None,
            _pd: pd.clone(),
        })
    }

    /// The request that opens `range` of `region`, and what the peer needs to know. Each bind has a
    /// key of its own, so that a peer that still has an earlier one reaches nothing.
    ///
    /// The request fails ([`Status::MemoryWindowBindError`](crate::Status::MemoryWindowBindError))
    /// if the window is still bound, or if the region was not built
    /// [`bindable`](crate::WritableRegionBuilder::bindable).
    pub fn bind(
        &mut self,
        region: &WritableRegion,
        range: impl RangeBounds<usize>,
        rights: WindowRights,
    ) -> Result<(SendRequest, RemoteMemory)> {
        let (start, len) = resolve_range(range, region.len())?;
        if len == 0 {
            return Err(Error::InvalidArgument(
                "a window has at least one byte".into(),
            ));
        }
        // The last byte is the program's to choose.
        self.rkey = (self.rkey & !0xff) | (self.rkey.wrapping_add(1) & 0xff);
        self.region = Some(region.clone());
        let whole = region.remote();
        let lent = RemoteMemory {
            addr: whole.addr + start as u64,
            len: len as u64,
            rkey: self.rkey,
        };
        let bind = BindWindow {
            rkey: self.rkey,
            lkey: region.lkey(),
            addr: lent.addr,
            length: lent.len,
            read: rights.read,
            write: rights.write,
            atomic: rights.atomic,
            zero_based: false,
        };
        let bind = SendRequest::bind(SendOp::BindWindow(bind), &self.mw, region);
        Ok((bind, lent))
    }

    /// The request that closes what was bound last (`IBV_WR_LOCAL_INV`). It fails if the peer has
    /// closed it already.
    pub fn invalidate(&self) -> SendRequest {
        SendRequest::local(SendOp::LocalInvalidate(self.rkey))
    }

    /// The key of the latest bind.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }
}

impl ProtectionDomain {
    /// Makes a memory window that is bound to nothing.
    pub fn window(&self) -> Result<MemoryWindow> {
        MemoryWindow::new(self)
    }
}
