//! What the programs of processes do: they take events, answer, send, disconnect, walk away, and
//! check what they hear.

use std::net::{IpAddr, SocketAddr};

use rnic_nic::QpType;
use rnic_nic::cm::{
    ACCEPT_PRIVATE_DATA, CONNECT_PRIVATE_DATA, ConnParam, Event as CmEvent, EventKind, EventParam,
    Id, PortSpace, REJECT_PRIVATE_DATA,
};

use super::queue_pair::QueuePair;
use super::story::{INVALID_SERVICE_ID, Phase, Story};
use super::{Attempt, Event, Process, SECOND, Side, World, in_words};

/// A connection on which messages are under way ends after so long at the latest.
const PATIENCE: u64 = 150 * SECOND;
/// Longer than time-wait takes.
const TIME_WAIT: u64 = 120 * SECOND;
/// A process of the same host learns of a death within so long.
const DEATH_IS_KNOWN: u64 = SECOND;
/// A request that finds no listener may come again for so long.
const ASKS_FOR: u64 = 30 * SECOND;
/// Reason of a REJ (IBTA vol. 1, 12.6.7.2): the consumer's.
const CONSUMER_DEFINED: i32 = 28;
/// Linux's.
const EAGAIN: i32 = 11;
/// Listeners' marks have this bit, others that of their side.
const LISTENER: u64 = 1 << 32;

/// The private data of a message: as long as a field of that length takes.
fn words(what: &str, attempt: u32, len: usize) -> Vec<u8> {
    let mut said = format!("{what} {attempt}.").into_bytes();
    let mut rng = fastrand::Rng::with_seed(u64::from(attempt) ^ len as u64);
    let more = rng.usize(..=len - said.len());
    // No zeros: the field has zeros behind what was said.
    said.extend((0..more).map(|_| rng.u8(1..)));
    said
}

/// What was said is what was heard.
fn check_words(heard: &[u8], what: &str, attempt: u32) -> Result<(), String> {
    let said = words(what, attempt, heard.len());
    let (start, rest) = heard.split_at(said.len());
    match start == said && rest.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err(format!(
            "the private data of attempt {attempt} have changed"
        )),
    }
}

/// The attempt that a request says it is.
fn attempt_of(heard: &[u8]) -> Option<u32> {
    let text = heard.strip_prefix(b"request ")?;
    let end = text.iter().position(|byte| *byte == b'.')?;
    std::str::from_utf8(&text[..end]).ok()?.parse().ok()
}

fn private_data(event: &CmEvent) -> &[u8] {
    match &event.param {
        EventParam::Conn(conn) => &conn.private_data,
        _ => &[],
    }
}

fn param<'a>(queue_pair: &QueuePair, private_data: &'a [u8]) -> ConnParam<'a> {
    ConnParam {
        private_data,
        retry_count: 7,
        rnr_retry_count: 7,
        qp_num: queue_pair.qpn(),
        ..ConnParam::default()
    }
}

impl World {
    pub(super) fn listen(&mut self, process: usize) -> Result<(), String> {
        let Process {
            port,
            backlog,
            host,
            ..
        } = self.processes[process];
        let address = self.machines[host].address;
        let wildcard = self.rng.bool();
        let Some(live) = self.live(process) else {
            return Ok(());
        };
        let listener = Id::new(
            &live.channel,
            PortSpace::Tcp,
            QpType::Rc,
            LISTENER | process as u64,
        )
        .map_err(in_words)?;
        let any = IpAddr::from([0, 0, 0, 0]);
        let to = SocketAddr::new(if wildcard { any } else { address }, port);
        listener.bind(to).map_err(in_words)?;
        listener.listen(backlog).map_err(in_words)?;
        live.listener = Some(listener);
        self.after_call(process);
        Ok(())
    }

