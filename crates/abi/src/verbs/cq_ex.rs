//! The extended completion queue (`ibv_create_cq_ex(3)`): completions are read field by field.
//!
//! Timestamps are those of the moment when the completion arose, not when it is read.

use core::ffi::{c_int, c_uint};

use rnic_nic::CqOptions;

use super::cq::{create, destroy_cq};
use crate::c::*;
use crate::convert::wc::work_completion;
use crate::export::seam::{self, DataResult, EINVAL, EOPNOTSUPP, Errno, NULL, Verb};
use crate::handles::allocator::Resource;
use crate::handles::cq::CqObject;
use crate::handles::object::{from_c, into_c};
use crate::handles::pd::PdObject;

const TIMESTAMPS: u64 =
    (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) as u64;

const SUPPORTED: u64 = TIMESTAMPS
    | (IBV_WC_EX_WITH_BYTE_LEN
        | IBV_WC_EX_WITH_IMM
        | IBV_WC_EX_WITH_QP_NUM
        | IBV_WC_EX_WITH_SRC_QP
        | IBV_WC_EX_WITH_SLID
        | IBV_WC_EX_WITH_SL
        | IBV_WC_EX_WITH_DLID_PATH_BITS) as u64;

/// Destroys one that nobody has seen yet.
unsafe extern "C" fn destroy_cq_ex(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: it begins with `ibv_cq`.
    unsafe { destroy_cq(cq.cast()) }
}

pub unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    Verb("ibv_create_cq_ex").makes(destroy_cq_ex, || {
        // SAFETY: NULL or the caller's structure.
        let attr = unsafe { attr.as_ref() }.ok_or(NULL)?;
        let flags = match attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS {
            0 => 0,
            _ => attr.flags,
        };
        if attr.wc_flags & !SUPPORTED != 0
            || attr.comp_mask & !(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) != 0
            || flags & !(IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)
                != 0
        {
            return Err(EOPNOTSUPP.because(format!(
                "wc_flags are {:#x}, comp_mask is {:#x}, flags are {flags:#x}",
                attr.wc_flags, attr.comp_mask
            )));
        }
        let parent = match attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD {
            0 => None,
            // SAFETY: a protection domain of ours, or NULL; the mask says that the field is there.
            _ => Some(unsafe { from_c::<PdObject>(attr.parent_domain) }?),
        };
        if parent.is_some_and(|pd| !pd.is_parent()) {
            return Err(EINVAL.because("parent_domain is none of ibv_alloc_parent_domain"));
        }
        let room = match parent {
            None => None,
            Some(pd) => Some(pd.room::<CqObject>(Resource::CompletionQueue)?),
        };
        // SAFETY: ours or NULL, by the contract of the verb.
        let mut object = unsafe {
            create(
                context,
                attr.cqe,
                attr.cq_context,
                attr.channel,
                attr.comp_vector,
                CqOptions {
                    timestamps: attr.wc_flags & TIMESTAMPS != 0,
                    ignore_overrun: flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN != 0,
                },
            )
        }?;
        object.polling.single_threaded = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0;
        let c = object.c.get_mut();
        c.start_poll = Some(start_poll);
        c.next_poll = Some(next_poll);
        c.end_poll = Some(end_poll);
        c.read_opcode = Some(read_opcode);
        c.read_vendor_err = Some(read_vendor_err);
        c.read_byte_len = Some(read_byte_len);
        c.read_imm_data = Some(read_imm_data);
        c.read_qp_num = Some(read_qp_num);
        c.read_src_qp = Some(read_src_qp);
        c.read_wc_flags = Some(read_wc_flags);
        c.read_slid = Some(read_u32_zero);
        c.read_sl = Some(read_sl);
        c.read_dlid_path_bits = Some(read_u8_zero);
        c.read_completion_ts = Some(read_completion_ts);
        c.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
        // Refused above; a program that reads them all the same gets nothing instead of a crash.
        c.read_cvlan = Some(read_u16_zero);
        c.read_flow_tag = Some(read_u32_zero);
        c.read_tm_info = Some(read_no_tm_info);
        object.parent = match parent {
            None => None,
            Some(pd) => Some(pd.nic()?.hold()),
        };
        Ok(match room {
            None => into_c(object).cast(),
            Some(room) => {
                object.home = room.home();
                object.nic.set_cookie(room.address());
                room.fill(*object).cast()
            }
        })
    })
}

