//! Responses to READs and atomics as the requester takes them (IBTA 9.7.5.2, 9.9.2.4).

use super::ack::Region;
use super::{Kind, Requester};
use crate::completion::vendor_err;
use crate::rc::{Failure, Shared};
use crate::{Device, Misplaced, SendData, Status, Time, multi_psn};
use rnic_wire::{Operation, Payload, Psn};

const UNEXPECTED: Failure = Failure {
    status: Status::BadResponse,
    vendor_err: vendor_err::UNEXPECTED_RESPONSE,
};

impl Requester {
    /// Takes a READ response. A multi-PSN one may begin before the awaited one: what
    /// was stored already is cut off. Of one that the wire would have had in packets of another
    /// path MTU the first one decides.
    pub(crate) fn handle_read_response<H: Device>(
        &mut self,
        mut psn: Psn,
        mut operation: Operation,
        mut payload: Payload<'_>,
        now: Time,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<(), Failure> {
        let mut psns = multi_psn::psns_of(&payload);
        if psns > 1 {
            let Some(begins) = self.pos_of(psn) else {
                sh.counters.duplicates_received += 1;
                return self.check_fault();
            };
            let ends = begins + u64::from(psns);
            let cut_otherwise = multi_psn::is_cut_otherwise(&payload, sh.mtu as usize);
            if ends > self.max.pos && !cut_otherwise {
                // Never asked for.
                sh.counters.dropped += 1;
                return self.check_fault();
            }
            if begins < self.una.pos && ends > self.una.pos {
                sh.counters.duplicates_received += 1;
                let stored = self.una.pos - begins;
                psns -= stored as u32;
                psn = self.psn_of(self.una.pos);
                operation = multi_psn::without_start(operation);
                let stored = multi_psn::bytes_of(&payload, stored as usize);
                payload = payload.split_at(stored).1;
            }
            if cut_otherwise && psns > 1 {
                psns = 1;
                operation = multi_psn::start_of_response(operation);
                payload = payload.split_at(multi_psn::bytes_of(&payload, 1)).0;
            }
        }
        if !self.reach_response(psn, now, sh, device)? {
            return self.check_fault();
        }
        let Some(front) = self.queue.front() else {
            return Ok(());
        };
        if front.kind == Kind::Confirmed {
            return self.handle_confirmation(operation, payload, now, sh, device);
        }
        if front.kind != Kind::Read {
            return Err(UNEXPECTED);
        }
        let k = (self.una.pos - front.start.pos) as u32;
        let offset = u64::from(k) * u64::from(sh.mtu);
        let left = u64::from(front.len).saturating_sub(offset);
        let last = k + psns >= front.packets;
        // Responses to several requests may be under way for the same PSNs, cut differently, and a
        // repeated request may be answered as a READ of its own (IBTA) or as the rest of the first
        // one (Linux). What stands is that the first PSN of all starts an answer and the last one
        // ends it.
        let fits = match operation {
            Operation::ReadResponseFirst => !last,
            Operation::ReadResponseMiddle => !last && k > 0,
            Operation::ReadResponseLast => k > 0,
            _ => true,
        };
        if !fits {
            self.wrong_response = Some(payload.len() as u32);
            return Err(UNEXPECTED);
        }
        if payload.len() as u64 != left.min(u64::from(psns) * u64::from(sh.mtu)) {
            self.wrong_response = Some(payload.len() as u32);
            return Err(Failure {
                status: Status::BadResponse,
                vendor_err: vendor_err::RESPONSE_LENGTH,
            });
        }
        if !self.store(offset, payload, sh, device)? {
            // Its bytes are lost: it is asked for again.
            sh.counters.dropped += 1;
            self.implied_nak(self.una.pos, sh)?;
            return self.check_fault();
        }
        let before = self.una;
        if last {
            self.retire(sh, device);
        } else if let Some(front) = self.queue.front() {
            self.una = front.mark_at(k + psns, sh.mtu);
        }
        self.progress(before, now, sh);
        self.check_fault()
    }

    /// Takes the awaited answer to an atomic write or FLUSH, that of a READ of nothing.
    fn handle_confirmation<H: Device>(
        &mut self,
        operation: Operation,
        payload: Payload<'_>,
        now: Time,
        sh: &mut Shared,
        device: &mut H,
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
        self.retire(sh, device);
        self.progress(before, now, sh);
        self.check_fault()
    }

    /// Takes the answer to an atomic.
    pub(crate) fn handle_atomic_ack<H: Device>(
        &mut self,
        psn: Psn,
        original: u64,
        now: Time,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<(), Failure> {
        if !self.reach_response(psn, now, sh, device)? {
            return self.check_fault();
        }
        if self
            .queue
            .front()
            .is_none_or(|front| front.kind != Kind::Atomic)
        {
            return Err(UNEXPECTED);
        }
        let original = original.to_ne_bytes();
        self.store(0, Payload::Here(&original), sh, device)?;
        let before = self.una;
        self.retire(sh, device);
        self.progress(before, now, sh);
        self.check_fault()
    }

    /// A response implies that everything before it was executed. True if it is the awaited one,
    /// `una` then being its position.
    #[inline]
    fn reach_response<H: Device>(
        &mut self,
        psn: Psn,
        now: Time,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<bool, Failure> {
        match self.region(psn) {
            Region::Awaited(pos) => {
                if self.acknowledge_before(pos, now, sh, device) {
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

    /// Stores response bytes into the front WQE's list; false: they are lost.
    #[inline]
    fn store<H: Device>(
        &mut self,
        offset: u64,
        data: Payload<'_>,
        sh: &Shared,
        device: &mut H,
    ) -> Result<bool, Failure> {
        let Some(front) = self.queue.front() else {
            return Ok(true);
        };
        let SendData::Gather(list) = &front.wqe.data else {
            return Err(UNEXPECTED);
        };
        self.scatter.seek(list, offset);
        match self.scatter.scatter(device, sh.attr.pd, list, data) {
            Ok(()) => Ok(true),
            Err(Misplaced::Lost) => Ok(false),
            Err(Misplaced::Refused(fault)) => Err(Failure::local(fault)),
        }
    }
}