    pub(super) fn start(&mut self, attempt: u32) -> Result<(), String> {
        let Attempt { client, server, .. } = self.attempts[attempt as usize];
        let server = &self.processes[server];
        let to = SocketAddr::new(self.machines[server.host].address, server.port);
        let side = self.sides.len();
        let Some(live) = self.live(client) else {
            self.attempts[attempt as usize].is_void = true;
            return Ok(());
        };
        let id =
            Id::new(&live.channel, PortSpace::Tcp, QpType::Rc, side as u64).map_err(in_words)?;
        id.resolve_addr(None, to, 2000).map_err(in_words)?;
        self.add_side(attempt, 0, client, id, Phase::Address);
        self.after_call(client);
        self.look_soon(client);
        Ok(())
    }

    fn add_side(&mut self, attempt: u32, end: usize, process: usize, id: Id, phase: Phase) {
        let side = self.sides.len();
        self.attempts[attempt as usize].sides[end] = Some(side);
        self.sides.push(Side {
            attempt,
            end,
            process,
            id: Some(id),
            queue_pair: None,
            story: Story {
                phase,
                ..Story::default()
            },
            closing: false,
        });
        // Some walk away at any moment.
        if self.rng.u8(..6) == 0 {
            let at = self.now + self.pause();
            self.add(at, Event::WalkAway(side));
        }
    }

    fn peer(&self, side: usize) -> Option<&Side> {
        let Side { attempt, end, .. } = self.sides[side];
        let other = self.attempts[attempt as usize].sides[1 - end]?;
        Some(&self.sides[other])
    }

    /// The program looks at all that it has.
    pub(super) fn look(&mut self, process: usize) -> Result<(), String> {
        loop {
            let Some(live) = self.live(process) else {
                return Ok(());
            };
            let event = match live.channel.get() {
                Ok(event) => event,
                Err(error) if error.errno() == EAGAIN => break,
                Err(error) => return Err(in_words(error)),
            };
            self.digest.word(self.now);
            self.digest
                .word(event.uid << 32 | (event.kind as u64) << 16 | event.status as u16 as u64);
            self.hear(process, event)?;
        }
        let mut came = false;
        for side in 0..self.sides.len() {
            if self.sides[side].process == process {
                came |= self.look_at_messages(side)?;
            }
        }
        self.after_call(process);
        self.processes[process].is_quiet = !came;
        Ok(())
    }

