//! Each side of conversations between two Linux kernels (crates/wire/tests/captures), with this
//! crate in its place: the same messages, byte for byte but for ids and transactions, at about the
//! same times.

use rnic_cm::{
    Accept, Address, Admission, Config, ConnId, Connect, Endpoint, Event, SidrAnswer, SidrConnect,
    SidrId, Time,
};
use rnic_wire::cm::{Attribute, IpCmHeader, MAD_LEN, Mad, Message};
use rnic_wire::ip::IpUdp;
use rnic_wire::{Gid, Packet, PathMtu};
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

/// Time since the first message, source address, message.
type Said = (Time, IpAddr, Mad);

fn conversation(capture: &str) -> Vec<Said> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/captures");
    let bytes = fs::read(folder.join(format!("{capture}.pcap"))).unwrap();
    let word = |at: usize| u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()));
    let mut said: Vec<Said> = Vec::new();
    let mut at = 24;
    let mut begin = None;
    while at < bytes.len() {
        let time = word(at) * 1_000_000_000 + word(at + 4) * 1_000;
        let len = word(at + 8) as usize;
        let (meta, datagram) = IpUdp::parse(&bytes[at + 16 + 14..at + 16 + len]).unwrap();
        at += 16 + len;
        let packet = Packet::parse(&datagram[..datagram.len() - 4]).unwrap();
        if packet.bth.dest_qp == 1 {
            let begin = *begin.get_or_insert(time);
            let mad = Mad::parse(packet.payload.here()).unwrap();
            said.push((Time(time - begin), meta.flow.src, mad));
        }
    }
    said
}

/// What is compared: all but transaction and our own id.
fn comparable(mad: &Mad) -> [u8; MAD_LEN] {
    let mut bytes = mad.emit();
    bytes[8..16].fill(0);
    if mad.message.attribute() != Attribute::SidrRep {
        bytes[24..28].fill(0);
    }
    bytes
}

/// Names us as the receiver of a message of the other side; `ours`: if it answers a request, our
/// transaction of it.
fn to_us(mad: &Mad, id: u32, ours: Option<u64>) -> [u8; MAD_LEN] {
    let mut bytes = mad.emit();
    if let Some(tid) = ours {
        bytes[8..16].copy_from_slice(&tid.to_be_bytes());
    }
    match mad.message.attribute() {
        Attribute::Req | Attribute::SidrReq => {}
        Attribute::SidrRep => bytes[24..28].copy_from_slice(&id.to_be_bytes()),
        _ => bytes[28..32].copy_from_slice(&id.to_be_bytes()),
    }
    bytes
}

struct Stand {
    endpoint: Endpoint,
    us: IpAddr,
    peer: IpAddr,
    listens: bool,
    /// Our connection or resolution.
    id: u32,
    /// Our transaction by Linux's, of each request.
    transactions: BTreeMap<u64, u64>,
    said: Vec<(Time, Mad)>,
    events: Vec<Event>,
}

impl Stand {
    fn drain(&mut self, now: Time) {
        while let Some(packet) = self.endpoint.poll_transmit() {
            assert_eq!(packet.address.local_gid, Gid::from(self.us));
            assert_eq!(packet.address.remote_gid, Gid::from(self.peer));
            self.said.push((now, Mad::parse(&packet.mad).unwrap()));
        }
        while let Some(event) = self.endpoint.poll_event() {
            match &event {
                Event::Request { conn, .. } => self.id = conn.0,
                Event::SidrRequest { sidr, .. } => self.id = sidr.0,
                _ => {}
            }
            self.events.push(event);
        }
    }

    fn advance(&mut self, to: Time) {
        while let Some(at) = self.endpoint.poll_timeout().filter(|at| *at <= to) {
            self.endpoint.handle_timeout(at);
            self.drain(at);
        }
    }

    /// The other side speaks.
    fn hear(&mut self, now: Time, mad: &Mad) {
        let from = Address::new(Gid::from(self.us), Gid::from(self.peer));
        let admission = match self.listens {
            true => Admission::Admit(0),
            false => Admission::NobodyListens,
        };
        let ours = self.transactions.get(&mad.tid).copied();
        let bytes = to_us(mad, self.id, ours);
        self.endpoint
            .handle(now, &from, &|_| true, &bytes, &mut |_| admission);
        self.drain(now);
    }

