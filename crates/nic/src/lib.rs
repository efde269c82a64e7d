//! The device: what an RDMA NIC is to a program.
//!
//! A [`Context`] is the opened device; from it come protection domains ([`Pd`]), memory regions
//! ([`Mr`]), completion queues ([`Cq`]) and channels ([`CompChannel`]), shared receive queues
//! ([`Srq`]), and queue pairs ([`Qp`]). All contexts of a process share one engine (module
//! `engine`), which joins the queue pairs of `rnic-transport` to the packets of `rnic-link`.
//!
//! Handles are cheap to clone and may be used from any thread. The C ABI and the safe Rust API are
//! both thin layers over this crate.
//!
//! What sets it up from outside is in `rnic-settings`.

mod adapt;
mod addressing;
pub mod cm;
mod device;
mod driving;
mod engine;
mod error;
mod host;
mod memory;
mod objects;
mod observe;
#[doc(hidden)]
pub mod parts;
mod queues;
pub mod reserve;
pub mod resources;
mod sync;

pub use addressing::address::AhAttr;
pub use addressing::gid_table::{GidEntry, device_guid, gid_table, netdev};
pub use addressing::pkey_table::PkeyTable;
pub use device::{DEVICE_NAME, VENDOR_ID, VENDOR_PART_ID, device_attr, port_state};
pub use driving::{
    Packets, Readable, Waiting, forks_within, guard_forks, key_violations, objects, port_counters,
    shards_asleep_by_default, shards_by_default, shutdown, stats,
};
pub use engine::{DropCounters, KeyViolations, Objects, PortCounters, watch_counters};
pub use error::{Error, Result};
pub use host::{Host, SimulatedHost};
pub use memory::Access;
pub use objects::ah::{Ah, ah_attr_from_header, ah_attr_from_header_of};
pub use objects::context::Context;
pub use objects::cq::{CompChannel, Cq, WeakCompChannel};
pub use objects::dm::Dm;
pub use objects::mr::{Advice, Mr, Rereg, ReregError};
pub use objects::mw::{Mw, MwType};
pub use objects::pd::{Pd, PdHold, Td};
pub use objects::qp::{Qp, QpInit};
pub use objects::simulated_device::SimulatedDevice;
pub use objects::srq::{Srq, SrqAttr, SrqAttrMask, SrqInit};
pub use objects::xrcd::Xrcd;
pub use queues::{
    AsyncEvent, CqOptions, MAX_CQ_PERIOD, QpAttr, QpAttrMask, QpCap, QpState, QpType, Stamp,
};
pub use rnic_sys::PerThread;
pub use sync::within::within;

pub use observe::{
    Asleep, Awaited, Futures, MOST_FAILURES, Over, Unacknowledged, refused_verb, survived_refusals,
    wait_for_acks, wait_in_sockets, wait_over, was_reached,
};
pub use rnic_host::is_stopped;
pub use rnic_link::{
    Address as PortAddress, FaultSpec, Frame, HostPath, LinkCounters, SimulatedFolder,
    SimulatedPort, SimulatedPortConfig, Wire, XdpSpec,
};
pub use rnic_transport::{
    Address, BindWindow, ByOperation, Completion, CompletionOpcode, Counters, Flush, Immediate,
    InlineBytes, MAX_SHORT, NetworkHeader, Placement, QpEvent, RecvWqe, SendData, SendOp, SendWqe,
    SgList, Sge, ShortData, ShortSend, Status, Traffic, completion::vendor_err,
};
pub use rnic_types::{DeviceAttr, PortAttr, PortState, TransitionError, check_transition};
pub use rnic_wire::{Gid, PathMtu};
