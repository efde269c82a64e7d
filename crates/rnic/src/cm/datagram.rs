//! Datagrams: the way to a service, and multicast groups.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channel::CmChannel;
use super::connector::outcome;
use super::object::{Kind, Link, Object, Phase, RESOLVE_MS, Ready, Reports, Role};
use crate::datagram::{DatagramQueuePair, Destination};
use crate::error::CmError;
use crate::error::{Error, Result};
use crate::nic::QpType;
use crate::nic::cm;

/// A service for datagrams, as it answered; see [`CmConnector::find`](super::CmConnector::find).
#[derive(Clone, Debug)]
pub struct CmDatagramPeer {
    /// Where datagrams go.
    pub destination: Destination,
    /// What the peer's application said with its answer: 136 bytes, zeros behind what it gave.
    pub private_data: Vec<u8>,
}

/// A search for such a service that is under way on a [`CmChannel`]. Dropping it gives up.
pub struct CmSearch {
    peer: SocketAddr,
    /// Until it is finished.
    attempt: Option<(Arc<Object>, DatagramQueuePair)>,
}

impl std::fmt::Debug for CmSearch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CmSearch")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl CmSearch {
    pub(super) fn new(object: Arc<Object>, qp: DatagramQueuePair) -> CmSearch {
        CmSearch {
            peer: object.peer,
            attempt: Some((object, qp)),
        }
    }

    /// The service, or why there is none; `None` as long as neither
    /// [`CmEvent::Connected`](super::CmEvent::Connected) nor
    /// [`CmEvent::Failed`](super::CmEvent::Failed) has come, and once the answer was given.
    pub fn finish(&mut self) -> Option<Result<CmDatagramPeer>> {
        let (object, _) = self.attempt.as_ref()?;
        let ready = outcome(object)?;
        let (_, qp) = self.attempt.take()?;
        Some(ready.and_then(|ready| {
            let how = datagrams(ready)?;
            Ok(CmDatagramPeer {
                destination: destination(&qp, &how)?,
                private_data: how.private_data,
            })
        }))
    }

    /// Whom it looks for.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }
}

fn datagrams(ready: Ready) -> Result<cm::UdEvent> {
    match ready {
        Ready::Datagrams(how) => Ok(how),
        Ready::Connection { .. } => Err(Error::InvalidArgument("not datagrams".to_owned())),
    }
}

fn destination(qp: &DatagramQueuePair, how: &cm::UdEvent) -> Result<Destination> {
    Ok(Destination {
        ah: qp.create_ah(&how.ah)?,
        qpn: how.qp_num,
        qkey: how.qkey,
    })
}

/// How long [`CmMulticast::join`] waits for the resolution of an address.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Membership of a queue pair in a multicast group by the connection manager
/// (`rdma_join_multicast`). Dropping it leaves, with the last of several of one queue pair in one
/// group.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use rnic::cm::{CmMulticast, UDP_QKEY};
/// use rnic::{Context, HEADER_LEN, SendRequest, Ud};
///
/// let context = Context::open()?;
/// let gid = context.loopback_gid()?;
/// let pd = context.alloc_pd()?;
/// let cq = context.create_cq(64).build()?;
/// // Members know each other by the connection manager's queue key.
/// let qp = pd.create_qp::<Ud>(&cq, &cq).gid(&gid).qkey(UDP_QKEY).build()?;
/// if gid.addr.is_ipv4() {
///     let group = CmMulticast::join(&qp, gid.addr, [239, 7, 7, 8].into())?;
///     qp.post_recv(pd.buffer(HEADER_LEN + 64)?, 1)?;
///     qp.post(SendRequest::send_inline(b"all of you").unsignaled(), group.destination())?;
///     let received = cq.wait(std::time::Duration::from_secs(5))?.ok()?;
///     assert_eq!(received.message(), b"all of you");
/// }
/// # Ok(())
/// # }
/// ```
pub struct CmMulticast {
    destination: Destination,
    group: IpAddr,
    qp: DatagramQueuePair,
    _object: Arc<Object>,
}

