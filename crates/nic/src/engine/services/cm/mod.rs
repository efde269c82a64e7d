//! The connection manager's ids, channels and connections, as the engine knows them, and what it
//! sends and takes at QP 1. How programs hold them is in [`crate::cm`].

mod attr;
mod bind;
mod connect;
mod drive;
mod entry;
mod event_translation;
mod held;
mod last_words;
mod life;
mod listeners;
mod multicast;
pub(crate) mod neighbours;
mod qp1;
mod queries;
pub(crate) mod resolve;
mod route;
mod slab;
mod state;
mod waits;

pub(crate) use entry::{Entry, Facts, Marks, Phase, State, TakenEvent, Waiting};
pub(crate) use last_words::LAST_WORDS_NS;
pub(crate) use qp1::Taken;
pub(crate) use queries::Query;
pub use rnic_types::cm::{
    ACCEPT_PRIVATE_DATA, ACCEPT_UD_PRIVATE_DATA, CONNECT_PRIVATE_DATA, CONNECT_UD_PRIVATE_DATA,
    ConnEvent, ConnParam, Ece, EventKind, EventParam, IdOption, PathRecord, PortSpace,
    REJECT_PRIVATE_DATA, UDP_QKEY, UdEvent,
};
pub(crate) use rnic_wire::cm::ServiceId;
pub use route::Route;
pub(crate) use slab::Key;
pub(crate) use state::Cm;
