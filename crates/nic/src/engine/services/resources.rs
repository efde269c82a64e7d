//! What a process has of the device: its queue pairs, regions and so on, for whoever looks from
//! outside, as the kernel's resource tracking tells of user objects.
//!
//! An engine answers page by page, at its turn. Facts only: what a page says was so a moment ago.
//! Who asks is in [`crate::resources`].

mod carried;
mod record;

use std::net::SocketAddr;

use super::cm;
use crate::engine::{Engine, QpEntry};
use crate::memory::domains;
use crate::queues::{QpState, QpType, ReceiveSource, SrqShared};

pub(crate) use carried::decode as decode_carried;
pub use carried::{Carried, Path};
pub(crate) use record::{decode, decode_counters};

/// Most bytes of records in a page.
const PAGE: usize = 64 * 1024;

/// Kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Kind {
    Pd = 1,
    Cq = 2,
    Qp = 3,
    CmId = 4,
    Mr = 5,
    Context = 6,
    Srq = 7,
    /// None: what the port has counted.
    Counters = 8,
    /// Queue pairs again: what each has carried, see [`Carried`].
    Carried = 9,
}

impl Kind {
    /// All kinds of objects.
    pub const OBJECTS: [Kind; 7] = [
        Kind::Pd,
        Kind::Cq,
        Kind::Qp,
        Kind::CmId,
        Kind::Mr,
        Kind::Context,
        Kind::Srq,
    ];

    pub(crate) fn of(code: u8) -> Option<Kind> {
        let mut all = Kind::OBJECTS
            .into_iter()
            .chain([Kind::Counters, Kind::Carried]);
        all.find(|kind| *kind as u8 == code)
    }
}

/// What is told of an object. Other objects are named by their numbers; 0: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the verbs")]
pub enum Detail {
    Pd {
        users: u32,
        context: u32,
    },
    Cq {
        cqe: u32,
        users: u32,
        context: u32,
    },
    Qp {
        qp_type: QpType,
        state: QpState,
        /// 0 before INIT.
        port: u8,
        path_mig_state: u8,
        dest_qp_num: u32,
        rq_psn: u32,
        sq_psn: u32,
        pd: u32,
        srq: u32,
    },
    CmId {
        /// That the peer was told of.
        qpn: u32,
        qp_type: QpType,
        port_space: u16,
        /// Of Linux' `enum rdma_cm_state`.
        state: u8,
        /// 0: on no row of the device, or on all.
        port: u8,
        local: Option<SocketAddr>,
        peer: Option<SocketAddr>,
    },
    Mr {
        /// lkey and rkey.
        key: u32,
        length: u64,
        pd: u32,
    },
    Context,
    Srq {
        xrc: bool,
        pd: u32,
        /// Of one for XRC.
        cq: u32,
    },
}

/// Records of some objects.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) bytes: Vec<u8>,
    /// The place of the first that is not in it; 0: there are no more.
    pub(crate) next: u32,
}

/// The number of an object by that of the process's first range and its number there. Some bits are
/// the range's: no two processes have the same.
fn number(first_range: u32, own: u32) -> u32 {
    first_range << 20 | (own & 0xf_ffff)
}

/// A region's: its process has chosen 24 bits at random.
fn region_number(first_range: u32, key: u32) -> u32 {
    first_range << 24 | key >> 8
}

impl Page {
    /// Is there room for a record of `longest` bytes at most? If not, the next page begins with it.
    fn has_room(&mut self, place: usize, longest: usize) -> bool {
        let fits = self.bytes.len() + longest <= PAGE;
        if !fits {
            self.next = place as u32;
        }
        fits
    }

    /// Adds a record; false: it does not fit.
    fn add(&mut self, place: usize, number: u32, detail: &Detail) -> bool {
        if !self.has_room(place, record::LONGEST) {
            return false;
        }
        record::encode(&mut self.bytes, number, detail);
        true
    }

