//! The device: what an RDMA NIC is to a program.
//!
//! A [`Context`] is the opened device; from it come protection domains ([`Pd`]), memory regions ([`Mr`]), completion
//! queues ([`Cq`]) and channels ([`CompChannel`]), shared receive queues ([`Srq`]), and queue pairs ([`Qp`]). All contexts of a process share one engine
//! (module `engine`), which joins the queue pairs of `rnic-transport` to the packets of `rnic-link`.
//!
//! Handles are cheap to clone and may be used from any thread. The C ABI and the safe Rust API are both thin layers over
//! this crate.
//!
//! Environment: `RNIC_FAULTS` (fault injection, see [`rnic_link::FaultSpec`]), `RNIC_PCAP` (file to append packets to),
//! `RNIC_XDP` (interfaces whose packets go past the kernel's network stack, see [`rnic_link::XdpSpec`]),
//! `RNIC_GSO` (where the kernel cuts packets, see [`rnic_link::Gso`]), `RNIC_GUARDED_MEMORY` (reach all user memory through the kernel: what was
//! unmapped without deregistration is then an error instead of the end of the process, at 1 to 2 us per packet),
//! `RNIC_REPORT`, `RNIC_STATS` and `RNIC_LINT` (what `rnic run` wants to know, see module `report`).

mod address;
mod ah;
mod bias;
mod busy;
pub mod cm;
mod context;
mod cq;
mod device;
mod dm;
mod dmabuf;
mod driving;
mod engine;
mod error;
mod gid_table;
mod memory;
mod mr;
mod multicast;
mod mw;
mod neighbour;
#[doc(hidden)]
pub mod parts;
mod pd;
mod qp;
mod report;
pub mod reserve;
pub mod resources;
mod srq;
mod sys;
mod within;
mod xrcd;

pub use address::AhAttr;
pub use ah::{Ah, ah_attr_from_header};
pub use context::{AsyncEvent, Context};
pub use cq::{CompChannel, Cq, CqOptions, MAX_CQ_PERIOD, Stamp, WeakCompChannel};
pub use device::{DEVICE_NAME, DeviceAttr, PortAttr, PortState, VENDOR_ID, VENDOR_PART_ID};
pub use dm::Dm;
pub use driving::{
    Waiting, forks_within, guard_forks, objects, port_counters, shards_by_default, shutdown, stats,
};
pub use engine::{DropCounters, Objects, PortCounters, watch_counters};
pub use error::{Error, Result};
pub use gid_table::{GidEntry, device_guid, gid_table, netdev};
pub use memory::Access;
pub use mr::{Advice, Mr, Rereg, ReregError};
pub use mw::{Mw, MwType};
pub use pd::{Pd, PdHold, Td};
pub use qp::{Qp, QpAttr, QpAttrMask, QpCap, QpInit, QpState, QpType};
pub use srq::{Srq, SrqAttr, SrqAttrMask, SrqInit};
pub use sys::PerThread;
pub use within::within;
pub use xrcd::Xrcd;

pub use report::{MOST_FAILURES, refused_verb};
pub use rnic_link::{FaultSpec, LinkCounters, XdpSpec, is_stopped};
pub use rnic_transport::{
    Address, BindWindow, Completion, CompletionOpcode, Counters, Flush, Immediate, InlineBytes,
    MAX_SHORT, NetworkHeader, Placement, QpEvent, RecvWqe, SendData, SendOp, SendWqe, SgList, Sge,
    ShortData, ShortSend, Status, completion::vendor_err,
};
pub use rnic_wire::{Gid, PathMtu};
