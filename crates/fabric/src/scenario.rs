//! What is played: hosts, queue pairs, work requests, and what the network does.

mod random;

use std::net::IpAddr;

use rnic_nic::{HostPath, MwType, Status};
use rnic_wire::{Operation, PathMtu};

pub use random::Shape;

/// A process, with one device. Those with the same address are processes of one host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSpec {
    /// Its name in scripts.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
    /// How it reaches others of its host, and itself: all of a host do so in the same way.
    pub path: HostPath,
    /// Its programs poll: they have the engine to themselves, and the background thread looks once
    /// in a millisecond. Else that thread drives.
    pub polls: bool,
    /// Time from a packet's arrival to the round that takes it in, at most, ns.
    pub wake: u64,
    /// What it takes to take a packet in, ns: neither its thread nor its programs do anything else
    /// meanwhile.
    pub takes: u64,
    /// Bytes that its port keeps of packets that the device has not taken in.
    pub receive_buffer: usize,
    /// Packets that leave its port in a microsecond; more wait in the device, as for a full socket.
    pub send_queue: usize,
    /// At first about so often its programs begin or end to poll, or, if they never poll, its thread stays
    /// awake for a while, ns. 0: never.
    pub restless: u64,
}

impl HostSpec {
    /// One of that name and address, whose programs sleep, and whose port has room for all.
    pub fn new(name: &str, address: IpAddr) -> HostSpec {
        HostSpec {
            name: name.to_owned(),
            address,
            path: HostPath::Off,
            polls: false,
            wake: 0,
            takes: 0,
            receive_buffer: 8 << 20,
            send_queue: usize::MAX,
            restless: 0,
        }
    }
}

/// Transport service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection: all arrives, in order.
    Rc,
    /// Unreliable connection: what arrives is in order.
    Uc,
}

/// What a work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SEND.
    Send,
    /// SEND with immediate.
    SendImm,
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate.
    WriteImm,
    /// RDMA READ.
    Read,
    /// Fetch and add.
    FetchAdd,
    /// Compare and swap.
    CompareSwap,
    /// The other end binds a window. Asked for when all before it is complete.
    Bind,
    /// The other end closes a window: by a local invalidate if it is of type 2, else by a bind of
    /// no bytes. Asked for when all before it is complete.
    Unbind,
    /// SEND with invalidate of a window.
    SendInvalidate,
}

impl Kind {
    /// All but those that are about a window.
    pub const ALL: [Kind; 7] = [
        Kind::Send,
        Kind::SendImm,
        Kind::Write,
        Kind::WriteImm,
        Kind::Read,
        Kind::FetchAdd,
        Kind::CompareSwap,
    ];

    /// It consumes a receive.
    pub fn takes_receive(self) -> bool {
        matches!(
            self,
            Kind::Send | Kind::SendImm | Kind::WriteImm | Kind::SendInvalidate
        )
    }

    /// The other end does it, when its program is asked.
    pub fn is_asked(self) -> bool {
        matches!(self, Kind::Bind | Kind::Unbind)
    }

    /// It has eight bytes.
    pub fn is_atomic(self) -> bool {
        matches!(self, Kind::FetchAdd | Kind::CompareSwap)
    }

    /// It writes the peer's memory.
    pub fn is_write(self) -> bool {
        matches!(self, Kind::Write | Kind::WriteImm)
    }
}

/// A work request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Op {
    /// What it does.
    pub kind: Kind,
    /// Bytes.
    pub len: u32,
    /// Posted so long after the one before, at the earliest, ns.
    pub after: u64,
    /// It makes a completion. So do the last of a direction and each that the queue's room depends
    /// on, whatever this says.
    pub signaled: bool,
    /// It waits for READs and atomics before it.
    pub fence: bool,
    /// The window that it is about, or by whose key it reaches the peer's memory, by place.
    pub window: Option<u8>,
    /// How it ends. What the rules of windows make of it is known without that.
    pub expect: Status,
}

impl Op {
    /// The place of its window.
    pub(crate) fn window(&self) -> Option<usize> {
        self.window.map(usize::from)
    }

    /// A signaled one that succeeds.
    pub fn new(kind: Kind, len: u32) -> Op {
        Op {
            kind,
            len,
            after: 0,
            signaled: true,
            fence: false,
            window: None,
            expect: Status::Success,
        }
    }
}

