//! The same packet, captured more than once: at two interfaces, or by its sender and its receiver.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::capture::Frame;
use crate::frame::Outer;

/// Where a frame was captured: the interface of the file, its index on the host, whether it had
/// sent it.
type Tap = (u32, Option<u32>, Option<bool>);

/// A copy of a packet at a second interface follows within this time.
const COPY_NS: u64 = 10_000_000;
/// What one end sent arrives at the other within this time, if at all. It may have been held up.
const ARRIVES_NS: u64 = 1_000_000_000;
/// Packets that are looked at for copies, and the most places at which one is expected.
const RECENT: usize = 8192;
const TAPS: usize = 16;

/// A packet that was seen a moment ago, and where.
struct Recent {
    time: u64,
    taps: Vec<Tap>,
}

/// The packets of the last moment, by what is in them.
#[derive(Default)]
pub(super) struct Copies {
    recent: HashMap<u64, VecDeque<Recent>>,
    /// In the order in which they came.
    order: VecDeque<u64>,
}

impl Copies {
    /// The same bytes at another interface, or in the other direction, a moment ago. What shows a
    /// packet a second time at the same place is no copy: it was sent again, or the network doubled
    /// it.
    pub fn is_one(&mut self, frame: &Frame<'_>, outer: &Outer, bytes: &[u8]) -> bool {
        let mut hasher = DefaultHasher::new();
        (outer.flow, outer.ip_id, bytes).hash(&mut hasher);
        let hash = hasher.finish();
        let tap = (frame.interface, outer.ifindex, outer.outgoing);
        let time = frame.time_ns;
        let alike = self.recent.entry(hash).or_default();
        let original = alike.iter_mut().find(|known| {
            let apart = time.abs_diff(known.time);
            apart < patience(tap, &known.taps)
                && known.taps.len() < TAPS
                && !known.taps.contains(&tap)
        });
        if let Some(original) = original {
            original.taps.push(tap);
            return true;
        }
        alike.push_back(Recent {
            time,
            taps: vec![tap],
        });
        self.order.push_back(hash);
        if self.order.len() > RECENT
            && let Some(oldest) = self.order.pop_front()
            && let Some(alike) = self.recent.get_mut(&oldest)
        {
            alike.pop_front();
            if alike.is_empty() {
                self.recent.remove(&oldest);
            }
        }
        false
    }
}

/// How long after a packet its copy may come: by the two ends of the same way, much later.
fn patience(tap: Tap, taps: &[Tap]) -> u64 {
    let of_two_ends = |other: &Tap| match (tap.2, other.2) {
        (Some(one), Some(other)) => one != other,
        _ => false,
    };
    match taps.iter().any(of_two_ends) {
        true => ARRIVES_NS,
        false => COPY_NS,
    }
}
