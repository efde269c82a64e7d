//! What the kernel says of the ways to peers, known before a packet needs it.
//!
//! A question to the kernel takes longer than most messages, and may wait for a process that
//! changes the tables. So a way is asked for when a path is made. From then on a socket tells that
//! routes, neighbours or interfaces have changed, and the thread that looks after that
//! ([`Ways::tend`]) asks anew, beside the packets. It also tells the kernel now and then that the
//! neighbour is wanted, as it sees none of the packets that leave past its stack: it would take the
//! neighbour for unused, and never ask whether it is still there.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::netlink::next_hop::{self, Changes, Neighbour, NextHop};
use rnic_sys::RouteEvents;

/// How often all that is in use is asked for anew, whatever was told: Linux itself waits as long
/// until it asks whether a neighbour is still there (arp(7), delay_first_probe_time).
const TEND_NS: u64 = 5_000_000_000;
/// After so many times without use a way is forgotten.
const UNUSED: u32 = 12;
/// How many are remembered at most.
const MOST: usize = 1 << 16;

/// An address of this host, and a peer's.
pub(super) type Ends = (IpAddr, IpAddr);

/// What the kernel says of the way to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    /// Which of our interfaces.
    pub(super) interface: Option<usize>,
    /// The neighbour's Ethernet address, if it is known.
    pub(super) mac: Option<[u8; 6]>,
}

/// An answer of the kernel's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Answer {
    way: Way,
    /// The neighbour, whichever interface it is at.
    hop: Option<NextHop>,
    /// Nobody asks whether it is still there.
    lasting: bool,
}

#[derive(Debug)]
struct Known {
    answer: Answer,
    /// Times that it was tended since packets went there.
    unused: u32,
}

/// The ways that are in use, shared by the link and the thread that looks after them.
#[derive(Debug)]
pub struct Ways {
    /// Our interfaces' numbers.
    interfaces: Vec<u32>,
    events: RouteEvents,
    known: Mutex<HashMap<Ends, Known>>,
    /// How often an answer was another one than before.
    changes: AtomicU64,
    /// When all are to be asked for anew.
    tend_at: AtomicU64,
}

impl Ways {
    pub(super) fn open(interfaces: Vec<u32>) -> io::Result<Ways> {
        Ok(Ways {
            interfaces,
            events: RouteEvents::open(&next_hop::GROUPS)?,
            known: Mutex::default(),
            changes: AtomicU64::new(0),
            tend_at: AtomicU64::new(0),
        })
    }

    /// Grows when what was said of any way does not hold any more.
    #[inline]
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The way to a peer that packets go to. The kernel is asked if it was not before, or did not
    /// know the neighbour.
    pub(super) fn of(&self, ends: Ends) -> Way {
        self.of_by(ends, ask)
    }

    fn of_by(&self, ends: Ends, ask: impl FnOnce(Ends, &[u32]) -> Answer) -> Way {
        if let Some(known) = self.lock().get_mut(&ends) {
            known.unused = 0;
            let Way { interface, mac } = known.answer.way;
            if interface.is_none() || mac.is_some() {
                return known.answer.way;
            }
        }
        let answer = ask(ends, &self.interfaces);
        let mut known = self.lock();
        if known.len() < MOST || known.contains_key(&ends) {
            known.insert(ends, Known { answer, unused: 0 });
        }
        answer.way
    }

    /// There will be packets to a peer: has the kernel look for the neighbour.
    pub(super) fn look_for(&self, ends: Ends) {
        self.of_by(ends, |ends, interfaces| {
            let answer = ask(ends, interfaces);
            if answer.way.interface.is_some() && !answer.lasting {
                want(&answer);
            }
            answer
        });
    }

    /// Readable when the kernel's tables have changed.
    pub fn raw_fd(&self) -> RawFd {
        self.events.raw_fd()
    }

