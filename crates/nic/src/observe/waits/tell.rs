//! What is recorded of a long wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::line::Line;
use super::super::{State, state};
use super::{Asleep, Awaited, Long, Source, Unacknowledged, Wait, Wanted};
use crate::queues::{CqShared, QpState};

/// Objects of a kind that are described; of more, only the number is told.
const MOST: usize = 5;

/// A queue pair that completes into one of the queues.
#[derive(Clone, Debug)]
pub(crate) struct QpStanding {
    pub(crate) qpn: u32,
    pub(crate) qp_type: &'static str,
    pub(crate) state: QpState,
    /// Its sends complete into one of the queues, and its receives.
    pub(crate) sends_here: bool,
    pub(crate) receives_here: bool,
    /// Work requests that have not ended, and completions that they give if they succeed.
    pub(crate) sends: u64,
    pub(crate) signaled: u64,
    /// Work requests since the last one that gives one, whether they have ended or not.
    pub(crate) unsignaled: u64,
    pub(crate) receives: u64,
    /// The shared receive queue that `receives` are of.
    pub(crate) srq: Option<u32>,
    /// Messages that it has taken so far.
    pub(crate) received: u64,
}

/// An id of a channel of the connection manager.
#[derive(Clone, Debug)]
pub(crate) struct IdStanding {
    pub(crate) standing: &'static str,
    pub(crate) service: Option<String>,
    pub(crate) local: Option<String>,
    pub(crate) peer: Option<String>,
}

/// How the objects stand that could end a wait: some of them, and how many there are.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    queue_pairs: Vec<QpStanding>,
    all_queue_pairs: u64,
    /// XRC shared receive queues that complete into the queues.
    pub(crate) xrc_srqs: u64,
    ids: Vec<IdStanding>,
    all_ids: u64,
}

impl Facts {
    pub(crate) fn add_qp(&mut self, qp: impl FnOnce() -> QpStanding) {
        self.all_queue_pairs += 1;
        if self.queue_pairs.len() < MOST {
            self.queue_pairs.push(qp());
        }
    }

    pub(crate) fn add_id(&mut self, id: impl FnOnce() -> IdStanding) {
        self.all_ids += 1;
        if self.ids.len() < MOST {
            self.ids.push(id());
        }
    }
}

impl Long {
    /// Records it, if it still goes on.
    pub(crate) fn tell(self, facts: &Facts) {
        // Before the report's state is held: who fills a queue may need it.
        let some = self.cqs.iter().take(MOST);
        let cqs = some.map(|cq| (cq, cq.standing())).collect();
        let Some(mut state) = state() else {
            return;
        };
        let line = self.line(&mut state, cqs, facts);
        let now = rnic_sys::now_ns();
        let super::Waits {
            free,
            cqs,
            sleepers,
            futures,
            ..
        } = &mut state.waits;
        match &self.seat {
            Some(seat) => {
                let wait = seat.wait.lock();
                let goes_on = |wait: &&Wait| wait.serial == self.serial && wait.goes_on(now);
                if wait.as_ref().filter(goes_on).is_some() {
                    let mut place = seat.place.lock();
                    place.write(self.serial, line, free);
                    seat.has_place.store(place.is_taken(), Ordering::Relaxed);
                }
            }
            None => {
                let polled = cqs.iter_mut().find(|polled| polled.serial == self.serial);
                let place = match polled {
                    Some(polled) => Some(&mut polled.place),
                    None => match &self.wanted {
                        Wanted::Future(..) => futures.place(self.serial),
                        _ => sleepers.place(self.serial),
                    },
                };
                if let Some(place) = place {
                    place.write(self.serial, line, free);
                }
            }
        }
    }

