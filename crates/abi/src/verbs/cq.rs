//! Completion channels and completion queues.

use core::ffi::{c_int, c_void};
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rnic_nic::{CompChannel, CqOptions, Readable, Waiting};
use rnic_sys::Fd;

use crate::c::*;
use crate::convert::wc::work_completion;
use crate::export::seam::{
    self, EBUSY, EINVAL, EOPNOTSUPP, Errno, NULL, PARENTS, Refusal, Result, Verb,
};
use crate::export::symbols::export;
use crate::handles::allocator::{Home, take_housed};
use crate::handles::context::{opened, pass_async_lock};
use crate::handles::cq::{ChannelObject, CqObject, Polling};
use crate::handles::object::{acknowledge, from_c, into_c, take_c, zeroed};
use crate::system::cancel;
use crate::system::waits;

/// A program may put its descriptor elsewhere: dup2(2), close(2), and the new number into `fd` of
/// the structure. So it has one of its own, and events go by another.
fn duplicate(fd: RawFd) -> Result<RawFd> {
    let copy = Fd::duplicate_of(fd).map_err(|error| {
        Refusal::from(Errno(error.raw_os_error().unwrap_or(libc::EMFILE)))
            .because("the channel's descriptor cannot be duplicated")
    })?;
    // It is the program's from now on: `destroy_channel` closes the number that stands there then.
    Ok(ManuallyDrop::new(copy).raw())
}

pub unsafe extern "C" fn create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    Verb("ibv_create_comp_channel").makes(destroy_comp_channel, || {
        // SAFETY: a context of ours, or NULL.
        let nic = unsafe { opened(context) }?.nic.create_comp_channel()?;
        let fd = duplicate(nic.fd())?;
        waits::know(fd, &nic);
        let c = ibv_comp_channel {
            context,
            fd,
            refcnt: 0,
        };
        Ok(into_c(Box::new(ChannelObject {
            c: UnsafeCell::new(c),
            nic,
        })))
    })
}

/// Without words, for the connection manager, which ends what it made as far as it is not in use.
///
/// # Safety
/// Ours, or NULL; the program does not use it any more.
pub unsafe fn destroy_channel(channel: *mut ibv_comp_channel) -> Result<()> {
    // SAFETY: a channel of ours, or NULL.
    let object = unsafe { from_c::<ChannelObject>(channel) }?;
    if !object.nic.is_alive() {
        return Ok(());
    }
    if object.refcnt().load(Ordering::Acquire) > 0 {
        return Err(EBUSY
            .because("completion queues that report to it are left")
            .consequence());
    }
    waits::forget(&object.nic);
    // SAFETY: checked for NULL, and the program gives it and its descriptor up.
    unsafe {
        drop(Fd::take((*channel).fd));
        drop(take_c::<ChannelObject>(channel));
    }
    Ok(())
}

pub unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the contract of the verb.
    Verb("ibv_destroy_comp_channel").status(|| unsafe { destroy_channel(channel) })
}

