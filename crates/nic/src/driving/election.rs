//! Who drives the engine: the application, which polls, or a thread of it that waits for an event,
//! or the background thread.
//!
//! [`action`] is the table: for each state of the background thread, each driver beside it and each
//! event it says what the thread does. The loop in `background` sees what happened, asks the table,
//! and does that. The other drivers need no table. A thread that polls drives whatever happens. One
//! that waits for an event drives unless another one that waits does already (`waiters`). It sleeps
//! as `event_wait` says.
//!
//! While the application polls, a thread that a packet woke only finds it gone. So does one that
//! the application rang for, because it left something in the engine, when the application is back
//! first: where queue pairs of one process talk to each other nothing ever arrives from outside,
//! and it rang 12,000 times a second. So the background thread counts what its wake-ups were worth
//! ([`Worth`]), and leaves the engine to the application when they are worth nothing.

use crate::adapt::Backoff;
use rnic_settings::ablation::{self, Policy};

/// Undisturbed watching after which all lateness is forgotten, ns.
const FORGET_NS: u64 = 50_000_000;
/// Ticks in which nothing happens after which the thread does not watch over one that waits for an
/// event any more.
const QUIET: u32 = 50;
/// Ticks that such a thread leaves packets for before it is not waited for: they woke it, and it is
/// on its way as a rule.
const ON_ITS_WAY: u32 = 4;

/// What the background thread knows of who drives.
#[derive(Debug)]
pub(super) struct Election {
    polling: Polling,
    worth: Worth,
    /// Since when it watches undisturbed.
    calm_since: u64,
    /// Ticks in which nobody polled.
    quiet: u32,
    left: Left,
}

/// Who drives the engine beside the background thread, as that one sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// No thread of the application calls.
    Nobody,
    /// A thread that polls, or has the engine for another reason.
    Application,
    /// A thread that waits for an event, and takes packets in meanwhile.
    Waiter,
    /// The same, and for some fifty ticks nothing has come.
    IdleWaiter,
}

/// What the background thread finds when it wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Watching: a tick is over, and nothing waits.
    Tick,
    /// Watching: a tick is over, and packets wait for longer than whoever drives needs.
    PacketsLeft,
    /// Watching: the application asked for the thread by its bell.
    Asked,
    /// Armed: packets woke it, and it has taken some in.
    Packets,
    /// Armed: packets woke it, but were gone.
    PacketsGone,
    /// Armed: the application rang. It has polled since, so that it has done itself what it rang
    /// for.
    RangInVain,
    /// Armed: something else woke it, and it has taken packets in beside.
    PacketsBeside,
    /// Armed: a timer, a message of another process, or the bell.
    Otherwise,
}

/// What the background thread does then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// It leaves the engine to whoever drives, and looks again after a tick. What nobody else looks
    /// at it does itself.
    Watch,
    /// It takes the engine back: from now on packets wake it. `late`: if packets are there, it
    /// should have done so before.
    TakeBack { late: bool },
    /// It looks for more packets before it sleeps, as long as that pays (`halt_poll`).
    HaltPoll(Value),
    /// It sleeps. Behind a stream it waits awake for the rest of it first.
    Sleep(Value),
}

/// What a wake-up was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Nobody else would have taken these packets in.
    Useful,
    /// Whoever drives would have found them at its next look.
    Needless,
    /// The bell rang for nothing.
    InVain,
    /// It says nothing about who drives.
    None,
}

