//! Bytes that are known and look random. All memory that nobody writes has a piece of them, and so
//! has each message.

use std::sync::OnceLock;

/// The longest operation, bytes.
pub(crate) const LONGEST: u32 = 1 << 21;
/// Pieces begin before this.
const BEGINS: usize = 1 << 18;
const LEN: usize = LONGEST as usize + BEGINS + (1 << 12);

fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut rng = fastrand::Rng::with_seed(0x7061_7474_6572_6e00);
        let words = (0..LEN / 8).map(|_| rng.u64(..));
        words.flat_map(u64::to_le_bytes).collect()
    })
}

/// What memory holds at a place, which depends on all that may be confused: whose it is, and which
/// end's.
pub(crate) fn bytes_of(owner: usize, end: usize, at: usize, len: usize) -> &'static [u8] {
    let begin = (owner * 4099 + end * 2053) % BEGINS + at;
    &pattern()[begin..begin + len]
}

/// Where in a region of that length an operation's bytes are.
pub(crate) fn place(op: usize, len: usize, region: usize) -> usize {
    op * 97 % (region - len + 1)
}
