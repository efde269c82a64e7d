//! The two sides of the cells, in one process or in two. They do the same steps and wait for each
//! other between them.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rnic_nic::{
    Access, AhAttr, BindWindow, Completion, CompletionOpcode, Context, Cq, Gid, Immediate, Mr, Mw,
    MwType, Pd, Qp, QpAttr, QpAttrMask as M, QpCap, QpInit, QpState, QpType, RecvWqe, SendData,
    SendOp, SendWqe, SgList, Sge, ShortSend, Srq, SrqInit, Status, Xrcd,
};

use super::model::{self, Bytes, Outcome, Receive, START_PSN};
use super::table::{Before, Cell, FULL, LIMITED, Misfit, OTHER_PARTITION, Op, Service, When};

/// Cells at a time.
const BATCH: usize = 64;
/// A side that waits so long reports what it has.
const PATIENCE: Duration = Duration::from_secs(60);
const QKEY: u32 = 0x1111;
const IMM: [u8; 4] = [1, 2, 3, 4];
/// Of the message that follows.
const MARKER: [u8; 4] = [9; 4];
/// Bytes of memory that belong to no operation, before and behind it.
const WARM: usize = 8;
const GUARD: usize = 64;
const NOBODY: u32 = 0x00ff_fff0;
/// What atomics find, and what they do to it.
const FOUND: u64 = 0x1122_3344_5566_7788;
const ADDEND: u64 = 3;

/// What one side tells the other.
pub struct Wire(UnixStream);

impl Wire {
    pub fn new(stream: UnixStream) -> Wire {
        stream
            .set_read_timeout(Some(4 * PATIENCE))
            .expect("a timeout");
        Wire(stream)
    }

    fn say(&mut self, words: &[u64]) {
        let mut bytes = (words.len() as u64).to_ne_bytes().to_vec();
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        self.0.write_all(&bytes).expect("the other side listens");
    }

    fn hear(&mut self) -> VecDeque<u64> {
        let mut word = || {
            let mut bytes = [0; 8];
            self.0
                .read_exact(&mut bytes)
                .expect("the other side goes on");
            u64::from_ne_bytes(bytes)
        };
        (0..word()).map(|_| word()).collect()
    }
}

/// Memory with its region.
struct Region {
    bytes: Box<[u8]>,
    /// What they were.
    before: Box<[u8]>,
    mr: Option<Mr>,
}

impl Region {
    /// The first `open` bytes are registered.
    fn new(pd: &Pd, bytes: Vec<u8>, open: usize, access: Access) -> Region {
        let mut bytes = bytes.into_boxed_slice();
        let at = bytes.as_mut_ptr();
        // SAFETY: the box outlives the region: `Region::changed` and `Region::drop` deregister it
        // first, and nobody looks at its bytes before.
        let mr = unsafe { pd.reg_mr(at, open, at as u64, access) }.expect("a region");
        Region {
            before: bytes.clone(),
            bytes,
            mr: Some(mr),
        }
    }

    fn at(&self, offset: usize) -> u64 {
        self.bytes.as_ptr() as u64 + offset as u64
    }

    fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge {
            addr: self.at(offset),
            length: len as u32,
            lkey: self.mr.as_ref().map_or(1, Mr::lkey),
        }
    }

    fn revoke(&mut self) {
        if let Some(mr) = self.mr.take() {
            crate::pair::deregister(mr);
        }
    }

    /// What was done to the bytes at `offset`, which `wanted` are to be in place of: nothing else
    /// may have changed but the first [`WARM`] bytes.
    fn changed(&mut self, offset: usize, wanted: &[u8]) -> Bytes {
        self.revoke();
        let bytes = std::hint::black_box(&*self.bytes);
        let behind = offset + wanted.len();
        let others = bytes[WARM..offset] == self.before[WARM..offset]
            && bytes[behind..] == self.before[behind..];
        let own = &bytes[offset..behind];
        let before = &self.before[offset..behind];
        let begun = own.iter().zip(wanted).take_while(|(a, b)| a == b).count();
        match begun {
            _ if !others => Bytes::Other,
            _ if own == before => Bytes::Untouched,
            _ if own == wanted => Bytes::Changed,
            _ if own[begun..] == before[begun..] => Bytes::Begun(begun as u32),
            _ => Bytes::Other,
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.revoke();
    }
}

/// Bytes of the initiator, and of the responder: nowhere the same.
fn pattern(of: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| ((i * 31 + (i >> 8) * 7) as u8 & 0x7f) | of)
        .collect()
}
const INITIATORS: u8 = 0x80;
const RESPONDERS: u8 = 0;

/// What a side has once.
struct Device {
    context: Context,
    pd: Pd,
    other_pd: Pd,
    cq: Cq,
    control: Qp,
    control_cq: Cq,
    gid: Gid,
    gid_index: u8,
    arrived: Vec<Completion>,
}

