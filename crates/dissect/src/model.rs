//! What a capture holds, as data. Words for it are the business of whoever shows it.

use std::net::IpAddr;

use rnic_wire::{NakCode, Psn, Service, Syndrome};

use crate::connection::Connection;
use crate::end::End;
use crate::finding::Finding;
use crate::kind::Kind;
use crate::latency::Latencies;

/// A queue pair, as far as the packets show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Its address.
    pub addr: IpAddr,
    /// Its number; `None` if nothing was ever sent to it.
    pub qpn: Option<u32>,
    /// The UDP source port of its last packet; `None` if it sent none.
    pub src_port: Option<u16>,
}

/// How it is known that the two directions belong together: a BTH has only the destination's QPN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pairing {
    /// The connection manager's messages name both QPNs.
    Connection {
        /// Index into [`Capture::connections`].
        index: usize,
    },
    /// From an answer's PSN.
    Inferred {
        /// The request.
        request: u64,
        /// The packet that answered it.
        answer: u64,
        /// How many other queue pairs between the two addresses waited for the same PSN.
        others: u32,
    },
    /// Datagrams carry both QPNs.
    Datagram,
    /// Only one direction was seen.
    OneWay,
}

/// How the path MTU is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MtuSource {
    /// The REQ says so.
    Request,
    /// The payload of a FIRST or MIDDLE packet.
    Payload,
    /// The PSNs that a READ took.
    ReadSpan,
}

/// Two queue pairs that talk with each other, or one whose peer was not seen to answer.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// RC, UC, UD or XRC.
    pub service: Service,
    /// Both queue pairs.
    pub ends: [Endpoint; 2],
    /// How they were paired.
    pub pairing: Pairing,
    /// Path MTU.
    pub mtu: Option<(u32, MtuSource)>,
    /// Time of the first and the last packet.
    pub time: (u64, u64),
    /// Numbers of the first and the last packet.
    pub numbers: (u64, u64),
    /// Packets that each end sent.
    pub packets: [u64; 2],
    /// The send queue of each end and what became of its requests.
    pub sides: [Side; 2],
    /// What is worth a word, in the order of the packets.
    pub findings: Vec<Finding>,
    /// Findings beyond those that are kept.
    pub more_findings: u64,
    /// Q_Keys of the datagrams that each end sent, with their number; the first few.
    pub qkeys: [Vec<(u32, u64)>; 2],
    /// Packets with the ECN codepoint "congestion experienced", and congestion notification
    /// packets.
    pub ecn_marked: u64,
    /// Congestion notification packets.
    pub cnps: u64,
}

/// A send queue as the wire shows it.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// Messages in the order of their PSNs; older ones were dropped if there were very many.
    pub messages: Vec<Message>,
    /// Messages in all, also those that are not kept.
    pub message_count: u64,
    /// Payload bytes that were asked to be moved, each counted once: SEND, WRITE and READ.
    pub bytes: u64,
    /// From the first packet of the first message to the last answer, or last packet.
    pub time: Option<(u64, u64)>,
    /// By kind: messages and bytes.
    pub kinds: Vec<(Kind, u64, u64)>,
    /// From a message's first packet to its acknowledgement, by kind.
    pub latencies: Vec<(Kind, Latencies)>,
    /// Retransmissions, without packets that came twice at once: these nobody sent again.
    pub repeats: Vec<Repeat>,
    /// Retransmissions in all, also those that are not kept.
    pub repeat_count: u64,
    /// Request packets that were sent again, also those of which the capture lacks the first one.
    pub repeated_packets: u64,
    /// Bytes of payload in them.
    pub repeated_bytes: u64,
    /// Request packets that came again at once.
    pub doubled_packets: u64,
    /// Request packets, each PSN once.
    pub request_packets: u64,
    /// Positive acknowledgements that completed something, and how many messages they completed.
    pub acks: (u64, u64),
    /// Acknowledgements within a message.
    pub partial_acks: u64,
    /// Acknowledgements of what had been acknowledged.
    pub duplicate_acks: u64,
    /// READ response packets that came again.
    pub duplicate_responses: u64,
    /// Negative acknowledgements, by syndrome.
    pub naks: Vec<(Syndrome, u64)>,
    /// PSNs that were never seen, though later ones were.
    pub missing_packets: u64,
    /// Packets that came behind later ones without having been asked for again.
    pub reordered: u64,
    /// The most messages that waited for an answer at a time.
    pub most_outstanding: u64,
    /// The most READs and atomics among these.
    pub most_reads: u64,
}

