//! Failures of work requests, refusals of the peer's requests and of verbs.

use rnic_transport::{
    Completion, CompletionOpcode, Evidence, Flush, LocalFault, Refused, RemoteAccess, RemoteFault,
    RequestRefused, SendFailed, SendOp, Status,
};

use rnic_link::Address;
use rnic_sys::Lack;
use rnic_wire::Operation;

use super::line::Line;
use super::{Connection, Kind, State, lint, state, write};
use crate::error::Error;
use crate::memory::{Access as Rights, RegionFacts};
use crate::queues::QpShared;

/// The range that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) key: u32,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) pd: u32,
    /// The key is that of a region in the other byte order.
    pub(crate) swapped: bool,
}

/// Memory that a local work request may not use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalNote {
    access: Access,
    write: bool,
    fault: LocalFault,
    region: Option<RegionFacts>,
    lack: Option<Lack>,
}

/// Memory that the peer may not use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteNote {
    access: Access,
    /// `None`: to be invalidated.
    right: Option<RemoteAccess>,
    fault: RemoteFault,
    region: Option<RegionFacts>,
    lack: Option<Lack>,
}

/// What memory that is gone lacks now.
fn lack(access: Access, region: Option<RegionFacts>, write: bool) -> Option<Lack> {
    let region = region?;
    let offset = usize::try_from(access.addr.checked_sub(region.addr)?).ok()?;
    let start = region.base?.checked_add(offset)?;
    let length = usize::try_from(access.length).ok()?;
    rnic_sys::uncancelled(|| rnic_sys::lack(start, length, write))
}

/// A scatter/gather entry was refused; the completion will follow.
#[cold]
pub(crate) fn local_fault(
    qpn: u32,
    access: Access,
    write: bool,
    fault: LocalFault,
    region: Option<RegionFacts>,
) {
    if let Some(mut state) = state() {
        let note = LocalNote {
            access,
            write,
            fault,
            region,
            lack: match fault {
                LocalFault::Unmapped => lack(access, region, write),
                _ => None,
            },
        };
        state.local.insert(qpn, note);
    }
}

/// A remote access was refused; the refusal of the request will follow.
#[cold]
pub(crate) fn remote_fault(
    qpn: u32,
    access: Access,
    right: Option<RemoteAccess>,
    fault: RemoteFault,
    region: Option<RegionFacts>,
) {
    if let Some(mut state) = state() {
        let note = RemoteNote {
            access,
            right,
            fault,
            region,
            lack: match fault {
                RemoteFault::Unmapped => {
                    let writes = matches!(right, Some(RemoteAccess::Write | RemoteAccess::Atomic));
                    lack(access, region, writes)
                }
                _ => None,
            },
        };
        state.remote.insert(qpn, note);
    }
}

/// What the transport tells; `from`: whence the packet came that it is about.
#[cold]
pub(crate) fn evidence(qpn: u32, evidence: &Evidence, from: Option<Address>) {
    let Some(mut state) = state() else {
        return;
    };
    match evidence {
        Evidence::SendFailed(failed) => {
            state.sends.insert(qpn, *failed);
        }
        Evidence::RequestRefused(refused) => state.request_refused(qpn, refused),
        Evidence::ReceiverNeverReady { naks, waited_ns } => {
            if state.spend(Kind::Failure) {
                let mut line = state.record("waiting");
                state.name_qp(&mut line, qpn);
                line.number("naks", u64::from(*naks))
                    .number("waited_ns", *waited_ns);
                write(line);
            }
            lint::never_ready(&mut state, qpn, u64::from(*naks), *waited_ns);
        }
        Evidence::DatagramTooLong { room, length } => {
            state.too_long.insert(qpn, (*room, *length));
        }
        Evidence::MessageDropped { why, src_qpn } => {
            state.message_dropped(qpn, *why, from, *src_qpn);
        }
        Evidence::OtherStartPsn { expected, came } => state.other_start(qpn, *expected, *came),
        Evidence::PeerStopped { waited_ns, srq } => {
            let stopped = rnic_sys::uncancelled(|| state.stopped_peer(qpn, *srq));
            if let Some(pid) = stopped
                && state.spend(Kind::Slowness)
            {
                let mut line = state.record("stopped");
                state.name_qp(&mut line, qpn);
                line.number("waited_ns", *waited_ns);
                name_process(&mut line, pid);
                write(line);
            }
        }
    }
}