const ALL: Access = Access(31);

fn init(qp_type: QpType, cq: &Cq) -> QpInit {
    QpInit {
        qp_type,
        send_cq: cq.clone(),
        recv_cq: cq.clone(),
        srq: None,
        cap: QpCap {
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 64,
        },
        sq_sig_all: false,
        cookie: 0,
    }
}

impl Device {
    fn open(wire: &mut Wire) -> Device {
        let context = Context::open().expect("a device");
        let pd = context.alloc_pd();
        let queue = |depth| {
            context
                .create_cq(depth, None, 0)
                .expect("a completion queue")
        };
        let (cq, control_cq) = (queue(64 * BATCH as u32), queue(16));
        let control = pd
            .create_qp(&init(QpType::Rc, &control_cq))
            .expect("a queue pair");
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let table = context.gid_table();
        let found = table.into_iter().find(|entry| entry.addr == here);
        let gid_index = found.expect("a GID").index as u8;
        let device = Device {
            other_pd: context.alloc_pd(),
            context,
            pd,
            cq,
            control,
            control_cq,
            gid: Gid::from(here),
            gid_index,
            arrived: Vec::new(),
        };
        wire.say(&[device.control.qpn().into()]);
        let peer = wire.hear()[0] as u32;
        let attr = device.attr(peer);
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            to(&device.control, state, &attr);
        }
        device
    }

    fn address(&self) -> AhAttr {
        AhAttr {
            dgid: self.gid,
            sgid_index: self.gid_index,
            is_global: true,
            port_num: 1,
            ..AhAttr::default()
        }
    }

    fn attr(&self, peer: u32) -> QpAttr {
        QpAttr {
            qp_access_flags: ALL,
            port_num: 1,
            path_mtu: Some(rnic_nic::PathMtu::M1024),
            dest_qp_num: peer,
            max_dest_rd_atomic: 4,
            max_rd_atomic: 4,
            min_rnr_timer: 1,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            qkey: QKEY,
            ah: self.address(),
            ..QpAttr::default()
        }
    }

    /// Takes what has completed; in vain: false.
    fn poll(&mut self) -> bool {
        let arrived = &mut self.arrived;
        self.cq.poll(64, &mut |c| arrived.push(*c)).expect("polled") > 0
    }

    /// Until that many have completed in all, or nothing does any more.
    fn await_completions(&mut self, all: usize) {
        let start = Instant::now();
        while self.arrived.len() < all && start.elapsed() < PATIENCE {
            self.poll();
        }
    }

    /// The initiator: all that it sent is with the responder.
    fn push(&mut self) {
        let wqe = SendWqe {
            signaled: true,
            ..SendWqe::default()
        };
        post(&self.control, vec![wqe]).expect("posted");
        self.await_control();
    }

    /// The responder: that has come.
    fn await_push(&mut self) {
        self.await_control();
    }

    fn post_control_receive(&self) {
        self.control
            .post_recv(&mut std::iter::once(Ok(RecvWqe::default())))
            .map_err(|(_, why)| why)
            .expect("posted");
    }

    fn await_control(&mut self) {
        let start = Instant::now();
        let mut done = 0;
        while done == 0 {
            assert!(start.elapsed() < PATIENCE, "the control connection is dead");
            let check = &mut |c: &Completion| assert_eq!(c.status, Status::Success);
            done = self.control_cq.poll(1, check).expect("polled");
            self.poll();
        }
        while self.poll() {}
    }
}

/// Takes it on by one state. Attributes that its type does not have are left out.
fn to(qp: &Qp, qp_state: QpState, attr: &QpAttr) {
    let kind = qp.qp_type();
    let responds = matches!(kind, QpType::Rc | QpType::XrcRecv);
    let requests = matches!(kind, QpType::Rc | QpType::XrcSend);
    let when = |has: bool, mask| if has { mask } else { M(0) };
    let mask = match qp_state {
        QpState::Init => {
            let own = match kind {
                QpType::Ud => M::QKEY,
                _ => M::ACCESS_FLAGS,
            };
            M::PKEY_INDEX | M::PORT | own
        }
        QpState::Rtr if kind == QpType::Ud => M(0),
        QpState::Rtr => {
            M::AV
                | M::PATH_MTU
                | M::DEST_QPN
                | M::RQ_PSN
                | when(responds, M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER)
        }
        QpState::Rts => {
            let retries = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
            M::SQ_PSN | when(requests, retries) | when(kind == QpType::XrcRecv, M::TIMEOUT)
        }
        _ => M(0),
    };
    let attr = QpAttr { qp_state, ..*attr };
    qp.modify(&attr, M::STATE | mask)
        .unwrap_or_else(|why| panic!("{kind:?} to {qp_state:?}: {why:?}"));
}

