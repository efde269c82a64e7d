//! Work requests: what a program posts becomes WQEs.

use core::ffi::c_int;

use rnic_nic::{
    Error, InlineBytes, MAX_SHORT, QpType, RecvWqe, SendData, SendOp, SendWqe, SgList, Sge,
    ShortData, ShortSend, reserve,
};

use super::bind::bind_type_2;
use crate::c::*;
use crate::handles::ah::AhObject;
use crate::handles::object::from_c;
use crate::handles::qp::QpObject;

pub const POST_SEND: &str = "ibv_post_send";
pub const POST_RECV: &str = "ibv_post_recv";
pub const POST_SRQ_RECV: &str = "ibv_post_srq_recv";

type NicResult<T> = rnic_nic::Result<T>;

/// A scatter/gather list of a work request. It may lie at any address, as a processor reads it.
///
/// # Safety
/// `list` has `count` elements, if that is positive and `list` not NULL.
pub unsafe fn elements<'a>(
    verb: &'static str,
    list: *const ibv_sge,
    count: c_int,
    max: u32,
) -> NicResult<&'a [packed_sge]> {
    let refuse = |why: String| Err(Error::invalid(verb, why));
    match u32::try_from(count) {
        Err(_) => refuse(format!("num_sge is {count}")),
        Ok(0) => Ok(&[]),
        // Of a queue pair with a shared receive queue as well.
        Ok(_) if max == 0 && verb == POST_RECV => refuse(
            "the queue pair has no receive queue of its own with room for an SGE: with a shared receive queue, use \
             ibv_post_srq_recv; without one, ask for max_recv_sge of 1 or more"
                .to_owned(),
        ),
        // ConnectX's errno, which differs between the queues.
        Ok(count) if count > max => Err(Error::new(
            verb,
            match verb {
                POST_RECV | POST_SRQ_RECV => libc::EINVAL,
                _ => libc::ENOMEM,
            },
            format!("num_sge is {count}, the queue was created for {max}"),
        )),
        Ok(_) if list.is_null() => refuse(format!("sg_list is NULL and num_sge is {count}")),
        // SAFETY: not NULL, and the caller's array by contract.
        Ok(count) => Ok(unsafe { std::slice::from_raw_parts(list.cast(), count as usize) }),
    }
}

#[inline]
pub fn element(sge: &packed_sge) -> Sge {
    Sge {
        addr: sge.addr,
        length: sge.length,
        lkey: sge.lkey,
    }
}

/// The same list for the device. A long one lies in memory of its own: while most of the reserve is
/// in use, there is none.
#[inline]
pub fn gather(verb: &'static str, list: &[packed_sge]) -> NicResult<SgList> {
    match list {
        // Nearly always; the rest costs several times as much.
        [one] => Ok(SgList::from_buf_and_len([element(one), Sge::default()], 1)),
        more => {
            let mut sges = SgList::new();
            if more.len() > sges.inline_size() {
                reserve::begin(verb)?;
            }
            sges.extend(more.iter().map(element));
            Ok(sges)
        }
    }
}

/// Copies inline data now, so that the program may reuse its buffers at once.
///
/// # Safety
/// The buffers are readable.
pub unsafe fn copy_inline(
    buffers: impl Iterator<Item = (*const u8, usize)> + Clone,
    max: u32,
) -> NicResult<SendData> {
    let total = buffers
        .clone()
        .try_fold(0usize, |sum, (_, len)| sum.checked_add(len))
        .filter(|total| *total <= max as usize);
    let Some(total) = total else {
        return Err(Error::new(
            POST_SEND,
            libc::ENOMEM,
            format!("more inline data than the {max} bytes that the queue pair was created for"),
        ));
    };
    let mut bytes = InlineBytes::new();
    if total > bytes.inline_size() {
        reserve::begin(POST_SEND)?;
    }
    bytes.reserve_exact(total);
    for (from, len) in buffers.filter(|(_, len)| *len > 0) {
        if from.is_null() {
            return Err(Error::invalid(POST_SEND, "inline data at NULL"));
        }
        // SAFETY: readable by contract.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(from, len) });
    }
    Ok(SendData::Inline(bytes))
}