/// Takes the next completion into `current`; ENOENT when there is none.
///
/// # Safety
/// The caller holds the polling lock of this queue.
unsafe fn advance(object: &CqObject, first: bool) -> DataResult<()> {
    // The rest of a batch is what waits already: driving the device here could take the completion
    // of an event that the program has yet to fetch.
    let found = match first {
        true => object.nic.poll_one()?,
        false => object.nic.take_one()?,
    };
    let (completion, stamp) = found.ok_or(Errno(libc::ENOENT))?;
    let polling = &object.polling;
    // SAFETY: under the polling lock; the program reads the C fields between its own start and end
    // of polling.
    unsafe {
        *polling.current.get() = work_completion(&completion);
        let c = object.c.get();
        (*c).wr_id = completion.wr_id;
        (*c).status = completion.status as u32;
        *polling.stamp.get() = stamp;
    }
    Ok(())
}

/// 0 and the queue locked, or ENOENT or another errno and unlocked.
unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    seam::data_status(|| {
        // SAFETY: a queue of ours, or NULL.
        let object = unsafe { from_c::<CqObject>(cq.cast()) }?;
        // SAFETY: NULL or the caller's structure.
        if unsafe { attr.as_ref() }.is_some_and(|a| a.comp_mask != 0) {
            return Err(Errno(libc::EINVAL));
        }
        // Or the lock may be that of a thread which is not in this forked child.
        object.nic.check_alive("ibv_start_poll")?;
        object.polling.begin();
        // SAFETY: just locked.
        unsafe { advance(object, true) }.inspect_err(|_| object.polling.end())
    })
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    seam::data_status(|| {
        // SAFETY: a queue of ours, locked since `start_poll`.
        unsafe { advance(from_c::<CqObject>(cq.cast())?, false) }
    })
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    seam::data_quiet(|| {
        // SAFETY: a queue of ours, or NULL.
        let object = unsafe { from_c::<CqObject>(cq.cast()) }?;
        object.polling.end();
        object.nic.end_batch();
        Ok(())
    });
}

/// Defines a reader of one field of the current completion.
macro_rules! reader {
    ($name:ident, $kind:ty, $field:ident) => {
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $kind {
            // SAFETY: a queue of ours between `start_poll` and `end_poll`.
            unsafe {
                from_c::<CqObject>(cq.cast()).map_or(0, |o| (*o.polling.current.get()).$field)
            }
        }
    };
}

reader!(read_opcode, c_uint, opcode);
reader!(read_vendor_err, u32, vendor_err);
reader!(read_byte_len, u32, byte_len);
reader!(read_imm_data, u32, imm_data);
reader!(read_qp_num, u32, qp_num);
reader!(read_src_qp, u32, src_qp);
reader!(read_wc_flags, c_uint, wc_flags);
reader!(read_sl, u8, sl);

/// LIDs and path bits are InfiniBand's; RoCE has none.
unsafe extern "C" fn read_u32_zero(_cq: *mut ibv_cq_ex) -> u32 {
    0
}

unsafe extern "C" fn read_u16_zero(_cq: *mut ibv_cq_ex) -> u16 {
    0
}

unsafe extern "C" fn read_u8_zero(_cq: *mut ibv_cq_ex) -> u8 {
    0
}

unsafe extern "C" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: a queue of ours between `start_poll` and `end_poll`.
    unsafe { from_c::<CqObject>(cq.cast()).map_or(0, |o| (*o.polling.stamp.get()).raw) }
}

unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: a queue of ours between `start_poll` and `end_poll`.
    unsafe { from_c::<CqObject>(cq.cast()).map_or(0, |o| (*o.polling.stamp.get()).wallclock) }
}

unsafe extern "C" fn read_no_tm_info(_cq: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    if !info.is_null() {
        // SAFETY: the caller's structure.
        unsafe { *info = ibv_wc_tm_info { tag: 0, r#priv: 0 } };
    }
}
