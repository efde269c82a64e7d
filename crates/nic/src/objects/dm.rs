//! Device memory: bytes that the device owns and a program copies into and out of
//! (`ibv_alloc_dm(3)`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result};
use crate::memory::pieces::{self, Bytes, DmShared};
use crate::memory::{DEVICE_MEMORY, DeviceMemory};
use crate::objects::context::Context;

static NEXT: AtomicU32 = AtomicU32::new(1);

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
    /// EINVAL: 0, or more than the device has ([`crate::DeviceAttr::max_dm_size`]). ENOMEM: more
    /// than is left.
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
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::new(DmShared {
            memory: Bytes::Own(memory),
            number,
            context: self.id(),
        });
        pieces::enter(&shared);
        Ok(Dm {
            shared,
            context: self.clone(),
        })
    }

    /// Another handle of the piece with that [`Dm::number`], whatever context of this process
    /// allocated it.
    ///
    /// # Errors
    /// ENOENT: there is none.
    pub fn import_dm(&self, number: u32) -> Result<Dm> {
        if let Some(origin) = self.origin() {
            let (process, base, len) = origin.import_dm(&self.shared.nic, number)?;
            let memory = Bytes::Foreign { process, base, len };
            return Ok(Dm {
                shared: Arc::new(DmShared {
                    memory,
                    number,
                    context: self.id(),
                }),
                context: self.clone(),
            });
        }
        let shared = pieces::find(number).ok_or_else(|| {
            Error::new(
                "ibv_import_dm",
                libc::ENOENT,
                format!("this process has no device memory {number}"),
            )
        })?;
        Ok(Dm {
            shared,
            context: self.clone(),
        })
    }
}

impl Dm {
    /// Ends an import (`ibv_unimport_dm(3)`): the process that it belongs to may free it.
    pub fn unimport(self) {
        if let (Some(_), Some(origin)) = (self.shared.reach(), self.context.origin()) {
            origin.unimport_dm(&self.context.shared.nic, self.shared.number);
        }
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.shared.len()
    }

    /// Never: device memory has at least one byte.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The context it was made in.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// What names it within the process.
    pub fn number(&self) -> u32 {
        self.shared.number
    }

    /// Other handles or regions stand on it, or other processes' imports.
    pub fn in_use(&self) -> bool {
        let used = || Arc::strong_count(&self.shared) > 1;
        // An import may have ended, and only the word of it not been heard yet.
        used() && {
            self.context.shared.nic.hear_neighbours();
            used()
        }
    }

    /// Copies `data` to `offset`.
    ///
    /// # Errors
    /// Nothing was copied. EFAULT: the range leaves it. EINVAL: offset or length is no multiple of
    /// 4, which ConnectX can only copy.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        check_alignment("ibv_memcpy_to_dm", offset, data.len())?;
        match self.shared.write(offset, data) {
            true => Ok(()),
            false => Err(self.outside("ibv_memcpy_to_dm", offset, data.len())),
        }
    }

    /// Copies from `offset`.
    ///
    /// # Errors
    /// As [`Dm::write`].
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        check_alignment("ibv_memcpy_from_dm", offset, out.len())?;
        match self.shared.read(offset, out) {
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

fn check_alignment(verb: &'static str, offset: u64, len: usize) -> Result<()> {
    if offset.is_multiple_of(4) && len.is_multiple_of(4) {
        return Ok(());
    }
    Err(Error::invalid(
        verb,
        format!("offset {offset} and length {len} are to be multiples of 4"),
    ))
}