/// What a memory window grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// WRITEs.
    Write,
    /// READs.
    Read,
    /// Atomics, of all words.
    Atomic,
}

/// A memory window at the other end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its type.
    pub mw_type: MwType,
    /// What it grants when it is bound.
    pub grant: Grant,
    /// The first byte and the first one behind it, of the memory that such operations go to.
    /// Atomics have no use for them.
    pub range: (u32, u32),
    /// Its first byte has the address 0.
    pub zero_based: bool,
}

impl Window {
    /// Without a range if it has no use for one.
    pub(crate) fn usual(self) -> Window {
        match self.grant {
            Grant::Atomic => Window {
                range: (0, 0),
                ..self
            },
            _ => self,
        }
    }

    /// Bytes that it opens.
    pub(crate) fn len(&self) -> u32 {
        match self.grant {
            Grant::Atomic => 64,
            _ => self.range.1 - self.range.0,
        }
    }
}

/// One direction of a flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Direction {
    /// Memory windows that its operations may name.
    pub windows: Vec<Window>,
    /// What the program posts, in order.
    pub ops: Vec<Op>,
}

/// Two queue pairs that are connected.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Service.
    pub service: Service,
    /// The two hosts, by place; they may be one.
    pub hosts: [usize; 2],
    /// Path MTU.
    pub mtu: PathMtu,
    /// Work requests that a send queue takes.
    pub depth: u32,
    /// Receives that are posted at most.
    pub receives: u32,
    /// A receive is posted again so long after its completion, at most, ns.
    pub late: u64,
    /// `timeout` of the queue pairs (a code).
    pub timeout: u8,
    /// `retry_cnt`.
    pub retry: u8,
    /// `rnr_retry`; 7: for ever.
    pub rnr_retry: u8,
    /// First PSN of each side.
    pub psns: [u32; 2],
    /// The shared receive queues that the two sides take receives from, by place.
    pub srqs: [Option<usize>; 2],
    /// What each side posts.
    pub directions: [Direction; 2],
}

impl Flow {
    /// Of that service between these hosts, which posts nothing yet.
    pub fn new(service: Service, hosts: [usize; 2]) -> Flow {
        Flow {
            service,
            hosts,
            mtu: PathMtu::M1024,
            depth: 16,
            receives: 16,
            late: 0,
            timeout: 14,
            retry: 7,
            rnr_retry: 7,
            psns: [0, 0],
            srqs: [None, None],
            directions: Default::default(),
        }
    }
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// An endpoint, by place.
    Endpoint(usize),
    /// A multicast group.
    Group(IpAddr),
}

/// A work request of UD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Where it goes.
    pub to: To,
    /// Bytes.
    pub len: u32,
    /// It has immediate data.
    pub imm: bool,
    /// The Q_Key that it names; `None`: that of the endpoint that it goes to, and to a group the
    /// sender's.
    pub qkey: Option<u32>,
    /// As [`Op::after`].
    pub after: u64,
    /// As [`Op::signaled`].
    pub signaled: bool,
    /// How it ends.
    pub expect: Status,
}

impl Datagram {
    /// A signaled one that succeeds, with the right Q_Key.
    pub fn new(to: To, len: u32) -> Datagram {
        Datagram {
            to,
            len,
            imm: false,
            qkey: None,
            after: 0,
            signaled: true,
            expect: Status::Success,
        }
    }
}

/// A queue pair of UD.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Its name in scripts.
    pub name: String,
    /// Its host, by place.
    pub host: usize,
    /// Its Q_Key.
    pub qkey: u32,
    /// Multicast groups that it is attached to.
    pub groups: Vec<IpAddr>,
    /// Work requests that its send queue takes.
    pub depth: u32,
    /// Receives that are posted at most; 0: none ever is.
    pub receives: u32,
    /// As [`Flow::late`].
    pub late: u64,
    /// Bytes of each receive, with those of the GRH; `None`: what the longest message needs.
    pub room: Option<u32>,
    /// First PSN.
    pub psn: u32,
    /// The shared receive queue that it takes receives from, by place.
    pub srq: Option<usize>,
    /// What it posts, in order.
    pub datagrams: Vec<Datagram>,
}

