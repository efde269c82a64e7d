//! Lists of work requests.

use crate::error::{Error, Result};

/// Takes work requests until one is refused: how many were taken, and why the next was not.
#[inline]
pub(crate) fn take_each<W>(
    wqes: &mut dyn Iterator<Item = Result<W>>,
    mut take: impl FnMut(W) -> Result<()>,
) -> (usize, Option<Error>) {
    let mut taken = 0;
    for wqe in wqes {
        // Not by `and_then`, which moves the work request once more.
        let taken_or_not = match wqe {
            Ok(wqe) => take(wqe),
            Err(error) => Err(error),
        };
        if let Err(error) = taken_or_not {
            return (taken, Some(error));
        }
        taken += 1;
    }
    (taken, None)
}
