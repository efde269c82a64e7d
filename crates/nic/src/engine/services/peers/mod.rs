//! What processes of one user do for each other: an XRC target takes requests for shared receive
//! queues that another process of its XRC domain owns, and that process executes them; and a
//! process that was given a context's `cmd_fd` imports objects of it; and each tells what it has to
//! whoever looks ([`crate::engine::resources`]).
//!
//! | file | duty |
//! | --- | --- |
//! | `message` | what is said, byte by byte |
//! //! | `export` | what others may use of this process: domains, regions, device memory |
//! | `import` | what was asked for, and answered ([`mod@crate::objects`] asks) |
//! | `owner` | executing for the targets of other processes |
//! | `mod` | who is asked what, and what becomes of the answers |
//!
//! Nobody waits for anybody: two engines that waited for each other with their locks held would do
//! so for ever. A question is a message over a connection of `rnic_host::Peers`; the answer is
//! taken in by a later round of the engine. A process that ends is as one whose queues were
//! destroyed; one that runs and says nothing for [`ANSWER_TIMEOUT_NS`] as one that cannot write to
//! its receives. One that is stopped is waited for.

mod export;
mod import;
mod message;
mod owner;

use std::collections::{HashSet, VecDeque};

use rnic_host::{Heard, PeerId};
use rnic_link::Port;
use rnic_sys::Fd;
use rnic_transport::{QueuePair, RemoteFault, Time, Verdict};
use rnic_wire::Packet;

use crate::engine::resources::{Kind, Page};
use crate::engine::tables::remote_srq::{NO_SRQ, RemoteSrq, UNANSWERED};
use crate::engine::{Common, Engine, QpEntry, QpTable, SrqTable, Timers, lend, settle};
use crate::memory::MemoryTable;
use crate::queues::{Domains, ReceiveSource};
use export::Exports;
pub(crate) use export::{Imports, Named};
use import::Imported;
pub(crate) use import::{Answer, granted};
pub(crate) use message::{Message, Object, Token};
use message::{Packets, Target, rights};
use owner::{DeviceParts, Owner};

/// How long an answer is waited for.
const ANSWER_TIMEOUT_NS: u64 = 2_000_000_000;

/// Most entries of who was shown what.
const MOST_JOINED: usize = 4096;

/// What this process has to do with others.
#[derive(Debug, Default)]
pub(crate) struct Neighbourhood {
    owner: Owner,
    /// Queue pairs that have something to ask.
    questions: Vec<u32>,
    /// Who was shown the file of which domain.
    joined: HashSet<(PeerId, u32)>,
    /// When which queue pair has waited long enough, in the order of time.
    waiting: VecDeque<(u64, u32)>,
    last_request: u32,
    pub(crate) exports: Exports,
    pub(crate) imported: Imported,
}

impl Neighbourhood {
    /// A queue pair was fed `bytes`, or polled: has it something to ask?
    pub(crate) fn note(&mut self, entry: &mut QpEntry, bytes: Option<&[u8]>) {
        let error = entry.transport.is_error();
        let Some(remote_srq) = &mut entry.remote_srq else {
            return;
        };
        let referred = bytes.is_some_and(|bytes| remote_srq.take_referral(bytes));
        if referred || error || remote_srq.has_question() {
            self.questions.push(entry.shared.qpn);
        }
    }

    #[inline]
    pub(crate) fn has_questions(&self) -> bool {
        !self.questions.is_empty()
    }

