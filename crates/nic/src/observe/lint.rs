//! What works here and would fail on hardware, for `rnic run --lint`.
//!
//! When it is off, the data path pays one test of a flag that never changes.
//!
//! A new kind of finding also goes to `cli/src/commands/run/report/lint.rs`,
//! `cli/tests/report_lines.jsonl`, `programs/tests/lint.rs`, `programs/c/lint.c` and
//! `docs/json.md`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rnic_link::Address;
use rnic_transport::{Completion, Pd, SendData, SendWqe, SgList, Status};

use super::{State, state, write};
use crate::memory::MemoryTable;
use crate::queues::{CqShared, QpAttr, QpCap, QpShared, QpState, ReceiveSource};

static ON: AtomicBool = AtomicBool::new(false);

/// Inline data that every common NIC takes.
const USUAL_INLINE: u32 = 256;

/// `--lint` was given.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

pub(super) fn switch(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

/// A send whose bytes must not change before its completion.
#[derive(Debug)]
struct Sent {
    wr_id: u64,
    /// `None`: no bytes in memory to look at.
    list: Option<(SgList, u64)>,
}

/// One queue pair.
#[derive(Debug, Default)]
struct Queue {
    asked: QpCap,
    unsignaled: u32,
    sent: VecDeque<Sent>,
    send_posted: bool,
    receive_posted: bool,
    /// Reached RTS with rnr_retry 0, or a service that has no such thing, and no receive.
    late: bool,
    shares_receives: bool,
}

/// What was found, and what is needed to find it.
#[derive(Debug)]
pub(super) struct Findings {
    found: BTreeMap<(&'static str, u64), u64>,
    queues: BTreeMap<u32, Queue>,
    /// Sends that are being posted.
    staged: Vec<(u32, Posted)>,
    /// Depths that feed each completion queue, by its address.
    feeds: BTreeMap<usize, u64>,
    locked: u64,
}

impl Findings {
    pub(super) const fn new() -> Findings {
        Findings {
            found: BTreeMap::new(),
            queues: BTreeMap::new(),
            staged: Vec::new(),
            feeds: BTreeMap::new(),
            locked: 0,
        }
    }
}

/// One finding: what, of which object, and the two numbers that do not go together.
struct Finding<'a> {
    kind: &'static str,
    /// Object's number; 0 for the process.
    object: u64,
    value: u64,
    limit: u64,
    more: &'a str,
}

impl State {
    fn found(&mut self, finding: Finding<'_>) {
        let Finding {
            kind,
            object,
            value,
            limit,
            more,
        } = finding;
        let count = self.findings.found.entry((kind, object)).or_default();
        *count += 1;
        let count = *count;
        // Each time would fill the file; the reader takes the largest.
        if !count.is_power_of_two() {
            return;
        }
        let mut line = self.record("lint");
        line.text("kind", kind)
            .number("object", object)
            .number("value", value)
            .number("limit", limit)
            .number("count", count)
            .text("more", more);
        write(line);
    }
}

impl State {
    /// A packet with hop limit 1 is not forwarded by a router (IBTA vol. 1, 8.3.6). To a group it
    /// is usual.
    fn check_hop_limit(&mut self, object: u64, hop_limit: u8, remote: Address) {
        if hop_limit == 1 && !remote.is_multicast() {
            self.found(Finding {
                kind: "hop limit",
                object,
                value: 1,
                limit: 0,
                more: &remote.to_string(),
            });
        }
    }
}

fn cq_key(cq: &Arc<CqShared>) -> usize {
    Arc::as_ptr(cq) as usize
}

/// A queue pair was created with these sizes asked for.
pub(crate) fn created(shared: &QpShared, asked: QpCap) {
    let shares_receives = !matches!(shared.source, ReceiveSource::Own);
    let Some(mut state) = state() else {
        return;
    };
    let queue = Queue {
        asked,
        shares_receives,
        ..Queue::default()
    };
    state.findings.queues.insert(shared.qpn, queue);
    if asked.max_inline_data > USUAL_INLINE {
        state.found(Finding {
            kind: "inline",
            object: u64::from(shared.qpn),
            value: u64::from(asked.max_inline_data),
            limit: u64::from(USUAL_INLINE),
            more: "",
        });
    }
}

pub(super) fn destroyed(state: &mut State, shared: &QpShared) {
    let Some(queue) = state.findings.queues.remove(&shared.qpn) else {
        return;
    };
    let mut less = |used: bool, cq: Option<&Arc<CqShared>>, depth: u32| {
        let Some(cq) = cq.filter(|_| used) else {
            return;
        };
        if let Some(sum) = state.findings.feeds.get_mut(&cq_key(cq)) {
            *sum = sum.saturating_sub(u64::from(depth));
            if *sum == 0 {
                state.findings.feeds.remove(&cq_key(cq));
            }
        }
    };
    less(
        queue.send_posted,
        shared.send_cq.as_ref(),
        queue.asked.max_send_wr,
    );
    less(
        queue.receive_posted,
        shared.recv_cq.as_ref(),
        queue.asked.max_recv_wr,
    );
}

/// A queue pair has reached a state.
pub(super) fn reached(
    state: &mut State,
    shared: &QpShared,
    attr: &QpAttr,
    ends: Option<(Address, Address)>,
) {
    let qpn = shared.qpn;
    match shared.state() {
        QpState::Reset => {
            if let Some(queue) = state.findings.queues.get_mut(&qpn) {
                queue.sent.clear();
                queue.unsignaled = 0;
                queue.late = false;
            }
        }
        QpState::Rtr => {
            if let Some((_, remote)) = ends {
                state.check_hop_limit(u64::from(qpn), attr.ah.hop_limit, remote);
            }
            if let Some((local, remote)) = ends
                && local.kind() != remote.kind()
            {
                state.found(Finding {
                    kind: "gid",
                    object: u64::from(qpn),
                    value: u64::from(attr.ah.sgid_index),
                    limit: 0,
                    more: &format!(
                        "{local} ({}) and {remote} ({})",
                        local.kind(),
                        remote.kind()
                    ),
                });
            }
        }
        QpState::Rts => {
            if let Some(queue) = state.findings.queues.get_mut(&qpn)
                && attr.rnr_retry == 0
                && !queue.receive_posted
                && !queue.shares_receives
            {
                queue.late = true;
            }
        }
        _ => {}
    }
}

/// An address handle was made.
#[cold]
pub(crate) fn address_handle_made(hop_limit: u8, remote: Address) {
    if let Some(mut state) = state() {
        state.check_hop_limit(0, hop_limit, remote);
    }
}

/// Receives were posted.
#[cold]
pub(crate) fn receive_posted(shared: &QpShared) {
    let Some(mut state) = state() else {
        return;
    };
    let Some(queue) = state.findings.queues.get_mut(&shared.qpn) else {
        return;
    };
    let depth = queue.asked.max_recv_wr;
    let first = !std::mem::replace(&mut queue.receive_posted, true);
    if std::mem::take(&mut queue.late) {
        state.found(Finding {
            kind: "late receive",
            object: u64::from(shared.qpn),
            value: 0,
            limit: 0,
            more: shared.type_name(),
        });
    }
    if first {
        feed(&mut state, shared.recv_cq.as_ref(), depth);
    }
}

/// A work queue of that depth begins to feed a completion queue. One that is never used is no
/// danger.
fn feed(state: &mut State, cq: Option<&Arc<CqShared>>, depth: u32) {
    let Some(cq) = cq else {
        return;
    };
    let sum = state.findings.feeds.entry(cq_key(cq)).or_default();
    *sum += u64::from(depth);
    let sum = *sum;
    let capacity = u64::from(cq.capacity());
    if sum > capacity {
        state.found(Finding {
            kind: "cq",
            object: cq_key(cq) as u64,
            value: sum,
            limit: capacity,
            more: "",
        });
    }
}

/// What [`posted`] has to know of a WQE.
#[derive(Debug)]
struct Posted {
    wr_id: u64,
    signaled: bool,
    list: Option<SgList>,
}

/// A send is about to enter its queue; [`posted`] looks at it before it leaves.
#[cold]
pub(crate) fn stage(wqe: &SendWqe, qpn: u32) {
    if let Some(mut state) = state() {
        let list = match &wqe.data {
            SendData::Gather(list) if !wqe.op.is_read_or_atomic() => Some(list.clone()),
            _ => None,
        };
        let staged = Posted {
            wr_id: wqe.wr_id,
            signaled: wqe.signaled,
            list,
        };
        state.findings.staged.push((qpn, staged));
    }
}

/// The sends that were staged are in their queue; nothing of them has left yet.
#[cold]
pub(crate) fn posted(memory: &MemoryTable, shared: &QpShared) {
    let (pd, qpn) = (shared.pd, shared.qpn);
    let Some(mut state) = state() else {
        return;
    };
    // Another shard's thread may be staging as well.
    let ours = |(of, _): &mut (u32, Posted)| *of == qpn;
    let posted: Vec<_> = state.findings.staged.extract_if(.., ours).collect();
    let Some(queue) = state.findings.queues.get_mut(&qpn) else {
        return;
    };
    let depth = queue.asked.max_send_wr.max(1);
    let first = !std::mem::replace(&mut queue.send_posted, true);
    let mut full = 0;
    for (_, one) in posted {
        queue.unsignaled = if one.signaled {
            0
        } else {
            queue.unsignaled + 1
        };
        if queue.unsignaled != 0 && queue.unsignaled.is_multiple_of(depth) {
            full += 1;
        }
        let list = one
            .list
            .and_then(|list| Some((checksum(memory, pd, &list)?, list)));
        queue.sent.push_back(Sent {
            wr_id: one.wr_id,
            list: list.map(|(sum, list)| (list, sum)),
        });
    }
    if first {
        feed(&mut state, shared.send_cq.as_ref(), depth);
    }
    for _ in 0..full {
        state.found(Finding {
            kind: "unsignaled",
            object: u64::from(qpn),
            value: u64::from(depth),
            limit: u64::from(depth),
            more: "",
        });
    }
}

/// The oldest `count` sends are done: are their bytes what they were?
#[cold]
pub(crate) fn completed(
    memory: &MemoryTable,
    pd: Pd,
    qpn: u32,
    completion: &Completion,
    count: u32,
) {
    let Some(mut state) = state() else {
        return;
    };
    if completion.status != Status::Success {
        // Whoever failed may change what was never taken.
        if let Some(queue) = state.findings.queues.get_mut(&qpn) {
            queue.sent.clear();
        }
        return;
    }
    for _ in 0..count {
        let queue = state.findings.queues.get_mut(&qpn);
        let Some(sent) = queue.and_then(|queue| queue.sent.pop_front()) else {
            return;
        };
        let Some((list, before)) = sent.list else {
            continue;
        };
        let now = checksum(memory, pd, &list);
        if now != Some(before) {
            state.found(Finding {
                kind: "buffer",
                object: u64::from(qpn),
                value: sent.wr_id,
                limit: 0,
                more: if now.is_some() { "" } else { "deregistered" },
            });
        }
    }
}

/// Of the bytes of a list; `None` if they may not be read.
fn checksum(memory: &MemoryTable, pd: Pd, list: &SgList) -> Option<u64> {
    let mut piece = [0u8; 4096];
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for sge in list {
        let mut at = sge.addr;
        let mut left = sge.length as usize;
        while left > 0 {
            let part = &mut piece[..left.min(4096)];
            memory.read_local(pd, sge.lkey, at, part).ok()?;
            let mut words = part.chunks_exact(8);
            for word in &mut words {
                let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
                sum = (sum ^ word)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .rotate_left(29);
            }
            for byte in words.remainder() {
                sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
            at = at.wrapping_add(part.len() as u64);
            left -= part.len();
        }
    }
    Some(sum)
}

/// Memory was registered.
pub(crate) fn registered(start: usize, len: usize) {
    let Some(mut state) = state() else {
        return;
    };
    state.findings.locked += rnic_sys::pages(start, len);
    let locked = state.findings.locked;
    if let Some(limit) = rnic_sys::memlock_limit()
        && locked > limit
    {
        state.found(Finding {
            kind: "memlock",
            object: 0,
            value: locked,
            limit,
            more: "",
        });
    }
}

/// And deregistered.
pub(crate) fn unregistered(start: usize, len: usize) {
    if let Some(mut state) = state() {
        let locked = &mut state.findings.locked;
        *locked = locked.saturating_sub(rnic_sys::pages(start, len));
    }
}

/// The peer has had no receive for long, and the queue pair waits for ever.
pub(super) fn never_ready(state: &mut State, qpn: u32, naks: u64, waited_ns: u64) {
    if is_on() {
        state.found(Finding {
            kind: "never ready",
            object: u64::from(qpn),
            value: naks,
            limit: waited_ns,
            more: "",
        });
    }
}
