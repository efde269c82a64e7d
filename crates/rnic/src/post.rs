//! Work requests of the send queue.

use std::ops::RangeBounds;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::device::{self, Request, Work};
use crate::endpoint::RemoteMemory;
use crate::error::{Error, Result};
use crate::gather::{Piece, Pieces};
use crate::nic::{Flush, Placement, QpCap, SendData, SendOp, SendWqe};
use crate::raw::memory::Buffer;
use crate::raw::memory::{WritableRegion, resolve_range};
use crate::work::Entry;

/// A request for the send queue (`struct ibv_send_wr`): an operation, its data, and flags.
///
/// ```
/// # use rnic::{Context, SendRequest};
/// # fn main() -> rnic::Result<()> {
/// # let pd = Context::open()?.alloc_pd()?;
/// let hello = SendRequest::send(pd.buffer_from(b"hello")?).id(1);
/// let tail = SendRequest::send(pd.buffer(4096)?).range(4000..)?.imm(*b"tail").solicited();
/// let tiny = SendRequest::send_inline(b"ten bytes.").unsignaled();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a request does nothing until it is posted"]
pub struct SendRequest {
    op: SendOp,
    data: Data,
    pub(crate) id: u64,
    pub(crate) signaled: bool,
    solicited: bool,
    fence: bool,
    /// XRC: the peer's receive queue.
    srqn: u32,
    names: Names,
}

/// What a device of the system wants to be named by pointer.
#[derive(Debug)]
enum Names {
    Nothing,
    Way(rnic_libibverbs::Ah),
    Window(Arc<device::Mw>, WritableRegion),
}

#[derive(Debug)]
enum Data {
    Gather(Pieces),
    Inline(SmallVec<[u8; 64]>),
}

impl SendRequest {
    fn new(op: SendOp, data: Data) -> SendRequest {
        SendRequest {
            op,
            data,
            id: 0,
            signaled: true,
            solicited: false,
            fence: false,
            srqn: 0,
            names: Names::Nothing,
        }
    }

    fn whole(buffer: Buffer) -> Data {
        Data::Gather(Piece::whole(buffer).into())
    }

    /// What has no data: what the device does by itself, and FLUSH.
    pub(crate) fn local(op: SendOp) -> SendRequest {
        SendRequest::new(op, Data::Inline(SmallVec::new()))
    }

    /// A bind: of this window, to this region.
    pub(crate) fn bind(op: SendOp, window: &Arc<device::Mw>, region: &WritableRegion) -> Self {
        SendRequest {
            names: Names::Window(window.clone(), region.clone()),
            ..SendRequest::local(op)
        }
    }

    /// SEND: the message goes into a receive that the peer has posted.
    pub fn send(buffer: Buffer) -> SendRequest {
        SendRequest::new(SendOp::Send, Self::whole(buffer))
    }

    /// SEND of a few bytes that are copied now (`IBV_SEND_INLINE`), up to the queue pair's
    /// `max_inline_data`.
    pub fn send_inline(bytes: &[u8]) -> SendRequest {
        SendRequest::new(SendOp::Send, Data::Inline(SmallVec::from_slice(bytes)))
    }

    /// RDMA WRITE to the start of `to`.
    pub fn write(buffer: Buffer, to: RemoteMemory) -> SendRequest {
        SendRequest::new(Self::write_op(to), Self::whole(buffer))
    }

    /// RDMA WRITE of a few bytes that are copied now.
    pub fn write_inline(bytes: &[u8], to: RemoteMemory) -> SendRequest {
        SendRequest::new(
            Self::write_op(to),
            Data::Inline(SmallVec::from_slice(bytes)),
        )
    }

    fn write_op(to: RemoteMemory) -> SendOp {
        SendOp::Write {
            remote_addr: to.addr,
            rkey: to.rkey,
        }
    }

