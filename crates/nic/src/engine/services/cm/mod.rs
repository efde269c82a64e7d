//! The connection manager's ids, channels and connections, as the engine knows them, and what it
//! sends and takes at QP 1. How programs hold them is in [`crate::cm`].

mod attr;
mod bind;
mod connect;
mod drive;
mod entry;
mod event;
mod event_translation;
mod held;
mod last_words;
mod life;
mod listeners;
mod multicast;
pub(crate) mod neighbours;
mod params;
mod path_record;
mod qp1;
mod queries;
pub(crate) mod resolve;
mod route;
mod slab;
mod state;
mod waits;

pub(crate) use entry::{Entry, Facts, Marks, Phase, State, TakenEvent, Waiting};
pub use event::{ConnEvent, EventKind, EventParam, UdEvent};
pub(crate) use last_words::LAST_WORDS_NS;
pub use params::{ConnParam, Ece, IdOption};
pub use path_record::PathRecord;
pub(crate) use qp1::Taken;
pub(crate) use queries::Query;
pub use rnic_wire::cm::PortSpace;
pub(crate) use rnic_wire::cm::ServiceId;
pub use route::Route;
pub(crate) use slab::Key;
pub(crate) use state::Cm;

/// Q_Key of queue pairs in the port spaces UDP and IPOIB (`RDMA_UDP_QKEY`).
pub const UDP_QKEY: u32 = 0x0123_4567;
/// Most private data of [`Id::connect`](crate::cm::Id::connect) over RC, UC and XRC: what the IP
/// header leaves of a REQ's 92 bytes.
pub const CONNECT_PRIVATE_DATA: usize = 56;
/// The same over UD: what it leaves of a SIDR_REQ's 216 bytes.
pub const CONNECT_UD_PRIVATE_DATA: usize = 180;
/// Most private data of [`Id::accept`](crate::cm::Id::accept) over RC, UC and XRC.
pub const ACCEPT_PRIVATE_DATA: usize = 196;
/// The same over UD, and of [`Id::reject`](crate::cm::Id::reject) over UD.
pub const ACCEPT_UD_PRIVATE_DATA: usize = 136;
/// Most private data of [`Id::reject`](crate::cm::Id::reject).
pub const REJECT_PRIVATE_DATA: usize = 148;
