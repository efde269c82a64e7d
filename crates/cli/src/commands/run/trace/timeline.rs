//! The times of each work request, put together from what processes noted and what was captured.
//!
//! A queue pair's messages are on the wire in the order in which they were posted, so the n-th
//! request that sends something is the n-th message. Packets that both ends captured are in the
//! captures twice, sent and received: each kind is dissected for itself, which gives the times at
//! both ends of the wire.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use rnic_dissect::{Capture, Conversation, Decoder, Dissector, Limits, Message, Outcome};
use serde::Serialize;

use super::Run;
use super::event::{Completed, Event, Polled, Posted};

/// Requests that are shown: the first ones.
const MOST: usize = 2000;
/// Captured packets that are looked at.
const MOST_FRAMES: usize = 1_000_000;
/// Packet type of Linux cooked captures: sent by this host.
const SLL_SENT: [u8; 2] = [0, 4];

/// The way of a request. Times are ns of CLOCK_REALTIME; null: not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Request {
    pub pid: u32,
    pub qpn: u32,
    pub qp_type: String,
    pub peer_qpn: Option<u32>,
    pub wr_id: u64,
    pub operation: String,
    pub bytes: u64,
    pub signaled: bool,
    pub inline: bool,
    pub packets: Option<u32>,
    /// Packets that were sent again.
    pub repeated: u32,
    /// `enum ibv_wc_status`; null: it has no completion.
    pub status: Option<u64>,
    pub posted: u64,
    pub first_sent: Option<u64>,
    pub last_sent: Option<u64>,
    pub first_arrived: Option<u64>,
    pub last_arrived: Option<u64>,
    /// The peer's receive has its completion.
    pub receive_completed: Option<u64>,
    /// The peer's program has it.
    pub receive_polled: Option<u64>,
    pub answer_sent: Option<u64>,
    pub answer_arrived: Option<u64>,
    pub completed: Option<u64>,
    pub polled: Option<u64>,
}

/// Which packets: those that their sender wrote, those that their receiver wrote, or each once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Sent,
    Received,
    Once,
}

/// Frames of all captures, in the order of time.
fn frames(captures: &[&[u8]]) -> Vec<(u64, u16, Vec<u8>)> {
    let mut all = Vec::new();
    for capture in captures {
        let mut decoder = Decoder::new();
        decoder.feed(capture);
        // The last record may be cut short.
        while let Ok(Some(frame)) = decoder.next_frame() {
            if all.len() == MOST_FRAMES {
                break;
            }
            all.push((frame.time_ns, frame.link_type, frame.bytes.to_vec()));
        }
    }
    all.sort_by_key(|(time, ..)| *time);
    all
}

fn dissect(frames: &[(u64, u16, Vec<u8>)], seen: Seen) -> Capture {
    let mut dissector = Dissector::new(Limits::default());
    for (number, (time_ns, link_type, bytes)) in (1..).zip(frames) {
        let sent = bytes.starts_with(&SLL_SENT);
        if seen == Seen::Once || sent == (seen == Seen::Sent) {
            let frame = rnic_dissect::Frame {
                number,
                time_ns: *time_ns,
                link_type: *link_type,
                interface: 0,
                wire_len: bytes.len() as u32,
                bytes,
            };
            dissector.frame(&frame, |_, _| {});
        }
    }
    dissector.finish().capture
}

/// A direction of a conversation, and the first PSN of a message in it.
type Key = (IpAddr, IpAddr, Option<u32>, u32);

fn key(conversation: &Conversation, end: usize, message: &Message) -> Key {
    let [own, peer] = [conversation.ends[end], conversation.ends[end ^ 1]];
    (own.addr, peer.addr, peer.qpn, message.psn.value())
}

/// All messages of a capture. Of a PSN that came again the first counts: the others are sixteen
/// million packets later.
fn messages(capture: &Capture) -> HashMap<Key, &Message> {
    let mut all = HashMap::new();
    for conversation in &capture.conversations {
        for end in 0..2 {
            for message in &conversation.sides[end].messages {
                all.entry(key(conversation, end, message))
                    .or_insert(message);
            }
        }
    }
    all
}

fn answered(message: &Message) -> Option<u64> {
    match message.outcome {
        Outcome::Done { time, .. } | Outcome::Refused { time, .. } => Some(time),
        _ => None,
    }
}

/// What a process noted of one queue, in order.
#[derive(Default)]
struct Queue<'a> {
    posted: Vec<&'a Posted>,
    sends: VecDeque<&'a Completed>,
    receives: Vec<&'a Completed>,
    sends_polled: VecDeque<&'a Polled>,
    receives_polled: Vec<&'a Polled>,
}

fn queues<'a>(events: impl Iterator<Item = &'a Event>) -> HashMap<(u32, u32), Queue<'a>> {
    let mut queues: HashMap<(u32, u32), Queue<'a>> = HashMap::new();
    for event in events {
        match event {
            Event::Posted(it) => queues.entry((it.pid, it.qpn)).or_default().posted.push(it),
            Event::Completed(it) => {
                let queue = queues.entry((it.pid, it.qpn)).or_default();
                match it.receive {
                    true => queue.receives.push(it),
                    false => queue.sends.push_back(it),
                }
            }
            Event::Polled(it) => {
                let queue = queues.entry((it.pid, it.qpn)).or_default();
                match it.receive {
                    true => queue.receives_polled.push(it),
                    false => queue.sends_polled.push_back(it),
                }
            }
        }
    }
    queues
}