/// A message: what one work request became on the wire.
#[derive(Clone, Debug)]
pub struct Message {
    /// Counts from 1 within its side.
    pub id: u64,
    /// What it does. A SEND turns into one with immediate or invalidate with its last packet.
    pub kind: Kind,
    /// First PSN.
    pub psn: Psn,
    /// PSNs that it takes, those of a READ's responses included.
    pub span: u32,
    /// Payload bytes: those seen of a SEND or WRITE, those asked for by a READ.
    pub bytes: u64,
    /// Request packets, each counted once.
    pub packets: u32,
    /// Request packets sent again.
    pub repeated: u32,
    /// PSNs within it that have not been seen (yet).
    pub missing: u32,
    /// Its last packet was seen.
    pub complete: bool,
    /// Its first packet was not seen.
    pub headless: bool,
    /// Immediate data.
    pub imm: Option<[u8; 4]>,
    /// rkey to be invalidated.
    pub invalidate: Option<u32>,
    /// Remote address, rkey and length of the RETH; length 8 of an atomic.
    pub remote: Option<(u64, u32, u32)>,
    /// Operands of an atomic: swap or add, compare.
    pub operands: Option<(u64, u64)>,
    /// What the memory held before an atomic.
    pub original: Option<u64>,
    /// XRC shared receive queue.
    pub srqn: Option<u32>,
    /// Solicited event.
    pub solicited: bool,
    /// Time and number of its first packet.
    pub begun: (u64, u64),
    /// Time and number of its last request packet, sent for the first time.
    pub sent: (u64, u64),
    /// Time and number of the last packet of it that was sent, repeated ones included.
    pub last_sent: (u64, u64),
    /// How often it was sent again after a timeout, in a row and without an answer.
    pub timeouts: u32,
    /// RNR NAKs.
    pub rnr_naks: u32,
    /// READ: response packets in order so far. The PSN of the next is `psn + answered`.
    pub answered: u32,
    /// READ: payload bytes of these.
    pub answered_bytes: u64,
    /// A packet that had acknowledged it before it was sent again: its sender did not get it in
    /// time.
    pub answer_lost: Option<u64>,
    /// READ: time of the first response.
    pub first_answer: Option<u64>,
    /// READ: the packet with the response that has its first PSN.
    pub first_response: Option<u64>,
    /// READ: the last packet that brought one in order, or behind a gap.
    pub last_response: Option<u64>,
    /// READ: a response was skipped.
    pub answer_gap: bool,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// No answer so far, or to the end of the capture.
    Open,
    /// Acknowledged or answered.
    Done {
        /// When.
        time: u64,
        /// By which packet.
        number: u64,
        /// How many messages that packet acknowledged.
        shared: u32,
    },
    /// Refused for good.
    Refused {
        /// When.
        time: u64,
        /// By which packet.
        number: u64,
        /// Why.
        code: NakCode,
    },
    /// Unreliable: nothing is to be expected.
    Sent,
    /// Unreliable, and a packet of it is missing: the receiver dropped all of it.
    Lost,
    /// Unreliable, and the capture begins or ends within it.
    Cut,
}

/// Why packets were sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A NAK named the missing PSN.
    Nak {
        /// Its packet.
        number: u64,
    },
    /// The receiver was not ready.
    Rnr {
        /// The NAK's packet.
        number: u64,
        /// The time it had asked to wait.
        timer_ns: u64,
    },
    /// READ responses were missing, and the requester had seen it.
    MissingResponse {
        /// The response that came instead.
        number: u64,
    },
    /// No answer came in time.
    Timeout,
    /// Nothing in the capture asked for it, and no timer is that short.
    Early,
}

/// Packets sent again, in a row.
#[derive(Clone, Debug)]
pub struct Repeat {
    /// Why.
    pub cause: Cause,
    /// First and last packet.
    pub numbers: (u64, u64),
    /// When it began.
    pub time: u64,
    /// First and last PSN.
    pub psns: (Psn, Psn),
    /// How many packets.
    pub packets: u32,
    /// Payload bytes.
    pub bytes: u64,
    /// Time since the first of its PSNs had been sent before, or since the NAK.
    pub waited_ns: u64,
    /// A packet that had acknowledged the first PSN already.
    pub acknowledged_by: Option<u64>,
    /// How the peer first answered: PSN, its packet, and the PSN up to which it had been sent again
    /// by then.
    pub reply: Option<(Psn, u64, Psn)>,
    /// How many answers named the same PSN as that first one, which it has among them.
    pub same_replies: u32,
    /// A READ was asked for again from its middle.
    pub rest_of_read: bool,
    /// How many answers named its last PSN.
    pub replies: u32,
}

