//! Memory windows: what opens a part of a region to peers for a while.

use std::sync::atomic::Ordering;

use crate::error::{self, Error, Result};
use crate::objects::pd::Pd;

/// Kind of window (`enum ibv_mw_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MwType {
    /// Belongs to its protection domain; every bind makes a new key.
    Type1,
    /// Belongs to the queue pair that binds it (type 2B); the program chooses the last byte of its
    /// key.
    Type2,
}

/// A memory window (`ibv_alloc_mw(3)`). Closed and freed when dropped.
///
/// It is bound and invalidated by work requests ([`crate::SendOp::BindWindow`],
/// [`crate::SendOp::LocalInvalidate`]), in their order.
#[derive(Debug)]
pub struct Mw {
    pd: Pd,
    key: u32,
    mw_type: MwType,
}

impl Pd {
    /// Makes a window that is bound to nothing.
    ///
    /// # Errors
    /// ENOMEM: no key is left.
    pub fn alloc_mw(&self, mw_type: MwType) -> Result<Mw> {
        const VERB: &str = "ibv_alloc_mw";
        let nic = &self.context().shared.nic;
        nic.check_alive(VERB)?;
        let type_2 = mw_type == MwType::Type2;
        let mut engine = nic.lock();
        let room = engine.memory.reserve_window();
        room.map_err(|_| error::no_memory(VERB))?;
        let key = engine.memory.insert_window(self.shared.id, type_2);
        drop(engine);
        let key = key.ok_or_else(|| Error::new(VERB, libc::ENOMEM, "all keys are in use"))?;
        self.shared.users.fetch_add(1, Ordering::AcqRel);
        Ok(Mw {
            pd: self.clone(),
            key,
            mw_type,
        })
    }
}

impl Mw {
    /// The key it was made with: the upper 24 bits are those of all its keys.
    pub fn first_rkey(&self) -> u32 {
        self.key
    }

    /// Its kind.
    pub fn mw_type(&self) -> MwType {
        self.mw_type
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Pd {
        &self.pd
    }

    /// `rkey` may name this window.
    pub fn owns(&self, rkey: u32) -> bool {
        rkey >> 8 == self.key >> 8
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        let nic = &self.pd.context().shared.nic;
        // In a forked child the table is a dead copy.
        if nic.check_alive("ibv_dealloc_mw").is_ok() {
            nic.windows().remove(self.key);
        }
        self.pd.shared.users.fetch_sub(1, Ordering::AcqRel);
    }
}
