//! Statuses 1, 2 and 6: what this side alone got wrong. vendor_err says which of their causes it is.

use rnic_nic::vendor_err as code;

use super::Report;
use super::record::{Failure, Refusal};
use super::story::Story;
use crate::text::count;

/// UD puts so many bytes in front of what it receives.
const GRH: u64 = 40;

fn of(story: &mut Story, cause: String, next: &str) {
    story.cause = Some(cause);
    story.next.push(next.to_owned());
}

/// Status 1: the sizes.
pub fn length(report: &Report, failure: &Failure, story: &mut Story) {
    let own = |r: &&Refusal| r.process == failure.process && r.ends.qpn == failure.ends.qpn;
    let refusal = report.refusals.iter().find(own);
    let length = failure.request.as_ref().map_or(0, |request| request.length);
    let longest = failure
        .request
        .as_ref()
        .map_or(0, |request| request.longest);
    match failure.vendor_err {
        code::DATAGRAM_TOO_LONG => of(
            story,
            format!(
                "a UD message is one packet, of {} at most (the MTU of the port), and this one has {length}",
                count(longest, "byte")
            ),
            "send it in pieces, or over RC; ibv_query_port says the MTU (active_mtu)",
        ),
        code::MESSAGE_TOO_LONG => of(
            story,
            format!(
                "the message has {}, and the longest may have {longest}",
                count(length, "byte")
            ),
            "send it in pieces; ibv_query_port says the most (max_msg_sz)",
        ),
        code::ATOMIC_TOO_SHORT => of(
            story,
            format!("an atomic has 8 bytes, and the scatter/gather list of this one {length}"),
            "give it a list of 8 bytes: the old value goes there",
        ),
        code::RECEIVE_TOO_SHORT => {
            if let (Some(room), Some(length)) = (failure.room, failure.length) {
                let cause = format!(
                    "the receive has room for {}, and the datagram needs {length}: {GRH} for the GRH, which UD always puts in \
                     front, and {} of its own",
                    count(room, "byte"),
                    length.saturating_sub(GRH)
                );
                of(
                    story,
                    cause,
                    "post receives of 40 bytes more than the longest datagram",
                );
            } else if let Some(refusal) = refusal
                && let (Some(room), Some(length)) = (refusal.room, refusal.length)
            {
                of(
                    story,
                    too_long(room, length, "the receive"),
                    "post receives as long as the longest message",
                );
            }
        }
        _ => {}
    }
}

pub fn too_long(room: u64, length: u64, whose: &str) -> String {
    format!(
        "{whose} has room for {}, the message is longer: {} or more",
        count(room, "byte"),
        count(length, "byte")
    )
}

/// Status 2: what the queue pair cannot do.
pub fn operation(failure: &Failure, story: &mut Story) {
    let what = &failure.operation;
    let (cause, next) = match failure.vendor_err {
        code::NO_RD_ATOMIC => (
            format!("max_rd_atomic of the queue pair is 0, which allows no {what}"),
            "set max_rd_atomic in ibv_modify_qp to RTS (IBV_QP_MAX_QP_RD_ATOMIC), and max_dest_rd_atomic of the peer to RTR",
        ),
        code::INLINE_READ => (
            format!("a {what} cannot have inline data: the NIC writes to its memory"),
            "leave out IBV_SEND_INLINE",
        ),
        code::WRONG_SERVICE => (
            format!(
                "a queue pair of type {} has no such operation",
                failure.qp_type
            ),
            "use a queue pair of type RC, or another operation",
        ),
        _ => return,
    };
    of(story, cause, next);
}