/// A completion of that queue pair found its completion queue full.
#[cold]
pub(crate) fn overran(qpn: u32, cq: u32, capacity: u32) {
    let Some(mut state) = state() else {
        return;
    };
    if state.spend(Kind::Failure) {
        let mut line = state.record("overrun");
        state.name_qp(&mut line, qpn);
        line.number("cq", cq.into())
            .number("capacity", capacity.into());
        write(line);
    }
}

/// A packet to a queue pair was dropped for its P_Key. The peer hears nothing of it, so one word of
/// it for each queue pair is all that tells.
#[cold]
pub(crate) fn other_partition(qpn: u32, own: u16, theirs: u16) {
    let Some(mut state) = state() else {
        return;
    };
    if state.partitions.insert(qpn) && state.spend(Kind::Failure) {
        let mut line = state.record("partition");
        state.name_qp(&mut line, qpn);
        line.number("pkey", own.into())
            .number("peer_pkey", theirs.into());
        write(line);
    }
}

/// A work request completed with an error.
#[cold]
pub(crate) fn failed(shared: &QpShared, completion: &Completion, receive: bool) {
    let qpn = shared.qpn;
    let Some(mut state) = state() else {
        return;
    };
    let sent = match receive {
        true => None,
        false => state.sends.remove(&qpn),
    };
    if completion.status == Status::WorkRequestFlushed {
        // Told only where it is the first that is heard of it: the program moved the queue pair to
        // ERR itself.
        if state.broken.insert(qpn) && state.spend(Kind::Flush) {
            let mut line = state.record("flushed");
            state.name_qp(&mut line, qpn);
            line.number("wr_id", completion.wr_id);
            write(line);
        }
        return;
    }
    let first = state.broken.insert(qpn);
    let too_long = state.too_long.remove(&qpn).filter(|_| receive);
    if !state.spend(Kind::Failure) {
        return;
    }
    let note = match completion.status {
        Status::LocalProtectionError => state.local.remove(&qpn),
        _ => None,
    };
    let mut line = state.record("failure");
    state.name_qp(&mut line, qpn);
    line.text("qp_type", shared.type_name())
        .text("queue", if receive { "receive" } else { "send" })
        .flag("first", first)
        .number("wr_id", completion.wr_id)
        .text("operation", posted_name(completion.opcode, sent.as_ref()))
        .number("status", completion.status as u64)
        .number("vendor_err", u64::from(completion.vendor_err));
    state.name_mtus(&mut line, qpn);
    if let Some(connection) = state.connections.get(&qpn) {
        line.number("since_ns", connection.since_ns);
    }
    if let Some(note) = note {
        let grave = state.grave(note.access.key);
        line.object("memory", |line| write_local(line, &note, grave));
    }
    if let Some((room, length)) = too_long {
        line.number("room", room).number("length", length);
    }
    if let Some(sent) = &sent {
        line.object("request", |line| write_request(line, sent));
    }
    if completion.status == Status::RetryExceeded {
        let (peer, stopped) = state.look_for_peer(qpn);
        line.text("peer_process", peer);
        if let Some(pid) = stopped {
            name_process(&mut line, pid);
        }
        state.name_way(&mut line, qpn, sent.as_ref());
    }
    write(line);
}

impl State {
    /// As responder, a queue pair refused for good.
    fn request_refused(&mut self, qpn: u32, refused: &RequestRefused) {
        let note = match refused.why {
            Refused::Access | Refused::Invalidate => self.remote.remove(&qpn),
            _ => None,
        };
        let first = self.broken.insert(qpn);
        if !self.spend(Kind::Failure) {
            return;
        }
        let mut line = self.record("refusal");
        self.name_qp(&mut line, qpn);
        line.flag("first", first)
            .text("operation", operation_name(refused.operation))
            .number("psn", u64::from(refused.psn.value()))
            .text("why", refused_name(refused.why));
        self.name_mtus(&mut line, qpn);
        if let Some(pid) = rnic_sys::uncancelled(|| self.peer_process(qpn)) {
            name_process(&mut line, pid);
        }
        if let Refused::PacketLength(length) = refused.why {
            line.number("length", u64::from(length));
        }
        if refused.why == Refused::TooLong {
            line.number("room", refused.room)
                .number("length", refused.length);
        }
        if let (Refused::TooManyReads, Some(connection)) = (refused.why, self.connections.get(&qpn))
        {
            line.number("limit", u64::from(connection.attr.max_dest_rd_atomic));
        }
        if let Some(note) = note {
            let grave = self.grave(note.access.key);
            line.object("memory", |line| write_remote(line, &note, grave));
        }
        write(line);
    }