    fn line(
        &self,
        state: &mut State,
        cqs: Vec<(&Arc<CqShared>, crate::queues::CqStanding)>,
        facts: &Facts,
    ) -> Line {
        let mut line = state.record("wait");
        self.head(&mut line);
        match &self.wanted {
            Wanted::Descriptors { sources, others } => {
                let asynchronous = |source: &Source| matches!(source, Source::Asynchronous(_));
                line.flag("others", *others)
                    .flag("async_events", sources.iter().any(asynchronous));
            }
            Wanted::Acks(Unacknowledged {
                object,
                taken,
                acknowledged,
                events,
                remedy,
            }) => {
                line.text("object", object)
                    .number("taken", *taken)
                    .number("acknowledged", *acknowledged)
                    .text("events", events)
                    .text("remedy", remedy);
            }
            Wanted::Future(
                Asleep {
                    awaited, futures, ..
                },
                _,
            ) => {
                line.number("futures", *futures as u64);
                if let Some(qpn) = awaited.qpn() {
                    line.number("future_qpn", qpn.into());
                }
            }
            Wanted::CqEvent(_)
            | Wanted::AsyncEvent
            | Wanted::CmEvent(_)
            | Wanted::Sockets
            | Wanted::Completion(_) => {}
        }
        let channels = self.wanted.channels();
        let upgraded = channels.iter().filter_map(|channel| channel.upgrade());
        let untaken: usize = upgraded.map(|channel| channel.untaken()).sum();
        let channels = channels.len();
        if channels > 0 || matches!(self.wanted, Wanted::Completion(_) | Wanted::Sockets) {
            line.list("cqs", cqs, |line, (cq, standing)| {
                line.number("cq", cq.facts.number.into())
                    .text("armed", standing.armed)
                    .number("waiting", standing.waiting)
                    .number("completions", standing.pushed)
                    .flag("overrun", standing.overrun)
                    .flag("moderated", standing.moderated);
            })
            .number("all_cqs", self.cqs.len() as u64)
            .number("channels", channels as u64)
            .number("untaken", untaken as u64)
            .list("queue_pairs", &facts.queue_pairs, |line, qp| {
                state.describe_qp(line, qp);
            })
            .number("all_queue_pairs", facts.all_queue_pairs)
            .number("xrc_srqs", facts.xrc_srqs);
        }
        let cm_channels = self.cm_channels().len();
        if cm_channels > 0 || self.is_of_sockets() {
            line.list("ids", &facts.ids, |line, id| {
                line.text("standing", id.standing);
                for (name, value) in [
                    ("service", &id.service),
                    ("local", &id.local),
                    ("peer", &id.peer),
                ] {
                    if let Some(value) = value {
                        line.text(name, value);
                    }
                }
            })
            .number("all_ids", facts.all_ids)
            .number("cm_channels", cm_channels as u64);
        }
        line
    }

    fn head(&self, line: &mut Line) {
        line.number("wait", self.serial)
            .text("verb", self.verb)
            .text("for", kind(&self.wanted))
            .number("since", self.since);
        if let Some(thread) = self.thread {
            line.number("thread", thread.into());
        }
    }
}

fn kind(wanted: &Wanted) -> &'static str {
    match wanted {
        Wanted::CqEvent(_) => "cq event",
        Wanted::AsyncEvent => "async event",
        Wanted::CmEvent(_) => "cm event",
        Wanted::Acks(_) => "acks",
        Wanted::Completion(_) => "completion",
        Wanted::Sockets => "sockets",
        Wanted::Descriptors { .. } => "descriptors",
        Wanted::Future(asleep, _) => match asleep.awaited {
            Awaited::Message(_) => "future message",
            Awaited::Completion(_) => "future completion",
            Awaited::Room(_) => "future room",
            Awaited::Connection => "cm event",
        },
    }
}

impl State {
    fn describe_qp(&self, line: &mut Line, qp: &QpStanding) {
        self.name_qp(line, qp.qpn);
        line.text("qp_type", qp.qp_type)
            .text("state", &qp.state.to_string())
            .flag("sends_here", qp.sends_here)
            .flag("receives_here", qp.receives_here)
            .number("sends", qp.sends)
            .number("signaled", qp.signaled)
            .number("unsignaled", qp.unsignaled)
            .number("receives", qp.receives)
            .number("received", qp.received)
            .text("peer_process", self.peer_as_it_is(qp.qpn));
        if let Some(srq) = qp.srq {
            line.number("srq", srq.into());
        }
    }
}