    fn extend(&mut self, from: u32, records: impl Iterator<Item = (u32, Detail)>) {
        for (place, (number, detail)) in (from as usize..).zip(records.skip(from as usize)) {
            if !self.add(place, number, &detail) {
                return;
            }
        }
    }
}

impl Engine {
    /// Objects of a kind from the place `from` on. Each shard has queue pairs; all else is told by
    /// the first.
    pub(crate) fn resources(&mut self, kind: Kind, from: u32) -> Page {
        let mut page = Page::default();
        let first_range = self.common.first_range();
        let first = self.index == 0;
        match kind {
            Kind::Qp => page.extend(from, self.entries().map(|entry| qp(first_range, entry))),
            Kind::Counters => record::encode_counters(&mut page.bytes, &self.port_counters()),
            Kind::Carried => self.tell_carried(from, &mut page),
            _ if !first => {}
            Kind::Pd => {
                let mut place = from as usize;
                domains::each_from(place, |pd| {
                    let detail = Detail::Pd {
                        users: pd.users,
                        context: number(first_range, pd.context as u32),
                    };
                    place += 1;
                    page.add(place - 1, number(first_range, pd.number), &detail)
                });
            }
            Kind::Cq => {
                let mut place = from as usize;
                self.common.each_cq_from(place, |cq| {
                    let load = std::sync::atomic::Ordering::Relaxed;
                    let detail = Detail::Cq {
                        cqe: cq.capacity.load(load),
                        users: cq.users.load(load),
                        context: number(first_range, cq.context as u32),
                    };
                    place += 1;
                    page.add(place - 1, number(first_range, cq.number), &detail)
                });
            }
            Kind::CmId => page.extend(from, self.cm.facts().map(|id| cm_id(first_range, &id))),
            Kind::Mr => {
                let regions = self.memory.regions().map(|(key, region)| {
                    let detail = Detail::Mr {
                        key,
                        length: region.length,
                        pd: number(first_range, region.pd),
                    };
                    (region_number(first_range, key), detail)
                });
                page.extend(from, regions);
            }
            Kind::Context => {
                let contexts = self.neighbours.contexts();
                page.extend(
                    from,
                    contexts.map(|id| (number(first_range, id as u32), Detail::Context)),
                );
            }
            Kind::Srq => page.extend(
                from,
                self.srqs.iter().map(|srq| self::srq(first_range, srq)),
            ),
        }
        page
    }
}

fn qp(first_range: u32, entry: &QpEntry) -> (u32, Detail) {
    let shared = &entry.shared;
    let attr = entry.query(shared.state());
    let pd = match shared.qp_type() {
        // Works in those of the shared receive queues that requests name.
        QpType::XrcRecv => 0,
        _ => number(first_range, shared.pd.0),
    };
    let detail = Detail::Qp {
        qp_type: shared.qp_type(),
        state: attr.qp_state,
        port: attr.port_num,
        path_mig_state: attr.path_mig_state,
        dest_qp_num: attr.dest_qp_num,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
        pd,
        srq: match &shared.source {
            ReceiveSource::Srq(srq) => srq.number,
            ReceiveSource::Own | ReceiveSource::Xrc(_) => 0,
        },
    };
    (shared.qpn, detail)
}

fn cm_id(first_range: u32, id: &cm::Facts) -> (u32, Detail) {
    let detail = Detail::CmId {
        qpn: id.qpn,
        qp_type: id.qp_type,
        port_space: id.port_space as u16,
        state: id.state,
        port: id.on_device.into(),
        local: id.local,
        peer: id.peer,
    };
    (number(first_range, id.number), detail)
}

fn srq(first_range: u32, srq: &SrqShared) -> (u32, Detail) {
    let detail = Detail::Srq {
        xrc: srq.xrc.is_some(),
        pd: number(first_range, srq.pd.0),
        cq: srq
            .xrc
            .as_ref()
            .map_or(0, |xrc| number(first_range, xrc.cq.facts.number)),
    };
    (srq.number, detail)
}
