//! The cells: what one queue pair asks of another that does not quite fit it.

use std::sync::OnceLock;

use rnic_nic::{Context, PathMtu, QpState};

/// Transport service of the initiator's queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Rc,
    Uc,
    Ud,
    Xrc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
    FetchAdd,
    CompareSwap,
}

impl Op {
    pub fn is_atomic(self) -> bool {
        matches!(self, Op::FetchAdd | Op::CompareSwap)
    }

    /// It is the responder's memory that is named, by a key.
    pub fn is_one_sided(self) -> bool {
        !matches!(self, Op::Send | Op::SendImm)
    }

    pub fn takes_receive(self) -> bool {
        matches!(self, Op::Send | Op::SendImm | Op::WriteImm)
    }
}

/// What was done on the connection before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing.
    Nothing,
    /// A short RDMA WRITE by the same key succeeded: from then on WRITEs and READs may need no
    /// packets.
    Write,
    /// That, and another short operation of the same kind is posted in one list with the one in
    /// question.
    Row,
}

/// When a side changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// So it was set up.
    First,
    /// After the short WRITE.
    Later,
}

/// The P_Key table of all processes.
pub const PKEYS: &str = "0xffff,0x8001,0x1234,0x9234";
/// Its index of another partition than the one of index 0.
pub const OTHER_PARTITION: u16 = 1;
/// A limited and a full member of one partition.
pub const LIMITED: u16 = 2;
pub const FULL: u16 = 3;

/// What does not fit, beside the path MTUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    Nothing,
    /// The responder expects a PSN that is so much greater than the first one that is sent.
    StartPsn(i32),
    /// The initiator has begun anew, with another PSN; the responder has not.
    BegunAnew,
    /// The responder is connected with another queue pair.
    PeersPeer,
    /// It is connected with another address.
    Address,
    /// The initiator's packets go to another address of the responder's, since they took another
    /// way.
    OtherWay,
    /// The same, but it has always been so.
    WrongWay,
    /// The responder's queue pair is of another service.
    OtherService(Service),
    /// It is in that state.
    State(QpState, When),
    Destroyed(When),
    QKey,
    /// The responder is in another partition; later: the initiator has gone to another one.
    Partition(When),
    /// The responder has gone to another partition, later.
    PartitionThere,
    /// Both are limited members of their partition.
    BothLimited,
    /// The initiator is a limited member and the responder a full one, which fits.
    LimitedHere,
    /// The other way round, which fits, too.
    LimitedThere,
    /// The responder's queue pair lacks the right.
    QpRight(When),
    /// The responder's region does.
    RegionRight,
    /// There is no such region.
    Key,
    /// The region is of another protection domain than the responder's queue pair.
    Pd,
    /// The last byte lies behind the region.
    Range,
    /// The address of an atomic is no multiple of 8.
    Alignment,
    /// The region is deregistered.
    Deregistered,
    /// The key is a window's: which fits.
    Window,
    /// The window is closed.
    ClosedWindow,
    /// There is no such region on the initiator's side.
    LocalKey,
    /// The responder has no receive.
    NoReceive,
    /// Its receive is a byte too short.
    ShortReceive,
    /// Its receive names no region.
    ReceiveKey,
    /// The initiator's max_rd_atomic is 0.
    NoReadsHere,
    /// The responder's max_dest_rd_atomic is 0.
    NoReadsThere,
    /// There is no such shared receive queue.
    Srq,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub service: Service,
    pub op: Op,
    pub len: u32,
    /// Path MTU of the initiator, and of the responder.
    pub mtu: [PathMtu; 2],
    pub before: Before,
    pub misfit: Misfit,
    /// The bytes are in the work request.
    pub inline: bool,
}

/// Beyond what is executed in one part: the first part lies within the region.
pub const SEVERAL_PARTS: u32 = (1 << 20) + 100;
/// As the queue pairs are made.
pub const MOST_INLINE: u32 = 64;
/// Longer ones are no part of a row.
const LONGEST_OF_ROW: u32 = 16 * 1024;
/// The longest datagram: the path MTU of the port, which follows the host's interfaces (4096 bytes
/// if there is loopback alone).
pub fn port_mtu() -> PathMtu {
    static MTU: OnceLock<PathMtu> = OnceLock::new();
    *MTU.get_or_init(|| {
        let context = Context::open().expect("a device");
        context.port_attr(1).expect("its port").active_mtu
    })
}