/// Makes a completion queue; the caller fills in what is particular to the extended one.
///
/// # Safety
/// `context` and `channel` are ours, or NULL.
pub unsafe fn create(
    context: *mut ibv_context,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: u32,
    options: CqOptions,
) -> Result<Box<CqObject>> {
    // SAFETY: by contract.
    let owner = unsafe { opened(context) }?;
    // SAFETY: a live context, whose field nobody changes.
    let vectors = unsafe { (*context).num_comp_vectors };
    if comp_vector >= vectors as u32 {
        return Err(EINVAL.because(format!(
            "comp_vector is {comp_vector}, the device has {vectors}"
        )));
    }
    let channel_object = match channel.is_null() {
        true => None,
        // SAFETY: by contract.
        false => Some(unsafe { from_c::<ChannelObject>(channel) }?),
    };
    if channel_object.is_some_and(|channel| !channel.nic.is_alive()) {
        return Err(PARENTS);
    }
    let nic = owner
        .nic
        .create_cq_ex(cqe, channel_object.map(|c| &c.nic), 0, options)?;
    // SAFETY: integers, pointers, optional functions, pthread objects.
    let mut c: UnsafeCell<ibv_cq_ex> = unsafe { zeroed() };
    let base = &mut c.get_mut().base;
    base.context = context;
    base.channel = channel;
    base.cq_context = cq_context;
    base.cqe = nic.capacity() as c_int;
    base.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    base.cond = libc::PTHREAD_COND_INITIALIZER;
    let object = Box::new(CqObject {
        c,
        nic: ManuallyDrop::new(nic),
        async_events_delivered: AtomicU32::new(0),
        polling: Polling::default(),
        home: Home::OURS,
        parent: None,
    });
    if let Some(channel) = channel_object {
        channel.refcnt().fetch_add(1, Ordering::AcqRel);
    }
    object.nic.set_cookie(object.c.get() as u64);
    Ok(object)
}

pub unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    Verb("ibv_create_cq").makes(destroy_cq, || {
        let (cqe, vector) = (
            seam::unsigned("cqe", cqe)?,
            seam::unsigned("comp_vector", comp_vector)?,
        );
        // SAFETY: ours or NULL, by the contract of the verb.
        Ok(into_c(unsafe {
            create(
                context,
                cqe,
                cq_context,
                channel,
                vector,
                CqOptions::default(),
            )
        }?))
    })
}

unsafe extern "C" fn resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    Verb("ibv_resize_cq").changes(|| {
        // SAFETY: a queue of ours, or NULL.
        let object = unsafe { from_c::<CqObject>(cq) }?;
        let capacity = object.nic.resize(seam::unsigned("cqe", cqe)?)?;
        // SAFETY: a plain field of a live queue.
        unsafe { (*cq).cqe = capacity as c_int };
        Ok(())
    })
}

/// The `modify_cq` operation.
pub unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    Verb("ibv_modify_cq").changes(|| {
        // SAFETY: a queue of ours, or NULL.
        let object = unsafe { from_c::<CqObject>(cq) }?;
        // SAFETY: NULL or the caller's structure.
        let attr = unsafe { attr.as_ref() }.ok_or(NULL)?;
        match attr.attr_mask {
            0 => Err(EINVAL.because("attr_mask is 0")),
            IBV_CQ_ATTR_MODERATE => {
                let ibv_moderate_cq {
                    cq_count,
                    cq_period,
                } = attr.moderate;
                Ok(object.nic.moderate(cq_count, cq_period)?)
            }
            mask => Err(EOPNOTSUPP.because(format!("attr_mask is {mask:#x}"))),
        }
    })
}

/// Without words, for the connection manager, which ends what it made as far as it is not in use.
///
/// # Safety
/// Ours, or NULL; the program does not use it any more.
pub unsafe fn destroy(cq: *mut ibv_cq) -> Result<()> {
    // SAFETY: a queue of ours, or NULL.
    let object = unsafe { from_c::<CqObject>(cq) }?;
    if object.nic.check_alive("").is_err() {
        return Ok(());
    }
    if object.nic.in_use() {
        return Err(EBUSY
            .because("queue pairs or shared receive queues that complete to it are left")
            .consequence());
    }
    object.nic.detach();
    // SAFETY: initialised at creation; the channel outlives its queues.
    unsafe {
        pass_async_lock((*cq).context)?;
        object.wait_for_acks();
        if let Ok(channel) = from_c::<ChannelObject>((*cq).channel) {
            channel.refcnt().fetch_sub(1, Ordering::AcqRel);
        }
    }
    // SAFETY: checked for NULL, and the program gives it up; its handle is dropped once.
    unsafe {
        let mut object = take_housed::<CqObject>(cq);
        ManuallyDrop::drop(&mut object.nic);
    }
    Ok(())
}

