//! The P_Key table of a port: the partitions that it belongs to (IBTA vol. 1, 10.9).

use std::fmt;
use std::sync::{Arc, OnceLock};

use rnic_wire::{DEFAULT_PKEY, is_full_member, pkeys_match};

use crate::error::{Error, Result};

/// The P_Key table of a port. It stays as it is for as long as the device is open, and has one
/// entry at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PkeyTable(Arc<[u16]>);

impl Default for PkeyTable {
    /// A full member of the default partition, and of no other.
    fn default() -> PkeyTable {
        PkeyTable(Arc::new([DEFAULT_PKEY]))
    }
}

impl fmt::Display for PkeyTable {
    /// As [`rnic_settings::PKEYS`] may say it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, pkey) in self.0.iter().enumerate() {
            let between = if index > 0 { "," } else { "" };
            write!(f, "{between}{pkey:#06x}")?;
        }
        Ok(())
    }
}

impl PkeyTable {
    /// That of these P_Keys, index 0 first; [the usual one](PkeyTable::default) of none.
    pub fn new(pkeys: &[u16]) -> PkeyTable {
        match pkeys {
            [] => PkeyTable::default(),
            pkeys => PkeyTable(pkeys.into()),
        }
    }

    /// That of this process's device. Whoever opens the device is told of a setting that makes no
    /// sense ([`rnic_settings::PKEYS`]); here it counts for nothing.
    pub fn of_process() -> &'static PkeyTable {
        static TABLE: OnceLock<PkeyTable> = OnceLock::new();
        TABLE.get_or_init(|| PkeyTable::new(&rnic_settings::pkeys().unwrap_or_default()))
    }

    /// The P_Keys, index 0 first.
    pub fn all(&self) -> &[u16] {
        &self.0
    }

    /// Entries.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> u16 {
        self.0.len() as u16
    }

    /// The P_Key of an index; `None`: the table has no such entry.
    pub fn get(&self, index: u16) -> Option<u16> {
        self.0.get(usize::from(index)).copied()
    }

    /// Refuses an index that the table does not have, in words.
    pub(crate) fn check(&self, verb: &'static str, index: u16) -> Result<()> {
        let has = match self.len() {
            len if index < len => return Ok(()),
            1 => "0 alone".to_owned(),
            len => format!("0 to {}", len - 1),
        };
        let words =
            format!("pkey_index is {index}, the P_Key table has {has} (RNIC_PKEYS sets it)");
        Err(Error::invalid(verb, words))
    }

    /// The index of a P_Key with that membership (`ibv_get_pkey_index(3)`).
    pub fn index_of(&self, pkey: u16) -> Option<u16> {
        self.position(|own| own == pkey)
    }

    /// The index of a P_Key of the same partition: the one with that membership, if it is there,
    /// else the other one.
    pub fn index_in_partition(&self, pkey: u16) -> Option<u16> {
        let other = || self.position(|own| (own ^ pkey) & 0x7fff == 0);
        self.index_of(pkey).or_else(other)
    }

    /// The index of the P_Key by which the owner of `pkey` may be talked to: where there are two, a
    /// full member's.
    pub fn index_matching(&self, pkey: u16) -> Option<u16> {
        let matches = |own| pkeys_match(own, pkey);
        self.position(|own| matches(own) && is_full_member(own))
            .or_else(|| self.position(matches))
    }

    fn position(&self, is_it: impl Fn(u16) -> bool) -> Option<u16> {
        let found = self.0.iter().position(|own| is_it(*own));
        found.map(|index| index as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_member_is_found_first() {
        let table = PkeyTable::new(&[0x0001, 0x8001, 0x0002]);
        assert_eq!(table.index_of(0x0001), Some(0));
        assert_eq!(table.index_of(0x8002), None);
        assert_eq!(table.index_in_partition(0x0001), Some(0));
        assert_eq!(table.index_in_partition(0x8002), Some(2));
        assert_eq!(table.index_in_partition(0x8003), None);
        assert_eq!(table.index_matching(0x8001), Some(1));
        assert_eq!(table.index_matching(0x0001), Some(1));
        assert_eq!(table.index_matching(0x8002), Some(2));
        assert_eq!(table.index_matching(0x0002), None, "both are limited");
        assert_eq!(table.index_matching(0xffff), None);
        assert_eq!(table.index_matching(0x8000), None, "no partition");
    }

    #[test]
    fn there_is_always_an_entry() {
        assert_eq!(PkeyTable::new(&[1, 0xffff]).to_string(), "0x0001,0xffff");
        assert_eq!(PkeyTable::new(&[]).all(), [0xffff]);
        assert_eq!(PkeyTable::default().get(1), None);
    }
}
