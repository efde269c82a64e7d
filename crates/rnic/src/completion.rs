//! Completions: what became of a work request, and its buffer back.

use std::net::IpAddr;
use std::time::Duration;

use crate::error::CompletionError;
use crate::gather::Pieces;
use crate::nic::{self, CompletionOpcode, Immediate, Stamp, Status};
use crate::raw::memory::Buffer;

/// When a completion arose; see
/// [`CompletionQueueBuilder::timestamps`](crate::CompletionQueueBuilder::timestamps).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timestamp {
    /// Ticks of the device's clock ([`Context::device_clock`](crate::Context::device_clock)).
    pub ticks: u64,
    /// Time since the epoch; `None`: the device has no such stamps.
    pub wallclock: Option<Duration>,
}

/// A finished work request.
///
/// It carries the buffer that was posted. Fields other than the id, the status and the buffer mean
/// something only if the status is [`Status::Success`]; [`Completion::ok`] turns everything else
/// into an error that explains itself.
///
/// # What is read
/// A completion is a copy of its fields, 16 taken at a time: it outlives the poll, may go to another
/// thread, and nobody has to end the poll. What costs more is read only where it is asked for. Of a
/// queue without [timestamps](crate::CompletionQueueBuilder::timestamps) no clock is read and
/// `ibv_poll_cq(3)` is used. With them, a device of the system is read by the functions of
/// `ibv_create_cq_ex(3)`: of a failure none but the queue pair, the vendor's code and the stamps,
/// and the wall clock only if the device has it. The message is not copied: it is in the buffer
/// that was posted, or in its region.
#[derive(Debug)]
pub struct Completion {
    pub(crate) entry: nic::Completion,
    /// Zero: of a queue without.
    pub(crate) stamp: Stamp,
    pub(crate) id: u64,
    pub(crate) pieces: Pieces,
    /// Bytes of the buffers that were taken out.
    pub(crate) taken: usize,
    pub(crate) released: Vec<(u64, Buffer)>,
}

impl Completion {
    /// When it arose, if the queue was made with timestamps.
    pub fn timestamp(&self) -> Option<Timestamp> {
        let Stamp { raw, wallclock } = self.stamp;
        (self.stamp != Stamp::default()).then(|| Timestamp {
            ticks: raw,
            wallclock: (wallclock != 0).then(|| Duration::from_nanos(wallclock)),
        })
    }

    /// The id that the work request was given (`wr_id`).
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How it ended.
    pub fn status(&self) -> Status {
        self.entry.status
    }

    /// What it was.
    pub fn opcode(&self) -> CompletionOpcode {
        self.entry.opcode
    }

    /// Bytes received, read, or 8 for an atomic.
    pub fn byte_len(&self) -> usize {
        self.entry.byte_len as usize
    }

    /// Number of the local queue pair.
    pub fn qpn(&self) -> u32 {
        self.entry.qpn
    }

    /// Immediate data of a received message.
    pub fn imm(&self) -> Option<[u8; 4]> {
        match self.entry.immediate {
            Immediate::Data(imm) => Some(imm),
            _ => None,
        }
    }

    /// The local key that a received SEND with invalidate revoked.
    pub fn invalidated_key(&self) -> Option<u32> {
        match self.entry.immediate {
            Immediate::Invalidated(key) => Some(key),
            _ => None,
        }
    }

    /// The bytes that arrived: the message of a receive, the data of a READ, from where
    /// [`SendRequest::range`](crate::SendRequest::range) put them. Empty for everything else. Of a
    /// work request with several buffers, those in the first: see [`Completion::parts`].
    pub fn data(&self) -> &[u8] {
        self.parts().next().unwrap_or_default()
    }

    /// The bytes that arrived, as [`Completion::data`], buffer by buffer.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = match self.entry.opcode {
            CompletionOpcode::Recv | CompletionOpcode::RdmaRead => self.byte_len(),
            _ => 0,
        };
        self.pieces.parts(bytes.saturating_sub(self.taken))
    }

    /// The message of a receive: of a datagram what follows the header in front of it, else all of
    /// [`Completion::data`].
    pub fn message(&self) -> &[u8] {
        match self.header() {
            Some(_) => &self.data()[crate::HEADER_LEN..],
            None => self.data(),
        }
    }

    /// The network header (GRH) in front of a received datagram: an IPv6 header, or 20 bytes that
    /// mean nothing and an IPv4 header.
    pub fn header(&self) -> Option<&[u8; crate::HEADER_LEN]> {
        let datagram = self.entry.grh.is_some() && self.entry.status == Status::Success;
        self.data().first_chunk().filter(|_| datagram)
    }

    /// Index of the P_Key that a received datagram was sent to.
    pub fn pkey_index(&self) -> u16 {
        self.entry.pkey_index
    }

    /// Who sent a received datagram: address and QP number.
    pub fn source(&self) -> Option<(IpAddr, u32)> {
        let header = self.header()?;
        let octets = |at: usize| header[at..at + 4].try_into().unwrap_or([0; 4]);
        let mut v6 = [0; 16];
        v6.copy_from_slice(&header[8..24]);
        let address = match self.entry.grh? {
            nic::NetworkHeader::Ipv6 => IpAddr::from(v6),
            nic::NetworkHeader::Ipv4 => IpAddr::from(octets(32)),
        };
        Some((address, self.entry.src_qpn))
    }

    /// What an atomic found in the remote memory before it changed it.
    pub fn original_value(&self) -> Option<u64> {
        match (self.entry.opcode, self.entry.status) {
            (CompletionOpcode::CompareSwap | CompletionOpcode::FetchAdd, Status::Success) => {
                let word = self.pieces.place().first_chunk();
                word.map(|bytes| u64::from_ne_bytes(*bytes))
            }
            _ => None,
        }
    }

    /// The buffer that was posted, if there was one; the first of several.
    pub fn into_buffer(mut self) -> Option<Buffer> {
        self.take_buffer()
    }

    /// All buffers that were posted, in their order.
    pub fn into_buffers(self) -> Vec<Buffer> {
        self.pieces.into_buffers().collect()
    }

    /// Takes the buffer out and leaves the rest; the first of several, then the next. What arrived in
    /// it is no part of [`Completion::data`] any more.
    pub fn take_buffer(&mut self) -> Option<Buffer> {
        let piece = self.pieces.take_first()?;
        self.taken += piece.len;
        self.entry.grh = None;
        Some(piece.buffer)
    }

    /// Ids and buffers of earlier unsignaled work requests of the same send queue, which this
    /// completion vouches for.
    pub fn take_released(&mut self) -> Vec<(u64, Buffer)> {
        std::mem::take(&mut self.released)
    }

    /// The completion if it succeeded, else why not.
    pub fn ok(self) -> Result<Completion, CompletionError> {
        if self.entry.status == Status::Success {
            return Ok(self);
        }
        Err(CompletionError {
            status: self.entry.status,
            opcode: self.entry.opcode,
            vendor_err: self.entry.vendor_err,
            qpn: self.entry.qpn,
            id: self.id,
        })
    }
}
