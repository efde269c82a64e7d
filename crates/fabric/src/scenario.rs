//! What is played: hosts, queue pairs, work requests, and what the network does.

use std::net::IpAddr;

use rnic_nic::{HostPath, Status};
use rnic_wire::{Operation, PathMtu};

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
}

impl Kind {
    /// All.
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
        matches!(self, Kind::Send | Kind::SendImm | Kind::WriteImm)
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
    /// How it ends.
    pub expect: Status,
}

impl Op {
    /// A signaled one that succeeds.
    pub fn new(kind: Kind, len: u32) -> Op {
        Op {
            kind,
            len,
            after: 0,
            signaled: true,
            fence: false,
            expect: Status::Success,
        }
    }
}

/// One direction of a flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Direction {
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
            directions: Default::default(),
        }
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
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Decides what is random.
    pub seed: u64,
    /// The hosts.
    pub hosts: Vec<HostSpec>,
    /// The queue pairs.
    pub flows: Vec<Flow>,
    /// What the network does.
    pub impairments: Impairments,
    /// What becomes of certain packets. Each of them has to be sent.
    pub fates: Vec<Marked>,
    /// What happens to processes.
    pub incidents: Vec<Incident>,
    /// What must hold at the end.
    pub bounds: Vec<Bound>,
}

/// What random scenarios are like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Flows at most.
    pub flows: usize,
    /// Work requests of a direction at most.
    pub ops: usize,
    /// Bytes of a work request at most.
    pub largest: u32,
    /// The sum of all probabilities of harm at most.
    pub harm: f64,
    /// So often, of ten times, processes are killed, stopped, and lose memory.
    pub incidents: u8,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            flows: 6,
            ops: 60,
            largest: 20_000,
            harm: 0.2,
            incidents: 3,
        }
    }
}

impl Scenario {
    /// The random one of this seed.
    pub fn random(seed: u64, shape: &Shape) -> Scenario {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut hosts: Vec<HostSpec> = (0..rng.usize(1..=4))
            .map(|at| HostSpec {
                polls: rng.bool(),
                wake: [0, 2_000, 20_000][rng.usize(..3)],
                send_queue: [8, 100, usize::MAX, usize::MAX][rng.usize(..4)],
                ..HostSpec::new(["a", "b", "c", "d"][at], [10, 0, 0, 1 + at as u8].into())
            })
            .collect();
        let harm = match rng.u8(..5) {
            0 => 0.0,
            1 => shape.harm * rng.f64(),
            _ => shape.harm * (0.7 + 0.3 * rng.f64()),
        };
        let mut parts = [rng.f64(), rng.f64(), rng.f64()];
        let whole: f64 = parts.iter().sum();
        // Numbers that a person can read.
        let rounded = |part: f64| (part * 1000.0).floor() / 1000.0;
        parts
            .iter_mut()
            .for_each(|part| *part = rounded(*part * harm / whole));
        let [loss, corrupt, reorder] = parts;
        let least = rng.u64(200..5_000);
        let impairments = Impairments {
            loss,
            corrupt,
            reorder,
            duplicate: rounded(harm * rng.f64() / 4.0),
            delay: (least, least + [0, 100, 20_000][rng.usize(..3)]),
            detour: [5_000, 50_000, 2_000_000][rng.usize(..3)],
            harm_per_psn: Some(3),
        };
        let count = rng.usize(1..=shape.flows.max(1));
        let flows: Vec<Flow> = (0..count)
            .map(|_| random_flow(&mut rng, hosts.len(), shape))
            .collect();
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x7072_6f63_0000);
        random_processes(&mut rng, &mut hosts);
        let incidents = match rng.u8(..10) < shape.incidents {
            true => random_incidents(&mut rng, &hosts, &flows),
            false => Vec::new(),
        };
        Scenario {
            seed,
            hosts,
            flows,
            impairments,
            fates: Vec::new(),
            incidents,
            bounds: Vec::new(),
        }
    }
}

