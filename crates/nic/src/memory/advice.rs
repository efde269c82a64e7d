//! Which pages an advice is about (`ibv_advise_mr(3)`).

use std::fmt;
use std::ops::Range;

use rnic_transport::Pd;

use super::copies::Backing;
use super::fault::Fault;
use super::{Access, MemoryTable};

/// Why an advice is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdviceRefused {
    Access,
    OtherPd,
    NotOnDemand,
}

impl AdviceRefused {
    pub(crate) fn errno(self) -> i32 {
        match self {
            AdviceRefused::Access => libc::EFAULT,
            AdviceRefused::OtherPd => libc::EPERM,
            AdviceRefused::NotOnDemand => libc::EINVAL,
        }
    }
}

impl fmt::Display for AdviceRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AdviceRefused::Access => "no region of that key allows this access to the whole range",
            AdviceRefused::OtherPd => "the region belongs to another protection domain",
            AdviceRefused::NotOnDemand => "the region was registered without ON_DEMAND",
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
        let place = self
            .grant_local(pd, lkey, addr, len, write)
            .map_err(|fault| match fault {
                Fault::OtherPd => AdviceRefused::OtherPd,
                _ => AdviceRefused::Access,
            })?;
        let on_demand = |access: Access| access.contains(Access::ON_DEMAND);
        match self.get(lkey) {
            Some(entry) if entry.backing == Backing::Paged && on_demand(entry.access) => {
                Ok(place.at..place.at.saturating_add(len as usize))
            }
            _ => Err(AdviceRefused::NotOnDemand),
        }
    }
}
