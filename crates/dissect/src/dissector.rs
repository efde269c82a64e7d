//! From packets to conversations: who talks with whom, and which send queue a packet is about.

mod copies;
mod elsewhere;
mod pairing;

use std::collections::HashMap;
use std::net::IpAddr;

use rnic_wire::cm::Mad;
use rnic_wire::{Opcode, Operation, Service};

use crate::bad::Bad;
use crate::capture::Frame;
use crate::closing::Agreed;
use crate::connection::{Connection, Connections, News};
use crate::end::{End, other};
use crate::finding::What;
use crate::frame::{self, Outer};
use crate::live::Live;
use crate::model::{Capture, Endpoint, Mark, MtuSource, Pairing, Place};
use crate::notes::Notes;
use crate::packet::{self, Icrc, Packet};
use copies::Copies;
use pairing::{FlowKey, flow_key};

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Messages per send queue.
    pub messages: usize,
    /// Conversations, and as many connections; packets of further ones have no place.
    pub conversations: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            messages: 100_000,
            conversations: 100_000,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct DatagramKey {
    low: (IpAddr, u32),
    high: (IpAddr, u32),
}

/// Fed with frames, in the order of the file; gives each packet's place, and at the end all there
/// is to know.
pub struct Dissector {
    limits: Limits,
    capture: Capture,
    notes: Notes,
    pub(crate) flows: HashMap<FlowKey, (usize, End)>,
    datagrams: HashMap<DatagramKey, (usize, (IpAddr, u32))>,
    /// Conversations of one direction, by the addresses of their requests.
    pub(crate) unpaired: HashMap<(IpAddr, IpAddr), Vec<usize>>,
    pub(crate) live: Vec<Live>,
    connections: Connections,
    copies: Copies,
    icrc_seen: u64,
    bad: Bad,
}

/// The end of it: the capture, and where the places that were given out lie in it.
pub struct Finished {
    /// All that is known.
    pub capture: Capture,
    map: Vec<(usize, bool)>,
}

impl Finished {
    /// A place that was given out while the dissector ran, in terms of the finished capture.
    pub fn resolve(&self, place: Place) -> Option<Place> {
        let &(conversation, flip) = self.map.get(place.conversation)?;
        let turn = |end: End| if flip { other(end) } else { end };
        Some(Place {
            conversation,
            from: turn(place.from),
            message: place.message.map(|(end, id)| (turn(end), id)),
            mark: place.mark,
        })
    }
}

impl Dissector {
    /// Before the first frame.
    pub fn new(limits: Limits) -> Dissector {
        Dissector {
            limits,
            capture: Capture::default(),
            notes: Notes::default(),
            flows: HashMap::new(),
            datagrams: HashMap::new(),
            unpaired: HashMap::new(),
            live: Vec::new(),
            connections: Connections::default(),
            copies: Copies::default(),
            icrc_seen: 0,
            bad: Bad::default(),
        }
    }

    /// The next frame. `each` is called with every packet in it: none, one, or several if the
    /// kernel had yet to cut them.
    pub fn frame(&mut self, frame: &Frame<'_>, mut each: impl FnMut(&Packet, Option<Place>)) {
        if self.capture.frames == 0 {
            self.capture.time.0 = frame.time_ns;
        }
        self.capture.frames += 1;
        self.capture.time.0 = self.capture.time.0.min(frame.time_ns);
        self.capture.time.1 = self.capture.time.1.max(frame.time_ns);
        let (outer, bytes) = match frame::open(frame.link_type, frame.bytes) {
            Ok(found) => found,
            Err(skip) => {
                let frames = &mut self.capture.skipped.frames;
                match frames.iter_mut().find(|(known, _)| *known == skip) {
                    Some((_, count)) => *count += 1,
                    None => frames.push((skip, 1)),
                }
                return;
            }
        };
        if self.copies.is_one(frame, &outer, bytes) {
            self.capture.skipped.copies += 1;
            return;
        }
        self.datagram(frame, &outer, bytes, &mut each);
    }