/// Some of them become processes of one host, which reach each other by packets, by rings, or in
/// any way.
fn random_processes(rng: &mut fastrand::Rng, hosts: &mut [HostSpec]) {
    for at in 0..hosts.len() {
        let (before, rest) = hosts.split_at_mut(at);
        let spec = &mut rest[0];
        spec.path = [HostPath::Off, HostPath::Rings, HostPath::On][rng.usize(..3)];
        spec.restless = [0, 20_000, 500_000][rng.usize(..3)];
        if at > 0 && rng.u8(..3) > 0 {
            let first = &before[rng.usize(..at)];
            (spec.address, spec.path) = (first.address, first.path);
        }
    }
}

/// One or two of them. Nobody is stopped for so long that a peer on another host gives up.
fn random_incidents(rng: &mut fastrand::Rng, hosts: &[HostSpec], flows: &[Flow]) -> Vec<Incident> {
    let one = |rng: &mut fastrand::Rng| {
        let host = rng.usize(..hosts.len());
        let mut peers = flows.iter().filter(|flow| flow.hosts.contains(&host));
        let stays = |peer: &usize| hosts[*peer].address == hosts[host].address;
        let longest = match peers.all(|flow| flow.hosts.iter().all(stays)) {
            true => 1_500_000_000,
            false => 5_000_000,
        };
        let what = match rng.u8(..8) {
            0 => What::Kill(0),
            1 | 2 => What::Kill(rng.u64(1..40)),
            3 => What::KillCopying,
            4 => What::Stop(rng.u64(1..longest)),
            5 => What::StopCopying(rng.u64(1..5_000_000)),
            _ => What::Deregister,
        };
        // Most scenarios are over after a few hundred microseconds.
        let latest = [20_000, 200_000, 5_000_000][rng.usize(..3)];
        let at = rng.u64(..latest);
        Incident { host, at, what }
    };
    let count = rng.usize(1..=2);
    (0..count).map(|_| one(rng)).collect()
}

fn random_flow(rng: &mut fastrand::Rng, hosts: usize, shape: &Shape) -> Flow {
    let service = match rng.u8(..5) {
        0 => Service::Uc,
        _ => Service::Rc,
    };
    let mtu = PathMtu::ALL[rng.usize(..PathMtu::ALL.len())];
    let psn = |rng: &mut fastrand::Rng| match rng.u8(..3) {
        0 => 0,
        // Wraps soon.
        1 => 0xff_ffff - rng.u32(..64),
        _ => rng.u32(..1 << 24),
    };
    let psns = [psn(rng), psn(rng)];
    let mut direction = || {
        let ops = (0..rng.usize(..=shape.ops)).map(|_| {
            let kind = match service {
                Service::Rc => Kind::ALL[rng.usize(..Kind::ALL.len())],
                Service::Uc => [Kind::Send, Kind::SendImm][rng.usize(..2)],
            };
            let len = match rng.u8(..8) {
                _ if kind.is_atomic() => 8,
                0 => 0,
                1..=3 => rng.u32(1..=64),
                4..=6 => (mtu.bytes() as u32 * rng.u32(1..=4) + rng.u32(..3)).saturating_sub(1),
                _ => rng.u32(..=shape.largest),
            };
            Op {
                after: [0, 0, 0, 1_000, 100_000][rng.usize(..5)],
                signaled: rng.bool(),
                fence: rng.u8(..10) == 0,
                ..Op::new(kind, len.min(shape.largest.max(8)))
            }
        });
        Direction { ops: ops.collect() }
    };
    let directions = [direction(), direction()];
    Flow {
        service,
        hosts: [rng.usize(..hosts), rng.usize(..hosts)],
        mtu,
        depth: rng.u32(2..=32),
        receives: rng.u32(1..=16),
        late: [0, 0, 300_000][rng.usize(..3)],
        timeout: rng.u8(10..=14),
        retry: 7,
        rnr_retry: 7,
        psns,
        directions,
    }
}
