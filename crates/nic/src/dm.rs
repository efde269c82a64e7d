//! Device memory: bytes that the device owns and a program copies into and out of (`ibv_alloc_dm(3)`).

use std::sync::Arc;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::memory::{DEVICE_MEMORY, DeviceMemory};

#[derive(Debug)]
pub(crate) struct DmShared {
    pub(crate) memory: DeviceMemory,
}

/// A piece of device memory, zeroed at first.
#[derive(Clone, Debug)]
pub struct Dm {
    pub(crate) shared: Arc<DmShared>,
    context: Context,
}

impl Context {
    /// Takes `len` bytes of device memory.
    ///
    /// # Errors
    /// EINVAL: 0, or more than the device has ([`crate::DeviceAttr::max_dm_size`]). ENOMEM: more than is left.
    pub fn alloc_dm(&self, len: u64) -> Result<Dm> {
        const VERB: &str = "ibv_alloc_dm";
        self.shared.nic.check_alive(VERB)?;
        if len == 0 || len > DEVICE_MEMORY {
            return Err(Error::invalid(
                VERB,
                format!("{len} bytes; the device has {DEVICE_MEMORY}"),
            ));
        }
        let memory = DeviceMemory::alloc(len).ok_or_else(|| {
            Error::new(
                VERB,
                libc::ENOMEM,
                format!("{len} bytes of device memory are not left"),
            )
        })?;
        Ok(Dm {
            shared: Arc::new(DmShared { memory }),
            context: self.clone(),
        })
    }
}

impl Dm {
    /// Bytes.
    pub fn len(&self) -> u64 {
        self.shared.memory.len()
    }

    /// Never: device memory has at least one byte.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The context it was made in.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Other handles or regions stand on it.
    pub fn in_use(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    /// Copies `data` to `offset`.
    ///
    /// # Errors
    /// EFAULT: the range leaves it; nothing was copied.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        match self.shared.memory.write(offset, data) {
            true => Ok(()),
            false => Err(self.outside("ibv_memcpy_to_dm", offset, data.len())),
        }
    }

    /// Copies from `offset`.
    ///
    /// # Errors
    /// EFAULT: the range leaves it; nothing was copied.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        match self.shared.memory.read(offset, out) {
            true => Ok(()),
            false => Err(self.outside("ibv_memcpy_from_dm", offset, out.len())),
        }
    }

    fn outside(&self, verb: &'static str, offset: u64, len: usize) -> Error {
        Error::new(
            verb,
            libc::EFAULT,
            format!("{offset}..+{len} leaves the {} bytes", self.len()),
        )
    }
}
