//! What the InfiniBand specification says becomes of a cell. It knows nothing of the path between
//! the two sides.
//!
//! Sections are those of the InfiniBand Architecture Specification, volume 1.

use rnic_nic::{CompletionOpcode, QpState, Status};

use super::table::{Before, Cell, Misfit, Op, SEVERAL_PARTS, Service, When, port_mtu};

/// A receive that completed: which, how, and for a good one its opcode, bytes, and whether
/// immediate data came along.
pub type Receive = (u64, Status, Option<(CompletionOpcode, u32, bool)>);

/// What is to be seen of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The work request was accepted.
    pub posted: bool,
    /// How those that were posted ended: one, or the two of a row.
    pub sends: Vec<Status>,
    pub receives: Vec<Receive>,
    /// What became of the memory that the operation is to change. Of a message that is refused in
    /// the middle the specification does not say; it is what the packets before did, on every path.
    pub bytes: Bytes,
    /// Of the initiator, and of the responder if it is still there.
    pub states: [Option<QpState>; 2],
}

/// What became of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    Untouched,
    /// All is as the operation would have it.
    Changed,
    /// So many bytes at the beginning are, and the others are untouched.
    Begun(u32),
    /// So are some whole packets at the beginning, or none: a READ that is longer than the window
    /// is asked for in parts.
    BegunSomewhere,
    /// None of these.
    Other,
}

/// Where an operation ends.
enum End {
    /// The initiator does not send it.
    Local(Status),
    /// Nothing of it is executed, and nobody says so.
    Silence,
    /// The same, but the responder says that it was executed before.
    Duplicate,
    /// The responder refuses. A receive that it had taken for it ends with that status.
    Refused(Status, Option<Status>),
    /// It has no receive.
    NotReady,
    /// It is executed, and the initiator does not hear of it.
    Unanswered,
    /// It is executed, and the answer is not what the initiator can take.
    BadResponse,
    Executed,
}

/// The first PSN of an initiator.
pub const START_PSN: u32 = 0x1000;

/// The same when it begins anew, and its responder does not: one that the responder has not come
/// to, or for UC is past.
pub fn psn_anew(service: Service) -> u32 {
    match service {
        Service::Uc => START_PSN - 500,
        _ => START_PSN + 1000,
    }
}

/// Packets of a message (9.7.2, 9.8.2.1: all but the last have a payload of the path MTU).
fn packets(len: u32, mtu: u32) -> u32 {
    len.div_ceil(mtu).max(1)
}

/// Is each packet, as the sender cuts them, of a length that the receiver takes? FIRST and MIDDLE
/// have exactly the path MTU, ONLY and LAST at most that (9.7.4.1.6 for RC, 9.8.2.2.3 for UC;
/// 9.9.2.4 for READ responses).
fn cut_alike(len: u32, sender: u32, receiver: u32) -> bool {
    match packets(len, sender) {
        1 => len <= receiver,
        _ => sender == receiver,
    }
}

