//! What Linux says of an RDMA device by netlink (`RDMA_NL_NLDEV`), said of rnic0.
//!
//! The numbers are those of `rdma_netlink.h`; which attributes an object has, and which requests
//! are refused how, is as in Linux' nldev.c. Two things differ: lkey and rkey are told without
//! CAP_NET_ADMIN, as all objects are the asker's user's, and nothing can be changed.

use std::net::SocketAddr;

use rnic_nic::resources::{Detail, Kind, Resource};
use rnic_nic::{DEVICE_NAME, PortCounters, PortState, QpType};

use super::message::{
    Attributes, NLM_F_ACK, NLM_F_DUMP, NLM_F_MULTI, NLM_F_REQUEST, NLMSG_MIN_TYPE, Options,
    Request, To, Writer, acknowledgement, done, requests,
};
use crate::system::counters::COUNTERS;
use crate::system::sysfs::{UVERBS_DEV, UVERBS_NAME};

/// The client that the requests are for.
const NLDEV: u16 = 5;

/// Longest datagram of several: the kernel's for a reader that has not shown yet how much it takes.
/// libmnl's readers have a page.
const DATAGRAM: usize = 3776;

mod command {
    pub const GET: u16 = 1;
    pub const SET: u16 = 2;
    pub const NEWLINK: u16 = 3;
    pub const DELLINK: u16 = 4;
    pub const PORT_GET: u16 = 5;
    pub const SYS_GET: u16 = 6;
    pub const SYS_SET: u16 = 7;
    pub const RES_GET: u16 = 9;
    pub const RES_QP_GET: u16 = 10;
    pub const RES_CM_ID_GET: u16 = 11;
    pub const RES_CQ_GET: u16 = 12;
    pub const RES_MR_GET: u16 = 13;
    pub const RES_PD_GET: u16 = 14;
    pub const GET_CHARDEV: u16 = 15;
    pub const STAT_SET: u16 = 16;
    pub const STAT_GET: u16 = 17;
    pub const STAT_DEL: u16 = 18;
    pub const RES_QP_GET_RAW: u16 = 19;
    pub const RES_CQ_GET_RAW: u16 = 20;
    pub const RES_MR_GET_RAW: u16 = 21;
    pub const RES_CTX_GET: u16 = 22;
    pub const RES_SRQ_GET: u16 = 23;
    pub const STAT_GET_STATUS: u16 = 24;
    pub const RES_SRQ_GET_RAW: u16 = 25;
    pub const NEWDEV: u16 = 26;
    pub const DELDEV: u16 = 27;
}

