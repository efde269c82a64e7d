//! What is tried.

mod connected;
mod ours;
mod perftest;
mod pingpong;

use crate::lab::{End, Family, Lab, Way};

/// One thing to try, in some ways round.
pub struct Case {
    /// As in the table.
    pub name: String,
    /// Where the whole matrix tries it.
    pub ways: Vec<Way>,
    /// Where the core subset does.
    pub core: Vec<Way>,
    /// Tries it.
    pub run: Box<Trial>,
}

/// Tries something one way round; a panic is the failure.
type Trial = dyn Fn(&Lab, Way);

impl Case {
    /// In all ways; not in the core subset.
    fn new(name: impl Into<String>, run: impl Fn(&Lab, Way) + 'static) -> Case {
        Case {
            name: name.into(),
            ways: EVERY_WAY.to_vec(),
            core: Vec::new(),
            run: Box::new(run),
        }
    }

    /// Only in these ways.
    fn only(mut self, ways: &[Way]) -> Case {
        self.ways = ways.to_vec();
        self
    }

    /// On a link that has a rate.
    fn paced(mut self) -> Case {
        let run = self.run;
        self.run = Box::new(move |lab, way| {
            lab.pace();
            run(lab, way);
        });
        self
    }

    /// In the core subset in these ways.
    fn core(mut self, ways: &[Way]) -> Case {
        self.core = ways.to_vec();
        self
    }
}

/// Bad networks, in the words of tc-netem(8).
const LOSSY: &[&str] = &["limit", "10000", "loss", "1%"];
const REORDERING: &[&str] = &["limit", "10000", "delay", "2ms", "reorder", "75%", "50%"];
const DOUBLING: &[&str] = &["limit", "10000", "duplicate", "5%"];

const fn way(client: End, family: Family) -> Way {
    Way { client, family }
}

/// Both directions, both families.
const EVERY_WAY: [Way; 4] = [
    way(End::Rnic, Family::V4),
    way(End::Linux, Family::V4),
    way(End::Rnic, Family::V6),
    way(End::Linux, Family::V6),
];

/// Both directions and both families, but not every combination: enough for the core subset.
const DIAGONAL: [Way; 2] = [way(End::Rnic, Family::V4), way(End::Linux, Family::V6)];

/// The other two.
const OTHER_DIAGONAL: [Way; 2] = [way(End::Rnic, Family::V6), way(End::Linux, Family::V4)];

/// All cases, in the table's order.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    perftest::add(&mut cases);
    pingpong::add(&mut cases);
    connected::add(&mut cases);
    ours::add(&mut cases);
    cases
}
