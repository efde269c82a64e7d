//! Two devices in one process, each on a simulated host of its own, and packets that are carried by
//! hand: what a test cannot have with the process's own device. Their ports are of an InfiniBand
//! subnet as well, and may be in other partitions than each other.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rnic_nic::cm::{ConnParam, Event, EventChannel, EventKind, Id, IdOption, PortSpace};
use rnic_nic::{
    AhAttr, Completion, Context, Cq, Frame, Gid, Host, PathMtu, Pd, PkeyTable, PortAddress, Qp,
    QpAttr, QpAttrMask as M, QpState, QpType, RecvWqe, SendData, SendOp, SendWqe, SgList,
    SimulatedDevice, SimulatedFolder, SimulatedHost, SimulatedPort, SimulatedPortConfig, Status,
    Wire,
};
use rnic_skip::Folder;

use crate::pair;
use crate::region::Region;

const QKEY: u32 = 0x1234;
/// Bytes of a message.
const LEN: usize = 3000;
/// What a UD receive begins with.
const GRH: usize = 40;
const MS: u64 = 1_000_000;

/// A host with its device.
struct Machine {
    host: Host,
    device: SimulatedDevice,
    context: Context,
    pd: Pd,
    cq: Cq,
    wire: Wire,
    address: IpAddr,
    lid: Option<u16>,
    _folder: Folder,
}

impl Machine {
    /// Number `n`, with that P_Key table.
    fn new(n: u8, lid: Option<u16>, pkeys: &[u16]) -> Machine {
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let spec = SimulatedHost {
            seed: n.into(),
            now_ns: 1_000_000_000,
            addresses: vec![address],
            mtu: 4500,
        };
        let host = Host::simulated_in(&spec, PkeyTable::new(pkeys));
        let config = SimulatedPortConfig {
            addresses: vec![address],
            lid,
            first_range: 16 * u32::from(n),
            ..SimulatedPortConfig::default()
        };
        let folder = Folder::new();
        let shared = SimulatedFolder::at(folder.path());
        let (port, wire) = SimulatedPort::of_host(config, &shared).expect("a port");
        let device = SimulatedDevice::open(host.clone(), port).expect("a device");
        let context = device.context().expect("a context");
        let cq = context.create_cq(64, None, 0).expect("a queue");
        Machine {
            host,
            pd: context.alloc_pd(),
            device,
            context,
            cq,
            wire,
            address,
            lid,
            _folder: folder,
        }
    }

    fn queue_pair(&self, qp_type: QpType) -> Qp {
        let mut init = pair::init(&self.cq, &self.cq, None, 8);
        init.qp_type = qp_type;
        self.pd.create_qp(&init).expect("a queue pair")
    }

    /// How to reach it by its LID, without a GRH.
    fn by_lid(&self) -> AhAttr {
        AhAttr {
            dlid: self.lid.expect("a LID"),
            sl: 5,
            port_num: 1,
            ..AhAttr::default()
        }
    }

    /// And by its address.
    fn by_gid(&self) -> AhAttr {
        AhAttr {
            dgid: Gid::from(self.address),
            is_global: true,
            port_num: 1,
            ..AhAttr::default()
        }
    }

    /// As far as INIT.
    fn open(&self, qp: &Qp, pkey_index: u16) -> rnic_nic::Result<()> {
        let own = match qp.qp_type() {
            QpType::Ud => M::QKEY,
            _ => M::ACCESS_FLAGS,
        };
        let attr = QpAttr {
            qp_state: QpState::Init,
            qp_access_flags: pair::RIGHTS,
            qkey: QKEY,
            port_num: 1,
            pkey_index,
            ..QpAttr::default()
        };
        qp.modify(&attr, M::STATE | M::PKEY_INDEX | M::PORT | own)
    }

    /// From INIT to RTS.
    fn connect(&self, qp: &Qp, ah: AhAttr, peer: u32) -> rnic_nic::Result<()> {
        let attr = |qp_state| QpAttr {
            qp_state,
            path_mtu: Some(PathMtu::M1024),
            dest_qp_num: peer,
            max_dest_rd_atomic: 4,
            max_rd_atomic: 4,
            min_rnr_timer: 1,
            timeout: 8,
            retry_cnt: 2,
            rnr_retry: 7,
            ah,
            ..QpAttr::default()
        };
        let (rtr, rts) = match qp.qp_type() {
            QpType::Ud => (M(0), M::SQ_PSN),
            QpType::Uc => (M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN, M::SQ_PSN),
            _ => (
                M::AV
                    | M::PATH_MTU
                    | M::DEST_QPN
                    | M::RQ_PSN
                    | M::MAX_DEST_RD_ATOMIC
                    | M::MIN_RNR_TIMER,
                M::SQ_PSN | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC,
            ),
        };
        qp.modify(&attr(QpState::Rtr), M::STATE | rtr)?;
        qp.modify(&attr(QpState::Rts), M::STATE | rts)
    }

