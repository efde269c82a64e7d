//! Where objects lie: in our memory, or in memory of the program's own allocator
//! (`ibv_alloc_parent_domain(3)`).
//!
//! Hardware's providers take the buffers of their queues from that allocator. Here the queues
//! belong to the engine; what the program and the device share of a queue is the object behind its
//! `ibv_qp`, `ibv_cq` or `ibv_srq`, and that is what lies there.

use core::ffi::c_void;
use std::mem::MaybeUninit;

use super::object::Object;
use crate::c::*;
use crate::export::seam::{ENOMEM, Result};

/// `IBV_ALLOCATOR_USE_DEFAULT`.
const USE_DEFAULT: *mut c_void = usize::MAX as *mut c_void;

/// What an allocator is asked for, its `resource_type`.
#[derive(Clone, Copy)]
#[repr(u64)]
pub enum Resource {
    QueuePair = 1,
    CompletionQueue = 2,
    SharedReceiveQueue = 3,
}

/// The functions of a parent domain.
#[derive(Clone, Copy)]
pub struct Allocator {
    pub alloc: AllocFn,
    pub free: FreeFn,
    pub pd_context: *mut c_void,
}

/// Where an object has to be given back to.
#[derive(Clone, Copy)]
pub struct Home(Option<Custom>);

#[derive(Clone, Copy)]
struct Custom {
    allocator: Allocator,
    pd: *mut ibv_pd,
    resource: Resource,
}

impl Home {
    /// Our own memory.
    pub const OURS: Home = Home(None);

    /// # Safety
    /// `at` came from this home, and nobody uses it any more.
    unsafe fn give_back<T>(self, at: *mut MaybeUninit<T>) {
        match self.0 {
            // SAFETY: `Room::new` took it from a box.
            None => drop(unsafe { Box::from_raw(at) }),
            Some(Custom {
                allocator,
                pd,
                resource,
            }) => {
                // SAFETY: the program's function, with what its other function gave.
                unsafe { (allocator.free)(pd, allocator.pd_context, at.cast(), resource as u64) }
            }
        }
    }
}

/// Room for an object that is about to be made.
pub struct Room<T> {
    at: *mut MaybeUninit<T>,
    home: Home,
}

impl<T> Room<T> {
    /// Takes room from the allocator of the domain `pd`. It is ours if there is no allocator, or if
    /// that one leaves it to us.
    ///
    /// # Errors
    /// ENOMEM if the allocator gives nothing.
    pub fn new(
        pd: *mut ibv_pd,
        allocator: Option<Allocator>,
        resource: Resource,
    ) -> Result<Room<T>> {
        if let Some(allocator) = allocator {
            let custom = Custom {
                allocator,
                pd,
                resource,
            };
            let (size, align) = (size_of::<T>(), align_of::<T>());
            // SAFETY: the program's function.
            let at = unsafe {
                (allocator.alloc)(
                    custom.pd,
                    allocator.pd_context,
                    size,
                    align,
                    resource as u64,
                )
            };
            if at.is_null() {
                return Err(ENOMEM.because("the parent domain's allocator gave nothing"));
            }
            if at != USE_DEFAULT {
                let home = Home(Some(custom));
                return Ok(Room {
                    at: at.cast(),
                    home,
                });
            }
        }
        Ok(Room::ours())
    }

    /// From our own memory.
    pub fn ours() -> Room<T> {
        Room {
            at: Box::into_raw(Box::new(MaybeUninit::uninit())),
            home: Home::OURS,
        }
    }

    /// Where the object will be.
    pub fn address(&self) -> u64 {
        self.at as u64
    }

    /// Where it has to be given back to, which the object remembers.
    pub fn home(&self) -> Home {
        self.home
    }

    /// Puts the object there; the program gets it.
    pub fn fill(self, object: T) -> *mut T {
        let at = self.at.cast::<T>();
        std::mem::forget(self);
        // SAFETY: fresh memory of the right size, and aligned as was asked for.
        unsafe { at.write(object) };
        at
    }
}

impl<T> Drop for Room<T> {
    fn drop(&mut self) {
        // SAFETY: never filled, or forgotten.
        unsafe { self.home.give_back(self.at) };
    }
}

/// An object that lies in a [`Room`].
pub trait Housed: Object {
    /// [`Room::home`] of where it lies.
    fn home(&self) -> Home;
}

/// Takes an object back from the program, to destroy it; its memory is given back.
///
/// # Safety
/// `c` came from [`Room::fill`], is not NULL, and nobody uses it any more.
pub unsafe fn take_housed<T: Housed>(c: *mut T::C) -> T {
    let at = c.wrapping_byte_sub(T::OFFSET).cast::<T>();
    // SAFETY: by contract; the object is moved out before its memory goes.
    unsafe {
        let object = at.read();
        object.home().give_back(at.cast::<MaybeUninit<T>>());
        object
    }
}
