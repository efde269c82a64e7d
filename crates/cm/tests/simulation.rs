//! Two hosts in a network that loses, duplicates, delays and garbles, in virtual time, and
//! applications that accept, refuse, dawdle, disconnect and walk away. Whatever happens: each
//! connection ends in one way on each side, both sides agree, private data arrive as they were
//! said, and nothing is left in the end.

use fastrand::Rng;
use rnic_cm::{
    Accept, Address, Admission, Config, ConnId, Connect, Ended, Endpoint, Event, SidrAnswer,
    SidrConnect, Time,
};
use rnic_wire::cm::{
    IpCmHeader, PortSpace, RejectReason, ReqPath, ServiceId, SidrStatus, Transport,
};
use rnic_wire::{Gid, PathMtu};
use std::collections::{BTreeMap, BinaryHeap};
use std::net::IpAddr;

const SECOND: u64 = 1_000_000_000;

/// Which of two hosts.
type Host = usize;

/// How bad the network is, in parts of 1000.
#[derive(Clone, Copy, Debug)]
struct Weather {
    loss: u32,
    duplication: u32,
    garbling: u32,
    /// The longest a packet may take.
    delay_ns: u64,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    Packet(Host, Vec<u8>),
    Connect(Host, u32),
    Resolve(Host, u32),
    Decide(Host, u32),
    Close(Host, u32),
    Hangup(Host, u32),
}

/// What became of a connection on one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Story {
    begun: u32,
    established: u32,
    rejected: Option<RejectReason>,
    unreachable: u32,
    disconnected: u32,
    time_wait_exits: u32,
    /// The application said no, or walked away.
    refused: bool,
    destroyed: bool,
    asked_to_disconnect: bool,
}

impl Story {
    fn endings(&self) -> u32 {
        u32::from(self.rejected.is_some()) + self.unreachable + self.disconnected
    }
}

struct World {
    rng: Rng,
    weather: Weather,
    now: Time,
    due: BinaryHeap<std::cmp::Reverse<(Time, u64, Due)>>,
    serial: u64,
    hosts: [Endpoint; 2],
    /// Which attempt a connection belongs to.
    attempts: [BTreeMap<ConnId, u32>; 2],
    connections: [BTreeMap<u32, ConnId>; 2],
    /// Of each attempt: who asked; what became of it on either side.
    stories: BTreeMap<u32, (Host, [Story; 2])>,
    resolved: BTreeMap<u32, u32>,
    asked: BTreeMap<u32, u32>,
}

fn ip(host: Host) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + host as u8])
}

fn words(what: &str, attempt: u32) -> String {
    format!("{what} of attempt {attempt}")
}

fn attempt_in(private_data: &[u8], what: &str) -> u32 {
    let text = String::from_utf8(private_data.to_vec()).unwrap();
    let text = text.trim_end_matches('\0');
    let attempt = text.rsplit(' ').next().unwrap().parse().unwrap();
    assert_eq!(text, words(what, attempt));
    attempt
}