    /// When somebody has waited long enough.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.waiting.front().map(|(at, _)| *at)
    }

    /// Those who execute for a queue pair learn that it is gone, or (`flush`) in ERR.
    pub(crate) fn take_leave(&mut self, entry: &QpEntry, flush: bool, link: &mut Port) {
        let (Some(remote_srq), Some(neighbours)) = (&entry.remote_srq, link.neighbours()) else {
            return;
        };
        let qpn = entry.shared.qpn;
        let message = Message::Leave { qpn, flush }.encode();
        for peer in &remote_srq.known_to {
            let _ = neighbours.say(*peer, &message, Vec::new());
        }
    }

    /// A region is deregistered, or is another one now: importers lose it.
    pub(crate) fn revoke(&mut self, key: u32) -> Imports {
        self.exports.revoke(key)
    }

    /// The numbers of the contexts that are open.
    pub(crate) fn contexts(&self) -> impl Iterator<Item = u64> {
        self.exports.contexts()
    }

    pub(crate) fn next_request(&mut self) -> u32 {
        self.last_request = self.last_request.wrapping_add(1);
        self.last_request
    }

    /// Asks the owner of `srqn`; it is told before which domain is meant. `None`: there is nobody
    /// to ask.
    fn ask(
        &mut self,
        link: &mut Port,
        srqn: u32,
        source: &ReceiveSource,
        known_to: &mut Vec<PeerId>,
        message: &Message<'_>,
    ) -> Option<PeerId> {
        let ReceiveSource::Xrc(domain) = source else {
            return None;
        };
        let peer = link.owner_of(srqn).ok()?;
        let neighbours = link.neighbours()?;
        let number = domain.number();
        if !self.joined.contains(&(peer, number)) {
            let file = domain.file()?.descriptor().ok()?;
            let join = Message::Join { domain: number }.encode();
            neighbours.say(peer, &join, vec![file]).ok()?;
            // Numbers of domains that are closed are not taken out; who was shown a file may be
            // shown it again.
            if self.joined.len() >= MOST_JOINED {
                self.joined.clear();
            }
            self.joined.insert((peer, number));
        }
        neighbours.say(peer, &message.encode(), Vec::new()).ok()?;
        if !known_to.contains(&peer) {
            known_to.push(peer);
        }
        Some(peer)
    }
}

/// The question which objects of a kind a process has, from a place on; for who asks from outside.
pub(crate) fn list_question(kind: Kind, from: u32) -> Vec<u8> {
    let list = Message::List {
        request: 0,
        kind: kind as u8,
        from,
    };
    list.encode()
}

/// The answer to it: where the next are, and the records. `None`: it is none.
pub(crate) fn listed(answer: &[u8]) -> Option<(u32, &[u8])> {
    match Message::decode(answer) {
        Some(Message::Listed { next, bytes, .. }) => Some((next, bytes)),
        _ => None,
    }
}

/// The parts of the engine that answers are taken in with.
struct Parts<'a> {
    qps: &'a mut QpTable,
    memory: &'a MemoryTable,
    srqs: &'a SrqTable,
    ready: &'a mut VecDeque<u32>,
    timers: &'a mut Timers,
    hood: &'a mut Neighbourhood,
    domains: &'a Domains,
    common: &'a Common,
    now: u64,
}

impl Engine {
    /// Takes in what other processes have said; how much. Without `all`, strangers may wait.
    #[inline]
    pub(crate) fn hear_neighbours(&mut self, now: u64, all: bool) -> usize {
        let heard = match self.link.neighbours() {
            Some(neighbours) if all || neighbours.has_peers() => self.hear_them(now),
            _ => 0,
        };
        if self.neighbours.deadline().is_some_and(|at| at <= now) {
            self.give_up_waiting(now);
        }
        if self.neighbours.has_questions() {
            self.ask_neighbours(now);
        }
        heard
    }

    fn parts(&mut self, now: u64) -> (Parts<'_>, &mut Port) {
        let Engine {
            link,
            memory,
            srqs,
            qps,
            ready,
            timers,
            neighbours,
            domains,
            common,
            ..
        } = self;
        let parts = Parts {
            qps,
            memory,
            srqs,
            ready,
            timers,
            hood: neighbours,
            domains,
            common,
            now,
        };
        (parts, link)
    }

    fn hear_them(&mut self, now: u64) -> usize {
        let (mut parts, link) = self.parts(now);
        let Some(neighbours) = link.neighbours() else {
            return 0;
        };
        let mut answers = Vec::new();
        let mut hellos = Vec::new();
        let mut lists = Vec::new();
        let mut nonsense = Vec::new();
        let heard = neighbours.hear(&mut |peer, heard| match heard {
            Heard::Message { bytes, fds } => match Message::decode(bytes) {
                Some(Message::Hello { request, token }) => hellos.push((peer, request, token)),
                Some(Message::List {
                    request,
                    kind,
                    from,
                }) => lists.push((peer, request, kind, from)),
                Some(message) => {
                    let answer = parts.hear(peer, message, fds);
                    answers.extend(answer.map(|answer| (peer, answer)));
                }
                None => nonsense.push(peer),
            },
            Heard::Gone => parts.lost(peer),
        });
        for (peer, answer) in answers {
            // Whoever is gone needs none.
            let _ = neighbours.say(peer, &answer, Vec::new());
        }
        for (peer, request, token) in hellos {
            let Some(pid) = neighbours.pid(peer) else {
                continue;
            };
            let (answer, fds) = parts.hood.exports.hello(peer, pid, request, &token);
            let _ = neighbours.say(peer, &answer, fds);
        }
        for peer in nonsense {
            neighbours.leave(peer);
        }
        for (peer, request, kind, from) in lists {
            self.tell_resources(peer, request, kind, from);
        }
        self.report_losses(now);
        heard
    }