impl Endpoint {
    /// One of that name and host, which posts nothing yet.
    pub fn new(name: &str, host: usize) -> Endpoint {
        Endpoint {
            name: name.to_owned(),
            host,
            qkey: 0x1234_5678,
            groups: Vec::new(),
            depth: 16,
            receives: 16,
            late: 0,
            room: None,
            psn: 0,
            srq: None,
            datagrams: Vec::new(),
        }
    }
}

/// A shared receive queue.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedReceives {
    /// Its name in scripts.
    pub name: String,
    /// Its host, by place.
    pub host: usize,
    /// Receives that are posted at most.
    pub receives: u32,
    /// As [`Flow::late`].
    pub late: u64,
    /// The limit that its event is armed with, again after each event; 0: none.
    pub limit: u32,
}

impl SharedReceives {
    /// One of that name and host.
    pub fn new(name: &str, host: usize) -> SharedReceives {
        SharedReceives {
            name: name.to_owned(),
            host,
            receives: 16,
            late: 0,
            limit: 0,
        }
    }
}

impl Flow {
    /// A message of it may end in the middle, and leave bytes in its receive.
    pub(crate) fn may_leave_bytes(&self) -> bool {
        let fails = |way: &Direction| way.ops.iter().any(|op| op.expect != Status::Success);
        self.service == Service::Uc || self.directions.iter().any(fails)
    }
}

/// What the network does to packets at random. Probabilities are per packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Impairments {
    /// A packet is lost.
    pub loss: f64,
    /// It arrives with a wrong ICRC.
    pub corrupt: f64,
    /// It arrives twice.
    pub duplicate: f64,
    /// Others overtake it.
    pub reorder: f64,
    /// From one end to the other, least and most, ns.
    pub delay: (u64, u64),
    /// What a packet that is overtaken, or that arrives twice, takes longer, at most, ns.
    pub detour: u64,
    /// How often a PSN of a queue pair may be harmed. With a bound below the retry counter each
    /// operation of an RC queue pair has to succeed.
    pub harm_per_psn: Option<u8>,
}

impl Default for Impairments {
    fn default() -> Impairments {
        Impairments {
            loss: 0.0,
            corrupt: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            delay: (1_000, 1_000),
            detour: 50_000,
            harm_per_psn: None,
        }
    }
}

/// What the network does to one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is lost.
    Drop,
    /// It arrives with a wrong ICRC, which a port drops.
    Corrupt,
    /// It arrives, and so much later, ns, it does once more.
    Duplicate(u64),
    /// It arrives so much later, ns, and others overtake it.
    Delay(u64),
}

/// What becomes of certain packets from one host to another, instead of random harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    /// The host that sends them, by place.
    pub from: usize,
    /// The host that they are for.
    pub to: usize,
    /// Packets that do this are meant, and counted; `None`: all.
    pub operation: Option<Operation>,
    /// The first and the last of them, from 1. `u64::MAX`: however many there are.
    pub nth: (u64, u64),
    /// What becomes of each.
    pub fate: Fate,
}

/// What happens to a process, or what its program does beside its work requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incident {
    /// The process, by place in the list of hosts.
    pub host: usize,
    /// When, ns from the start.
    pub at: u64,
    /// What.
    pub what: What,
}

impl Incident {
    /// Queue pairs of the process, and their peers, may be unable to go on.
    pub(crate) fn ends_flows(&self) -> bool {
        !matches!(self.what, What::Stop(_) | What::StopCopying(_))
    }
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It is killed. 0: at once. Else at that step of its port, from 1, in the middle of whatever it
    /// does, or a millisecond later.
    Kill(u64),
    /// It is killed in the middle of a copy to or from each process that it may reach.
    KillCopying,
    /// It is stopped for so long, ns, as by SIGSTOP.
    Stop(u64),
    /// The same in the middle of such copies.
    StopCopying(u64),
    /// Its programs deregister what their peers write to.
    Deregister,
}

