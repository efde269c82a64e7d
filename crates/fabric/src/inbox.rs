//! The buffers of receives, and which of them are posted.

use rnic_nic::{Access, Error, Pd, Qp, QpState, RecvWqe, SgList};

use crate::memory::Memory;

/// Receives have wr_ids from here on.
pub(crate) const RECEIVE: u64 = 1 << 32;
/// What a buffer holds before its message comes.
const EMPTY: u8 = 0xee;
/// Bytes behind a message that are looked at when it comes; at the end all are.
const BEHIND: usize = 64;

/// How many receives, and how they are posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InboxSpec {
    /// Bytes of each.
    pub(crate) room: usize,
    /// That are posted at most.
    pub(crate) count: usize,
    /// Each is posted again so long after its completion, at most, ns.
    pub(crate) late: u64,
    /// Decides when.
    pub(crate) seed: u64,
    /// No receive serves UC. A message of UC that ends in the middle leaves bytes in its receive,
    /// and that to the next message.
    pub(crate) is_exact: bool,
}

/// Receives of one queue. A slot is a buffer: it is free, or posted.
pub(crate) struct Inbox {
    memory: Memory,
    room: usize,
    late: u64,
    is_exact: bool,
    /// Slots that may be posted again from a time on, and which of them are posted.
    free: Vec<(u64, usize)>,
    is_posted: Vec<bool>,
    /// Bytes of each that its last message has left.
    dirty: Vec<usize>,
    rng: fastrand::Rng,
}

impl Inbox {
    /// All of its slots are free. The memory is registered at the address `iova`.
    pub(crate) fn new(pd: &Pd, iova: u64, spec: InboxSpec) -> Result<Inbox, Error> {
        let InboxSpec {
            room,
            count,
            late,
            is_exact,
            ..
        } = spec;
        // A region has a byte at least.
        let len = (room * count).max(1);
        let memory = Memory::new(pd, (iova, len), Access::LOCAL_WRITE, |bytes| {
            bytes.fill(EMPTY);
        })?;
        Ok(Inbox {
            memory,
            room,
            late,
            is_exact,
            free: (0..count).map(|slot| (0, slot)).collect(),
            is_posted: vec![false; count],
            dirty: vec![0; count],
            rng: fastrand::Rng::with_seed(spec.seed),
        })
    }

    /// Bytes of a receive.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Posts those whose time has come to a queue pair, unless that is in ERR. Gives when more are
    /// due.
    #[inline]
    pub(crate) fn post_to(&mut self, qp: &Qp, now: u64) -> Result<Option<u64>, String> {
        if self.free.is_empty() || qp.state() == QpState::Err {
            return Ok(None);
        }
        self.post(now, |wqes| qp.post_recv(&mut wqes.into_iter()))?;
        Ok(self.next())
    }

    /// Gives `post` the receives whose time has come, if there are any.
    pub(crate) fn post(
        &mut self,
        now: u64,
        post: impl FnOnce(Vec<rnic_nic::Result<RecvWqe>>) -> Result<(), (usize, Error)>,
    ) -> Result<(), String> {
        if self.free.is_empty() {
            return Ok(());
        }
        let Inbox {
            memory,
            room,
            free,
            is_posted,
            dirty,
            ..
        } = self;
        let ready = free.extract_if(.., |(at, _)| *at <= now);
        let wqes: Vec<_> = ready
            .map(|(_, slot)| {
                is_posted[slot] = true;
                memory.fill(slot * *room, std::mem::take(&mut dirty[slot]), EMPTY);
                Ok(RecvWqe {
                    wr_id: RECEIVE + slot as u64,
                    sges: SgList::from_slice(&[memory.sge(slot * *room, *room)]),
                })
            })
            .collect();
        if wqes.is_empty() {
            return Ok(());
        }
        post(wqes).map_err(|(_, why)| format!("a receive is refused: {why}"))
    }

    /// When the next slot may be posted.
    pub(crate) fn next(&self) -> Option<u64> {
        self.free.iter().map(|(at, _)| *at).min()
    }

    /// A receive has completed; gives its slot.
    #[inline]
    pub(crate) fn completed(&mut self, now: u64, wr_id: u64) -> Result<usize, String> {
        let slot = (wr_id - RECEIVE) as usize;
        if self.is_posted.get(slot) != Some(&true) {
            return Err(format!("receive {slot} completes, and is not posted"));
        }
        self.is_posted[slot] = false;
        let again = match self.late {
            0 => now,
            late => now + self.rng.u64(..=late),
        };
        self.free.push((again, slot));
        Ok(slot)
    }

    /// A slot has these bytes from `at` on.
    pub(crate) fn has(&self, slot: usize, at: usize, wanted: &[u8]) -> bool {
        let begin = slot * self.room + at;
        self.memory.differs(begin, wanted).is_none()
    }

    /// The first bytes of a slot.
    pub(crate) fn front<const N: usize>(&self, slot: usize) -> Option<[u8; N]> {
        let begin = slot * self.room;
        let len = N.min(self.room);
        self.memory.with(begin, len, |bytes| bytes.try_into().ok())
    }

    /// A slot has nothing right behind its first `len` bytes.
    pub(crate) fn is_empty_behind(&self, slot: usize, len: usize) -> bool {
        !self.is_exact || self.is_empty(slot * self.room + len, BEHIND.min(self.room - len))
    }

    /// A message in a slot has that length.
    pub(crate) fn came(&mut self, slot: usize, len: usize) {
        self.dirty[slot] = len;
    }

    fn is_empty(&self, at: usize, len: usize) -> bool {
        self.memory.with(at, len, |bytes| {
            let (chunks, rest) = bytes.as_chunks::<64>();
            chunks.iter().all(|chunk| *chunk == [EMPTY; 64]) && rest.iter().all(|b| *b == EMPTY)
        })
    }

    /// No byte of a receive has changed that belongs to no message.
    pub(crate) fn rest_is_empty(&self) -> bool {
        let mut slots = self.dirty.iter().enumerate();
        !self.is_exact
            || slots.all(|(slot, dirty)| self.is_empty(slot * self.room + dirty, self.room - dirty))
    }

    /// Nobody has written beside it.
    pub(crate) fn guards_hold(&self) -> bool {
        self.memory.guards_hold()
    }
}
