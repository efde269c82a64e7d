//! Control messages (cmsg(3)): what goes with a message beside its bytes.

use std::ops::Range;

/// Length of a control message's header, behind which its data begins.
const HEADER: usize = size_of::<libc::cmsghdr>();
const WORD: usize = size_of::<usize>();

/// Room that a control message of so many bytes takes (CMSG_SPACE).
pub(super) const fn space(data: usize) -> usize {
    HEADER.next_multiple_of(WORD) + data.next_multiple_of(WORD)
}

/// Begins a control message in `buffer`, which has [`space`] for it; the place of its data.
pub(super) fn begin(buffer: &mut [u8], level: i32, kind: i32, data: usize) -> &mut [u8] {
    let len = HEADER + data;
    let int = size_of::<i32>();
    buffer[..WORD].copy_from_slice(&len.to_ne_bytes());
    buffer[WORD..WORD + int].copy_from_slice(&level.to_ne_bytes());
    buffer[WORD + int..HEADER].copy_from_slice(&kind.to_ne_bytes());
    &mut buffer[HEADER..len]
}

/// The control messages in a buffer, each with level, kind and data; the first that is damaged ends
/// them.
#[inline]
pub(super) fn messages(buffer: &[u8]) -> impl Iterator<Item = (i32, i32, &[u8])> {
    let mut rest = buffer;
    std::iter::from_fn(move || {
        let head: &[u8; HEADER] = rest.first_chunk()?;
        let int = |at: Range<usize>| head[at].try_into().ok().map(i32::from_ne_bytes);
        let len = usize::from_ne_bytes(head[..WORD].try_into().ok()?);
        let (level, kind) = (int(WORD..WORD + 4)?, int(WORD + 4..HEADER)?);
        let data = rest.get(HEADER..len)?;
        rest = rest.get(len.next_multiple_of(WORD)..).unwrap_or_default();
        Some((level, kind, data))
    })
}