impl std::fmt::Debug for CmMulticast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CmMulticast")
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

impl CmMulticast {
    /// Joins a group with the address `from` of the device.
    ///
    /// # Errors
    /// [`CmError::Multicast`] or [`Error::Verb`] if the group cannot be joined;
    /// [`Error::InvalidArgument`] if the queue pair's queue key is not the group's,
    /// [`UDP_QKEY`](super::UDP_QKEY): it would hear nothing.
    pub fn join(qp: &DatagramQueuePair, from: IpAddr, group: IpAddr) -> Result<CmMulticast> {
        let reports = Reports::private(qp.is_system())?;
        let channel = reports.channel.clone();
        let mut joining = CmJoining::begin(reports, qp, from, group)?;
        let deadline = Instant::now() + RESOLVE_TIMEOUT;
        let done = channel.drive(Some(deadline), || joining.finish())?;
        done.unwrap_or_else(|| {
            let (peer, after) = (SocketAddr::new(group, 0), RESOLVE_TIMEOUT);
            Err(CmError::TimedOut { peer, after }.into())
        })
    }

    /// Starts joining, and returns at once. News come to `channel`, with `token`.
    ///
    /// # Errors
    /// [`Error::Verb`]: which call was refused.
    pub fn start(
        channel: &CmChannel,
        token: u64,
        qp: &DatagramQueuePair,
        from: IpAddr,
        group: IpAddr,
    ) -> Result<CmJoining> {
        CmJoining::begin(Reports::to(channel, token), qp, from, group)
    }

    /// Where datagrams to all members go.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// The group's address.
    pub fn group(&self) -> IpAddr {
        self.group
    }
}

impl Drop for CmMulticast {
    fn drop(&mut self) {
        self.qp.leave(self.group);
    }
}

/// A membership that begins, on a [`CmChannel`]. Dropping it gives up.
pub struct CmJoining {
    group: IpAddr,
    /// Until it is finished.
    attempt: Option<(Arc<Object>, DatagramQueuePair)>,
}

impl std::fmt::Debug for CmJoining {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CmJoining")
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

impl CmJoining {
    fn begin(
        reports: Reports,
        qp: &DatagramQueuePair,
        from: IpAddr,
        group: IpAddr,
    ) -> Result<CmJoining> {
        reports.check(qp.is_system())?;
        let to = SocketAddr::new(group, 0);
        let link = Link {
            kind: Kind::Group,
            private_data: Vec::new(),
            phase: Phase::Working,
        };
        let object = Object::new(reports, QpType::Ud, to, Role::Link(link))?;
        let source = SocketAddr::new(from, 0);
        object.id.resolve_addr(Some(source), to, RESOLVE_MS)?;
        Ok(CmJoining {
            group,
            attempt: Some((object, qp.clone())),
        })
    }

    /// The membership, or why there is none; `None` as long as neither
    /// [`CmEvent::Connected`](super::CmEvent::Connected) nor
    /// [`CmEvent::Failed`](super::CmEvent::Failed) has come, and once the answer was given. Errors
    /// are those of [`CmMulticast::join`].
    pub fn finish(&mut self) -> Option<Result<CmMulticast>> {
        let (object, _) = self.attempt.as_ref()?;
        let ready = outcome(object)?;
        let (object, qp) = self.attempt.take()?;
        let group = self.group;
        Some(ready.and_then(|ready| {
            let how = datagrams(ready)?;
            if how.qkey != qp.qkey() {
                return Err(Error::InvalidArgument(format!(
                    "the queue pair's queue key is {:#x}, the group's {:#x}: build it with .qkey({:#x})",
                    qp.qkey(),
                    how.qkey,
                    how.qkey
                )));
            }
            let destination = destination(&qp, &how)?;
            qp.join(group)?;
            Ok(CmMulticast {
                destination,
                group,
                qp,
                _object: object,
            })
        }))
    }

    /// The group's address.
    pub fn group(&self) -> IpAddr {
        self.group
    }
}