    /// The queue pair's path MTU, and its peer's if that is of this process, too.
    fn name_mtus(&self, line: &mut Line, qpn: u32) {
        let mtu = |connection: &Connection| Some(connection.attr.path_mtu?.bytes() as u64);
        let Some(own) = self.connections.get(&qpn) else {
            return;
        };
        if let Some(mtu) = mtu(own) {
            line.number("path_mtu", mtu);
        }
        let peer = self.connections.get(&own.attr.dest_qp_num);
        let is_opposite = |peer: &&Connection| {
            (peer.local, peer.remote, peer.attr.dest_qp_num) == (own.remote, own.local, qpn)
        };
        if let Some(mtu) = peer.filter(is_opposite).and_then(mtu) {
            line.number("peer_path_mtu", mtu);
        }
    }

    /// The region that had this key, and how long ago it ended.
    fn grave(&self, key: u32) -> Option<(RegionFacts, u64)> {
        let (_, region, at) = self.graves.iter().rev().find(|(k, ..)| *k == key)?;
        Some((*region, rnic_sys::now_ns().saturating_sub(*at)))
    }

    /// Whether the peer of a queue pair that got no answer is still there; its process, if that is
    /// another one of this host.
    fn look_for_peer(&self, qpn: u32) -> (&'static str, Option<u32>) {
        rnic_sys::uncancelled(|| match self.peer_as_it_is(qpn) {
            "alive" => match self.stopped_peer(qpn, None) {
                Some(pid) => ("stopped", Some(pid)),
                None => ("alive", self.peer_process(qpn)),
            },
            other => (other, None),
        })
    }

    /// The process of this host that a queue pair waits for, if it is stopped: the peer's, or that
    /// of a shared receive queue.
    fn stopped_peer(&self, qpn: u32, srq: Option<u32>) -> Option<u32> {
        let peer = self.connections.get(&qpn)?.attr.dest_qp_num;
        let numbers = std::iter::once(peer).chain(srq);
        let mut owners = numbers.filter_map(rnic_host::registry::owner);
        owners.find(|pid| rnic_host::is_stopped(*pid))
    }

    /// The process of this user and host that has the peer.
    fn peer_process(&self, qpn: u32) -> Option<u32> {
        let connection = self.connections.get(&qpn)?;
        is_here(connection)
            .then(|| rnic_host::registry::owner(connection.attr.dest_qp_num))
            .flatten()
    }

    pub(super) fn peer_as_it_is(&self, qpn: u32) -> &'static str {
        let Some(connection) = self.connections.get(&qpn) else {
            return "unknown";
        };
        if !is_here(connection) {
            return "elsewhere";
        }
        let dest = connection.attr.dest_qp_num;
        match rnic_host::registry::owner(dest) {
            None => "gone",
            Some(pid) if pid == std::process::id() => match self.connections.get(&dest) {
                None => "own, not connected",
                Some(_) if self.broken.contains(&dest) => "own, in error",
                Some(_) => "own",
            },
            Some(_) => "alive",
        }
    }
}

/// The peer has an address of this host.
pub(super) fn is_here(connection: &Connection) -> bool {
    connection.remote == connection.local || is_own(connection.remote)
}

/// It is an address of this host.
fn is_own(address: Address) -> bool {
    let gids = crate::addressing::gid_table::gid_table();
    gids.iter().any(|gid| Address::from(gid.addr) == address)
}

/// Who sent a datagram: its queue pair, and the process of this user and host that has it.
pub(super) fn name_sender(line: &mut Line, from: Option<Address>, src_qpn: Option<u32>) {
    let Some(qpn) = src_qpn else {
        return;
    };
    line.number("src_qpn", qpn.into());
    let owner = || {
        from.filter(|from| is_own(*from))
            .and_then(|_| rnic_host::registry::owner(qpn))
    };
    if let Some(pid) = rnic_sys::uncancelled(owner) {
        let name = rnic_sys::process::name(pid).unwrap_or_default();
        line.number("src_pid", pid.into())
            .text("src_program", &name);
    }
}

pub(super) fn name_process(line: &mut Line, pid: u32) {
    let name = rnic_sys::process::name(pid).unwrap_or_default();
    line.number("peer_pid", pid.into())
        .text("peer_program", &name);
}

/// A verb refused its arguments; the reason is what C has no room for.
#[cold]
pub fn refused_verb(error: &Error) {
    let Some(mut state) = state() else {
        return;
    };
    // Some programs ask what is not there, or post until there is no room, again and again.
    let count = state
        .verbs
        .entry((error.verb(), error.errno()))
        .or_default();
    *count += 1;
    if *count > 4 {
        return;
    }
    state.has_refused = true;
    let mut line = state.record("verb");
    line.text("verb", error.verb())
        .signed("errno", error.errno().into())
        .text("reason", error.reason());
    write(line);
}