fn end(cell: &Cell) -> End {
    let Cell {
        service, op, len, ..
    } = *cell;
    let [ours, theirs] = cell.mtu.map(|mtu| mtu.bytes() as u32);
    let reads = op == Op::Read || op.is_atomic();

    // 10.8.3, 9.9.2: what is wrong on this side is found before anything is sent.
    if cell.misfit == Misfit::LocalKey {
        return End::Local(Status::LocalProtectionError);
    }
    // 9.7.7: no READ may be outstanding.
    if cell.misfit == Misfit::NoReadsHere {
        return End::Local(Status::LocalQpOperationError);
    }
    // 9.8.3: a datagram is one packet, of the port's MTU at most.
    if service == Service::Ud && len > port_mtu().bytes() as u32 {
        return End::Local(Status::LocalLengthError);
    }

    // 9.6: packets that are not for that queue pair, its service, or its state (10.3.1: which
    // states receive) are dropped, and so are datagrams with another Q_Key.
    match cell.misfit {
        Misfit::OtherService(_) | Misfit::Destroyed(_) | Misfit::QKey => return End::Silence,
        // 10.9.3: so are those of another partition, and a limited member's to another one.
        Misfit::Partition(_) | Misfit::PartitionThere | Misfit::BothLimited => {
            return End::Silence;
        }
        // 9.6: and those whose addresses are not those of the connection.
        Misfit::Address | Misfit::OtherWay | Misfit::WrongWay => return End::Silence,
        Misfit::State(QpState::Reset | QpState::Init | QpState::Err, _) => return End::Silence,
        _ => {}
    }

    // PSNs.
    let sent = match op {
        Op::Read => packets(len, theirs),
        _ => packets(len, ours),
    };
    match (service, cell.misfit) {
        // 9.7.5: a NAK asks for what comes before; it is none of this requester's.
        (Service::Rc | Service::Xrc, Misfit::StartPsn(..0) | Misfit::BegunAnew) => {
            return End::Silence;
        }
        (Service::Rc | Service::Xrc, Misfit::StartPsn(ahead)) => {
            let ahead = ahead as u32;
            return match op {
                // 9.7.5: duplicates of requests that the responder does not know are dropped.
                _ if reads => End::Silence,
                // What follows the duplicates is no FIRST or ONLY (9.7.4.1).
                _ if sent > ahead => End::Refused(Status::RemoteInvalidRequest, None),
                // 9.7.5: duplicates are acknowledged with the PSN before the expected one; here it
                // is the last that was sent.
                _ if sent == ahead => End::Duplicate,
                _ => End::Silence,
            };
        }
        // 9.8.2.2.1: another PSN than the expected one begins anew. (An IP network may repeat and
        // reorder packets, so what lies up to 1024 PSNs back is not taken for new:
        // `uc/responder.rs`.)
        (Service::Uc, Misfit::StartPsn(1..=1024) | Misfit::BegunAnew) => return End::Silence,
        _ => {}
    }

    // 9.7.4.1.6, 9.8.2.2.3.
    let wrong_length = !matches!(op, Op::Read) && !op.is_atomic() && !cut_alike(len, ours, theirs);
    if wrong_length {
        return End::Refused(Status::RemoteInvalidRequest, None);
    }
    // XRC (annex A14): the shared receive queue that the request names.
    if cell.misfit == Misfit::Srq {
        return End::Refused(Status::RemoteInvalidRequest, None);
    }

    // 9.7.4.1: an operation that the queue pair is not configured for, more READs than there are
    // resources, an atomic's address.
    if matches!(
        cell.misfit,
        Misfit::QpRight(_) | Misfit::NoReadsThere | Misfit::Alignment
    ) {
        return End::Refused(Status::RemoteInvalidRequest, None);
    }
    // 9.7.4.1.5: key, protection domain, right and range; with no bytes nothing is looked at.
    if len > 0
        && matches!(
            cell.misfit,
            Misfit::Key
                | Misfit::Pd
                | Misfit::RegionRight
                | Misfit::Range
                | Misfit::Deregistered
                | Misfit::ClosedWindow
        )
    {
        return End::Refused(Status::RemoteAccessError, None);
    }

    // 9.7.5.2 (RNR NAK), 9.7.4.1 (longer than the receive), 9.9.3.
    match cell.misfit {
        Misfit::NoReceive => return End::NotReady,
        Misfit::ShortReceive => {
            return End::Refused(Status::RemoteInvalidRequest, Some(Status::LocalLengthError));
        }
        Misfit::ReceiveKey => {
            return End::Refused(
                Status::RemoteOperationError,
                Some(Status::LocalProtectionError),
            );
        }
        // The responder executes, and its answer goes to another one.
        Misfit::PeersPeer => return End::Unanswered,
        _ => {}
    }

    // 9.9.2.4: a response of a wrong length, or of the wrong kind.
    if op == Op::Read && !cut_alike(len, theirs, ours) {
        return End::BadResponse;
    }
    End::Executed
}