mod attr {
    pub const DEV_INDEX: u16 = 1;
    pub const DEV_NAME: u16 = 2;
    pub const PORT_INDEX: u16 = 3;
    pub const CAP_FLAGS: u16 = 4;
    pub const FW_VERSION: u16 = 5;
    pub const NODE_GUID: u16 = 6;
    pub const SYS_IMAGE_GUID: u16 = 7;
    pub const PORT_STATE: u16 = 12;
    pub const PORT_PHYS_STATE: u16 = 13;
    pub const DEV_NODE_TYPE: u16 = 14;
    pub const RES_SUMMARY: u16 = 15;
    pub const RES_SUMMARY_ENTRY: u16 = 16;
    pub const RES_SUMMARY_ENTRY_NAME: u16 = 17;
    pub const RES_SUMMARY_ENTRY_CURR: u16 = 18;
    pub const RES_QP: u16 = 19;
    pub const RES_QP_ENTRY: u16 = 20;
    pub const RES_LQPN: u16 = 21;
    pub const RES_RQPN: u16 = 22;
    pub const RES_RQ_PSN: u16 = 23;
    pub const RES_SQ_PSN: u16 = 24;
    pub const RES_PATH_MIG_STATE: u16 = 25;
    pub const RES_TYPE: u16 = 26;
    pub const RES_STATE: u16 = 27;
    pub const RES_PID: u16 = 28;
    pub const RES_CM_ID: u16 = 30;
    pub const RES_CM_ID_ENTRY: u16 = 31;
    pub const RES_PS: u16 = 32;
    pub const RES_SRC_ADDR: u16 = 33;
    pub const RES_DST_ADDR: u16 = 34;
    pub const RES_CQ: u16 = 35;
    pub const RES_CQ_ENTRY: u16 = 36;
    pub const RES_CQE: u16 = 37;
    pub const RES_USECNT: u16 = 38;
    pub const RES_MR: u16 = 40;
    pub const RES_MR_ENTRY: u16 = 41;
    pub const RES_RKEY: u16 = 42;
    pub const RES_LKEY: u16 = 43;
    pub const RES_MRLEN: u16 = 45;
    pub const RES_PD: u16 = 46;
    pub const RES_PD_ENTRY: u16 = 47;
    pub const NDEV_INDEX: u16 = 50;
    pub const NDEV_NAME: u16 = 51;
    pub const RES_PDN: u16 = 60;
    pub const RES_CQN: u16 = 61;
    pub const RES_MRN: u16 = 62;
    pub const RES_CM_IDN: u16 = 63;
    pub const RES_CTXN: u16 = 64;
    pub const SYS_NETNS_MODE: u16 = 66;
    pub const DEV_PROTOCOL: u16 = 67;
    pub const CHARDEV_TYPE: u16 = 69;
    pub const CHARDEV_NAME: u16 = 70;
    pub const CHARDEV_ABI: u16 = 71;
    pub const CHARDEV: u16 = 72;
    pub const STAT_MODE: u16 = 74;
    pub const STAT_RES: u16 = 75;
    pub const STAT_COUNTER_ID: u16 = 79;
    pub const STAT_HWCOUNTERS: u16 = 80;
    pub const STAT_HWCOUNTER_ENTRY: u16 = 81;
    pub const STAT_HWCOUNTER_ENTRY_NAME: u16 = 82;
    pub const STAT_HWCOUNTER_ENTRY_VALUE: u16 = 83;
    pub const DEV_DIM: u16 = 84;
    pub const RES_CTX: u16 = 86;
    pub const RES_CTX_ENTRY: u16 = 87;
    pub const RES_SRQ: u16 = 88;
    pub const RES_SRQ_ENTRY: u16 = 89;
    pub const RES_SRQN: u16 = 90;
    pub const MIN_RANGE: u16 = 91;
    pub const MAX_RANGE: u16 = 92;
    pub const SYS_COPY_ON_FORK: u16 = 93;
    pub const STAT_HWCOUNTER_INDEX: u16 = 94;
}

/// The one device.
const INDEX: u32 = 0;
const PORT: u32 = 1;

/// What there is to tell.
pub struct World<'a> {
    pub guid: u64,
    pub cap_flags: u64,
    pub fw_version: String,
    pub state: PortState,
    /// Index and name of the interface that stands for the device.
    pub netdev: Option<(u32, String)>,
    /// CAP_NET_ADMIN.
    pub is_admin: bool,
    pub options: Options,
    /// All objects of a kind.
    pub list: &'a dyn Fn(Kind) -> Vec<Resource>,
    pub counters: &'a dyn Fn() -> PortCounters,
}

/// Datagrams that are made as they are wanted.
pub type Datagrams = Box<dyn Iterator<Item = Vec<u8>> + Send>;

