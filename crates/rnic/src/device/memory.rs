//! Protection domains and what is made in them alone: memory, windows, ways of datagrams.

use std::os::fd::RawFd;

use rnic_libibverbs as system;

use super::{Cq, Qp, QpInit, Srq, either, of_another_device};
use crate::nic::{self, Access, Address, AhAttr, MwType, Result};

pub(crate) enum Pd {
    Software(nic::Pd),
    System(system::Pd),
}

impl Pd {
    pub(crate) fn alloc_mw(&self) -> Result<Mw> {
        Ok(match self {
            Pd::Software(pd) => Mw::Software(pd.alloc_mw(MwType::Type2)?),
            Pd::System(pd) => Mw::System(pd.alloc_mw()?),
        })
    }

    pub(crate) fn reg_dmabuf_mr(
        &self,
        fd: RawFd,
        offset: u64,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<Mr> {
        Ok(match self {
            Pd::Software(pd) => Mr::Software(pd.reg_dmabuf_mr(fd, offset, len, iova, access)?),
            Pd::System(pd) => Mr::System(pd.reg_dmabuf_mr(fd, offset, len, iova, access)?),
        })
    }

    pub(crate) fn create_ah(&self, attr: &AhAttr) -> Result<Ah> {
        Ok(match self {
            Pd::Software(pd) => Ah::Software(pd.create_ah(attr)?),
            Pd::System(pd) => Ah::System(pd.create_ah(attr)?),
        })
    }

    /// The way back to who sent a datagram with this header.
    pub(crate) fn ah_attr_from(&self, header: &[u8; 40]) -> Result<AhAttr> {
        match self {
            Pd::Software(_) => nic::ah_attr_from_header(header, 1),
            Pd::System(pd) => {
                let table = pd.context().gid_table();
                nic::ah_attr_from_header_of(header, 1, &table)
            }
        }
    }

    pub(crate) fn create_srq(
        &self,
        max_wr: u32,
        xrc: Option<(&Xrcd, &Cq)>,
        cookie: u64,
    ) -> Result<Srq> {
        Srq::create(self, max_wr, xrc, cookie)
    }

    pub(crate) fn create_qp(&self, init: &QpInit<'_>) -> Result<Qp> {
        Qp::create(self, init)
    }
}

pub(crate) enum Mr {
    Software(nic::Mr),
    System(system::Mr),
}

impl Mr {
    #[inline]
    pub(crate) fn addr(&self) -> u64 {
        either!(Mr, self, mr => mr.addr())
    }

    #[inline]
    pub(crate) fn lkey(&self) -> u32 {
        either!(Mr, self, mr => mr.lkey())
    }

    pub(crate) fn rkey(&self) -> u32 {
        either!(Mr, self, mr => mr.rkey())
    }

    /// Ends the registration. False: the memory may still be used, and has to stay for ever.
    pub(crate) fn end(&mut self) -> bool {
        either!(Mr, self, mr => mr.end())
    }
}

#[derive(Debug)]
pub(crate) enum Mw {
    Software(nic::Mw),
    System(system::Mw),
}

impl Mw {
    pub(crate) fn first_rkey(&self) -> u32 {
        either!(Mw, self, mw => mw.first_rkey())
    }
}

/// A way of datagrams.
#[derive(Clone, Debug)]
pub(crate) enum Ah {
    Software(nic::Ah),
    System(system::Ah),
}

impl Ah {
    /// What a work request names: the software NIC's has the way in it.
    pub(crate) fn address(&self, qpn: u32, qkey: u32) -> Address {
        match self {
            Ah::Software(ah) => ah.address(qpn, qkey),
            Ah::System(_) => Address { path: 0, qpn, qkey },
        }
    }

    /// What it names by pointer.
    pub(crate) fn system(&self) -> Option<&system::Ah> {
        match self {
            Ah::Software(_) => None,
            Ah::System(ah) => Some(ah),
        }
    }
}

#[derive(Clone)]
pub(crate) enum Xrcd {
    Software(nic::Xrcd),
    System(system::Xrcd),
}

impl Xrcd {
    pub(crate) fn create_qp(&self, cookie: u64) -> Result<Qp> {
        Ok(match self {
            Xrcd::Software(domain) => Qp::Software(domain.create_qp(cookie)?),
            Xrcd::System(domain) => Qp::System(domain.create_qp(cookie)?),
        })
    }
}

/// Both handles, if they are the system's.
pub(crate) fn system_window<'a>(
    mw: &'a Mw,
    mr: &'a Mr,
) -> Option<(&'a system::Mw, &'a system::Mr)> {
    match (mw, mr) {
        (Mw::System(mw), Mr::System(mr)) => Some((mw, mr)),
        _ => None,
    }
}

/// A domain and a queue of one device.
pub(super) enum XrcParts {
    Software(nic::Xrcd, nic::Cq),
    System(system::Xrcd, system::Cq),
}

pub(super) fn xrc_parts(domain: &Xrcd, cq: &Cq) -> Result<XrcParts> {
    Ok(match (domain, cq) {
        (Xrcd::Software(domain), Cq::Software(cq) | Cq::Stamped(cq)) => {
            XrcParts::Software(domain.clone(), cq.clone())
        }
        (Xrcd::System(domain), Cq::System(cq)) => XrcParts::System(domain.clone(), cq.clone()),
        _ => return Err(of_another_device("ibv_create_srq_ex")),
    })
}
