//! What the engine still has to do, and when.
//!
//! The engine's work has many sources: queue pairs that have a turn, packets that wait in a batch,
//! timers, messages of the connection manager. Each source stands here once, with the time at which
//! it is due. Five questions are asked of them, and a question is a set of sources:
//!
//! * when the engine has to run again,
//! * the same while the application polls,
//! * whether a poll has to attend to any of them soon,
//! * whether anything is left to be sent,
//! * whether a single turn is all there is.

use super::{Engine, TICK_NS};

/// Some of the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sources(u32);

impl Sources {
    /// What may have to be sent, now or soon.
    const TO_SEND: Sources = Sources::READY
        .and(Sources::INCAST_ROOM)
        .and(Sources::STAGED)
        .and(Sources::WAITS_TO_SEND);
    /// What cannot be sent yet.
    const WAITS_TO_SEND: Sources = Sources::LINK
        .and(Sources::LOCAL_PAUSE)
        .and(Sources::TX_BLOCKED)
        .and(Sources::DELAYED_ACKS);
    /// What a round does beside the turns of those that are ready.
    const BESIDE_TURNS: Sources = Sources::WAITS_TO_SEND
        .and(Sources::INCAST_ROOM)
        .and(Sources::RETIRED_PATHS)
        .and(Sources::QUESTIONS);
    /// What is due at a time although nothing arrives, while the application polls.
    const TIMED_WHILE_POLLED: Sources = Sources::WAITS_TO_SEND
        .and(Sources::TIMERS)
        .and(Sources::RECEIVE_HOLD)
        .and(Sources::COMPLETION_QUEUES)
        .and(Sources::CONNECTION_MANAGER)
        .and(Sources::PEERS)
        .and(Sources::INCAST);
    /// Of these, what only a whole round attends to, and may be due soon. ACKs count rounds.
    const TIMED_BY_ROUNDS: Sources = Sources::LOCAL_PAUSE
        .and(Sources::TIMERS)
        .and(Sources::COMPLETION_QUEUES)
        .and(Sources::INCAST);
    /// The same while it does not: a program that polls has its batches done by that.
    const TIMED: Sources = Sources::TIMED_WHILE_POLLED.and(Sources::ONE_SIDED_BATCH);

    const fn and(self, other: Sources) -> Sources {
        Sources(self.0 | other.0)
    }

    const fn has(self, other: Sources) -> bool {
        self.0 & other.0 != 0
    }
}

/// Due at once.
const NOW: Option<u64> = Some(0);