/// The program has made or changed something since verbs were refused.
#[cold]
pub fn survived_refusals() {
    if let Some(mut state) = state()
        && std::mem::take(&mut state.has_refused)
    {
        write(state.record("survived"));
    }
}

/// The program has called the library.
#[cold]
pub fn was_reached() {
    if let Some(mut state) = state() {
        write(state.record("reached"));
    }
}

fn write_access(line: &mut Line, access: &Access) {
    line.number("key", u64::from(access.key))
        .number("addr", access.addr)
        .number("length", access.length);
    if access.swapped {
        line.flag("swapped", true);
    }
}

fn write_region(line: &mut Line, access: &Access, region: Option<RegionFacts>) {
    if let Some(region) = region {
        line.object("region", |line| {
            line.number("addr", region.addr)
                .number("length", region.length)
                .text("access", &rights(region.access))
                .flag("same_pd", region.pd == access.pd)
                .flag("window", region.window);
        });
    }
}

fn write_grave(line: &mut Line, grave: Option<(RegionFacts, u64)>) {
    if let Some((region, ns)) = grave {
        line.object("deregistered", |line| {
            line.number("addr", region.addr)
                .number("length", region.length)
                .number("ago_ns", ns);
        });
    }
}

fn write_local(line: &mut Line, note: &LocalNote, grave: Option<(RegionFacts, u64)>) {
    write_access(line, &note.access);
    line.flag("write", note.write).text(
        "fault",
        match note.fault {
            LocalFault::UnknownKey => "unknown key",
            LocalFault::OtherPd => "other pd",
            LocalFault::OutOfRange => "out of range",
            LocalFault::NoLocalWrite => "no right",
            LocalFault::Unmapped => "unmapped",
        },
    );
    write_lack(line, note.lack);
    write_region(line, &note.access, note.region);
    write_grave(line, grave);
}

fn write_lack(line: &mut Line, lack: Option<Lack>) {
    if let Some(lack) = lack {
        line.text(
            "lack",
            match lack {
                Lack::Mapping => "mapping",
                Lack::Reading => "reading",
                Lack::Writing => "writing",
                Lack::Pages => "pages",
            },
        );
    }
}

fn write_remote(line: &mut Line, note: &RemoteNote, grave: Option<(RegionFacts, u64)>) {
    write_access(line, &note.access);
    line.text(
        "fault",
        match note.fault {
            RemoteFault::UnknownKey => "unknown key",
            RemoteFault::OtherPd => "other pd",
            RemoteFault::OutOfRange => "out of range",
            RemoteFault::NoRight => "no right",
            RemoteFault::Unmapped => "unmapped",
        },
    )
    .text(
        "right",
        match note.right {
            Some(RemoteAccess::Read) => "IBV_ACCESS_REMOTE_READ",
            Some(RemoteAccess::Write) => "IBV_ACCESS_REMOTE_WRITE",
            Some(RemoteAccess::Atomic) => "IBV_ACCESS_REMOTE_ATOMIC",
            Some(RemoteAccess::FlushGlobal) => "IBV_ACCESS_FLUSH_GLOBAL",
            Some(RemoteAccess::FlushPersistent) => "IBV_ACCESS_FLUSH_PERSISTENT",
            None => "invalidation",
        },
    );
    write_lack(line, note.lack);
    write_region(line, &note.access, note.region);
    write_grave(line, grave);
}

fn write_request(line: &mut Line, sent: &SendFailed) {
    line.number("length", sent.len)
        .number("longest", sent.longest)
        .number("psn", u64::from(sent.psn.value()))
        .flag("sent", sent.sent)
        .number("tries", u64::from(sent.tries))
        .number("heard", sent.received)
        .number("heard_ever", sent.received_ever)
        .flag("answered", sent.answered)
        .number("start_psn", sent.start_psn.value().into())
        .number("waited_ns", sent.waited_ns)
        .number("stopped_ns", sent.stopped_ns);
    if let Some(expects) = sent.peer_expects {
        line.number("peer_expects_psn", expects.value().into());
    }
    if let Some(response) = sent.response {
        line.number("response", u64::from(response));
    }
    if let SendOp::Write { remote_addr, rkey }
    | SendOp::WriteImm {
        remote_addr, rkey, ..
    }
    | SendOp::Read { remote_addr, rkey }
    | SendOp::CompareSwap {
        remote_addr, rkey, ..
    }
    | SendOp::FetchAdd {
        remote_addr, rkey, ..
    }
    | SendOp::AtomicWrite { remote_addr, rkey }
    | SendOp::Flush(Flush {
        remote_addr, rkey, ..
    }) = sent.op
    {
        line.number("remote_addr", remote_addr)
            .number("rkey", u64::from(rkey));
    }
}

