//! When a completion queue is armed, so that no wake-up is lost.
//!
//! A queue that is armed reports its next completion on its channel, once (`ibv_req_notify_cq`).
//! Who arms it takes all completions afterwards, since those that came before are not reported.

/// Whether the next completion will be reported. It changes only under the lock of the thread that
/// takes completions.
#[derive(Debug, Default)]
pub(super) struct Arming {
    armed: bool,
}

impl Arming {
    /// A future has left its waker and is about to sleep. True: the caller arms the queue, and then
    /// takes completions until there are none.
    #[must_use]
    pub(super) fn sleeps(&mut self) -> bool {
        !std::mem::replace(&mut self.armed, true)
    }

    /// An event was taken from the channel: no further one comes by itself.
    pub(super) fn reported(&mut self) {
        self.armed = false;
    }

    /// All completions are taken. True: futures still sleep, so that the caller arms the queue, and
    /// takes completions once more until there are none.
    #[must_use]
    pub(super) fn taken(&mut self, sleepers: usize) -> bool {
        sleepers > 0 && self.sleeps()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// A completion queue with its channel, one future, and the thread that waits for the channel.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
    struct World {
        /// Completions that the device has yet to write; the future wants the last of them.
        to_come: u8,
        in_queue: u8,
        handed_out: u8,
        /// The device's own flag.
        reports: bool,
        event: bool,
        armed: bool,
        lock: Option<Who>,
        sleepers: usize,
        waker: bool,
        woken: bool,
        future: u8,
        reactor: u8,
        wanted: u8,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Who {
        Future,
        Reactor,
    }

    /// What a wrong program would leave out.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Without {
        Nothing,
        LookAfterArming,
        ArmingAfterEvent,
        CountOfSleepers,
    }

    impl World {
        fn arming(&mut self, change: impl FnOnce(&mut Arming) -> bool) -> bool {
            let mut arming = Arming { armed: self.armed };
            let answer = change(&mut arming);
            self.armed = arming.armed;
            answer
        }

        fn done(&self) -> bool {
            self.handed_out >= self.wanted
        }

        /// One completion is handed out, if there is one.
        fn take(&mut self) -> bool {
            if self.in_queue == 0 {
                return false;
            }
            self.in_queue -= 1;
            self.handed_out += 1;
            if self.done() && std::mem::take(&mut self.waker) {
                self.woken = true;
            }
            true
        }

        /// What may happen next.
        fn next(&self, without: Without) -> Vec<World> {
            let mut all = Vec::new();
            if self.to_come > 0 {
                let mut next = self.clone();
                next.to_come -= 1;
                next.in_queue += 1;
                if std::mem::take(&mut next.reports) {
                    next.event = true;
                }
                all.push(next);
            }
            let may = |who| self.lock.is_none() || self.lock == Some(who);
            let mut next = self.clone();
            match self.future {
                // It leaves its waker, if it has to wait.
                0 if self.done() => next.future = 9,
                0 => {
                    next.sleepers += usize::from(without != Without::CountOfSleepers);
                    next.waker = true;
                    next.future = 1;
                }
                1 if may(Who::Future) => {
                    next.lock = Some(Who::Future);
                    next.future = if next.arming(Arming::sleeps) { 2 } else { 4 };
                }
                2 => {
                    next.reports = true;
                    next.future = if without == Without::LookAfterArming {
                        4
                    } else {
                        3
                    };
                }
                3 if !next.take() => next.future = 4,
                3 => {}
                4 => {
                    next.lock = None;
                    next.future = 5;
                }
                5 if self.woken => next.future = 9,
                _ => next = self.clone(),
            }
            if next != *self {
                all.push(next);
            }
            let mut next = self.clone();
            match self.reactor {
                0 if self.event && may(Who::Reactor) => {
                    next.lock = Some(Who::Reactor);
                    next.event = false;
                    next.arming(|arming| {
                        arming.reported();
                        true
                    });
                    next.reactor = 1;
                }
                1 if !next.take() => {
                    let sleepers = next.sleepers;
                    let arms = without != Without::ArmingAfterEvent
                        && next.arming(|arming| arming.taken(sleepers));
                    next.reactor = if arms { 2 } else { 4 };
                }
                1 => {}
                2 => {
                    next.reports = true;
                    next.reactor = 3;
                }
                3 if !next.take() => next.reactor = 4,
                3 => {}
                4 => {
                    next.lock = None;
                    next.reactor = 0;
                }
                _ => next = self.clone(),
            }
            if next != *self {
                all.push(next);
            }
            all
        }
    }

    /// All interleavings: how many worlds there are, and one in which the future sleeps for ever.
    fn explore(completions: u8, wanted: u8, without: Without) -> (usize, Option<World>) {
        let start = World {
            to_come: completions,
            wanted,
            ..World::default()
        };
        let (mut seen, mut open) = (HashSet::from([start.clone()]), vec![start]);
        let mut lost = None;
        while let Some(world) = open.pop() {
            let next = world.next(without);
            if next.is_empty() && world.future != 9 {
                lost = Some(world);
                continue;
            }
            open.extend(next.into_iter().filter(|next| seen.insert(next.clone())));
        }
        (seen.len(), lost)
    }

    /// Whenever completions come, and however the future and the thread that waits for the channel
    /// take turns, the future that its completion is for is woken.
    #[test]
    fn no_interleaving_loses_a_wake_up() {
        for completions in 1..=4 {
            for wanted in 1..=completions {
                let (worlds, lost) = explore(completions, wanted, Without::Nothing);
                assert!(worlds > 20, "{worlds}");
                assert_eq!(lost, None);
            }
        }
    }

    /// The search finds what each of the steps is for.
    #[test]
    fn each_step_is_needed() {
        let steps = [
            Without::LookAfterArming,
            Without::ArmingAfterEvent,
            Without::CountOfSleepers,
        ];
        for without in steps {
            assert!(explore(3, 3, without).1.is_some());
        }
    }
}
