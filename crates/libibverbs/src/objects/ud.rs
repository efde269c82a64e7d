//! Ways of datagrams.

use core::ptr::NonNull;
use std::sync::Arc;

use rnic_layouts::*;
use rnic_types::{AhAttr, Result};

use crate::convert;
use crate::objects::memory::Pd;

/// A way to a peer or a group (`ibv_create_ah`).
#[derive(Clone)]
pub struct Ah {
    inner: Arc<Way>,
}

struct Way {
    ptr: NonNull<ibv_ah>,
    pd: Pd,
}

// SAFETY: see `Opened`: the library's functions may be called from any thread.
unsafe impl Send for Way {}
// SAFETY: as above.
unsafe impl Sync for Way {}

impl std::fmt::Debug for Ah {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ah").finish_non_exhaustive()
    }
}

impl Pd {
    /// Makes a way.
    ///
    /// # Errors
    /// No way leads there; ENODEV in a forked child.
    pub fn create_ah(&self, attr: &AhAttr) -> Result<Ah> {
        const VERB: &str = "ibv_create_ah";
        let context = self.context();
        context.check_alive(VERB)?;
        let mut attr = convert::ah_to_c(attr);
        // SAFETY: the domain is alive; the attributes are read while the call lasts.
        let ptr = unsafe { (context.library().create_ah)(self.ptr(), &mut attr) };
        Ok(Ah {
            inner: Arc::new(Way {
                ptr: context.made(VERB, ptr)?,
                pd: self.clone(),
            }),
        })
    }
}

impl Ah {
    pub(crate) fn ptr(&self) -> *mut ibv_ah {
        self.inner.ptr.as_ptr()
    }

    pub(crate) fn pd(&self) -> &Pd {
        &self.inner.pd
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        let context = self.pd.context();
        if context.is_alive() {
            // SAFETY: of this process, and destroyed once.
            unsafe { (context.library().destroy_ah)(self.ptr.as_ptr()) };
        }
    }
}
