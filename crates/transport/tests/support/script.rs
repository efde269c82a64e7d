//! Packet scripts: one queue pair, a peer that follows a script, and every output checked line by
//! line.
//!
//! `tests/scripts/README.md` documents the language. Parsing of arguments is in [`args`], packets
//! by name in [`packets`].

mod args;
mod packets;

use super::memory::{Memory, QpDevice, Queues, Region, Rights, Srq};
use super::network;
use super::pair::{Batch, post_fast};
use args::Args;
use rnic_transport::{
    AckRequest, Address, BindWindow, Completion, CompletionOpcode, Flush, Immediate, Pd, Placement,
    QpEvent, QueuePair, Rc, RcAttr, RecvWqe, Role, SendData, SendOp, SendWqe, SgList, Sge, Status,
    Time, Uc, UcAttr, Ud, UdAttr,
};
use rnic_wire::ip::Ipv4Header;
use rnic_wire::{Grh, MAX_HEADER_LEN, Packet, PathMtu, Psn, Service, UdPrefix, Usual};
use std::collections::{HashMap, VecDeque};

type Outcome<T = ()> = Result<T, String>;

/// Runs a script, twice: that the usual short messages take a fast path must not be seen in
/// anything.
///
/// # Errors
/// `file:line: what is not as the script says`.
pub fn run(file: &str, text: &str) -> Outcome {
    run_once(file, text, false)?;
    run_once(file, text, true).map_err(|e| format!("fast: {e}"))
}

fn run_once(file: &str, text: &str, fast: bool) -> Outcome {
    let mut world = World::new(fast);
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        world.line = index + 1;
        if line == "again" {
            world
                .nothing_left()
                .map_err(|e| format!("{file}:{}: before `again`: {e}", index + 1))?;
            world = World::new(fast);
            continue;
        }
        world
            .command(line)
            .map_err(|e| format!("{file}:{}: `{line}`: {e}", index + 1))?;
    }
    world.line = text.lines().count();
    world
        .nothing_left()
        .map_err(|e| format!("{file}: at the end: {e}"))
}

struct Emitted {
    bytes: Vec<u8>,
    cause: usize,
}

/// What only datagrams have.
struct Datagrams {
    /// Of the queue pair.
    qkey: u32,
    /// The network header of the peer's packets.
    prefix: UdPrefix,
}

fn prefix(v6: bool) -> UdPrefix {
    if v6 {
        UdPrefix::V6(Grh {
            next_header: 17,
            hop_limit: 64,
            sgid: [0x22; 16],
            dgid: [0x11; 16],
            ..Grh::default()
        })
    } else {
        UdPrefix::V4(Ipv4Header {
            tos: 0,
            total_len: 0,
            id: 0,
            dont_fragment: true,
            ttl: 64,
            protocol: 17,
            src: [10, 0, 0, 2].into(),
            dst: [10, 0, 0, 1].into(),
        })
    }
}

struct World {
    qp: QueuePair,
    service: Service,
    attr: RcAttr,
    datagrams: Datagrams,
    started: bool,
    now: u64,
    memory: Memory,
    names: HashMap<String, usize>,
    queues: Queues,
    /// Opcode and length of each send posted, to check completions by.
    posted: HashMap<u64, (CompletionOpcode, u64)>,
    packets: VecDeque<Emitted>,
    sends_seen: usize,
    receives_seen: usize,
    events_seen: usize,
    held: bool,
    /// Short messages take the fast path, where they can.
    fast: bool,
    /// The path goes by memory, with so much payload in a packet.
    most_payload: Option<usize>,
    /// Packets may point at so much.
    most_pointed: usize,
    line: usize,
}

/// What a byte of memory holds at first.
pub fn pattern(addr: u64) -> u8 {
    (addr as u8) ^ ((addr >> 8) as u8).wrapping_mul(167) ^ ((addr >> 16) as u8).wrapping_mul(59)
}

fn path_mtu(bytes: u64) -> Result<PathMtu, String> {
    let known = PathMtu::ALL.into_iter().find(|m| m.bytes() as u64 == bytes);
    known.ok_or_else(|| "no such MTU".into())
}

