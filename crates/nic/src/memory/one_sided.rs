//! RDMA WRITEs and READs between processes of one host without packets, and payload by reference:
//! what of a region may be granted to a peer, and where the bytes of this side are.

use rnic_link::{CmaWindow, Request, Whole};
use rnic_sys::process::Span;
use rnic_transport::{IoVec, IoVecs, LocalFault, OneSided, Pd, SendData, Sge};

use super::copies::Backing;
use super::{Access, MemoryTable};

/// A region that peers may reach by themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reachable {
    pub(crate) iova: u64,
    pub(crate) base: u64,
    pub(crate) len: u64,
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// Most pieces of local memory.
const PIECES: usize = 32;

impl MemoryTable {
    /// The region of that key, if it is one of ordinary memory: windows and what is reached in a
    /// special way are not.
    pub(crate) fn reachable(&self, pd: Pd, key: u32) -> Option<Reachable> {
        let entry = self.get(key)?;
        let ordinary = entry.backing == Backing::Pinned;
        (ordinary && entry.pd == pd).then(|| Reachable {
            iova: entry.iova,
            base: entry.base as u64,
            len: entry.len,
            read: entry.access.contains(Access::REMOTE_READ),
            write: entry.access.contains(Access::REMOTE_WRITE),
        })
    }

    /// Executes `part` of a request in the memory of the process that `cma` leads to. False: it
    /// was not, or not all of it.
    #[inline]
    pub(crate) fn execute(&self, cma: &CmaWindow, request: &Request, part: &OneSided<'_>) -> bool {
        let mut spans = [Span::EMPTY; PIECES];
        let Some(count) = self.spans(part, &mut spans) else {
            return false;
        };
        // SAFETY: the table granted these bytes for reading (a WRITE's) or writing, under the
        // engine's lock, which the caller holds until this returns; see the contract of
        // `MemoryTable::insert`. Inline data is only read, by a WRITE. Other threads may access the
        // memory meanwhile, as with DMA; the kernel makes no reference to it.
        unsafe { cma.copy(request, part.write, part.offset, &spans[..count], part.ends) }
    }

    /// Executes whole WRITEs, or READs, in that process, as many as it can from the first on. Gives
    /// how many.
    pub(crate) fn execute_row(
        &self,
        cma: &CmaWindow,
        request: impl Fn(&OneSided<'_>) -> Request,
        parts: &[OneSided<'_>],
    ) -> usize {
        let Some(write) = parts.first().map(|part| part.write) else {
            return 0;
        };
        let mut spans = [Span::EMPTY; PIECES];
        let mut row = [Whole::EMPTY; Whole::MOST];
        let (mut count, mut used) = (0, 0);
        for (whole, part) in row.iter_mut().zip(parts) {
            let Some(pieces) = self.spans(part, &mut spans[used..]) else {
                break;
            };
            *whole = Whole {
                request: request(part),
                pieces,
            };
            used += pieces;
            count += 1;
        }
        // SAFETY: as in `execute`.
        unsafe { cma.copy_row(write, &row[..count], &spans[..used]) }
    }

    /// Where the bytes of `part` are in this process; `None`: not all of them in memory that is
    /// reached directly, or in more pieces.
    fn spans(&self, part: &OneSided<'_>, out: &mut [Span]) -> Option<usize> {
        let list = match part.data {
            SendData::Gather(list) => list,
            SendData::Inline(bytes) if part.write => {
                let from = usize::try_from(part.offset).ok()?;
                let bytes = bytes.get(from..)?.get(..part.len as usize)?;
                *out.first_mut()? = Span::new(bytes.as_ptr() as usize, bytes.len());
                return Some(1);
            }
            SendData::Inline(_) => return None,
        };
        let mut count = 0;
        let range = (part.offset, u64::from(part.len));
        self.walk(part.pd, list, range, !part.write, |at, len| {
            *out.get_mut(count)? = Span::new(at, len as usize);
            count += 1;
            Some(())
        })?;
        Some(count)
    }

    /// Where bytes of `list` are, for a peer that copies them. False: not all of them in few pieces
    /// of memory that is reached directly.
    pub(crate) fn locate(&self, pd: Pd, list: &[Sge], range: (u64, u64), out: &mut IoVecs) -> bool {
        let entry = |at, len| IoVec { at: at as u64, len };
        let mut push = |at, len| out.push(entry(at, len)).then_some(());
        self.walk(pd, list, range, false, &mut push).is_some()
    }

    /// Is the memory behind an entry mapped?
    pub(crate) fn check_presence(&self, pd: Pd, sge: &Sge) -> Result<(), LocalFault> {
        let len = u64::from(sge.length);
        let place = self.grant_local(pd, sge.lkey, sge.addr, len, false)?;
        if place.backing == Backing::Pinned && !rnic_sys::is_mapped(place.at, sge.length as usize) {
            return Err(LocalFault::Unmapped);
        }
        Ok(())
    }

    /// Shows bytes of `list`, so many from an offset on, piece by piece; `None`: not all of them
    /// are in memory that is reached directly, or `show` said so.
    pub(super) fn walk(
        &self,
        pd: Pd,
        list: &[Sge],
        (mut skip, mut left): (u64, u64),
        write: bool,
        mut show: impl FnMut(usize, u64) -> Option<()>,
    ) -> Option<()> {
        for sge in list {
            let length = u64::from(sge.length);
            let before = skip.min(length);
            skip -= before;
            let len = (length - before).min(left);
            if len == 0 {
                continue;
            }
            let addr = sge.addr.checked_add(before)?;
            let granted = self.grant_local(pd, sge.lkey, addr, len, write);
            let place = granted
                .ok()
                .filter(|place| place.backing == Backing::Pinned)?;
            show(place.at, len)?;
            left -= len;
        }
        (left == 0).then_some(())
    }
}

#[cfg(test)]
mod tests;
