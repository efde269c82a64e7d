//! The two ends of a conversation.

/// One of the two ends of a conversation: 0 or 1. End 0 sent its first packet, or its connection
/// request.
pub type End = usize;

/// The other end.
pub const fn other(end: End) -> End {
    end ^ 1
}