/// Receives that the responder has posted.
pub fn receives_posted(cell: &Cell) -> u64 {
    match cell.misfit {
        Misfit::NoReceive => 0,
        // None may be posted in RESET, nor is there anybody to post to.
        Misfit::State(QpState::Reset, When::First) | Misfit::Destroyed(When::First) => 0,
        // Nor has a queue pair of another kind one of its own.
        Misfit::OtherService(_) => 0,
        _ => 2,
    }
}

/// A message without bytes follows the operation and shows that it is over, where nobody
/// acknowledges it.
pub fn has_marker(cell: &Cell) -> bool {
    matches!(cell.service, Service::Uc | Service::Ud) && receives_posted(cell) > 0
}

/// Bytes that a datagram's receive has in front (the GRH, or over RoCE v2 the IP header: annex
/// A17).
pub const GRH: u32 = 40;

pub fn expected(cell: &Cell) -> Outcome {
    let Cell {
        service, op, len, ..
    } = *cell;
    let reliable = matches!(service, Service::Rc | Service::Xrc);
    let own_receives = service != Service::Xrc;
    let posted = receives_posted(cell);
    let end = end(cell);

    let mut responder = responder_state(cell);
    let mut receives: Vec<Receive> = Vec::new();
    let mut taken = 0;
    let flush = |from: u64, receives: &mut Vec<Receive>| {
        // 10.3.1: in the Error state all is flushed, but what is posted to a shared receive queue.
        if own_receives {
            receives.extend((from..=posted).map(|n| (n, Status::WorkRequestFlushed, None)));
        }
    };
    if responder == Some(QpState::Err) {
        flush(1, &mut receives);
        taken = posted;
    }
    let executed = matches!(end, End::Executed | End::Unanswered | End::BadResponse);
    if executed && op.takes_receive() {
        let (opcode, imm) = match op {
            Op::WriteImm => (CompletionOpcode::RecvRdmaWithImm, true),
            Op::SendImm => (CompletionOpcode::Recv, true),
            _ => (CompletionOpcode::Recv, false),
        };
        let header = if service == Service::Ud { GRH } else { 0 };
        receives.push((1, Status::Success, Some((opcode, len + header, imm))));
        taken = 1;
    }
    // 9.9.3: the responder of a reliable connection is in the Error state after a fatal NAK. That
    // of an unreliable one drops the message, unless it is its own memory that cannot be written.
    let breaks = match end {
        End::Refused(_, Some(Status::LocalProtectionError)) => true,
        // 9.8.3: a datagram that is longer than its receive is an error of the receive queue.
        End::Refused(_, Some(Status::LocalLengthError)) => service != Service::Uc,
        End::Refused(..) => reliable,
        _ => false,
    };
    if breaks {
        responder = Some(QpState::Err);
        if let End::Refused(_, Some(how)) = end {
            receives.push((1, how, None));
            taken = 1;
        }
        flush(taken + 1, &mut receives);
        taken = posted;
    }
    let (status, initiator) = match end {
        // 10.3.1: the send queue alone, of those whose receive queue does not depend on it.
        End::Local(status) if reliable => (status, QpState::Err),
        End::Local(status) => (status, QpState::Sqe),
        // 9.8: done when it is sent.
        _ if !reliable => (Status::Success, QpState::Rts),
        // 9.7.5.2, 9.9.2.
        End::Silence | End::Unanswered => (Status::RetryExceeded, QpState::Err),
        End::Refused(status, _) => (status, QpState::Err),
        End::NotReady => (Status::RnrRetryExceeded, QpState::Err),
        End::BadResponse => (Status::BadResponse, QpState::Err),
        End::Executed | End::Duplicate => (Status::Success, QpState::Rts),
    };
    let marker_arrives = has_marker(cell)
        && initiator == QpState::Rts
        && taken < posted
        // What was dropped for such a reason is followed by what is dropped for it.
        && !matches!(
            cell.misfit,
            Misfit::State(QpState::Reset | QpState::Init, _)
                | Misfit::Destroyed(_)
                | Misfit::Partition(_)
                | Misfit::PartitionThere
                | Misfit::BothLimited
                | Misfit::Address
                | Misfit::OtherWay
                | Misfit::WrongWay
        )
        && !is_behind(cell);
    if marker_arrives {
        let header = if service == Service::Ud { GRH } else { 0 };
        let what = Some((CompletionOpcode::Recv, header, true));
        receives.push((taken + 1, Status::Success, what));
    }
    let bytes = match end {
        _ if len == 0 => Bytes::Untouched,
        // The answer that would have changed the initiator's memory went to another one.
        End::Unanswered if op == Op::Read => Bytes::Untouched,
        End::Executed | End::Unanswered => Bytes::Changed,
        // A SEND takes its receive with its first packet, and a WRITE with its last.
        End::NotReady if op == Op::WriteImm => before_the_last(cell),
        // It is too long from its last packet on: the receive lacks one byte.
        End::Refused(_, Some(Status::LocalLengthError)) if service != Service::Ud => {
            before_the_last(cell)
        }
        // What is before the wrong entry has its place.
        End::Refused(_, Some(Status::LocalProtectionError)) if good_bytes(cell) > 0 => {
            Bytes::Begun(good_bytes(cell))
        }
        End::Refused(..) if op == Op::Read && len == SEVERAL_PARTS => Bytes::BegunSomewhere,
        _ => Bytes::Untouched,
    };
    let mut sends = vec![status];
    if cell.before == Before::Row {
        sends.insert(0, Status::Success);
    }
    Outcome {
        posted: true,
        sends,
        receives,
        bytes,
        states: [Some(initiator), responder],
    }
}

