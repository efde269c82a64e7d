//! RDMA WRITEs that need no packets, since the device reaches the peer's memory by itself
//! ([`Device::execute`]).
//!
//! As RC does it (`rc/requester/execute.rs`), but no ACK tells that what was sent before was
//! executed. Only a path by memory knows that ([`PacketSink::all_executed`]), and only then is a
//! WRITE done so: whatever comes before it came before it. One that the device refuses goes by
//! packets, and is dropped without a word if something is wrong with it.

use super::Uc;
use crate::device::OneSided;
use crate::output::{COST_EXECUTED, Output};
use crate::{Device, PacketSink, SendOp};

/// The longest one: a longer one would hold up other queue pairs, and by packets is as fast.
const MOST: u64 = 64 * 1024;

impl Uc {
    /// RDMA WRITEs done without packets.
    #[inline]
    pub fn without_packets(&self) -> u64 {
        self.counters.without_packets.write.messages
    }

    /// Does the front WQE, of which no packet has left. False: it goes by packets.
    #[inline]
    pub(super) fn execute<H: Device, S: PacketSink>(
        &mut self,
        device: &mut H,
        out: &mut Output<'_, S>,
    ) -> bool {
        if self.grants_outdated || !device.may_execute() {
            return false;
        }
        let Some(wqe) = self.sends.queue.front() else {
            return false;
        };
        let (SendOp::Write { remote_addr, rkey }, len) = (wqe.op, wqe.data.len()) else {
            return false;
        };
        // Last, as that is a look at what the peer writes.
        if len == 0 || len > MOST || out.is_spent() || !out.all_executed() {
            return false;
        }
        let done = device.execute(&OneSided {
            pd: self.attr.pd,
            dest_qpn: self.attr.dest_qpn,
            mtu: self.attr.mtu,
            write: true,
            rkey,
            va: remote_addr,
            data: &wqe.data,
            offset: 0,
            len: len as u32,
            whole: len as u32,
            ends: true,
        });
        if done {
            out.spend(len as usize + COST_EXECUTED);
            self.counters.without_packets.write.add(len);
            self.sends
                .complete_front(self.attr.qpn, &mut self.counters, device);
        }
        done
    }
}

#[cfg(test)]
mod tests;
