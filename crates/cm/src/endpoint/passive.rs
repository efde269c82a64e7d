//! The side that is asked.

use super::Endpoint;
use crate::{Accept, CmError, ConnId, Time};
use rnic_wire::cm::RejectReason;

impl Endpoint {
    /// After [`Event::Request`](crate::Event::Request): our queue pair is ready to receive (and, as in Linux, to send).
    /// Sends a REP. Leads to `Established`, `Rejected`, `Unreachable` or `Disconnected`.
    ///
    /// # Errors
    /// [`CmError::Unknown`], [`CmError::State`], [`CmError::PrivateData`].
    pub fn accept(
        &mut self,
        _now: Time,
        _conn: ConnId,
        _accept: &Accept<'_>,
    ) -> Result<(), CmError> {
        Err(CmError::Unknown)
    }

    /// After [`Event::Request`](crate::Event::Request) or [`Event::Response`](crate::Event::Response): refuses. Sends a
    /// REJ with at most 72 bytes of additional information and 148 of private data. The connection is destroyed: no
    /// event names it any more.
    ///
    /// # Errors
    /// [`CmError::Unknown`], [`CmError::State`], [`CmError::PrivateData`].
    pub fn reject(
        &mut self,
        _now: Time,
        _conn: ConnId,
        _reason: RejectReason,
        _info: &[u8],
        _private_data: &[u8],
    ) -> Result<(), CmError> {
        Err(CmError::Unknown)
    }

    /// After `accept`: data have come on the connection, so the peer is ready, although its RTU may be late or lost
    /// (`rdma_notify(3)` with `IBV_EVENT_COMM_EST`). Leads to [`Event::Established`](crate::Event::Established). No
    /// error if the connection is established already.
    ///
    /// # Errors
    /// [`CmError::Unknown`], [`CmError::State`].
    pub fn established(&mut self, _now: Time, _conn: ConnId) -> Result<(), CmError> {
        Err(CmError::Unknown)
    }
}