/// The table: what the background thread does for each driver and event.
pub(super) const fn action(driver: Driver, event: Event) -> Action {
    use {Driver::*, Event::*};
    match (driver, event) {
        // Watching.
        (Application | Waiter, Tick) => Action::Watch,
        (Nobody, Tick | PacketsLeft) | (Application, PacketsLeft) => {
            Action::TakeBack { late: true }
        }
        // One that packets wake was kept from its core, and would have been by this thread as well.
        (Waiter, PacketsLeft) | (IdleWaiter, Tick | PacketsLeft) => {
            Action::TakeBack { late: false }
        }
        (_, Asked) => Action::TakeBack { late: false },
        // Armed.
        (Nobody, Packets) => Action::HaltPoll(Value::Useful),
        (Nobody, PacketsBeside) => Action::HaltPoll(Value::None),
        (_, Packets | PacketsGone) => Action::Sleep(Value::Needless),
        (_, RangInVain) => Action::Sleep(Value::InVain),
        (_, PacketsBeside | Otherwise) => Action::Sleep(Value::None),
    }
}

impl Election {
    /// `polls`: the count so far.
    pub(super) fn new(polls: u64) -> Election {
        Election {
            polling: Polling::new(polls),
            worth: Worth::new(),
            calm_since: 0,
            quiet: 0,
            left: Left::default(),
        }
    }

    /// Whether the application has polled since the last call; `polls`: the count so far.
    pub(super) fn polled(&mut self, polls: u64) -> bool {
        self.polling.seen(polls)
    }

    /// Who drives, after a tick of watching. `waits`: a thread that waits for an event does.
    pub(super) fn driver(&mut self, polled: bool, waits: bool) -> Driver {
        self.quiet = if polled { 0 } else { self.quiet + 1 };
        match (waits, polled || self.quiet < QUIET) {
            (true, true) => Driver::Waiter,
            (true, false) => Driver::IdleWaiter,
            (false, _) if polled => Driver::Application,
            (false, _) => Driver::Nobody,
        }
    }

    /// Packets wait for a thread that they woke, with so many polls so far: it has not come for too
    /// long.
    pub(super) fn is_overdue(&mut self, polls: u64) -> bool {
        self.left.tick(polls) >= ON_ITS_WAY
    }

    /// It went on watching.
    pub(super) fn undisturbed(&mut self, now: u64) {
        if now.saturating_sub(self.calm_since) > FORGET_NS {
            self.worth.forget_lateness();
        }
    }

    /// It ends to watch; `late`: it found packets that nobody had taken.
    pub(super) fn takes_back(&mut self, late: bool) {
        self.worth.begin_anew();
        if late {
            self.worth.was_late();
        }
    }

    /// It woke while it was armed; true: from now on it is to watch.
    pub(super) fn leaves(&mut self, value: Value) -> bool {
        let spins = self.polling.spins();
        match value {
            Value::Useful => self.worth.packets(false, spins),
            Value::Needless => self.worth.packets(true, spins),
            Value::InVain => self.worth.rang_in_vain(),
            Value::None => {}
        }
        self.worth.leaves()
    }

    /// It begins to watch.
    pub(super) fn watches(&mut self, now: u64) {
        self.calm_since = now;
        self.worth.begin_anew();
    }
}

/// Needless wake-ups, less what useful ones earn, after which the thread leaves the engine alone.
const NEEDLESS: i32 = 16;
/// What one useful wake-up is worth.
const USEFUL: i32 = 4;
/// What finding packets late is worth, at first and at most: a thread that left the engine although
/// it was needed stays for so many wake-ups. It doubles each time, since
/// a program that polls now and then does so again; an application that was just kept from its
/// core, and spins, soon gets the engine back.
type Lateness = Backoff<64, 4096>;
/// So far useful wake-ups keep it at most.
const MOST_USEFUL: i32 = 4096;

/// What its wake-ups were worth.
#[derive(Debug)]
struct Worth {
    score: i32,
    /// So many wake-ups are to come before it leaves the engine to an application for spinning.
    stay: i32,
    lateness: Lateness,
}

impl Worth {
    fn new() -> Worth {
        Worth {
            score: 0,
            stay: 0,
            lateness: Lateness::new(),
        }
    }

