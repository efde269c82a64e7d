//! The program at one end of a flow. It polls, posts what it can, and gives all that completes to
//! the oracle.

use rnic_nic::{Completion, Context, Cq, Gid, Pd, Qp, QpAttr, QpCap, QpInit, Srq, Status};

use super::layout::{Reachable, Regions, address};
use super::oracle::{Oracle, Way};
use super::request;
use super::windows::{Ask, key_at};
use crate::connect;
use crate::digest::Digest;
use crate::inbox::{Inbox, InboxSpec, RECEIVE};
use crate::pattern::LONGEST;
use crate::scenario::{Flow, Kind, Op, Service};

/// Completions that one look takes.
const LOOK: usize = 16;

/// What the other end's program has asked for has this wr_id.
const ASKED: u64 = 1 << 33;

/// One end of a flow.
pub(crate) struct Side {
    /// The flow, and which end of it.
    name: (usize, usize),
    service: Service,
    depth: usize,
    oracle: Oracle,
    // Dropped in this order: nothing is done to memory any more when queue pair and completion
    // queue are gone.
    qp: Qp,
    cq: Cq,
    regions: Regions,
    /// `None`: its receives come from a shared receive queue.
    inbox: Option<Inbox>,
    peer: Option<Reachable>,
    /// When the last operation was posted.
    posted_at: u64,
    /// What the other end's program is to be asked for, what it has asked for, and what that has
    /// come to.
    is_asking: bool,
    asks: Option<Ask>,
    asked: Option<Ask>,
    answers: Option<Status>,
}

fn in_words<T: std::fmt::Display>(error: T) -> String {
    error.to_string()
}

impl Side {
    /// End `end` of the flow, on a host whose device this is. With a shared receive queue its
    /// receives are completed elsewhere.
    pub(crate) fn new(
        (flow_at, end): (usize, usize),
        (flow, ways): (&Flow, &[Way; 2]),
        (context, shared): (&Context, Option<(Srq, Cq)>),
        (seed, in_order): (u64, bool),
    ) -> Result<Side, String> {
        let (own, peers) = (&flow.directions[end], &flow.directions[1 - end]);
        if own.ops.iter().any(|op| op.len > LONGEST) {
            return Err(format!(
                "flow {flow_at}: an operation has more than {LONGEST} bytes"
            ));
        }
        let pd: Pd = context.alloc_pd();
        let cq = context
            .create_cq(2 * (flow.depth + flow.receives) + 16, None, 0)
            .map_err(in_words)?;
        let regions = Regions::new(&pd, (flow_at, end), own, peers).map_err(in_words)?;
        let spec = InboxSpec {
            room: peers.largest(),
            count: flow.receives as usize,
            late: flow.late,
            seed,
            is_exact: flow.service == Service::Rc,
        };
        let (inbox, srq, recv_cq) = match shared {
            Some((srq, cq)) => (None, Some(srq), cq),
            None => {
                let inbox = Inbox::new(&pd, address(3), spec).map_err(in_words)?;
                (Some(inbox), None, cq.clone())
            }
        };
        let qp = pd
            .create_qp(&QpInit {
                qp_type: flow.service.qp_type(),
                send_cq: cq.clone(),
                recv_cq,
                srq,
                cap: QpCap {
                    // And what the other end asks for.
                    max_send_wr: flow.depth + u32::from(!peers.windows.is_empty()),
                    max_recv_wr: flow.receives,
                    max_send_sge: 2,
                    max_recv_sge: 2,
                    max_inline_data: 0,
                },
                sq_sig_all: false,
                cookie: 0,
            })
            .map_err(in_words)?;
        let windows = regions.reachable().windows;
        let oracle = Oracle::new((flow_at, end), (flow, ways), in_order, windows);
        Ok(Side {
            name: (flow_at, end),
            service: flow.service,
            depth: flow.depth as usize,
            oracle,
            qp,
            cq,
            regions,
            inbox,
            peer: None,
            posted_at: 0,
            is_asking: false,
            asks: None,
            asked: None,
            answers: None,
        })
    }

    /// What the other end needs to know.
    pub(crate) fn reachable(&self) -> (u32, Reachable) {
        (self.qp.qpn(), self.regions.reachable())
    }

