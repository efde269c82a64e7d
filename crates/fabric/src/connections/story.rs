//! What one side of a connection has seen, and the laws that it has to obey.

use rnic_nic::cm::{Event, EventKind};

/// Reason of a REJ (IBTA vol. 1, 12.6.7.2): nobody listens.
pub(super) const INVALID_SERVICE_ID: i32 = 8;
/// Linux's.
const ETIMEDOUT: i32 = 110;

/// How far a side has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Looks for the address of its peer.
    #[default]
    Address,
    /// Looks for the route.
    Route,
    /// Has asked.
    Asked,
    /// Has the peer's answer.
    Answered,
    /// Was asked.
    Request,
    /// Has accepted.
    Accepted,
    Established,
}

/// What became of one side.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Story {
    pub(super) phase: Phase,
    pub(super) established: bool,
    /// The reason.
    pub(super) rejected: Option<i32>,
    pub(super) unreachable: bool,
    /// The status.
    pub(super) disconnected: Option<i32>,
    pub(super) time_wait_exited: bool,
    /// When the connection ended, as far as was told, ns.
    pub(super) ended_at: Option<u64>,
    /// When this side first wanted no connection any more, ns.
    pub(super) left_at: Option<u64>,
    /// The program said no.
    pub(super) refused: bool,
    pub(super) asked_to_disconnect: bool,
    /// A call said that there is nothing any more.
    pub(super) was_too_late: bool,
    pub(super) destroyed: bool,
    /// Its process was killed, ns.
    pub(super) killed_at: Option<u64>,
    pub(super) messages: Messages,
}

/// Messages of the queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Messages {
    pub(super) completed: usize,
    pub(super) received: usize,
}

impl Story {
    pub(super) fn endings(&self) -> u32 {
        u32::from(self.rejected.is_some())
            + u32::from(self.unreachable)
            + u32::from(self.disconnected.is_some())
    }

    /// The program has no id any more.
    pub(super) fn is_over(&self) -> bool {
        self.destroyed || self.killed_at.is_some()
    }

    /// Takes an event.
    pub(super) fn hear(&mut self, event: &Event, now: u64) -> Result<(), String> {
        use EventKind as E;
        let before = *self;
        let legal = match (event.kind, event.status) {
            _ if self.is_over() => false,
            (E::AddrResolved, 0) => self.enters(Phase::Address, Phase::Route),
            (E::RouteResolved, 0) => self.enters(Phase::Route, Phase::Asked),
            (E::ConnectResponse, 0) => self.enters(Phase::Asked, Phase::Answered),
            (E::Established, 0) => {
                self.established = true;
                self.enters(Phase::Accepted, Phase::Established)
            }
            (E::Rejected, reason) => {
                self.rejected = Some(reason);
                !matches!(self.phase, Phase::Address | Phase::Route)
            }
            // Also of a peer that dies on this host while this side thinks.
            (E::Unreachable, status) => {
                self.unreachable = true;
                let open = matches!(
                    self.phase,
                    Phase::Address | Phase::Route | Phase::Established
                );
                status == -ETIMEDOUT && !open
            }
            (E::Disconnected, status) => {
                self.disconnected = Some(status);
                let told = status == 0 || status == -ETIMEDOUT;
                told && !matches!(self.phase, Phase::Address | Phase::Route | Phase::Asked)
            }
            (E::TimewaitExit, 0) => {
                let due = self.disconnected.is_some() && !self.time_wait_exited;
                self.time_wait_exited = true;
                due
            }
            _ => false,
        };
        let ended = self.endings() > before.endings();
        if ended {
            self.ended_at = Some(now);
        }
        let once = before.endings() == 0 || event.kind == E::TimewaitExit;
        match legal && once {
            true => Ok(()),
            false => Err(format!(
                "{:?} ({}) comes to a side of which {before:?}",
                event.kind, event.status
            )),
        }
    }

    fn enters(&mut self, from: Phase, to: Phase) -> bool {
        std::mem::replace(&mut self.phase, to) == from
    }
}

/// What both sides of an attempt have to agree on when all is over. `is_missing`: whoever listens
/// there may have been killed; `is_deaf`: there may have been no listener.
pub(super) fn check_pair(
    active: &Story,
    passive: Option<&Story>,
    (is_missing, is_deaf): (bool, bool),
    sends: [usize; 2],
) -> Result<(), String> {
    let law = |holds: bool, law: &str| match holds {
        true => Ok(()),
        false => Err(format!("{law}: active {active:?}, passive {passive:?}")),
    };
    law(
        !active.unreachable || is_missing,
        "a peer is unreachable only if it is not there",
    )?;
    let Some(passive) = passive else {
        law(!active.established, "nobody is connected with nobody")?;
        return law(
            active.rejected.is_none() || is_deaf,
            "who is refused was heard",
        );
    };
    for (one, other) in [(active, passive), (passive, active)] {
        let other_had_left = other.left_at.is_some_and(|at| Some(at) <= one.ended_at);
        // A request that comes twice, and once finds no listener, is refused as well as taken: it
        // may come to another process of the host after the listener has gone.
        let twice = is_deaf && active.rejected == Some(INVALID_SERVICE_ID);
        law(
            one.rejected.is_none() && !one.unreachable || other_had_left || is_missing || twice,
            "nobody is refused as long as both want to",
        )?;
        law(
            one.disconnected.is_none() || one.asked_to_disconnect || other_had_left,
            "somebody disconnects",
        )?;
        law(
            one.disconnected.is_none_or(|status| status == 0)
                || other.destroyed
                || other.killed_at.is_some(),
            "who is there answers",
        )?;
        law(
            !one.was_too_late || one.endings() == 1 || other.left_at.is_some(),
            "a call fails because the connection has ended",
        )?;
        law(
            one.messages.completed <= other.messages.received,
            "what is complete has arrived",
        )?;
    }
    law(
        passive.messages.received <= sends[0] && active.messages.received <= sends[1],
        "what arrives was sent",
    )?;
    law(
        !active.established
            || passive.established
            || passive.endings() == 0
            || active.killed_at.is_some(),
        "who is accepted is told of",
    )?;
    law(
        !passive.established || active.established || is_missing,
        "who asked knows first",
    )
}
