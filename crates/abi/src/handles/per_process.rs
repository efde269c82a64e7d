//! A handle of the device for each process that has an object: of who made it, and of a forked
//! child that goes on with it.
//!
//! In a forked child what the parent made is dead. But programs open the device and become daemons
//! then: what is a mere name, a context or a protection domain, the child may use as on hardware.
//! There it gets a handle of its own, of the device that the child opens by that; the C object is
//! the same. Children of children do likewise.

use std::sync::OnceLock;

use super::open::OpenGuard;

/// What can tell whose it is.
pub trait OfProcess {
    /// It was made by this very process.
    fn is_here(&self) -> bool;
}

/// The handle of who made the object, and those of forked children, each behind that of its parent.
pub struct PerProcess<T> {
    own: T,
    next: OnceLock<Box<PerProcess<T>>>,
}

impl<T: OfProcess> PerProcess<T> {
    pub fn new(own: T) -> PerProcess<T> {
        PerProcess {
            own,
            next: OnceLock::new(),
        }
    }

    /// This process made the object.
    pub fn is_own_here(&self) -> bool {
        self.own.is_here()
    }

    /// The handle of this process, if it has one.
    pub fn here(&self) -> Option<&T> {
        let last = self.last();
        last.own.is_here().then_some(&last.own)
    }

    /// The handle of this process, or that of its next of kin: good for what needs no device.
    pub fn nearest(&self) -> &T {
        &self.last().own
    }

    fn last(&self) -> &PerProcess<T> {
        let mut last = self;
        while let Some(next) = last.next.get() {
            last = next;
        }
        last
    }

    /// Gives this process, which has none, a handle. The guard is held across fork(2), so no child
    /// finds this half done.
    pub fn add(&self, _open: &OpenGuard, handle: T) -> &T {
        let next = Box::new(PerProcess::new(handle));
        &self.last().next.get_or_init(|| next).own
    }

    /// The handle of who made the object.
    pub fn into_own(self) -> T {
        self.own
    }

    /// Ends the handle that [`PerProcess::add`] gave this process. What is of others stays as it
    /// is: their locks may be held by threads that are not in this process.
    pub fn end_here(&mut self) {
        let mut at = self;
        while at.next.get().is_some_and(|next| next.next.get().is_some()) {
            let Some(next) = at.next.get_mut() else {
                return;
            };
            at = next;
        }
        if at.next.get().is_some_and(|last| last.own.is_here()) {
            drop(at.next.take());
        }
    }
}

#[cfg(test)]
mod tests;
