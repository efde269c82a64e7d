//! What happens on each queue pair: both sides compute it from the seed.

use serde::{Deserialize, Serialize};

use super::{GUARD, Task, WINDOW};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Send,
    SendImm,
    /// A WRITE, followed by a SEND that tells of it.
    Write,
    WriteImm,
    Read,
    FetchAdd,
    CompareSwap,
}

impl Kind {
    /// The server takes no part.
    pub fn is_silent(self) -> bool {
        matches!(self, Kind::Read | Kind::FetchAdd | Kind::CompareSwap)
    }

    pub fn is_write(self) -> bool {
        matches!(self, Kind::Write | Kind::WriteImm)
    }
}

/// Most bytes by which a write is shifted within its slot.
pub const MAX_SHIFT: usize = 64;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub kind: Kind,
    /// Bytes.
    pub len: usize,
    /// WRITE: where in the server's region of the queue pair. READ: where in its readable region.
    pub offset: usize,
    /// Of the data, where the client makes it.
    pub seed: u64,
    /// Added by a fetch-and-add; new value of a compare-and-swap.
    pub value: u64,
    /// A compare-and-swap that is meant to fail.
    pub miss: bool,
}

/// Random numbers of one step.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Operation `index` of queue pair `qp`.
pub fn step(task: &Task, qp: usize, index: u64) -> Step {
    let start = task.seed ^ (qp as u64) << 48 ^ index.wrapping_mul(0xd129_0f23_4e1f_8a6b);
    let mut random = Random(start);
    let kind = task.kinds[random.below(task.kinds.len())];
    let max = task.max_size as usize;
    // Small ones are as likely as large ones, empty and full ones come up now and then.
    let len = match random.below(16) {
        0 => 0,
        1 => max,
        _ => {
            let bits = usize::BITS - max.leading_zeros();
            let bits = random.below(bits as usize + 1);
            random.below(1 << bits).min(max)
        }
    };
    let offset = match kind {
        Kind::Read => random.below(task.readable() - len + 1),
        _ => (index as usize % WINDOW) * task.slot() + GUARD + random.below(MAX_SHIFT + 1),
    };
    Step {
        kind,
        len,
        offset,
        seed: random.next(),
        value: random.next(),
        miss: random.below(2) == 0,
    }
}

/// Seed of the data that the server lets the client read.
pub fn readable_seed(task: &Task, qp: usize) -> u64 {
    task.seed.rotate_left(17) ^ qp as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(max_size: u32) -> Task {
        Task {
            qps: 2,
            max_size,
            seed: 3,
            kinds: vec![Kind::Send, Kind::Write, Kind::Read],
            timeout: 14,
            mtu: None,
        }
    }

    #[test]
    fn every_step_stays_in_its_slot() {
        for max in [1, 100, 65536] {
            let task = task(max);
            let mut lengths = std::collections::BTreeSet::new();
            for index in 0..2000 {
                let step = step(&task, 1, index);
                assert_eq!(step, super::step(&task, 1, index), "the same on both sides");
                lengths.insert(step.len);
                let slot = (index as usize % WINDOW) * task.slot();
                match step.kind {
                    Kind::Read => assert!(step.offset + step.len <= task.readable()),
                    _ => {
                        assert!(step.offset >= slot + GUARD);
                        assert!(step.offset + step.len + GUARD <= slot + task.slot());
                    }
                }
            }
            assert!(lengths.contains(&0) && lengths.contains(&(max as usize)));
        }
        assert_ne!(step(&task(100), 0, 5), step(&task(100), 1, 5));
    }
}
