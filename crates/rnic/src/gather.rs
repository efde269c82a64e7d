//! The buffers of a work request, in the order in which bytes leave them or land in them: its
//! gather or scatter list (IBTA vol. 1, 10.7.3).

use smallvec::{SmallVec, smallvec};

use crate::error::{Error, Result};
use crate::nic::{SgList, Sge};
use crate::raw::memory::Buffer;

/// Most bytes of a buffer. In the lists of some cards the highest bit of a length means something
/// else, and a message has no more (IBTA vol. 1, 9.7.7.1.1).
const MOST: usize = i32::MAX as usize;

/// A buffer, and the part of it that is used.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) buffer: Buffer,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Piece {
    /// All of it.
    pub(crate) fn whole(buffer: Buffer) -> Piece {
        let len = buffer.len();
        Piece {
            buffer,
            start: 0,
            len,
        }
    }

    fn bytes(&self) -> &[u8] {
        self.buffer
            .get(self.start..self.start + self.len)
            .unwrap_or_default()
    }
}

/// None, one, or several.
#[derive(Debug, Default)]
pub(crate) struct Pieces(SmallVec<[Piece; 1]>);

impl From<Piece> for Pieces {
    fn from(piece: Piece) -> Pieces {
        Pieces(smallvec![piece])
    }
}

impl FromIterator<Buffer> for Pieces {
    fn from_iter<T: IntoIterator<Item = Buffer>>(buffers: T) -> Pieces {
        Pieces(buffers.into_iter().map(Piece::whole).collect())
    }
}

impl Pieces {
    pub(crate) fn push(&mut self, piece: Piece) {
        self.0.push(piece);
    }

    pub(crate) fn last_mut(&mut self) -> Option<&mut Piece> {
        self.0.last_mut()
    }

    /// As the device takes them. [`Pieces::check`] has seen them.
    #[inline]
    pub(crate) fn sges(&self) -> SgList {
        let entry = |piece: &Piece| Sge {
            addr: piece.buffer.addr() + piece.start as u64,
            length: piece.len as u32,
            lkey: piece.buffer.lkey(),
        };
        // A length of 0 means 2 GiB to some cards.
        let pieces = self.0.iter().filter(|piece| piece.len > 0);
        pieces.map(entry).collect()
    }

    /// Refuses what the queue has no room for, ever: `most` is its `limit`.
    #[inline]
    pub(crate) fn check(&self, most: u32, limit: &str) -> Result<()> {
        if self.0.len() > 1 && self.0.len() > most as usize {
            return Err(Error::InvalidArgument(format!(
                "a work request of {} buffers, the queue takes {most} ({limit})",
                self.0.len()
            )));
        }
        let long = self.0.iter().find(|piece| piece.len > MOST);
        match long {
            Some(piece) => Err(Error::InvalidArgument(format!(
                "a work request takes less than 2 GiB of a buffer, not {} bytes: post part of it",
                piece.len
            ))),
            None => Ok(()),
        }
    }

    /// The first buffer, from the first byte that is used.
    pub(crate) fn place(&self) -> &[u8] {
        let first = self.0.first();
        first
            .and_then(|piece| piece.buffer.get(piece.start..))
            .unwrap_or_default()
    }

    /// The first `bytes` of all, piece by piece.
    pub(crate) fn parts(&self, bytes: usize) -> impl Iterator<Item = &[u8]> {
        let parts = self.0.iter().scan(bytes, |left, piece| {
            let part = piece.bytes();
            let part = &part[..part.len().min(*left)];
            *left -= part.len();
            Some(part)
        });
        parts.filter(|part| !part.is_empty())
    }

    pub(crate) fn take_first(&mut self) -> Option<Piece> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    pub(crate) fn into_buffers(self) -> impl Iterator<Item = Buffer> {
        self.0.into_iter().map(|piece| piece.buffer)
    }
}
