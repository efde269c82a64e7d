//! C structures and the handles behind them.
//!
//! What a program holds as `struct ibv_qp *` is a field of one of our own objects, which also owns
//! the `rnic_nic` handle. As in libibverbs, a pointer that the program hands back is trusted to be
//! one that it was given and has not destroyed; only NULL is told apart. The C part lies in an
//! `UnsafeCell`, because the program writes to it.

use std::cell::UnsafeCell;

use rnic_nic::{Over, Unacknowledged};

use crate::export::seam::{DataResult, Errno};

/// An object of ours that contains the C structure which the program sees.
///
/// # Safety
/// At `OFFSET` bytes into `Self` lies an `UnsafeCell<Self::C>`, or an `UnsafeCell` of a structure
/// that begins with it.
pub unsafe trait Object: Sized {
    /// The structure that programs know.
    type C;
    /// Where it lies.
    const OFFSET: usize = 0;
}

/// Gives the object to the program.
pub fn into_c<T: Object>(object: Box<T>) -> *mut T::C {
    Box::into_raw(object).wrapping_byte_add(T::OFFSET).cast()
}

/// The object behind a pointer; EINVAL for NULL.
///
/// # Safety
/// `c` is NULL or came from [`into_c`] of the same type, and the object is not destroyed while the
/// result is in use.
pub unsafe fn from_c<'a, T: Object>(c: *mut T::C) -> DataResult<&'a T> {
    if c.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: by contract there is a `T` that many bytes before `c`, and it is alive.
    Ok(unsafe { &*c.wrapping_byte_sub(T::OFFSET).cast::<T>() })
}

/// Takes the object back from the program, to destroy it.
///
/// # Safety
/// As [`from_c`]; `c` is not NULL, and nobody uses it any more.
pub unsafe fn take_c<T: Object>(c: *mut T::C) -> Box<T> {
    // SAFETY: by contract this is the pointer that `into_c` took from a box.
    unsafe { Box::from_raw(c.wrapping_byte_sub(T::OFFSET).cast::<T>()) }
}

/// The object of a program that ends it, where its memory stays.
///
/// # Safety
/// As [`take_c`]; nobody has a reference to it.
pub unsafe fn to_end<'a, T: Object>(c: *mut T::C) -> &'a mut T {
    // SAFETY: by contract this is the pointer that `into_c` gave, and nobody else uses it.
    unsafe { &mut *c.wrapping_byte_sub(T::OFFSET).cast::<T>() }
}

/// Waits in that call on the mutex and condition variable inside an `ibv_cq` or `ibv_qp`, until the
/// program has acknowledged all events it took; `owed` says what it has not. Some programs
/// acknowledge more than they took; that must not hang, so the comparison is "at least", across the
/// counters' wrap-around.
///
/// # Safety
/// The pointers are those of one live C object, initialised.
pub unsafe fn wait_for_acks(
    verb: &'static str,
    mutex: *mut libc::pthread_mutex_t,
    cond: *mut libc::pthread_cond_t,
    owed: impl Fn() -> Option<Unacknowledged>,
) {
    let mut waited = false;
    // SAFETY: initialised and alive by contract; the condition is only waited on under its mutex.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        while let Some(owed) = owed() {
            waited = true;
            rnic_nic::wait_for_acks(verb, || owed);
            libc::pthread_cond_wait(cond, mutex);
        }
        libc::pthread_mutex_unlock(mutex);
    }
    if waited {
        rnic_nic::wait_over(Over::Done);
    }
}

/// What of an object's events was not acknowledged, by the program's counter and the library's.
pub fn owed(
    object: impl FnOnce() -> String,
    remedy: &'static str,
    completed: u32,
    delivered: u32,
) -> Option<Unacknowledged> {
    (!all_acknowledged(completed, delivered)).then(|| Unacknowledged {
        object: object(),
        taken: delivered.into(),
        acknowledged: completed.into(),
        events: String::new(),
        remedy,
    })
}

/// The call for asynchronous events.
pub const ACK_ASYNC: &str = "ibv_ack_async_event";

/// Adds to an acknowledgement counter and wakes the threads that wait in [`wait_for_acks`].
///
/// # Safety
/// The pointers are those of one live C object, initialised.
pub unsafe fn acknowledge(
    mutex: *mut libc::pthread_mutex_t,
    cond: *mut libc::pthread_cond_t,
    counter: *mut u32,
    events: u32,
) {
    // SAFETY: initialised and alive by contract; the counter is only written under the mutex.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        *counter = (*counter).wrapping_add(events);
        libc::pthread_cond_broadcast(cond);
        libc::pthread_mutex_unlock(mutex);
    }
}

/// `completed` has reached `delivered`, modulo 2^32.
pub fn all_acknowledged(completed: u32, delivered: u32) -> bool {
    delivered.wrapping_sub(completed) as i32 <= 0
}

/// A zeroed C structure.
///
/// # Safety
/// All zeros is a valid value of `T`: integers, raw pointers, `Option<fn>`, pthread objects on
/// Linux.
pub unsafe fn zeroed<T>() -> UnsafeCell<T> {
    // SAFETY: valid by contract.
    UnsafeCell::new(unsafe { std::mem::zeroed() })
}

#[cfg(test)]
mod tests;
