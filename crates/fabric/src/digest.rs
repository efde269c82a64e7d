//! A digest of all that happened, to compare two runs by (FNV-1a).

/// What was put in so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn new() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn word(&mut self, word: u64) {
        // A word at a time: what matters is that two runs differ, not by how much.
        self.0 = (self.0 ^ word).wrapping_mul(0x100_0000_01b3);
        self.0 ^= self.0 >> 29;
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}
