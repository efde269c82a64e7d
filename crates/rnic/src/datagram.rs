//! Unreliable datagrams: one queue pair talks with any number of peers, and with multicast groups.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use rnic::{Context, Destination, HEADER_LEN, SendRequest, Ud};
//!
//! let context = Context::open()?;
//! let gid = context.loopback_gid()?;
//! let pd = context.alloc_pd()?;
//! let cq = context.create_cq(64).build()?;
//! let left = pd.create_qp::<Ud>(&cq, &cq).gid(&gid).build()?;
//! let right = pd.create_qp::<Ud>(&cq, &cq).gid(&gid).build()?;
//!
//! right.post_recv(pd.buffer(HEADER_LEN + 64)?, 1)?;
//! let to = Destination {
//!     ah: pd.create_ah(&gid, gid.addr)?,
//!     qpn: right.qpn(),
//!     qkey: right.qkey(),
//! };
//! left.post(SendRequest::send_inline(b"hello").unsignaled(), &to)?;
//! let received = cq.wait(Duration::from_secs(5))?.ok()?;
//! assert_eq!(received.message(), b"hello");
//! assert_eq!(received.source(), Some((gid.addr, left.qpn())));
//! # Ok(())
//! # }
//! ```

use std::net::IpAddr;
use std::sync::Arc;

use rustix_futex_sync::Mutex;

use crate::completion::Completion;
use crate::device;
use crate::error::{Error, Result};
use crate::gather::Piece;
use crate::nic::{self, AhAttr, Counters, Gid, GidEntry, QpState};
use crate::pd::ProtectionDomain;
use crate::post::{PostError, RecvError, SendRequest};
use crate::qp::Inner;
use crate::raw::memory::Buffer;

/// Bytes in front of every received datagram: the network header it came with (GRH). A receive has
/// to have room for them and the message.
pub const HEADER_LEN: usize = 40;

/// The QP number that means all members of a multicast group.
pub const MULTICAST_QPN: u32 = 0xff_ffff;

/// A way to a peer or a multicast group (`ibv_create_ah`). Cheap to clone.
#[derive(Clone, Debug)]
pub struct AddressHandle {
    ah: device::Ah,
}

impl ProtectionDomain {
    /// A way from one of this host's addresses to a peer, or to a multicast group.
    ///
    /// # Errors
    /// When the two are not of one kind, IPv4 or IPv6, or no way leads there.
    pub fn create_ah(&self, from: &GidEntry, to: IpAddr) -> Result<AddressHandle> {
        let sgid_index = u8::try_from(from.index).map_err(|_| Error::UnknownGid {
            what: format!("GID index {} (larger than 255)", from.index),
        })?;
        let ah = self.raw().create_ah(&AhAttr {
            dgid: Gid::from(to),
            sgid_index,
            hop_limit: if to.is_multicast() { 1 } else { 64 },
            is_global: true,
            port_num: 1,
            ..AhAttr::default()
        })?;
        Ok(AddressHandle { ah })
    }

    /// The way back to whoever sent this datagram (`ibv_create_ah_from_wc`); [`Completion::source`]
    /// has his QP number.
    ///
    /// # Errors
    /// When it is no received datagram, or one that came to a multicast group: none of our
    /// addresses is in it then.
    pub fn create_ah_from(&self, received: &Completion) -> Result<AddressHandle> {
        let header = received.header().ok_or_else(|| {
            Error::InvalidArgument("the completion is none of a received datagram".into())
        })?;
        let attr = self.raw().ah_attr_from(header)?;
        Ok(AddressHandle {
            ah: self.raw().create_ah(&attr)?,
        })
    }
}

/// Where a datagram goes.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The way.
    pub ah: AddressHandle,
    /// QP number there; [`MULTICAST_QPN`] for a group.
    pub qpn: u32,
    /// Queue key of the receiver: with another one it does not hear. The highest bit is reserved.
    pub qkey: u32,
}

impl SendRequest {
    /// The same as a datagram.
    pub(crate) fn to(self, to: &Destination) -> std::result::Result<SendRequest, PostError> {
        self.addressed(&to.ah.ah, to.qpn, to.qkey & !(1 << 31))
    }
}

/// A UD queue pair, ready to send and to receive. Dropping its last handle destroys it.
#[derive(Clone)]
pub struct DatagramQueuePair {
    inner: Arc<Inner>,
    qkey: u32,
    /// Of the memberships by the connection manager, one entry for each.
    groups: Arc<Mutex<Vec<IpAddr>>>,
}