    /// RDMA READ from the start of `from`, as many bytes as `buffer` has.
    pub fn read(buffer: Buffer, from: RemoteMemory) -> SendRequest {
        let op = SendOp::Read {
            remote_addr: from.addr,
            rkey: from.rkey,
        };
        SendRequest::new(op, Self::whole(buffer))
    }

    /// Atomic compare-and-swap of the 8 bytes at `at`: stores `swap` if they are `compare`. The
    /// value found lands in `buffer`
    /// ([`Completion::original_value`](crate::Completion::original_value)); it must have 8 bytes or
    /// more.
    pub fn compare_swap(buffer: Buffer, at: RemoteMemory, compare: u64, swap: u64) -> SendRequest {
        let op = SendOp::CompareSwap {
            remote_addr: at.addr,
            rkey: at.rkey,
            compare,
            swap,
        };
        SendRequest::new(op, Self::word(buffer))
    }

    /// Atomic fetch-and-add on the 8 bytes at `at`. The value found lands in `buffer`, which must
    /// have 8 bytes or more.
    pub fn fetch_add(buffer: Buffer, at: RemoteMemory, add: u64) -> SendRequest {
        let op = SendOp::FetchAdd {
            remote_addr: at.addr,
            rkey: at.rkey,
            add,
        };
        SendRequest::new(op, Self::word(buffer))
    }

    /// FLUSH: completes when earlier WRITEs of this queue pair to `of` are visible to whoever reads
    /// the peer's memory. The region has to allow it
    /// ([`WritableRegionBuilder::flushable`](crate::WritableRegionBuilder::flushable)).
    pub fn flush(of: RemoteMemory) -> SendRequest {
        SendRequest::local(SendOp::Flush(Flush {
            remote_addr: of.addr,
            rkey: of.rkey,
            length: of.len,
            whole_region: false,
            placement: Placement {
                global: true,
                persistent: false,
            },
        }))
    }

    /// Atomics use the first eight bytes of a buffer.
    fn word(buffer: Buffer) -> Data {
        let len = buffer.len().min(8);
        Data::Gather(
            Piece {
                len,
                ..Piece::whole(buffer)
            }
            .into(),
        )
    }