impl World {
    fn new(fast: bool) -> World {
        let mut world = World {
            qp: QueuePair::Rc(Rc::new()),
            service: Service::Rc,
            datagrams: Datagrams {
                qkey: 0x1111,
                prefix: prefix(false),
            },
            attr: RcAttr {
                role: Role::Rc,
                qpn: 0x11,
                pd: Pd(1),
                dest_qpn: 0x22,
                mtu: PathMtu::M1024,
                pkey: 0xffff,
                sq_psn: Psn::new(100),
                rq_psn: Psn::new(200),
                timeout: 14,
                retry_cnt: 7,
                rnr_retry: 7,
                min_rnr_timer: 12,
                max_rd_atomic: 4,
                max_dest_rd_atomic: 4,
                remote_write: true,
                remote_read: true,
                remote_atomic: true,
                flush: Placement {
                    global: true,
                    persistent: true,
                },
                window_bytes: 256 << 10,
            },
            started: false,
            now: 0,
            memory: Memory::default(),
            names: HashMap::new(),
            queues: Queues::default(),
            posted: HashMap::new(),
            packets: VecDeque::new(),
            sends_seen: 0,
            receives_seen: 0,
            events_seen: 0,
            held: false,
            fast,
            most_payload: None,
            most_pointed: 0,
            line: 0,
        };
        let none = Rights::default();
        world.region("src", 0x10_0000, 0x1_0000, 0x10, none, Pd(1));
        world.region("dst", 0x20_0000, 0x1_0000, 0x20, Rights::LOCAL, Pd(1));
        world.region("mem", 0x30_0000, 0x1_0000, 0x30, Rights::ALL, Pd(1));
        world
    }

    /// `lkey` is the key, the rkey is the number after it.
    fn region(&mut self, name: &str, base: u64, len: u64, lkey: u32, rights: Rights, pd: Pd) {
        let index = self.memory.register(Region {
            base,
            bytes: (base..base + len).map(pattern).collect(),
            lkey,
            rkey: lkey + 1,
            pd,
            rights,
            invalidatable: false,
            revoked: false,
            unmapped: false,
        });
        self.names.insert(name.to_owned(), index);
    }

    fn start(&mut self) {
        if !self.started {
            self.started = true;
            self.receive_ready();
            self.send_ready();
        }
    }

    fn uc_attr(&self) -> UcAttr {
        let RcAttr {
            qpn,
            pd,
            dest_qpn,
            mtu,
            pkey,
            sq_psn,
            rq_psn,
            remote_write,
            ..
        } = self.attr;
        UcAttr {
            qpn,
            pd,
            dest_qpn,
            mtu,
            pkey,
            sq_psn,
            rq_psn,
            remote_write,
        }
    }

    fn ud_attr(&self) -> UdAttr {
        let RcAttr {
            qpn,
            pd,
            mtu,
            pkey,
            sq_psn,
            ..
        } = self.attr;
        UdAttr {
            qpn,
            pd,
            qkey: self.datagrams.qkey,
            mtu,
            pkey,
            pkey_index: 0,
            sq_psn,
        }
    }

    fn receive_ready(&mut self) {
        let (uc, ud) = (self.uc_attr(), self.ud_attr());
        match &mut self.qp {
            QueuePair::Rc(rc) => rc.receive_ready(self.attr),
            QueuePair::Uc(qp) => qp.receive_ready(uc),
            QueuePair::Ud(qp) => qp.receive_ready(ud),
        }
    }

    fn send_ready(&mut self) {
        self.queues.send_recovered();
        let (uc, ud) = (self.uc_attr(), self.ud_attr());
        match &mut self.qp {
            QueuePair::Rc(rc) => rc.send_ready(self.attr),
            QueuePair::Uc(qp) => qp.send_ready(uc),
            QueuePair::Ud(qp) => qp.send_ready(ud),
        }
    }