    fn bad_pkeys(&self) -> u64 {
        self.device.counters().1.bad_pkey
    }

    fn completions(&self) -> Vec<Completion> {
        let mut all = Vec::new();
        while self.cq.poll(16, &mut |c| all.push(*c)).expect("polled") > 0 {}
        all
    }
}

/// Carries all packets and lets time pass, until nothing is under way for `ns`. Gives the packets.
fn carry(machines: [&Machine; 2], ns: u64) -> Vec<Frame> {
    let mut carried = Vec::new();
    let step = (ns / 100).max(1);
    for _ in 0..100 {
        loop {
            for machine in machines {
                machine.device.run();
            }
            let before = carried.len();
            for (from, to) in [(0, 1), (1, 0)] {
                while let Some(frame) = machines[from].wire.take() {
                    assert!(machines[to].wire.arrive(frame.clone()));
                    carried.push(frame);
                }
            }
            if carried.len() == before {
                break;
            }
        }
        for machine in machines {
            machine.host.set_time(machine.host.now_ns() + step);
        }
    }
    carried
}

fn receive(region: &Region, len: usize) -> RecvWqe {
    RecvWqe {
        wr_id: 1,
        sges: SgList::from_slice(&[region.sge(0, len)]),
    }
}

fn send(op: SendOp, region: &Region, len: usize) -> SendWqe {
    SendWqe {
        wr_id: 2,
        op,
        data: SendData::Gather(SgList::from_slice(&[region.sge(0, len)])),
        signaled: true,
        ..SendWqe::default()
    }
}

fn bytes(at: usize) -> u8 {
    (at * 7) as u8
}

/// A message over a connection, and the packets that it took.
fn transfer(machines: [&Machine; 2], qps: &[Qp; 2]) -> (Vec<Completion>, Vec<Frame>, bool) {
    let [a, b] = machines;
    let from = Region::new(&a.pd, LEN, bytes);
    let to = Region::new(&b.pd, LEN, |_| 0);
    let wqe = receive(&to, LEN);
    qps[1]
        .post_recv(&mut std::iter::once(Ok(wqe)))
        .expect("posted");
    pair::post(&qps[0], &mut vec![send(SendOp::Send, &from, LEN)]);
    let frames = carry(machines, 100 * MS);
    let mut done = a.completions();
    done.extend(b.completions());
    from.revoke();
    let same = to
        .revoke()
        .iter()
        .enumerate()
        .all(|(at, byte)| *byte == bytes(at));
    (done, frames, same)
}

#[test]
fn connections_go_by_lid_in_a_subnet() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let [a, b] = [(1, 0x11), (2, 0x22)].map(|(n, lid)| Machine::new(n, Some(lid), &[0xffff]));
        let qps = [&a, &b].map(|machine| machine.queue_pair(qp_type));
        for (own, peer, qp, peers) in [(&a, &b, &qps[0], &qps[1]), (&b, &a, &qps[1], &qps[0])] {
            own.open(qp, 0).expect("INIT");
            own.connect(qp, peer.by_lid(), peers.qpn()).expect("RTS");
        }
        let (done, frames, same) = transfer([&a, &b], &qps);
        assert_eq!(done.len(), 2, "{done:?}");
        assert!(done.iter().all(|c| c.status == Status::Success), "{done:?}");
        assert!(same, "{qp_type:?}: other bytes");
        let lid = |lid| PortAddress::Ib { lid };
        let there = frames.iter().filter(|frame| frame.dst == lid(0x22));
        assert!(there.clone().count() >= 3, "three packets and more");
        assert!(
            there
                .clone()
                .all(|f| (f.src, f.sl, f.src_port) == (lid(0x11), 5, 0))
        );
        let back = frames.iter().filter(|frame| frame.dst == lid(0x11)).count();
        assert_eq!(back + there.count(), frames.len());
        assert_eq!(back > 0, qp_type == QpType::Rc, "what acknowledges");
    }
}

