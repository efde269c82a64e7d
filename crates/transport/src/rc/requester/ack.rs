//! ACKs and NAKs as the requester takes them (IBTA 9.7.5.1, 9.9.2).

use super::{Gap, Requester};
use crate::completion::vendor_err;
use crate::rc::{Failure, Shared};
use crate::{Device, Status, Time};
use rnic_wire::{Aeth, NakCode, Psn, Syndrome};

/// Where an answer's PSN lies.
pub(super) enum Region {
    /// Acknowledged before: an echo.
    Past,
    /// Awaited.
    Awaited(u64),
    /// Never sent: a ghost.
    Future,
}

impl Requester {
    #[inline]
    pub(super) fn region(&self, psn: Psn) -> Region {
        match self.pos_of(psn) {
            Some(pos) if pos >= self.max.pos => Region::Future,
            Some(pos) if pos >= self.una.pos => Region::Awaited(pos),
            _ => Region::Past,
        }
    }

    /// Takes an ACK packet (which may be a NAK).
    pub(crate) fn handle_ack<H: Device>(
        &mut self,
        psn: Psn,
        aeth: Aeth,
        now: Time,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<(), Failure> {
        if !matches!(aeth.syndrome, Syndrome::Ack { .. }) {
            count_nak(aeth.syndrome, sh);
        }
        let pos = match self.region(psn) {
            Region::Awaited(pos) => pos,
            Region::Past => {
                if aeth.syndrome == Syndrome::Nak(NakCode::PsnSequenceError) {
                    self.peer_expects = Some(psn);
                }
                return Ok(());
            }
            Region::Future => {
                // An ACK names what was taken last.
                self.peer_expects = Some(match aeth.syndrome {
                    Syndrome::Ack { .. } => psn.next(),
                    _ => psn,
                });
                sh.counters.dropped += 1;
                return Ok(());
            }
        };
        match aeth.syndrome {
            Syndrome::Ack { .. } => {
                // Says nothing new of a READ in whose PSNs it lies, unless it is the last: then the
                // answer is lost.
                let passed = self.acknowledge_before(pos + 1, now, sh, device);
                if !passed && self.ends_front(pos) {
                    self.implied_nak(self.una.pos, sh)?;
                }
            }
            Syndrome::RnrNak { timer } => {
                sh.counters.rnr_naks_received += 1;
                if !self.acknowledge_before(pos, now, sh, device) {
                    self.implied_nak(self.una.pos, sh)?;
                } else if !self.waits_for_receiver() {
                    if let Some(evidence) = self.note_rnr(now, sh) {
                        device.evidence(&evidence);
                    }
                    self.rnr_wait(timer, now, sh)?;
                }
            }
            Syndrome::Nak(NakCode::PsnSequenceError) => {
                sh.counters.sequence_naks_received += 1;
                if !self.acknowledge_before(pos, now, sh, device) {
                    self.implied_nak(self.una.pos, sh)?;
                } else if self.awaits_answer() {
                    // Otherwise nothing was sent since the last NAK of this PSN. After an RNR NAK
                    // it is the echo of what followed the packet that found no receive, and no
                    // reason to send before the wait is over.
                    if !self.was_not_followed(sh, device)? {
                        self.note_retry(Some(now), 0, sh);
                        self.retries.take(vendor_err::SEQUENCE_NAK)?;
                        self.window.shrink();
                    }
                    self.resend_from_oldest(sh);
                }
            }
            Syndrome::Nak(code) => {
                let failure = refused(code);
                if self.acknowledge_before(pos, now, sh, device) {
                    return Err(failure);
                }
                self.implied_nak(self.una.pos, sh)?;
            }
            Syndrome::Reserved(_) => {
                let failure = Failure {
                    status: Status::BadResponse,
                    vendor_err: vendor_err::RESERVED_SYNDROME,
                };
                if self.acknowledge_before(pos, now, sh, device) {
                    return Err(failure);
                }
                self.implied_nak(self.una.pos, sh)?;
            }
        }
        self.check_fault()
    }

    /// `pos` is at or behind the last PSN of the front WQE.
    fn ends_front(&self, pos: u64) -> bool {
        self.queue
            .front()
            .is_some_and(|front| pos + 1 >= front.start.pos + u64::from(front.packets))
    }

    /// The peer answered something behind the answer that is awaited from a READ or atomic: that
    /// one is lost, and is asked for again at once, once per gap (IBTA 9.7.5.1.3). `seen` is the
    /// position of the response that shows it, `una` if it was no response.
    ///
    /// What is still under way of the first answer lies further and further ahead. If the response
    /// that showed the gap (or one before it) comes again, it belongs to the repetition, whose head
    /// was lost as well: asks once more. The ACK timeout runs on, so that this ends.
    pub(super) fn implied_nak(&mut self, seen: u64, sh: &mut Shared) -> Result<(), Failure> {
        if !self.awaits_answer() {
            return Ok(());
        }
        match self.gap {
            Some(gap) if gap.at == self.una.pos => {
                if seen <= gap.first && seen > gap.at {
                    self.go_back(self.una.pos, sh.mtu);
                }
            }
            _ => {
                self.note_retry(None, 0, sh);
                self.retries.take(vendor_err::LOST_RESPONSE)?;
                self.window.shrink();
                self.gap = Some(Gap {
                    at: self.una.pos,
                    first: seen,
                });
                self.resend_from_oldest(sh);
            }
        }
        Ok(())
    }
}

#[cold]
fn count_nak(syndrome: Syndrome, sh: &mut Shared) {
    let counters = &mut sh.counters;
    counters.naks_received += 1;
    match syndrome {
        Syndrome::Nak(NakCode::RemoteAccessError) => counters.access_naks_received += 1,
        Syndrome::Nak(NakCode::InvalidRequest) => counters.invalid_naks_received += 1,
        Syndrome::Nak(NakCode::RemoteOperationalError) => counters.operational_naks_received += 1,
        // The others are counted where they are taken.
        _ => {}
    }
}

/// The status of a WQE that the peer refused.
fn refused(code: NakCode) -> Failure {
    let status = match code {
        NakCode::InvalidRequest => Status::RemoteInvalidRequest,
        NakCode::RemoteAccessError => Status::RemoteAccessError,
        NakCode::RemoteOperationalError => Status::RemoteOperationError,
        // Means nothing on a connection.
        NakCode::PsnSequenceError | NakCode::InvalidRdRequest | NakCode::Other(_) => {
            Status::BadResponse
        }
    };
    Failure {
        status,
        vendor_err: vendor_err::NAK + u32::from(code.to_u8()),
    }
}