const FITTING: [[PathMtu; 2]; 2] = [[PathMtu::M1024; 2], [PathMtu::M4096; 2]];
const UNLIKE: [[PathMtu; 2]; 4] = [
    [PathMtu::M1024, PathMtu::M4096],
    [PathMtu::M4096, PathMtu::M1024],
    [PathMtu::M256, PathMtu::M512],
    [PathMtu::M512, PathMtu::M256],
];

/// At and around each path MTU, what a short message is, and what one packet through shared memory
/// takes by value, by reference, or does without being one.
fn lengths(mtu: [PathMtu; 2]) -> Vec<u32> {
    let around = |n: u32| [n - 1, n, n + 1];
    let mut all = vec![0, 1, 4, 64, 65];
    for mtu in mtu.map(|mtu| mtu.bytes() as u32) {
        all.extend(around(mtu));
        all.extend(around(2 * mtu));
    }
    all.extend([16, 32, 64].map(|k| around(k * 1024)).iter().flatten());
    all.sort_unstable();
    all.dedup();
    all
}

fn all_ops(service: Service) -> &'static [Op] {
    use Op::*;
    match service {
        Service::Rc | Service::Xrc => {
            &[Send, SendImm, Write, WriteImm, Read, FetchAdd, CompareSwap]
        }
        Service::Uc => &[Send, SendImm, Write, WriteImm],
        Service::Ud => &[Send, SendImm],
    }
}

/// Every cell.
pub fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    path_mtus(&mut cells);
    others(&mut cells);
    let may = |cell: &&Cell| {
        cell.len <= MOST_INLINE
            && !cell.op.is_atomic()
            && cell.op != Op::Read
            && cell.misfit != Misfit::LocalKey
    };
    let inline = |cell: &Cell| Cell {
        inline: true,
        ..*cell
    };
    let inline: Vec<Cell> = cells.iter().filter(may).map(inline).collect();
    cells.extend(inline);
    cells
}

fn path_mtus(cells: &mut Vec<Cell>) {
    for service in [Service::Rc, Service::Uc, Service::Xrc] {
        // One of those that fit shows as much, but for the longest packets.
        let fitting = if service == Service::Rc { 2 } else { 1 };
        for mtu in FITTING.into_iter().take(fitting).chain(UNLIKE) {
            for len in lengths(mtu) {
                // Which does not know long packets, nor does without any.
                if service == Service::Xrc && len > 3 * 4096 {
                    continue;
                }
                for &op in all_ops(service) {
                    if op.is_atomic() {
                        continue;
                    }
                    let cell = Cell {
                        service,
                        op,
                        len,
                        mtu,
                        before: Before::Nothing,
                        misfit: Misfit::Nothing,
                        inline: false,
                    };
                    cells.push(cell);
                    let repeats = match service {
                        Service::Rc => matches!(op, Op::Write | Op::Read),
                        Service::Uc => op == Op::Write,
                        _ => false,
                    };
                    if repeats {
                        let before = Before::Write;
                        cells.push(Cell { before, ..cell });
                        if len <= LONGEST_OF_ROW + 1 {
                            let before = Before::Row;
                            cells.push(Cell { before, ..cell });
                        }
                    }
                }
            }
            for &op in all_ops(service).iter().filter(|op| op.is_atomic()) {
                cells.push(Cell {
                    service,
                    op,
                    len: 8,
                    mtu,
                    before: Before::Nothing,
                    misfit: Misfit::Nothing,
                    inline: false,
                });
            }
        }
    }
    let longest = port_mtu().bytes() as u32;
    for len in [0, 1, 64, 65, longest - 1, longest, longest + 1] {
        for &op in all_ops(Service::Ud) {
            cells.push(Cell {
                service: Service::Ud,
                op,
                len,
                mtu: [port_mtu(); 2],
                before: Before::Nothing,
                misfit: Misfit::Nothing,
                inline: false,
            });
        }
    }
}

/// Lengths that take each of the ways through shared memory.
const WAYS: [u32; 5] = [8, 200, 3000, 20_000, 65_536];