    /// Packets woke it. `needless`: the application has them, or would have; `spins`: it does
    /// nothing but poll, so what it did not take it was kept from, perhaps by this thread.
    fn packets(&mut self, needless: bool, spins: bool) {
        self.stay = (self.stay - 1).max(0);
        if spins && self.stay == 0 {
            self.score = NEEDLESS + 1;
        } else if needless {
            self.score += 1;
        } else {
            self.score = (self.score - USEFUL).max(-MOST_USEFUL);
        }
    }

    /// The application rang, and has polled since.
    fn rang_in_vain(&mut self) {
        self.score += 1;
    }

    /// The engine is better left to the application.
    fn leaves(&self) -> bool {
        self.score > NEEDLESS && !ablation::is_out(Policy::Election)
    }

    /// It begins or ends to leave the engine.
    fn begin_anew(&mut self) {
        self.score = 0;
    }

    /// It had left the engine, and found packets there late.
    fn was_late(&mut self) {
        self.stay = self.lateness.wrong() as i32;
        self.score = -self.stay;
    }

    /// It has left the engine for long, and was not needed.
    fn forget_lateness(&mut self) {
        self.lateness.forget();
    }
}

/// So many polls in one sleep of the thread are those of a loop.
const SPUN: u64 = 256;

/// Whether the application polls, as the thread sees it.
#[derive(Debug)]
struct Polling {
    /// The count of its polls.
    count: u64,
    /// It polled so often when it was looked at last that it does nothing else.
    spun: bool,
}

impl Polling {
    fn new(count: u64) -> Polling {
        Polling { count, spun: false }
    }

    /// Whether the application has polled since the last call.
    fn seen(&mut self, polls: u64) -> bool {
        let polled = polls != self.count;
        self.spun = polls.wrapping_sub(self.count) >= SPUN;
        self.count = polls;
        polled
    }

    /// Whether it spins: whatever it left to the thread, it did not have its core.
    fn spins(&self) -> bool {
        self.spun
    }
}

/// Packets that wait for a thread which they woke.
#[derive(Debug, Default)]
struct Left {
    /// Since so many ticks,
    ticks: u32,
    /// in which nobody polled: the count of polls.
    polls: u64,
}

impl Left {
    /// They still do.
    fn tick(&mut self, polls: u64) -> u32 {
        self.ticks = if self.polls == polls {
            self.ticks + 1
        } else {
            0
        };
        self.polls = polls;
        self.ticks
    }
}

#[cfg(test)]
mod tests {
    //! Who polls soon has the engine alone; who does not, keeps the thread. One that is on its way
    //! to its packets is waited for, but not for ever.

    use super::*;

    /// After how many wake-ups of this kind it leaves.
    fn leaves_after(worth: &mut Worth, mut wake_up: impl FnMut(&mut Worth)) -> Option<i32> {
        (1..=8192).find(|_| {
            wake_up(worth);
            worth.leaves()
        })
    }

    #[test]
    fn a_program_that_polls_is_left_alone_whatever_woke_the_thread() {
        let packets = leaves_after(&mut Worth::new(), |worth| worth.packets(true, false));
        let rings = leaves_after(&mut Worth::new(), Worth::rang_in_vain);
        assert_eq!((packets, rings), (Some(NEEDLESS + 1), Some(NEEDLESS + 1)));
    }

    #[test]
    fn useful_wake_ups_keep_the_thread() {
        let mut turn = 0;
        let mixed = |worth: &mut Worth| {
            turn += 1;
            match turn % (USEFUL + 1) {
                0 => worth.packets(false, false),
                _ => worth.rang_in_vain(),
            }
        };
        assert_eq!(leaves_after(&mut Worth::new(), mixed), None);
    }