/// Changes its P_Key, for which its send queue has to rest.
fn go_to_other_partition(qp: &Qp) {
    let attr = |qp_state| QpAttr {
        qp_state,
        pkey_index: OTHER_PARTITION,
        ..QpAttr::default()
    };
    for (state, more) in [
        (QpState::Sqd, M(0)),
        (QpState::Sqd, M::PKEY_INDEX),
        (QpState::Rts, M(0)),
    ] {
        qp.modify(&attr(state), M::STATE | more)
            .expect("another partition");
    }
}

/// As the C ABI posts: one short SEND in the short way.
fn post(qp: &Qp, mut list: Vec<SendWqe>) -> rnic_nic::Result<()> {
    if let [one] = &list[..]
        && ShortSend::of(one).is_some_and(|short| qp.post_short(short))
    {
        return Ok(());
    }
    qp.post_send(&mut list.drain(..).map(Ok))
        .map_err(|(_, why)| why)
}

fn qp_type(service: Service, requests: bool) -> QpType {
    match service {
        Service::Rc => QpType::Rc,
        Service::Uc => QpType::Uc,
        Service::Ud => QpType::Ud,
        Service::Xrc if requests => QpType::XrcSend,
        Service::Xrc => QpType::XrcRecv,
    }
}

/// Work request `n` of cell `index` of a batch.
fn wr_id(index: usize, n: u64) -> u64 {
    index as u64 * 16 + n
}

fn of_cell(wr_id: u64) -> (usize, u64) {
    ((wr_id / 16) as usize, wr_id % 16)
}

/// One entry, or none for no bytes. With a number: what is behind so many bytes has a key of no
/// region.
fn list(sge: Sge, good: Option<u32>) -> SgList {
    let good = good.unwrap_or(sge.length);
    let first = Sge {
        length: good,
        ..sge
    };
    let rest = Sge {
        addr: sge.addr + u64::from(good),
        length: sge.length - good,
        lkey: 1,
    };
    let entries: Vec<Sge> = [first, rest]
        .into_iter()
        .filter(|sge| sge.length > 0)
        .collect();
    SgList::from_slice(&entries)
}

/// How a message's bytes begin in the responder's region, behind what the WRITE before it changes.
fn offset(cell: &Cell) -> usize {
    if cell.misfit == Misfit::Alignment {
        WARM + 4
    } else {
        WARM
    }
}

/// The responder of one cell.
struct Responder {
    qp: Option<Qp>,
    region: Region,
    receives: Region,
    window: Option<(Mw, u32)>,
    xrc: Option<(Xrcd, Srq)>,
}

fn needs(op: Op) -> Access {
    match op {
        Op::Send | Op::SendImm => Access(0),
        Op::Write | Op::WriteImm => Access::REMOTE_WRITE,
        Op::Read => Access::REMOTE_READ,
        Op::FetchAdd | Op::CompareSwap => Access::REMOTE_ATOMIC,
    }
}

fn without(access: Access, right: Access) -> Access {
    Access(access.0 & !right.0)
}