/// Status 6: a bind of a memory window, or a local invalidate.
pub fn window(failure: &Failure, story: &mut Story) {
    let invalidates = failure.operation == "local invalidate";
    let fault = failure.vendor_err.wrapping_sub(code::BIND);
    let (cause, next) = match (fault, invalidates) {
        (1, false) => (
            "no memory window has the rkey that the bind names",
            "use the window's rkey as it is now, raised by ibv_inc_rkey for a type 2 window",
        ),
        (1, true) => (
            "no bound memory window has that rkey now",
            "invalidate a window once for each bind, by the rkey that the bind gave it",
        ),
        (2, _) => (
            "no region that takes memory windows has the lkey that the bind names",
            "bind to a region of ibv_reg_mr that is not deregistered",
        ),
        (3, _) => (
            "the memory window belongs to another protection domain than the queue pair",
            "make window, region and queue pair in one protection domain",
        ),
        (10, _) => (
            "the region of the bind belongs to another protection domain than the queue pair",
            "make window, region and queue pair in one protection domain",
        ),
        (4, _) => (
            "the range of the bind leaves the region",
            "compare addr and length of the bind with those of ibv_reg_mr",
        ),
        (5, _) => (
            "the region lacks IBV_ACCESS_MW_BIND",
            "register the region with IBV_ACCESS_MW_BIND",
        ),
        (6, _) => (
            "the window is to allow writing or atomics, and the region lacks IBV_ACCESS_LOCAL_WRITE",
            "register the region with IBV_ACCESS_LOCAL_WRITE",
        ),
        (7, _) => (
            "the type 2 window is bound already",
            "invalidate it before it is bound anew (IBV_WR_LOCAL_INV, or the peer's SEND with invalidate)",
        ),
        (8, _) => (
            "the rkey to be invalidated is that of a region of ibv_reg_mr, which cannot be invalidated",
            INVALIDATE_WINDOWS,
        ),
        (11, _) => (
            "the rkey to be invalidated is that of a type 1 window, which is closed by a bind of length 0",
            INVALIDATE_WINDOWS,
        ),
        (9, _) => (
            "the window is bound to another queue pair",
            "invalidate it by the queue pair that has bound it",
        ),
        _ => return,
    };
    of(story, cause.to_owned(), next);
}

pub const NOT_TO_BE_INVALIDATED: &str = "the rkey to be invalidated is none of a type 2 window of this queue pair: neither a region of ibv_reg_mr nor a type 1 \
     window can be invalidated";
pub const INVALIDATE_WINDOWS: &str = "name the rkey of a type 2 window that is bound to the queue pair (ibv_alloc_mw, IBV_WR_BIND_MW)";

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(status: u32, vendor_err: u32, operation: &str) -> Failure {
        let text = format!(
            r#"{{"process":1,"ns":1,"qpn":5,"qp_type":"RC","queue":"send","first":true,"wr_id":1,
                "operation":"{operation}","status":{status},"vendor_err":{vendor_err},"memory":null}}"#
        );
        serde_json::from_str(&text).expect("a failure")
    }

    /// Promise: whatever this side alone gets wrong with windows or operations is told by its one
    /// cause, and not by a list.
    #[test]
    fn each_code_has_one_cause() {
        for operation in ["bind of a memory window", "local invalidate"] {
            let causes = (1..=11).map(|fault| {
                let mut story = Story::default();
                window(&failure(6, code::BIND + fault, operation), &mut story);
                assert_eq!(story.next.len(), 1, "{fault}");
                story.cause.expect("a cause")
            });
            let mut causes: Vec<String> = causes.collect();
            causes.sort();
            causes.dedup();
            assert_eq!(causes.len(), 11);
        }
        for code in [code::NO_RD_ATOMIC, code::INLINE_READ, code::WRONG_SERVICE] {
            let mut story = Story::default();
            operation(&failure(2, code, "RDMA READ"), &mut story);
            assert!(story.cause.is_some(), "{code:#x}");
        }
        let mut story = Story::default();
        operation(&failure(2, code::TIMEOUT, "RDMA READ"), &mut story);
        assert!(story.cause.is_none(), "what is not known is not said");
    }
}
