//! Responses to READs and atomics as the requester takes them (IBTA 9.7.5.2, 9.9.2.4).

use super::ack::Region;
use super::{Kind, Requester};
use crate::completion::vendor_err;
use crate::rc::{Failure, Shared};
use crate::{Host, SendData, Status, Time};
use rnic_wire::{Operation, Psn};

const UNEXPECTED: Failure = Failure {
    status: Status::BadResponse,
    vendor_err: vendor_err::UNEXPECTED_RESPONSE,
};

impl Requester {
    /// Takes a READ response.
    pub(crate) fn handle_read_response<H: Host>(
        &mut self,
        psn: Psn,
        operation: Operation,
        payload: &[u8],
        now: Time,
        sh: &mut Shared,
        host: &mut H,
    ) -> Result<(), Failure> {
        if !self.reach_response(psn, now, sh, host)? {
            return self.check_fault();
        }
        let Some(front) = self.queue.front() else {
            return Ok(());
        };
        if front.kind == Kind::Confirmed {
            return self.handle_confirmation(operation, payload, now, sh, host);
        }
        if front.kind != Kind::Read {
            return Err(UNEXPECTED);
        }
        let k = (self.una.pos - front.start.pos) as u32;
        let offset = u64::from(k) * u64::from(sh.mtu);
        let left = u64::from(front.len).saturating_sub(offset);
        let last = k + 1 >= front.packets;
        // Responses to several requests may be under way for the same PSNs, cut differently, and a repeated request may
        // be answered as a READ of its own (IBTA) or as the rest of the first one (Linux). What stands is that the
        // first PSN of all starts an answer and the last one ends it.
        let fits = match operation {
            Operation::ReadResponseFirst => !last,
            Operation::ReadResponseMiddle => !last && k > 0,
            Operation::ReadResponseLast => k > 0,
            _ => true,
        };
        if !fits {
            return Err(UNEXPECTED);
        }
        if payload.len() as u64 != left.min(u64::from(sh.mtu)) {
            return Err(Failure {
                status: Status::BadResponse,
                vendor_err: vendor_err::RESPONSE_LENGTH,
            });
        }
        self.store(offset, payload, sh, host)?;
        let before = self.una;
        if last {
            self.retire(sh, host);
        } else if let Some(front) = self.queue.front() {
            self.una = front.mark_at(k + 1, sh.mtu);
        }
        self.progress(before, now, sh);
        self.check_fault()
    }

    /// Takes the awaited answer to an atomic write or FLUSH, that of a READ of nothing.
    fn handle_confirmation<H: Host>(
        &mut self,
        operation: Operation,
        payload: &[u8],
        now: Time,
        sh: &mut Shared,
        host: &mut H,
    ) -> Result<(), Failure> {
        if operation != Operation::ReadResponseOnly {
            return Err(UNEXPECTED);
        }
        if !payload.is_empty() {
            return Err(Failure {
                status: Status::BadResponse,
                vendor_err: vendor_err::RESPONSE_LENGTH,
            });
        }
        let before = self.una;
        self.retire(sh, host);
        self.progress(before, now, sh);
        self.check_fault()
    }

    /// Takes the answer to an atomic.
    pub(crate) fn handle_atomic_ack<H: Host>(
        &mut self,
        psn: Psn,
        original: u64,
        now: Time,
        sh: &mut Shared,
        host: &mut H,
    ) -> Result<(), Failure> {
        if !self.reach_response(psn, now, sh, host)? {
            return self.check_fault();
        }
        if self
            .queue
            .front()
            .is_none_or(|front| front.kind != Kind::Atomic)
        {
            return Err(UNEXPECTED);
        }
        self.store(0, &original.to_ne_bytes(), sh, host)?;
        let before = self.una;
        self.retire(sh, host);
        self.progress(before, now, sh);
        self.check_fault()
    }

    /// A response implies that everything before it was executed. True if it is the awaited one, `una` then being its
    /// position.
    #[inline]
    fn reach_response<H: Host>(
        &mut self,
        psn: Psn,
        now: Time,
        sh: &mut Shared,
        host: &mut H,
    ) -> Result<bool, Failure> {
        match self.region(psn) {
            Region::Awaited(pos) => {
                if self.acknowledge_before(pos, now, sh, host) {
                    return Ok(true);
                }
                sh.counters.out_of_sequence += 1;
                self.implied_nak(pos, sh)?;
            }
            Region::Past => sh.counters.duplicates_received += 1,
            Region::Future => sh.counters.dropped += 1,
        }
        Ok(false)
    }

    /// Stores response bytes into the front WQE's list.
    #[inline]
    fn store<H: Host>(
        &mut self,
        offset: u64,
        data: &[u8],
        sh: &Shared,
        host: &mut H,
    ) -> Result<(), Failure> {
        let Some(front) = self.queue.front() else {
            return Ok(());
        };
        let SendData::Gather(list) = &front.wqe.data else {
            return Err(UNEXPECTED);
        };
        self.scatter.seek(list, offset);
        self.scatter
            .scatter(host, sh.attr.pd, list, data)
            .map_err(Failure::local)
    }
}