impl Responder {
    fn new(device: &Device, cell: &Cell, index: usize) -> Responder {
        let Device { pd, other_pd, .. } = device;
        let len = cell.len as usize;
        let (pd_of_region, access) = match cell.misfit {
            Misfit::Pd => (other_pd, ALL),
            Misfit::RegionRight => (pd, without(ALL, needs(cell.op))),
            _ => (pd, ALL),
        };
        let mut bytes = pattern(RESPONDERS, WARM + 4 + len + GUARD);
        if cell.op.is_atomic() {
            let at = offset(cell);
            bytes[at..at + 8].copy_from_slice(&FOUND.to_ne_bytes());
        }
        let missing = usize::from(cell.misfit == Misfit::Range);
        let open = match cell.misfit {
            Misfit::Range => WARM + len - missing,
            _ => WARM + 4 + len,
        };
        let region = Region::new(pd_of_region, bytes, open, access);
        let room = len + GUARD;
        let receives = Region::new(
            pd,
            pattern(RESPONDERS, WARM + 2 * room),
            WARM + 2 * room,
            Access::LOCAL_WRITE,
        );
        let service = match cell.misfit {
            Misfit::OtherService(other) => other,
            _ => cell.service,
        };
        let (qp, xrc) = if service == Service::Xrc {
            let xrcd = device
                .context
                .open_xrcd(None, true, false)
                .expect("a domain");
            let srq = pd.create_srq(&SrqInit {
                max_wr: 4,
                max_sge: 1,
                xrc: Some((xrcd.clone(), device.cq.clone())),
                cookie: 0,
            });
            let qp = xrcd.create_qp(0).expect("a target");
            (qp, Some((xrcd, srq.expect("a queue"))))
        } else {
            let qp = pd.create_qp(&init(qp_type(service, false), &device.cq));
            (qp.expect("a queue pair"), None)
        };
        let mut responder = Responder {
            qp: Some(qp),
            region,
            receives,
            window: None,
            xrc,
        };
        if cell.misfit == Misfit::Destroyed(When::First) {
            responder.qp = None;
        }
        let Some(qp) = &responder.qp else {
            return responder;
        };
        if cell.misfit != Misfit::State(QpState::Reset, When::First) {
            let attr = QpAttr {
                qp_access_flags: match cell.misfit {
                    Misfit::QpRight(When::First) => without(ALL, needs(cell.op)),
                    _ => ALL,
                },
                pkey_index: match cell.misfit {
                    Misfit::Partition(When::First) => OTHER_PARTITION,
                    Misfit::BothLimited | Misfit::LimitedThere => LIMITED,
                    Misfit::LimitedHere => FULL,
                    _ => 0,
                },
                ..device.attr(0)
            };
            to(qp, QpState::Init, &attr);
        }
        let length = match (cell.service, cell.misfit) {
            (Service::Ud, Misfit::ShortReceive) => len + model::GRH as usize - 1,
            (_, Misfit::ShortReceive) => len - 1,
            (Service::Ud, _) => len + model::GRH as usize,
            _ => len,
        };
        for n in 0..model::receives_posted(cell) {
            let sge = responder.receives.sge(WARM + n as usize * room, length);
            let wrong = cell.misfit == Misfit::ReceiveKey && n == 0;
            let wqe = RecvWqe {
                wr_id: wr_id(index, 1 + n),
                sges: list(sge, wrong.then(|| model::good_bytes(cell))),
            };
            let posted = match &responder.xrc {
                Some((_, srq)) => srq.post_recv(&mut std::iter::once(Ok(wqe))),
                None => qp.post_recv(&mut std::iter::once(Ok(wqe))),
            };
            posted.map_err(|(_, why)| why).expect("posted");
        }
        responder
    }

    fn said(&self, cell: &Cell) -> [u64; 4] {
        let key = match (cell.misfit, &self.window) {
            (_, Some((_, rkey))) => *rkey,
            _ => self.region.mr.as_ref().map_or(0, Mr::rkey),
        };
        let srqn = self.xrc.as_ref().map_or(0, |(_, srq)| srq.number());
        let qpn = self.qp.as_ref().map_or(NOBODY, Qp::qpn);
        [qpn.into(), self.region.at(0), key.into(), srqn.into()]
    }

    /// With the initiator's queue pair, or with another one.
    fn connect(&mut self, device: &Device, cell: &Cell, peer: u32, others: u32) {
        let Some(qp) = &self.qp else { return };
        let ahead = match cell.misfit {
            Misfit::StartPsn(ahead) => ahead,
            _ => 0,
        };
        let attr = QpAttr {
            path_mtu: Some(cell.mtu[1]),
            max_dest_rd_atomic: match cell.misfit {
                Misfit::NoReadsThere => 0,
                _ => 4,
            },
            rq_psn: START_PSN.wrapping_add_signed(ahead),
            ah: match cell.misfit {
                Misfit::Address => elsewhere(device),
                _ => device.address(),
            },
            ..device.attr(match cell.misfit {
                Misfit::PeersPeer => others,
                _ => peer,
            })
        };
        let last = match cell.misfit {
            Misfit::State(state, When::First) => state,
            _ => QpState::Rts,
        };
        for state in [QpState::Rtr, QpState::Rts, QpState::Sqd] {
            let reached = match last {
                QpState::Rtr => state == QpState::Rtr,
                QpState::Rts | QpState::Err => state != QpState::Sqd,
                QpState::Sqd => true,
                _ => false,
            };
            if reached {
                to(qp, state, &attr);
            }
        }
        if last == QpState::Err {
            to(qp, last, &attr);
        }
    }

    fn bind(&mut self, device: &mut Device, cell: &Cell) {
        if !matches!(cell.misfit, Misfit::Window | Misfit::ClosedWindow) {
            return;
        }
        let (Some(qp), Some(mr)) = (&self.qp, &self.region.mr) else {
            return;
        };
        let window = device.pd.alloc_mw(MwType::Type2).expect("a window");
        let rkey = window.first_rkey();
        let bind = BindWindow {
            rkey,
            lkey: mr.lkey(),
            addr: mr.addr(),
            length: mr.len() as u64,
            read: true,
            write: true,
            atomic: false,
            zero_based: false,
        };
        do_locally(device, qp, SendOp::BindWindow(bind));
        self.window = Some((window, rkey));
    }