    fn datagram(
        &mut self,
        frame: &Frame<'_>,
        outer: &Outer,
        bytes: &[u8],
        each: &mut impl FnMut(&Packet, Option<Place>),
    ) {
        let first = packet::read(frame.number, frame.time_ns, outer, bytes);
        let whole = !matches!(&first, Ok((packet, _)) if packet.icrc == Icrc::Right || packet.cut);
        if whole && let Some(len) = packet::segment_len(outer, bytes) {
            self.capture.uncut += 1;
            for (k, segment) in bytes.chunks(len).enumerate() {
                let mut outer = *outer;
                outer.udp_payload = segment.len() as u32;
                // Numbered by whoever cuts them, from the identification of the whole or from 0.
                let numbered = outer.ip_id.wrapping_add(k as u16);
                let ids = [numbered, k as u16, outer.ip_id];
                let best = ids.into_iter().find(|&id| {
                    let outer = Outer { ip_id: id, ..outer };
                    let read = packet::read(frame.number, frame.time_ns, &outer, segment);
                    matches!(read, Ok((packet, _)) if packet.icrc == Icrc::Right)
                });
                outer.ip_id = best.unwrap_or(numbered);
                let read = packet::read(frame.number, frame.time_ns, &outer, segment);
                self.maybe_packet(frame.number, read, each);
            }
            return;
        }
        self.maybe_packet(frame.number, first, each);
    }

    fn maybe_packet(
        &mut self,
        number: u64,
        read: Result<(Packet, &[u8]), packet::NoPacket>,
        each: &mut impl FnMut(&Packet, Option<Place>),
    ) {
        match read {
            Ok((packet, payload)) => {
                self.capture.packets += 1;
                self.capture.cut += u64::from(packet.cut);
                let place = self.packet(&packet, payload);
                each(&packet, place);
            }
            Err(why) => {
                let packets = &mut self.capture.skipped.packets;
                match packets.iter_mut().find(|(known, ..)| *known == why) {
                    Some((_, count, _)) => *count += 1,
                    None => packets.push((why, 1, number)),
                }
            }
        }
    }

    fn packet(&mut self, p: &Packet, payload: &[u8]) -> Option<Place> {
        match p.icrc {
            Icrc::Right => {}
            Icrc::Unchecked => self.capture.icrc_unchecked += 1,
            icrc => self.bad_icrc(p, icrc),
        }
        if matches!(p.icrc, Icrc::Wrong { .. }) {
            // A receiver drops it, so it is no part of any conversation.
            self.bad.push(p);
            return None;
        }
        let service = p.bth.opcode.service();
        if p.bth.opcode == Opcode::CNP {
            return self.cnp(p);
        }
        let op = p.bth.opcode.operation()?;
        let index = match service {
            Service::Rc | Service::Uc | Service::Xrc => return self.connected(p, op, service),
            Service::Ud if p.bth.dest_qp == 1 => return self.cm(p, payload),
            Service::Ud => self.datagrams_of(p)?,
            _ => return None,
        };
        let from = {
            let live = &self.live[index.0];
            let key = (p.outer.flow.src, p.ext.deth.map_or(0, |deth| deth.src_qp));
            End::from((live.ends[0].addr, live.ends[0].qpn.unwrap_or(0)) != key)
        };
        let live = &mut self.live[index.0];
        live.seen(p, from);
        live.look_at_datagram(p, from);
        let (id, mark) = live.trackers[from].datagram(p, op, &mut live.notes);
        Some(Place {
            conversation: index.0,
            from,
            message: id.map(|id| (from, id)),
            mark,
        })
    }

    fn bad_icrc(&mut self, p: &Packet, icrc: Icrc) {
        let wrong = matches!(icrc, Icrc::Wrong { .. });
        match wrong {
            true => self.capture.icrc_wrong += 1,
            false => self.capture.icrc_other += 1,
        }
        self.icrc_seen += 1;
        let make = || crate::finding::Finding {
            side: 0,
            time: p.time_ns,
            packets: vec![p.number],
            bad: Vec::new(),
            what: What::Icrc(icrc),
        };
        let same = |finding: &mut crate::finding::Finding| match finding.what {
            What::Icrc(known) => matches!(known, Icrc::Wrong { .. }) == wrong,
            _ => false,
        };
        self.notes.add(p.number, same, make);
    }

    fn cnp(&mut self, p: &Packet) -> Option<Place> {
        // It goes to whoever sends too fast, as answers do.
        for service in [Service::Rc, Service::Uc, Service::Xrc] {
            if let Some(&(index, from)) = self.flows.get(&flow_key(p, service)) {
                let live = &mut self.live[index];
                live.seen(p, from);
                live.cnps.push(p);
                return Some(Place {
                    conversation: index,
                    from,
                    message: None,
                    mark: Mark::Cnp,
                });
            }
        }
        None
    }

