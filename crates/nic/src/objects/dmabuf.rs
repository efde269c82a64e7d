//! Memory regions of a dmabuf (`ibv_reg_dmabuf_mr(3)`): memory that another driver owns, handed
//! around as a descriptor.

use std::os::fd::RawFd;

use crate::error::{Error, Result};
use crate::memory::{Access, access};
use crate::objects::mr::{Mr, PAGE, REG_DMABUF};
use crate::objects::pd::Pd;
use rnic_sys::Mapping;

impl Pd {
    /// Registers `len` bytes of a dmabuf from `offset`. What the CPU can map is reached through a
    /// mapping of its own.
    ///
    /// # Errors
    /// EBADF: no such descriptor. EINVAL: it is no dmabuf, the range leaves it, `iova` lies at
    /// another place of its page than `offset`, rights that a dmabuf cannot have. EOPNOTSUPP: its
    /// exporter does not let the CPU map it.
    pub fn reg_dmabuf_mr(
        &self,
        fd: RawFd,
        offset: u64,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<Mr> {
        let refuse = |why: &'static str| Err(Error::invalid(REG_DMABUF, why));
        let unfit = Access::ON_DEMAND | Access::HUGETLB | Access::ZERO_BASED;
        if access::mandatory(access).intersects(unfit) {
            return refuse("ON_DEMAND, HUGETLB and ZERO_BASED mean nothing for a dmabuf");
        }
        let size = Mapping::size_of_dmabuf(fd).map_err(|errno| {
            Error::new(REG_DMABUF, errno, format!("descriptor {fd} is no dmabuf"))
        })?;
        let end = offset.checked_add(len as u64);
        if len == 0 || end.is_none_or(|end| end > size) {
            return refuse("the range leaves the dmabuf");
        }
        if offset % PAGE != iova % PAGE {
            return refuse("iova lies at another place of its page than the offset");
        }
        let within = (offset % PAGE) as usize;
        let write = access.contains(Access::LOCAL_WRITE);
        let mapping = Mapping::new(fd, offset - within as u64, len + within, write);
        let mapping = mapping.ok_or_else(|| {
            Error::new(
                REG_DMABUF,
                libc::EOPNOTSUPP,
                "its exporter does not let the CPU map this dmabuf",
            )
        })?;
        let at = (mapping.address() + within) as *mut u8;
        // SAFETY: `Mr` keeps the mapping, which has these rights, until the key is revoked.
        unsafe { self.reg_mapping(at, len, iova, access, mapping) }
    }
}