    /// Takes the queue pair to RTS.
    pub(crate) fn connect(
        &mut self,
        flow: &Flow,
        (peer, reachable): (u32, Reachable),
        gid: Gid,
    ) -> Result<(), String> {
        self.peer = Some(reachable);
        let (_, end) = self.name;
        let attr = QpAttr {
            path_mtu: Some(flow.mtu),
            rq_psn: flow.psns[1 - end],
            sq_psn: flow.psns[end],
            max_dest_rd_atomic: 4,
            max_rd_atomic: 4,
            timeout: flow.timeout,
            retry_cnt: flow.retry,
            rnr_retry: flow.rnr_retry,
            ..connect::attributes(peer, gid)
        };
        connect::to_init(&self.qp, &attr)?;
        // Before anybody can send, as programs do.
        self.post_receives(0)?;
        connect::to_rts(&self.qp, self.service, &attr)
    }

    /// From now on the peer may be unable to do its part: the next operation may end with this
    /// status, and all behind it are flushed.
    pub(crate) fn may_end_with(&mut self, status: Status) {
        self.oracle.may_end_with(status);
    }

    /// Its process is killed.
    pub(crate) fn die(&mut self) {
        self.oracle.die();
    }

    /// Deregisters what the peer writes to. False: EBUSY.
    pub(crate) fn deregister(&mut self) -> bool {
        self.regions.target.deregister()
    }

    /// Operations of its flow are refused, by the rules of windows.
    pub(crate) fn has_refusals(&self) -> bool {
        self.oracle.has_refusals()
    }

    /// What the queue pair has counted.
    pub(crate) fn counters(&self) -> rnic_nic::Counters {
        self.qp.counters()
    }

    /// Messages that the program has received.
    pub(crate) fn received(&self) -> usize {
        self.oracle.received()
    }

    /// The longest time that an operation took, ns.
    pub(crate) fn longest(&self) -> Option<u64> {
        self.oracle.latencies.iter().max().copied()
    }

