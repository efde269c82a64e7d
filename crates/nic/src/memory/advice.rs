//! Which pages an advice is about (`ibv_advise_mr(3)`).

use std::fmt;
use std::ops::Range;

use rnic_transport::Pd;

use super::copies::Backing;
use super::fault::Fault;
use super::{Access, MemoryTable};

/// Why an advice is refused. The errno are those of Linux's mlx5, the first device with on-demand
/// paging, which looks a key up among on-demand regions alone (drivers/infiniband/hw/mlx5/odp.c,
/// since 5.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdviceRefused {
    UnknownKey,
    NotOnDemand,
    Window,
    OtherPd,
    NotWritable,
    OutOfRange,
}

impl AdviceRefused {
    pub(crate) fn errno(self) -> i32 {
        match self {
            AdviceRefused::UnknownKey | AdviceRefused::NotOnDemand => libc::ENOENT,
            AdviceRefused::Window => libc::EINVAL,
            AdviceRefused::OtherPd | AdviceRefused::NotWritable => libc::EPERM,
            AdviceRefused::OutOfRange => libc::EFAULT,
        }
    }
}

impl fmt::Display for AdviceRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AdviceRefused::UnknownKey => "no region has that key",
            AdviceRefused::NotOnDemand => "the region was registered without ON_DEMAND",
            AdviceRefused::Window => "it is the key of a memory window",
            AdviceRefused::OtherPd => "the region belongs to another protection domain",
            AdviceRefused::NotWritable => "the region was registered without LOCAL_WRITE",
            AdviceRefused::OutOfRange => "the range leaves the region",
        })
    }
}

impl MemoryTable {
    /// The addresses in this process that a range of an on-demand region stands for.
    pub(crate) fn paged_range(
        &self,
        pd: Pd,
        lkey: u32,
        addr: u64,
        len: u64,
        write: bool,
    ) -> Result<Range<usize>, AdviceRefused> {
        let Some(entry) = self.get(lkey) else {
            return Err(match self.windows.facts(lkey) {
                Some(_) => AdviceRefused::Window,
                None => AdviceRefused::UnknownKey,
            });
        };
        if entry.backing != Backing::Paged || !entry.access.contains(Access::ON_DEMAND) {
            return Err(AdviceRefused::NotOnDemand);
        }
        // Rights before the range, which is looked at when its pages are fetched.
        if entry.pd == pd && write && !entry.access.contains(Access::LOCAL_WRITE) {
            return Err(AdviceRefused::NotWritable);
        }
        let place = self
            .grant_local(pd, lkey, addr, len, write)
            .map_err(|fault| match fault {
                Fault::OtherPd => AdviceRefused::OtherPd,
                Fault::UnknownKey => AdviceRefused::UnknownKey,
                Fault::NoRight => AdviceRefused::NotWritable,
                Fault::OutOfRange | Fault::Unmapped => AdviceRefused::OutOfRange,
            })?;
        Ok(place.at..place.at.saturating_add(len as usize))
    }
}