    /// What changes when the connection was used.
    fn change(&mut self, device: &mut Device, cell: &Cell) {
        let attr = device.attr(0);
        match cell.misfit {
            Misfit::State(state, When::Later) => {
                let Some(qp) = &self.qp else { return };
                if state == QpState::Init {
                    to(qp, QpState::Reset, &attr);
                }
                to(qp, state, &attr);
            }
            Misfit::Destroyed(When::Later) => self.qp = None,
            Misfit::QpRight(When::Later) => {
                let attr = QpAttr {
                    qp_access_flags: without(ALL, needs(cell.op)),
                    ..attr
                };
                let qp = self.qp.as_ref().expect("a queue pair");
                qp.modify(&attr, M::ACCESS_FLAGS).expect("rights");
            }
            Misfit::PartitionThere => {
                go_to_other_partition(self.qp.as_ref().expect("a queue pair"));
            }
            Misfit::Deregistered => self.region.revoke(),
            Misfit::ClosedWindow => {
                let (qp, window) = (self.qp.as_ref(), self.window.as_ref());
                let (qp, (_, rkey)) = (qp.expect("a queue pair"), window.expect("a window"));
                do_locally(device, qp, SendOp::LocalInvalidate(*rkey));
            }
            _ => {}
        }
    }

    /// What is to be seen of it: bytes, state, receives.
    fn observe(&mut self, cell: &Cell, receives: &[Receive]) -> Vec<u64> {
        let len = cell.len as usize;
        // The region stays for as long as a window is open in it.
        self.window = None;
        let bytes = match cell.op {
            Op::Send | Op::SendImm => {
                let header = match cell.service {
                    Service::Ud => model::GRH as usize,
                    _ => 0,
                };
                // What a datagram's receive has in front is the path's own.
                let own = WARM..WARM + header;
                self.receives.revoke();
                let (bytes, before) = (&mut self.receives.bytes, &self.receives.before);
                let filled = |(n, status, what): &&Receive| {
                    *status == Status::Success
                        && what.is_some_and(|(opcode, ..)| opcode == CompletionOpcode::Recv)
                        && *n <= 2
                };
                for (n, ..) in receives.iter().filter(filled) {
                    let skip = (*n as usize - 1) * (len + GUARD);
                    let own = own.start + skip..own.end + skip;
                    bytes[own.clone()].copy_from_slice(&before[own]);
                }
                let wanted = pattern(INITIATORS, WARM + len);
                self.receives.changed(WARM + header, &wanted[WARM..])
            }
            Op::Write | Op::WriteImm => {
                let wanted = pattern(INITIATORS, WARM + len);
                self.region.changed(WARM, &wanted[WARM..])
            }
            Op::Read => self.region.changed(WARM, &[]),
            Op::FetchAdd => {
                let wanted = FOUND.wrapping_add(ADDEND).to_ne_bytes();
                self.region.changed(offset(cell), &wanted)
            }
            Op::CompareSwap => self.region.changed(offset(cell), &ADDEND.to_ne_bytes()),
        };
        let state = self.qp.as_ref().map_or(99, |qp| qp.state() as u64);
        let mut words = vec![word_of(bytes), state];
        for (n, status, what) in receives {
            let (opcode, len, imm) = what.unwrap_or((CompletionOpcode::Recv, 0, false));
            words.extend([*n, *status as u64, u64::from(what.is_some())]);
            words.extend([opcode as u64, len.into(), imm.into()]);
        }
        words
    }
}

fn do_locally(device: &mut Device, qp: &Qp, op: SendOp) {
    let before = device.arrived.len();
    let wqe = SendWqe {
        wr_id: wr_id(BATCH, 0),
        op,
        signaled: true,
        ..SendWqe::default()
    };
    post(qp, vec![wqe]).expect("posted");
    device.await_completions(before + 1);
    let done = device.arrived.pop().expect("done");
    assert_eq!(
        (done.wr_id, done.status),
        (wr_id(BATCH, 0), Status::Success)
    );
}

/// The loopback interface has more addresses than one.
fn elsewhere(device: &Device) -> AhAttr {
    AhAttr {
        dgid: Gid::from(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 5))),
        ..device.address()
    }
}

