//! What in a capture is worth a word: facts, from which words are made elsewhere.

use std::net::IpAddr;

use rnic_wire::{NakCode, Psn};

use crate::end::End;
use crate::kind::Kind;
use crate::packet::Icrc;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Something was repaired, and cost time.
    Repaired,
    /// What came of it is not in the capture.
    Open,
    /// Something failed.
    Failed,
}

impl Severity {
    /// All of them, the least first.
    pub const ALL: [Severity; 4] = [
        Severity::Note,
        Severity::Repaired,
        Severity::Open,
        Severity::Failed,
    ];
}

/// Something that happened.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// Whose requests it is about.
    pub side: End,
    /// When.
    pub time: u64,
    /// The packets that show it.
    pub packets: Vec<u64>,
    /// Packets that would have been what is missing, had their ICRC not been wrong.
    pub bad: Vec<u64>,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, PartialEq, Debug)]
#[allow(
    missing_docs,
    reason = "the fields are said in the words of each variant"
)]
pub enum What {
    /// A NAK asks for a PSN; it had been sent in packet `sent`, or was never seen.
    Lost { psn: Psn, sent: Option<u64> },
    /// A NAK for the PSN that an RNR NAK was about: Soft-RoCE's way, nothing was lost.
    NakAfterRnr { psn: Psn },
    /// Sent again after silence.
    Timeout {
        psn: Psn,
        packets: u32,
        last: u64,
        waited_ns: u64,
        acknowledged_by: Option<u64>,
        peer_had: PeerHad,
    },
    /// Packets that came again at once, without having been asked for.
    Early {
        psn: Psn,
        packets: u32,
        waited_ns: u64,
    },
    /// The receiver had nothing posted.
    Rnr {
        message: u64,
        timer_ns: u64,
        times: u32,
    },
    /// Refused for good.
    Refused {
        message: u64,
        kind: Kind,
        code: NakCode,
        remote: Option<(u64, u32, u32)>,
        bytes: u64,
    },
    /// A NAK of a reserved code or an AETH of a reserved type.
    OddSyndrome { syndrome: u8 },
    /// Sent `times` times, never answered, and the capture goes on long enough to say that nothing
    /// more came. `rnr`: the last answer was to wait. `answered`: it had an answer, which its
    /// sender did not get.
    GaveUp {
        message: u64,
        times: u32,
        span_ns: u64,
        rnr: bool,
        ever_answered: bool,
        answered: bool,
    },
    /// No answer to a message, however often it was sent, before the capture ends.
    Unanswered {
        message: u64,
        times: u32,
        span_ns: u64,
        ns_to_end: u64,
        rnr: bool,
        ever_answered: bool,
        answered: bool,
    },
    /// Nothing was ever acknowledged: this end began at one PSN, and the other one's `answers` say that
    /// it expects another.
    StartPsns {
        began: Psn,
        expects: Psn,
        answers: u64,
        given_up: bool,
    },
    /// PSNs that the capture lacks, in front of this packet; whether any of them `came` later.
    Gap { psn: Psn, count: u32, came: bool },
    /// Packets that came behind later ones.
    Reordered { psn: Psn, behind: u32 },
    /// A READ response is missing in the capture.
    ResponseGap { psn: Psn, count: u32 },
    /// A READ was asked for again, from its middle, or from its start although it had been answered
    /// in part: the response with that PSN, in packet `response` if that is known, is in the
    /// capture (`seen`) or not.
    ReadAgain {
        message: u64,
        psn: Psn,
        seen: bool,
        response: Option<u64>,
        waited_ns: u64,
    },
    /// A READ asked for again was answered with MIDDLE or LAST instead of FIRST or ONLY.
    MiddleAnswer { message: u64 },
    /// An ACK of a PSN that the capture does not hold, or that was never sent.
    GhostAck { psn: Psn },
    /// Answers to requests that the capture does not hold.
    Orphans { count: u64 },
    /// A MIDDLE or LAST without a FIRST.
    Headless { psn: Psn, at_start: bool },
    /// A message that was left without its LAST.
    Unfinished { message: u64 },
    /// The RETH promises another length than the packets carry.
    WrongLength {
        message: u64,
        promised: u32,
        carried: u64,
    },
    /// A FIRST or MIDDLE packet not as long as the path MTU, or a longer one than it.
    NotMtu { len: u32, mtu: u32 },
    /// The full packets of the two ends have different lengths: each end has a path MTU of its own.
    MtusDiffer { mtus: [u32; 2] },
    /// The full packets of an end have another length than the path MTU in the REQ.
    MtuNotAgreed { agreed: u32, len: u32 },
    /// PSNs begin anew: the queue pair was reset, or another has its number.
    Restart { from: Psn, to: Psn },
    /// A UC message with a missing packet: the receiver drops all of it.
    UcLost { message: u64, missing: u32 },
    /// A UC message of which nothing but the end is missing, so long before the end of the capture.
    EndsWithin { message: u64, ns_to_end: u64 },
    /// More READs and atomics at a time than the peer agreed to.
    TooManyReads { seen: u64, agreed: u8 },
    /// Data before the RTU.
    BeforeRtu,
    /// P_Key of a partition that is not the default one.
    Pkey { pkey: u16 },
    /// Datagrams to the same queue pair with another Q_Key than the first ones.
    Qkey { qkey: u32, expected: u32 },
    /// A datagram longer than the path can carry.
    DatagramTooLong { len: u32 },
    /// The ICRC does not hold, or holds for another IP header.
    Icrc(Icrc),
    /// The payload's end is not where the padding says.
    Padding { pad: u8 },
    /// The inferred pairing explains these packets badly.
    PairingDoubtful { orphans: u64, answers: u64 },
    /// Congestion.
    Congestion { marked: u64, cnps: u64 },
    /// Nearly all packets are in the file twice, some perhaps much later than they were first.
    CapturedTwice { copies: u64, of: u64 },
    /// To the connection manager's queue pair, but none of its messages.
    NotCm { from: IpAddr, why: String },
}

