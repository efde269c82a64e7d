//! The connection manager as the kernel's `rdma_ucm` offers it to librdmacm: ids, event channels,
//! address and route resolution, listeners, connections over QP1.
//!
//! An [`Id`] is bound or resolved to an address of the device, then connects, listens or joins a
//! multicast group; what comes of it is an [`Event`] on its [`EventChannel`]. Queue pairs are not
//! its business: as in Linux' user space the caller makes them and takes them through their states
//! with what [`Id::init_qp_attr`] says.

mod channel;
mod event;
mod id;
mod last_words;

pub use channel::EventChannel;
pub use event::Event;
pub use id::{Id, Multicast};
pub use last_words::send_last_words_of_the_dead;

pub use crate::engine::cm_service::{
    ACCEPT_PRIVATE_DATA, ACCEPT_UD_PRIVATE_DATA, CONNECT_PRIVATE_DATA, CONNECT_UD_PRIVATE_DATA,
    ConnEvent, ConnParam, Ece, EventKind, EventParam, IdOption, PathRecord, PortSpace,
    REJECT_PRIVATE_DATA, Route, UDP_QKEY, UdEvent,
};