/// The requests of a run, in the order in which they were posted.
pub fn of(own: &Run, others: &[Run]) -> Vec<Request> {
    let captures: Vec<&[u8]> = std::iter::once(own)
        .chain(others)
        .map(|run| &run.capture[..])
        .collect();
    let frames = frames(&captures);
    let once = dissect(&frames, Seen::Once);
    let (sent, received) = (
        dissect(&frames, Seen::Sent),
        dissect(&frames, Seen::Received),
    );
    let (sent, received) = (messages(&sent), messages(&received));
    let mine = queues(own.events.iter());
    let all = queues(
        own.events
            .iter()
            .chain(others.iter().flat_map(|it| &it.events)),
    );
    let mut requests = Vec::new();
    for ((_, qpn), queue) in &mine {
        let wire = once.conversations.iter().find_map(|conversation| {
            let end = (0..2).find(|end| {
                let known = conversation.ends[*end].qpn == Some(*qpn);
                known && !conversation.sides[*end].messages.is_empty()
            })?;
            Some((conversation, end))
        });
        let peer_qpn = wire.and_then(|(conversation, end)| conversation.ends[end ^ 1].qpn);
        let peer = peer_qpn.and_then(|peer| {
            let mut all = all.iter();
            all.find(|((pid, known), _)| *known == peer && (*pid, *known) != (queue.pid(), *qpn))
        });
        add(
            queue,
            wire,
            peer.map(|(_, queue)| queue),
            &sent,
            &received,
            &mut requests,
        );
    }
    requests.sort_by_key(|request| request.posted);
    requests.truncate(MOST);
    requests
}

impl Queue<'_> {
    fn pid(&self) -> u32 {
        self.posted.first().map_or(0, |posted| posted.pid)
    }
}

/// Does a message of this kind take a receive?
fn takes_receive(operation: &str) -> bool {
    operation.starts_with("SEND") || operation == "RDMA WRITE with immediate"
}

fn add(
    queue: &Queue<'_>,
    wire: Option<(&Conversation, usize)>,
    peer: Option<&Queue<'_>>,
    sent: &HashMap<Key, &Message>,
    received: &HashMap<Key, &Message>,
    out: &mut Vec<Request>,
) {
    let (mut completions, mut polls) = (queue.sends.clone(), queue.sends_polled.clone());
    let (mut message_id, mut receive) = (0, 0);
    for posted in &queue.posted {
        let mut request = Request {
            pid: posted.pid,
            qpn: posted.qpn,
            qp_type: posted.qp_type.clone(),
            peer_qpn: wire.and_then(|(conversation, end)| conversation.ends[end ^ 1].qpn),
            wr_id: posted.wr_id,
            operation: posted.operation.clone(),
            bytes: posted.bytes,
            signaled: posted.signaled,
            inline: posted.inline,
            posted: posted.time_ns,
            ..Request::default()
        };
        // Completions are in order, and one that failed has one whether it is signaled or not.
        let own = completions
            .front()
            .is_some_and(|it| it.wr_id == posted.wr_id && (posted.signaled || it.status != 0));
        if own && let Some(completed) = completions.pop_front() {
            request.completed = Some(completed.time_ns);
            request.status = Some(completed.status);
            if polls.front().is_some_and(|it| it.wr_id == posted.wr_id) {
                request.polled = polls.pop_front().map(|it| it.time_ns);
            }
        }
        if !posted.local {
            message_id += 1;
            if let Some((conversation, end)) = wire {
                see(&mut request, conversation, end, message_id, sent, received);
            }
            // Over services that lose messages nobody knows which receive was whose.
            if takes_receive(&posted.operation) && posted.qp_type == "RC" {
                if let Some(peer) = peer {
                    let time = |it: &&Completed| it.time_ns;
                    request.receive_completed = peer.receives.get(receive).map(time);
                    request.receive_polled = peer.receives_polled.get(receive).map(|it| it.time_ns);
                }
                receive += 1;
            }
        }
        out.push(request);
    }
}

/// What the captures have of a message.
fn see(
    request: &mut Request,
    conversation: &Conversation,
    end: usize,
    id: u64,
    sent: &HashMap<Key, &Message>,
    received: &HashMap<Key, &Message>,
) {
    let messages = &conversation.sides[end].messages;
    let Ok(index) = messages.binary_search_by_key(&id, |message| message.id) else {
        return;
    };
    let message = &messages[index];
    let key = key(conversation, end, message);
    let (left, came) = (sent.get(&key), received.get(&key));
    request.packets = Some(message.packets);
    request.repeated = message.repeated;
    request.first_sent = left.map(|it| it.begun.0);
    request.last_sent = left.map(|it| it.sent.0);
    request.first_arrived = came.map(|it| it.begun.0);
    request.last_arrived = came.map(|it| it.sent.0);
    request.answer_sent = left.and_then(|it| answered(it));
    // Where only this end captured, the answer is in no conversation of its own.
    let only_here = || answered(message).filter(|_| came.is_none());
    request.answer_arrived = came.and_then(|it| answered(it)).or_else(only_here);
}
