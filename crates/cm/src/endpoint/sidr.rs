//! Service ID resolution: both sides.

use super::Endpoint;
use crate::{CmError, SidrAnswer, SidrConnect, SidrId, Time};

impl Endpoint {
    /// Sends a SIDR_REQ. Leads to [`Event::SidrResponse`](crate::Event::SidrResponse) or `SidrUnreachable`.
    ///
    /// # Errors
    /// [`CmError::PrivateData`], [`CmError::IpCmHeader`], [`CmError::NoIds`].
    pub fn sidr_connect(
        &mut self,
        _now: Time,
        _connect: &SidrConnect<'_>,
    ) -> Result<SidrId, CmError> {
        Err(CmError::NoIds)
    }

    /// After [`Event::SidrRequest`](crate::Event::SidrRequest): sends a SIDR_REP. The resolution is destroyed: no event
    /// names it any more.
    ///
    /// # Errors
    /// [`CmError::Unknown`], [`CmError::PrivateData`].
    pub fn sidr_answer(
        &mut self,
        _now: Time,
        _sidr: SidrId,
        _answer: &SidrAnswer<'_>,
    ) -> Result<(), CmError> {
        Err(CmError::Unknown)
    }

    /// The application has no more interest: a question is not repeated any more, one that was not answered is answered
    /// with "rejected".
    pub fn sidr_destroy(&mut self, _now: Time, _sidr: SidrId) {}
}