/// What comes from another LID than the peer's is not the peer's.
#[test]
fn packets_of_another_lid_are_dropped() {
    let [a, b] = [(1, 0x11), (2, 0x22)].map(|(n, lid)| Machine::new(n, Some(lid), &[0xffff]));
    let qps = [&a, &b].map(|machine| machine.queue_pair(QpType::Rc));
    a.open(&qps[0], 0).expect("INIT");
    b.open(&qps[1], 0).expect("INIT");
    a.connect(&qps[0], b.by_lid(), qps[1].qpn()).expect("RTS");
    let other = AhAttr {
        dlid: 0x33,
        ..a.by_lid()
    };
    b.connect(&qps[1], other, qps[0].qpn()).expect("RTS");
    let (done, _, same) = transfer([&a, &b], &qps);
    let failed: Vec<Status> = done.iter().map(|c| c.status).collect();
    assert_eq!(failed, [Status::RetryExceeded]);
    assert!(!same && b.device.counters().1.wrong_address >= 3);
}

/// Without a GRH the first 40 bytes of the receive mean nothing, and the completion says so.
#[test]
fn datagrams_go_by_lid_without_a_grh() {
    let [a, b] =
        [(1, 0x11), (2, 0x22)].map(|(n, lid)| Machine::new(n, Some(lid), &[0xffff, 0x8001]));
    let qps = [&a, &b].map(|machine| machine.queue_pair(QpType::Ud));
    for (machine, qp) in [(&a, &qps[0]), (&b, &qps[1])] {
        machine.open(qp, 1).expect("INIT");
        machine.connect(qp, AhAttr::default(), 0).expect("RTS");
    }
    for (vector, has_grh) in [(b.by_lid(), false), (b.by_gid(), true)] {
        let from = Region::new(&a.pd, 100, bytes);
        let to = Region::new(&b.pd, GRH + 100, |_| 0);
        let wqe = receive(&to, GRH + 100);
        qps[1]
            .post_recv(&mut std::iter::once(Ok(wqe)))
            .expect("posted");
        let handle = a.pd.create_ah(&vector).expect("an address handle");
        let op = SendOp::Datagram {
            to: handle.address(qps[1].qpn(), QKEY),
            imm: None,
        };
        pair::post(&qps[0], &mut vec![send(op, &from, 100)]);
        carry([&a, &b], MS);
        let done = b.completions();
        let [done] = done[..] else {
            panic!("{done:?}");
        };
        assert_eq!(
            (done.status, done.byte_len),
            (Status::Success, GRH as u32 + 100)
        );
        assert_eq!((done.grh.is_some(), done.pkey_index), (has_grh, 1));
        assert_eq!(a.completions().len(), 1);
        let taken = to.revoke();
        assert!(
            taken[GRH..]
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == bytes(at))
        );
        assert_eq!(taken[..GRH].iter().any(|byte| *byte != 0), has_grh);
        from.revoke();
    }
}

/// A port without a LID takes no address vector without a GRH, and one with takes no LID 0.
#[test]
fn an_address_vector_without_a_grh_needs_lids() {
    let roce = Machine::new(1, None, &[0xffff]);
    let ib = Machine::new(2, Some(0x22), &[0xffff]);
    let to = |machine: &Machine, ah| {
        let qp = machine.queue_pair(QpType::Rc);
        machine.open(&qp, 0).expect("INIT");
        let why = machine.connect(&qp, ah, 5).expect_err("refused");
        assert_eq!((why.errno(), qp.state()), (libc::EINVAL, QpState::Init));
        let handle = machine.pd.create_ah(&ah).expect_err("refused");
        assert_eq!(handle.errno(), libc::EINVAL);
        why.reason().to_owned()
    };
    assert!(to(&roce, ib.by_lid()).contains("is_global is 0"));
    let nobody = AhAttr {
        dlid: 0,
        ..ib.by_lid()
    };
    assert!(to(&ib, nobody).contains("LID is 0"));
    // Of a group, only datagrams.
    let qp = ib.queue_pair(QpType::Rc);
    ib.open(&qp, 0).expect("INIT");
    let group = AhAttr {
        dlid: 0xc001,
        ..ib.by_lid()
    };
    let why = ib.connect(&qp, group, 5).expect_err("refused");
    assert!(why.reason().contains("multicast"), "{}", why.reason());
}