    /// Answers [`Message::List`].
    #[cold]
    fn tell_resources(&mut self, peer: PeerId, request: u32, kind: u8, from: u32) {
        let page = match Kind::of(kind) {
            Some(kind) => self.resources(kind, from),
            None => Page::default(),
        };
        let listed = Message::Listed {
            request,
            next: page.next,
            bytes: &page.bytes,
        };
        if let Some(neighbours) = self.link.neighbours() {
            let _ = neighbours.say(peer, &listed.encode(), Vec::new());
        }
    }

    /// No descriptor becomes readable for who was left: those who wait for him learn it now.
    fn report_losses(&mut self, now: u64) {
        let (mut parts, link) = self.parts(now);
        if let Some(neighbours) = link.neighbours()
            && neighbours.has_losses()
        {
            neighbours.take_losses(&mut |peer| parts.lost(peer));
        }
    }

    /// Asks what queue pairs have to ask.
    #[cold]
    pub(crate) fn ask_neighbours(&mut self, now: u64) {
        let questions = std::mem::take(&mut self.neighbours.questions);
        let (mut parts, link) = self.parts(now);
        for qpn in questions {
            parts.ask(qpn, link);
        }
        self.report_losses(now);
    }

    #[cold]
    fn give_up_waiting(&mut self, now: u64) {
        let (mut parts, link) = self.parts(now);
        while let Some((at, qpn)) = parts.hood.waiting.front().copied() {
            if at > now {
                break;
            }
            parts.hood.waiting.pop_front();
            parts.give_up(qpn, now, link);
        }
    }
}