/// The operation of a work request.
///
/// # Safety
/// The union members that belong to its opcode are initialised.
pub unsafe fn operation(wr: &ibv_send_wr) -> NicResult<SendOp> {
    let imm = wr.imm_data.to_ne_bytes();
    // SAFETY: by contract; all members are integers in any case.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let (remote_addr, rkey) = (rdma.remote_addr, rdma.rkey);
    Ok(match wr.opcode {
        IBV_WR_SEND => SendOp::Send,
        IBV_WR_SEND_WITH_IMM => SendOp::SendImm(imm),
        IBV_WR_SEND_WITH_INV => SendOp::SendInvalidate(wr.imm_data),
        IBV_WR_RDMA_WRITE => SendOp::Write { remote_addr, rkey },
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteImm {
            remote_addr,
            rkey,
            imm,
        },
        IBV_WR_RDMA_READ => SendOp::Read { remote_addr, rkey },
        IBV_WR_ATOMIC_CMP_AND_SWP => SendOp::CompareSwap {
            remote_addr: atomic.remote_addr,
            rkey: atomic.rkey,
            compare: atomic.compare_add,
            swap: atomic.swap,
        },
        IBV_WR_ATOMIC_FETCH_AND_ADD => SendOp::FetchAdd {
            remote_addr: atomic.remote_addr,
            rkey: atomic.rkey,
            add: atomic.compare_add,
        },
        IBV_WR_ATOMIC_WRITE => SendOp::AtomicWrite { remote_addr, rkey },
        IBV_WR_LOCAL_INV => SendOp::LocalInvalidate(wr.imm_data),
        IBV_WR_BIND_MW => {
            // SAFETY: by contract; window and region are ours or NULL.
            unsafe {
                let bind = wr.extra.bind_mw;
                bind_type_2(POST_SEND, bind.mw, bind.rkey, &bind.bind_info)?
            }
        }
        IBV_WR_FLUSH => {
            return Err(Error::invalid(
                POST_SEND,
                "a FLUSH has its placement type and level only with ibv_wr_flush",
            ));
        }
        IBV_WR_TSO => {
            return Err(Error::new(
                POST_SEND,
                libc::EOPNOTSUPP,
                format!("opcode {} is not supported", wr.opcode),
            ));
        }
        unknown => {
            return Err(Error::invalid(
                POST_SEND,
                format!("unknown opcode {unknown}"),
            ));
        }
    })
}

/// SEND, as a datagram to queue pair `qpn` behind `ah`.
///
/// # Safety
/// `ah` is ours, or NULL.
pub unsafe fn datagram(
    verb: &'static str,
    op: SendOp,
    ah: *mut ibv_ah,
    qpn: u32,
    qkey: u32,
) -> NicResult<SendOp> {
    let imm = match op {
        SendOp::Send => None,
        SendOp::SendImm(imm) => Some(imm),
        SendOp::Datagram { imm, .. } => imm,
        // The device refuses it.
        other => return Ok(other),
    };
    // SAFETY: by contract.
    let ah = unsafe { from_c::<AhObject>(ah) }
        .map_err(|_| Error::invalid(verb, "the address handle of a datagram is NULL"))?;
    let to = ah.nic.address(qpn, qkey);
    Ok(SendOp::Datagram { to, imm })
}

/// One work request as a WQE.
///
/// # Safety
/// `wr` is as `ibv_post_send(3)` wants it.
pub unsafe fn send_wqe(qp: &QpObject, wr: &ibv_send_wr) -> NicResult<SendWqe> {
    // SAFETY: by contract.
    let (list, op) = unsafe {
        let list = elements(POST_SEND, wr.sg_list, wr.num_sge, qp.cap.max_send_sge)?;
        let op = operation(wr)?;
        if qp.nic.qp_type() == QpType::Ud {
            let ud = wr.wr.ud;
            let ah = ud.ah.cast();
            let op = datagram(POST_SEND, op, ah, ud.remote_qpn, ud.remote_qkey)?;
            (list, op)
        } else {
            (list, op)
        }
    };
    Ok(SendWqe {
        wr_id: wr.wr_id,
        data: match wr.send_flags & IBV_SEND_INLINE {
            _ if op.is_local() => SendData::Gather(SgList::new()),
            0 => SendData::Gather(gather(POST_SEND, list)?),
            // SAFETY: inline buffers are readable, as the program asks to copy them.
            _ => unsafe {
                let buffers = list
                    .iter()
                    .map(|sge| (sge.addr as *const u8, sge.length as usize));
                copy_inline(buffers, qp.cap.max_inline_data)?
            },
        },
        op,
        signaled: wr.send_flags & IBV_SEND_SIGNALED != 0,
        solicited: wr.send_flags & IBV_SEND_SOLICITED != 0,
        fence: wr.send_flags & IBV_SEND_FENCE != 0,
        srqn: wr.remote_srqn,
    })
}

