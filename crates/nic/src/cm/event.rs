//! Events, as programs take them.

use super::Id;
use crate::engine::cm_service::{EventKind, EventParam};

/// An event of an id.
#[derive(Clone, Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// 0, -errno, or a reason as the kind says.
    pub status: i32,
    /// Whom it is about; the new id of a [`EventKind::ConnectRequest`].
    pub id: Id,
    /// The mark of whom the event is told: the listener of a [`EventKind::ConnectRequest`], the
    /// membership of multicast events, else the id.
    pub uid: u64,
    /// The listener of a [`EventKind::ConnectRequest`].
    pub listener: Option<Id>,
    /// `uid` of [`Id::join_multicast`] for the multicast events.
    pub multicast: Option<u64>,
    /// More about it.
    pub param: EventParam,
}
