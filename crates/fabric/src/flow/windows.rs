//! Memory windows of a direction: what their rules make of each operation, and their keys.
//!
//! A program that wants a window bound or closed asks the other end's program, which posts the work
//! request and answers when it has completed (IBTA vol. 1, 10.6.7). It asks when all before it is
//! complete, so the order of its operations says which of them finds a window open. A SEND with
//! invalidate closes a window without that: it and its neighbours may be under way together.

use rnic_nic::{MwType, Status};

use crate::scenario::{Direction, Grant, Kind, Op, Window};

/// What the program at one end asks the other one for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// The window.
    pub(super) window: usize,
    /// To be bound; else to be closed.
    pub(super) bind: bool,
    /// The key that it gets, or that it has.
    pub(super) key: u32,
}

/// How each operation of a direction ends, as the rules of windows have it.
///
/// # Errors
/// A SEND with invalidate may overtake a READ or atomic by way of its window, as it has no fence
/// (IBTA vol. 1, 10.8.3.3): that is not known.
pub(super) fn statuses(direction: &Direction) -> Result<Vec<Status>, String> {
    let mut open = vec![false; direction.windows.len()];
    let (mut failed, mut peer_failed) = (false, false);
    let ops = direction.ops.iter().map(|op| {
        let status = match op.window() {
            _ if failed || peer_failed && op.kind.is_asked() => Status::WorkRequestFlushed,
            // Nobody answers.
            _ if peer_failed => Status::RetryExceeded,
            Some(at) => one(&direction.windows[at], &mut open[at], op),
            None => Status::Success,
        };
        match op.kind.is_asked() {
            // It is the other queue pair that fails.
            true => peer_failed |= status != Status::Success,
            false => failed |= status != Status::Success,
        }
        status
    });
    let ends = ops.collect();
    for (nth, op) in direction.ops.iter().enumerate() {
        let behind = direction.ops[..nth].iter().rev();
        let mut behind = behind.take_while(|before| !before.kind.is_asked());
        let is_open = |before: &Op| {
            before.window == op.window && (before.kind == Kind::Read || before.kind.is_atomic())
        };
        if op.kind == Kind::SendInvalidate && !op.fence && behind.any(is_open) {
            return Err(format!(
                "operation {nth} invalidates a window, and may overtake what goes through it: it has no fence"
            ));
        }
    }
    Ok(ends)
}

fn one(window: &Window, is_open: &mut bool, op: &Op) -> Status {
    let is_type_2 = window.mw_type == MwType::Type2;
    match op.kind {
        // One of type 2 has to be closed before it is bound again, and one of type 1 need not be
        // (10.6.7.2.2).
        Kind::Bind if is_type_2 && *is_open => Status::MemoryWindowBindError,
        Kind::Bind => {
            *is_open = true;
            Status::Success
        }
        // A local invalidate closes one of type 2 that is bound; a bind of no bytes any of type 1.
        Kind::Unbind if is_type_2 && !*is_open => Status::MemoryWindowBindError,
        Kind::Unbind => {
            *is_open = false;
            Status::Success
        }
        Kind::SendInvalidate => match is_type_2 && std::mem::take(is_open) {
            true => Status::Success,
            false => Status::RemoteAccessError,
        },
        // The key of an access to no bytes is not looked at (9.7.4.1.5).
        _ if op.len == 0 => Status::Success,
        kind => {
            let right = match window.grant {
                Grant::Write => kind.is_write(),
                Grant::Read => kind == Kind::Read,
                Grant::Atomic => kind.is_atomic(),
            };
            match *is_open && right && op.len <= window.len() {
                true => Status::Success,
                false => Status::RemoteAccessError,
            }
        }
    }
}

/// The key of a window when operation `nth`'s turn comes, if it was made with the key `first`: each
/// bind before that has made a new one.
pub(super) fn key_at(direction: &Direction, (nth, window): (usize, usize), first: u32) -> u32 {
    let before = direction.ops[..nth].iter();
    let binds = before.filter(|op| op.kind == Kind::Bind && op.window() == Some(window));
    let tag = (first as u8).wrapping_add(binds.count() as u8);
    first & !0xff | u32::from(tag)
}
