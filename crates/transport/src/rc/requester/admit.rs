//! What is checked of a WQE on this side, before its first packet leaves and before its end.

use super::{Entry, Kind};
use crate::completion::vendor_err;
use crate::rc::{Failure, Shared};
use crate::{Device, SendData, SendOp, Status};

/// Local checks before the first packet of a WQE leaves, so that a bad one sends nothing.
pub(super) fn admit<H: Device>(entry: &Entry, sh: &Shared, device: &H) -> Result<(), Failure> {
    if entry.oversize {
        return Err(Failure {
            status: Status::LocalLengthError,
            vendor_err: vendor_err::MESSAGE_TOO_LONG,
        });
    }
    if matches!(entry.wqe.op, SendOp::Datagram { .. }) {
        return Err(Failure {
            status: Status::LocalQpOperationError,
            vendor_err: vendor_err::WRONG_SERVICE,
        });
    }
    let length_fits = match entry.wqe.op {
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => entry.len >= 8,
        SendOp::AtomicWrite { .. } => entry.len == 8,
        _ => true,
    };
    if !length_fits {
        return Err(Failure {
            status: Status::LocalLengthError,
            vendor_err: vendor_err::ATOMIC_TOO_SHORT,
        });
    }
    let stores = matches!(entry.kind, Kind::Read | Kind::Atomic);
    if entry.kind != Kind::Acked && sh.attr.max_rd_atomic == 0 {
        return Err(Failure {
            status: Status::LocalQpOperationError,
            vendor_err: vendor_err::NO_RD_ATOMIC,
        });
    }
    let list = match &entry.wqe.data {
        SendData::Gather(list) => list,
        SendData::Inline(_) if stores => {
            return Err(Failure {
                status: Status::LocalQpOperationError,
                vendor_err: vendor_err::INLINE_READ,
            });
        }
        SendData::Inline(_) => return Ok(()),
    };
    // A message of one packet is copied whole before it leaves, which checks as much.
    if stores || entry.packets > 1 {
        for sge in list.iter().filter(|sge| sge.length > 0) {
            device
                .check_local(sh.attr.pd, sge, stores)
                .map_err(Failure::local)?;
        }
    }
    Ok(())
}

/// Nobody has read the memory of a WQE whose packets pointed, so it may have gone unnoticed:
/// whoever copies it now would fall.
#[cold]
pub(super) fn check_presence<H: Device>(
    entry: &Entry,
    sh: &Shared,
    device: &H,
) -> Result<(), Failure> {
    if let SendData::Gather(list) = &entry.wqe.data {
        for sge in list.iter().filter(|sge| sge.length > 0) {
            device
                .check_presence(sh.attr.pd, sge)
                .map_err(Failure::local)?;
        }
    }
    Ok(())
}