#[test]
fn the_table_says_which_indices_there_are() {
    let machine = Machine::new(1, None, &[0xffff, 0x8001, 0x0002]);
    let (attr, port) = (machine.context.device_attr(), machine.context.port_attr(1));
    assert_eq!((attr.max_pkeys, port.expect("port 1").pkey_tbl_len), (3, 3));
    let qp = machine.queue_pair(QpType::Rc);
    let why = machine.open(&qp, 3).expect_err("no such index");
    assert_eq!((why.errno(), qp.state()), (libc::EINVAL, QpState::Reset));
    assert!(
        why.reason().contains("the P_Key table has 0 to 2"),
        "{}",
        why.reason()
    );
    machine.open(&qp, 2).expect("INIT");
    assert_eq!(qp.query().pkey_index, 2);
}

/// The same partition has another index at each end.
#[test]
fn what_leaves_has_the_p_key_of_the_index() {
    let a = Machine::new(1, None, &[0xffff, 0x8001]);
    let b = Machine::new(2, None, &[0x8007, 0xffff, 0x0001]);
    let qps = [&a, &b].map(|machine| machine.queue_pair(QpType::Rc));
    a.open(&qps[0], 1).expect("INIT");
    b.open(&qps[1], 2).expect("INIT");
    a.connect(&qps[0], b.by_gid(), qps[1].qpn()).expect("RTS");
    b.connect(&qps[1], a.by_gid(), qps[0].qpn()).expect("RTS");
    let (done, frames, same) = transfer([&a, &b], &qps);
    assert!(same && done.iter().all(|c| c.status == Status::Success));
    for frame in frames {
        let pkey = u16::from_be_bytes([frame.bytes[2], frame.bytes[3]]);
        let own = if frame.src == a.address.into() {
            0x8001
        } else {
            0x0001
        };
        assert_eq!(pkey, own);
    }
    assert_eq!((a.bad_pkeys(), b.bad_pkeys()), (0, 0));
}

/// What one side of a connection manager hears, in the order of time.
struct Side<'a> {
    machine: &'a Machine,
    channel: EventChannel,
}

impl Side<'_> {
    fn new(machine: &Machine) -> Side<'_> {
        let channel = machine.device.event_channel().expect("a channel");
        Side { machine, channel }
    }

    fn id(&self) -> Id {
        Id::new(&self.channel, PortSpace::Tcp, QpType::Rc, 0).expect("an id")
    }

    /// The next event that there is.
    fn next(&self) -> Option<Event> {
        self.channel.get().ok()
    }
}

const PORT: u16 = 7471;

/// Asks for a connection in the partition of that index; gives what the side that asked hears, and
/// the index with which the other one is to open its queue pair, if it was asked.
fn ask(a: &Machine, b: &Machine, index: u16) -> (EventKind, i32, Option<u16>) {
    let (ours, theirs) = (Side::new(a), Side::new(b));
    let listener = theirs.id();
    listener
        .bind(SocketAddr::new(b.address, PORT))
        .expect("bound");
    listener.listen(4).expect("it listens");
    let id = ours.id();
    id.set_option(IdOption::PkeyIndex(index)).expect("set");
    id.resolve_addr(None, SocketAddr::new(b.address, PORT), 2000)
        .expect("a way");
    carry([a, b], MS);
    assert_eq!(ours.next().expect("news").kind, EventKind::AddrResolved);
    id.resolve_route(2000).expect("a route");
    assert_eq!(ours.next().expect("news").kind, EventKind::RouteResolved);
    let route = id.route().expect("a route");
    let own = a.context.pkeys().get(index).expect("its P_Key");
    assert_eq!((route.pkey, route.path.expect("a path").pkey), (own, own));
    let (attr, _) = id.init_qp_attr(QpState::Init).expect("attributes");
    assert_eq!(attr.pkey_index, index);
    let param = ConnParam {
        qp_num: 0x77,
        ..ConnParam::default()
    };
    id.connect(&param).expect("asked");
    carry([a, b], 100 * MS);
    let Some(request) = theirs.next() else {
        // It is asked again for as long as Linux does.
        carry([a, b], 200_000 * MS);
        let news = ours.next().expect("an end");
        return (news.kind, news.status, None);
    };
    assert_eq!(request.kind, EventKind::ConnectRequest);
    let (attr, _) = request.id.init_qp_attr(QpState::Init).expect("attributes");
    request.id.accept(Some(&param), 0).expect("accepted");
    carry([a, b], 100 * MS);
    let news = ours.next().expect("an answer");
    (news.kind, news.status, Some(attr.pkey_index))
}