/// The responder's side of all cells.
pub fn respond(cells: &[Cell], mut wire: Wire) {
    let mut device = Device::open(&mut wire);
    for batch in cells.chunks(BATCH) {
        for _ in 0..2 {
            device.post_control_receive();
        }
        let mut responders: Vec<Responder> = (0..)
            .zip(batch)
            .map(|(index, cell)| Responder::new(&device, cell, index))
            .collect();
        let qpns = responders
            .iter()
            .map(|r| r.qp.as_ref().map_or(NOBODY, Qp::qpn));
        wire.say(&qpns.map(u64::from).collect::<Vec<_>>());
        let peers = wire.hear();
        for (n, (responder, cell)) in responders.iter_mut().zip(batch).enumerate() {
            responder.connect(&device, cell, peers[2 * n] as u32, peers[2 * n + 1] as u32);
            responder.bind(&mut device, cell);
        }
        let said = responders
            .iter()
            .zip(batch)
            .flat_map(|(r, cell)| r.said(cell));
        wire.say(&said.collect::<Vec<_>>());
        device.await_push();
        for (responder, cell) in responders.iter_mut().zip(batch) {
            responder.change(&mut device, cell);
        }
        wire.say(&[0]);
        device.await_push();
        let mut receives = vec![Vec::new(); batch.len()];
        for c in device.arrived.drain(..) {
            let (index, n) = of_cell(c.wr_id);
            let what = (c.status == Status::Success).then_some((
                c.opcode,
                c.byte_len,
                matches!(c.immediate, Immediate::Data(_)),
            ));
            receives[index].push((n, c.status, what));
        }
        for (responder, (cell, receives)) in responders.iter_mut().zip(batch.iter().zip(&receives))
        {
            wire.say(&responder.observe(cell, receives));
        }
        drop(responders);
        device.arrived.clear();
        wire.hear();
    }
}

/// The initiator of one cell.
struct Initiator {
    qp: Qp,
    /// Another one, with which nobody is connected.
    other: Option<Qp>,
    local: Region,
    posted: usize,
}

impl Initiator {
    fn new(device: &Device, cell: &Cell) -> Initiator {
        let kind = qp_type(cell.service, true);
        let create = || {
            device
                .pd
                .create_qp(&init(kind, &device.cq))
                .expect("a queue pair")
        };
        let qp = create();
        let attr = QpAttr {
            pkey_index: match cell.misfit {
                Misfit::BothLimited | Misfit::LimitedHere => LIMITED,
                Misfit::LimitedThere => FULL,
                _ => 0,
            },
            ..device.attr(0)
        };
        to(&qp, QpState::Init, &attr);
        let other = (cell.misfit == Misfit::PeersPeer).then(create);
        let len = WARM + cell.len as usize;
        Initiator {
            qp,
            other,
            local: Region::new(&device.pd, pattern(INITIATORS, len + GUARD), len, ALL),
            posted: 0,
        }
    }

    /// Timeout and retries: a request that nobody answers is to fail soon, but not before a loaded
    /// machine has done what is to be done.
    fn patience(cell: &Cell) -> (u8, u8) {
        match model::haste(cell) {
            model::Haste::None => (14, 7),
            model::Haste::Some => (16, 1),
            model::Haste::Great => (8, 1),
        }
    }

    fn connect(&self, device: &Device, cell: &Cell, peer: u32, sq_psn: u32) {
        let (timeout, retry_cnt) = Initiator::patience(cell);
        let attr = QpAttr {
            path_mtu: Some(cell.mtu[0]),
            sq_psn,
            ah: match cell.misfit {
                Misfit::WrongWay => elsewhere(device),
                _ => device.address(),
            },
            timeout,
            retry_cnt,
            rnr_retry: match cell.misfit {
                Misfit::NoReceive => 0,
                _ => 7,
            },
            max_rd_atomic: match cell.misfit {
                Misfit::NoReadsHere => 0,
                _ => 4,
            },
            ..device.attr(peer)
        };
        for state in [QpState::Rtr, QpState::Rts] {
            to(&self.qp, state, &attr);
        }
    }

    fn short_write(&self, index: usize, peer: &Peer) -> SendWqe {
        SendWqe {
            wr_id: wr_id(index, 0),
            op: SendOp::Write {
                remote_addr: peer.va,
                rkey: peer.rkey,
            },
            data: SendData::Gather(SgList::from_slice(&[self.local.sge(0, WARM)])),
            signaled: true,
            srqn: peer.srqn,
            ..SendWqe::default()
        }
    }