    /// How long each operation took that was seen to complete, ns.
    pub(crate) fn take_latencies(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.oracle.latencies)
    }

    /// Each completion is there, and each message that must come.
    pub(crate) fn is_done(&self) -> bool {
        self.oracle.is_done()
    }

    /// What the program waits for, in words.
    pub(crate) fn waits_for(&self) -> String {
        self.of_this(&format!(
            "{}, {:?}",
            self.oracle.progress(),
            self.qp.state()
        ))
    }

    fn of_this(&self, what: &str) -> String {
        let (flow, end) = self.name;
        format!("end {end} of flow {flow}: {what}")
    }

    /// One look of the program: takes completions, posts what it can. Gives when it wants to look
    /// again for its own sake, and whether it found something or posted.
    pub(crate) fn look(
        &mut self,
        now: u64,
        digest: &mut Digest,
    ) -> Result<(Option<u64>, bool), String> {
        let (posted, is_asked) = (self.oracle.posted(), self.asked.is_some());
        let mut taken: [Option<Completion>; LOOK] = [None; LOOK];
        let mut count = 0;
        self.cq
            .poll(LOOK, &mut |completion| {
                taken[count] = Some(*completion);
                count += 1;
            })
            .map_err(in_words)?;
        for completion in taken.into_iter().flatten() {
            digest.word(completion.wr_id ^ now << 20);
            digest.word(u64::from(completion.byte_len) << 32 | completion.status as u64);
            let checked = match completion.wr_id {
                ..RECEIVE => self.oracle.check_send(now, &completion, &self.regions),
                ASKED => self.check_asked(&completion),
                _ => self.check_receive(now, &completion),
            };
            checked.map_err(|why| self.of_this(&why))?;
        }
        let next_receive = self.post_receives(now)?;
        let next_send = self.post_sends(now)?;
        let again = (count == LOOK).then_some(now);
        let next = [again, next_receive, next_send].into_iter().flatten().min();
        let has_posted = is_asked || self.oracle.posted() > posted;
        Ok((next, count > 0 || has_posted))
    }

    fn check_asked(&mut self, completion: &Completion) -> Result<(), String> {
        self.answers = Some(completion.status);
        self.oracle.check_asked(completion.status, &self.regions)
    }

    fn check_receive(&mut self, now: u64, completion: &Completion) -> Result<(), String> {
        let Some(inbox) = &mut self.inbox else {
            return Err("a receive completes, and it has none of its own".to_owned());
        };
        let slot = inbox.completed(now, completion.wr_id)?;
        self.oracle.check_receive(slot, completion, inbox)
    }

    /// A receive of its shared receive queue has completed.
    pub(crate) fn check_shared(
        &mut self,
        slot: usize,
        completion: &Completion,
        inbox: &mut Inbox,
    ) -> Result<(), String> {
        let checked = self.oracle.check_receive(slot, completion, inbox);
        checked.map_err(|why| self.of_this(&why))
    }

    fn post_receives(&mut self, now: u64) -> Result<Option<u64>, String> {
        let inbox = self.inbox.as_mut();
        inbox.map_or(Ok(None), |inbox| inbox.post_to(&self.qp, now))
    }

    fn post_sends(&mut self, now: u64) -> Result<Option<u64>, String> {
        let mut wqes = Vec::new();
        let mut next = None;
        if let Some(ask) = self.asked.take() {
            let wqe = request::asked(&self.oracle, &self.regions, ASKED, ask);
            wqes.push(Ok(wqe));
            self.oracle.posts_asked();
        }
        while self.oracle.posted() < self.oracle.own.ops.len()
            && !self.oracle.is_over()
            && self.oracle.queued() < self.depth
            && !self.is_asking
            // What was posted together leaves together; what was not, need not.
            && wqes.len() < 4
        {
            let nth = self.oracle.posted();
            let op = self.oracle.own.ops[nth];
            let due = self.posted_at.saturating_add(op.after);
            if due > now {
                next = Some(due);
                break;
            }
            if op.kind.is_asked() {
                // Its turn comes when all before it is complete.
                if !wqes.is_empty() || self.oracle.queued() > 0 {
                    break;
                }
                self.oracle.posts(now);
                self.posted_at = now;
                match self.oracle.has_failed() {
                    true => self.oracle.hear(nth, None)?,
                    false => self.ask(nth, &op),
                }
                continue;
            }
            let peer = self.peer.as_ref().ok_or("it is not connected")?;
            wqes.push(Ok(request::own(&self.oracle, &self.regions, peer, nth)));
            self.oracle.posts(now);
            self.posted_at = now;
        }
        if wqes.is_empty() {
            return Ok(next);
        }
        let more = wqes.len() == 4;
        self.qp
            .post_send(&mut wqes.into_iter())
            .map_err(|(_, why)| format!("a work request is refused: {why}"))?;
        Ok(if more { Some(now + 1) } else { next })
    }

    /// Has the other end's program asked to bind or close a window.
    fn ask(&mut self, nth: usize, op: &Op) {
        let Some(window) = op.window() else { return };
        let bind = op.kind == Kind::Bind;
        let keys = self.peer.as_ref().map(|peer| peer.windows[window]);
        // A bind makes the next key.
        let next = nth + usize::from(bind);
        let key = key_at(&self.oracle.own, (next, window), keys.unwrap_or_default());
        self.is_asking = true;
        self.asks = Some(Ask { window, bind, key });
    }

    /// What the other end's program is to be asked for.
    pub(crate) fn take_ask(&mut self) -> Option<Ask> {
        self.asks.take()
    }

    /// The other end's program asks for that.
    pub(crate) fn serve(&mut self, ask: Ask) {
        self.asked = Some(ask);
    }

    /// What has become of that.
    pub(crate) fn take_answer(&mut self) -> Option<Status> {
        self.answers.take()
    }

    /// The other end's program answers.
    pub(crate) fn hear(&mut self, answer: Status) -> Result<(), String> {
        self.is_asking = false;
        let nth = self.oracle.posted() - 1;
        let heard = self.oracle.hear(nth, Some(answer));
        heard.map_err(|why| self.of_this(&why))
    }

    /// An operation has ended without an answer, as only a peer that has refused something may
    /// leave it.
    pub(crate) fn check_peer(&self, peer: &Side) -> Result<(), String> {
        let counters = peer.counters();
        let refused = counters.access_naks_sent;
        match self.oracle.gave_up() && refused == 0 {
            true => Err(self.of_this("it got no answer, and the peer has refused nothing")),
            false => Ok(()),
        }
    }

    /// At the end: what the peer has written is there, and nothing else has changed.
    pub(crate) fn check_memory(&self) -> Result<(), String> {
        let checked = self.oracle.check_memory(&self.regions, self.inbox.as_ref());
        checked.map_err(|what| self.of_this(&what))
    }
}