/// A single SEND of few bytes in one piece, unless it is more than that.
///
/// # Safety
/// As [`send_wqe`], for a `wr` that is live or NULL.
#[inline]
pub unsafe fn short_send<'a>(wr: *const ibv_send_wr) -> Option<ShortSend<'a>> {
    const FLAGS: u32 = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
    // SAFETY: NULL or live, by contract.
    let wr = unsafe { wr.as_ref() }?;
    if wr.opcode != IBV_WR_SEND
        || wr.num_sge != 1
        || !wr.next.is_null()
        || wr.send_flags & !FLAGS != 0
    {
        return None;
    }
    // SAFETY: one element, if it is not NULL.
    let sge = unsafe { wr.sg_list.cast::<packed_sge>().as_ref() }?;
    if sge.length as usize > MAX_SHORT {
        return None;
    }
    let data = if wr.send_flags & IBV_SEND_INLINE == 0 {
        ShortData::Registered(Sge {
            addr: sge.addr,
            length: sge.length,
            lkey: sge.lkey,
        })
    } else if sge.addr == 0 {
        return None;
    } else {
        // SAFETY: inline buffers are readable, as the program asks to copy them.
        ShortData::Inline(unsafe {
            std::slice::from_raw_parts(sge.addr as *const u8, sge.length as usize)
        })
    };
    Some(ShortSend {
        wr_id: wr.wr_id,
        data,
        signaled: wr.send_flags & IBV_SEND_SIGNALED != 0,
        solicited: wr.send_flags & IBV_SEND_SOLICITED != 0,
    })
}

/// Walks a list of work requests by their `next` pointers.
///
/// # Safety
/// Each element is live and `next` gives the following one, or NULL.
pub unsafe fn chain<T: 'static>(
    first: *mut T,
    next: impl Fn(&T) -> *mut T,
) -> impl Iterator<Item = &'static T> {
    let mut current = first;
    std::iter::from_fn(move || {
        // SAFETY: NULL or live, by contract.
        let wr = unsafe { current.as_ref() }?;
        current = next(wr);
        Some(wr)
    })
}

/// The WQEs of a list of receive work requests; `last` is the one taken last.
///
/// # Safety
/// As [`chain`]; their scatter lists are live.
pub unsafe fn receives(
    verb: &'static str,
    wr: *mut ibv_recv_wr,
    last: &mut *mut ibv_recv_wr,
    max_sge: u32,
) -> impl Iterator<Item = NicResult<RecvWqe>> {
    // SAFETY: by contract.
    unsafe { chain(wr, |wr: &ibv_recv_wr| wr.next) }.map(move |wr| {
        *last = std::ptr::from_ref(wr).cast_mut();
        // SAFETY: by contract.
        let list = unsafe { elements(verb, wr.sg_list, wr.num_sge, max_sge) }?;
        Ok(RecvWqe {
            wr_id: wr.wr_id,
            sges: gather(verb, list)?,
        })
    })
}

/// A single receive work request of one element, as they mostly are.
///
/// # Safety
/// As [`receives`].
#[inline]
pub unsafe fn one_receive(wr: *const ibv_recv_wr) -> Option<(u64, Sge)> {
    // SAFETY: NULL or live, by contract.
    let wr = unsafe { wr.as_ref() }.filter(|wr| wr.next.is_null() && wr.num_sge == 1)?;
    // SAFETY: as many elements as it says, or NULL.
    let sge = unsafe { wr.sg_list.cast::<packed_sge>().as_ref() }?;
    Some((wr.wr_id, element(sge)))
}