    fn wqe(&self, device: &Device, cell: &Cell, index: usize, peer: &Peer) -> Vec<SendWqe> {
        let remote_addr = peer.va + offset(cell) as u64;
        let rkey = match cell.misfit {
            Misfit::Key => peer.rkey ^ 0x5500_0000,
            _ => peer.rkey,
        };
        let imm = IMM;
        let qkey = match cell.misfit {
            Misfit::QKey => QKEY + 1,
            _ => QKEY,
        };
        let op = match (cell.service, cell.op) {
            (Service::Ud, op) => peer.datagram(device, qkey, (op == Op::SendImm).then_some(imm)),
            (_, Op::Send) => SendOp::Send,
            (_, Op::SendImm) => SendOp::SendImm(imm),
            (_, Op::Write) => SendOp::Write { remote_addr, rkey },
            (_, Op::WriteImm) => SendOp::WriteImm {
                remote_addr,
                rkey,
                imm,
            },
            (_, Op::Read) => SendOp::Read { remote_addr, rkey },
            (_, Op::FetchAdd) => SendOp::FetchAdd {
                remote_addr,
                rkey,
                add: ADDEND,
            },
            (_, Op::CompareSwap) => SendOp::CompareSwap {
                remote_addr,
                rkey,
                compare: FOUND,
                swap: ADDEND,
            },
        };
        let sge = self.local.sge(WARM, cell.len as usize);
        let wrong = cell.misfit == Misfit::LocalKey;
        let data = if cell.inline {
            let bytes = pattern(INITIATORS, WARM + cell.len as usize);
            SendData::Inline(bytes[WARM..].iter().copied().collect())
        } else {
            SendData::Gather(list(sge, wrong.then(|| model::good_bytes(cell))))
        };
        let one = SendWqe {
            wr_id: wr_id(index, 2),
            op,
            data,
            signaled: true,
            srqn: match cell.misfit {
                Misfit::Srq => 0x00ff_fffe,
                _ => peer.srqn,
            },
            ..SendWqe::default()
        };
        if cell.before != Before::Row {
            return vec![one];
        }
        let mut first = SendWqe {
            wr_id: wr_id(index, 1),
            ..self.short_write(index, peer)
        };
        if cell.op == Op::Read {
            first.op = SendOp::Read {
                remote_addr: peer.va,
                rkey: peer.rkey,
            };
        }
        vec![first, one]
    }

    fn bytes(&mut self, cell: &Cell) -> Bytes {
        match cell.op {
            Op::Read => {
                let wanted = pattern(RESPONDERS, WARM + cell.len as usize);
                self.local.changed(WARM, &wanted[WARM..])
            }
            Op::FetchAdd | Op::CompareSwap => self.local.changed(WARM, &FOUND.to_ne_bytes()),
            _ => self.local.changed(WARM, &[]),
        }
    }
}

/// What the responder has said of itself.
struct Peer {
    qpn: u32,
    va: u64,
    rkey: u32,
    srqn: u32,
}

impl Peer {
    fn datagram(&self, device: &Device, qkey: u32, imm: Option<[u8; 4]>) -> SendOp {
        let handle = device.pd.create_ah(&device.address()).expect("an address");
        let to = handle.address(self.qpn, qkey);
        // It stays for as long as the test.
        std::mem::forget(handle);
        SendOp::Datagram { to, imm }
    }
}

/// The initiator's side of all cells; gives what both saw, in their order.
pub fn initiate(cells: &[Cell], mut wire: Wire) -> Vec<Outcome> {
    let mut device = Device::open(&mut wire);
    let mut outcomes = Vec::new();
    for batch in cells.chunks(BATCH) {
        outcomes.extend(initiate_some(&mut device, batch, &mut wire));
    }
    outcomes
}