fn rights(access: Rights) -> String {
    let names = [
        (Rights::LOCAL_WRITE, "LOCAL_WRITE"),
        (Rights::REMOTE_WRITE, "REMOTE_WRITE"),
        (Rights::REMOTE_READ, "REMOTE_READ"),
        (Rights::REMOTE_ATOMIC, "REMOTE_ATOMIC"),
        (Rights::FLUSH_GLOBAL, "FLUSH_GLOBAL"),
        (Rights::FLUSH_PERSISTENT, "FLUSH_PERSISTENT"),
    ];
    let has: Vec<&str> = names
        .iter()
        .filter(|(right, _)| access.contains(*right))
        .map(|(_, name)| *name)
        .collect();
    has.join(" | ")
}

fn opcode_name(opcode: CompletionOpcode) -> &'static str {
    match opcode {
        CompletionOpcode::Send => "SEND",
        CompletionOpcode::RdmaWrite => "RDMA WRITE",
        CompletionOpcode::RdmaRead => "RDMA READ",
        CompletionOpcode::CompareSwap => "compare-and-swap",
        CompletionOpcode::FetchAdd => "fetch-and-add",
        CompletionOpcode::AtomicWrite => "atomic write",
        CompletionOpcode::Flush => "FLUSH",
        CompletionOpcode::BindMw => "bind of a memory window",
        CompletionOpcode::LocalInvalidate => "local invalidate",
        CompletionOpcode::Recv | CompletionOpcode::RecvRdmaWithImm => "receive",
    }
}

/// A work request as it was posted, as far as the transport tells more than its completion.
fn posted_name(opcode: CompletionOpcode, sent: Option<&SendFailed>) -> &'static str {
    match sent.map(|sent| &sent.op) {
        Some(SendOp::Datagram { imm: None, .. }) => request_name(&SendOp::Send),
        Some(SendOp::Datagram { imm: Some(imm), .. }) => request_name(&SendOp::SendImm(*imm)),
        Some(op) => request_name(op),
        None => opcode_name(opcode),
    }
}

/// A request as the specification names it.
pub(crate) fn request_name(op: &SendOp) -> &'static str {
    match op {
        SendOp::Send => "SEND",
        SendOp::SendImm(_) => "SEND with immediate",
        SendOp::SendInvalidate(_) => "SEND with invalidate",
        SendOp::Write { .. } => "RDMA WRITE",
        SendOp::WriteImm { .. } => "RDMA WRITE with immediate",
        SendOp::Datagram { .. } => "SEND to an address handle",
        SendOp::Read { .. } => "RDMA READ",
        SendOp::CompareSwap { .. } => "compare-and-swap",
        SendOp::AtomicWrite { .. } => "atomic write",
        SendOp::FetchAdd { .. } => "fetch-and-add",
        SendOp::Flush(_) => "FLUSH",
        SendOp::BindWindow(_) => "bind of a memory window",
        SendOp::LocalInvalidate(_) => "local invalidate",
    }
}

/// A request as far as its packet tells: of one of several packets, only the last one has more.
fn operation_name(operation: Operation) -> &'static str {
    use Operation::*;
    match operation {
        SendFirst | SendMiddle | SendLast | SendOnly => "SEND",
        SendLastImm | SendOnlyImm => "SEND with immediate",
        SendLastInvalidate | SendOnlyInvalidate => "SEND with invalidate",
        WriteFirst | WriteMiddle | WriteLast | WriteOnly => "RDMA WRITE",
        WriteLastImm | WriteOnlyImm => "RDMA WRITE with immediate",
        ReadRequest => "RDMA READ",
        AtomicWrite => "atomic write",
        Flush => "FLUSH",
        CompareSwap => "compare-and-swap",
        FetchAdd => "fetch-and-add",
        _ => "a response",
    }
}

fn refused_name(why: Refused) -> &'static str {
    match why {
        Refused::Access => "access",
        Refused::ReceiveMemory => "receive memory",
        Refused::TooLong => "too long",
        Refused::NotAllowed => "not allowed",
        Refused::TooManyReads => "too many reads",
        Refused::Unaligned => "unaligned",
        Refused::Invalidate => "invalidate",
        Refused::PacketLength(_) => "packet length",
        Refused::Malformed => "malformed",
    }
}
