//! Operations as work requests.

use rnic_nic::{BindWindow, MwType, SendData, SendOp, SendWqe, SgList};

use super::layout::{Reachable, Regions, WORDS};
use super::oracle::Oracle;
use super::windows::{Ask, key_at};
use crate::scenario::{Grant, Kind, Op};

/// Operation `nth` of an end, which is not one that the other end is asked for.
#[inline]
pub(super) fn own(oracle: &Oracle, regions: &Regions, peer: &Reachable, nth: usize) -> SendWqe {
    let op = &oracle.own.ops[nth];
    let len = op.len as usize;
    let sge = match op.kind {
        Kind::Read | Kind::FetchAdd | Kind::CompareSwap => {
            regions.landing.sge(regions.places[nth], len)
        }
        _ => regions.source.sge(oracle.place(nth), len),
    };
    SendWqe {
        wr_id: nth as u64,
        op: operation(oracle, peer, nth, op),
        data: SendData::Gather(SgList::from_slice(&[sge])),
        signaled: oracle.is_signaled(nth),
        solicited: false,
        fence: op.fence,
        srqn: 0,
    }
}

#[inline]
fn operation(oracle: &Oracle, peer: &Reachable, nth: usize, op: &Op) -> SendOp {
    let imm = (nth as u32).to_be_bytes();
    let (remote_addr, rkey) = match op.window() {
        Some(window) => through(oracle, peer, (nth, window), op),
        None => directly(peer, (nth, oracle.place(nth)), op),
    };
    match op.kind {
        Kind::Send => SendOp::Send,
        Kind::SendImm => SendOp::SendImm(imm),
        Kind::SendInvalidate => SendOp::SendInvalidate(rkey),
        Kind::Write => SendOp::Write { remote_addr, rkey },
        Kind::WriteImm => SendOp::WriteImm {
            remote_addr,
            rkey,
            imm,
        },
        Kind::Read => SendOp::Read { remote_addr, rkey },
        Kind::FetchAdd => SendOp::FetchAdd {
            remote_addr,
            rkey,
            add: nth as u64 + 1,
        },
        Kind::CompareSwap => SendOp::CompareSwap {
            remote_addr,
            rkey,
            compare: oracle.word_before(nth),
            swap: nth as u64 * 1000,
        },
        // The other end is asked for them.
        Kind::Bind | Kind::Unbind => SendOp::LocalInvalidate(rkey),
    }
}

/// Address and key of what an operation reaches by the key of a region.
fn directly(peer: &Reachable, (nth, place): (usize, usize), op: &Op) -> (u64, u32) {
    let (target, target_key) = peer.target;
    let (remote, remote_key) = peer.remote;
    match op.kind {
        Kind::Read => (remote + (8 * WORDS + place) as u64, remote_key),
        Kind::FetchAdd | Kind::CompareSwap => (remote + word(nth), remote_key),
        _ => (target + place as u64, target_key),
    }
}

/// The same by the key of a window.
fn through(oracle: &Oracle, peer: &Reachable, (nth, at): (usize, usize), op: &Op) -> (u64, u32) {
    let window = &oracle.own.windows[at];
    let begin = match window.grant {
        Grant::Atomic => 0,
        _ => u64::from(window.range.0),
    };
    let within = match op.kind {
        Kind::FetchAdd | Kind::CompareSwap => word(nth),
        // It reaches nothing.
        Kind::SendInvalidate => 0,
        _ => oracle.place(nth) as u64 - u64::from(window.range.0),
    };
    let base = match window.zero_based {
        true => 0,
        false => peer.granted(window.grant) + begin,
    };
    let address = base + within;
    // An atomic has to lie at a multiple of 8, also where it is refused.
    let address = match op.kind.is_atomic() {
        true => address & !7,
        false => address,
    };
    let key = key_at(&oracle.own, (nth, at), peer.windows[at]);
    (address, key)
}

fn word(nth: usize) -> u64 {
    (nth % WORDS * 8) as u64
}

/// What the other end's program has asked for.
pub(super) fn asked(oracle: &Oracle, regions: &Regions, wr_id: u64, ask: Ask) -> SendWqe {
    let window = &oracle.peers.windows[ask.window];
    let reachable = regions.reachable();
    let lkey = match window.grant {
        Grant::Write => reachable.target.1,
        Grant::Read | Grant::Atomic => reachable.remote.1,
    };
    let begin = match window.grant {
        Grant::Atomic => 0,
        _ => u64::from(window.range.0),
    };
    let bind = BindWindow {
        rkey: ask.key,
        lkey,
        addr: reachable.granted(window.grant) + begin,
        length: match ask.bind {
            true => u64::from(window.len()),
            false => 0,
        },
        read: window.grant == Grant::Read,
        write: window.grant == Grant::Write,
        atomic: window.grant == Grant::Atomic,
        zero_based: window.zero_based,
    };
    let op = match ask.bind || window.mw_type == MwType::Type1 {
        true => SendOp::BindWindow(bind),
        false => SendOp::LocalInvalidate(ask.key),
    };
    SendWqe {
        wr_id,
        op,
        signaled: true,
        ..SendWqe::default()
    }
}
