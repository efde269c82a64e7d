//! The interpreter of the scripts.

use rnic_cm::{
    Accept, Address, Admission, CmError, Config, ConnId, Connect, Ended, Endpoint, Event, Incoming,
    LastWords, SidrAnswer, SidrConnect, SidrId, State, Time, Transmit,
};
use rnic_wire::cm::{
    Answered, Drep, Dreq, IpCmHeader, Mad, Message, Mra, PortSpace, Rej, RejectReason, Rep, Req,
    ReqPath, Rtu, ServiceId, SidrRep, SidrReq, SidrStatus, Transport,
};
use rnic_wire::{Gid, PathMtu};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

const PEER: u64 = 0x777;

/// Runs a script; an error names the line.
pub fn run(file: &str, text: &str) -> Result<(), String> {
    let mut stage = Stage::new(Config::default());
    let mut last = 0;
    for (i, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        last = i + 1;
        stage
            .line(line)
            .map_err(|error| format!("{file}:{last}: {line}\n  {error}"))?;
    }
    stage
        .nothing_is_left()
        .map_err(|error| format!("{file}:{last}: at the end: {error}"))
}

fn gid(ip: &str) -> Result<Gid, String> {
    let ip: IpAddr = ip.parse().map_err(|_| format!("{ip} is no address"))?;
    Ok(Gid::from(ip))
}

fn number(text: &str) -> Result<u64, String> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    }
    .map_err(|_| format!("{text} is no number"))
}

fn time(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let unit = match &text[digits.len()..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        unit => return Err(format!("{unit} is no unit of time")),
    };
    Ok(number(digits)? * unit)
}

fn service(text: &str) -> Result<ServiceId, String> {
    let (space, port) = text.split_once(':').ok_or("PS:PORT")?;
    let space = match space {
        "tcp" => PortSpace::Tcp,
        "udp" => PortSpace::Udp,
        "ib" => PortSpace::Ib,
        "ipoib" => PortSpace::Ipoib,
        "raw" => return number(port).map(ServiceId),
        other => return Err(format!("{other} is no port space")),
    };
    Ok(ServiceId::new(space, number(port)? as u16))
}

fn transport(text: &str) -> Result<Transport, String> {
    Ok(match text {
        "rc" => Transport::Rc,
        "uc" => Transport::Uc,
        "rd" => Transport::Other(2, 0),
        "xrc" => Transport::Xrc,
        other => return Err(format!("{other} is no transport")),
    })
}

fn about(text: &str) -> Result<Answered, String> {
    Ok(match text {
        "req" => Answered::Req,
        "rep" => Answered::Rep,
        "other" => Answered::Other,
        other => return Err(format!("{other} is no message")),
    })
}

/// `KEY=VALUE` of a line; each has to be used.
struct Args<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Args<'a> {
    fn parse(words: &[&'a str]) -> Result<Args<'a>, String> {
        let pairs = words.iter().map(|word| {
            word.split_once('=')
                .ok_or_else(|| format!("{word} is not KEY=VALUE"))
        });
        pairs.collect::<Result<_, _>>().map(Args)
    }

    fn text(&mut self, key: &str) -> Option<&'a str> {
        self.0.remove(key)
    }

    fn peek(&self, key: &str) -> Option<&'a str> {
        self.0.get(key).copied()
    }

    fn number(&mut self, key: &str, default: u64) -> Result<u64, String> {
        self.text(key).map_or(Ok(default), number)
    }

    fn end(self) -> Result<(), String> {
        match self.0.first_key_value() {
            Some((key, _)) => Err(format!("{key}= means nothing here")),
            None => Ok(()),
        }
    }
}

fn fill<const N: usize>(text: Option<&str>) -> [u8; N] {
    let mut all = [0; N];
    let bytes = text.unwrap_or_default().as_bytes();
    all[..bytes.len()].copy_from_slice(bytes);
    all
}

