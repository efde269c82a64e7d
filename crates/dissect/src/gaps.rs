//! PSNs of one send queue that were not seen. Whatever the capture, a packet costs no more than a
//! look into a sorted map.

use std::collections::BTreeMap;

use rnic_wire::Psn;

/// So many are remembered; packets that fill others count as sent again.
const GAPS: usize = 4096;
/// Where the count of PSNs begins: far from both ends.
const BEGIN: u64 = 1 << 40;

/// PSNs that were left out at once, and what is said of them when it is clear why.
#[derive(Clone, Debug)]
pub(crate) struct Gap {
    pub from: Psn,
    pub count: u32,
    /// How many are still missing.
    left: u32,
    /// The packet that showed it, and when.
    pub number: u64,
    pub time: u64,
    /// Request packets of the side before it.
    pub position: u64,
    pub told: bool,
}

/// PSNs go round; here they are counted on.
type Count = u64;

#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps {
    /// By their first PSN.
    all: BTreeMap<Count, Gap>,
    /// What is left of them, by its first PSN: how many, and of which gap.
    pieces: BTreeMap<Count, (u32, Count)>,
    /// The newest PSN that was seen in order.
    newest: Option<(Psn, Count)>,
    /// Pieces that were looked at.
    #[cfg(test)]
    pub steps: u64,
}

impl Gaps {
    /// A new life of the queue pair.
    pub fn clear(&mut self) {
        self.all.clear();
        self.pieces.clear();
        self.newest = None;
    }

    fn count(&self, psn: Psn) -> Count {
        self.newest.map_or(BEGIN, |(newest, count)| {
            count.wrapping_add_signed(psn.distance_from(newest).into())
        })
    }

    /// A packet beyond all others, `missing` PSNs beyond the one that was due.
    pub fn advance(&mut self, psn: Psn, missing: u32, number: u64, time: u64, position: u64) {
        let count = self.count(psn);
        if self.newest.is_some_and(|(_, newest)| count < newest) {
            // Half way round in one step: what was before says nothing any more.
            self.all.clear();
            self.pieces.clear();
        }
        self.newest = Some((psn, count));
        if missing == 0 || self.all.len() >= GAPS {
            return;
        }
        let first = count - u64::from(missing);
        let gap = Gap {
            from: psn.sub(missing),
            count: missing,
            left: missing,
            number,
            time,
            position,
            told: false,
        };
        self.all.insert(first, gap);
        self.pieces.insert(first, (missing, first));
    }

    /// The piece that `psn` is in: its first PSN, length, and gap.
    fn piece(&mut self, psn: Psn) -> Option<(Count, u32, Count)> {
        let count = self.count(psn);
        #[cfg(test)]
        {
            self.steps += 1;
        }
        let (&first, &(len, gap)) = self.pieces.range(..=count).next_back()?;
        (count - first < u64::from(len)).then_some((first, len, gap))
    }

    /// Whether `psn` is missing.
    #[cfg(test)]
    fn lacks(&mut self, psn: Psn) -> bool {
        self.piece(psn).is_some()
    }

    /// `psn` has come: the gap that it was missing in, as it was before.
    pub fn fill(&mut self, psn: Psn) -> Option<Gap> {
        let (first, len, id) = self.piece(psn)?;
        let at = (self.count(psn) - first) as u32;
        self.pieces.remove(&first);
        if at > 0 {
            self.pieces.insert(first, (at, id));
        }
        if at + 1 < len {
            let rest = first + u64::from(at) + 1;
            self.pieces.insert(rest, (len - at - 1, id));
        }
        let gap = self.all.get_mut(&id)?;
        let before = gap.clone();
        gap.told = true;
        gap.left -= 1;
        if gap.left == 0 {
            self.all.remove(&id);
        }
        Some(before)
    }

    /// How many of the `count` PSNs from `from` on are missing; of more than a thousand pieces the
    /// first ones count.
    pub fn between(&self, from: Psn, count: u32) -> u32 {
        let begin = self.count(from);
        let end = begin + u64::from(count);
        let before = self.pieces.range(..begin).next_back();
        let within = self.pieces.range(begin..end).take(1024);
        let missing = before.into_iter().chain(within).map(|(&at, &(len, _))| {
            let last = (at + u64::from(len)).min(end);
            last.saturating_sub(at.max(begin))
        });
        missing.sum::<u64>() as u32
    }

    /// At the end: those of which nothing has been said.
    pub fn untold(&mut self) -> impl Iterator<Item = Gap> + use<> {
        self.pieces.clear();
        let all = std::mem::take(&mut self.all);
        all.into_values().filter(|gap| !gap.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psn(n: u32) -> Psn {
        Psn::new(n & 0xff_ffff)
    }

    /// Every other PSN of gaps that are as many and as long as they can be comes, from behind: no
    /// packet looks at more than one piece each time it asks.
    #[test]
    fn thousands_of_gaps_cost_a_look_each() {
        const LONG: u32 = 100;
        let mut gaps = Gaps::default();
        let start = 0xff_0000;
        gaps.advance(psn(start), 0, 0, 0, 0);
        for n in 1..=GAPS as u32 {
            gaps.advance(psn(start + n * (LONG + 1)), LONG, n.into(), 0, 0);
        }
        gaps.steps = 0;
        let mut fills = 0;
        for n in (1..=GAPS as u32).rev() {
            for at in (0..LONG).step_by(2).chain((1..LONG).step_by(2)) {
                let missing = psn(start + (n - 1) * (LONG + 1) + 1 + at);
                let gap = gaps.fill(missing).expect("missing");
                assert_eq!((gap.number, gap.told), (n.into(), at > 0));
                assert!(!gaps.lacks(missing));
                fills += 1;
            }
        }
        assert_eq!(gaps.steps, 2 * fills);
        assert!(gaps.all.is_empty() && gaps.pieces.is_empty());
    }

    #[test]
    fn one_gap_in_pieces() {
        let mut gaps = Gaps::default();
        gaps.advance(psn(10), 0, 1, 0, 0);
        gaps.advance(psn(15), 4, 2, 0, 0);
        assert!(!gaps.lacks(psn(10)) && gaps.lacks(psn(11)) && gaps.lacks(psn(14)));
        assert!(!gaps.lacks(psn(15)));
        assert!(!gaps.fill(psn(12)).expect("missing").told);
        assert!(gaps.fill(psn(12)).is_none());
        assert_eq!(
            [
                gaps.between(psn(10), 5),
                gaps.between(psn(12), 2),
                gaps.between(psn(14), 9)
            ],
            [3, 1, 1]
        );
        assert!(gaps.lacks(psn(11)) && gaps.lacks(psn(13)));
        assert_eq!(gaps.clone().untold().count(), 0);
        for n in [14, 11, 13] {
            assert!(gaps.fill(psn(n)).expect("missing").told);
        }
        assert!(gaps.all.is_empty() && gaps.pieces.is_empty());
    }

    /// Half of all PSNs in one step, as a READ may take: nothing that was missing before is found
    /// where it is not.
    #[test]
    fn a_step_too_long_to_tell_forgets() {
        let mut gaps = Gaps::default();
        gaps.advance(psn(0), 0, 1, 0, 0);
        gaps.advance(psn(5), 4, 2, 0, 0);
        gaps.advance(psn(5 + (1 << 23)), 2, 3, 0, 0);
        gaps.advance(psn(9), 2, 4, 0, 0);
        assert!(gaps.lacks(psn(8)) && !gaps.lacks(psn(9)));
        assert_eq!(gaps.all.len(), gaps.pieces.len());
    }
}
