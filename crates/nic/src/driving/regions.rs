//! Regions come, change and go in the memory table of each shard.
//!
//! One shard is locked after the other, never two at once, and none is opened meanwhile. The first
//! chooses keys; it has a region first and last, so that what it takes for free is free everywhere.
//! What is granted to other processes is taken back shard by shard, too.

use rnic_transport::Pd;

use super::nic::Nic;
use crate::engine::Engine;
use crate::engine::Uses;
use crate::memory::RegionFacts;
use crate::memory::{Exported, Foreign, RegionSpec, WindowsBound};
use crate::reserve;

/// Why there is no key for a region, in words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoKey(pub(crate) &'static str);

impl NoKey {
    const IN_USE: NoKey = NoKey("all keys are in use");
}

impl Nic {
    /// Makes room for one region more in each shard. They are steady.
    fn reserve_region(&self) -> Result<(), NoKey> {
        let mut outcome = Ok(());
        self.each(|engine| {
            if engine.memory.try_reserve().is_err() {
                outcome = Err(NoKey(reserve::NO_MEMORY));
            }
        });
        outcome
    }

    /// Enters a region and gives its key.
    ///
    /// # Errors
    /// The table is full, or there is no memory.
    ///
    /// # Safety
    /// As [`crate::memory::MemoryTable::insert`], until [`Nic::disable_region`] and the like have
    /// returned and what they gave was waited for.
    pub(crate) unsafe fn enter_region(&self, spec: RegionSpec) -> Result<u32, NoKey> {
        let _steady = self.shared().shards.steady();
        self.reserve_region()?;
        // SAFETY: by contract.
        let key = unsafe { self.lock().memory.insert(spec) }.ok_or(NoKey::IN_USE)?;
        // SAFETY: by contract.
        self.each_other(|engine| unsafe { engine.memory.insert_as(key, spec) });
        Ok(key)
    }

    /// The same for one that reads as zeros and swallows what is written.
    pub(crate) fn enter_null_region(&self, pd: Pd) -> Result<u32, NoKey> {
        let _steady = self.shared().shards.steady();
        self.reserve_region()?;
        let key = self.lock().memory.insert_null(pd).ok_or(NoKey::IN_USE)?;
        self.each_other(|engine| engine.memory.insert_null_as(key, pd));
        Ok(key)
    }

    /// Enters another process's region under the key that it has there; false: that key is taken by
    /// something else.
    pub(crate) fn import_region(
        &self,
        pd: Pd,
        process: &std::sync::Arc<Foreign>,
        slot: u32,
        region: Exported,
    ) -> bool {
        let _steady = self.shared().shards.steady();
        let _whole = self.shared().imports.lock();
        if self.reserve_region().is_err() {
            return false;
        }
        let import = |engine: &mut Engine| engine.memory.import(pd, process, slot, region);
        let imported = import(&mut self.lock());
        if imported {
            self.each_other(|engine| {
                // As the first one has decided.
                let _ = import(engine);
            });
        }
        imported
    }

    /// Takes one import back; its slot, if there was one.
    pub(crate) fn unimport_region(&self, key: u32) -> Option<u32> {
        let _steady = self.shared().shards.steady();
        let _whole = self.shared().imports.lock();
        self.each_other(|engine| {
            engine.memory.unimport(key);
        });
        self.lock().memory.unimport(key)
    }

    /// Windows are bound to it.
    pub(crate) fn windows_bound(&self, key: u32) -> Result<(), WindowsBound> {
        self.windows().none_bound(key)
    }

    /// The region grants nothing any more; its key stays taken. When what this gives is over,
    /// nobody touches its memory.
    ///
    /// # Errors
    /// Windows are bound to it, which go on granting access to its memory: nothing happened.
    pub(crate) fn disable_region(&self, key: u32) -> Result<Uses, WindowsBound> {
        self.windows().close(key)?;
        Ok(self.sweep(key, |engine| engine.memory.disable(key)))
    }

    /// The same, with the windows that are bound to it.
    pub(crate) fn disable_region_and_windows(&self, key: u32) -> Uses {
        self.windows().close_all_of(key);
        self.sweep(key, |engine| engine.memory.disable(key))
    }

    /// Makes a region another one with the same key. When what this gives is over, nobody touches
    /// the memory of before.
    ///
    /// # Errors
    /// Windows are bound to it: nothing happened.
    ///
    /// # Safety
    /// As [`Nic::enter_region`].
    pub(crate) unsafe fn change_region(
        &self,
        key: u32,
        spec: RegionSpec,
    ) -> Result<Uses, WindowsBound> {
        self.windows().close(key)?;
        // SAFETY: by contract.
        Ok(self.sweep(key, |engine| unsafe { engine.memory.change(key, spec) }))
    }

    /// Revokes the key of a region that was disabled.
    pub(crate) fn remove_region(&self, key: u32) {
        let _steady = self.shared().shards.steady();
        self.each_other(|engine| engine.memory.remove(key));
        self.lock().memory.remove(key);
    }

    /// What a key stands for, for people.
    pub(crate) fn region_facts(&self, key: u32) -> Option<RegionFacts> {
        self.lock().memory.facts(key)
    }

    /// Does it in each shard; the region, which was closed to windows, is open to them again then
    /// as far as the tables say.
    fn sweep(&self, key: u32, act: impl Fn(&mut Engine)) -> Uses {
        let _steady = self.shared().shards.steady();
        let mut uses = Uses::default();
        self.each(|engine| {
            act(engine);
            uses.join(engine.revoke_key(key));
        });
        self.windows().reopen(key);
        uses
    }
}