struct Stage {
    now: Time,
    endpoint: Endpoint,
    admission: Admission,
    names: BTreeMap<String, u32>,
    /// Transactions of our requests, by communication id: those of the answers.
    transactions: BTreeMap<u32, u64>,
    sent: VecDeque<Transmit>,
    events: VecDeque<Event>,
}

impl Stage {
    fn new(config: Config) -> Stage {
        let mut endpoint = Endpoint::new(Config {
            range: 0x345,
            seed: 7,
            guid: 0xb,
            ..config
        });
        endpoint.set_gids(&[gid("10.0.0.2").unwrap(), gid("fd00::2").unwrap()]);
        Stage {
            now: Time(1_000_000_000),
            endpoint,
            admission: Admission::Admit(0),
            names: BTreeMap::new(),
            transactions: BTreeMap::new(),
            sent: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    fn nothing_is_left(&mut self) -> Result<(), String> {
        if let Some(packet) = self.sent.front() {
            let mad = Mad::parse(&packet.mad).map_err(|e| e.to_string())?;
            return Err(format!("was sent: {:?}", mad.message));
        }
        match self.events.front() {
            Some(event) => Err(format!("happened: {event:?}")),
            None => Ok(()),
        }
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (first, rest) = (words[0], &words[1..]);
        let expects = [
            ">",
            "event",
            "state",
            "timer",
            "connections",
            "resolutions",
            "counter",
        ];
        if expects.contains(&first) || first == "last_words" && matches!(rest, ["yes" | "no"]) {
            return self.expect(first, rest);
        }
        self.nothing_is_left()?;
        self.stimulus(first, rest)?;
        while let Some(transmit) = self.endpoint.poll_transmit() {
            match Mad::parse(&transmit.mad) {
                Ok(Mad {
                    tid,
                    message: Message::Req(Req { local_id: id, .. }),
                    ..
                })
                | Ok(Mad {
                    tid,
                    message: Message::SidrReq(SidrReq { request_id: id, .. }),
                    ..
                }) => {
                    self.transactions.insert(id, tid);
                }
                _ => {}
            }
            self.sent.push_back(transmit);
        }
        self.events
            .extend(std::iter::from_fn(|| self.endpoint.poll_event()));
        Ok(())
    }

    /// The id that a name, or a number, stands for.
    fn id(&self, args: &mut Args<'_>) -> Result<u32, String> {
        let name = args.text("of").unwrap_or("c");
        match self.names.get(name) {
            Some(id) => Ok(*id),
            None if name == "none" => Ok(0),
            None if name.starts_with("0x") => Ok(number(name)? as u32),
            None => Err(format!("there is no connection {name}")),
        }
    }

    fn stimulus(&mut self, first: &str, rest: &[&str]) -> Result<(), String> {
        let now = self.now;
        match (first, rest) {
            ("idle", []) => return Ok(()),
            ("again", []) => {
                *self = Stage::new(Config::default());
                return Ok(());
            }
            ("set", words) => {
                let mut args = Args::parse(words)?;
                let mut number = |key, default| args.number(key, default);
                let config = Config {
                    max_requests: number("max_requests", 4096)? as usize,
                    max_time_wait: number("max_time_wait", 4096)? as usize,
                    max_replies: number("max_replies", 4096)? as usize,
                    request_window: number("request_window", 4096)? as usize,
                    max_retries: number("max_retries", 15)? as u8,
                    ..Config::default()
                };
                *self = Stage::new(config);
                return args.end();
            }
            ("listen", [word]) => {
                self.admission = match *word {
                    "yes" => Admission::Admit(0),
                    "no" => Admission::NobodyListens,
                    "drop" => Admission::Drop,
                    other => match other.split_once('=') {
                        Some(("refuse", n)) => Admission::Refuse(RejectReason(number(n)? as u16)),
                        Some(("as", n)) => Admission::Admit(number(n)?),
                        _ => return Err("listen what?".into()),
                    },
                };
                return Ok(());
            }
            ("advance", [ns]) => {
                let end = now.after(time(ns)?);
                while let Some(at) = self.endpoint.poll_timeout().filter(|at| *at <= end) {
                    self.endpoint.handle_timeout(at);
                }
                self.now = end;
                return Ok(());
            }
            ("<", ["garbage"]) => {
                return self.hand_over("10.0.0.1", "10.0.0.2", true, &[0x55; 256]);
            }
            ("<", [kind, words @ ..]) => {
                let mut args = Args::parse(words)?;
                let via = args.text("via").unwrap_or("10.0.0.1");
                let at = args.text("at").unwrap_or("10.0.0.2");
                let own = args.text("by").is_none();
                let mad = self.message(kind, &mut args)?;
                args.end()?;
                return self.hand_over(via, at, own, &mad.emit());
            }
            _ => {}
        }
        let mut args = Args::parse(rest)?;
        let error = args.text("error");
        let private = args.text("private").unwrap_or_default().as_bytes();
        let result = match first {
            "connect" => {
                let name = args.text("as").unwrap_or("c");
                let bare = args.text("header") == Some("none");
                let connect = Connect {
                    service: service(args.text("service").unwrap_or("tcp:7471"))?,
                    ip: (!bare).then_some(IpCmHeader {
                        src_port: 40_000,
                        src: IpAddr::from([10, 0, 0, 2]),
                        dst: IpAddr::from([10, 0, 0, 1]),
                    }),
                    path: ReqPath {
                        local_gid: gid("10.0.0.2")?,
                        remote_gid: gid("10.0.0.1")?,
                        hop_limit: 64,
                        ack_timeout: 19,
                        ..ReqPath::default()
                    },
                    path_mtu: PathMtu::M1024,
                    pkey: 0xffff,
                    transport: transport(args.text("transport").unwrap_or("rc"))?,
                    qpn: args.number("qpn", 0x22)? as u32,
                    starting_psn: args.number("psn", 0x2000)? as u32,
                    responder_resources: args.number("resources", 1)? as u8,
                    initiator_depth: args.number("depth", 1)? as u8,
                    flow_control: false,
                    retry_count: 7,
                    rnr_retry_count: 7,
                    srq: false,
                    qkey: 0,
                    private_data: private,
                };
                self.endpoint.connect(now, &connect).map(|conn| {
                    self.names.insert(name.into(), conn.0);
                })
            }
            "resolve" => {
                let name = args.text("as").unwrap_or("c");
                let connect = SidrConnect {
                    service: service("udp:7471")?,
                    ip: Some(IpCmHeader {
                        src_port: 40_000,
                        src: IpAddr::from([10, 0, 0, 2]),
                        dst: IpAddr::from([10, 0, 0, 1]),
                    }),
                    address: Address::new(gid("10.0.0.2")?, gid("10.0.0.1")?),
                    pkey: 0xffff,
                    private_data: private,
                };
                self.endpoint.sidr_connect(now, &connect).map(|sidr| {
                    self.names.insert(name.into(), sidr.0);
                })
            }
            "last_words" => {
                let local_id = match args.text("id") {
                    Some(id) => number(id)? as u32,
                    None => self.id(&mut args)?,
                };
                let last_words = LastWords {
                    local_id,
                    remote_id: args.number("peer", PEER)? as u32,
                    remote_qpn: args.number("qpn", 0x11)? as u32,
                    address: Address::new(gid("10.0.0.2")?, gid("10.0.0.1")?),
                };
                self.endpoint.send_last_words(now, &last_words);
                self.names.insert("c".into(), last_words.local_id);
                Ok(())
            }
            _ => {
                let id = self.id(&mut args)?;
                let conn = ConnId(id);
                match first {
                    "accept" => {
                        let accept = Accept {
                            qpn: args.number("qpn", 0x22)? as u32,
                            starting_psn: args.number("psn", 0x2000)? as u32,
                            responder_resources: args.number("resources", 1)? as u8,
                            initiator_depth: args.number("depth", 1)? as u8,
                            rnr_retry_count: 7,
                            private_data: private,
                            ..Accept::default()
                        };
                        self.endpoint.accept(now, conn, &accept)
                    }
                    "ready" => self.endpoint.ready(now, conn, private),
                    "established" => self.endpoint.established(now, conn),
                    "reject" => {
                        let reason = RejectReason(args.number("reason", 28)? as u16);
                        self.endpoint.reject(now, conn, reason, &[], private)
                    }
                    "disconnect" => self.endpoint.disconnect(now, conn, private),
                    "destroy" => {
                        self.endpoint.destroy(now, conn);
                        Ok(())
                    }
                    "died" => {
                        self.endpoint.peer_died(now, conn);
                        Ok(())
                    }
                    "stopped" => {
                        self.endpoint.peer_stopped(conn);
                        Ok(())
                    }
                    "answer" => {
                        let answer = SidrAnswer {
                            status: SidrStatus(args.number("status", 0)? as u8),
                            qpn: args.number("qpn", 0x22)? as u32,
                            qkey: args.number("qkey", 0x0123_4567)? as u32,
                            info: &[],
                            private_data: private,
                        };
                        self.endpoint.sidr_answer(now, SidrId(id), &answer)
                    }
                    "cancel" => {
                        self.endpoint.sidr_destroy(now, SidrId(id));
                        Ok(())
                    }
                    other => return Err(format!("{other} means nothing")),
                }
            }
        };
        args.end()?;
        let kind = match result {
            Ok(()) => None,
            Err(CmError::State(_)) => Some("state"),
            Err(CmError::Unknown) => Some("unknown"),
            Err(CmError::PrivateData { .. }) => Some("private"),
            Err(_) => Some("other"),
        };
        if kind != error {
            return Err(format!("gave {result:?}"));
        }
        Ok(())
    }

    /// `own`: the peer's process has sent it, for all that the host knows.
    fn hand_over(&mut self, from: &str, to: &str, own: bool, mad: &[u8]) -> Result<(), String> {
        let from = Address::new(gid(to)?, gid(from)?);
        let admission = self.admission;
        let mut admit = |_: &Incoming| admission;
        let is_from = |_| own;
        self.endpoint
            .handle(self.now, &from, &is_from, mad, &mut admit);
        Ok(())
    }

    /// A message of the peer.
    fn message(&self, kind: &str, args: &mut Args<'_>) -> Result<Mad, String> {
        let private = args.text("private");
        let peer = args.number("peer", PEER)? as u32;
        let asked = match kind {
            "REQ" | "SIDR_REQ" | "DREQ" | "DREP" => None,
            _ => args
                .peek("of")
                .map_or(self.names.get("c"), |name| self.names.get(name))
                .and_then(|id| self.transactions.get(id)),
        };
        let tid = args.number("tid", asked.copied().unwrap_or(0x1000))?;
        let message = match kind {
            "REQ" => Message::Req(self.req(args, peer, private)?),
            "SIDR_REQ" => {
                let mut private_data = [0; 216];
                let header = args.text("header");
                self.header(header, args.text("to"), &mut private_data)?;
                let text: [u8; 180] = fill(private);
                private_data[36..].copy_from_slice(&text);
                Message::SidrReq(SidrReq {
                    request_id: peer,
                    pkey: 0xffff,
                    service_id: service(args.text("service").unwrap_or("udp:7471"))?,
                    private_data,
                })
            }
            _ => {
                let id = self.id(args)?;
                match kind {
                    "REP" => Message::Rep(Rep {
                        local_id: peer,
                        remote_id: id,
                        qkey: 0,
                        qpn: args.number("qpn", 0x11)? as u32,
                        local_eecn: args.number("eecn", 0)? as u32,
                        vendor_id: 0,
                        starting_psn: args.number("psn", 0x1000)? as u32,
                        responder_resources: args.number("resources", 1)? as u8,
                        initiator_depth: args.number("depth", 1)? as u8,
                        target_ack_delay: 15,
                        failover: 0,
                        flow_control: false,
                        rnr_retry_count: 7,
                        srq: false,
                        ca_guid: args.number("guid", 0xa)?,
                        private_data: fill(private),
                    }),
                    "RTU" => Message::Rtu(Rtu {
                        local_id: peer,
                        remote_id: id,
                        private_data: fill(private),
                    }),
                    "MRA" => Message::Mra(Mra {
                        local_id: peer,
                        remote_id: id,
                        message: about(args.text("about").ok_or("about=")?)?,
                        service_timeout: args.number("timeout", 24)? as u8,
                        private_data: fill(private),
                    }),
                    "REJ" => {
                        let guid = args.number("guid", 0)?;
                        let mut additional_info = [0; 72];
                        additional_info[..8].copy_from_slice(&guid.to_be_bytes());
                        Message::Rej(Rej {
                            local_id: peer,
                            remote_id: id,
                            message: about(args.text("about").unwrap_or("req"))?,
                            info_len: if guid == 0 { 0 } else { 8 },
                            reason: RejectReason(args.number("reason", 28)? as u16),
                            additional_info,
                            private_data: fill(private),
                        })
                    }
                    "DREQ" => Message::Dreq(Dreq {
                        local_id: peer,
                        remote_id: id,
                        remote_qpn: args.number("qpn", 0x22)? as u32,
                        private_data: fill(private),
                    }),
                    "DREP" => Message::Drep(Drep {
                        local_id: peer,
                        remote_id: id,
                        private_data: fill(private),
                    }),
                    "SIDR_REP" => Message::SidrRep(SidrRep {
                        request_id: id,
                        status: SidrStatus(args.number("status", 0)? as u8),
                        info_len: 0,
                        qpn: args.number("qpn", 0x11)? as u32,
                        service_id: service("udp:7471")?,
                        qkey: args.number("qkey", 0x0123_4567)? as u32,
                        additional_info: [0; 72],
                        private_data: fill(private),
                    }),
                    other => return Err(format!("{other} is no message")),
                }
            }
        };
        Ok(Mad {
            tid,
            attr_modifier: args.number("ece", 0)? as u32,
            message,
        })
    }

    fn header(&self, wrong: Option<&str>, to: Option<&str>, out: &mut [u8]) -> Result<(), String> {
        let to = to.unwrap_or("10.0.0.2");
        let header = IpCmHeader {
            src_port: 50_000,
            src: IpAddr::from([10, 0, 0, 1]),
            dst: to.parse().map_err(|_| "no address")?,
        };
        header.emit(out);
        match wrong {
            None => {}
            Some("none") => out[..36].fill(0),
            Some("version") => out[0] = 0x10,
            Some("family") => out[1] = 0x60,
            Some("dst") => out[35] = 9,
            Some(other) => return Err(format!("header={other}")),
        }
        Ok(())
    }

    fn req(&self, args: &mut Args<'_>, peer: u32, private: Option<&str>) -> Result<Req, String> {
        let to = args.text("to");
        let mut private_data = [0; 92];
        self.header(args.text("header"), None, &mut private_data)?;
        let text: [u8; 56] = fill(private);
        private_data[36..].copy_from_slice(&text);
        Ok(Req {
            local_id: peer,
            vendor_id: 0,
            service_id: service(args.text("service").unwrap_or("tcp:7471"))?,
            ca_guid: args.number("guid", 0xa)?,
            qkey: 0,
            qpn: args.number("qpn", 0x11)? as u32,
            responder_resources: args.number("resources", 1)? as u8,
            local_eecn: 0,
            initiator_depth: args.number("depth", 1)? as u8,
            remote_eecn: 0,
            remote_response_timeout: 20,
            transport: transport(args.text("transport").unwrap_or("rc"))?,
            flow_control: true,
            starting_psn: args.number("psn", 0x1000)? as u32,
            local_response_timeout: args.number("timeout", 20)? as u8,
            retry_count: 7,
            pkey: 0xffff,
            path_mtu: 3,
            rdc_exists: false,
            rnr_retry_count: 7,
            max_cm_retries: args.number("retries", 15)? as u8,
            srq: false,
            primary: ReqPath {
                local_lid: 0xffff,
                remote_lid: 0xffff,
                local_gid: gid(args.text("from").unwrap_or("10.0.0.1"))?,
                remote_gid: gid(to.unwrap_or("10.0.0.2"))?,
                hop_limit: 64,
                ack_timeout: args.number("ack", 19)? as u8,
                ..ReqPath::default()
            },
            alternate: ReqPath::default(),
            private_data,
        })
    }

    fn expect(&mut self, first: &str, rest: &[&str]) -> Result<(), String> {
        match (first, rest) {
            (">", [kind, words @ ..]) => {
                let packet = self.sent.pop_front().ok_or("nothing was sent")?;
                let mad = Mad::parse(&packet.mad).map_err(|e| e.to_string())?;
                let mut args = Args::parse(words)?;
                self.expect_message(kind, &mut args, &packet, &mad)
                    .and_then(|()| args.end())
                    .map_err(|error| format!("{error}; was sent: {mad:?}"))
            }
            ("event", [kind, words @ ..]) => {
                let event = self.events.pop_front().ok_or("nothing happened")?;
                let mut args = Args::parse(words)?;
                self.expect_event(kind, &mut args, &event)
                    .and_then(|()| args.end())
                    .map_err(|error| format!("{error}; happened: {event:?}"))
            }
            ("state", [state, words @ ..]) => {
                let id = self.id(&mut Args::parse(words)?)?;
                let is = self.endpoint.state(ConnId(id));
                let name = match is {
                    None => "none",
                    Some(State::ReqSent) => "req_sent",
                    Some(State::RepReceived) => "rep_received",
                    Some(State::ReqReceived) => "req_received",
                    Some(State::RepSent) => "rep_sent",
                    Some(State::Established) => "established",
                    Some(State::DreqSent) => "dreq_sent",
                    Some(State::DreqReceived) => "dreq_received",
                    Some(State::TimeWait) => "time_wait",
                    Some(State::Refused) => "refused",
                };
                same("state", name, *state)
            }
            ("timer", ["none"]) => same("timer", self.endpoint.poll_timeout(), None),
            ("timer", [ns]) => {
                let at = Some(self.now.after(time(ns)?));
                same("timer", self.endpoint.poll_timeout(), at)
            }
            ("connections", [n]) => {
                let is = self.endpoint.connections() as u64;
                same("connections", is, number(n)?)
            }
            ("resolutions", [n]) => {
                let is = self.endpoint.resolutions() as u64;
                same("resolutions", is, number(n)?)
            }
            ("counter", [pair]) => {
                let (name, n) = pair.split_once('=').ok_or("NAME=N")?;
                let c = self.endpoint.counters();
                let is = match name {
                    "malformed" => c.malformed,
                    "duplicates" => c.duplicates,
                    "unexpected" => c.unexpected,
                    "retransmits" => c.retransmits,
                    "refused" => c.refused,
                    "dropped" => c.dropped,
                    "replies_dropped" => c.replies_dropped,
                    "stale" => c.stale,
                    "time_wait_overflow" => c.time_wait_overflow,
                    other => return Err(format!("no counter {other}")),
                };
                same(name, is, number(n)?)
            }
            ("last_words", [word]) => {
                let last_words = self
                    .endpoint
                    .last_words(ConnId(self.id(&mut Args::parse(&[])?)?));
                same("last_words", last_words.is_some(), *word == "yes")
            }
            _ => Err("means nothing".into()),
        }
    }

    fn expect_message(
        &mut self,
        kind: &str,
        args: &mut Args<'_>,
        packet: &Transmit,
        mad: &Mad,
    ) -> Result<(), String> {
        same("message", mad.message.attribute().name(), kind)?;
        let id = self.id(args)?;
        let peer = args.number("peer", PEER)? as u32;
        if let Some(tid) = args.text("tid") {
            same("tid", mad.tid, number(tid)?)?;
        }
        let to = gid(args.text("to").unwrap_or("10.0.0.1"))?;
        same("destination", packet.address.remote_gid, to)?;
        same("ECE", mad.attr_modifier, 0)?;
        let private = args.text("private");
        let ids = |local_id, remote_id| {
            same("our id", local_id, id)?;
            same("the peer's id", remote_id, peer)
        };
        let mut numbers: Vec<(&str, u64)> = Vec::new();
        let said: &[u8] = match &mad.message {
            Message::Req(m) => {
                same("our id", m.local_id, id)?;
                same("GUID", m.ca_guid, 0xb)?;
                if let Some(expected) = args.text("transport") {
                    same("transport", m.transport, transport(expected)?)?;
                }
                if let Some(expected) = args.text("service") {
                    same("service", m.service_id, service(expected)?)?;
                }
                numbers.extend([
                    ("qpn", m.qpn.into()),
                    ("psn", m.starting_psn.into()),
                    ("resources", m.responder_resources.into()),
                    ("depth", m.initiator_depth.into()),
                    ("retries", m.max_cm_retries.into()),
                    ("timeout", m.local_response_timeout.into()),
                    ("ack", m.primary.ack_timeout.into()),
                ]);
                let header = IpCmHeader::parse(&m.private_data);
                let is_port = m.service_id.port().is_some();
                if is_port && header.map(|h| h.dst) != Ok(IpAddr::from([10, 0, 0, 1])) {
                    return Err("bad header".into());
                }
                &m.private_data[if is_port { 36 } else { 0 }..]
            }
            Message::Rep(m) => {
                ids(m.local_id, m.remote_id)?;
                same("GUID", m.ca_guid, 0xb)?;
                numbers.extend([
                    ("qpn", m.qpn.into()),
                    ("eecn", m.local_eecn.into()),
                    ("srq", m.srq.into()),
                    ("psn", m.starting_psn.into()),
                    ("resources", m.responder_resources.into()),
                    ("depth", m.initiator_depth.into()),
                ]);
                &m.private_data
            }
            Message::Rtu(m) => {
                ids(m.local_id, m.remote_id)?;
                &m.private_data
            }
            Message::Mra(m) => {
                ids(m.local_id, m.remote_id)?;
                same(
                    "about",
                    m.message,
                    about(args.text("about").ok_or("about=")?)?,
                )?;
                numbers.push(("timeout", m.service_timeout.into()));
                &m.private_data
            }
            Message::Rej(m) => {
                ids(m.local_id, m.remote_id)?;
                same(
                    "about",
                    m.message,
                    about(args.text("about").ok_or("about=")?)?,
                )?;
                same("reason", u64::from(m.reason.0), args.number("reason", 0)?)?;
                if let Some(guid) = args.text("guid") {
                    let info = number(guid)?.to_be_bytes();
                    same("additional information", m.info(), &info[..])?;
                }
                &m.private_data
            }
            Message::Dreq(m) => {
                ids(m.local_id, m.remote_id)?;
                same("qpn", u64::from(m.remote_qpn), args.number("qpn", 0x11)?)?;
                &m.private_data
            }
            Message::Drep(m) => {
                ids(m.local_id, m.remote_id)?;
                &m.private_data
            }
            Message::SidrReq(m) => {
                same("our id", m.request_id, id)?;
                &m.private_data[36..]
            }
            Message::SidrRep(m) => {
                same("the peer's id", m.request_id, peer)?;
                numbers.extend([
                    ("status", m.status.0.into()),
                    ("qpn", m.qpn.into()),
                    ("qkey", m.qkey.into()),
                ]);
                &m.private_data
            }
        };
        for (key, is) in numbers {
            same(key, is, args.number(key, is)?)?;
        }
        private_is(said, private)
    }

    fn expect_event(
        &mut self,
        kind: &str,
        args: &mut Args<'_>,
        event: &Event,
    ) -> Result<(), String> {
        let private = args.text("private");
        let name = args.text("as").unwrap_or("c").to_owned();
        match event {
            Event::Request {
                conn,
                listener,
                request,
            } => {
                same("event", "request", kind)?;
                self.names.insert(name, conn.0);
                same("listener", *listener, args.number("listener", 0)?)?;
                let is = request.responder_resources().into();
                same("resources", is, args.number("resources", is)?)?;
                let is = request.initiator_depth().into();
                same("depth", is, args.number("depth", is)?)?;
                if let Some(expected) = args.text("service") {
                    same("service", request.req.service_id, service(expected)?)?;
                }
                return private_is(request.private_data(), private);
            }
            Event::SidrRequest {
                sidr,
                listener,
                request,
            } => {
                same("event", "sidr_request", kind)?;
                self.names.insert(name, sidr.0);
                same("listener", *listener, args.number("listener", 0)?)?;
                return private_is(request.private_data(), private);
            }
            _ => {}
        }
        let id = self.id(args)?;
        let is = event.conn().map(|c| c.0).or(event.sidr().map(|s| s.0));
        same("of", is, Some(id))?;
        match event {
            Event::Response { reply, .. } => {
                same("event", "response", kind)?;
                let is = reply.responder_resources().into();
                same("resources", is, args.number("resources", is)?)?;
                let is = reply.initiator_depth().into();
                same("depth", is, args.number("depth", is)?)?;
                let is = reply.qpn.into();
                same("qpn", is, args.number("qpn", is)?)?;
                private_is(&reply.rep.private_data, private)
            }
            Event::Established { private_data, .. } => {
                same("event", "established", kind)?;
                let by = match private_data {
                    Some(said) => {
                        private_is(&said[..], private)?;
                        "rtu"
                    }
                    None => "data",
                };
                same("by", by, args.text("by").unwrap_or("rtu"))
            }
            Event::Rejected { rejection, .. } => {
                same("event", "rejected", kind)?;
                let reason = rejection.reason.0.into();
                same("reason", reason, args.number("reason", 0)?)?;
                private_is(&rejection.private_data, private)
            }
            Event::Unreachable { .. } => same("event", "unreachable", kind),
            Event::Disconnected { how, .. } => {
                same("event", "disconnected", kind)?;
                let is = match how {
                    Ended::Requested(said) => {
                        private_is(&said[..], private)?;
                        "requested"
                    }
                    Ended::Confirmed(said) => {
                        private_is(&said[..], private)?;
                        "confirmed"
                    }
                    Ended::Unanswered => "unanswered",
                    Ended::Rejected(_) => "rejected",
                    Ended::Stale => "stale",
                    Ended::PeerDied => "died",
                    Ended::PeerStopped => "stopped",
                };
                same("how", is, args.text("how").ok_or("how=")?)
            }
            Event::TimeWaitExit { .. } => same("event", "timewait_exit", kind),
            Event::SidrResponse { reply, .. } => {
                same("event", "sidr_response", kind)?;
                let is = reply.rep.status.0.into();
                same("status", is, args.number("status", 0)?)?;
                let is = reply.rep.qpn.into();
                same("qpn", is, args.number("qpn", is)?)?;
                let is = reply.rep.qkey.into();
                same("qkey", is, args.number("qkey", is)?)?;
                private_is(&reply.rep.private_data, private)
            }
            Event::SidrUnreachable { .. } => same("event", "sidr_unreachable", kind),
            Event::Request { .. } | Event::SidrRequest { .. } => Ok(()),
        }
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: T, expected: T) -> Result<(), String> {
    if is == expected {
        Ok(())
    } else {
        Err(format!("{what} is {is:?}, not {expected:?}"))
    }
}

fn private_is(said: &[u8], expected: Option<&str>) -> Result<(), String> {
    let expected = expected.unwrap_or_default().as_bytes();
    let rest = said.strip_prefix(expected);
    if rest.is_some_and(|rest| rest.iter().all(|byte| *byte == 0)) {
        Ok(())
    } else {
        Err(format!("private data {}", said.escape_ascii()))
    }
}