    /// Asks for what has changed, if [something has](Ways::raw_fd), and for all that is in use if
    /// it is time. Gives when to call it again even though nothing was told. One thread at a time.
    pub fn tend(&self, now: u64, told: bool) -> u64 {
        if told {
            let changes = Changes::take(&self.events);
            self.follow(|hop| changes.concern(hop), ask);
        }
        if now >= self.tend_at.load(Ordering::Relaxed) {
            self.tend_at
                .store(now.saturating_add(TEND_NS), Ordering::Relaxed);
            self.refresh(ask, want);
        }
        self.tend_at.load(Ordering::Relaxed)
    }

    /// Asks for the ways that a change concerns, by their next hops.
    fn follow(
        &self,
        concerns: impl Fn(Option<&NextHop>) -> bool,
        ask: impl Fn(Ends, &[u32]) -> Answer,
    ) {
        let concerned = |(_, known): &(&Ends, &Known)| concerns(known.answer.hop.as_ref());
        let all: Vec<Ends> = self
            .lock()
            .iter()
            .filter(concerned)
            .map(|(ends, _)| *ends)
            .collect();
        for ends in all {
            self.ask_anew(ends, &ask);
        }
    }

    /// Asks for all ways in use, tells the kernel that they are, and forgets those that are not.
    fn refresh(&self, ask: impl Fn(Ends, &[u32]) -> Answer, want: impl Fn(&Answer)) {
        let mut used = Vec::new();
        self.lock().retain(|ends, known| {
            if known.unused == 0 {
                used.push(*ends);
            }
            known.unused += 1;
            known.unused <= UNUSED
        });
        for ends in used {
            let answer = self.ask_anew(ends, &ask);
            if answer.way.mac.is_some() && !answer.lasting {
                want(&answer);
            }
        }
    }

