//! Queue pairs.

use rnic_libibverbs as system;

use super::{Cq, Pd, Srq, either, of_another_device};
use crate::nic::{
    self, Counters, Gid, QpAttr, QpAttrMask, QpCap, QpState, QpType, RecvWqe, Result, SendWqe,
};

/// A request for the send queue, with the objects that the system's library wants to be named.
pub(crate) type Work<'a> = system::SendWork<'a>;

/// What is posted, as either back end takes it.
pub(crate) trait Request {
    /// It names an object of a device of the system.
    fn is_for_system(&self) -> bool;
    /// For the software NIC.
    fn wqe(&self, wr_id: u64) -> SendWqe;
    /// For a device of the system.
    fn work(&self, wr_id: u64) -> Work<'_>;
}

/// What to create.
pub(crate) struct QpInit<'a> {
    pub(crate) qp_type: QpType,
    pub(crate) send_cq: &'a Cq,
    pub(crate) recv_cq: &'a Cq,
    pub(crate) srq: Option<&'a Srq>,
    pub(crate) cap: QpCap,
    pub(crate) cookie: u64,
}

pub(crate) enum Qp {
    Software(nic::Qp),
    System(system::Qp),
}

impl Qp {
    pub(super) fn create(pd: &Pd, init: &QpInit<'_>) -> Result<Qp> {
        const VERB: &str = "ibv_create_qp";
        let &QpInit {
            qp_type,
            send_cq,
            recv_cq,
            srq,
            cap,
            cookie,
        } = init;
        if let (Pd::Software(pd), Some(send_cq), Some(recv_cq)) =
            (pd, send_cq.software(), recv_cq.software())
        {
            let srq = match srq {
                None => None,
                Some(Srq::Software(srq)) => Some(srq.clone()),
                Some(_) => return Err(of_another_device(VERB)),
            };
            return Ok(Qp::Software(pd.create_qp(&nic::QpInit {
                qp_type,
                send_cq: send_cq.clone(),
                recv_cq: recv_cq.clone(),
                srq,
                cap,
                sq_sig_all: false,
                cookie,
            })?));
        }
        match (pd, send_cq, recv_cq) {
            (Pd::System(pd), Cq::System(send_cq), Cq::System(recv_cq)) => {
                let srq = match srq {
                    None => None,
                    Some(Srq::System(srq)) => Some(srq.clone()),
                    Some(_) => return Err(of_another_device(VERB)),
                };
                Ok(Qp::System(pd.create_qp(&system::QpInit {
                    qp_type,
                    send_cq: send_cq.clone(),
                    recv_cq: recv_cq.clone(),
                    srq,
                    cap,
                    sq_sig_all: false,
                    cookie,
                })?))
            }
            _ => Err(of_another_device(VERB)),
        }
    }

    pub(crate) fn is_system(&self) -> bool {
        matches!(self, Qp::System(_))
    }

    #[inline]
    pub(crate) fn qpn(&self) -> u32 {
        either!(Qp, self, qp => qp.qpn())
    }

    pub(crate) fn qp_type(&self) -> QpType {
        either!(Qp, self, qp => qp.qp_type())
    }

    #[inline]
    pub(crate) fn cap(&self) -> QpCap {
        either!(Qp, self, qp => qp.cap())
    }

    #[inline]
    pub(crate) fn check_alive(&self, verb: &'static str) -> Result<()> {
        either!(Qp, self, qp => qp.check_alive(verb))
    }

    pub(crate) fn modify(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<()> {
        either!(Qp, self, qp => qp.modify(attr, mask))
    }

    /// State and attributes now.
    pub(crate) fn query(&self) -> Result<QpAttr> {
        self.check_alive("ibv_query_qp")?;
        match self {
            // Not `state()`: the queue pair fails under the engine's lock, and a completion may be
            // seen before it is through.
            Qp::Software(qp) => Ok(qp.query()),
            Qp::System(qp) => qp.query(),
        }
    }

    /// ERR of a device that does not answer.
    pub(crate) fn state(&self) -> QpState {
        match self {
            Qp::Software(qp) => qp.query().qp_state,
            Qp::System(_) => self.query().map_or(QpState::Err, |attr| attr.qp_state),
        }
    }

    pub(crate) fn pkey_index(&self) -> u16 {
        self.query().map_or(0, |attr| attr.pkey_index)
    }

    /// All are 0 on a device of the system, which counts for whole ports.
    pub(crate) fn counters(&self) -> Counters {
        match self {
            Qp::Software(qp) => qp.counters(),
            Qp::System(_) => Counters::default(),
        }
    }

    pub(crate) fn attach_mcast(&self, group: Gid) -> Result<()> {
        either!(Qp, self, qp => qp.attach_mcast(group))
    }

    pub(crate) fn detach_mcast(&self, group: Gid) -> Result<()> {
        either!(Qp, self, qp => qp.detach_mcast(group))
    }

    /// Posts requests in order, as one list, under these ids. The error comes with how many of them
    /// are posted.
    #[inline]
    pub(crate) fn post_send<'a, R: Request + 'a>(
        &self,
        requests: impl Iterator<Item = (&'a R, u64)>,
    ) -> std::result::Result<(), (usize, nic::Error)> {
        match self {
            Qp::Software(qp) => {
                qp.post_send(
                    &mut requests.map(|(request, id)| match request.is_for_system() {
                        false => Ok(request.wqe(id)),
                        true => Err(of_another_device("ibv_post_send")),
                    }),
                )
            }
            Qp::System(qp) => {
                let works = requests.map(|(request, id)| request.work(id));
                qp.post_send(works).map(drop)
            }
        }
    }

    #[inline]
    pub(crate) fn post_recv(&self, wqe: RecvWqe) -> Result<()> {
        match self {
            Qp::Software(qp) => {
                let posted = qp.post_recv(&mut std::iter::once(Ok(wqe)));
                posted.map_err(|(_, error)| error)
            }
            Qp::System(qp) => qp.post_recv(&wqe).map(drop),
        }
    }
}