    /// The application does what made Linux say this, if an application was needed.
    fn act(&mut self, now: Time, message: &Message) {
        let conn = ConnId(self.id);
        let endpoint = &mut self.endpoint;
        match message {
            Message::Req(req) => {
                let connect = Connect {
                    service: req.service_id,
                    ip: Some(IpCmHeader::parse(&req.private_data).unwrap()),
                    path: req.primary,
                    path_mtu: PathMtu::from_ibv(req.path_mtu.into()).unwrap(),
                    pkey: req.pkey,
                    transport: req.transport,
                    qpn: req.qpn,
                    starting_psn: req.starting_psn,
                    responder_resources: req.responder_resources,
                    initiator_depth: req.initiator_depth,
                    flow_control: req.flow_control,
                    retry_count: req.retry_count,
                    rnr_retry_count: req.rnr_retry_count,
                    srq: req.srq,
                    qkey: req.qkey,
                    private_data: &req.private_data[IpCmHeader::LEN..],
                };
                self.id = endpoint.connect(now, &connect).unwrap().0;
            }
            Message::Rep(rep) => {
                let accept = Accept {
                    qpn: rep.qpn,
                    starting_psn: rep.starting_psn,
                    responder_resources: rep.responder_resources,
                    initiator_depth: rep.initiator_depth,
                    flow_control: rep.flow_control,
                    rnr_retry_count: rep.rnr_retry_count,
                    srq: rep.srq,
                    qkey: rep.qkey,
                    private_data: &rep.private_data,
                };
                endpoint.accept(now, conn, &accept).unwrap();
            }
            Message::Rtu(rtu) => endpoint.ready(now, conn, &rtu.private_data).unwrap(),
            Message::Rej(rej) if self.listens => {
                let (info, private) = (rej.info(), &rej.private_data);
                endpoint
                    .reject(now, conn, rej.reason, info, private)
                    .unwrap();
            }
            Message::Dreq(dreq) => {
                let private = &dreq.private_data;
                endpoint.disconnect(now, conn, private).unwrap();
            }
            Message::Drep(drep) => {
                let private = &drep.private_data[..220];
                endpoint.disconnect(now, conn, private).unwrap();
            }
            Message::SidrReq(req) => {
                let connect = SidrConnect {
                    service: req.service_id,
                    ip: Some(IpCmHeader::parse(&req.private_data).unwrap()),
                    address: Address::new(Gid::from(self.us), Gid::from(self.peer)),
                    pkey: req.pkey,
                    private_data: &req.private_data[IpCmHeader::LEN..],
                };
                self.id = endpoint.sidr_connect(now, &connect).unwrap().0;
            }
            Message::SidrRep(rep) if self.listens => {
                let answer = SidrAnswer {
                    status: rep.status,
                    qpn: rep.qpn,
                    qkey: rep.qkey,
                    info: &[],
                    private_data: &rep.private_data,
                };
                endpoint.sidr_answer(now, SidrId(self.id), &answer).unwrap();
            }
            Message::Mra(_) | Message::Rej(_) | Message::SidrRep(_) => {}
        }
        self.drain(now);
    }
}

