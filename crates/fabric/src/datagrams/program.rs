//! The program at a queue pair of UD. It polls, posts what it can, and gives all that completes to
//! the oracle.

use std::rc::Rc;

use rnic_nic::{
    Access, Ah, AhAttr, Completion, Context, Counters, Cq, Gid, Pd, Qp, QpAttr, QpAttrMask as M,
    QpCap, QpInit, QpState, QpType, SendData, SendOp, SendWqe, SgList, Srq,
};

use super::Everybody;
use super::oracle::{Come, Oracle, source_bytes, source_len};
use crate::digest::Digest;
use crate::inbox::{Inbox, InboxSpec, RECEIVE};
use crate::memory::Memory;
use crate::pattern::place;
use crate::scenario::To;

/// Completions that one look takes.
const LOOK: usize = 16;
/// The QPN that datagrams to a group name.
const GROUP_QPN: u32 = 0xff_ffff;

/// An endpoint's program.
pub(crate) struct Program {
    all: Rc<Everybody>,
    at: usize,
    oracle: Oracle,
    // Dropped in this order: nothing is done to memory any more when queue pair and completion
    // queue are gone.
    qp: Qp,
    cq: Cq,
    source: Memory,
    /// `None`: its receives come from a shared receive queue.
    inbox: Option<Inbox>,
    /// The address handle of each destination.
    ways: Vec<(To, Ah)>,
    pd: Pd,
    /// When the last datagram was posted.
    posted_at: u64,
    /// Packets for it that its port has taken.
    pub(crate) arrived: u64,
    /// Packets to its QPN that went into the network, and not through a ring.
    pub(crate) networked: u64,
    /// Its process was stopped: then others may lose what they have for it.
    pub(crate) is_lossy: bool,
    is_dead: bool,
}

fn in_words<T: std::fmt::Display>(error: T) -> String {
    error.to_string()
}

impl Program {
    /// That of endpoint `at`, on a host whose device this is. A receive has `room` bytes. With a
    /// shared receive queue its receives are completed elsewhere.
    pub(crate) fn new(
        (at, room): (usize, usize),
        all: &Rc<Everybody>,
        (context, shared): (&Context, Option<(Srq, Cq)>),
        seed: u64,
    ) -> Result<Program, String> {
        let spec = &all.specs[at];
        let pd = context.alloc_pd();
        let cq = context
            .create_cq(2 * (spec.depth + spec.receives) + 16, None, 0)
            .map_err(in_words)?;
        let len = source_len(spec);
        let source = Memory::new(&pd, (1 << 28, len), Access(0), |bytes| {
            bytes.copy_from_slice(source_bytes(at, 0, len));
        });
        let inbox = InboxSpec {
            room,
            count: spec.receives as usize,
            late: spec.late,
            seed,
            is_exact: true,
        };
        let (inbox, srq, recv_cq) = match shared {
            Some((srq, cq)) => (None, Some(srq), cq),
            None => {
                let inbox = Inbox::new(&pd, 3 << 28, inbox).map_err(in_words)?;
                (Some(inbox), None, cq.clone())
            }
        };
        let init = QpInit {
            qp_type: QpType::Ud,
            send_cq: cq.clone(),
            recv_cq,
            srq,
            cap: QpCap {
                max_send_wr: spec.depth,
                max_recv_wr: spec.receives,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig_all: false,
            cookie: 0,
        };
        let qp = pd.create_qp(&init).map_err(in_words)?;
        all.qpns[at].set(qp.qpn());
        Ok(Program {
            all: all.clone(),
            at,
            oracle: Oracle::new(at, all.clone()),
            qp,
            cq,
            source: source.map_err(in_words)?,
            inbox,
            ways: Vec::new(),
            pd,
            posted_at: 0,
            arrived: 0,
            networked: 0,
            is_lossy: false,
            is_dead: false,
        })
    }

    /// Takes the queue pair to RTS, and makes address handles of all destinations. All endpoints
    /// are there by now.
    pub(crate) fn get_ready(&mut self) -> Result<(), String> {
        let all = self.all.clone();
        let spec = &all.specs[self.at];
        let attr = QpAttr {
            port_num: 1,
            qkey: spec.qkey,
            sq_psn: spec.psn,
            ..QpAttr::default()
        };
        let qp = self.qp.clone();
        let to = |qp_state, mask| {
            let attr = QpAttr { qp_state, ..attr };
            qp.modify(&attr, M::STATE | mask).map_err(in_words)
        };
        to(QpState::Init, M::PKEY_INDEX | M::PORT | M::QKEY)?;
        self.post_receives(0)?;
        to(QpState::Rtr, M(0))?;
        to(QpState::Rts, M::SQ_PSN)?;
        for group in &spec.groups {
            qp.attach_mcast(Gid::from(*group)).map_err(in_words)?;
        }
        for datagram in &spec.datagrams {
            if self.ways.iter().any(|(to, _)| *to == datagram.to) {
                continue;
            }
            let address = match datagram.to {
                To::Endpoint(to) => self.all.addresses[to],
                To::Group(group) => group,
            };
            let attr = AhAttr {
                dgid: Gid::from(address),
                sgid_index: 0,
                is_global: true,
                port_num: 1,
                ..AhAttr::default()
            };
            let ah = self.pd.create_ah(&attr).map_err(in_words)?;
            self.ways.push((datagram.to, ah));
        }
        Ok(())
    }

    /// What the queue pair has counted.
    pub(crate) fn counters(&self) -> Counters {
        self.qp.counters()
    }

    /// The number of its queue pair.
    pub(crate) fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    /// Its process is killed.
    pub(crate) fn die(&mut self) {
        self.is_dead = true;
    }

    /// Datagrams that the program has received.
    pub(crate) fn received(&self) -> u64 {
        // What a killed one has received nobody knows.
        if self.is_dead {
            0
        } else {
            self.oracle.received()
        }
    }

    /// Each completion of a send is there.
    pub(crate) fn is_done(&self) -> bool {
        self.is_dead || self.oracle.is_done()
    }

    /// What the program waits for, in words.
    pub(crate) fn waits_for(&self) -> String {
        let (posted, queued) = (self.oracle.posted(), self.oracle.queued());
        let state = self.qp.state();
        self.of_this(&format!(
            "{posted} posted, {queued} of them not completed, {state:?}"
        ))
    }

    fn of_this(&self, what: &str) -> String {
        format!("endpoint {}: {what}", self.all.specs[self.at].name)
    }

    /// One look of the program, as that of [`Side`](crate::flow::Side).
    pub(crate) fn look(
        &mut self,
        now: u64,
        digest: &mut Digest,
    ) -> Result<(Option<u64>, bool), String> {
        let posted = self.oracle.posted();
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
            let checked = match completion.wr_id >= RECEIVE {
                true => self.check_receive(now, &completion),
                false => self.oracle.check_send(&completion),
            };
            checked.map_err(|why| self.of_this(&why))?;
        }
        let next_receive = self.post_receives(now)?;
        let next_send = self.post_sends(now)?;
        let again = (count == LOOK).then_some(now);
        let next = [again, next_receive, next_send].into_iter().flatten().min();
        Ok((next, count > 0 || self.oracle.posted() > posted))
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
        let (count, depth) = {
            let spec = self.oracle.spec();
            (spec.datagrams.len(), spec.depth as usize)
        };
        while self.oracle.posted() < count && self.oracle.queued() < depth && wqes.len() < 4 {
            let nth = self.oracle.posted();
            let after = self.oracle.spec().datagrams[nth].after;
            let due = self.posted_at.saturating_add(after);
            if due > now {
                next = Some(due);
                break;
            }
            wqes.push(Ok(self.request(nth)?));
            self.oracle.posts();
            self.posted_at = now;
        }
        if wqes.is_empty() {
            return Ok(next);
        }
        let more = wqes.len() == 4;
        self.qp
            .post_send(&mut wqes.into_iter())
            .map_err(|(_, why)| self.of_this(&format!("a work request is refused: {why}")))?;
        Ok(if more { Some(now + 1) } else { next })
    }