    #[test]
    fn who_was_late_stays_longer_each_time_until_it_is_forgotten() {
        let mut worth = Worth::new();
        let needless = |worth: &mut Worth| worth.packets(true, false);
        worth.was_late();
        let once = leaves_after(&mut worth, needless);
        assert_eq!(once, Some(64 + NEEDLESS + 1));
        worth.begin_anew();
        worth.was_late();
        let twice = leaves_after(&mut worth, needless);
        assert_eq!(twice, Some(2 * 64 + NEEDLESS + 1));
        worth.forget_lateness();
        worth.was_late();
        assert_eq!(leaves_after(&mut worth, needless), once);
    }

    #[test]
    fn an_application_that_polls_is_seen() {
        let mut polling = Polling::new(0);
        let mut seen = |count| (polling.seen(count), polling.spins());
        assert_eq!(seen(0), (false, false));
        assert_eq!(seen(7), (true, false));
        assert_eq!(seen(7), (false, false));
        assert_eq!(seen(7 + SPUN), (true, true));
    }

    #[test]
    fn a_thread_that_packets_woke_has_some_ticks_to_take_them() {
        let mut election = Election::new(0);
        let mut overdue = |polls, n: u32| (0..n).any(|_| election.is_overdue(polls));
        // On its way, late, but it comes.
        assert!(!overdue(7, ON_ITS_WAY));
        assert!(!overdue(8, ON_ITS_WAY));
        // It does not come any more.
        assert!(overdue(9, ON_ITS_WAY + 1));
    }

    /// Or a program that sleeps for long would be looked after once a tick for ever.
    #[test]
    fn a_thread_that_waits_is_watched_over_for_some_ticks() {
        let mut election = Election::new(0);
        assert_eq!(election.driver(true, false), Driver::Application);
        let ticks = (0..1000)
            .take_while(|_| election.driver(false, true) == Driver::Waiter)
            .count();
        assert_eq!(ticks as u32, QUIET - 1);
        assert_eq!(election.driver(false, true), Driver::IdleWaiter);
        assert_eq!(election.driver(true, true), Driver::Waiter);
        assert_eq!(election.driver(false, false), Driver::Nobody);
    }

    /// Promise: for every driver and event it is decided here, and nowhere else, what the thread
    /// does. Whoever changes a line of the table sees what else that line means.
    #[test]
    fn the_table_of_drivers_and_events() {
        use Driver::*;
        use Event::*;
        let drivers = [Nobody, Application, Waiter, IdleWaiter];
        let mut table = String::new();
        for event in [
            Tick,
            PacketsLeft,
            Asked,
            Packets,
            PacketsGone,
            RangInVain,
            PacketsBeside,
            Otherwise,
        ] {
            let value = |value| match value {
                Value::Useful => ", useful",
                Value::Needless => ", needless",
                Value::InVain => ", in vain",
                Value::None => "",
            };
            let does = drivers.map(|driver| match action(driver, event) {
                Action::Watch => "watch".to_owned(),
                Action::TakeBack { late: true } => "take back, late".to_owned(),
                Action::TakeBack { late: false } => "take back".to_owned(),
                Action::HaltPoll(worth) => format!("halt poll{}", value(worth)),
                Action::Sleep(worth) => format!("sleep{}", value(worth)),
            });
            let [a, b, c, d] = does;
            let event = format!("{event:?}");
            table += &format!("{event:<13} | {a:<17} | {b:<15} | {c:<15} | {d}\n");
        }
        let wanted = "\
Tick          | take back, late   | watch           | watch           | take back
PacketsLeft   | take back, late   | take back, late | take back       | take back
Asked         | take back         | take back       | take back       | take back
Packets       | halt poll, useful | sleep, needless | sleep, needless | sleep, needless
PacketsGone   | sleep, needless   | sleep, needless | sleep, needless | sleep, needless
RangInVain    | sleep, in vain    | sleep, in vain  | sleep, in vain  | sleep, in vain
PacketsBeside | halt poll         | sleep           | sleep           | sleep
Otherwise     | sleep             | sleep           | sleep           | sleep
";
        assert_eq!(table, wanted, "columns: {drivers:?}");
    }
}