    fn cm(&mut self, p: &Packet, payload: &[u8]) -> Option<Place> {
        let flow = &p.outer.flow;
        let mad = match Mad::parse(payload) {
            Ok(mad) => mad,
            Err(error) => {
                let what = What::NotCm {
                    from: flow.src,
                    why: if p.cut {
                        "it was cut when it was captured".into()
                    } else {
                        error.to_string()
                    },
                };
                self.notes.at(0, p.time_ns, &[p.number], what);
                return None;
            }
        };
        let most = self.limits.conversations;
        let (connection, from, news) = self
            .connections
            .message(most, flow.src, flow.dst, p.time_ns, p.number, &mad)?;
        if let News::Pair(index) = news {
            self.connect(index, p);
        }
        let conversation = self.connections.all[connection].conversation?;
        let live = &mut self.live[conversation];
        if mad.message.attribute() == rnic_wire::cm::Attribute::Rtu {
            live.connecting = false;
        }
        live.last(p);
        Some(Place {
            conversation,
            from,
            message: None,
            mark: Mark::Cm(mad.message.attribute().name()),
        })
    }

    /// REQ and REP are there: both queue pairs are known before they talk.
    fn connect(&mut self, index: usize, p: &Packet) {
        let connection = &self.connections.all[index];
        let (Some(req), Some(rep)) = (&connection.req, &connection.rep) else {
            return;
        };
        let service = match req.transport {
            rnic_wire::cm::Transport::Uc => Service::Uc,
            rnic_wire::cm::Transport::Xrc => Service::Xrc,
            _ => Service::Rc,
        };
        let qpns = [req.qpn, rep.qpn_of(req.transport)];
        let addrs = connection.addrs;
        let mtu = rnic_wire::PathMtu::from_ibv(u32::from(req.path_mtu))
            .map(|mtu| (mtu.bytes() as u32, MtuSource::Request));
        if self.live.len() >= self.limits.conversations {
            return;
        }
        let conversation = self.live.len();
        let ends = [0, 1].map(|end| Endpoint {
            addr: addrs[end],
            qpn: Some(qpns[end]),
            src_port: None,
        });
        let mut live = Live::new(service, ends, p, self.limits.messages);
        live.pairing = Pairing::Connection { index };
        live.mtu = mtu;
        live.agreed_mtu = mtu.map(|(mtu, _)| mtu);
        live.connecting = true;
        if let Some(step) = connection.steps.first() {
            live.time.0 = step.time;
            live.numbers.0 = step.number;
        }
        self.live.push(live);
        self.connections.all[index].conversation = Some(conversation);
        for from in [0, 1] {
            let key = FlowKey {
                src: addrs[from],
                dst: addrs[other(from)],
                qpn: qpns[other(from)],
                service: service.code(),
            };
            self.flows.insert(key, (conversation, from));
        }
    }

    fn connected(&mut self, p: &Packet, op: Operation, service: Service) -> Option<Place> {
        let key = flow_key(p, service);
        let known = self.flows.get(&key).copied();
        let known = match known {
            Some((index, from)) if op.is_request() => Some((index, from)),
            Some(own) if self.live[own.0].is_paired() => {
                Some(self.pair_anew(p, op, service, key, own))
            }
            // An answer, or the first packet of its flow.
            known if op.is_response() => self.pair(p, op, service, key, known),
            known => known,
        };
        let (index, from) = match known {
            Some(known) => known,
            None => {
                if self.live.len() >= self.limits.conversations {
                    return None;
                }
                let flow = &p.outer.flow;
                let ends =
                    [(flow.src, None), (flow.dst, Some(p.bth.dest_qp))].map(|(addr, qpn)| {
                        Endpoint {
                            addr,
                            qpn,
                            src_port: None,
                        }
                    });
                let live = Live::new(service, ends, p, self.limits.messages);
                self.live.push(live);
                let index = self.live.len() - 1;
                self.flows.insert(key, (index, 0));
                if service != Service::Uc {
                    let waiting = self.unpaired.entry((flow.src, flow.dst)).or_default();
                    waiting.push(index);
                }
                (index, 0)
            }
        };
        let live = &mut self.live[index];
        live.seen(p, from);
        if live.connecting && op.is_request() && !live.before_rtu_told {
            live.before_rtu_told = true;
            live.notes.at(from, p.time_ns, &[p.number], What::BeforeRtu);
        }
        live.look_at(p, from);
        let (side, (id, mark)) = if op.is_request() {
            let tracker = &mut live.trackers[from];
            (from, tracker.request(p, op, &mut live.mtu, &mut live.notes))
        } else {
            let tracker = &mut live.trackers[other(from)];
            let found = tracker.answer(p, op, &mut live.mtu, &mut live.notes);
            (other(from), found)
        };
        Some(Place {
            conversation: index,
            from,
            message: id.map(|id| (side, id)),
            mark,
        })
    }