/// What can be counted of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Time until all is complete, ns.
    Time,
    /// Packets that devices sent.
    Packets,
    /// Those that a queue pair repeated.
    Retransmissions,
    /// Expired ACK timeouts.
    Timeouts,
    /// RNR NAKs sent.
    RnrNaks,
    /// PSN sequence error NAKs sent.
    SequenceNaks,
    /// Requests executed before, and responses consumed before.
    Duplicates,
    /// Messages that programs received.
    Received,
    /// Messages of UC and UD that were dropped for want of a receive, or that lacked packets.
    Dropped,
    /// Datagrams with a wrong Q_Key.
    QkeyViolations,
    /// Limit events of shared receive queues.
    LimitEvents,
    /// Packets that devices sent through rings.
    Rings,
    /// Bytes that initiators copied without packets.
    Copied,
    /// Packets whose payload went by reference.
    References,
    /// Deregistrations that ended with EBUSY.
    Busy,
}

/// How what was counted compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Not above the bound.
    AtMost,
    /// The bound.
    Exactly,
    /// Not below the bound.
    AtLeast,
}

/// What must hold at the end, beside what the oracle checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// What is counted, of all hosts and flows together.
    pub measure: Measure,
    /// How it compares to `value`.
    pub relation: Relation,
    /// The number.
    pub value: u64,
}

impl Bound {
    /// What was counted is as it must be.
    pub fn holds(&self, counted: u64) -> bool {
        match self.relation {
            Relation::AtMost => counted <= self.value,
            Relation::Exactly => counted == self.value,
            Relation::AtLeast => counted >= self.value,
        }
    }
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scenario {
    /// Decides what is random.
    pub seed: u64,
    /// The hosts.
    pub hosts: Vec<HostSpec>,
    /// Shared receive queues.
    pub srqs: Vec<SharedReceives>,
    /// Queue pairs that are connected.
    pub flows: Vec<Flow>,
    /// Those of UD.
    pub endpoints: Vec<Endpoint>,
    /// What the network does.
    pub impairments: Impairments,
    /// What becomes of certain packets. Each of them has to be sent.
    pub fates: Vec<Marked>,
    /// What happens to processes.
    pub incidents: Vec<Incident>,
    /// What must hold at the end.
    pub bounds: Vec<Bound>,
}

impl Direction {
    /// Bytes of its longest operation; memory for any has some.
    pub(crate) fn largest(&self) -> usize {
        let lens = self.ops.iter().map(|op| op.len as usize);
        lens.max().unwrap_or(0).max(64)
    }
}

impl Scenario {
    /// Bytes of each receive of a shared receive queue: what the longest message to any of its
    /// users needs.
    pub(crate) fn shared_room(&self, srq: usize) -> usize {
        let flows = self.flows.iter().flat_map(|flow| {
            let ends = (0..2).filter(|end| flow.srqs[*end] == Some(srq));
            ends.map(|end| flow.directions[1 - end].largest())
        });
        let endpoints = self.endpoints.iter().filter(|e| e.srq == Some(srq));
        let endpoints = endpoints.map(|endpoint| self.receive_room(endpoint));
        flows.chain(endpoints).max().unwrap_or(64)
    }

    /// Messages that take receives of a shared receive queue, if each comes once.
    pub(crate) fn most_to(&self, srq: usize) -> usize {
        let flows = self.flows.iter().map(|flow| {
            let ends = (0..2).filter(|end| flow.srqs[*end] == Some(srq));
            let ops = ends.flat_map(|end| &flow.directions[1 - end].ops);
            ops.filter(|op| op.kind.takes_receive()).count()
        });
        let endpoints = self.endpoints.iter().filter(|e| e.srq == Some(srq));
        let datagrams = self.endpoints.iter().map(|from| from.datagrams.len());
        flows.sum::<usize>() + endpoints.count() * datagrams.sum::<usize>()
    }

    /// Bytes that a receive of an endpoint has, those of the GRH included.
    pub(crate) fn receive_room(&self, endpoint: &Endpoint) -> usize {
        let all = self.endpoints.iter().flat_map(|from| &from.datagrams);
        let to_this = all.filter(|datagram| match datagram.to {
            To::Endpoint(to) => self
                .endpoints
                .get(to)
                .is_some_and(|to| to.name == endpoint.name),
            To::Group(group) => endpoint.groups.contains(&group),
        });
        let longest = to_this.map(|datagram| datagram.len).max();
        let usual = rnic_wire::UdPrefix::LEN as u32 + longest.unwrap_or(0).max(64);
        endpoint.room.unwrap_or(usual) as usize
    }
}
