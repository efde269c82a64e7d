//! The memory of an end of a flow, and where in it the bytes of each operation are.
//!
//! Both directions have memory of their own. What a SEND or WRITE brings is a piece of the sender's
//! `source`, whose bytes are known. WRITEs go to `target`, and may overlap: at the end it is what
//! they make of it in their order. READs come from `remote`, which nobody changes, and atomics go
//! to words of it; each brings its result to a place of its own in `landing`.

use rnic_nic::{Access, Error, Mw, Pd};

use crate::memory::Memory;
use crate::pattern::{bytes_of, place};
use crate::scenario::{Direction, Grant, Kind, Op};

/// Words of `remote` that atomics go to; the rest of it is read.
pub(super) const WORDS: usize = 8;
/// What memory holds that peers write, before they do.
pub(super) const EMPTY: u8 = 0xee;

/// What the peer may reach: address and key.
#[derive(Clone, Debug)]
pub(crate) struct Reachable {
    pub(super) target: (u64, u32),
    pub(super) remote: (u64, u32),
    /// The keys that windows were made with.
    pub(super) windows: Vec<u32>,
}

impl Reachable {
    /// Where the memory begins that a window with that grant opens.
    pub(super) fn granted(&self, grant: Grant) -> u64 {
        match grant {
            Grant::Write => self.target.0,
            Grant::Read => self.remote.0 + 8 * WORDS as u64,
            Grant::Atomic => self.remote.0,
        }
    }
}

/// Registered memory of an end, beside that of its receives.
pub(super) struct Regions {
    pub(super) source: Memory,
    pub(super) landing: Memory,
    pub(super) target: Memory,
    pub(super) remote: Memory,
    /// Where each operation's result comes to in `landing`.
    pub(super) places: Vec<usize>,
    /// Windows into it, for the peer.
    pub(super) windows: Vec<Mw>,
}

impl Regions {
    /// Of end `end` of flow `flow`, whose operations are `own`.
    pub(super) fn new(
        pd: &Pd,
        (flow, end): (usize, usize),
        own: &Direction,
        peers: &Direction,
    ) -> Result<Regions, Error> {
        let local = Access::LOCAL_WRITE;
        let memory = |nth: u64, len: usize, access, fill: &dyn Fn(&mut [u8])| {
            Memory::new(pd, (address(nth), len), access, fill)
        };
        let empty = |bytes: &mut [u8]| bytes.fill(EMPTY);
        let source = memory(1, region_len(own), Access(0), &|bytes| {
            bytes.copy_from_slice(source_bytes(flow, end, 0, bytes.len()));
        })?;
        let mut places = Vec::new();
        let mut landing = 64;
        for op in &own.ops {
            places.push(landing);
            if op.kind == Kind::Read || op.kind.is_atomic() {
                landing += (op.len as usize).next_multiple_of(8);
            }
        }
        let landing = memory(2, landing, local, &empty)?;
        let windows = peers
            .windows
            .iter()
            .map(|window| pd.alloc_mw(window.mw_type));
        let windows = windows.collect::<Result<Vec<Mw>, Error>>()?;
        let bindable = match windows[..] {
            [] => local,
            _ => local | Access::MW_BIND,
        };
        let target = memory(
            4,
            region_len(peers),
            bindable | Access::REMOTE_WRITE,
            &empty,
        )?;
        let remote = memory(
            5,
            8 * WORDS + region_len(peers),
            bindable | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            &|bytes| {
                let (words, rest) = bytes.split_at_mut(8 * WORDS);
                words.fill(0);
                rest.copy_from_slice(remote_bytes(flow, end, 0, rest.len()));
            },
        )?;
        Ok(Regions {
            source,
            landing,
            target,
            remote,
            places,
            windows,
        })
    }

    /// What the other end needs to know.
    pub(super) fn reachable(&self) -> Reachable {
        Reachable {
            target: (self.target.address(0), self.target.key()),
            remote: (self.remote.address(0), self.remote.key()),
            windows: self.windows.iter().map(Mw::first_rkey).collect(),
        }
    }

    fn all(&self) -> [&Memory; 4] {
        [&self.source, &self.landing, &self.target, &self.remote]
    }

    /// Nobody has written beside them.
    pub(super) fn guards_hold(&self) -> bool {
        self.all().iter().all(|memory| memory.guards_hold())
    }

    /// Nobody has written to what was deregistered.
    pub(super) fn are_left_alone(&self) -> bool {
        self.all().iter().all(|memory| memory.is_left_alone())
    }
}

/// Address of the nth region.
pub(super) fn address(nth: u64) -> u64 {
    nth << 28
}

/// What `source` holds.
pub(super) fn source_bytes(flow: usize, end: usize, at: usize, len: usize) -> &'static [u8] {
    bytes_of(flow, end, at, len)
}

/// The same for the part of `remote` behind its words.
pub(super) fn remote_bytes(flow: usize, end: usize, at: usize, len: usize) -> &'static [u8] {
    bytes_of(flow + 77, end, at, len)
}

/// Length of the regions that operations of a direction are placed in.
pub(super) fn region_len(direction: &Direction) -> usize {
    let largest = direction.largest();
    let windows = direction.windows.iter();
    let ends = windows.map(|window| window.range.0 as usize + largest.max(window.len() as usize));
    ends.max().unwrap_or(0).max(largest) + 512
}

/// Where operation `nth`'s bytes are in a region of that length, at the sender and at the peer.
#[inline]
pub(super) fn place_of(direction: &Direction, nth: usize, region: usize) -> usize {
    let op = &direction.ops[nth];
    let len = op.len as usize;
    match op.window().map(|window| &direction.windows[window]) {
        Some(window) if op.kind != Kind::SendInvalidate => {
            // What does not fit begins where the window does.
            let room = (window.len() as usize).max(len);
            window.range.0 as usize + place(nth, len, room)
        }
        _ => place(nth, len, region),
    }
}

/// What a word holds when these operations of a direction were executed, each once.
pub(super) fn word_after(ops: &[Op], word: usize) -> u64 {
    let ops = ops.iter().enumerate();
    let same = ops.filter(|(at, _)| at % WORDS == word);
    same.fold(0, |value: u64, (at, op)| match op.kind {
        Kind::FetchAdd => value.wrapping_add(at as u64 + 1),
        Kind::CompareSwap => at as u64 * 1000,
        _ => value,
    })
}