    fn hear(&mut self, process: usize, event: CmEvent) -> Result<(), String> {
        if event.kind == EventKind::ConnectRequest {
            return self.requested(process, event);
        }
        let side = event.uid as usize;
        let Some(known) = self.sides.get_mut(side) else {
            return Err(format!("{:?} for nobody ({})", event.kind, event.uid));
        };
        let (attempt, end) = (known.attempt, known.end);
        let told = |why: String| format!("end {end} of attempt {attempt}: {why}");
        if known.process != process {
            return Err(told(format!("{:?} comes to another process", event.kind)));
        }
        known.story.hear(&event, self.now).map_err(told)?;
        let id = known
            .id
            .clone()
            .ok_or_else(|| told("it has no id".to_owned()))?;
        match event.kind {
            EventKind::AddrResolved => id.resolve_route(2000).map_err(in_words)?,
            EventKind::RouteResolved => self.connect(side, &id).map_err(told)?,
            EventKind::ConnectResponse => {
                check_words(private_data(&event), "answer", attempt)?;
                let at = self.now + self.pause();
                self.add(at, Event::Decide(side));
            }
            EventKind::Established => self.established(side).map_err(told)?,
            EventKind::Rejected => {
                let refused = self.peer(side).is_some_and(|peer| peer.story.refused);
                let consumers = event.status == CONSUMER_DEFINED && refused;
                if consumers {
                    check_words(private_data(&event), "refusal", attempt)?;
                } else if private_data(&event).iter().any(|byte| *byte != 0) {
                    return Err(told("words that nobody has said".to_owned()));
                }
                let server = &self.processes[self.attempts[attempt as usize].server];
                let nobody = server.live.is_none()
                    || server.stops_listening
                    || self.now < server.listens_from + ASKS_FOR;
                if event.status == INVALID_SERVICE_ID && !nobody {
                    return Err(told("a listener is not found".to_owned()));
                }
                self.ended(side)?;
            }
            EventKind::Unreachable => self.ended(side)?,
            EventKind::Disconnected => {
                let elsewhere = self.peer(side).is_some_and(|peer| {
                    let host = |at: usize| self.processes[at].host;
                    peer.story.killed_at.is_some() && host(peer.process) != host(process)
                });
                let asked = self.sides[side].story.asked_to_disconnect;
                self.counts.last_words += u64::from(elsewhere && !asked && event.status == 0);
                if let Some(queue_pair) = &mut self.sides[side].queue_pair {
                    queue_pair.end()?;
                }
                // Most say that they have seen it.
                if self.rng.u8(..4) != 0 {
                    self.disconnect(side)?;
                }
                self.ended(side)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The program has heard of the end; sooner or later it destroys its id.
    fn ended(&mut self, side: usize) -> Result<(), String> {
        let waits_for_time_wait = self.rng.bool() && self.sides[side].story.disconnected.is_some();
        let after = match waits_for_time_wait {
            true => TIME_WAIT,
            false => self.pause(),
        };
        self.add(self.now + after, Event::WalkAway(side));
        Ok(())
    }

    fn requested(&mut self, process: usize, event: CmEvent) -> Result<(), String> {
        let said = private_data(&event);
        let attempt = attempt_of(said).ok_or("a request that nobody has made")?;
        check_words(said, "request", attempt)?;
        let of = self.attempts.get(attempt as usize);
        let of = of.ok_or("a request that nobody has made")?;
        let told = |why: &str| Err(format!("request of attempt {attempt}: {why}"));
        let before = of.sides[1].map(|side| self.sides[side].process);
        // Who asks goes on asking, and may find another process. Of a peer that dies before it is
        // connected nothing is kept in mind, so its request may come once more.
        let asker_is_dead = of.sides[0].is_some_and(|asker| {
            let asker = &self.sides[asker].story;
            asker.killed_at.is_some()
        });
        let lives = |process: usize| self.processes[process].live.is_some();
        let again = before.is_some_and(lives) && !asker_is_dead;
        if of.sides[0].is_none() || again {
            let stories = of.sides.map(|side| side.map(|side| self.sides[side].story));
            return Err(format!(
                "request of attempt {attempt} comes twice: {stories:?}"
            ));
        }
        let server = &self.processes[of.server];
        // Another process may have the port by now.
        if (server.host, server.port)
            != (self.processes[process].host, self.processes[process].port)
            || event.uid != LISTENER | process as u64
        {
            return told("it comes to another listener");
        }
        let side = self.sides.len();
        event.id.set_uid(side as u64);
        self.add_side(attempt, 1, process, event.id, Phase::Request);
        let at = self.now + self.pause();
        self.add(at, Event::Decide(side));
        Ok(())
    }

    fn connect(&mut self, side: usize, id: &Id) -> Result<(), String> {
        let Side {
            attempt, process, ..
        } = self.sides[side];
        let live = self.live(process).ok_or("dead")?;
        let queue_pair = QueuePair::new(&live.context, id, attempt, 0)?;
        let private_data = words("request", attempt, CONNECT_PRIVATE_DATA);
        id.connect(&param(&queue_pair, &private_data))
            .map_err(in_words)?;
        self.sides[side].queue_pair = Some(queue_pair);
        Ok(())
    }

    /// A side answers a request or a response.
    pub(super) fn decide(&mut self, side: usize) -> Result<(), String> {
        let Side {
            attempt,
            end,
            process,
            ..
        } = self.sides[side];
        let Some(id) = self.sides[side].id.clone() else {
            return Ok(());
        };
        if self.sides[side].story.endings() > 0 {
            return Ok(());
        }
        match self.rng.u8(..10) {
            0 => {
                let said = words("refusal", attempt, REJECT_PRIVATE_DATA);
                self.live(process);
                match id.reject(&said, 0) {
                    Ok(()) => {
                        let story = &mut self.sides[side].story;
                        story.refused = true;
                        story.left_at.get_or_insert(self.now);
                        self.walk_away(side)?;
                    }
                    Err(_) => self.too_late(side)?,
                }
            }
            1 => self.walk_away(side)?,
            _ => {
                let live = self.live(process).ok_or("dead")?;
                let done = match end {
                    0 => {
                        let queue_pair = self.sides[side]
                            .queue_pair
                            .as_ref()
                            .ok_or("no queue pair")?;
                        queue_pair.make_ready(&id)?;
                        id.establish()
                    }
                    _ => {
                        let queue_pair = QueuePair::new(&live.context, &id, attempt, 1)?;
                        queue_pair.make_ready(&id)?;
                        let said = words("answer", attempt, ACCEPT_PRIVATE_DATA);
                        let done = id.accept(Some(&param(&queue_pair, &said)), side as u64);
                        self.sides[side].queue_pair = Some(queue_pair);
                        done
                    }
                };
                match (done, end) {
                    (Err(_), _) => self.too_late(side)?,
                    (Ok(()), 0) => {
                        self.sides[side].story.phase = Phase::Established;
                        self.sides[side].story.established = true;
                        self.established(side)?;
                    }
                    (Ok(()), _) => self.sides[side].story.phase = Phase::Accepted,
                }
            }
        }
        self.after_call(process);
        Ok(())
    }

    /// The connection has ended, and the program has not looked yet, or never hears of it: what
    /// happens to a request before it is taken is told by no event, as in Linux.
    fn too_late(&mut self, side: usize) -> Result<(), String> {
        self.sides[side].story.was_too_late = true;
        match self.sides[side].end {
            0 => Ok(()),
            _ => self.walk_away(side),
        }
    }

    fn established(&mut self, side: usize) -> Result<(), String> {
        let Side {
            attempt,
            end,
            process,
            ..
        } = self.sides[side];
        let count = self.attempts[attempt as usize].sends[end];
        if let Some(queue_pair) = &mut self.sides[side].queue_pair {
            queue_pair.send(count)?;
        }
        self.add(self.now + PATIENCE, Event::LosePatience(side));
        self.look_soon(process);
        Ok(())
    }

    fn has_all(&self, side: usize) -> bool {
        let Side {
            attempt,
            end,
            story,
            ..
        } = &self.sides[side];
        let sends = self.attempts[*attempt as usize].sends;
        story.messages.completed == sends[*end] && story.messages.received == sends[1 - *end]
    }

    fn look_at_messages(&mut self, side: usize) -> Result<bool, String> {
        let Side {
            attempt,
            end,
            process,
            ..
        } = self.sides[side];
        self.live(process);
        let known = &mut self.sides[side];
        let Some(queue_pair) = &mut known.queue_pair else {
            return Ok(false);
        };
        let told = |why: String| format!("end {end} of attempt {attempt}: {why}");
        let came = queue_pair.poll().map_err(told)?;
        known.story.messages.completed = queue_pair.completed;
        known.story.messages.received = queue_pair.received;
        let broken = queue_pair.is_broken;
        let open = known.story.established && known.story.endings() == 0 && !known.closing;
        if open && (broken || self.has_all(side)) {
            let peer_is_there = self.peer(side).is_some_and(|peer| {
                !peer.story.is_over()
                    && peer.story.endings() == 0
                    && !peer.story.asked_to_disconnect
            });
            if broken && peer_is_there {
                return Err(told(
                    "its queue pair fails, and the peer is there".to_owned(),
                ));
            }
            self.sides[side].closing = true;
            // One side may leave it to the other.
            if end == 0 || self.rng.bool() || broken {
                let at = self.now + self.pause() + self.rng.u64(..4 * SECOND);
                self.add(at, Event::Close(side));
            }
        }
        Ok(came)
    }

    pub(super) fn close(&mut self, side: usize) -> Result<(), String> {
        let story = &self.sides[side].story;
        if story.is_over() || story.endings() > 0 || story.asked_to_disconnect {
            return Ok(());
        }
        match self.rng.u8(..4) {
            0 => self.walk_away(side),
            _ => self.disconnect(side),
        }
    }

    fn disconnect(&mut self, side: usize) -> Result<(), String> {
        let process = self.sides[side].process;
        let Some(id) = self.sides[side].id.clone() else {
            return Ok(());
        };
        self.live(process);
        id.disconnect().map_err(in_words)?;
        let story = &mut self.sides[side].story;
        story.asked_to_disconnect = true;
        story.left_at.get_or_insert(self.now);
        self.after_call(process);
        Ok(())
    }

    pub(super) fn lose_patience(&mut self, side: usize) -> Result<(), String> {
        let story = &self.sides[side].story;
        if story.is_over() || story.endings() > 0 || story.asked_to_disconnect {
            return Ok(());
        }
        let peer_is_there = self.peer(side).is_some_and(|peer| {
            peer.story.established && !peer.story.is_over() && peer.story.endings() == 0
        });
        if peer_is_there && !self.has_all(side) {
            let Side { attempt, end, .. } = self.sides[side];
            return Err(format!(
                "end {end} of attempt {attempt} waits for messages: {story:?}"
            ));
        }
        self.disconnect(side)
    }

    pub(super) fn walk_away(&mut self, side: usize) -> Result<(), String> {
        let process = self.sides[side].process;
        if self.sides[side].id.is_none() {
            return Ok(());
        }
        // What came so far counts.
        self.look_at_messages(side)?;
        self.live(process);
        let known = &mut self.sides[side];
        known.story.destroyed = true;
        known.story.left_at.get_or_insert(self.now);
        let (id, queue_pair) = (known.id.take(), known.queue_pair.take());
        if self.rng.bool() {
            drop(id);
            drop(queue_pair);
        } else {
            drop(queue_pair);
            drop(id);
        }
        self.after_call(process);
        Ok(())
    }

    pub(super) fn kill(&mut self, process: usize) -> Result<(), String> {
        let sides: Vec<usize> = (0..self.sides.len())
            .filter(|side| {
                self.sides[*side].process == process && !self.sides[*side].story.is_over()
            })
            .collect();
        for side in &sides {
            self.look_at_messages(*side)?;
        }
        self.carry(process);
        let Some(live) = self.live(process) else {
            return Ok(());
        };
        live.device.kill();
        self.counts.killed += 1;
        for side in sides {
            let known = &mut self.sides[side];
            known.story.killed_at = Some(self.now);
            known.story.left_at.get_or_insert(self.now);
            (known.id, known.queue_pair) = (None, None);
        }
        let mut others: Vec<usize> = (0..self.sides.len()).collect();
        others.retain(|side| self.is_told_of_death(*side, process));
        for side in others {
            let lazy = self.processes[self.sides[side].process].lazy;
            let at = self.now + DEATH_IS_KNOWN + lazy;
            self.add(at, Event::DeathIsKnown(side));
        }
        self.processes[process].live = None;
        // Another one may take its place.
        if self.rng.bool() {
            let Process { host, port, .. } = self.processes[process];
            self.begin_process(host, port)?;
        }
        Ok(())
    }
}

impl World {
    /// It has a connection with that process, on the same host, and knows with whom.
    fn is_told_of_death(&self, side: usize, process: usize) -> bool {
        let Side {
            process: own,
            story,
            ..
        } = &self.sides[side];
        let is_open = !story.is_over() && story.endings() == 0;
        let knows = !matches!(story.phase, Phase::Address | Phase::Route | Phase::Asked);
        // A peer that left before has said so, perhaps before its request was taken.
        let with_it = self
            .peer(side)
            .is_some_and(|peer| peer.process == process && peer.story.killed_at.is_some());
        let host = |at: usize| self.processes[at].host;
        is_open && knows && with_it && *own != process && host(*own) == host(process)
    }
}