/// A request that is refused: errno, and why.
struct Refused(i32, &'static str);

impl From<i32> for Refused {
    fn from(errno: i32) -> Refused {
        Refused(errno, "")
    }
}

type Result<T> = std::result::Result<T, Refused>;

/// What is answered.
enum Answer {
    One(Vec<u8>),
    /// Up to the end that is said.
    All(Datagrams),
}

/// The answers to a datagram of requests by the socket with that port.
pub fn answer(datagram: &[u8], port: u32, world: &World<'_>) -> Datagrams {
    let mut all: Datagrams = Box::new(std::iter::empty());
    for request in requests(datagram) {
        let to = To {
            sequence: request.sequence,
            port,
        };
        let acknowledge =
            |errno, why: &str| acknowledgement(&request, to, errno, why, world.options);
        let wants_ack = request.has(NLM_F_ACK);
        let more: Datagrams = match answer_one(&request, to, world) {
            Err(Refused(errno, why)) => Box::new(std::iter::once(acknowledge(errno, why))),
            // Ends without an acknowledgement: the end is one.
            Ok(Some(Answer::All(some))) => Box::new(some.chain(std::iter::once(done(to)))),
            Ok(Some(Answer::One(one))) => {
                let ack = wants_ack.then(|| acknowledge(0, ""));
                Box::new(std::iter::once(one).chain(ack))
            }
            Ok(None) => Box::new(wants_ack.then(|| acknowledge(0, "")).into_iter()),
        };
        all = Box::new(all.chain(more));
    }
    all
}

/// Nobody can.
const UNCHANGEABLE: Refused = Refused(
    libc::EOPNOTSUPP,
    "rnic0 is made of software in the processes that use it: it cannot be changed from outside",
);

fn answer_one(request: &Request<'_>, to: To, world: &World<'_>) -> Result<Option<Answer>> {
    // Netlink's own messages, and what is no request, are acknowledged.
    if !request.has(NLM_F_REQUEST) || request.kind < NLMSG_MIN_TYPE {
        return Ok(None);
    }
    let (client, op) = (request.kind >> 10, request.kind & 0x3ff);
    if client != NLDEV {
        return Err(libc::EINVAL.into());
    }
    let attributes = request.attributes();
    let all = request.has(NLM_F_DUMP);
    let reply = |flags| Writer::begin(request.kind, flags, to);
    let one = |writer: Writer| Ok(Some(Answer::One(writer.end())));
    let alone = |flags, fill: &dyn Fn(&mut Writer)| {
        let mut writer = reply(flags);
        fill(&mut writer);
        match all {
            true => Ok(Some(Answer::All(Box::new(std::iter::once(writer.end()))))),
            false => Ok(Some(Answer::One(writer.end()))),
        }
    };
    let flags = if all { NLM_F_MULTI } else { 0 };
    match op {
        command::GET => {
            if !all {
                device(attributes)?;
            }
            alone(flags, &|writer| world.device(writer))
        }
        command::PORT_GET => {
            device(attributes)?;
            if !all {
                port(attributes)?.ok_or(libc::EINVAL)?;
            }
            alone(flags, &|writer| world.port(writer))
        }
        command::RES_GET => {
            if !all {
                device(attributes)?;
            }
            alone(flags, &|writer| world.summary(writer))
        }
        command::SYS_GET => {
            let mut writer = reply(0);
            // Of no network namespace alone; and fork(2) does no harm to registered memory.
            writer.u8(attr::SYS_NETNS_MODE, 1);
            writer.u8(attr::SYS_COPY_ON_FORK, 1);
            one(writer)
        }
        command::GET_CHARDEV => {
            let mut writer = reply(0);
            character_device(attributes, &mut writer)?;
            one(writer)
        }
        command::STAT_GET if all => {
            device(attributes)?;
            attributes.number(attr::STAT_RES)?.ok_or(libc::EINVAL)?;
            // No object has counters of its own.
            Ok(Some(Answer::All(Box::new(std::iter::empty()))))
        }
        command::STAT_GET | command::STAT_GET_STATUS => {
            device(attributes)?;
            port(attributes)?.ok_or(libc::EINVAL)?;
            let mut writer = reply(0);
            handle(&mut writer);
            writer.u32(attr::PORT_INDEX, PORT);
            match attributes.number(attr::STAT_RES)? {
                Some(_) if op == command::STAT_GET => mode(attributes, &mut writer)?,
                _ => world.statistics(&mut writer, op == command::STAT_GET),
            }
            one(writer)
        }
        command::SET
        | command::NEWLINK
        | command::DELLINK
        | command::SYS_SET
        | command::STAT_SET
        | command::STAT_DEL
        | command::RES_QP_GET_RAW
        | command::RES_CQ_GET_RAW
        | command::RES_MR_GET_RAW
        | command::RES_SRQ_GET_RAW
        | command::NEWDEV
        | command::DELDEV => Err(match world.is_admin {
            true => UNCHANGEABLE,
            false => libc::EPERM.into(),
        }),
        op => match Table::of(op) {
            None => Err(libc::EINVAL.into()),
            Some(table) if all => {
                device(attributes)?;
                let port = port(attributes)?;
                Ok(Some(Answer::All(table.all(world, port, request.kind, to))))
            }
            Some(table) => {
                let mut writer = reply(0);
                table.one(world, attributes, &mut writer)?;
                one(writer)
            }
        },
    }
}

/// The device that a request names has to be ours.
fn device(attributes: Attributes<'_>) -> Result<()> {
    match attributes.number(attr::DEV_INDEX)? {
        Some(INDEX) => Ok(()),
        _ => Err(libc::EINVAL.into()),
    }
}

/// The port that a request names, if it names one.
fn port(attributes: Attributes<'_>) -> Result<Option<u32>> {
    match attributes.number(attr::PORT_INDEX)? {
        Some(PORT) => Ok(Some(PORT)),
        None => Ok(None),
        Some(_) => Err(libc::EINVAL.into()),
    }
}

fn handle(writer: &mut Writer) {
    writer.u32(attr::DEV_INDEX, INDEX);
    writer.text(attr::DEV_NAME, DEVICE_NAME);
}

/// The character device of that type; that of verbs is all there is.
fn character_device(attributes: Attributes<'_>, writer: &mut Writer) -> Result<()> {
    let kind = attributes.text(attr::CHARDEV_TYPE)?.ok_or(libc::EINVAL)?;
    if attributes.has(attr::DEV_INDEX) {
        device(attributes)?;
        port(attributes)?;
    } else if kind == b"uverbs" || attributes.has(attr::PORT_INDEX) {
        return Err(libc::EINVAL.into());
    }
    if kind != b"uverbs" {
        return Err(libc::ENOENT.into());
    }
    let (major, minor) = UVERBS_DEV;
    writer.u64(attr::CHARDEV, libc::makedev(major, minor));
    writer.u64(attr::CHARDEV_ABI, 1);
    writer.text(attr::CHARDEV_NAME, UVERBS_NAME);
    Ok(())
}

/// Which queue pairs are bound to which counter: none to any.
fn mode(attributes: Attributes<'_>, writer: &mut Writer) -> Result<()> {
    const QUEUE_PAIRS: u32 = attr::RES_QP as u32;
    if attributes.number(attr::STAT_RES)? != Some(QUEUE_PAIRS) {
        return Err(libc::EINVAL.into());
    }
    if attributes.has(attr::STAT_COUNTER_ID) {
        return Err(libc::ENOENT.into());
    }
    writer.u32(attr::STAT_MODE, 0);
    Ok(())
}

impl World<'_> {
    fn device(&self, writer: &mut Writer) {
        const CA: u8 = 1;
        handle(writer);
        // Of a device: how many.
        writer.u32(attr::PORT_INDEX, PORT);
        writer.u64(attr::CAP_FLAGS, self.cap_flags);
        writer.text(attr::FW_VERSION, &self.fw_version);
        writer.u64(attr::NODE_GUID, self.guid);
        writer.u64(attr::SYS_IMAGE_GUID, self.guid);
        writer.u8(attr::DEV_NODE_TYPE, CA);
        writer.u8(attr::DEV_DIM, 0);
        writer.text(attr::DEV_PROTOCOL, "roce");
    }

    fn port(&self, writer: &mut Writer) {
        const DISABLED: u8 = 3;
        const LINK_UP: u8 = 5;
        handle(writer);
        writer.u32(attr::PORT_INDEX, PORT);
        writer.u8(attr::PORT_STATE, self.state as u8);
        let phys_state = match self.state {
            PortState::Down => DISABLED,
            PortState::Active => LINK_UP,
        };
        writer.u8(attr::PORT_PHYS_STATE, phys_state);
        if let Some((index, name)) = &self.netdev {
            writer.u32(attr::NDEV_INDEX, *index);
            writer.text(attr::NDEV_NAME, name);
        }
    }

    fn summary(&self, writer: &mut Writer) {
        handle(writer);
        let table = writer.nest(attr::RES_SUMMARY);
        for kind in Kind::OBJECTS {
            let name = match kind {
                Kind::Pd => "pd",
                Kind::Cq => "cq",
                Kind::Qp => "qp",
                Kind::CmId => "cm_id",
                Kind::Mr => "mr",
                Kind::Context => "ctx",
                Kind::Srq => "srq",
                Kind::Counters | Kind::Carried => continue,
            };
            let entry = writer.nest(attr::RES_SUMMARY_ENTRY);
            writer.text(attr::RES_SUMMARY_ENTRY_NAME, name);
            let count = (self.list)(kind).len() as u64;
            writer.u64(attr::RES_SUMMARY_ENTRY_CURR, count);
            writer.end_nest(entry);
        }
        writer.end_nest(table);
    }

    fn statistics(&self, writer: &mut Writer, values: bool) {
        let counted = match values {
            true => (self.counters)(),
            false => PortCounters::default(),
        };
        let table = writer.nest(attr::STAT_HWCOUNTERS);
        let hardware = COUNTERS
            .iter()
            .filter_map(|counter| Some((counter.file.strip_prefix("hw_counters/")?, counter)));
        for (index, (name, counter)) in (0..).zip(hardware) {
            let entry = writer.nest(attr::STAT_HWCOUNTER_ENTRY);
            writer.text(attr::STAT_HWCOUNTER_ENTRY_NAME, name);
            match values {
                true => writer.u64(attr::STAT_HWCOUNTER_ENTRY_VALUE, (counter.value)(&counted)),
                false => writer.u32(attr::STAT_HWCOUNTER_INDEX, index),
            }
            writer.end_nest(entry);
        }
        writer.end_nest(table);
    }
}