/// Makes a constant of each source, and the two questions that can be asked of a set of them. A set
/// is known when this is compiled, so that a question costs what its sources cost.
macro_rules! sources {
    ($engine:ident: $($(#[$doc:meta])* $source:ident = $bit:literal, $due:expr;)+) => {
        impl Sources {
            $($(#[$doc])* const $source: Sources = Sources(1 << $bit);)+
        }

        impl Engine {
            /// When the first of these is due, ns; `None`: none is.
            #[inline(always)]
            fn first_due(&self, of: Sources) -> Option<u64> {
                let $engine = self;
                // Asked with every message: to compare options costs ten times as much.
                let mut first = u64::MAX;
                $(if of.has(Sources::$source) {
                    first = first.min($due.unwrap_or(u64::MAX));
                })+
                (first != u64::MAX).then_some(first)
            }

            /// Whether any of these is due at some time.
            #[inline(always)]
            fn has_any(&self, of: Sources) -> bool {
                let $engine = self;
                $((of.has(Sources::$source) && $due.is_some()))||+
            }
        }
    };
}

sources! { engine:
    /// Queue pairs that have a turn.
    READY = 0, NOW.filter(|_| !engine.ready.is_empty());
    /// Queue pairs that were held back, and now have a place in their peer's incast group.
    INCAST_ROOM = 1, NOW.filter(|_| engine.timers.incast.has_room());
    /// Packets in a batch.
    STAGED = 2, NOW.filter(|_| engine.link.has_pending());
    /// Packets that wait for a socket, or for the time that a fault gave them.
    LINK = 3, engine.link.next_timeout();
    /// Queue pairs without flow control that wait for room in this host's receive buffers.
    LOCAL_PAUSE = 4, engine.flow.local_pause.deadline();
    /// Queue pairs whose ring or socket was full.
    TX_BLOCKED = 5, engine.flow.tx_blocked.deadline();
    /// ACKs that wait for the application's answer.
    DELAYED_ACKS = 6, engine.batching.delayed_acks.deadline();
    /// Timers of queue pairs.
    TIMERS = 7, engine.timers.next().map(|at| engine.flow.receive_horizon.deadline(at.0));
    /// Incast groups that may be over.
    INCAST = 8, engine.timers.incast.deadline()
        .map(|at| engine.flow.receive_horizon.deadline(at));
    /// Messages that wait for receives.
    RECEIVE_HOLD = 9, engine.flow.receive_hold.deadline();
    /// Completion queues: moderation, and what they failed to report.
    COMPLETION_QUEUES = 10, engine.cq_tasks.next();
    /// Messages of the connection manager.
    CONNECTION_MANAGER = 11, engine.cm.deadline();
    /// Messages to other processes of this host that are to be repeated.
    PEERS = 12, engine.neighbours.deadline();
    /// RDMA WRITEs and READs that wait for others.
    ONE_SIDED_BATCH = 13, engine.batching.one_sided.deadline();
    /// Paths of address handles that are to be given up.
    RETIRED_PATHS = 14, NOW.filter(|_| engine.ahs.has_retired());
    /// Questions to other processes of this host.
    QUESTIONS = 15, NOW.filter(|_| engine.neighbours.has_questions());
}

impl Engine {
    /// When the engine must run again although nothing arrives.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.first_due(Sources::TIMED)
    }

    /// The same while the application polls, which does what waits in batches.
    #[inline]
    pub(crate) fn next_deadline_of_polled(&self) -> Option<u64> {
        self.first_due(Sources::TIMED_WHILE_POLLED)
    }

    /// Something is due before the background thread looks after a program that polls. That program
    /// attends to it: it may poll seldom, and then few quick polls last long.
    #[inline]
    pub(super) fn is_due_before_tick(&self, now: u64) -> bool {
        self.first_due(Sources::TIMED_BY_ROUNDS)
            .is_some_and(|at| at < now + TICK_NS)
    }

    /// Something may leave, now or soon.
    #[inline]
    pub(crate) fn has_to_send(&self) -> bool {
        self.has_any(Sources::TO_SEND)
    }

    /// Some queue pair may have a turn now.
    #[inline]
    pub(crate) fn has_turns(&self) -> bool {
        self.has_any(Sources::READY.and(Sources::INCAST_ROOM))
    }

    /// One queue pair has something to send, and that is all there is, but for packets that wait
    /// for the next flush.
    #[inline]
    pub(super) fn has_one_turn_to_give(&self) -> bool {
        self.ready.len() == 1 && !self.has_any(Sources::BESIDE_TURNS)
    }
}

/// A single turn is all there is only if nothing else has to be sent, and what waits to be sent is
/// due at a time: else it would be forgotten.
const _: () = {
    let beside = Sources::TO_SEND.0 & !Sources::READY.0 & !Sources::STAGED.0;
    assert!(beside & !Sources::BESIDE_TURNS.0 == 0);
    assert!(Sources::WAITS_TO_SEND.0 & !Sources::TIMED_WHILE_POLLED.0 == 0);
    assert!(Sources::TIMED_WHILE_POLLED.0 & !Sources::TIMED.0 == 0);
    assert!(Sources::TIMED_BY_ROUNDS.0 & !Sources::TIMED_WHILE_POLLED.0 == 0);
};
