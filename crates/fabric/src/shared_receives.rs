//! A shared receive queue: its receives, the completion queue of all that take from it, and its
//! limit event.
//!
//! Receives are taken in the order in which they were posted. A queue pair holds one at most while
//! a message comes, so of the receives that were posted before one that completes, at most as many
//! are open as there are other queue pairs.
//!
//! The limit event comes once for each time that it was armed, when fewer receives than the limit
//! are posted (`ibv_modify_srq(3)`). The program arms it again when as many are posted again.

use std::collections::{BTreeSet, HashMap};

use rnic_nic::{Completion, Context, Cq, Pd, Srq, SrqAttr, SrqAttrMask, SrqInit};

use crate::flow::has_refusals;
use crate::inbox::{Inbox, InboxSpec, RECEIVE};
use crate::scenario::Scenario;

/// Who takes receives from a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// An end of a flow.
    Side(usize),
    /// A queue pair of UD.
    Endpoint(usize),
}

/// A shared receive queue, with the program that posts to it.
pub(crate) struct Pool {
    name: String,
    // Dropped in this order: nothing is done to memory any more when the queues are gone.
    srq: Srq,
    cq: Cq,
    inbox: Inbox,
    users: HashMap<u32, User>,
    /// The turn of each slot's receive, and those that have not completed.
    turns: Vec<u64>,
    open: BTreeSet<u64>,
    next_turn: u64,
    limit: u32,
    is_armed: bool,
    /// Limit events so far, and whether one has come since the last look.
    pub(crate) events: u64,
    has_event: bool,
}

fn in_words<T: std::fmt::Display>(error: T) -> String {
    error.to_string()
}

impl Pool {
    /// The one at `at`, on a host whose device this is.
    pub(crate) fn new(scenario: &Scenario, at: usize, context: &Context) -> Result<Pool, String> {
        let spec = &scenario.srqs[at];
        let mut flows = scenario.flows.iter();
        let leaves_bytes = flows.any(|flow| {
            flow.srqs.contains(&Some(at)) && (flow.may_leave_bytes() || has_refusals(flow))
        });
        // Whoever is killed, or finds memory gone, ends in the middle of a message.
        let is_exact = !leaves_bytes && scenario.incidents.is_empty();
        let inbox = InboxSpec {
            room: scenario.shared_room(at),
            count: spec.receives as usize,
            late: spec.late,
            seed: scenario.seed ^ (at as u64) << 32 ^ 0x0073_7271,
            is_exact,
        };
        // Not that of the queue pairs: its receives have keys of their own.
        let pd: Pd = context.alloc_pd();
        let init = SrqInit {
            max_wr: spec.receives,
            max_sge: 1,
            xrc: None,
            cookie: at as u64,
        };
        let srq = pd.create_srq(&init).map_err(in_words)?;
        let cq = context
            .create_cq(2 * spec.receives + 16, None, 0)
            .map_err(in_words)?;
        let mut pool = Pool {
            name: spec.name.clone(),
            srq,
            cq,
            turns: vec![0; inbox.count],
            inbox: Inbox::new(&pd, 3 << 28, inbox).map_err(in_words)?,
            users: HashMap::new(),
            open: BTreeSet::new(),
            next_turn: 0,
            limit: spec.limit,
            is_armed: false,
            events: 0,
            has_event: false,
        };
        pool.post(0)?;
        pool.arm()?;
        Ok(pool)
    }

    /// What a queue pair is made with.
    pub(crate) fn queues(&self) -> (Srq, Cq) {
        (self.srq.clone(), self.cq.clone())
    }

    /// That queue pair takes receives from it.
    pub(crate) fn add(&mut self, qpn: u32, user: User) {
        self.users.insert(qpn, user);
    }

