//! How connections end.

use super::Endpoint;
use crate::{CmError, ConnId, Time, Will};

impl Endpoint {
    /// Ends a connection that is established, or accepted: sends a DREQ with at most 220 bytes of private data, which
    /// leads to [`Event::Disconnected`](crate::Event::Disconnected). If the peer ended it, confirms that instead (DREP,
    /// at most 224 bytes). No error if this was done before.
    ///
    /// # Errors
    /// [`CmError::Unknown`], [`CmError::State`], [`CmError::PrivateData`].
    pub fn disconnect(
        &mut self,
        _now: Time,
        _conn: ConnId,
        _private_data: &[u8],
    ) -> Result<(), CmError> {
        Err(CmError::Unknown)
    }

    /// The application has no more interest in the connection, whatever its state: no event names it from now on, and
    /// the peer is told (REJ, DREQ or DREP). What has to be repeated is repeated.
    pub fn destroy(&mut self, _now: Time, _conn: ConnId) {}

    /// The process at the other end is known to be dead: as if a DREQ had come, or, before the connection was
    /// established, as if all retries were used up.
    pub fn peer_died(&mut self, _now: Time, _conn: ConnId) {}

    /// Disconnects in the name of a process that died. The DREQ is repeated three times, 250 ms apart, because its answer
    /// may go elsewhere. No event names this connection.
    pub fn execute(&mut self, _now: Time, _will: &Will) {}
}