    fn with<R>(&mut self, f: impl FnOnce(&mut QueuePair, Time, &mut QpDevice<'_>) -> R) -> R {
        self.with_packet(None, f)
    }

    fn with_packet<R>(
        &mut self,
        packet: Option<&[u8]>,
        f: impl FnOnce(&mut QueuePair, Time, &mut QpDevice<'_>) -> R,
    ) -> R {
        let mut device = QpDevice {
            memory: &mut self.memory,
            queues: &mut self.queues,
            packet,
        };
        f(&mut self.qp, Time(self.now), &mut device)
    }

    fn command(&mut self, line: &str) -> Outcome {
        let (verb, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let mut args = Args::parse(rest)?;
        if !matches!(
            verb,
            ">" | "complete"
                | "event"
                | "memory"
                | "counter"
                | "timer"
                | "psn"
                | "state"
                | "draining"
        ) {
            self.nothing_left()?;
        }
        if !matches!(verb, "set" | "region" | "srq" | "enter") {
            self.start();
        }
        match verb {
            "set" => self.set(&mut args)?,
            "region" => self.region_command(&mut args)?,
            "srq" => {
                let number = args::number(args.word()?)? as u32;
                let pd = Pd(args.number("pd")?.unwrap_or(1) as u32);
                self.queues.srqs.insert(number, Srq::new(pd));
            }
            "close" => {
                let number = args::number(args.word()?)? as u32;
                self.queues.srqs.remove(&number);
            }
            "enter" => self.enter(&mut args)?,
            "post" => self.post(&mut args)?,
            "recv" => self.recv(&mut args)?,
            "<" => self.incoming(&mut args)?,
            ">" => self.outgoing(&mut args)?,
            "complete" => self.complete(&mut args)?,
            "event" => self.event(&mut args)?,
            "memory" => self.check_memory(&mut args)?,
            "advance" => self.advance(&mut args)?,
            "path" => {
                let number = |text: &str| args::number(text).map(|n| n as usize);
                let (memory, points) = (args.text("memory"), args.text("points"));
                if memory.is_none() && points.is_none() && !args.flag("wire") {
                    return Err("a path is `wire`, `memory=N` or `points=N`".into());
                }
                self.most_payload = memory.map(number).transpose()?;
                self.most_pointed = points.map_or(Ok(0), number)?;
            }
            "hold" => self.held = true,
            "release" => {
                self.held = false;
                self.poll()?;
            }
            "idle" => {}
            "drain" => {
                let notify = args.flag("notify");
                self.with(|rc, _, device| rc.drain(notify, device));
                self.poll()?;
            }
            "resume" => {
                self.qp.resume();
                self.poll()?;
            }
            "draining" => {
                let expected = args.word()? == "yes";
                if self.qp.is_draining() != expected {
                    return Err(format!("draining is {}", !expected));
                }
            }
            "peer" => {
                let stopped = match args.word()? {
                    "stopped" => true,
                    "runs" => false,
                    other => return Err(format!("the peer is not {other:?}")),
                };
                let QueuePair::Rc(rc) = &mut self.qp else {
                    return Err("only RC asks".into());
                };
                rc.peer_stopped(stopped);
            }
            "sleep" => {
                self.now += args::duration(args.word()?)?;
                self.with(|rc, now, device| rc.handle_timeout(now, device));
                self.poll()?;
            }
            "fail" => {
                self.with(|rc, _, device| rc.fail(device));
                self.poll()?;
            }
            "vanish" => {
                let index = self.region_index(args.word()?)?;
                self.memory.regions[index].unmapped = true;
            }
            "deregister" => {
                let index = self.region_index(args.word()?)?;
                self.memory.deregister(index);
            }
            "invalidatable" => {
                let index = self.region_index(args.word()?)?;
                self.memory.regions[index].invalidatable = true;
            }
            "state" => {
                let seen = if self.qp.is_error() {
                    "error"
                } else if self.qp.is_send_error() {
                    "send_error"
                } else {
                    "ready"
                };
                let expected = args.word()?;
                if seen != expected {
                    return Err(format!("the state is {seen}"));
                }
            }
            "counter" => self.counter(&mut args)?,
            "timer" => self.timer(&mut args)?,
            "psn" => {
                let (send, receive) = (self.qp.sq_psn().value(), self.qp.rq_psn().value());
                if let Some(expected) = args.number("sq")?
                    && expected != u64::from(send)
                {
                    return Err(format!("sq={send}"));
                }
                if let Some(expected) = args.number("rq")?
                    && expected != u64::from(receive)
                {
                    return Err(format!("rq={receive}"));
                }
            }
            other => return Err(format!("unknown command {other}")),
        }
        args.finish()?;
        if let Some(violation) = self.queues.violations.first() {
            return Err(violation.clone());
        }
        Ok(())
    }

    fn set(&mut self, args: &mut Args<'_>) -> Outcome {
        let mut attr = self.attr;
        macro_rules! take {
            ($($field:ident),*) => {$(
                if let Some(value) = args.number(stringify!($field))? {
                    attr.$field = value.try_into().map_err(|_| "too large")?;
                }
            )*};
        }
        take!(
            qpn,
            dest_qpn,
            pkey,
            timeout,
            retry_cnt,
            rnr_retry,
            min_rnr_timer,
            max_rd_atomic,
            max_dest_rd_atomic,
            window_bytes
        );
        if let Some(psn) = args.number("sq_psn")? {
            attr.sq_psn = Psn::new(psn as u32);
        }
        if let Some(psn) = args.number("rq_psn")? {
            attr.rq_psn = Psn::new(psn as u32);
        }
        if let Some(mtu) = args.number("mtu")? {
            attr.mtu = path_mtu(mtu)?;
        }
        if let Some(list) = args.text("access") {
            let has = |name| list.split(',').any(|item| item == name);
            attr.remote_write = has("write");
            attr.remote_read = has("read");
            attr.remote_atomic = has("atomic");
            attr.flush = Placement {
                global: has("flush_global"),
                persistent: has("flush_persistent"),
            };
        }
        match args.text("role") {
            None => {}
            Some("xrc_initiator") => attr.role = Role::XrcInitiator,
            Some("xrc_target") => {
                attr.role = Role::XrcTarget;
                self.queues.shared = true;
            }
            Some(other) => return Err(format!("no role {other}")),
        }
        if let Some(qkey) = args.number("qkey")? {
            self.datagrams.qkey = qkey as u32;
        }
        if args.flag("ipv6") {
            self.datagrams.prefix = prefix(true);
        }
        match args.text("service") {
            None => {}
            Some("uc") => {
                self.service = Service::Uc;
                self.qp = QueuePair::Uc(Uc::new());
            }
            Some("ud") => {
                self.service = Service::Ud;
                self.qp = QueuePair::Ud(Ud::new());
            }
            Some(other) => return Err(format!("no service {other}")),
        }
        if args.flag("srq") {
            self.queues.shared = true;
        }
        self.attr = attr;
        if self.started {
            let (uc, ud) = (self.uc_attr(), self.ud_attr());
            match &mut self.qp {
                QueuePair::Rc(rc) => rc.retune(attr),
                QueuePair::Uc(qp) => qp.retune(uc),
                QueuePair::Ud(qp) => qp.retune(ud),
            }
        }
        Ok(())
    }

    fn region_command(&mut self, args: &mut Args<'_>) -> Outcome {
        let name = args.word()?;
        let base = args.need("addr")?;
        let len = args.need("len")?;
        let lkey = args.need("lkey")? as u32;
        let pd = Pd(args.number("pd")?.unwrap_or(1) as u32);
        let list = args.text("rights").unwrap_or("");
        let has = |name| list.split(',').any(|item| item == name);
        let rights = Rights {
            local_write: has("lw"),
            remote_read: has("rr"),
            remote_write: has("rw"),
            remote_atomic: has("ra"),
            flush: Placement {
                global: has("fg"),
                persistent: has("fp"),
            },
        };
        self.region(name, base, len, lkey, rights, pd);
        Ok(())
    }

    fn enter(&mut self, args: &mut Args<'_>) -> Outcome {
        match args.word()? {
            "rtr" => self.receive_ready(),
            "rts" => self.send_ready(),
            "reset" => {
                self.qp.reset();
                self.queues.forget();
            }
            other => return Err(format!("no state {other}")),
        }
        self.started = true;
        self.poll()
    }

    fn region_index(&self, name: &str) -> Outcome<usize> {
        self.names
            .get(name)
            .copied()
            .ok_or_else(|| format!("no region {name}"))
    }

    /// `NAME+OFFSET`, `NAME` or a number.
    fn address(&self, text: &str) -> Outcome<u64> {
        let (name, offset) = text.split_once('+').unwrap_or((text, "0"));
        match self.names.get(name) {
            Some(&index) => Ok(self.memory.regions[index].base + args::number(offset)?),
            None => args::number(text),
        }
    }

    /// The rkey of a region by name, or a number.
    fn rkey(&self, text: &str) -> Outcome<u32> {
        match self.names.get(text) {
            Some(&index) => Ok(self.memory.regions[index].rkey),
            None => Ok(args::number(text)? as u32),
        }
    }

    /// `ADDRESS:LENGTH[!LKEY]`, several with commas.
    fn list(&self, text: &str) -> Outcome<SgList> {
        text.split(',')
            .filter(|item| !item.is_empty())
            .map(|item| {
                let (place, length) = item.split_once(':').ok_or("ADDRESS:LENGTH expected")?;
                let (length, lkey) = match length.split_once('!') {
                    Some((length, lkey)) => (length, Some(args::number(lkey)? as u32)),
                    None => (length, None),
                };
                let addr = self.address(place)?;
                let name = place.split('+').next().unwrap_or("");
                let lkey = match (lkey, self.names.get(name)) {
                    (Some(lkey), _) => lkey,
                    (None, Some(&index)) => self.memory.regions[index].lkey,
                    (None, None) => return Err("no region, so name a key".to_owned()),
                };
                Ok(Sge {
                    addr,
                    length: args::number(length)? as u32,
                    lkey,
                })
            })
            .collect()
    }

    fn post(&mut self, args: &mut Args<'_>) -> Outcome {
        let kind = args.word()?;
        let wr_id = args.need("wr")?;
        // Where at the peer: it exists only in the script.
        let remote_addr = args.number("va")?.unwrap_or(0x5000);
        let rkey = args.number("rkey")?.unwrap_or(0x77) as u32;
        let imm = (args.number("imm")?.unwrap_or(0) as u32).to_be_bytes();
        let op = match kind {
            "send" | "send_imm" if self.service == Service::Ud => SendOp::Datagram {
                to: Address {
                    path: 1,
                    qpn: args.number("to")?.map_or(self.attr.dest_qpn, |n| n as u32),
                    qkey: args.number("qkey")?.unwrap_or(0x1111) as u32,
                },
                imm: (kind == "send_imm").then_some(imm),
            },
            "send" => SendOp::Send,
            "send_imm" => SendOp::SendImm(imm),
            "send_inv" => SendOp::SendInvalidate(args.need("inv")? as u32),
            "write" => SendOp::Write { remote_addr, rkey },
            "write_imm" => SendOp::WriteImm {
                remote_addr,
                rkey,
                imm,
            },
            "read" => SendOp::Read { remote_addr, rkey },
            "cmp_swap" => SendOp::CompareSwap {
                remote_addr,
                rkey,
                compare: args.need("compare")?,
                swap: args.need("swap")?,
            },
            "fetch_add" => SendOp::FetchAdd {
                remote_addr,
                rkey,
                add: args.need("add")?,
            },
            "atomic_write" => SendOp::AtomicWrite { remote_addr, rkey },
            "flush" => SendOp::Flush(Flush {
                remote_addr,
                rkey,
                length: args.number("length")?.unwrap_or(0),
                whole_region: args.flag("all"),
                placement: Placement {
                    global: args.flag("global"),
                    persistent: args.flag("persistent"),
                },
            }),
            "bind" => {
                let name = args.text("region").ok_or("region missing")?;
                let index = *self.names.get(name).ok_or("no such region")?;
                let region = &self.memory.regions[index];
                SendOp::BindWindow(BindWindow {
                    rkey,
                    lkey: region.lkey,
                    addr: region.base,
                    length: region.bytes.len() as u64,
                    read: true,
                    write: true,
                    atomic: true,
                    zero_based: false,
                })
            }
            "local_inv" => SendOp::LocalInvalidate(rkey),
            other => return Err(format!("no operation {other}")),
        };
        let opcode = match op {
            SendOp::Send
            | SendOp::SendImm(_)
            | SendOp::SendInvalidate(_)
            | SendOp::Datagram { .. } => CompletionOpcode::Send,
            SendOp::Write { .. } | SendOp::WriteImm { .. } => CompletionOpcode::RdmaWrite,
            SendOp::Read { .. } => CompletionOpcode::RdmaRead,
            SendOp::CompareSwap { .. } => CompletionOpcode::CompareSwap,
            SendOp::FetchAdd { .. } => CompletionOpcode::FetchAdd,
            SendOp::AtomicWrite { .. } => CompletionOpcode::AtomicWrite,
            SendOp::Flush(_) => CompletionOpcode::Flush,
            SendOp::BindWindow(_) => CompletionOpcode::BindMw,
            SendOp::LocalInvalidate(_) => CompletionOpcode::LocalInvalidate,
        };
        let data = if let Some(len) = args.number("inline")? {
            let base = self.memory.regions[0].base;
            SendData::Inline((base..base + len).map(pattern).collect())
        } else if let Some(list) = args.text("local") {
            SendData::Gather(self.list(list)?)
        } else {
            let atomic = matches!(
                opcode,
                CompletionOpcode::CompareSwap | CompletionOpcode::FetchAdd
            );
            let len = args.number("len")?.unwrap_or(if atomic { 8 } else { 0 });
            let place = if op.is_read_or_atomic() { "dst" } else { "src" };
            SendData::Gather(self.list(&if len == 0 {
                String::new()
            } else {
                format!("{place}:{len}")
            })?)
        };
        let wqe = SendWqe {
            srqn: args.number("srqn")?.unwrap_or(0) as u32,
            wr_id,
            op,
            signaled: !args.flag("unsignaled"),
            solicited: args.flag("solicited"),
            fence: args.flag("fence"),
            data,
        };
        self.posted.insert(wr_id, (opcode, wqe.data.len()));
        let fast = self.fast && !self.held;
        let mut batch = Batch::new(64);
        self.with(|qp, now, device| {
            device.queues.note_send(&wqe);
            match qp {
                QueuePair::Rc(rc) if fast => {
                    post_fast(rc, now, wqe, AckRequest::Now, device, &mut batch);
                }
                _ => qp.post_send(wqe),
            }
            if qp.is_error() {
                qp.fail(device);
            }
        });
        self.emitted(batch)?;
        self.poll()
    }

    fn recv(&mut self, args: &mut Args<'_>) -> Outcome {
        let wr_id = args.need("wr")?;
        let srq = args.number("srq")?.map(|number| number as u32);
        let sges = match (args.text("local"), args.number("len")?) {
            (Some(list), _) => self.list(list)?,
            (None, None | Some(0)) => SgList::new(),
            (None, Some(len)) => self.list(&format!("dst:{len}"))?,
        };
        self.with(|rc, _, device| {
            device.queues.post_receive(srq, RecvWqe { wr_id, sges });
            if rc.is_error() {
                rc.fail(device);
            }
        });
        self.poll()
    }

    fn incoming(&mut self, args: &mut Args<'_>) -> Outcome {
        let bytes = packets::build(self, args)?;
        let (by_memory, gone) = (args.flag("memory"), args.flag("gone"));
        let theirs = match args.number("mtu")? {
            Some(bytes) => path_mtu(bytes)?,
            None => self.attr.mtu,
        };
        args.finish()?;
        let parsed = if by_memory || gone {
            Packet::parse_front(
                &bytes[..bytes.len().min(MAX_HEADER_LEN)],
                bytes.len(),
                theirs,
            )
        } else {
            Packet::parse(&bytes)
        };
        let packet = parsed.map_err(|e| format!("the script's packet is {e}"))?;
        let prefix = self.datagrams.prefix;
        let detached = by_memory.then_some(&bytes[..]);
        let usual = Usual::parse(&bytes).filter(|_| self.fast && !by_memory);
        self.with_packet(detached, |qp, now, device| {
            if let (QueuePair::Rc(rc), Some((bth, usual))) = (&mut *qp, usual)
                && rc.take_fast(now, &bth, usual, device)
            {
                return;
            }
            qp.handle_packet(now, &packet, || prefix, device);
        });
        self.poll()
    }

    fn outgoing(&mut self, args: &mut Args<'_>) -> Outcome {
        let Some(emitted) = self.packets.pop_front() else {
            return Err(format!(
                "no packet was emitted (wants_transmit {}, next timeout {:?}, now {:?})",
                self.qp.wants_transmit(),
                self.qp.next_timeout(),
                Time(self.now)
            ));
        };
        packets::check(self, args, &emitted.bytes).map_err(|e| {
            format!(
                "{e}\n  emitted at line {}: {}",
                emitted.cause,
                packets::describe(&emitted.bytes)
            )
        })
    }

    fn poll(&mut self) -> Outcome {
        if self.held {
            return Ok(());
        }
        for _ in 0..10_000 {
            if !self.qp.wants_transmit() {
                return Ok(());
            }
            let mut batch = Batch::new(64);
            batch.most_payload = self.most_payload;
            batch.most_pointed = self.most_pointed;
            let fast = self.fast;
            self.with(|qp, now, device| {
                if fast
                    && let QueuePair::Rc(rc) = &mut *qp
                    && (rc.acknowledge_fast(device, &mut batch)
                        || rc.answer_fast(device, &mut batch))
                {
                    return;
                }
                qp.poll_transmit(now, device, &mut batch, usize::MAX);
            });
            self.emitted(batch)?;
        }
        Err("wants to transmit without end".into())
    }

    /// Notes what came out.
    fn emitted(&mut self, mut batch: Batch) -> Outcome {
        batch.follow(&self.memory);
        let by_memory = batch.by_memory();
        for bytes in batch.packets {
            let dest = match self.service {
                // Each datagram has its own.
                Service::Ud => Packet::parse(&bytes).map_or(0, |packet| packet.bth.dest_qp),
                _ => self.attr.dest_qpn,
            };
            network::lint(&bytes, self.attr.mtu, by_memory, self.attr.pkey, dest)?;
            self.packets.push_back(Emitted {
                bytes,
                cause: self.line,
            });
        }
        Ok(())
    }

    fn advance(&mut self, args: &mut Args<'_>) -> Outcome {
        let until = self.now + args::duration(args.word()?)?;
        let mut fired = 0;
        while let Some(Time(at)) = self.qp.next_timeout() {
            if at > until {
                break;
            }
            self.now = self.now.max(at);
            self.with(|rc, now, device| rc.handle_timeout(now, device));
            self.poll()?;
            fired += 1;
            if fired > 10_000 {
                return Err("timers fire without end".into());
            }
        }
        self.now = until;
        Ok(())
    }

    fn timer(&mut self, args: &mut Args<'_>) -> Outcome {
        let seen = self.qp.next_timeout();
        let word = args.word()?;
        let expected = match word {
            "none" => None,
            text => Some(Time(self.now + args::duration(text)?)),
        };
        if seen == expected {
            Ok(())
        } else {
            Err(match seen {
                None => "no timer runs".into(),
                Some(Time(at)) => format!("a timer is due in {} ns", at as i64 - self.now as i64),
            })
        }
    }

    fn complete(&mut self, args: &mut Args<'_>) -> Outcome {
        let queue = args.word()?;
        let (list, at) = match queue {
            "send" => (&self.queues.send_completions, &mut self.sends_seen),
            "recv" => (&self.queues.recv_completions, &mut self.receives_seen),
            other => return Err(format!("no queue {other}")),
        };
        let Some(seen) = list.get(*at).copied() else {
            return Err("no completion".into());
        };
        *at += 1;
        self.check_completion(args, queue == "send", &seen)
            .map_err(|e| format!("{e}\n  {seen:?}"))
    }

    fn check_completion(&self, args: &mut Args<'_>, send: bool, seen: &Completion) -> Outcome {
        let expect = |what: &str, same: bool| {
            if same {
                Ok(())
            } else {
                Err(format!("{what} differs"))
            }
        };
        let wr_id = args.need("wr")?;
        expect("wr", seen.wr_id == wr_id)?;
        let status = status(args.text("status").unwrap_or("success"))?;
        expect("status", seen.status == status)?;
        expect("qpn", seen.qpn == self.attr.qpn)?;
        let success = status == Status::Success;
        if send {
            let &(opcode, len) = self.posted.get(&wr_id).ok_or("never posted")?;
            expect("opcode", seen.opcode == opcode)?;
            if success
                && matches!(
                    opcode,
                    CompletionOpcode::RdmaRead
                        | CompletionOpcode::CompareSwap
                        | CompletionOpcode::FetchAdd
                )
            {
                let len = if opcode == CompletionOpcode::RdmaRead {
                    len
                } else {
                    8
                };
                expect("byte_len", u64::from(seen.byte_len) == len)?;
            }
            if success {
                expect("vendor_err", seen.vendor_err == 0)?;
            } else {
                expect("solicited (every error is)", seen.solicited)?;
                expect("byte_len of a failure", seen.byte_len == 0)?;
            }
            return Ok(());
        }
        let imm = args.number("imm")?.map(|n| (n as u32).to_be_bytes());
        let inv = args.text("inv").map(|text| self.rkey(text)).transpose()?;
        let write = args.flag("write_imm");
        let solicited = args.flag("solicited");
        let at = self.receives_seen - 1;
        let srq = args.number("srq")?.map(|number| number as u32);
        expect("srq", self.queues.recv_from[at] == srq)?;
        if !success {
            expect("solicited (every error is)", seen.solicited)?;
            return expect("byte_len of a failure", seen.byte_len == 0);
        }
        let immediate = match (imm, inv) {
            (Some(bytes), _) => Immediate::Data(bytes),
            (None, Some(key)) => Immediate::Invalidated(key),
            (None, None) => Immediate::None,
        };
        expect("immediate", seen.immediate == immediate)?;
        expect("solicited", seen.solicited == solicited)?;
        expect("len", u64::from(seen.byte_len) == args.need("len")?)?;
        let src = args.number("src")?.map(|n| n as u32);
        expect("src_qpn", seen.src_qpn == src.unwrap_or(self.attr.dest_qpn))?;
        expect("grh", seen.grh.is_some() == (self.service == Service::Ud))?;
        let opcode = if write {
            CompletionOpcode::RecvRdmaWithImm
        } else {
            CompletionOpcode::Recv
        };
        expect("opcode", seen.opcode == opcode)
    }

    fn event(&mut self, args: &mut Args<'_>) -> Outcome {
        let expected = match args.word()? {
            "fatal" => QpEvent::Fatal,
            "request_error" => QpEvent::RequestError,
            "access_error" => QpEvent::AccessError,
            "communication_established" => QpEvent::CommunicationEstablished,
            "send_queue_drained" => QpEvent::SendQueueDrained,
            "last_wqe_reached" => QpEvent::LastWqeReached,
            other => return Err(format!("no event {other}")),
        };
        let seen = self.queues.events.get(self.events_seen).copied();
        self.events_seen += 1;
        if seen == Some(expected) {
            Ok(())
        } else {
            Err(format!("the event is {seen:?}"))
        }
    }

    fn check_memory(&mut self, args: &mut Args<'_>) -> Outcome {
        let list = self.list(args.word()?)?;
        let [sge] = list.as_slice() else {
            return Err("one range expected".into());
        };
        let region = self
            .memory
            .regions
            .iter()
            .find(|r| r.lkey == sge.lkey)
            .ok_or("no region")?;
        let start = (sge.addr - region.base) as usize;
        let seen = &region.bytes[start..start + sge.length as usize];
        let expected: Vec<u8> = if args.flag("grh") {
            let mut bytes = vec![0; UdPrefix::LEN];
            self.datagrams.prefix.emit(&mut bytes);
            bytes
        } else if let Some(value) = args.number("u64")? {
            value.to_ne_bytes().to_vec()
        } else if args.flag("untouched") {
            (sge.addr..sge.addr + u64::from(sge.length))
                .map(pattern)
                .collect()
        } else {
            packets::payload(self, args, seen.len(), None)?.ok_or("what should be there?")?
        };
        if seen == expected {
            return Ok(());
        }
        let first = seen.iter().zip(&expected).position(|(a, b)| a != b);
        Err(format!(
            "differs, first at byte {first:?} of {}: {:02x?}...",
            seen.len(),
            &seen[..seen.len().min(16)]
        ))
    }

    fn counter(&mut self, args: &mut Args<'_>) -> Outcome {
        let seen = self.qp.counters();
        macro_rules! compare {
            ($($field:ident),*) => {$(
                if let Some(expected) = args.number(stringify!($field))?
                    && expected != seen.$field
                {
                    return Err(format!("{} is {}", stringify!($field), seen.$field));
                }
            )*};
        }
        compare!(
            packets_sent,
            packets_received,
            messages_sent,
            messages_received,
            retransmitted_packets,
            timeouts,
            sequence_naks_sent,
            sequence_naks_received,
            rnr_naks_sent,
            rnr_naks_received,
            access_naks_sent,
            invalid_naks_sent,
            naks_received,
            duplicates_received,
            out_of_sequence,
            messages_dropped,
            no_receive_drops,
            too_long_drops,
            access_drops,
            incomplete_drops,
            packet_length_drops,
            malformed_drops,
            qkey_violations,
            start_psn_violations,
            dropped
        );
        Ok(())
    }

    /// Whatever came out was asked for by the script.
    fn nothing_left(&self) -> Outcome {
        if let Some(emitted) = self.packets.front() {
            return Err(format!(
                "unexpected packet, emitted at line {}: {}",
                emitted.cause,
                packets::describe(&emitted.bytes)
            ));
        }
        if let Some(completion) = self.queues.send_completions.get(self.sends_seen) {
            return Err(format!("unexpected completion {completion:?}"));
        }
        if let Some(completion) = self.queues.recv_completions.get(self.receives_seen) {
            return Err(format!("unexpected completion {completion:?}"));
        }
        if let Some(event) = self.queues.events.get(self.events_seen) {
            return Err(format!("unexpected event {event:?}"));
        }
        Ok(())
    }
}

fn status(text: &str) -> Outcome<Status> {
    Ok(match text {
        "success" => Status::Success,
        "local_length" => Status::LocalLengthError,
        "local_qp_operation" => Status::LocalQpOperationError,
        "local_protection" => Status::LocalProtectionError,
        "flushed" => Status::WorkRequestFlushed,
        "bad_response" => Status::BadResponse,
        "mw_bind" => Status::MemoryWindowBindError,
        "local_access" => Status::LocalAccessError,
        "remote_invalid_request" => Status::RemoteInvalidRequest,
        "remote_access" => Status::RemoteAccessError,
        "remote_operation" => Status::RemoteOperationError,
        "retry_exceeded" => Status::RetryExceeded,
        "rnr_retry_exceeded" => Status::RnrRetryExceeded,
        other => return Err(format!("no status {other}")),
    })
}