fn initiate_some(device: &mut Device, batch: &[Cell], wire: &mut Wire) -> Vec<Outcome> {
    let theirs = wire.hear();
    let mut initiators: Vec<Initiator> = batch
        .iter()
        .map(|cell| Initiator::new(device, cell))
        .collect();
    let qpns = initiators.iter().flat_map(|i| {
        let other = i.other.as_ref().map_or(NOBODY, Qp::qpn);
        [i.qp.qpn().into(), other.into()]
    });
    wire.say(&qpns.collect::<Vec<u64>>());
    let said = wire.hear();
    let peers: Vec<Peer> = (0..batch.len())
        .map(|n| Peer {
            qpn: theirs[n] as u32,
            va: said[4 * n + 1],
            rkey: said[4 * n + 2] as u32,
            srqn: said[4 * n + 3] as u32,
        })
        .collect();
    let mut all = 0;
    for (index, (cell, peer)) in batch.iter().zip(&peers).enumerate() {
        let one = &initiators[index];
        one.connect(device, cell, peer.qpn, START_PSN);
        if cell.before != Before::Nothing {
            post(&one.qp, vec![one.short_write(index, peer)]).expect("posted");
            all += 1;
        }
    }
    device.await_completions(all);
    for c in device.arrived.drain(..) {
        let cell = &batch[of_cell(c.wr_id).0];
        assert_eq!(c.status, Status::Success, "the WRITE before {cell:?}");
    }
    device.push();
    wire.hear();
    for (one, (cell, peer)) in initiators.iter().zip(batch.iter().zip(&peers)) {
        if cell.misfit == Misfit::BegunAnew {
            let attr = device.attr(peer.qpn);
            to(&one.qp, QpState::Reset, &attr);
            to(&one.qp, QpState::Init, &attr);
            one.connect(device, cell, peer.qpn, model::psn_anew(cell.service));
        }
        if cell.misfit == Misfit::Partition(When::Later) {
            go_to_other_partition(&one.qp);
        }
        if cell.misfit == Misfit::OtherWay {
            let attr = QpAttr {
                ah: elsewhere(device),
                qp_state: QpState::Sqd,
                ..device.attr(peer.qpn)
            };
            to(&one.qp, QpState::Sqd, &attr);
            one.qp.modify(&attr, M::STATE | M::AV).expect("another way");
            let attr = QpAttr {
                qp_state: QpState::Rts,
                ..attr
            };
            one.qp.modify(&attr, M::STATE).expect("resumed");
        }
    }
    let mut all = 0;
    for (index, (cell, peer)) in batch.iter().zip(&peers).enumerate() {
        let wqes = initiators[index].wqe(device, cell, index, peer);
        let count = wqes.len();
        if post(&initiators[index].qp, wqes).is_ok() {
            initiators[index].posted = count;
            all += count;
        }
    }
    device.await_completions(all);
    let mut markers = 0;
    for (index, (cell, peer)) in batch.iter().zip(&peers).enumerate() {
        let one = &initiators[index];
        if !model::has_marker(cell) || one.qp.state() != QpState::Rts {
            continue;
        }
        let op = match cell.service {
            Service::Ud => peer.datagram(device, QKEY, Some(MARKER)),
            _ => SendOp::SendImm(MARKER),
        };
        let wqe = SendWqe {
            wr_id: wr_id(index, 15),
            op,
            signaled: true,
            ..SendWqe::default()
        };
        post(&one.qp, vec![wqe]).expect("posted");
        markers += 1;
    }
    device.await_completions(all + markers);
    device.push();
    let mut sends = vec![Vec::new(); batch.len()];
    for c in device.arrived.drain(..) {
        let (index, n) = of_cell(c.wr_id);
        if n != 15 {
            sends[index].push(c.status);
        }
    }
    let mut outcomes = Vec::new();
    for (n, (one, cell)) in initiators.iter_mut().zip(batch).enumerate() {
        let mut seen = wire.hear();
        let mut next = || seen.pop_front().expect("a word");
        let (theirs, state) = (bytes_of(next()), QpState::from_ibv(next() as u32));
        let mut receives = Vec::new();
        while !seen.is_empty() {
            let mut next = || seen.pop_front().expect("a word");
            let (n, status, good) = (next(), status_of(next()), next() == 1);
            let (opcode, len, imm) = (next(), next() as u32, next() == 1);
            let opcode = match opcode {
                128 => CompletionOpcode::Recv,
                _ => CompletionOpcode::RecvRdmaWithImm,
            };
            receives.push((n, status, good.then_some((opcode, len, imm))));
        }
        let ours = one.bytes(cell);
        // An atomic changes both sides or none, other operations one of them.
        let bytes = match cell.op {
            Op::Read => match theirs {
                Bytes::Untouched => ours,
                _ => Bytes::Other,
            },
            Op::FetchAdd | Op::CompareSwap if one_side_may_change(cell) => match ours {
                Bytes::Untouched => theirs,
                _ => Bytes::Other,
            },
            Op::FetchAdd | Op::CompareSwap if ours != theirs => Bytes::Other,
            Op::FetchAdd | Op::CompareSwap => theirs,
            _ if ours != Bytes::Untouched => Bytes::Other,
            _ => theirs,
        };
        outcomes.push(Outcome {
            posted: one.posted > 0,
            sends: std::mem::take(&mut sends[n]),
            receives,
            bytes,
            states: [Some(one.qp.state()), state],
        });
    }
    drop(initiators);
    wire.say(&[0]);
    outcomes
}

/// It is executed, and its answer goes to another one.
fn one_side_may_change(cell: &Cell) -> bool {
    cell.misfit == Misfit::PeersPeer
}

fn word_of(bytes: Bytes) -> u64 {
    match bytes {
        Bytes::Untouched => 0,
        Bytes::Changed => 1,
        Bytes::Other => 2,
        Bytes::Begun(count) => 2 + u64::from(count),
        Bytes::BegunSomewhere => unreachable!("nobody sees that"),
    }
}

fn bytes_of(word: u64) -> Bytes {
    match word {
        0 => Bytes::Untouched,
        1 => Bytes::Changed,
        2 => Bytes::Other,
        more => Bytes::Begun((more - 2) as u32),
    }
}

fn status_of(word: u64) -> Status {
    use Status::*;
    let known = [
        Success,
        LocalLengthError,
        LocalQpOperationError,
        LocalProtectionError,
        WorkRequestFlushed,
        RemoteInvalidRequest,
        RemoteAccessError,
    ];
    let found = known.into_iter().find(|status| *status as u64 == word);
    found.unwrap_or(GeneralError)
}
