//! Keys: 24 bits of index, which name the region or window, and a tag of 8 bits, which its owner
//! may change.
//!
//! A fresh key is 32 random bits, so that peers cannot find keys by counting.

use crate::host::Host;

/// What of a key names the region or window.
pub(super) const fn index(key: u32) -> u32 {
    key >> 8
}

/// A key that may be given out if its index is free. Index 0 is none: 0 is the value of `sge.lkey`
/// fields that nobody filled, and must never grant anything.
pub(super) fn random(host: &Host) -> u32 {
    loop {
        let key = host.random_u64() as u32;
        if index(key) != 0 {
            return key;
        }
    }
}