    /// Adds a buffer to the gather list of a SEND or WRITE, or to the scatter list of a READ: its
    /// bytes follow those of the buffers before. The queue pair takes as many as
    /// [`max_send_sge`](crate::QueuePairBuilder::max_send_sge) says. The completion gives all of
    /// them back ([`Completion::into_buffers`](crate::Completion::into_buffers)).
    ///
    /// ```
    /// # use rnic::{Context, SendRequest};
    /// # fn main() -> rnic::Result<()> {
    /// # let pd = Context::open()?.alloc_pd()?;
    /// let (header, payload) = (pd.buffer_from(b"PUT key ")?, pd.buffer(4096)?);
    /// let put = SendRequest::send(header).and(payload)?.range(..100)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The request has inline data or none, or takes no more than one buffer; both come back. The
    /// queue pair takes one by default, and refuses more when they are posted.
    pub fn and(mut self, buffer: Buffer) -> std::result::Result<SendRequest, RequestError> {
        let why = match (&mut self.data, self.op) {
            (_, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }) => {
                "an atomic takes one buffer, of 8 bytes"
            }
            (Data::Gather(pieces), _) => {
                pieces.push(Piece::whole(buffer));
                return Ok(self);
            }
            (Data::Inline(_), _) => "a request with inline data, or without data, takes no buffer",
        };
        Err(RequestError {
            error: Error::InvalidArgument(why.to_owned()),
            request: Box::new(self),
            buffer: Some(buffer),
        })
    }

    /// Uses only this part of the buffer; of several buffers, of the one that was added last. The
    /// whole buffer moves into the queue.
    ///
    /// # Errors
    /// The range leaves the buffer; the request comes back as it was.
    pub fn range(
        mut self,
        range: impl RangeBounds<usize>,
    ) -> std::result::Result<SendRequest, RequestError> {
        let size = match &mut self.data {
            Data::Gather(pieces) => pieces.last_mut().map_or(0, |piece| piece.buffer.len()),
            Data::Inline(bytes) => bytes.len(),
        };
        let (start, len) = match resolve_range(range, size) {
            Ok(found) => found,
            Err(error) => {
                return Err(RequestError {
                    error,
                    request: Box::new(self),
                    buffer: None,
                });
            }
        };
        match &mut self.data {
            Data::Gather(pieces) => {
                if let Some(piece) = pieces.last_mut() {
                    (piece.start, piece.len) = (start, len);
                }
            }
            Data::Inline(bytes) => *bytes = SmallVec::from_slice(&bytes[start..start + len]),
        }
        Ok(self)
    }

    /// Adds four bytes that the receiver's completion shows. Turns a SEND into a SEND with
    /// immediate and a WRITE into a WRITE with immediate, which takes a receive at the peer.
    ///
    /// # Panics
    /// For READ, atomics, FLUSH, and requests for memory windows, which have no immediate.
    pub fn imm(mut self, imm: [u8; 4]) -> SendRequest {
        self.op = match self.op {
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) => SendOp::SendImm(imm),
            SendOp::Write { remote_addr, rkey }
            | SendOp::WriteImm {
                remote_addr, rkey, ..
            } => SendOp::WriteImm {
                remote_addr,
                rkey,
                imm,
            },
            SendOp::Datagram { to, .. } => SendOp::Datagram { to, imm: Some(imm) },
            other => panic!("{other:?} carries no immediate data"),
        };
        self
    }

    /// Turns a SEND into a SEND with invalidate: the peer's key `rkey` is revoked as the message
    /// arrives. Only keys that allow it can be revoked (type-2 memory windows); a plain region
    /// refuses, as on hardware.
    ///
    /// # Panics
    /// For everything but SEND.
    pub fn invalidate(mut self, rkey: u32) -> SendRequest {
        self.op = match self.op {
            SendOp::Send | SendOp::SendInvalidate(_) => SendOp::SendInvalidate(rkey),
            other => panic!("{other:?} cannot invalidate"),
        };
        self
    }

    /// The id that the completion shows; 0 if not set.
    pub fn id(mut self, id: u64) -> SendRequest {
        self.id = id;
        self
    }

    /// No completion on success. Signal at least one request per queue depth, else the queue fills
    /// up for good.
    pub fn unsignaled(mut self) -> SendRequest {
        self.signaled = false;
        self
    }

    /// Asks for a solicited event at the receiver.
    pub fn solicited(mut self) -> SendRequest {
        self.solicited = true;
        self
    }

    /// Starts only after all earlier READs and atomics have completed.
    pub fn fenced(mut self) -> SendRequest {
        self.fence = true;
        self
    }

    /// The same for an XRC receive queue of the peer.
    pub(crate) fn for_srq(mut self, number: u32) -> SendRequest {
        self.srqn = number;
        self
    }

    /// The same as a datagram.
    pub(crate) fn addressed(
        mut self,
        way: &device::Ah,
        qpn: u32,
        qkey: u32,
    ) -> std::result::Result<SendRequest, PostError> {
        let imm = match self.op {
            SendOp::Send => None,
            SendOp::SendImm(imm) => Some(imm),
            // It was posted before, and came back.
            SendOp::Datagram { imm, .. } => imm,
            other => {
                return Err(PostError {
                    error: Error::InvalidArgument(format!(
                        "a datagram is a SEND, with immediate data or without, and not {other:?}"
                    )),
                    request: Box::new(self),
                });
            }
        };
        let to = way.address(qpn, qkey);
        self.op = SendOp::Datagram { to, imm };
        self.names = way.system().cloned().map_or(Names::Nothing, Names::Way);
        Ok(self)
    }

    /// What the queue keeps of it.
    pub(crate) fn into_entry(self) -> Entry {
        Entry {
            id: self.id,
            signaled: self.signaled,
            pieces: match self.data {
                Data::Gather(pieces) => pieces,
                Data::Inline(_) => Pieces::default(),
            },
            _way: match self.names {
                Names::Way(way) => Some(way),
                _ => None,
            },
        }
    }

    /// Takes the buffer back out of a request that was not posted; the first of several.
    pub fn into_buffer(self) -> Option<Buffer> {
        self.into_buffers().into_iter().next()
    }

    /// Takes all buffers back out of a request that was not posted.
    pub fn into_buffers(self) -> Vec<Buffer> {
        match self.data {
            Data::Gather(pieces) => pieces.into_buffers().collect(),
            Data::Inline(_) => Vec::new(),
        }
    }

    /// Refuses what no queue has room for, ever: from a full queue the device's errno does not tell
    /// it apart.
    pub(crate) fn check(&self, cap: &QpCap) -> Result<()> {
        let max_inline_data = cap.max_inline_data;
        match &self.data {
            Data::Gather(pieces) => pieces.check(cap.max_send_sge, "max_send_sge"),
            Data::Inline(bytes) if bytes.len() > max_inline_data as usize => {
                Err(Error::InvalidArgument(format!(
                    "{} bytes of inline data, the queue pair takes {max_inline_data} (max_inline_data): post a buffer",
                    bytes.len()
                )))
            }
            Data::Inline(_) => Ok(()),
        }
    }
}