/// How objects of a kind are told of.
#[derive(Clone, Copy)]
struct Table {
    kind: Kind,
    table: u16,
    entry: u16,
    /// Names one.
    id: u16,
    /// They are of a port, or of the device.
    of_port: bool,
}

impl Table {
    fn of(op: u16) -> Option<Table> {
        let (kind, table, entry, id) = match op {
            command::RES_QP_GET => (Kind::Qp, attr::RES_QP, attr::RES_QP_ENTRY, attr::RES_LQPN),
            command::RES_CM_ID_GET => (
                Kind::CmId,
                attr::RES_CM_ID,
                attr::RES_CM_ID_ENTRY,
                attr::RES_CM_IDN,
            ),
            command::RES_CQ_GET => (Kind::Cq, attr::RES_CQ, attr::RES_CQ_ENTRY, attr::RES_CQN),
            command::RES_MR_GET => (Kind::Mr, attr::RES_MR, attr::RES_MR_ENTRY, attr::RES_MRN),
            command::RES_PD_GET => (Kind::Pd, attr::RES_PD, attr::RES_PD_ENTRY, attr::RES_PDN),
            command::RES_CTX_GET => (
                Kind::Context,
                attr::RES_CTX,
                attr::RES_CTX_ENTRY,
                attr::RES_CTXN,
            ),
            command::RES_SRQ_GET => (
                Kind::Srq,
                attr::RES_SRQ,
                attr::RES_SRQ_ENTRY,
                attr::RES_SRQN,
            ),
            _ => return None,
        };
        Some(Table {
            kind,
            table,
            entry,
            id,
            of_port: matches!(kind, Kind::Qp | Kind::CmId),
        })
    }

