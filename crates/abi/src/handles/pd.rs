//! Protection domains, parent domains among them, and thread domains.

use std::cell::UnsafeCell;

use rnic_nic::{Pd, Td};

use super::allocator::{Allocator, Resource, Room};
use super::context::opened;
use super::object::{Object, from_c, into_c};
use super::open::lock_open;
use super::per_process::{OfProcess, PerProcess};
use crate::c::*;
use crate::export::seam::{PARENTS, Result};

#[repr(C)]
pub struct PdObject {
    pub c: UnsafeCell<ibv_pd>,
    pub nic: PerProcess<Pd>,
    /// Of a parent domain.
    pub allocator: Option<Allocator>,
    pub made: Made,
}

/// How a domain was made.
#[derive(Clone, Copy)]
pub enum Made {
    Alone,
    /// By `ibv_import_pd`.
    Imported,
    /// By `ibv_alloc_parent_domain`, of this one.
    ParentOf(*mut ibv_pd),
}

impl OfProcess for Pd {
    fn is_here(&self) -> bool {
        self.context().is_alive()
    }
}

// SAFETY: `repr(C)`, first field.
unsafe impl Object for PdObject {
    type C = ibv_pd;
}

impl PdObject {
    /// What the program knows it by.
    pub fn c(&self) -> *mut ibv_pd {
        self.c.get()
    }

    /// Made by `ibv_alloc_parent_domain`.
    pub fn is_parent(&self) -> bool {
        matches!(self.made, Made::ParentOf(_))
    }

    /// The domain in this process. A forked child that goes on with its parent's gets one of its
    /// own by this.
    ///
    /// # Errors
    /// ENODEV in a forked child whose parent imported it; those of opening the device.
    pub fn nic(&self) -> Result<&Pd> {
        match self.nic.here() {
            Some(here) => Ok(here),
            None => self.make_in_child(),
        }
    }

    #[cold]
    fn make_in_child(&self) -> Result<&Pd> {
        let made = match self.made {
            Made::Imported => return Err(PARENTS),
            // SAFETY: a domain's context lives as long as it.
            Made::Alone => unsafe { opened((*self.c()).context) }?.nic.alloc_pd(),
            // Its thread domain was a promise about the parent's threads. SAFETY: so does what a
            // parent domain is of; in a child, where its memory is not given back, even longer.
            Made::ParentOf(base) => unsafe { from_c::<PdObject>(base) }?
                .nic()?
                .alloc_parent(None)?,
        };
        let open = lock_open();
        // Another thread may have been first.
        if let Some(here) = self.nic.here() {
            return Ok(here);
        }
        // SAFETY: a plain field, which names the child's own domain from now on.
        unsafe { (*self.c()).handle = made.number() };
        Ok(self.nic.add(&open, made))
    }

    /// Room for an object that belongs to the domain, see [`Room::new`].
    pub fn room<T>(&self, resource: Resource) -> Result<Room<T>> {
        Room::new(self.c(), self.allocator, resource)
    }

    /// Ends an import.
    pub fn unimport(self) {
        // In a forked child it is the parent's, and does nothing there.
        self.nic.into_own().unimport();
    }
}

/// Gives a protection domain to the program.
pub fn hand_out(context: *mut ibv_context, nic: Pd, made: Made) -> *mut ibv_pd {
    let handle = nic.number();
    into_c(Box::new(PdObject {
        c: UnsafeCell::new(ibv_pd { context, handle }),
        nic: PerProcess::new(nic),
        allocator: None,
        made,
    }))
}

/// Gives an imported one to the program.
pub fn hand_out_import(context: *mut ibv_context, nic: Pd) -> *mut ibv_pd {
    hand_out(context, nic, Made::Imported)
}

#[repr(C)]
pub struct TdObject {
    pub c: UnsafeCell<ibv_td>,
    pub nic: Td,
}

// SAFETY: `repr(C)`, first field.
unsafe impl Object for TdObject {
    type C = ibv_td;
}
