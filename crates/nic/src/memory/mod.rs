//! The memory table: which key grants which bytes, and the only code that touches user memory.
//!
//! Each shard of the engine has a table of all regions. All copies happen while a shard's lock is
//! held, and so does the removal of a region from its table: when [`MemoryTable::remove`] has
//! returned for all of them, no copy into or out of that region is in flight or will begin. So a
//! lookup takes no lock of its own, and shares no cache line with another shard. Windows, which
//! data paths change, are one for all ([`Windows`]).
//!
//! | file | duty |
//! | --- | --- |
//! | `table`, `index_table` | keys and entries |
//! | `region`, `window` | how entries come, change and go |
//! | `grants` | whether an access is allowed |
//! | `transfers` | grant, then copy |
//! | `copies` | the copies themselves, `unsafe` |
//! | `foreign`, `gate` | memory of other processes |
//! | `one_sided` | what takes part in WRITEs and READs without packets, and by reference |
//! | `advice` | what `ibv_advise_mr` is about |
//! | `device_memory` | memory that the device owns |

pub(crate) mod access;
mod advice;
mod copies;
mod device_memory;
pub(crate) mod domains;
mod fault;
mod foreign;
mod gate;
mod grants;
mod index_table;
mod key;
mod loads;
mod one_sided;
pub(crate) mod pieces;
mod region;
mod table;
mod transfers;
mod window;

#[cfg(test)]
mod tests;

pub(crate) use copies::{DetachedPacket, PacketMemory, fetch};
pub(crate) use device_memory::{DEVICE_MEMORY, DeviceMemory};
pub(crate) use foreign::{Exported, Foreign};
pub(crate) use gate::{DEVICE_SLOT, Gate, SLOTS};
pub(crate) use region::{RegionSpec, WindowsBound};
pub use rnic_types::Access;
pub(crate) use table::{MemoryTable, RegionFacts};
pub(crate) use window::Windows;