pub unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the contract of the verb.
    Verb("ibv_destroy_cq").status(|| unsafe { destroy(cq) })
}

unsafe extern "C-unwind" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    cancel::useful_event(
        Verb("ibv_get_cq_event"),
        || {
            // SAFETY: a channel of ours, or NULL.
            let object = unsafe { from_c::<ChannelObject>(channel) }?;
            if cq.is_null() || cq_context.is_null() {
                return Err(NULL);
            }
            Ok(object.nic.fd())
        },
        |fds, woken, may_drive| {
            // SAFETY: as above.
            let object = unsafe { from_c::<ChannelObject>(channel) }?;
            let woken = woken.then(|| Readable::new(fds[1..].iter().map(|fd| fd.revents != 0)));
            let Waiting::SleepOn(packets) = object.nic.wait(woken, may_drive)? else {
                return Ok(0);
            };
            let all = std::iter::once(object.nic.fd()).chain(packets.fds().iter().copied());
            let filled = fds
                .iter_mut()
                .zip(all)
                .map(|(place, fd)| *place = cancel::readable(fd));
            Ok(filled.count())
        },
        || {
            // SAFETY: as above; it may not be destroyed while somebody waits for its events.
            let object = unsafe { from_c::<ChannelObject>(channel) }?;
            CompChannel::end_wait();
            let Some(cookie) = object.nic.event_of_token() else {
                return Ok(false);
            };
            let source = cookie as *mut ibv_cq;
            // SAFETY: the cookie is the address of a queue that cannot be destroyed before this
            // event is acknowledged; the variables are the caller's.
            unsafe {
                *cq_context = (*source).cq_context;
                *cq = source;
            }
            Ok(true)
        },
        CompChannel::end_wait,
    )
}

unsafe extern "C" fn ack_cq_events(cq: *mut ibv_cq, events: u32) {
    seam::quiet(|| {
        // SAFETY: a queue of ours, or NULL.
        unsafe {
            from_c::<CqObject>(cq)?;
            acknowledge(
                &raw mut (*cq).mutex,
                &raw mut (*cq).cond,
                &raw mut (*cq).comp_events_completed,
                events,
            );
        }
        Ok(())
    });
}

/// The `poll_cq` operation: number of completions, or a negative errno.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, entries: c_int, wc: *mut ibv_wc) -> c_int {
    seam::data_count(|| {
        // SAFETY: a queue of ours, or NULL.
        let object = unsafe { from_c::<CqObject>(cq) }?;
        let max = usize::try_from(entries).map_err(|_| Errno(libc::EINVAL))?;
        if max == 0 {
            return Ok(0);
        }
        if wc.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        let mut to = wc;
        object
            .nic
            .poll(max, &mut |completion| {
                // SAFETY: called at most `max` times, for which the caller has room.
                unsafe {
                    to.write(work_completion(completion));
                    to = to.add(1);
                }
            })
            .map_err(Into::into)
    }) as c_int
}

/// The `req_notify_cq` operation.
pub unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    seam::data_status(|| {
        // SAFETY: a queue of ours, or NULL.
        let object = unsafe { from_c::<CqObject>(cq) }?;
        object.nic.request_notify(solicited_only != 0);
        Ok(())
    })
}

export! {
    ibv_create_comp_channel @@ "IBVERBS_1.0" => create_comp_channel;
    ibv_destroy_comp_channel @@ "IBVERBS_1.0" => destroy_comp_channel;
    ibv_create_cq @@ "IBVERBS_1.1" => create_cq;
    ibv_resize_cq @@ "IBVERBS_1.1" => resize_cq;
    ibv_destroy_cq @@ "IBVERBS_1.1" => destroy_cq;
    ibv_get_cq_event @@ "IBVERBS_1.1" => get_cq_event;
    ibv_ack_cq_events @@ "IBVERBS_1.1" => ack_cq_events;
}