#[test]
fn a_request_for_a_connection_goes_in_its_partition() {
    let a = Machine::new(1, None, &[0xffff, 0x8001, 0x0002, 0x8003]);
    let b = Machine::new(2, None, &[0x8009, 0x0001, 0x0002, 0x7fff]);
    let answered = |index| (EventKind::ConnectResponse, 0, Some(index));
    // Both in the default partition, at other indices; b is a limited member of both.
    assert_eq!(ask(&a, &b, 0), answered(3));
    assert_eq!(ask(&a, &b, 1), answered(1));
    assert_eq!((a.bad_pkeys(), b.bad_pkeys()), (0, 0));
    // Two limited members, and a partition that b is not in.
    let silence = (EventKind::Unreachable, -libc::ETIMEDOUT, None);
    for index in [2, 3] {
        let before = b.bad_pkeys();
        assert_eq!(ask(&a, &b, index), silence, "index {index}");
        assert!(b.bad_pkeys() > before);
    }
    assert_eq!(a.bad_pkeys(), 0);
}

/// The packet's P_Key and that of the queue pair in it may differ.
#[test]
fn a_request_of_a_queue_pair_in_another_partition_is_refused() {
    // Where a REQ has the P_Key: behind BTH, DETH and the header of a MAD.
    const AT: usize = 12 + 8 + 24 + 48;
    let a = Machine::new(1, None, &[0xffff]);
    let b = Machine::new(2, None, &[0xffff, 0x0002]);
    let (ours, theirs) = (Side::new(&a), Side::new(&b));
    let peer = SocketAddr::new(b.address, PORT);
    let listener = theirs.id();
    listener.bind(peer).expect("bound");
    listener.listen(4).expect("it listens");
    for (pkey, status) in [(0x8001, Some(12)), (0x0002, Some(12)), (0x8002, None)] {
        let id = ours.id();
        id.resolve_addr(None, peer, 2000).expect("a way");
        carry([&a, &b], MS);
        id.resolve_route(2000).expect("a route");
        let param = ConnParam {
            qp_num: u32::from(pkey),
            ..ConnParam::default()
        };
        id.connect(&param).expect("asked");
        let kinds = [(); 2].map(|()| ours.next().expect("news").kind);
        assert_eq!(kinds, [EventKind::AddrResolved, EventKind::RouteResolved]);
        let mut request = loop {
            a.device.run();
            if let Some(frame) = a.wire.take() {
                break frame;
            }
        };
        assert_eq!(request.bytes[AT..AT + 2], [0xff, 0xff]);
        request.bytes[AT..AT + 2].copy_from_slice(&u16::to_be_bytes(pkey));
        assert!(b.wire.arrive(request));
        carry([&a, &b], MS);
        let told = ours.next().map(|event| (event.kind, event.status));
        assert_eq!(told, status.map(|status| (EventKind::Rejected, status)));
        let asked = theirs.next().map(|event| event.kind);
        let expected = status.is_none().then_some(EventKind::ConnectRequest);
        assert_eq!(asked, expected, "{pkey:#06x}");
    }
    assert_eq!((a.bad_pkeys(), b.bad_pkeys()), (0, 0));
}

#[test]
fn a_path_is_of_one_of_the_ports_partitions() {
    let a = Machine::new(1, None, &[0xffff, 0x8001]);
    let side = Side::new(&a);
    let id = side.id();
    let peer = SocketAddr::from(([10, 0, 0, 2], PORT));
    id.resolve_addr(None, peer, 2000).expect("a way");
    side.machine.device.run();
    assert_eq!(side.next().expect("news").kind, EventKind::AddrResolved);
    let bad = id.set_option(IdOption::PkeyIndex(2)).expect_err("no index");
    assert_eq!(bad.errno(), libc::EINVAL);
    let other = side.id();
    other.resolve_addr(None, peer, 2000).expect("a way");
    other.resolve_route(2000).expect("a route");
    let path = other.route().expect("a route").path.expect("a path");
    assert_eq!(path.pkey, 0xffff);
    let of = |pkey| IdOption::Path(rnic_nic::cm::PathRecord { pkey, ..path });
    assert_eq!(
        id.set_option(of(0x8002)).expect_err("foreign").errno(),
        libc::EINVAL
    );
    // As in Linux, the membership is the table's.
    id.set_option(of(0x0001)).expect("of partition 1");
    let route = id.route().expect("a route");
    assert_eq!(
        (route.pkey, route.path.map(|path| path.pkey)),
        (0x8001, Some(0x8001))
    );
    let (attr, _) = id.init_qp_attr(QpState::Init).expect("attributes");
    assert_eq!(attr.pkey_index, 1);
}