    /// Its limit event has come.
    pub(crate) fn hear_event(&mut self) -> Result<(), String> {
        self.events += 1;
        if !self.is_armed {
            return Err(self.of_this("a limit event comes that nobody has armed"));
        }
        (self.is_armed, self.has_event) = (false, true);
        Ok(())
    }

    /// Takes all completions. `check` gets each with its slot and whose it is.
    pub(crate) fn take(
        &mut self,
        now: u64,
        mut check: impl FnMut(User, usize, &Completion, &mut Inbox) -> Result<(), String>,
    ) -> Result<usize, String> {
        let mut taken = Vec::new();
        self.cq
            .poll(usize::MAX, &mut |completion| taken.push(*completion))
            .map_err(in_words)?;
        for completion in &taken {
            let Some(user) = self.users.get(&completion.qpn).copied() else {
                let qpn = completion.qpn;
                return Err(self.of_this(&format!("QPN {qpn} takes receives and has no right to")));
            };
            let slot = self.completed(now, completion)?;
            check(user, slot, completion, &mut self.inbox)?;
        }
        Ok(taken.len())
    }

    fn completed(&mut self, now: u64, completion: &Completion) -> Result<usize, String> {
        if completion.wr_id < RECEIVE {
            return Err(self.of_this("a completion is none of a receive"));
        }
        let slot = self.inbox.completed(now, completion.wr_id);
        let slot = slot.map_err(|why| self.of_this(&why))?;
        let turn = self.turns[slot];
        let earlier = self.open.range(..turn).count();
        self.open.remove(&turn);
        if earlier >= self.users.len() {
            return Err(self.of_this(&format!(
                "receive {slot} completes before {earlier} that were posted earlier, and there are {} queue pairs",
                self.users.len()
            )));
        }
        Ok(slot)
    }

    /// Checks the limit event after all completions were taken, and posts what it can. Gives when
    /// it wants to look again.
    pub(crate) fn go_on(&mut self, now: u64) -> Result<Option<u64>, String> {
        let (open, limit) = (self.open.len(), self.limit as usize);
        // Each queue pair may have taken one whose message has not ended.
        let fewest = open.saturating_sub(self.users.len());
        if std::mem::take(&mut self.has_event) && fewest >= limit {
            return Err(self.of_this(&format!(
                "the limit event comes with {open} receives open, and the limit is {limit}"
            )));
        }
        if self.is_armed && open < limit {
            return Err(self.of_this(&format!(
                "no limit event has come with {open} receives open, and the limit is {limit}"
            )));
        }
        self.post(now)?;
        if !self.is_armed && self.open.len() >= limit {
            self.arm()?;
        }
        Ok(self.inbox.next())
    }

    fn post(&mut self, now: u64) -> Result<(), String> {
        let Pool {
            srq,
            turns,
            open,
            next_turn,
            inbox,
            ..
        } = self;
        inbox.post(now, |wqes| {
            for wqe in wqes.iter().flatten() {
                turns[(wqe.wr_id - RECEIVE) as usize] = *next_turn;
                open.insert(*next_turn);
                *next_turn += 1;
            }
            srq.post_recv(&mut wqes.into_iter())
        })
    }

    fn arm(&mut self) -> Result<(), String> {
        if self.limit == 0 {
            return Ok(());
        }
        self.is_armed = true;
        let attr = SrqAttr {
            srq_limit: self.limit,
            ..SrqAttr::default()
        };
        let armed = self.srq.modify(&attr, SrqAttrMask::LIMIT);
        armed.map_err(in_words)
    }

    fn of_this(&self, what: &str) -> String {
        format!("shared receive queue {}: {what}", self.name)
    }

    /// At the end.
    pub(crate) fn check_memory(&self) -> Result<(), String> {
        if !self.inbox.guards_hold() {
            return Err(self.of_this("a byte outside of its receives has changed"));
        }
        match !self.inbox.rest_is_empty() {
            true => Err(self.of_this("a byte of a receive has changed that belongs to no message")),
            false => Ok(()),
        }
    }
}
