//! Extended completion queues (`ibv_create_cq_ex(3)`): their completions have stamps, and are read
//! field by field.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::{NonNull, null_mut};

use rnic_layouts::*;
use rnic_types::{Completion, Error, Result, Stamp};

use crate::convert;
use crate::objects::context::{Context, extended};

/// What every device of the verbs has a field for.
const FIELDS: u32 = IBV_WC_EX_WITH_BYTE_LEN
    | IBV_WC_EX_WITH_IMM
    | IBV_WC_EX_WITH_QP_NUM
    | IBV_WC_EX_WITH_SRC_QP
    | IBV_WC_EX_WITH_SLID
    | IBV_WC_EX_WITH_SL
    | IBV_WC_EX_WITH_DLID_PATH_BITS;

type Read<T> = unsafe extern "C" fn(*mut ibv_cq_ex) -> T;

/// The functions of such a queue.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    start_poll: unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int,
    next_poll: Read<c_int>,
    end_poll: Read<()>,
    opcode: Read<c_uint>,
    vendor_err: Read<u32>,
    byte_len: Read<u32>,
    imm_data: Read<u32>,
    qp_num: Read<u32>,
    src_qp: Read<u32>,
    wc_flags: Read<c_uint>,
    stamp: Read<u64>,
    /// `None`: the device has no such stamps.
    wallclock: Option<Read<u64>>,
}

/// Makes such a queue: its completions have the device's stamps, and nanoseconds since the epoch if
/// the device can do that.
pub(super) fn create(
    context: &Context,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
) -> Result<(NonNull<ibv_cq>, Reading)> {
    const VERB: &str = "ibv_create_cq_ex";
    let create = extended!(context, create_cq_ex).ok_or(context.absent(VERB))?;
    let make = |stamps: u32| {
        let mut attr = ibv_cq_init_attr_ex {
            cqe,
            cq_context,
            channel,
            comp_vector: 0,
            wc_flags: u64::from(FIELDS | stamps),
            comp_mask: 0,
            flags: 0,
            parent_domain: null_mut(),
        };
        // SAFETY: an open device and a channel of it; the attributes are the call's while it lasts.
        unsafe { create(context.ptr(), &mut attr) }
    };
    let (raw, both) = (
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    );
    let (made, has_wallclock) = match make(both) {
        cq if cq.is_null() => (make(raw), false),
        cq => (cq, true),
    };
    let cq = context.made(VERB, made)?;
    // SAFETY: just made.
    let reading = unsafe { reading(cq.as_ref(), has_wallclock) };
    let reading = reading.ok_or_else(|| {
        // SAFETY: nobody else has it; it begins with an `ibv_cq`.
        unsafe { (context.library().destroy_cq)(cq.as_ptr().cast()) };
        let why = format!(
            "the device {} reads no stamps of completions",
            context.name()
        );
        Error::new(VERB, libc::EOPNOTSUPP, why)
    })?;
    Ok((cq.cast(), reading))
}

/// Its functions; `None`: one is not there.
fn reading(cq: &ibv_cq_ex, has_wallclock: bool) -> Option<Reading> {
    Some(Reading {
        start_poll: cq.start_poll?,
        next_poll: cq.next_poll?,
        end_poll: cq.end_poll?,
        opcode: cq.read_opcode?,
        vendor_err: cq.read_vendor_err?,
        byte_len: cq.read_byte_len?,
        imm_data: cq.read_imm_data?,
        qp_num: cq.read_qp_num?,
        src_qp: cq.read_src_qp?,
        wc_flags: cq.read_wc_flags?,
        stamp: cq.read_completion_ts?,
        wallclock: match has_wallclock {
            true => Some(cq.read_completion_wallclock_ns?),
            false => None,
        },
    })
}

impl Reading {
    /// Takes up to `max` completions. `None`: the device has failed, or the queue has overrun.
    ///
    /// # Safety
    /// The queue is alive, and these are its functions.
    pub(super) unsafe fn poll(
        &self,
        cq: *mut ibv_cq,
        max: usize,
        out: &mut dyn FnMut(&Completion, Stamp),
    ) -> Option<usize> {
        let cq: *mut ibv_cq_ex = cq.cast();
        let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
        if max == 0 {
            return Some(0);
        }
        // SAFETY: by contract.
        match unsafe { (self.start_poll)(cq, &mut attr) } {
            0 => {}
            libc::ENOENT => return Some(0),
            _ => return None,
        }
        let mut taken = 0;
        let ended = loop {
            // SAFETY: by contract; a completion was taken.
            let (completion, stamp) = unsafe { self.read(cq) };
            out(&completion, stamp);
            taken += 1;
            if taken == max {
                break 0;
            }
            // SAFETY: by contract; polling has begun.
            match unsafe { (self.next_poll)(cq) } {
                0 => {}
                ended => break ended,
            }
        };
        // SAFETY: as above, and it ends once.
        unsafe { (self.end_poll)(cq) };
        // What was taken is given out first; the next call finds the failure again.
        let _ = ended;
        Some(taken)
    }

    /// # Safety
    /// The queue is alive, and has a current completion.
    unsafe fn read(&self, cq: *mut ibv_cq_ex) -> (Completion, Stamp) {
        let done = |status| status == rnic_types::Status::Success as u32;
        // SAFETY: by contract; fields other than these mean something after a success alone.
        let wc = unsafe {
            let (wr_id, status) = ((*cq).wr_id, (*cq).status);
            let base = ibv_wc {
                wr_id,
                status,
                qp_num: (self.qp_num)(cq),
                ..ibv_wc::default()
            };
            match done(status) {
                true => ibv_wc {
                    opcode: (self.opcode)(cq),
                    byte_len: (self.byte_len)(cq),
                    imm_data: (self.imm_data)(cq),
                    src_qp: (self.src_qp)(cq),
                    wc_flags: (self.wc_flags)(cq),
                    ..base
                },
                false => ibv_wc {
                    vendor_err: (self.vendor_err)(cq),
                    ..base
                },
            }
        };
        let stamp = Stamp {
            // SAFETY: by contract.
            raw: unsafe { (self.stamp)(cq) },
            // SAFETY: by contract.
            wallclock: self.wallclock.map_or(0, |read| unsafe { read(cq) }),
        };
        (convert::completion(&wc), stamp)
    }
}
