//! Shared receive queues.

use rnic_libibverbs as system;

use super::memory::{XrcParts, xrc_parts};
use super::{Cq, Pd, Xrcd, either, of_another_device};
use crate::nic::{self, RecvWqe, Result, SrqAttr, SrqAttrMask};

#[derive(Clone)]
pub(crate) enum Srq {
    Software(nic::Srq),
    System(system::Srq),
}

impl Srq {
    pub(super) fn create(
        pd: &Pd,
        max_wr: u32,
        xrc: Option<(&Xrcd, &Cq)>,
        cookie: u64,
    ) -> Result<Srq> {
        let xrc = xrc.map(|(domain, cq)| xrc_parts(domain, cq)).transpose()?;
        Ok(match (pd, xrc) {
            (Pd::Software(pd), None) => Srq::Software(pd.create_srq(&nic::SrqInit {
                max_wr,
                max_sge: 1,
                xrc: None,
                cookie,
            })?),
            (Pd::Software(pd), Some(XrcParts::Software(domain, cq))) => {
                Srq::Software(pd.create_srq(&nic::SrqInit {
                    max_wr,
                    max_sge: 1,
                    xrc: Some((domain, cq)),
                    cookie,
                })?)
            }
            (Pd::System(pd), None) => Srq::System(pd.create_srq(&system::SrqInit {
                max_wr,
                xrc: None,
                cookie,
            })?),
            (Pd::System(pd), Some(XrcParts::System(domain, cq))) => {
                Srq::System(pd.create_srq(&system::SrqInit {
                    max_wr,
                    xrc: Some((domain, cq)),
                    cookie,
                })?)
            }
            _ => return Err(of_another_device("ibv_create_srq_ex")),
        })
    }

    pub(crate) fn is_system(&self) -> bool {
        matches!(self, Srq::System(_))
    }

    pub(crate) fn number(&self) -> u32 {
        either!(Srq, self, srq => srq.number())
    }

    pub(crate) fn check_alive(&self, verb: &'static str) -> Result<()> {
        either!(Srq, self, srq => srq.check_alive(verb))
    }

    /// All is 0 of a device that does not answer.
    pub(crate) fn query(&self) -> SrqAttr {
        match self {
            Srq::Software(srq) => srq.query(),
            Srq::System(srq) => srq.query().unwrap_or_default(),
        }
    }

    pub(crate) fn modify(&self, attr: &SrqAttr, mask: SrqAttrMask) -> Result<()> {
        either!(Srq, self, srq => srq.modify(attr, mask))
    }

    pub(crate) fn post_recv(&self, wqe: RecvWqe) -> Result<()> {
        match self {
            Srq::Software(srq) => {
                let posted = srq.post_recv(&mut std::iter::once(Ok(wqe)));
                posted.map_err(|(_, error)| error)
            }
            Srq::System(srq) => srq.post_recv(&wqe).map(drop),
        }
    }
}
