//! Which packet of a WQE comes next: operation, extension headers, range of the message.

use super::{Entry, Kind};
use crate::SendOp;
use rnic_wire::{AtomicEth, Ext, Feth, Ieth, ImmDt, Operation, Reth};

/// One packet of a WQE.
pub(super) struct Plan {
    pub(super) operation: Operation,
    /// Where in the message the payload starts.
    pub(super) offset: u64,
    pub(super) payload: usize,
    /// PSNs it takes: more than one for a READ, and on a path by memory (see [`crate::multi_psn`]).
    pub(super) psns: u32,
    /// Ends the message or the request.
    pub(super) last: bool,
    /// Ends the WQE.
    pub(super) end: bool,
}

impl Plan {
    /// The packet that starts at the `k`-th PSN of `entry` and takes `piece` PSNs, or asks for as
    /// many if it is a READ. Sets in `ext`, which comes empty, the headers that the operation has.
    /// (An out-parameter because the struct is large, and a packet from the middle of a message
    /// leaves it alone.)
    #[inline]
    pub(super) fn new(entry: &Entry, k: u32, piece: u32, mtu: u32, ext: &mut Ext) -> Plan {
        use Operation::*;
        let offset = u64::from(k) * u64::from(mtu);
        let left = u64::from(entry.len).saturating_sub(offset) as u32;
        let first = k == 0;
        let last = k + piece >= entry.packets;
        // Of a message in several packets, then of one in a single packet: first, middle, last,
        // only.
        let select = |f, m, l, o| match (first, last) {
            (true, false) => f,
            (false, false) => m,
            (false, true) => l,
            (true, true) => o,
        };
        let reth = |va, rkey, dma_len| first.then_some(Reth { va, rkey, dma_len });
        let operation = match entry.wqe.op {
            // Those that send nothing never get here, nor does a datagram, which `admit` fails.
            SendOp::Send
            | SendOp::Datagram { .. }
            | SendOp::BindWindow(_)
            | SendOp::LocalInvalidate(_) => select(SendFirst, SendMiddle, SendLast, SendOnly),
            SendOp::SendImm(data) => {
                ext.imm = last.then_some(ImmDt(data));
                select(SendFirst, SendMiddle, SendLastImm, SendOnlyImm)
            }
            SendOp::SendInvalidate(rkey) => {
                ext.ieth = last.then_some(Ieth { rkey });
                select(
                    SendFirst,
                    SendMiddle,
                    SendLastInvalidate,
                    SendOnlyInvalidate,
                )
            }
            SendOp::Write { remote_addr, rkey } => {
                ext.reth = reth(remote_addr, rkey, entry.len);
                select(WriteFirst, WriteMiddle, WriteLast, WriteOnly)
            }
            SendOp::WriteImm {
                remote_addr,
                rkey,
                imm,
            } => {
                ext.reth = reth(remote_addr, rkey, entry.len);
                ext.imm = last.then_some(ImmDt(imm));
                select(WriteFirst, WriteMiddle, WriteLastImm, WriteOnlyImm)
            }
            SendOp::Read { remote_addr, rkey } => {
                ext.reth = Some(Reth {
                    va: remote_addr.wrapping_add(offset),
                    rkey,
                    dma_len: u64::from(left).min(u64::from(piece) * u64::from(mtu)) as u32,
                });
                ReadRequest
            }
            SendOp::AtomicWrite { remote_addr, rkey } => {
                ext.reth = reth(remote_addr, rkey, entry.len);
                AtomicWrite
            }
            SendOp::Flush(flush) => {
                ext.feth = Some(feth(flush));
                // Its length is at most that of the longest message, or means nothing.
                ext.reth = reth(flush.remote_addr, flush.rkey, flush.length as u32);
                Flush
            }
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
                let atomic = atomic_of(&entry.wqe.op);
                ext.atomic = atomic.map(|(_, header)| header);
                atomic.map_or(FetchAdd, |(operation, _)| operation)
            }
        };
        if entry.kind == Kind::Acked {
            return Plan {
                operation,
                offset,
                payload: u64::from(left).min(u64::from(piece) * u64::from(mtu)) as usize,
                psns: piece,
                last,
                end: last,
            };
        }
        Plan {
            operation,
            offset,
            payload: match entry.kind {
                Kind::Confirmed => entry.len as usize,
                _ => 0,
            },
            psns: piece,
            last: true,
            end: k + piece >= entry.packets,
        }
    }
}

/// Operation and header of an atomic.
#[inline]
pub(super) fn atomic_of(op: &SendOp) -> Option<(Operation, AtomicEth)> {
    match *op {
        SendOp::CompareSwap {
            remote_addr,
            rkey,
            compare,
            swap,
        } => Some((
            Operation::CompareSwap,
            AtomicEth {
                va: remote_addr,
                rkey,
                swap_or_add: swap,
                compare,
            },
        )),
        SendOp::FetchAdd {
            remote_addr,
            rkey,
            add,
        } => Some((
            Operation::FetchAdd,
            AtomicEth {
                va: remote_addr,
                rkey,
                swap_or_add: add,
                compare: 0,
            },
        )),
        _ => None,
    }
}

fn feth(flush: crate::Flush) -> Feth {
    let mut placement = 0;
    if flush.placement.global {
        placement |= Feth::GLOBAL;
    }
    if flush.placement.persistent {
        placement |= Feth::PERSISTENT;
    }
    Feth {
        placement,
        selectivity: if flush.whole_region {
            Feth::REGION
        } else {
            Feth::RANGE
        },
    }
}

/// Only what consumes a receive can make a solicited event (IBTA 9.2.3).
pub(super) fn solicitable(op: &SendOp) -> bool {
    matches!(
        op,
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) | SendOp::WriteImm { .. }
    )
}