/// Plays one side of a capture. `lost`: the first message of this kind was dropped on its way.
fn replay(capture: &str, active: bool, lost: Option<Attribute>) -> Stand {
    let conversation = conversation(capture);
    let a = conversation[0].1;
    let b: IpAddr = match a {
        IpAddr::V4(_) => IpAddr::from([10, 0, 0, 2]),
        IpAddr::V6(_) => "fd00::2".parse().unwrap(),
    };
    let (us, peer) = if active { (a, b) } else { (b, a) };
    let guid = conversation
        .iter()
        .find_map(|(_, src, mad)| match mad.message {
            Message::Req(req) if *src == us => Some(req.ca_guid),
            Message::Rep(rep) if *src == us => Some(rep.ca_guid),
            _ => None,
        });
    let mut endpoint = Endpoint::new(Config {
        guid: guid.unwrap_or_default(),
        range: 5,
        ..Config::default()
    });
    endpoint.set_gids(&[Gid::from(us)]);
    let mut stand = Stand {
        endpoint,
        us,
        peer,
        listens: !capture.contains("nolisten"),
        id: 0,
        transactions: BTreeMap::new(),
        said: Vec::new(),
        events: Vec::new(),
    };
    let mut lost = lost;
    let mut seen = Vec::new();
    for (now, src, mad) in &conversation {
        let kind = mad.message.attribute();
        stand.advance(*now);
        if *src == us {
            // What is said again is said again without being asked.
            if !seen.contains(&kind) {
                seen.push(kind);
                stand.act(*now, &mad.message);
                if matches!(kind, Attribute::Req | Attribute::SidrReq) {
                    let ours = stand.said.last().expect("our request").1.tid;
                    stand.transactions.insert(mad.tid, ours);
                }
            }
        } else if lost == Some(kind) {
            lost = None;
        } else {
            stand.hear(*now, mad);
        }
    }

    let expected: Vec<&Said> = conversation
        .iter()
        .filter(|(_, src, _)| *src == us)
        .collect();
    // Where Linux forgets a DREQ with the id of its application, this crate repeats it.
    let mut dreqs = expected.iter().filter(|(.., mad)| is_dreq(mad)).count();
    stand.said.retain(|(_, mad)| {
        !is_dreq(mad) || {
            dreqs = dreqs.wrapping_sub(1);
            dreqs < usize::MAX / 2
        }
    });
    let kinds = |said: &mut dyn Iterator<Item = &Mad>| -> Vec<&'static str> {
        said.map(|mad| mad.message.attribute().name()).collect()
    };
    assert_eq!(
        kinds(&mut stand.said.iter().map(|(_, mad)| mad)),
        kinds(&mut expected.iter().map(|(.., mad)| mad)),
        "{capture}"
    );
    for ((at, said), (time, _, linux)) in stand.said.iter().zip(expected) {
        assert_eq!(
            comparable(said),
            comparable(linux),
            "{capture} at {at:?}: {said:?}"
        );
        // Linux's timers are late by up to 4%.
        let late = time.0.abs_diff(at.0);
        assert!(
            late <= time.0 / 20 + 100_000_000,
            "{capture}: {said:?} at {at:?}, in Linux at {time:?}"
        );
    }
    stand
}

fn is_dreq(mad: &Mad) -> bool {
    mad.message.attribute() == Attribute::Dreq
}

fn both_sides(
    capture: &str,
    lost_by_passive: Option<Attribute>,
    lost_by_active: Option<Attribute>,
) {
    replay(capture, true, lost_by_active);
    replay(capture, false, lost_by_passive);
}

#[test]
fn conversations_without_loss() {
    for capture in [
        "cm_rping_v4",
        "cm_rping_v6",
        "cm_ucmatose_v4",
        "cm_ucmatose_v6",
        "cm_private_v4",
    ] {
        both_sides(capture, None, None);
    }
}

#[test]
fn refusals() {
    for capture in ["cm_reject_v4", "cm_rej_nolisten_v4", "cm_rej_nolisten_v6"] {
        both_sides(capture, None, None);
    }
}

#[test]
fn service_id_resolution() {
    for capture in ["cm_udaddy_v4", "cm_udaddy_v6", "cm_sidr_nolisten_v4"] {
        both_sides(capture, None, None);
    }
}

#[test]
fn a_slow_application() {
    both_sides("cm_slow_accept_v4", None, None);
}

#[test]
fn lost_req() {
    both_sides("cm_lost_req_v4", Some(Attribute::Req), None);
}

#[test]
fn lost_rep() {
    both_sides("cm_lost_rep_v4", None, Some(Attribute::Rep));
}

#[test]
fn lost_rtu() {
    both_sides("cm_lost_rtu_v4", Some(Attribute::Rtu), None);
}

#[test]
fn lost_dreq() {
    both_sides("cm_lost_dreq_v4", Some(Attribute::Dreq), None);
}

#[test]
fn lost_drep() {
    both_sides("cm_lost_drep_v4", None, Some(Attribute::Drep));
}

#[test]
fn no_answer_at_all() {
    let mut stand = replay("cm_req_retries_v4", true, None);
    assert!(stand.events.is_empty());
    stand.advance(Time(102_000_000_000));
    assert!(matches!(stand.events[..], [Event::Unreachable { .. }]));
    assert_eq!(stand.endpoint.connections(), 0);
}
