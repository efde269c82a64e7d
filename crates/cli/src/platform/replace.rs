//! Files that a command writes anew: nothing is lost by a slip of the keys.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// What is seen of a file: the first block of pcapng may be long.
const HEAD: u64 = 1 << 16;

/// There is nothing, or what the command itself writes: `is_such` knows it by its first bytes.
pub fn may_be_replaced(path: &Path, is_such: impl FnOnce(&[u8]) -> bool) -> io::Result<bool> {
    let meta = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        meta => meta?,
    };
    // Of pipes and devices nothing is lost, and reading them may wait for ever.
    if !meta.is_file() || meta.len() == 0 {
        return Ok(true);
    }
    let mut head = Vec::new();
    File::open(path)?.take(HEAD).read_to_end(&mut head)?;
    Ok(is_such(&head))
}
