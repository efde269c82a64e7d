//! The connection manager as the kernel's `rdma_ucm` offers it to librdmacm: ids, event channels, address and route
//! resolution, listeners, connections over QP1.
//!
//! An [`Id`] is bound or resolved to an address of the device, then connects, listens or joins a multicast group; what
//! comes of it is an [`Event`] on its [`EventChannel`]. Queue pairs are not its business: as in Linux' user space the
//! caller makes them and takes them through their states with what [`Id::init_qp_attr`] says.

mod attr;
mod bind;
mod channel;
mod connect;
mod drive;
mod estate;
mod event;
mod held;
mod id;
mod life;
mod multicast;
mod neighbours;
mod params;
mod qp1;
mod resolve;
mod route;
mod slab;
mod state;
mod tell;
mod waits;

pub use channel::EventChannel;
pub use estate::execute_wills_of_the_dead;
pub use event::{ConnEvent, Event, EventKind, EventParam, UdEvent};
pub use id::{Id, Multicast};
pub use params::{ConnParam, Ece, IdOption};
pub use rnic_wire::cm::PortSpace;
pub use route::{PathRecord, Route};

pub(crate) use qp1::Taken;
pub(crate) use state::{Cm, Facts};

/// Q_Key of queue pairs in the port spaces UDP and IPOIB (`RDMA_UDP_QKEY`).
pub const UDP_QKEY: u32 = 0x0123_4567;
/// Most private data of [`Id::connect`] over RC, UC and XRC: what the IP header leaves of a REQ's 92 bytes.
pub const CONNECT_PRIVATE_DATA: usize = 56;
/// The same over UD: what it leaves of a SIDR_REQ's 216 bytes.
pub const CONNECT_UD_PRIVATE_DATA: usize = 180;
/// Most private data of [`Id::accept`] over RC, UC and XRC.
pub const ACCEPT_PRIVATE_DATA: usize = 196;
/// The same over UD, and of [`Id::reject`] over UD.
pub const ACCEPT_UD_PRIVATE_DATA: usize = 136;
/// Most private data of [`Id::reject`].
pub const REJECT_PRIVATE_DATA: usize = 148;