impl std::fmt::Debug for DatagramQueuePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatagramQueuePair")
            .field("qpn", &self.qpn())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl DatagramQueuePair {
    pub(crate) fn new(inner: Inner, qkey: u32) -> DatagramQueuePair {
        DatagramQueuePair {
            inner: Arc::new(inner),
            qkey,
            groups: Arc::default(),
        }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    pub(crate) fn raw(&self) -> &device::Qp {
        &self.inner.qp
    }

    pub(crate) fn is_system(&self) -> bool {
        self.inner.is_system()
    }

    /// Index of its P_Key.
    pub(crate) fn pkey_index(&self) -> u16 {
        self.inner.qp.pkey_index()
    }

    /// A way that the connection manager found.
    pub(crate) fn create_ah(&self, attr: &AhAttr) -> Result<AddressHandle> {
        let ah = self.inner.pd().raw().create_ah(attr)?;
        Ok(AddressHandle { ah })
    }

    /// Posts a SEND of at most the port's MTU to `to`. What has no receive there, or the wrong
    /// queue key, or is lost on the way, is lost without a word; the completion only says that it
    /// has left.
    ///
    /// # Errors
    /// As [`QueuePair::post`](crate::QueuePair::post); other operations than SEND are refused.
    pub fn post(
        &self,
        request: SendRequest,
        to: &Destination,
    ) -> std::result::Result<(), PostError> {
        self.inner.post_send(request.to(to)?)
    }

    /// Posts a receive: the next datagram lands in `buffer`, behind [`HEADER_LEN`] bytes. One that
    /// has no room for it fails, and the queue pair with it.
    pub fn post_recv(&self, buffer: Buffer, id: u64) -> std::result::Result<(), RecvError> {
        self.inner.post_recv(Piece::whole(buffer).into(), id)
    }

    /// Gets a copy of every datagram to `group` from now on (`ibv_attach_mcast`).
    ///
    /// # Errors
    /// When it is no multicast address, or cannot be joined on any interface.
    pub fn attach(&self, group: IpAddr) -> Result<()> {
        Ok(self.inner.qp.attach_mcast(Gid::from(group))?)
    }

    /// Gets no more copies (`ibv_detach_mcast`).
    ///
    /// # Errors
    /// When it was not attached.
    pub fn detach(&self, group: IpAddr) -> Result<()> {
        Ok(self.inner.qp.detach_mcast(Gid::from(group))?)
    }

    /// Attached for one membership more.
    pub(crate) fn join(&self, group: IpAddr) -> Result<()> {
        self.inner.qp.check_alive("ibv_attach_mcast")?;
        let mut groups = self.groups.lock();
        self.attach(group)?;
        groups.push(group);
        Ok(())
    }

    /// For one less: with the last one it hears no more of the group.
    pub(crate) fn leave(&self, group: IpAddr) {
        if self.inner.qp.check_alive("ibv_detach_mcast").is_err() {
            return;
        }
        let mut groups = self.groups.lock();
        if let Some(place) = groups.iter().position(|other| *other == group) {
            groups.swap_remove(place);
        }
        if !groups.contains(&group) {
            // The program may have detached by itself.
            let _ = self.detach(group);
        }
    }

    /// Queue pair number.
    pub fn qpn(&self) -> u32 {
        self.inner.qp.qpn()
    }

    /// The protection domain it was created in.
    pub fn pd(&self) -> &ProtectionDomain {
        self.inner.pd()
    }

    /// Queue key: what senders must know.
    pub fn qkey(&self) -> u32 {
        self.qkey
    }

    /// State now: RTS until something fails. A send that fails leads to SQE, see
    /// [`DatagramQueuePair::recover`].
    pub fn state(&self) -> QpState {
        self.inner.qp.state()
    }

    /// State and attributes now (`ibv_query_qp`).
    pub fn query(&self) -> Result<nic::QpAttr> {
        Ok(self.inner.qp.query()?)
    }

    /// After a send has failed (SQE): sends again. What was posted behind the failed one was
    /// flushed.
    ///
    /// # Errors
    /// When no send has failed.
    pub fn recover(&self) -> Result<()> {
        let attr = nic::QpAttr {
            qp_state: QpState::Rts,
            cur_qp_state: QpState::Sqe,
            ..nic::QpAttr::default()
        };
        let mask = nic::QpAttrMask::STATE | nic::QpAttrMask::CUR_STATE;
        Ok(self.inner.qp.modify(&attr, mask)?)
    }

    /// Datagrams sent, received, dropped.
    pub fn counters(&self) -> Counters {
        self.inner.qp.counters()
    }
}