impl Parts<'_> {
    /// Takes in a message; the answer to it.
    fn hear(&mut self, peer: PeerId, message: Message<'_>, fds: &mut Vec<Fd>) -> Option<Vec<u8>> {
        let device = DeviceParts {
            memory: self.memory,
            srqs: self.srqs,
        };
        let owner = &mut self.hood.owner;
        match message {
            Message::Join { domain } => {
                owner.join(peer, domain, fds.pop()?, self.domains);
                None
            }
            Message::Execute {
                request,
                target,
                packets,
            } => {
                // Windows bound to a queue pair of this process are not for others.
                let qpn = target.qpn;
                let packets = Some(packets).filter(|_| self.common.shard_of(qpn).is_none());
                Some(owner.execute(peer, request, target, packets, device))
            }
            Message::Read { qpn, .. } => {
                let honest = self.common.shard_of(qpn).is_none();
                Some(owner.read(peer, message, honest, device))
            }
            Message::Leave { qpn, flush } => {
                owner.leave(peer, qpn, flush, device);
                None
            }
            // Told by the whole engine. What nobody here has asked for.
            Message::Hello { .. } | Message::List { .. } | Message::Listed { .. } => None,
            Message::Import {
                request,
                token,
                object,
            } => {
                let exports = &mut self.hood.exports;
                Some(exports.import(peer, request, &token, object, device.memory))
            }
            Message::Unimport { object } => {
                self.hood.exports.unimport(peer, object);
                None
            }
            Message::ImportAnswer { .. } => self.hood.imported.on_answer(peer, message, fds),
            Message::Verdicts {
                request,
                qpn,
                verdicts,
            } => {
                let asked = |remote_srq: &RemoteSrq| {
                    remote_srq.asked == Some(peer) && remote_srq.request == request
                };
                if verdicts.iter().any(|verdict| verdict == NO_SRQ) {
                    self.show_domain_again(peer, qpn);
                }
                self.executed(qpn, asked, &mut verdicts.iter());
                None
            }
            Message::Data {
                request,
                qpn,
                bytes,
            } => {
                let asked = |remote_srq: &RemoteSrq| {
                    remote_srq.read.asked == Some(peer) && remote_srq.read.request == request
                };
                if bytes.is_err() {
                    self.show_domain_again(peer, qpn);
                }
                self.read(qpn, asked, bytes);
                None
            }
        }
    }

    /// The domain of a queue pair may not have been open there when its file was shown.
    #[cold]
    fn show_domain_again(&mut self, peer: PeerId, qpn: u32) {
        if let Some(entry) = self.qps.get_mut(qpn)
            && let ReceiveSource::Xrc(domain) = &entry.shared.source
        {
            self.hood.joined.remove(&(peer, domain.number()));
        }
    }

    /// Verdicts have come for the batch of a queue pair that waits for these.
    fn executed(
        &mut self,
        qpn: u32,
        asked: impl Fn(&RemoteSrq) -> bool,
        verdicts: &mut dyn Iterator<Item = Verdict>,
    ) {
        let Some(entry) = self.qps.get_mut(qpn) else {
            return;
        };
        let Some(remote_srq) = entry.remote_srq.as_deref_mut().filter(|e| asked(e)) else {
            return;
        };
        let mut batch = remote_srq.take_batch().into_iter();
        // Of the first something is said in any case, so that what follows comes to an end.
        let mut verdict = verdicts.next().or(Some(NO_SRQ));
        while let Some(now) = verdict {
            let Some(bytes) = batch.next() else { break };
            if let (Ok(packet), (QueuePair::Rc(rc), mut device)) =
                (Packet::parse(&bytes), lend(entry, self.memory, self.srqs))
            {
                rc.executed_by_srq_owner(&packet, now, &mut device);
            }
            match now {
                Verdict::Executed { .. } => verdict = verdicts.next(),
                // Those behind it will come again, or not at all.
                _ => batch = Vec::new().into_iter(),
            }
        }
        if let Some(remote_srq) = &mut entry.remote_srq {
            remote_srq.keep_again(batch);
        }
        self.feed_kept(qpn);
    }

    /// What had to wait is fed, up to what has to be asked about.
    fn feed_kept(&mut self, qpn: u32) {
        let Some(entry) = self.qps.get_mut(qpn) else {
            return;
        };
        while let Some(remote_srq) = &mut entry.remote_srq
            && !remote_srq.is_waiting()
            && let Some(bytes) = remote_srq.next_kept()
        {
            if let (Ok(packet), (QueuePair::Rc(rc), mut device)) =
                (Packet::parse(&bytes), lend(entry, self.memory, self.srqs))
            {
                rc.handle_packet(Time(self.now), &packet, &mut device);
            }
            self.hood.note(entry, Some(&bytes));
        }
        self.hood.note(entry, None);
        settle(entry, self.ready, self.timers);
    }

    /// Bytes have come, or a fault, for a READ of a queue pair that waits for these.
    fn read(
        &mut self,
        qpn: u32,
        asked: impl Fn(&RemoteSrq) -> bool,
        bytes: Result<&[u8], RemoteFault>,
    ) {
        let Some(entry) = self.qps.get_mut(qpn) else {
            return;
        };
        let Some(remote_srq) = entry.remote_srq.as_deref_mut().filter(|e| asked(e)) else {
            return;
        };
        remote_srq.came(bytes);
        if let QueuePair::Rc(rc) = &mut entry.transport {
            rc.memory_came();
        }
        settle(entry, self.ready, self.timers);
    }

    /// A queue pair asks what it has to ask.
    fn ask(&mut self, qpn: u32, link: &mut Port) {
        let Some(entry) = self.qps.get_mut(qpn) else {
            return;
        };
        if entry.transport.is_error() {
            self.hood.take_leave(entry, true, link);
            entry.remote_srq = entry.remote_srq.take().and_then(|e| e.only_read());
            entry.update_fast_path();
        }
        let target = target_of(entry);
        let Some(remote_srq) = &mut entry.remote_srq else {
            return;
        };
        let source = &entry.shared.source;
        let deadline = self.now.saturating_add(ANSWER_TIMEOUT_NS);
        if remote_srq.is_waiting()
            && remote_srq.asked.is_none()
            && let Some(srqn) = remote_srq.srqn()
        {
            remote_srq.fill_batch();
            let packets = Packets::encode(remote_srq.batch.iter().map(|bytes| &**bytes));
            let request = self.hood.next_request();
            let message = Message::Execute {
                request,
                target,
                packets: Packets::of(&packets),
            };
            let known_to = &mut remote_srq.known_to;
            remote_srq.asked = self.hood.ask(link, srqn, source, known_to, &message);
            remote_srq.request = request;
            remote_srq.deadline = deadline;
            if remote_srq.asked.is_some() {
                self.hood.waiting.push_back((deadline, qpn));
            } else {
                self.executed(qpn, |_| true, &mut std::iter::once(NO_SRQ));
                // It may be in ERR now, and then nobody is to be asked any more.
                return;
            }
        }
        let Some(entry) = self.qps.get_mut(qpn) else {
            return;
        };
        let source = &entry.shared.source;
        if let Some(remote_srq) = &mut entry.remote_srq
            && remote_srq.has_question()
            && let Some(wanted) = remote_srq.read.wanted
        {
            let request = self.hood.next_request();
            let message = Message::Read {
                request,
                qpn,
                domain: target.domain,
                srqn: wanted.srqn,
                rkey: wanted.rkey,
                va: wanted.va,
                len: wanted.len,
            };
            let known_to = &mut remote_srq.known_to;
            let peer = self.hood.ask(link, wanted.srqn, source, known_to, &message);
            remote_srq.read.asked = peer;
            remote_srq.read.request = request;
            remote_srq.read.deadline = deadline;
            if peer.is_some() {
                self.hood.waiting.push_back((deadline, qpn));
            } else {
                self.read(qpn, |_| true, Err(RemoteFault::UnknownKey));
            }
        }
    }

    /// A queue pair has waited long enough for what it asked then, unless who was asked is stopped.
    fn give_up(&mut self, qpn: u32, now: u64, link: &mut Port) {
        if self.waits_for_stopped(qpn, now, link) {
            return;
        }
        let batch = |e: &RemoteSrq| e.asked.is_some() && e.deadline <= now;
        self.executed(qpn, batch, &mut std::iter::once(UNANSWERED));
        let read = |e: &RemoteSrq| e.read.asked.is_some() && e.read.deadline <= now;
        self.read(qpn, read, Err(RemoteFault::Unmapped));
        if self
            .qps
            .get_mut(qpn)
            .is_some_and(|entry| entry.transport.is_error())
        {
            self.ask(qpn, link);
        }
    }

    /// A card executes for a stopped program. Here the request waits until the process goes on.
    fn waits_for_stopped(&mut self, qpn: u32, now: u64, link: &mut Port) -> bool {
        let Some(remote_srq) = self.qps.get_mut(qpn).and_then(|e| e.remote_srq.as_mut()) else {
            return false;
        };
        let batch = remote_srq.asked.filter(|_| remote_srq.deadline <= now);
        let read = remote_srq
            .read
            .asked
            .filter(|_| remote_srq.read.deadline <= now);
        let mut asked = batch.into_iter().chain(read);
        let stopped = asked.any(|peer| link.neighbour_is_stopped(peer, now));
        // One that goes on now has as long as others have.
        let was_stopped = std::mem::replace(&mut remote_srq.stopped, stopped);
        if !stopped && !was_stopped {
            return false;
        }
        let deadline = now.saturating_add(ANSWER_TIMEOUT_NS);
        if batch.is_some() {
            remote_srq.deadline = deadline;
        }
        if read.is_some() {
            remote_srq.read.deadline = deadline;
        }
        self.hood.waiting.push_back((deadline, qpn));
        true
    }

    /// A process is gone.
    fn lost(&mut self, peer: PeerId) {
        self.hood.owner.forget(peer, self.srqs);
        self.hood.exports.forget(peer);
        self.hood.imported.forget(peer);
        self.hood.joined.retain(|(who, _)| *who != peer);
        for qpn in self.qps.qpns() {
            let Some(entry) = self.qps.get_mut(qpn) else {
                continue;
            };
            let Some(remote_srq) = &mut entry.remote_srq else {
                continue;
            };
            remote_srq.known_to.retain(|who| *who != peer);
            let asked = |e: &RemoteSrq| e.asked == Some(peer);
            self.executed(qpn, asked, &mut std::iter::once(NO_SRQ));
            let asked = |e: &RemoteSrq| e.read.asked == Some(peer);
            self.read(qpn, asked, Err(RemoteFault::UnknownKey));
        }
    }
}

fn target_of(entry: &QpEntry) -> Target {
    let number = match &entry.shared.source {
        ReceiveSource::Xrc(domain) => domain.number(),
        ReceiveSource::Own | ReceiveSource::Srq(_) => 0,
    };
    let mut target = Target {
        qpn: entry.shared.qpn,
        dest_qpn: 0,
        mtu: 0,
        rights: 0,
        domain: number,
    };
    if let QueuePair::Rc(rc) = &entry.transport {
        let attr = rc.attr();
        target.dest_qpn = attr.dest_qpn;
        target.mtu = attr.mtu.to_ibv() as u8;
        for (given, right) in [
            (attr.remote_write, rights::WRITE),
            (attr.remote_read, rights::READ),
            (attr.remote_atomic, rights::ATOMIC),
            (attr.flush.global, rights::FLUSH_GLOBAL),
            (attr.flush.persistent, rights::FLUSH_PERSISTENT),
        ] {
            if given {
                target.rights |= right;
            }
        }
    }
    target
}
