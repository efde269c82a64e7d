//! Data that can be made and checked at any offset: word `k` of a stream is a hash of seed and `k`.

fn word(seed: u64, index: u64) -> [u8; 8] {
    // splitmix64
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

/// Calls `f` with each piece of a word that lies in `offset .. offset + len`: where in the range it
/// is, and its bytes. Stops when `f` says so.
fn pieces(seed: u64, offset: usize, len: usize, mut f: impl FnMut(usize, &[u8]) -> bool) {
    let mut at = 0;
    while at < len {
        let position = offset + at;
        let skip = position % 8;
        let take = (8 - skip).min(len - at);
        let bytes = word(seed, (position / 8) as u64);
        if !f(at, &bytes[skip..skip + take]) {
            return;
        }
        at += take;
    }
}

/// Fills `into` with the stream from `offset` on.
pub fn fill(seed: u64, offset: usize, into: &mut [u8]) {
    pieces(seed, offset, into.len(), |at, bytes| {
        into[at..at + bytes.len()].copy_from_slice(bytes);
        true
    });
}

/// Where `bytes` first differs from the stream from `offset` on.
pub fn first_difference(seed: u64, offset: usize, bytes: &[u8]) -> Option<usize> {
    let mut found = None;
    pieces(seed, offset, bytes.len(), |at, expected| {
        let piece = &bytes[at..at + expected.len()];
        if piece != expected {
            found = piece
                .iter()
                .zip(expected)
                .position(|(a, b)| a != b)
                .map(|i| at + i);
        }
        found.is_none()
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_the_stream_is_the_same() {
        let mut all = vec![0; 300];
        fill(5, 0, &mut all);
        for (offset, len) in [(0, 300), (1, 17), (7, 1), (8, 8), (13, 0), (250, 50)] {
            let mut part = vec![0; len];
            fill(5, offset, &mut part);
            assert_eq!(part, all[offset..offset + len]);
            assert_eq!(first_difference(5, offset, &part), None);
        }
    }

    #[test]
    fn every_changed_byte_is_found() {
        let mut bytes = vec![0; 100];
        fill(9, 3, &mut bytes);
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert_eq!(first_difference(9, 3, &bytes), Some(at));
            bytes[at] ^= 1;
        }
        assert!(first_difference(10, 3, &bytes).is_some(), "another seed");
        assert!(first_difference(9, 4, &bytes).is_some(), "another place");
    }
}