/// The buffer and the objects stay in `self`.
impl Request for SendRequest {
    #[inline]
    fn is_for_system(&self) -> bool {
        matches!(self.names, Names::Way(_))
    }

    #[inline]
    fn wqe(&self, wr_id: u64) -> SendWqe {
        SendWqe {
            srqn: self.srqn,
            wr_id,
            op: self.op,
            data: match &self.data {
                Data::Gather(pieces) => SendData::Gather(pieces.sges()),
                // `clone` copies byte by byte.
                Data::Inline(bytes) => SendData::Inline(SmallVec::from_slice(bytes)),
            },
            signaled: self.signaled,
            solicited: self.solicited,
            fence: self.fence,
        }
    }

    fn work(&self, wr_id: u64) -> Work<'_> {
        let (mut ah, mut window) = (None, None);
        match &self.names {
            Names::Nothing => {}
            Names::Way(way) => ah = Some(way),
            Names::Window(mw, region) => window = region.window_of(mw),
        }
        Work {
            wqe: self.wqe(wr_id),
            ah,
            window,
        }
    }
}

/// A request could not be changed as asked; it comes back as it was, and so does the buffer that was
/// to be added.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RequestError {
    /// Why not.
    #[source]
    pub error: Error,
    /// The request.
    pub request: Box<SendRequest>,
    /// What [`SendRequest::and`] was given.
    pub buffer: Option<Buffer>,
}

/// For `?`. The request goes, and all buffers are freed.
impl From<RequestError> for Error {
    fn from(error: RequestError) -> Error {
        error.error
    }
}

/// A request could not be posted; it comes back whole, with its buffer.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct PostError {
    /// Why not.
    #[source]
    pub error: Error,
    /// The request, to be posted again.
    pub request: Box<SendRequest>,
}

/// A receive could not be posted; its buffers come back.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RecvError {
    /// Why not.
    #[source]
    pub error: Error,
    /// The buffers, to be posted again.
    pub buffers: Vec<Buffer>,
}

impl RecvError {
    pub(crate) fn new(error: Error, pieces: Pieces) -> RecvError {
        RecvError {
            error,
            buffers: pieces.into_buffers().collect(),
        }
    }

    /// The buffer, to be posted again; the first of several.
    pub fn into_buffer(self) -> Option<Buffer> {
        self.buffers.into_iter().next()
    }
}

/// For `?`. The request goes, and its buffers are freed.
impl From<PostError> for Error {
    fn from(error: PostError) -> Error {
        error.error
    }
}

/// For `?`. The buffers are freed.
impl From<RecvError> for Error {
    fn from(error: RecvError) -> Error {
        error.error
    }
}