    fn request(&self, nth: usize) -> Result<SendWqe, String> {
        let spec = self.oracle.spec();
        let datagram = &spec.datagrams[nth];
        let mut ways = self.ways.iter();
        let way = ways.find(|(to, _)| *to == datagram.to);
        let (_, ah) = way.ok_or("a destination has no address handle")?;
        let qpn = match datagram.to {
            To::Endpoint(to) => self.all.qpns[to].get(),
            To::Group(_) => GROUP_QPN,
        };
        let len = datagram.len as usize;
        let sge = self.source.sge(place(nth, len, source_len(spec)), len);
        Ok(SendWqe {
            wr_id: nth as u64,
            op: SendOp::Datagram {
                to: ah.address(qpn, self.all.named_qkey(self.at, datagram)),
                imm: datagram.imm.then(|| (nth as u32).to_be_bytes()),
            },
            data: SendData::Gather(SgList::from_slice(&[sge])),
            signaled: self.oracle.is_signaled(nth),
            ..SendWqe::default()
        })
    }

    /// At the end: memory is as it must be, and all that arrived was received or counted. Gives how
    /// often datagrams came more than once. `all`: the programs of all endpoints.
    pub(crate) fn check_end(&self, all: &[Program]) -> Result<u64, String> {
        let checked = || {
            let inbox = self.inbox.as_ref();
            if !self.source.guards_hold() || inbox.is_some_and(|inbox| !inbox.guards_hold()) {
                return Err("a byte outside of the regions has changed".to_owned());
            }
            if self.is_dead {
                return Ok(0);
            }
            if inbox.is_some_and(|inbox| !inbox.rest_is_empty()) {
                return Err(
                    "a byte of a receive has changed that belongs to no datagram".to_owned(),
                );
            }
            let len = source_len(self.oracle.spec());
            if self
                .source
                .differs(0, source_bytes(self.at, 0, len))
                .is_some()
            {
                return Err("memory that nobody may write has changed".to_owned());
            }
            self.oracle.check_counts(self.come(all), &self.counters())
        };
        checked().map_err(|why| self.of_this(&why))
    }

    /// Packets that have come: those that the network brought, and those of rings, which lose none.
    fn come(&self, all: &[Program]) -> Come {
        let to_this = |from: &Program| from.oracle.sent_to(self.at);
        let sent: u64 = all.iter().map(to_this).sum();
        let by_rings = sent.saturating_sub(self.networked);
        // Of what a dead one had posted, some has left.
        let mut dead = all.iter().filter(|from| from.is_dead);
        Come {
            most: self.arrived + by_rings,
            is_exact: !self.is_lossy && !dead.any(|from| to_this(from) > 0),
        }
    }
}
