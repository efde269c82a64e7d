//! Short WRITEs, or READs, that are queued one behind the other: the device executes them in one
//! go, where each by itself would cost it a system call.

use super::super::{Entry, Requester};
use super::{target, whole};
use crate::output::{COST_EXECUTED, Output};
use crate::rc::Shared;
use crate::rc::requester::admit::admit;
use crate::{Device, PacketSink, SendOp};

/// Operations of a row at most.
const ROW: usize = 16;
/// Bytes of one at most: of longer ones the copy costs more than the call.
const SHORT: u32 = 16 * 1024;
/// What each but the first costs of a turn's budget beside its bytes.
const COST_BEHIND: usize = COST_EXECUTED / 4;

impl Requester {
    /// `entry` may be executed in a row with a `write`, or a READ.
    fn joins(entry: &Entry, write: bool) -> bool {
        target(&entry.wqe.op).is_some_and(|(is_write, ..)| is_write == write)
            && (1..=SHORT).contains(&entry.len)
            && !entry.started()
    }

    /// The front WQE, which was admitted, and the next one may be executed together.
    #[inline]
    pub(super) fn begins_row(&self) -> bool {
        let (Some(first), Some(second)) = (self.queue.front(), self.queue.get(1)) else {
            return false;
        };
        let write = matches!(first.wqe.op, SendOp::Write { .. });
        self.executed == 0 && Self::joins(first, write) && Self::joins(second, write)
    }

    /// The last WQE may be executed in a row, if the device executes any; all before it can be as
    /// well, as far as that is seen by the first.
    #[inline]
    pub(crate) fn waits_for_row(&self, sh: &Shared) -> bool {
        let last = self.queue.len().checked_sub(1);
        self.may_execute(sh)
            && last.and_then(|at| self.queue.get(at)).is_some_and(|last| {
                let write = matches!(last.wqe.op, SendOp::Write { .. });
                Self::joins(last, write)
            })
    }

    /// Executes as many as it can. False: none.
    pub(super) fn execute_row<H: Device, S: PacketSink>(
        &mut self,
        sh: &mut Shared,
        device: &mut H,
        out: &mut Output<'_, S>,
    ) -> bool {
        let (count, cost) = self.admit_row(sh, device, out.left());
        let entry = |at| whole(self.queue.get(at)?, sh);
        let Some(first) = entry(0) else {
            return false;
        };
        let mut parts = [first; ROW];
        for (at, place) in parts[..count].iter_mut().enumerate() {
            *place = entry(at).unwrap_or(first);
        }
        let done = device.execute_row(&parts[..count]).min(count);
        if done > 0 {
            out.spend(cost);
        }
        for _ in 0..done {
            self.retire_executed(sh, device);
        }
        done > 0
    }

    /// How many from the front on make a row, of those that may be sent as far as this side knows,
    /// and what they cost.
    fn admit_row<H: Device>(&self, sh: &Shared, device: &H, budget: usize) -> (usize, usize) {
        let (mut count, mut cost) = (0, 0);
        let mut write = true;
        while count < ROW
            && cost < budget
            && let Some(entry) = self.queue.get(count)
        {
            if count == 0 {
                write = matches!(entry.wqe.op, SendOp::Write { .. });
            } else if !Self::joins(entry, write) {
                break;
            }
            // Whatever is wrong is said when it is the oldest, and what is not executed now is
            // looked at once more then.
            if !entry.checked && admit(entry, sh, device).is_err() {
                break;
            }
            cost += entry.len as usize
                + if count == 0 {
                    COST_EXECUTED
                } else {
                    COST_BEHIND
                };
            count += 1;
        }
        (count, cost)
    }
}
