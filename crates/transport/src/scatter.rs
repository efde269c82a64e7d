//! A cursor over a scatter/gather list: packets are cut from it and poured into it in order.

use crate::{Device, LocalFault, Misplaced, Pd, RemoteFault, Sge};
use rnic_wire::Payload;

/// A position in a scatter/gather list. Moving on from where it stands costs nothing; going
/// elsewhere walks the list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SgCursor {
    /// Entry it stands in.
    index: usize,
    /// Bytes of that entry that lie behind it.
    offset: u32,
    /// Bytes of the list that lie behind it.
    at: u64,
}

impl SgCursor {
    /// Goes to byte `at` of `list`.
    #[inline]
    pub(crate) fn seek(&mut self, list: &[Sge], at: u64) {
        if self.at != at {
            self.walk(list, at);
        }
    }

    #[cold]
    fn walk(&mut self, list: &[Sge], at: u64) {
        let mut left = at;
        let mut index = 0;
        while let Some(sge) = list.get(index) {
            if left < u64::from(sge.length) {
                break;
            }
            left -= u64::from(sge.length);
            index += 1;
        }
        // Beyond the end `index` is past the list, where every transfer fails whatever the offset.
        *self = SgCursor {
            index,
            offset: left.min(u64::from(u32::MAX)) as u32,
            at,
        };
    }

    /// The next piece of at most `want` bytes within one entry, and the cursor moved behind it.
    #[inline]
    fn piece(&mut self, list: &[Sge], want: usize) -> Result<Sge, LocalFault> {
        loop {
            let sge = list.get(self.index).ok_or(LocalFault::OutOfRange)?;
            let room = sge.length.saturating_sub(self.offset);
            if room == 0 {
                self.index += 1;
                self.offset = 0;
                continue;
            }
            let length = room.min(u32::try_from(want).unwrap_or(u32::MAX));
            // An address range that wraps is no range of any region.
            let addr = sge
                .addr
                .checked_add(u64::from(self.offset))
                .ok_or(LocalFault::OutOfRange)?;
            self.offset += length;
            self.at += u64::from(length);
            return Ok(Sge {
                addr,
                length,
                lkey: sge.lkey,
            });
        }
    }

    /// Fills `out` from the list.
    ///
    /// # Errors
    /// What the device said, or [`LocalFault::OutOfRange`] if the list is too short. The cursor is
    /// then anywhere.
    #[inline]
    pub(crate) fn gather<H: Device>(
        &mut self,
        device: &H,
        pd: Pd,
        list: &[Sge],
        out: &mut [u8],
    ) -> Result<(), LocalFault> {
        let mut rest = out;
        while !rest.is_empty() {
            let piece = self.piece(list, rest.len())?;
            let (now, later) = rest.split_at_mut(piece.length as usize);
            device.read_local(pd, piece.lkey, piece.addr, now)?;
            rest = later;
        }
        Ok(())
    }

    /// Stores `data` into the list; errors as [`SgCursor::gather`].
    #[inline]
    pub(crate) fn scatter<H: Device>(
        &mut self,
        device: &mut H,
        pd: Pd,
        list: &[Sge],
        data: Payload<'_>,
    ) -> Result<(), Misplaced<LocalFault>> {
        let mut rest = data;
        while !rest.is_empty() {
            let piece = self.piece(list, rest.len())?;
            let (now, later) = rest.split_at(piece.length as usize);
            match now {
                Payload::Here(bytes) => device.write_local(pd, piece.lkey, piece.addr, bytes)?,
                Payload::Detached { from, len, .. } => {
                    device.place_local(pd, piece.lkey, piece.addr, from, len)?;
                }
            }
            rest = later;
        }
        Ok(())
    }
}

/// Stores (a part of) the payload of an RDMA WRITE.
#[inline]
pub(crate) fn store_remote<H: Device>(
    device: &mut H,
    pd: Pd,
    rkey: u32,
    va: u64,
    data: Payload<'_>,
) -> Result<(), Misplaced<RemoteFault>> {
    match data {
        Payload::Here(bytes) => Ok(device.write_remote(pd, rkey, va, bytes)?),
        Payload::Detached { from, len, .. } => device.place_remote(pd, rkey, va, from, len),
    }
}

/// Bytes that a list has room for.
#[inline]
pub(crate) fn total_len(list: &[Sge]) -> u64 {
    list.iter().map(|sge| u64::from(sge.length)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sge(addr: u64, length: u32) -> Sge {
        Sge {
            addr,
            length,
            lkey: 7,
        }
    }

    fn pieces(
        cursor: &mut SgCursor,
        list: &[Sge],
        mut want: usize,
    ) -> Result<alloc::vec::Vec<(u64, u32)>, LocalFault> {
        let mut out = alloc::vec::Vec::new();
        while want > 0 {
            let piece = cursor.piece(list, want)?;
            want -= piece.length as usize;
            out.push((piece.addr, piece.length));
        }
        Ok(out)
    }

    #[test]
    fn pieces_follow_the_list_and_skip_empty_entries() {
        let list = [sge(100, 10), sge(0, 0), sge(200, 5)];
        let mut cursor = SgCursor::default();
        assert_eq!(pieces(&mut cursor, &list, 7), Ok([(100, 7)].into()));
        assert_eq!(
            pieces(&mut cursor, &list, 6),
            Ok([(107, 3), (200, 3)].into())
        );
        assert_eq!(pieces(&mut cursor, &list, 2), Ok([(203, 2)].into()));
        assert_eq!(pieces(&mut cursor, &list, 1), Err(LocalFault::OutOfRange));
    }

    #[test]
    fn seek_equals_walking() {
        let list = [sge(100, 10), sge(0, 0), sge(200, 5), sge(300, 1)];
        let flat: alloc::vec::Vec<u64> = (100..110).chain(200..205).chain(300..301).collect();
        for (at, want) in flat.into_iter().enumerate() {
            let mut cursor = SgCursor {
                index: 1,
                offset: 0,
                at: 99,
            };
            cursor.seek(&list, at as u64);
            assert_eq!(cursor.piece(&list, 1).map(|p| p.addr), Ok(want));
        }
        let mut cursor = SgCursor::default();
        cursor.seek(&list, 16);
        assert_eq!(cursor.piece(&list, 1), Err(LocalFault::OutOfRange));
    }

    #[test]
    fn hostile_addresses_and_lengths_are_errors() {
        let list = [sge(u64::MAX, 4), sge(0, u32::MAX)];
        let mut cursor = SgCursor::default();
        assert_eq!(cursor.piece(&list, 1).map(|p| p.addr), Ok(u64::MAX));
        assert_eq!(cursor.piece(&list, 1), Err(LocalFault::OutOfRange));
        cursor.seek(&list, u64::MAX);
        assert_eq!(cursor.piece(&list, 1), Err(LocalFault::OutOfRange));
    }
}