    /// Queue pairs, where shared receive queues say whose they are.
    fn attached(self, world: &World<'_>) -> Vec<Resource> {
        match self.kind {
            Kind::Srq => (world.list)(Kind::Qp),
            _ => Vec::new(),
        }
    }

    /// All, in as many datagrams as it takes.
    fn all(self, world: &World<'_>, port: Option<u32>, kind: u16, to: To) -> Datagrams {
        let qps = self.attached(world);
        let mut left = (world.list)(self.kind)
            .into_iter()
            .filter(move |resource| port.is_none() || port_of(resource).is_none_or(|of| of == PORT))
            .peekable();
        Box::new(std::iter::from_fn(move || {
            left.peek()?;
            let mut writer = Writer::begin(kind, NLM_F_MULTI, to);
            handle(&mut writer);
            let table = writer.nest(self.table);
            let empty = writer.len();
            while let Some(resource) = left.peek() {
                let before = writer.len();
                let entry = writer.nest(self.entry);
                fill(&mut writer, resource, &qps);
                writer.end_nest(entry);
                if writer.len() > DATAGRAM && before > empty {
                    writer.cut(before);
                    break;
                }
                left.next();
            }
            writer.end_nest(table);
            Some(writer.end())
        }))
    }

    fn one(self, world: &World<'_>, attributes: Attributes<'_>, writer: &mut Writer) -> Result<()> {
        device(attributes)?;
        let id = attributes.number(self.id)?.ok_or(libc::EINVAL)?;
        let port = port(attributes)?;
        if port.is_some() != self.of_port {
            return Err(libc::EINVAL.into());
        }
        let all = (world.list)(self.kind);
        let found = all.iter().find(|resource| resource.number == id);
        let found = found.ok_or(libc::ENOENT)?;
        if port_of(found).is_some_and(|of| of != PORT) {
            return Err(libc::EAGAIN.into());
        }
        handle(writer);
        fill(writer, found, &self.attached(world));
        Ok(())
    }
}

/// The port of an object that is of one; 0: of none yet.
fn port_of(resource: &Resource) -> Option<u32> {
    match resource.detail {
        Detail::Qp { port, .. } | Detail::CmId { port, .. } => Some(port.into()),
        _ => None,
    }
}