/// The place of a packet in its conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its number while the dissector runs; [`crate::Finished::resolve`] says what became of it.
    pub conversation: usize,
    /// Which end sent it.
    pub from: End,
    /// The message that it belongs to, or acknowledges: the end whose message it is, and the
    /// message's id.
    pub message: Option<(End, u64)>,
    /// What it is in there.
    pub mark: Mark,
}

/// What a packet is in its conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// A request, in order: its place in the message, from 1.
    Request {
        /// From 1.
        index: u32,
    },
    /// The same, behind PSNs that were not seen.
    AfterGap {
        /// From 1.
        index: u32,
        /// How many PSNs are missing in front of it.
        missing: u32,
    },
    /// A PSN that had been missing, without having been asked for.
    Reordered {
        /// From 1.
        index: u32,
    },
    /// Sent again, or for the first time as far as the capture shows, in the course of a
    /// retransmission.
    Repeated {
        /// From 1.
        index: u32,
        /// Why.
        cause: Cause,
    },
    /// An acknowledgement.
    Ack {
        /// Messages that it completes.
        completes: u32,
    },
    /// An acknowledgement of nothing new.
    DuplicateAck,
    /// A NAK that refuses the message.
    Nak {
        /// Why.
        code: NakCode,
    },
    /// Receiver not ready.
    Rnr {
        /// How long to wait.
        timer_ns: u64,
    },
    /// A READ response in order: from 1.
    Response {
        /// From 1.
        index: u32,
    },
    /// A READ response behind a missing one.
    ResponseAfterGap {
        /// From 1.
        index: u32,
        /// Missing ones in front of it.
        missing: u32,
    },
    /// A READ response, or answer of an atomic, that had come before.
    DuplicateResponse,
    /// The answer to an atomic.
    AtomicAnswer,
    /// An answer to a request that the capture does not hold.
    Orphan,
    /// A datagram.
    Datagram,
    /// A message of the connection manager: which one.
    Cm(&'static str),
    /// Congestion notification.
    Cnp,
    /// It belongs nowhere.
    Stray,
}

/// Frames that are no RoCEv2, and packets that are none, with their number.
#[derive(Clone, Debug, Default)]
pub struct Skipped {
    /// Frames.
    pub frames: Vec<(crate::frame::Skip, u64)>,
    /// What came to port 4791 and is no packet: number, and the number of the first such frame.
    pub packets: Vec<(crate::packet::NoPacket, u64, u64)>,
    /// The same packet captured at a second interface, or both outgoing and incoming.
    pub copies: u64,
}

/// All that is known at the end of a capture.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// Frames in the file.
    pub frames: u64,
    /// RoCEv2 packets; of a datagram that the kernel had yet to cut, each of its packets.
    pub packets: u64,
    /// Datagrams that the kernel had yet to cut.
    pub uncut: u64,
    /// Packets that are not in the capture as a whole.
    pub cut: u64,
    /// Time of the first and of the last frame.
    pub time: (u64, u64),
    /// What was left out.
    pub skipped: Skipped,
    /// Queue pairs, in the order of their first packets.
    pub conversations: Vec<Conversation>,
    /// What connection managers did, in the order of their first messages.
    pub connections: Vec<Connection>,
    /// What belongs to no conversation: wrong ICRCs and the like.
    pub findings: Vec<Finding>,
    /// Findings beyond those that are kept.
    pub more_findings: u64,
    /// Packets whose ICRC is wrong.
    pub icrc_wrong: u64,
    /// Packets whose ICRC holds for another IP header.
    pub icrc_other: u64,
    /// Packets whose ICRC could not be checked.
    pub icrc_unchecked: u64,
}

impl Message {
    /// Its last PSN.
    pub fn last_psn(&self) -> Psn {
        self.psn.add(self.span.saturating_sub(1))
    }

    /// Whether a PSN lies within it.
    pub fn covers(&self, psn: Psn) -> bool {
        let at = psn.distance_from(self.psn);
        at >= 0 && (at as u32) < self.span
    }

    /// Whether an answer is still to be expected.
    pub fn is_open(&self) -> bool {
        matches!(self.outcome, Outcome::Open)
    }
}
