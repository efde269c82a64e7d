//! The side that asks.

use super::Endpoint;
use crate::{CmError, ConnId, Connect, Time};

impl Endpoint {
    /// Sends a REQ. Leads to [`Event::Response`](crate::Event::Response), `Rejected` or `Unreachable`.
    ///
    /// # Errors
    /// [`CmError::PrivateData`], [`CmError::IpCmHeader`], [`CmError::NoIds`].
    pub fn connect(&mut self, _now: Time, _connect: &Connect<'_>) -> Result<ConnId, CmError> {
        Err(CmError::NoIds)
    }

    /// After [`Event::Response`](crate::Event::Response): our queue pair is ready to send. Sends an RTU, with at most
    /// 224 bytes of private data.
    ///
    /// # Errors
    /// [`CmError::Unknown`], [`CmError::State`], [`CmError::PrivateData`].
    pub fn ready(
        &mut self,
        _now: Time,
        _conn: ConnId,
        _private_data: &[u8],
    ) -> Result<(), CmError> {
        Err(CmError::Unknown)
    }
}