fn misfits(service: Service) -> Vec<Misfit> {
    use Misfit::*;
    use QpState::{Err, Init, Reset, Rtr, Sqd};
    let mut all = vec![
        LocalKey,
        NoReceive,
        ReceiveKey,
        Destroyed(When::First),
        Destroyed(When::Later),
        Partition(When::First),
        Partition(When::Later),
        PartitionThere,
        BothLimited,
        LimitedHere,
        LimitedThere,
    ];
    for state in [Reset, Init, Rtr, Sqd, Err] {
        all.push(State(state, When::First));
        if state != Rtr {
            all.push(State(state, When::Later));
        }
    }
    for other in [Service::Rc, Service::Uc, Service::Ud, Service::Xrc] {
        if other != service {
            all.push(OtherService(other));
        }
    }
    if service == Service::Ud {
        all.extend([QKey, ShortReceive]);
        return all;
    }
    all.extend([
        PeersPeer,
        Address,
        OtherWay,
        WrongWay,
        ShortReceive,
        StartPsn(1000),
        StartPsn(-1000),
        StartPsn(5000),
        QpRight(When::First),
        QpRight(When::Later),
        RegionRight,
        Key,
        Pd,
        Range,
        Alignment,
        Deregistered,
        Window,
        ClosedWindow,
        NoReadsHere,
        NoReadsThere,
    ]);
    // Within a packet through shared memory, and at its last PSN.
    all.extend([2, 3].map(StartPsn));
    match service {
        Service::Rc | Service::Uc => all.push(BegunAnew),
        Service::Xrc => all.push(Srq),
        _ => {}
    }
    all
}

/// A misfit of that kind is one of this operation, and of no other.
fn concerns(cell: &Cell) -> bool {
    use Misfit::{
        Address, Alignment, BegunAnew, BothLimited, ClosedWindow, Deregistered, Destroyed, Key,
        LimitedHere, LimitedThere, LocalKey, NoReadsHere, NoReadsThere, NoReceive, Nothing,
        OtherService, OtherWay, Partition, PartitionThere, Pd, PeersPeer, QKey, QpRight, Range,
        ReceiveKey, RegionRight, ShortReceive, Srq, StartPsn, State, Window, WrongWay,
    };
    let Cell {
        service, op, len, ..
    } = *cell;
    let repeats = cell.before != Before::Nothing;
    let reads = op == Op::Read || op.is_atomic();
    match cell.misfit {
        Nothing => false,
        State(_, When::Later)
        | Destroyed(When::Later)
        | Partition(When::Later)
        | PartitionThere => repeats || service == Service::Ud,
        LimitedHere | LimitedThere => true,
        BegunAnew | OtherWay => repeats,
        StartPsn(_) | PeersPeer | Address | WrongWay | OtherService(_) | State(..)
        | Destroyed(_) | QKey | Partition(_) | BothLimited => !repeats,
        QpRight(when) => op.is_one_sided() && (when == When::Later) == repeats,
        RegionRight | Pd => op.is_one_sided() && !repeats,
        Key | Range => op.is_one_sided() && (len > 0 || cell.misfit == Key),
        // Binds belong to the queue pair's protection domain, and an XRC target has none.
        Window => op.is_one_sided() && !op.is_atomic() && service != Service::Xrc,
        ClosedWindow => op.is_one_sided() && !op.is_atomic() && repeats && service != Service::Xrc,
        Deregistered => op.is_one_sided() && repeats,
        Alignment => op.is_atomic() && !repeats,
        LocalKey => len > 0,
        NoReceive => op.takes_receive() && !repeats,
        ShortReceive | ReceiveKey => {
            op.takes_receive() && op != Op::WriteImm && !repeats && len > 0
        }
        NoReadsHere => reads && service != Service::Uc,
        NoReadsThere => reads && !repeats && service != Service::Uc,
        Srq => !repeats,
    }
}

fn others(cells: &mut Vec<Cell>) {
    for service in [Service::Rc, Service::Uc, Service::Ud, Service::Xrc] {
        for misfit in misfits(service) {
            for &op in all_ops(service) {
                let befores: &[Before] = match service {
                    Service::Ud => &[Before::Nothing],
                    _ => &[Before::Nothing, Before::Write],
                };
                for &before in befores {
                    for len in lengths_for(service, op, misfit) {
                        let cell = Cell {
                            service,
                            op,
                            len,
                            mtu: [PathMtu::M1024; 2],
                            before,
                            misfit,
                            inline: false,
                        };
                        if concerns(&cell) {
                            cells.push(cell);
                        }
                    }
                }
            }
        }
    }
}

fn lengths_for(service: Service, op: Op, misfit: Misfit) -> Vec<u32> {
    match (service, misfit) {
        _ if op.is_atomic() => vec![8],
        (Service::Ud, _) => vec![0, 8, 200, port_mtu().bytes() as u32 - 24],
        // A key of no bytes means nothing.
        (_, Misfit::Key | Misfit::RegionRight | Misfit::Pd | Misfit::Deregistered) => {
            WAYS.into_iter().chain([0]).collect()
        }
        (_, Misfit::Range) => WAYS.into_iter().chain([SEVERAL_PARTS]).collect(),
        (_, Misfit::StartPsn(2 | 3)) => vec![1000, 2000, 2500, 3000, 20_000],
        _ => WAYS.to_vec(),
    }
}
