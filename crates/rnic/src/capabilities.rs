//! What a device can do.

use crate::context::Context;
use crate::nic;

/// What a device is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackEnd {
    /// The software NIC, inside this process.
    Software,
    /// A device of the system's libibverbs.
    System,
}

/// What an open device can do; see [`Context::capabilities`]. What it cannot is an error that names
/// the device, and never a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// What the device is made of.
    pub back_end: BackEnd,
    /// Unreliable connections ([`Uc`](crate::Uc)).
    pub uc: bool,
    /// Datagrams ([`Ud`](crate::Ud)).
    pub ud: bool,
    /// Extended reliable connections ([`Xrc`](crate::Xrc)).
    pub xrc: bool,
    /// Shared receive queues.
    pub srq: bool,
    /// Compare-and-swap, and fetch-and-add.
    pub atomics: bool,
    /// Memory windows.
    pub windows: bool,
    /// FLUSH ([`SendRequest::flush`](crate::SendRequest::flush)).
    pub flush: bool,
    /// Groups of datagrams.
    pub multicast: bool,
    /// The members of a group that are queue pairs of the sender's own device get their copies, too.
    /// Of Soft-RoCE only those of other hosts do.
    pub multicast_loopback: bool,
    /// Failures have the status, and leave the queue pair in the state, that the IBTA specification
    /// says. Soft-RoCE has [`Status::LocalQpOperationError`](crate::Status::LocalQpOperationError)
    /// for many of them, ERR instead of SQE, and does not refuse a peer that invalidates a plain
    /// region.
    pub exact_failures: bool,
    /// Failures of a queue pair that no completion tells are asynchronous events
    /// ([`QpEvent`](crate::QpEvent)), and so is the last receive that a queue pair takes from a
    /// shared queue, which [`QueuePair::drain`](crate::QueuePair::drain) waits for. A limit that a
    /// shared queue is below already is told at once. Soft-RoCE does none of this.
    pub failure_events: bool,
    /// Completions can be stamped
    /// ([`CompletionQueueBuilder::timestamps`](crate::CompletionQueueBuilder::timestamps)).
    pub timestamps: bool,
    /// The connection manager ([`cm`](crate::cm)) connects its queue pairs of RC, and finds services
    /// for datagrams.
    pub connection_manager: bool,
    /// It connects those of UC, too. The system's has none of them.
    pub connection_manager_uc: bool,
    /// By it a service for datagrams may have any queue key. Else it has
    /// [`UDP_QKEY`](crate::cm::UDP_QKEY).
    pub connection_manager_qkey: bool,
    /// Queue pairs have [`Counters`](crate::Counters) of their own. Else all of them stay 0.
    pub counters: bool,
    /// Most READs and atomics in flight, of a queue pair.
    pub max_rd_atomic: u8,
    /// The most inline data of a queue pair. Of a device of the system it is one of the usual sizes
    /// that the device has taken.
    pub max_inline_data: u32,
}

impl Context {
    /// What the device can do. Of a device of the system the first call tries what such a device does
    /// not tell: it makes a few queue pairs and destroys them.
    pub fn capabilities(&self) -> Capabilities {
        match self.raw.abilities() {
            None => {
                let attr = nic::device_attr();
                Capabilities {
                    back_end: BackEnd::Software,
                    uc: true,
                    ud: true,
                    xrc: true,
                    srq: true,
                    atomics: true,
                    windows: true,
                    flush: true,
                    multicast: true,
                    multicast_loopback: true,
                    exact_failures: true,
                    failure_events: true,
                    timestamps: true,
                    connection_manager: true,
                    connection_manager_uc: true,
                    connection_manager_qkey: true,
                    counters: true,
                    max_rd_atomic: attr.max_qp_rd_atom as u8,
                    max_inline_data: attr.max_inline_data,
                }
            }
            Some(can) => Capabilities {
                back_end: BackEnd::System,
                uc: can.uc,
                ud: can.ud,
                xrc: can.xrc,
                srq: can.srq,
                atomics: can.atomics,
                windows: can.windows,
                flush: false,
                multicast: can.multicast,
                multicast_loopback: can.multicast_loopback,
                exact_failures: can.exact_failures,
                failure_events: can.failure_events,
                timestamps: can.timestamps,
                connection_manager: rnic_libibverbs::cm::is_there(),
                connection_manager_uc: false,
                connection_manager_qkey: false,
                counters: false,
                max_rd_atomic: can.max_rd_atomic,
                max_inline_data: can.max_inline_data,
            },
        }
    }

    /// What the device is made of.
    pub fn back_end(&self) -> BackEnd {
        match self.raw.is_system() {
            false => BackEnd::Software,
            true => BackEnd::System,
        }
    }
}
