//! Which short ways a queue pair may take.
//!
//! The usual short message of a connection is posted, taken in and answered without most of what a
//! round of the engine does ([`crate::engine::fast_post`], [`crate::engine::receive`],
//! [`crate::engine::fast_reply`]). Only
//! queue pairs that have nothing special about them may do so. Whether that is so stands in one
//! word of each queue pair, with its P_Key, which each packet is compared with on every way. It is
//! made anew where something changes that it depends on, and what is new about queue pairs is asked
//! for here, and nowhere else.

use rnic_settings::ablation::{self, Policy};
use rnic_transport::QueuePair;
use rnic_wire::pkeys_match;

use crate::engine::QpEntry;
use crate::observe;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FastPath {
    ways: u8,
    pkey: u16,
}

impl FastPath {
    /// What is posted may become a packet at once.
    const POST: u8 = 1;
    /// A short message, an atomic, or the answer to one may be taken without a full look at its
    /// headers.
    const TAKE: u8 = 1 << 1;
    /// An ACK or a short answer may leave without a turn of the queue pair.
    const REPLY: u8 = 1 << 2;

    /// What is so as the queue pair is now.
    fn of(entry: &QpEntry) -> FastPath {
        // Over XRC another process may have the receive queue, and be asked first.
        let plain = matches!(entry.transport, QueuePair::Rc(_)) && entry.remote_srq.is_none();
        let connected = plain && entry.peer.is_some();
        // Lint and trace look at each request as it is carried out.
        let posts =
            connected && !observe::follows_each_post() && !ablation::is_out(Policy::FastPost);
        let replies = connected && !ablation::is_out(Policy::FastReply);
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        let ways =
            bit(posts, FastPath::POST) | bit(plain, FastPath::TAKE) | bit(replies, FastPath::REPLY);
        FastPath {
            ways,
            pkey: entry.configured_pkey(),
        }
    }

    /// The P_Key of the queue pair.
    #[inline]
    pub(crate) fn pkey(self) -> u16 {
        self.pkey
    }

    /// From now on another process does something for the queue pair.
    pub(in crate::engine) fn close(&mut self) {
        self.ways = 0;
    }
}

impl QpEntry {
    /// Its peer changed, or its P_Key, or what other processes do for it.
    pub(crate) fn update_fast_path(&mut self) {
        self.fast = FastPath::of(self);
    }

    #[inline]
    fn has_fast(&self, bit: u8) -> bool {
        debug_assert_eq!(self.fast, FastPath::of(self), "it was not made anew");
        self.fast.ways & bit != 0
    }

    /// The P_Key that its attributes name. Their index is one of the table.
    fn configured_pkey(&self) -> u16 {
        let table = self.shared.owner.host.pkeys();
        table.get(self.attr.pkey_index).unwrap_or_default()
    }

    /// A packet with that P_Key is of its partition, and one of both ends a full member (IBTA
    /// vol. 1, 10.9.3).
    #[inline]
    pub(in crate::engine) fn takes_pkey(&self, pkey: u16) -> bool {
        debug_assert_eq!(self.fast.pkey, self.configured_pkey(), "not made anew");
        pkeys_match(self.fast.pkey, pkey)
    }

    /// What is posted may become a packet at once.
    #[inline]
    pub(in crate::engine) fn may_post_fast(&self) -> bool {
        self.has_fast(FastPath::POST)
    }

    /// What comes may be taken without a full look at its headers.
    #[inline]
    pub(in crate::engine) fn may_take_fast(&self) -> bool {
        self.has_fast(FastPath::TAKE)
    }

    /// An answer may leave without a turn.
    #[inline]
    pub(in crate::engine) fn may_reply_fast(&self) -> bool {
        self.has_fast(FastPath::REPLY)
    }
}
