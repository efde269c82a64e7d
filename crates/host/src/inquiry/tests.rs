//! A process that answers is heard to the end, and none can keep the asker.

use super::*;
use crate::peers::{Heard as Said, PeerId, Peers};
use crate::registry::tests::claim;
use rnic_skip::Folder;

/// A process of the registry, played by a thread.
struct Process {
    registry: Registry,
    neighbours: Peers,
}

impl Process {
    fn new(folder: &Folder) -> Process {
        let mut registry = Registry::open(folder.path()).unwrap();
        let first_range = claim(&mut registry);
        let neighbours = Peers::open(registry.dir(), registry.path(), first_range).unwrap();
        Process {
            registry,
            neighbours,
        }
    }

    fn first_range(&self) -> u32 {
        self.registry.own()[0]
    }

    /// Answers each question by what `answer` makes of it, so many times.
    fn answer(mut self, times: usize, answer: impl Fn(&[u8]) -> Vec<u8>) -> Process {
        let mut left = times;
        while left > 0 {
            let mut said: Vec<(PeerId, Vec<u8>)> = Vec::new();
            self.neighbours.hear(&mut |peer, heard| {
                if let Said::Message { bytes, .. } = heard {
                    said.push((peer, answer(bytes)));
                }
            });
            for (peer, bytes) in said {
                let _ = self.neighbours.say(peer, &bytes, Vec::new());
                left -= 1;
            }
            std::thread::yield_now();
        }
        self
    }
}

#[test]
fn all_are_asked_until_each_has_said_all() {
    let folder = Folder::new();
    let (a, b, own) = (
        Process::new(&folder),
        Process::new(&folder),
        Process::new(&folder),
    );
    let (first_ranges, own_first) = ([a.first_range(), b.first_range()], own.first_range());
    let registry = Registry::open(folder.path()).unwrap();
    let mut heard = Vec::new();
    std::thread::scope(|scope| {
        let next = |question: &[u8]| vec![question[0] + 1];
        let (a, b) = (
            scope.spawn(move || a.answer(3, next)),
            scope.spawn(move || b.answer(3, next)),
        );
        let silent = ask_those_of(
            &registry,
            &[10],
            &|range| range == QpnRange::of(own_first),
            &mut |who, bytes| {
                assert_eq!(who.pid, std::process::id());
                heard.push((who.first_range, bytes[0]));
                (bytes[0] < 13).then(|| bytes.to_vec())
            },
        );
        assert_eq!(silent, []);
        (a.join().unwrap(), b.join().unwrap())
    });
    for first_range in first_ranges {
        let said: Vec<u8> = heard
            .iter()
            .filter(|(first, _)| *first == first_range)
            .map(|(_, n)| *n)
            .collect();
        assert_eq!(said, [11, 12, 13]);
    }
    assert_eq!(heard.len(), 6, "the own one is not asked");
}

#[test]
fn who_says_nothing_or_never_comes_to_an_end_is_left() {
    let folder = Folder::new();
    // Takes no connection, as a process that is stopped.
    let stopped = Process::new(&folder);
    let who = Respondent {
        pid: std::process::id(),
        first_range: stopped.first_range(),
    };
    let registry = Registry::open(folder.path()).unwrap();
    let start = Instant::now();
    let nothing = &mut |_: Respondent, _: &[u8]| unreachable!("nobody answers");
    let silent = ask_those_of(&registry, &[1], &|_| false, nothing);
    assert_eq!(silent, [who]);
    assert!(start.elapsed() < LONGEST, "{:?}", start.elapsed());
    drop(stopped);

    let endless = Process::new(&folder);
    let start = Instant::now();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let stop = &stop;
    std::thread::scope(|scope| {
        let mut endless = endless;
        scope.spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let mut peers = Vec::new();
                endless.neighbours.hear(&mut |peer, _| peers.push(peer));
                for peer in peers {
                    let _ = endless.neighbours.say(peer, &[1], Vec::new());
                }
            }
        });
        let silent = ask_those_of(&registry, &[1], &|_| false, &mut |_, _| Some(vec![1]));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(silent.len(), 1);
    });
    assert!(start.elapsed() < LONGEST * 3, "{:?}", start.elapsed());
}