/// Bytes of a list of entries that belong to a region, where the rest does not: half of a long
/// message.
pub fn good_bytes(cell: &Cell) -> u32 {
    let has_one_entry =
        cell.misfit == Misfit::ReceiveKey && matches!(cell.service, Service::Ud | Service::Xrc);
    if cell.len <= 8 || has_one_entry {
        0
    } else {
        cell.len / 2
    }
}

/// All packets of the message but its last have been taken.
fn before_the_last(cell: &Cell) -> Bytes {
    let mtu = cell.mtu[0].bytes() as u32;
    match (packets(cell.len, mtu) - 1) * mtu {
        0 => Bytes::Untouched,
        begun => Bytes::Begun(begun),
    }
}

/// What follows a message of UC is behind what the responder expects, too.
fn is_behind(cell: &Cell) -> bool {
    let behind = packets(cell.len, cell.mtu[0].bytes() as u32);
    let ahead = match cell.misfit {
        Misfit::StartPsn(ahead @ 1..=1024) => ahead as u32,
        // The WRITE before took one.
        Misfit::BegunAnew => START_PSN + 1 - psn_anew(Service::Uc),
        _ => 0,
    };
    cell.service == Service::Uc && behind < ahead
}

/// How soon a request may be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Haste {
    /// It succeeds, or is refused.
    None,
    /// Something else has to be done before, or by then.
    Some,
    /// It fails whatever happens meanwhile.
    Great,
}

pub fn haste(cell: &Cell) -> Haste {
    let fails = expected(cell).sends.contains(&Status::RetryExceeded);
    let acts = cell.before != Before::Nothing || cell.misfit == Misfit::PeersPeer;
    match (fails, acts) {
        (false, _) => Haste::None,
        (true, true) => Haste::Some,
        (true, false) => Haste::Great,
    }
}

/// The responder's state before the operation.
fn responder_state(cell: &Cell) -> Option<QpState> {
    match cell.misfit {
        Misfit::State(state, _) => Some(state),
        Misfit::Destroyed(_) => None,
        _ => Some(QpState::Rts),
    }
}