    fn ask_anew(&self, ends: Ends, ask: impl Fn(Ends, &[u32]) -> Answer) -> Answer {
        let answer = ask(ends, &self.interfaces);
        // What the link asks for meanwhile is the same, or what told of the change is there to be
        // taken.
        if let Some(known) = self.lock().get_mut(&ends)
            && known.answer != answer
        {
            known.answer = answer;
            self.changes.fetch_add(1, Ordering::Release);
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ends, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cold]
fn ask((src, dst): Ends, interfaces: &[u32]) -> Answer {
    let Some(hop) = next_hop::next_hop_from(src, dst) else {
        return Answer::default();
    };
    let interface = interfaces.iter().position(|&i| i == hop.ifindex());
    let (mac, lasting) = match interface.map(|_| next_hop::neighbour(&hop)) {
        Some(Neighbour::Known { mac, lasting }) => (mac, lasting),
        _ => (None, false),
    };
    Answer {
        way: Way { interface, mac },
        hop: Some(hop),
        lasting,
    }
}

/// If it may not be said, so be it: packets that the kernel sends keep a neighbour known as well,
/// and the first one finds it.
fn want(answer: &Answer) {
    if let Some(hop) = &answer.hop {
        let _ = next_hop::want(hop);
    }
}

#[cfg(test)]
mod tests {
    //! What is said of a way holds until something else is told, and is asked for by no packet
    //! then.

    use std::cell::RefCell;

    use super::*;

    const INTERFACE: u32 = 7;

    fn ends(n: u8) -> Ends {
        (IpAddr::from([10, 77, 0, 1]), IpAddr::from([10, 77, 0, n]))
    }

    fn mac(n: u8) -> [u8; 6] {
        [2, 0, 0, 0, 0, n]
    }

    /// Of a neighbour that is known, or sought.
    fn answer(n: u8, mac: Option<[u8; 6]>) -> Answer {
        Answer {
            way: Way {
                interface: Some(0),
                mac,
            },
            hop: Some(NextHop::new(ends(n).1, INTERFACE)),
            lasting: false,
        }
    }

    fn ways() -> Ways {
        Ways::open(vec![INTERFACE]).expect("rtnetlink")
    }

    fn nobody(ends: Ends, _: &[u32]) -> Answer {
        panic!("{ends:?} asked for")
    }

    #[test]
    fn who_is_known_is_asked_for_once() {
        let ways = ways();
        let sought = answer(2, None);
        let known = answer(2, Some(mac(2)));
        assert_eq!(ways.of_by(ends(2), |_, _| sought), sought.way);
        // It is being looked for.
        assert_eq!(ways.of_by(ends(2), |_, _| known), known.way);
        assert_eq!(ways.of_by(ends(2), nobody), known.way);
        // Over none of our interfaces, or over none at all: that changes by being told, too.
        let elsewhere = Answer::default();
        assert_eq!(ways.of_by(ends(3), |_, _| elsewhere), elsewhere.way);
        assert_eq!(ways.of_by(ends(3), nobody), elsewhere.way);
    }

    #[test]
    fn a_change_is_seen_by_whom_it_concerns() {
        let ways = ways();
        for n in [2, 3] {
            ways.of_by(ends(n), |_, _| answer(n, Some(mac(n))));
        }
        let before = ways.changes();
        let concerned = answer(3, None).hop;
        let asked = RefCell::new(Vec::new());
        let moved = |ends: Ends, _: &[u32]| {
            asked.borrow_mut().push(ends);
            answer(3, Some(mac(9)))
        };
        ways.follow(|hop| hop == concerned.as_ref(), moved);
        assert_eq!(asked.take(), [ends(3)]);
        assert_eq!(ways.changes(), before + 1);
        assert_eq!(ways.of_by(ends(3), nobody).mac, Some(mac(9)));
        assert_eq!(ways.of_by(ends(2), nobody).mac, Some(mac(2)));
        // Said once more: nothing has changed.
        ways.follow(|hop| hop == concerned.as_ref(), moved);
        assert_eq!(ways.changes(), before + 1);
        // It is gone.
        ways.follow(|hop| hop == concerned.as_ref(), |_, _| answer(3, None));
        assert_eq!(ways.changes(), before + 2);
        let anew = ways.of_by(ends(3), |_, _| answer(3, Some(mac(8))));
        assert_eq!(anew.mac, Some(mac(8)));
    }

    /// Or the kernel would ask for ever whether a host is there that nobody sends to.
    #[test]
    fn only_who_is_in_use_is_wanted() {
        let ways = ways();
        let lasting = Answer {
            lasting: true,
            ..answer(4, Some(mac(4)))
        };
        ways.of_by(ends(2), |_, _| answer(2, Some(mac(2))));
        ways.of_by(ends(3), |_, _| answer(3, None));
        ways.of_by(ends(4), |_, _| lasting);
        let wanted = RefCell::new(Vec::new());
        let refresh = || {
            let ask = |(_, dst): Ends, _: &[u32]| match dst {
                dst if dst == ends(2).1 => answer(2, Some(mac(2))),
                dst if dst == ends(3).1 => answer(3, None),
                _ => lasting,
            };
            ways.refresh(ask, |answer| wanted.borrow_mut().push(answer.hop));
            wanted.take()
        };
        let two = answer(2, None).hop;
        assert_eq!(
            refresh(),
            [two],
            "one is sought already, one was set by hand"
        );
        assert_eq!(refresh(), []);
        // Packets go there again.
        ways.of_by(ends(2), nobody);
        assert_eq!(refresh(), [two]);
        for _ in 0..UNUSED {
            assert_eq!(refresh(), []);
        }
        assert!(ways.lock().is_empty(), "forgotten");
    }

    /// However many peers there are, or were.
    #[test]
    fn what_is_remembered_is_limited() {
        let ways = ways();
        let peer = |n: usize| {
            let [_, a, b, c] = (n as u32).to_be_bytes();
            (ends(1).0, IpAddr::from([10, a, b, c]))
        };
        for n in 0..=MOST {
            ways.of_by(peer(n), |_, _| answer(2, Some(mac(2))));
        }
        assert_eq!(ways.lock().len(), MOST);
        let asked = ways.of_by(peer(MOST), |_, _| answer(2, Some(mac(3))));
        assert_eq!(asked.mac, Some(mac(3)));
    }
}