    fn datagrams_of(&mut self, p: &Packet) -> Option<(usize, End)> {
        let flow = &p.outer.flow;
        let src = (flow.src, p.ext.deth.map_or(0, |deth| deth.src_qp));
        let dst = (flow.dst, p.bth.dest_qp);
        let key = DatagramKey {
            low: src.min(dst),
            high: src.max(dst),
        };
        if let Some(&(index, first)) = self.datagrams.get(&key) {
            return Some((index, usize::from(first != src)));
        }
        if self.live.len() >= self.limits.conversations {
            return None;
        }
        let ends = [src, dst].map(|(addr, qpn)| Endpoint {
            addr,
            qpn: Some(qpn),
            src_port: None,
        });
        let mut live = Live::new(Service::Ud, ends, p, self.limits.messages);
        live.pairing = Pairing::Datagram;
        self.live.push(live);
        let index = self.live.len() - 1;
        self.datagrams.insert(key, (index, src));
        Some((index, 0))
    }

    /// Whether a place is in a conversation of this queue pair, as far as the frames until now show
    /// it: `None` if an answer may yet show who sends there.
    pub fn concerns(&self, place: Place, qpn: u32) -> Option<bool> {
        let mut live = self.live.get(place.conversation)?;
        while let Some((keep, _)) = live.merged {
            live = self.live.get(keep)?;
        }
        if live.ends.iter().any(|end| end.qpn == Some(qpn)) {
            return Some(true);
        }
        // UC has no answers.
        let known = live.is_paired() || live.service == Service::Uc;
        known.then_some(false)
    }

    /// After the last frame.
    pub fn finish(mut self) -> Finished {
        let end_ns = self.capture.time.1;
        self.join_elsewhere();
        let mut map: Vec<(usize, bool)> = Vec::with_capacity(self.live.len());
        let mut order: Vec<usize> = (0..self.live.len())
            .filter(|&index| self.live[index].merged.is_none())
            .collect();
        order.sort_by_key(|&index| self.live[index].numbers.0);
        let mut rank = vec![usize::MAX; self.live.len()];
        for (place, &index) in order.iter().enumerate() {
            rank[index] = place;
        }
        for (index, live) in self.live.iter().enumerate() {
            map.push(match live.merged {
                // Who stays was not merged itself: the pair is complete.
                Some((keep, flip)) => (rank[keep], flip),
                None => (rank[index], false),
            });
        }
        for connection in &mut self.connections.all {
            connection.conversation = connection.conversation.map(|index| rank[index]);
        }
        let mut all: Vec<Option<Live>> = self.live.into_iter().map(Some).collect();
        for index in order {
            if let Some(live) = all[index].take() {
                let agreed = match live.pairing {
                    Pairing::Connection { index } => agreed(&self.connections.all[index]),
                    _ => Default::default(),
                };
                let mut conversation = live.finish(end_ns, agreed);
                self.bad.explain(&mut conversation);
                self.capture.conversations.push(conversation);
            }
        }
        self.notes.sort();
        self.capture.findings = self.notes.findings;
        self.capture.more_findings = self.notes.more;
        self.capture.connections = self.connections.all;
        Finished {
            capture: self.capture,
            map,
        }
    }
}

fn agreed(connection: &Connection) -> [Agreed; 2] {
    let (req, rep) = (connection.req.as_ref(), connection.rep.as_ref());
    let retries = req.map(|req| req.retry_count);
    // What an end may have under way is what the other one is ready to answer; how often it repeats
    // after an RNR NAK is what the other one asks for, too.
    [
        Agreed {
            reads: rep.map(|rep| rep.responder_resources),
            retries,
            rnr_retries: rep.map(|rep| rep.rnr_retry_count),
        },
        Agreed {
            reads: req.map(|req| req.responder_resources),
            retries,
            rnr_retries: req.map(|req| req.rnr_retry_count),
        },
    ]
}
