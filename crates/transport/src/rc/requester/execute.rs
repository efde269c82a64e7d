//! RDMA WRITEs and READs that need no packets, since the device reaches the peer's memory by itself
//! ([`Device::execute`]).
//!
//! Only a peer that has acknowledged a packet of this very connection has its rules told to this
//! side: that it takes its PSNs, service and address. What it granted to an earlier connection of
//! the same two queue pairs says nothing of that.
//!
//! Such a one is executed when its turn to be sent comes, or right when it is posted if it is
//! alone, and nothing before it is unacknowledged: so all that the peer was sent before was
//! executed, and what comes behind leaves later. It takes no PSN. A long one is done in parts, so
//! that others have their turns in between. The device may refuse at any part, whatever the reason:
//! then all of it goes by packets, and whatever is wrong with it is found in the way of the wire.
//!
//! What a short one costs is mostly the system call, so short ones that are queued one behind the
//! other are executed in rows.
//!
//! A queue that never runs empty would stay with the packets that it began with. So if nothing but
//! WRITEs and READs is unacknowledged, and the next one could be executed without packets, it
//! waits, once. Others are not held up by that.

mod row;

use super::admit::admit;
use super::{Entry, Kind, Requester};
use crate::device::OneSided;
use crate::output::{COST_EXECUTED, Output};
use crate::rc::{Failure, Role, Shared};
use crate::scatter::SgCursor;
use crate::{Device, PacketSink, SendOp, Status};

/// Bytes of a part while nobody waits: each costs three microseconds beside its bytes, which take
/// some fifty.
const PART: u32 = 1024 * 1024;
/// The same while others wait.
const PART_WHILE_OTHERS_WAIT: u32 = 64 * 1024;

/// What is asked of the peer: a WRITE, else a READ; where, under which key.
fn target(op: &SendOp) -> Option<(bool, u64, u32)> {
    match *op {
        SendOp::Write { remote_addr, rkey } => Some((true, remote_addr, rkey)),
        SendOp::Read { remote_addr, rkey } => Some((false, remote_addr, rkey)),
        _ => None,
    }
}

/// The whole of `entry`, for the device.
fn whole<'a>(entry: &'a Entry, sh: &Shared) -> Option<OneSided<'a>> {
    let (write, va, rkey) = target(&entry.wqe.op)?;
    Some(OneSided {
        pd: sh.attr.pd,
        dest_qpn: sh.attr.dest_qpn,
        mtu: sh.attr.mtu,
        write,
        rkey,
        va,
        data: &entry.wqe.data,
        offset: 0,
        len: entry.len,
        whole: entry.len,
        ends: true,
    })
}

/// How far it got.
pub(super) enum Executed {
    /// Not at all: it goes by packets.
    No,
    /// A part of it, or all.
    Yes,
    /// The turn is over.
    Later,
}

impl Requester {
    /// May the current WQE be executed without packets, as far as this side knows?
    #[inline]
    pub(super) fn may_execute(&self, sh: &Shared) -> bool {
        self.current == 0
            && self.una.pos == self.max.pos
            && self.una.pos > self.known_from
            && sh.attr.role == Role::Rc
            && self.queue.front().is_some_and(|front| {
                target(&front.wqe.op).is_some() && front.len > 0 && !front.started()
            })
    }

    /// Shall the current WQE wait until those before it are acknowledged, and need no packets then?
    pub(super) fn should_hold<H: Device>(&self, sh: &Shared, device: &H) -> bool {
        let Some(entry) = self.queue.get(self.current) else {
            return false;
        };
        let Some(whole) = whole(entry, sh) else {
            return false;
        };
        !entry.started()
            && entry.len > 0
            && self.una.pos > self.known_from
            && sh.attr.role == Role::Rc
            && device.may_execute()
            && device.would_execute(&whole)
            // Last, as there may be many.
            && self
                .queue
                .iter()
                .take(self.current)
                .all(|e| target(&e.wqe.op).is_some())
    }

    /// Executes a part of it. An error concerns the current WQE.
    pub(super) fn execute<H: Device, S: PacketSink>(
        &mut self,
        sh: &mut Shared,
        device: &mut H,
        out: &mut Output<'_, S>,
    ) -> Result<Executed, Failure> {
        self.holding = false;
        let Some(entry) = self.queue.front_mut() else {
            return Ok(Executed::No);
        };
        if target(&entry.wqe.op).is_none() {
            return Ok(Executed::No);
        }
        if !device.may_execute() {
            return Ok(Executed::No);
        }
        if !entry.checked {
            admit(entry, sh, device)?;
            entry.checked = true;
        }
        if out.is_spent() {
            return Ok(Executed::Later);
        }
        if self.begins_row() {
            let executed = self.execute_row(sh, device, out);
            return Ok(if executed {
                Executed::Yes
            } else {
                Executed::No
            });
        }
        let Some(entry) = self.queue.front() else {
            return Ok(Executed::No);
        };
        let part = if self.window.is_head_of_line_limited() {
            PART_WHILE_OTHERS_WAIT
        } else {
            PART
        };
        let len = (entry.len - self.executed).min(part);
        let part = whole(entry, sh).and_then(|whole| {
            Some(OneSided {
                va: whole.va.checked_add(u64::from(self.executed))?,
                offset: u64::from(self.executed),
                len,
                ends: self.executed + len == entry.len,
                ..whole
            })
        });
        let done = part.is_some_and(|part| device.execute(&part));
        if !done {
            self.executed = 0;
            return Ok(Executed::No);
        }
        out.spend(len as usize + COST_EXECUTED);
        self.executed += len;
        if self.executed == entry.len {
            self.retire_executed(sh, device);
        }
        Ok(Executed::Yes)
    }

    /// Executes all of the only WQE, which was just posted, if it is no longer than a part. False:
    /// it was not; [`Requester::execute`] knows why.
    #[inline]
    pub(crate) fn execute_lone<H: Device>(&mut self, sh: &mut Shared, device: &mut H) -> bool {
        if self.queue.len() != 1
            || self.executed > 0
            || !self.may_execute(sh)
            || !self.can_send(sh)
            || !device.may_execute()
        {
            return false;
        }
        let Some(entry) = self.queue.front_mut() else {
            return false;
        };
        if entry.len > PART_WHILE_OTHERS_WAIT || !entry.checked && admit(entry, sh, device).is_err()
        {
            return false;
        }
        entry.checked = true;
        let done = whole(entry, sh).is_some_and(|whole| device.execute(&whole));
        if done {
            self.holding = false;
            self.retire_executed(sh, device);
        }
        done
    }

    /// The front WQE is done.
    fn retire_executed<H: Device>(&mut self, sh: &mut Shared, device: &mut H) {
        self.executed = 0;
        let Some(front) = self.queue.pop_front() else {
            return;
        };
        debug_assert!(matches!(front.kind, Kind::Acked | Kind::Read));
        self.gather = SgCursor::default();
        self.scatter = SgCursor::default();
        let bytes = u64::from(front.len);
        sh.counters.messages_sent += 1;
        sh.counters.requested.requested(&front.wqe.op, bytes);
        sh.counters.without_packets.requested(&front.wqe.op, bytes);
        if front.wqe.signaled {
            device.complete_send(front.completion(sh.attr.qpn, Status::Success, 0));
        }
        self.retire_local(sh, device);
    }
}

#[cfg(test)]
mod tests;