impl World {
    fn new(seed: u64, weather: Weather) -> World {
        let endpoint = |host: Host| {
            let mut endpoint = Endpoint::new(Config {
                range: 7 + host as u16,
                seed: seed + host as u64,
                guid: host as u64,
                ..Config::default()
            });
            endpoint.set_gids(&[Gid::from(ip(host))]);
            endpoint
        };
        World {
            rng: Rng::with_seed(seed),
            weather,
            now: Time(0),
            due: BinaryHeap::new(),
            serial: 0,
            hosts: [endpoint(0), endpoint(1)],
            attempts: Default::default(),
            connections: Default::default(),
            stories: BTreeMap::new(),
            resolved: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    fn schedule(&mut self, after_ns: u64, due: Due) {
        self.serial += 1;
        let at = self.now.after(after_ns);
        self.due.push(std::cmp::Reverse((at, self.serial, due)));
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(0..n) == 0
    }

    /// What applications take their time for.
    fn pause(&mut self) -> u64 {
        match self.rng.u8(0..4) {
            0 => 0,
            1 | 2 => self.rng.u64(0..SECOND),
            _ => self.rng.u64(0..15 * SECOND),
        }
    }

    fn story(&mut self, attempt: u32, host: Host) -> &mut Story {
        &mut self.stories.get_mut(&attempt).unwrap().1[host]
    }

    fn run(&mut self, attempts: u32) {
        for attempt in 0..attempts {
            let host = self.rng.usize(0..2);
            self.stories.insert(attempt, (host, Default::default()));
            let at = self.rng.u64(0..20 * SECOND);
            self.schedule(at, Due::Connect(host, attempt));
            if attempt % 4 == 0 {
                self.schedule(at, Due::Resolve(host, attempt));
            }
        }
        loop {
            let timer = |endpoint: &mut Endpoint| endpoint.poll_timeout();
            let timers: Vec<Option<Time>> = self.hosts.iter_mut().map(timer).collect();
            let next = self.due.peek().map(|entry| entry.0.0);
            let Some(now) = timers.iter().copied().flatten().chain(next).min() else {
                break;
            };
            assert!(now >= self.now, "time goes backwards");
            assert!(now < Time(3_600 * SECOND), "it never ends");
            self.now = now;
            for (host, timer) in timers.into_iter().enumerate() {
                if timer.is_some_and(|at| at <= now) {
                    self.hosts[host].handle_timeout(now);
                    self.drain(host);
                }
            }
            if next == Some(now)
                && let Some(std::cmp::Reverse((.., due))) = self.due.pop()
            {
                self.happen(due);
            }
        }
    }

    fn happen(&mut self, due: Due) {
        let now = self.now;
        let host = match due {
            Due::Packet(host, bytes) => {
                let from = Address::new(Gid::from(ip(host)), Gid::from(ip(1 - host)));
                let mut admit = |_: &_| Admission::Admit(1);
                self.hosts[host].handle(now, &from, &|_| true, &bytes, &mut admit);
                host
            }
            Due::Connect(host, attempt) => {
                self.connect(host, attempt);
                host
            }
            Due::Resolve(host, attempt) => {
                let private_data = words("question", attempt);
                let connect = SidrConnect {
                    service: ServiceId::new(PortSpace::Udp, 7),
                    ip: Some(header(host)),
                    address: Address::new(Gid::from(ip(host)), Gid::from(ip(1 - host))),
                    pkey: 0xffff,
                    private_data: private_data.as_bytes(),
                };
                self.hosts[host].sidr_connect(now, &connect).unwrap();
                host
            }
            Due::Decide(host, attempt) => {
                self.decide(host, attempt);
                host
            }
            Due::Close(host, attempt) => {
                self.close(host, attempt);
                host
            }
            Due::Hangup(host, attempt) => {
                self.walk_away(host, attempt);
                host
            }
        };
        self.drain(host);
    }

    fn connect(&mut self, host: Host, attempt: u32) {
        let private_data = words("request", attempt);
        let connect = Connect {
            service: ServiceId::new(PortSpace::Tcp, 7),
            ip: Some(header(host)),
            path: ReqPath {
                local_gid: Gid::from(ip(host)),
                remote_gid: Gid::from(ip(1 - host)),
                ack_timeout: 19,
                ..ReqPath::default()
            },
            path_mtu: PathMtu::M1024,
            pkey: 0xffff,
            transport: Transport::Rc,
            qpn: 100 + attempt,
            starting_psn: attempt,
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            qkey: 0,
            private_data: private_data.as_bytes(),
        };
        let conn = self.hosts[host].connect(self.now, &connect).unwrap();
        self.begin(host, attempt, conn);
        // Some do not wait for the answer.
        if self.one_in(8) {
            let after = self.pause();
            self.schedule(after, Due::Hangup(host, attempt));
        }
    }

    fn begin(&mut self, host: Host, attempt: u32, conn: ConnId) {
        self.attempts[host].insert(conn, attempt);
        self.connections[host].insert(attempt, conn);
        self.story(attempt, host).begun += 1;
    }

    /// The application answers a request or a response.
    fn decide(&mut self, host: Host, attempt: u32) {
        let conn = self.connections[host][&attempt];
        let active = self.stories[&attempt].0 == host;
        if self.story(attempt, host).endings() > 0 || self.story(attempt, host).destroyed {
            return;
        }
        let now = self.now;
        if self.one_in(6) {
            let private_data = words("refusal", attempt);
            let reason = RejectReason::CONSUMER_DEFINED;
            self.hosts[host]
                .reject(now, conn, reason, &[], private_data.as_bytes())
                .unwrap();
            let story = self.story(attempt, host);
            story.refused = true;
            story.destroyed = true;
            return;
        }
        if self.one_in(10) {
            self.walk_away(host, attempt);
            return;
        }
        if active {
            self.hosts[host].ready(now, conn, b"").unwrap();
            self.established(host, attempt);
        } else {
            let private_data = words("answer", attempt);
            let accept = Accept {
                qpn: 200 + attempt,
                private_data: private_data.as_bytes(),
                ..Accept::default()
            };
            self.hosts[host].accept(now, conn, &accept).unwrap();
            // Some walk away before they are sure that the peer is ready.
            if self.one_in(10) {
                let after = self.pause();
                self.schedule(after, Due::Hangup(host, attempt));
            }
        }
    }

    fn established(&mut self, host: Host, attempt: u32) {
        self.story(attempt, host).established += 1;
        // Every connection ends, by one or both.
        let active = self.stories[&attempt].0 == host;
        if active || self.one_in(2) {
            let after = self.pause();
            self.schedule(after, Due::Close(host, attempt));
        }
    }

    fn close(&mut self, host: Host, attempt: u32) {
        if self.one_in(3) {
            return self.walk_away(host, attempt);
        }
        let story = self.story(attempt, host);
        if story.endings() > 0 || story.destroyed {
            return;
        }
        story.asked_to_disconnect = true;
        let conn = self.connections[host][&attempt];
        self.hosts[host].disconnect(self.now, conn, b"").unwrap();
    }

    fn walk_away(&mut self, host: Host, attempt: u32) {
        let story = self.story(attempt, host);
        if !story.destroyed {
            story.destroyed = true;
            let conn = self.connections[host][&attempt];
            self.hosts[host].destroy(self.now, conn);
        }
    }

    fn drain(&mut self, host: Host) {
        while let Some(event) = self.hosts[host].poll_event() {
            self.on_event(host, event);
        }
        while let Some(packet) = self.hosts[host].poll_transmit() {
            assert_eq!(packet.address.remote_gid, Gid::from(ip(1 - host)));
            self.send(1 - host, packet.mad.to_vec());
        }
    }

    fn send(&mut self, to: Host, bytes: Vec<u8>) {
        let weather = self.weather;
        let copies = if self.rng.u32(0..1000) < weather.duplication {
            2
        } else {
            1
        };
        for _ in 0..copies {
            if self.rng.u32(0..1000) < weather.loss {
                continue;
            }
            let mut bytes = bytes.clone();
            // What the ICRC lets through of a garbled packet is not the message of another
            // connection.
            if self.rng.u32(0..1000) < weather.garbling {
                let at = self.rng.usize(0..4);
                bytes[at] ^= 1 << self.rng.u8(0..8);
                bytes.truncate(self.rng.usize(0..=256));
            }
            let most = if self.one_in(20) {
                100 * weather.delay_ns
            } else {
                weather.delay_ns
            };
            let delay = self.rng.u64(10_000..=most);
            self.schedule(delay, Due::Packet(to, bytes));
        }
    }

    fn on_event(&mut self, host: Host, event: Event) {
        let of = |world: &World, conn: ConnId| world.attempts[host][&conn];
        if let Some(conn) = event.conn()
            && !matches!(event, Event::Request { .. })
        {
            let attempt = of(self, conn);
            let story = *self.story(attempt, host);
            assert!(!story.destroyed, "{event:?} after it was destroyed");
        }
        match event {
            Event::Request { conn, request, .. } => {
                let attempt = attempt_in(request.private_data(), "request");
                assert_eq!(request.ip, Some(header(1 - host)));
                assert_eq!(request.req.qpn, 100 + attempt);
                assert_eq!(self.stories[&attempt].0, 1 - host);
                self.begin(host, attempt, conn);
                let after = self.pause();
                self.schedule(after, Due::Decide(host, attempt));
            }
            Event::Response { conn, reply } => {
                let attempt = attempt_in(&reply.rep.private_data, "answer");
                assert_eq!(attempt, of(self, conn));
                assert_eq!(reply.rep.qpn, 200 + attempt);
                let after = self.pause();
                self.schedule(after, Due::Decide(host, attempt));
            }
            Event::Established { conn, .. } => self.established(host, of(self, conn)),
            Event::Rejected { conn, rejection } => {
                let attempt = of(self, conn);
                if rejection.private_data != [0; 148] {
                    assert_eq!(attempt_in(&rejection.private_data, "refusal"), attempt);
                    assert!(self.story(attempt, 1 - host).refused);
                }
                let story = self.story(attempt, host);
                assert_eq!(story.endings(), 0);
                story.rejected = Some(rejection.reason);
            }
            Event::Unreachable { conn } => {
                let attempt = of(self, conn);
                self.story(attempt, host).unreachable += 1;
            }
            Event::Disconnected { conn, how } => {
                let attempt = of(self, conn);
                self.story(attempt, host).disconnected += 1;
                // Sooner or later the application takes note.
                if matches!(how, Ended::Requested(_)) {
                    let after = self.pause();
                    self.schedule(after, Due::Hangup(host, attempt));
                }
            }
            Event::TimeWaitExit { conn } => {
                let attempt = of(self, conn);
                let story = self.story(attempt, host);
                assert_eq!(story.endings(), 1);
                story.time_wait_exits += 1;
            }
            Event::SidrRequest { sidr, request, .. } => {
                let attempt = attempt_in(request.private_data(), "question");
                *self.asked.entry(attempt).or_default() += 1;
                let private_data = words("resolution", attempt);
                let answer = SidrAnswer {
                    status: SidrStatus::VALID,
                    qpn: attempt,
                    qkey: 9,
                    info: &[],
                    private_data: private_data.as_bytes(),
                };
                self.hosts[host]
                    .sidr_answer(self.now, sidr, &answer)
                    .unwrap();
            }
            Event::SidrResponse { reply, .. } => {
                let attempt = attempt_in(&reply.rep.private_data, "resolution");
                assert_eq!(reply.rep.qpn, attempt);
                *self.resolved.entry(attempt).or_default() += 1;
            }
            Event::SidrUnreachable { .. } => panic!("no resolution in 16 attempts"),
        }
    }

    fn verify(&self) {
        for endpoint in &self.hosts {
            assert_eq!(endpoint.connections(), 0, "leaked");
            assert_eq!(endpoint.resolutions(), 0, "leaked");
            assert_eq!(endpoint.counters().stale, 0);
        }
        for (attempt, (host, stories)) in &self.stories {
            let (active, passive) = (&stories[*host], &stories[1 - host]);
            let both = format!("attempt {attempt}: active {active:?}, passive {passive:?}");
            assert_eq!(active.begun, 1, "{both}");
            assert!(passive.begun <= 1, "asked twice: {both}");
            for story in [active, passive] {
                let endings = u32::from(!story.destroyed && story.begun > 0);
                assert!(story.established <= 1, "{both}");
                assert_eq!(story.endings().max(endings), story.endings(), "{both}");
                assert!(story.endings() <= 1, "{both}");
                assert_eq!(story.unreachable, 0, "{both}");
            }
            // Nobody walked away during the handshake: then both have the same story.
            if active.established == 1 && passive.begun == 1 && !passive.destroyed {
                assert_eq!(passive.established, 1, "{both}");
            }
            if passive.established == 1 {
                assert!(active.established == 1 || active.destroyed, "{both}");
            }
            // Who has heard of no end has ended it.
            for (one, other) in [(active, passive), (passive, active)] {
                if one.established == 1 && !one.destroyed {
                    assert_eq!(one.disconnected, 1, "{both}");
                    assert_eq!(one.time_wait_exits, 1, "{both}");
                    let ended =
                        one.asked_to_disconnect || other.asked_to_disconnect || other.destroyed;
                    assert!(ended, "nobody ended it: {both}");
                }
                if one.rejected.is_some() {
                    assert!(other.refused || other.destroyed, "{both}");
                }
            }
            if passive.refused && !active.destroyed {
                let reason = Some(RejectReason::CONSUMER_DEFINED);
                assert_eq!(active.rejected, reason, "{both}");
            }
            if attempt % 4 == 0 {
                assert_eq!(self.asked.get(attempt), Some(&1));
                assert_eq!(self.resolved.get(attempt), Some(&1));
            }
        }
    }
}

fn header(from: Host) -> IpCmHeader {
    IpCmHeader {
        src_port: 1000,
        src: ip(from),
        dst: ip(1 - from),
    }
}

fn simulate(seeds: std::ops::Range<u64>, weather: Weather) {
    for seed in seeds {
        let result = std::panic::catch_unwind(|| {
            let mut world = World::new(seed, weather);
            world.run(40);
            world.verify();
            world.stories.values().any(|(_, s)| s[0].established > 0)
        });
        match result {
            Ok(connected) => assert!(connected, "seed {seed}: nothing was established"),
            Err(_) => panic!("seed {seed}, {weather:?}"),
        }
    }
}

#[test]
fn in_fair_weather() {
    let weather = Weather {
        loss: 0,
        duplication: 0,
        garbling: 0,
        delay_ns: 100_000,
    };
    simulate(0..50, weather);
}

#[test]
fn with_some_loss() {
    let weather = Weather {
        loss: 20,
        duplication: 10,
        garbling: 10,
        delay_ns: 1_000_000,
    };
    simulate(100..200, weather);
}

#[test]
fn in_a_storm() {
    let weather = Weather {
        loss: 200,
        duplication: 200,
        garbling: 50,
        delay_ns: 10_000_000,
    };
    simulate(1_000..1_600, weather);
}