/// The attributes of an object.
fn fill(writer: &mut Writer, resource: &Resource, qps: &[Resource]) {
    let number = resource.number;
    if let Some(port @ 1..) = port_of(resource) {
        writer.u32(attr::PORT_INDEX, port);
    }
    match resource.detail {
        Detail::Qp {
            qp_type,
            state,
            path_mig_state,
            dest_qp_num,
            rq_psn,
            sq_psn,
            pd,
            ..
        } => {
            writer.u32(attr::RES_LQPN, number);
            if pd != 0 {
                writer.u32(attr::RES_PDN, pd);
            }
            if matches!(qp_type, QpType::Rc | QpType::Uc) {
                writer.u32(attr::RES_RQPN, dest_qp_num);
                writer.u32(attr::RES_RQ_PSN, rq_psn);
            }
            writer.u32(attr::RES_SQ_PSN, sq_psn);
            if qp_type != QpType::Ud {
                writer.u8(attr::RES_PATH_MIG_STATE, path_mig_state);
            }
            writer.u8(attr::RES_TYPE, qp_type as u8);
            writer.u8(attr::RES_STATE, state as u8);
        }
        Detail::CmId {
            qpn,
            qp_type,
            port_space,
            state,
            local,
            peer,
            ..
        } => {
            if qpn != 0 {
                writer.u32(attr::RES_LQPN, qpn);
                writer.u8(attr::RES_TYPE, qp_type as u8);
            }
            writer.u32(attr::RES_PS, port_space.into());
            writer.u8(attr::RES_STATE, state);
            for (kind, addr) in [(attr::RES_SRC_ADDR, local), (attr::RES_DST_ADDR, peer)] {
                if let Some(addr) = addr {
                    writer.bytes(kind, &sockaddr_storage(addr));
                }
            }
            writer.u32(attr::RES_CM_IDN, number);
        }
        Detail::Cq {
            cqe,
            users,
            context,
        } => {
            writer.u32(attr::RES_CQE, cqe);
            writer.u64(attr::RES_USECNT, users.into());
            writer.u8(attr::DEV_DIM, 0);
            writer.u32(attr::RES_CQN, number);
            writer.u32(attr::RES_CTXN, context);
        }
        Detail::Mr { key, length, pd } => {
            writer.u32(attr::RES_RKEY, key);
            writer.u32(attr::RES_LKEY, key);
            writer.u64(attr::RES_MRLEN, length);
            writer.u32(attr::RES_MRN, number);
            writer.u32(attr::RES_PDN, pd);
        }
        Detail::Pd { users, context } => {
            writer.u64(attr::RES_USECNT, users.into());
            writer.u32(attr::RES_PDN, number);
            writer.u32(attr::RES_CTXN, context);
        }
        Detail::Context => writer.u32(attr::RES_CTXN, number),
        Detail::Srq { xrc, pd, cq } => {
            writer.u32(attr::RES_SRQN, number);
            writer.u8(attr::RES_TYPE, xrc.into());
            writer.u32(attr::RES_PDN, pd);
            if cq != 0 {
                writer.u32(attr::RES_CQN, cq);
            }
            fill_attached(writer, number, qps);
        }
    }
    writer.u32(attr::RES_PID, resource.pid);
}

/// The queue pairs of a shared receive queue, in ranges; as many as fit.
fn fill_attached(writer: &mut Writer, srqn: u32, qps: &[Resource]) {
    let mut numbers: Vec<u32> = qps
        .iter()
        .filter(|qp| matches!(qp.detail, Detail::Qp { srq, .. } if srq == srqn))
        .map(|qp| qp.number)
        .collect();
    numbers.sort_unstable();
    let table = writer.nest(attr::RES_QP);
    for range in numbers.chunk_by(|a, b| a + 1 == *b) {
        // Room for the process's number behind it.
        if writer.len() + 32 > DATAGRAM {
            break;
        }
        let entry = writer.nest(attr::RES_QP_ENTRY);
        match range {
            [only] => writer.u32(attr::RES_LQPN, *only),
            [first, .., last] => {
                writer.u32(attr::MIN_RANGE, *first);
                writer.u32(attr::MAX_RANGE, *last);
            }
            [] => {}
        }
        writer.end_nest(entry);
    }
    writer.end_nest(table);
}

/// `struct sockaddr_storage`.
fn sockaddr_storage(addr: SocketAddr) -> [u8; 128] {
    let mut out = [0; 128];
    out[2..4].copy_from_slice(&addr.port().to_be_bytes());
    let family = match addr {
        SocketAddr::V4(v4) => {
            out[4..8].copy_from_slice(&v4.ip().octets());
            libc::AF_INET
        }
        SocketAddr::V6(v6) => {
            out[8..24].copy_from_slice(&v6.ip().octets());
            out[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            libc::AF_INET6
        }
    };
    out[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    out
}

#[cfg(test)]
mod tests;