/// What the peer's first reply to a retransmission shows.
#[allow(missing_docs, reason = "the reply is a packet's number")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerHad {
    /// No reply.
    Unknown,
    /// It had all: its answer was lost.
    All { reply: u64 },
    /// It had everything up to this PSN, not what came behind.
    UpTo { psn: Psn, reply: u64 },
    /// It had nothing of it, as far as one can tell.
    Nothing { reply: u64 },
}

impl What {
    /// How bad it is.
    pub fn severity(&self) -> Severity {
        match self {
            What::Refused { .. }
            | What::GaveUp { .. }
            | What::StartPsns { .. }
            | What::UcLost { .. }
            | What::Qkey { .. }
            | What::DatagramTooLong { .. }
            | What::Unfinished { .. }
            | What::WrongLength { .. }
            | What::Icrc(Icrc::Wrong { .. }) => Severity::Failed,
            // Whether it did harm, or came to an end at all, other packets would have to show.
            What::Unanswered { .. }
            | What::EndsWithin { .. }
            | What::Gap { came: false, .. }
            | What::GhostAck { .. }
            | What::OddSyndrome { .. }
            | What::Pkey { .. }
            | What::NotMtu { .. }
            | What::MtusDiffer { .. }
            | What::Icrc(_) => Severity::Open,
            // If it was not, the message has a finding of its own.
            What::Lost { .. }
            | What::Timeout { .. }
            | What::Rnr { .. }
            | What::Gap { came: true, .. }
            | What::ResponseGap { .. }
            | What::ReadAgain { .. } => Severity::Repaired,
            What::NakAfterRnr { .. }
            | What::Early { .. }
            | What::Reordered { .. }
            | What::MiddleAnswer { .. }
            | What::Orphans { .. }
            | What::Headless { .. }
            | What::Restart { .. }
            | What::MtuNotAgreed { .. }
            | What::TooManyReads { .. }
            | What::BeforeRtu
            | What::Padding { .. }
            | What::PairingDoubtful { .. }
            | What::Congestion { .. }
            | What::CapturedTwice { .. }
            | What::NotCm { .. } => Severity::Note,
        }
    }

    /// A word to select findings by, and to keep equal ones together.
    pub fn name(&self) -> &'static str {
        match self {
            What::Lost { .. } => "lost",
            What::NakAfterRnr { .. } => "nak-after-rnr",
            What::Timeout { .. } => "timeout",
            What::Early { .. } => "early",
            What::Rnr { .. } => "rnr",
            What::Refused { .. } => "refused",
            What::OddSyndrome { .. } => "odd-syndrome",
            What::GaveUp { .. } => "gave-up",
            What::Unanswered { .. } => "unanswered",
            What::StartPsns { .. } => "start-psns",
            What::Gap { .. } => "gap",
            What::Reordered { .. } => "reordered",
            What::ResponseGap { .. } => "response-gap",
            What::ReadAgain { .. } => "read-again",
            What::MiddleAnswer { .. } => "middle-answer",
            What::GhostAck { .. } => "ghost-ack",
            What::Orphans { .. } => "orphans",
            What::Headless { .. } => "headless",
            What::Unfinished { .. } => "unfinished",
            What::WrongLength { .. } => "wrong-length",
            What::NotMtu { .. } => "not-mtu",
            What::MtusDiffer { .. } => "mtus-differ",
            What::MtuNotAgreed { .. } => "mtu-not-agreed",
            What::Restart { .. } => "restart",
            What::UcLost { .. } => "uc-lost",
            What::EndsWithin { .. } => "ends-within",
            What::TooManyReads { .. } => "too-many-reads",
            What::BeforeRtu => "before-rtu",
            What::Pkey { .. } => "pkey",
            What::Qkey { .. } => "qkey",
            What::DatagramTooLong { .. } => "datagram-too-long",
            What::Icrc(Icrc::Wrong { .. }) => "icrc-wrong",
            What::Icrc(_) => "icrc-ip-header",
            What::Padding { .. } => "padding",
            What::PairingDoubtful { .. } => "pairing-doubtful",
            What::Congestion { .. } => "congestion",
            What::CapturedTwice { .. } => "captured-twice",
            What::NotCm { .. } => "not-cm",
        }
    }
}
