//! Agents: processes of their own that open a link and do what the test says, line by line.
//!
//! The test binary starts itself again with `--exact agent`; commands go to the child's stdin,
//! answers come from its stderr in lines that start with `@` (stdout belongs to the test harness).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rnic_host::{BindFlags, LAST_WORDS_LEN, PortClaim, QP1};
use rnic_link::{LinkConfig, LinkCounters, PathSpec, RoceLink};
use rnic_wire::cm::{
    Answered, Drep, IpCmHeader, Mad, Message, PortSpace, Rej, RejectReason, ServiceId, SidrReq,
};

/// Longer than any loaded machine takes; reached only when something is broken.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn now_ns(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64 + 1
}

/// A SEND_ONLY with a payload that follows from its number.
pub fn write_packet(out: &mut [u8], qpn: u32, number: u32) {
    out[..12].copy_from_slice(&[4, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    out[5..8].copy_from_slice(&qpn.to_be_bytes()[1..]);
    out[9..12].copy_from_slice(&number.to_be_bytes()[1..]);
    for (i, byte) in out[12..].iter_mut().enumerate() {
        *byte = (number as usize * 7 + i * 13 + (i >> 8)) as u8;
    }
}

/// Its number, if every byte is right.
pub fn read_packet(bytes: &[u8], qpn: u32) -> Option<u32> {
    let number = u32::from_be_bytes([0, *bytes.get(9)?, *bytes.get(10)?, *bytes.get(11)?]);
    let mut expected = vec![0; bytes.len()];
    write_packet(&mut expected, qpn, number);
    // FECN, BECN and what is reserved beside them may change on the way: the ICRC does not cover
    // them.
    *expected.get_mut(4)? = bytes[4];
    (bytes == expected).then_some(number)
}

/// A packet to QP 1 with the message.
fn packet_to_qp1(message: Message, number: u32) -> Vec<u8> {
    let mad = Mad {
        tid: number.into(),
        attr_modifier: 0,
        message,
    };
    let mut packet = vec![0x64, 0, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0];
    packet.extend_from_slice(&[0x80, 1, 0, 0, 0, 0, 0, 1]);
    packet.extend_from_slice(&mad.emit());
    packet
}

/// Its number.
fn read_mad(packet: &[u8]) -> Option<u32> {
    let mad = Mad::parse(packet.get(20..)?).ok()?;
    u32::try_from(mad.tid).ok()
}

/// A request for a port of `RDMA_PS_UDP` at `dst`.
fn request(src: IpAddr, dst: IpAddr, port: u16) -> Message {
    let mut private_data = [0; 216];
    let header = IpCmHeader {
        src_port: 4000,
        src,
        dst,
    };
    header.emit(&mut private_data);
    Message::SidrReq(SidrReq {
        request_id: 0,
        pkey: 0xffff,
        service_id: ServiceId::new(PortSpace::Udp, port),
        private_data,
    })
}

/// An answer for that communication id.
fn answer(id: u32) -> Message {
    Message::Drep(Drep {
        local_id: 7,
        remote_id: id,
        private_data: [0; 224],
    })
}

/// "I don't ask any more", from who does not know the receiver's communication id.
fn withdrawal() -> Message {
    Message::Rej(Rej {
        local_id: 7,
        remote_id: 0,
        message: Answered::Req,
        info_len: 8,
        reason: RejectReason::TIMEOUT,
        additional_info: [0; 72],
        private_data: [0; 148],
    })
}

fn send_packets(link: &mut RoceLink, path: &PathSpec, packets: &[Vec<u8>], now: u64) {
    let id = link.path(path).expect("path");
    for bytes in packets {
        if link.packet(id, bytes.len()).is_none() {
            link.flush(now);
        } else {
            link.retract();
        }
        let room = link.packet(id, bytes.len()).expect("room after a flush");
        room.copy_from_slice(bytes);
    }
    link.flush(now);
    link.release_path(id);
}

pub fn spec(local: IpAddr, remote: IpAddr, dest_qpn: u32) -> PathSpec {
    PathSpec {
        local,
        scope_id: 0,
        remote,
        dest_qpn,
        traffic_class: 0,
        hop_limit: 0,
    }
}

/// Sends packets `first..first+count` of `len` bytes (without ICRC) to `qpn`.
pub fn send(link: &mut RoceLink, path: &PathSpec, first: u32, count: u32, len: usize, now: u64) {
    let id = link.path(path).expect("path");
    for number in first..first + count {
        let packet = match link.packet(id, len) {
            Some(packet) => packet,
            None => {
                link.flush(now);
                link.packet(id, len).expect("room after a flush")
            }
        };
        write_packet(packet, path.dest_qpn, number);
    }
    link.flush(now);
    link.release_path(id);
}

/// What arrived: per (source, QPN) how often each number did; `None` counts packets with wrong
/// bytes.
pub type Arrived = BTreeMap<(IpAddr, u32), BTreeMap<Option<u32>, u32>>;

/// Receives until `count` packets were delivered in all, or nothing came for `quiet`.
pub fn receive(link: &mut RoceLink, start: Instant, count: usize, quiet: Duration) -> Arrived {
    let mut arrived = Arrived::new();
    let mut total = 0;
    let mut last = Instant::now();
    while total < count && last.elapsed() < quiet {
        let n = link.receive(now_ns(start), 64, true, &mut |packet| {
            let number = match packet.dest_qpn {
                QP1 => read_mad(packet.bytes),
                qpn => read_packet(packet.bytes, qpn),
            };
            let key = (packet.src.ip().expect("by IP"), packet.dest_qpn);
            *arrived.entry(key).or_default().entry(number).or_default() += 1;
        });
        link.maintain(now_ns(start));
        total += n;
        if n > 0 {
            last = Instant::now();
        } else {
            std::thread::yield_now();
        }
    }
    arrived
}

/// As [`receive`] on the first of `links`, while the others are served too, as every process serves
/// its own: what came to them by mistake is handed over.
pub fn receive_beside(
    links: &mut [&mut RoceLink],
    start: Instant,
    count: usize,
    quiet: Duration,
) -> Arrived {
    let mut arrived = Arrived::new();
    let mut last = Instant::now();
    while total(&arrived) < count && last.elapsed() < quiet {
        let before = total(&arrived);
        let [first, others @ ..] = links else { break };
        merge(
            &mut arrived,
            receive(first, start, count - before, Duration::from_micros(10)),
        );
        for other in others {
            let stray = receive(other, start, 1, Duration::from_micros(1));
            assert!(stray.is_empty(), "{stray:?}");
        }
        if total(&arrived) > before {
            last = Instant::now();
        }
    }
    arrived
}

/// Each of `first..first+count` exactly once, and nothing else.
#[track_caller]
pub fn assert_complete(arrived: &Arrived, from: IpAddr, qpn: u32, first: u32, count: u32) {
    let numbers = arrived.get(&(from, qpn)).cloned().unwrap_or_default();
    let expected: BTreeMap<_, _> = (first..first + count).map(|n| (Some(n), 1)).collect();
    assert_eq!(numbers, expected, "from {from} for QPN {qpn:#x}");
}

pub struct Agent {
    child: Child,
    stdin: ChildStdin,
    answers: std::io::Lines<BufReader<std::process::ChildStderr>>,
    pub qpn: u32,
}

impl Agent {
    /// Starts a process and opens a link in it. `options`: words for the agent (`no_gso`), then
    /// anything the link reads from the environment as NAME=VALUE.
    pub fn start(options: &[&str]) -> Agent {
        let exe = std::env::current_exe().expect("path of this test");
        let mut command = Command::new(exe);
        command
            .args(["--exact", "agent", "--nocapture", "--test-threads=1"])
            .env("RNIC_LINK_TEST_AGENT", options.join(" "))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        for option in options {
            if let Some((name, value)) = option.split_once('=') {
                command.env(name, value);
            }
        }
        let mut child = command.spawn().expect("start an agent");
        let stdin = child.stdin.take().expect("stdin");
        let answers = BufReader::new(child.stderr.take().expect("stderr")).lines();
        let mut agent = Agent {
            child,
            stdin,
            answers,
            qpn: 0,
        };
        agent.qpn = agent.answer()[0].parse().expect("a QPN");
        agent
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn answer(&mut self) -> Vec<String> {
        for line in self.answers.by_ref() {
            let line = line.expect("the agent's stderr");
            match line.strip_prefix('@') {
                Some(answer) => return answer.split_whitespace().map(str::to_owned).collect(),
                None => eprintln!("agent {}: {line}", self.child.id()),
            }
        }
        panic!("the agent ended without an answer");
    }

    pub fn tell(&mut self, command: &str) {
        writeln!(self.stdin, "{command}").expect("the agent reads");
    }

    pub fn ask(&mut self, command: &str) -> Vec<String> {
        self.tell(command);
        self.answer()
    }

    /// The answer to a command given by `tell`.
    pub fn wait(&mut self) -> Vec<String> {
        self.answer()
    }

    pub fn send(
        &mut self,
        local: IpAddr,
        remote: IpAddr,
        qpn: u32,
        first: u32,
        count: u32,
        len: usize,
    ) {
        let answer = self.ask(&format!(
            "send {local} {remote} {qpn} {first} {count} {len}"
        ));
        assert_eq!(answer, ["ok"]);
    }

    /// Receives `count` packets; they must be `first..` from `from`, each once, for QPN `qpn`, and
    /// nothing else.
    #[track_caller]
    pub fn expect(&mut self, from: IpAddr, qpn: u32, first: u32, count: u32) {
        let answer = self.ask(&format!("expect {from} {qpn} {first} {count}"));
        assert_eq!(answer, ["ok"], "counters: {:?}", self.ask("counters"));
    }

    pub fn counter(&mut self, name: &str) -> u64 {
        let counters = self.ask("counters");
        let field = counters
            .iter()
            .find_map(|c| c.strip_prefix(&format!("{name}=")));
        field.expect("a counter").parse().expect("a number")
    }

    /// It runs no more, and keeps all it has.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
    }

    pub fn go_on(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: i32) {
        // SAFETY: takes no pointer; the child has not been waited for, so the number is its own.
        assert_eq!(unsafe { libc::kill(self.pid() as i32, signal) }, 0);
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("kill the agent");
        self.child.wait().expect("wait for the agent");
        std::mem::forget(self);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // A failed test may leave it stopped.
        self.go_on();
        let _ = writeln!(self.stdin, "quit");
        let _ = self.child.wait();
    }
}

fn counters_in_words(c: &LinkCounters) -> String {
    format!(
        "tx_packets={} tx_bytes={} tx_syscalls={} tx_errors={} rx_packets={} rx_bytes={} rx_syscalls={} rx_bad_icrc={} \
         rx_truncated={} rx_handed_over={} rx_adopted={} rx_unknown_qpn={} \
         rx_bad_mad={} tx_host_packets={} rx_host_packets={} host_rings_wrong={}",
        c.tx_packets,
        c.tx_bytes,
        c.tx_syscalls,
        c.tx_errors,
        c.rx_packets,
        c.rx_bytes,
        c.rx_syscalls,
        c.rx_bad_icrc,
        c.rx_truncated,
        c.rx_handed_over,
        c.rx_adopted,
        c.rx_unknown_qpn,
        c.rx_bad_mad,
        c.tx_host_packets,
        c.rx_host_packets,
        c.host_rings_wrong
    )
}

/// The body of the test named `agent`: does nothing unless started by [`Agent::start`].
pub fn agent_main() {
    let Ok(options) = std::env::var("RNIC_LINK_TEST_AGENT") else {
        return;
    };
    let start = Instant::now();
    let words: Vec<&str> = options.split_whitespace().collect();
    let config = LinkConfig {
        xdp: None,
        no_gso: words.contains(&"no_gso"),
        always_tap_offload: false,
        faults: words
            .iter()
            .find_map(|w| w.strip_prefix("FAULTS="))
            .map(|w| w.parse().expect("faults")),
        pcap: words
            .iter()
            .find_map(|w| w.strip_prefix("PCAP="))
            .map(Into::into),
        host_path: words.contains(&"host_path"),
        one_sided: words.contains(&"host_path"),
        beside: None,
    };
    let mut link = RoceLink::open(&config).expect("open the link");
    eprintln!("@{}", link.qpn_ranges()[0].first);
    // Commands come by a thread, so that the link is served meanwhile, as the device's background
    // thread does it.
    let (sender, commands) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let mut early = Arrived::new();
    let mut claims: Vec<PortClaim> = Vec::new();
    loop {
        let line = match commands.recv_timeout(Duration::from_millis(1)) {
            Ok(line) => line,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                merge(
                    &mut early,
                    receive(&mut link, start, 1, Duration::from_micros(1)),
                );
                // What faults hold back.
                link.flush(now_ns(start));
                continue;
            }
            Err(_) => break,
        };
        // Who asks over and over, without a pause, waits for what would come in one.
        if ["total", "counters"].contains(&line.as_str()) {
            merge(
                &mut early,
                receive(&mut link, start, 1, Duration::from_micros(1)),
            );
            link.flush(now_ns(start));
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["send", local, remote, qpn, first, count, len] => {
                let path = spec(
                    local.parse().expect("local"),
                    remote.parse().expect("remote"),
                    qpn.parse().expect("qpn"),
                );
                let (first, count) = (first.parse().expect("first"), count.parse().expect("count"));
                let len = len.parse().expect("len");
                send(&mut link, &path, first, count, len, now_ns(start));
                eprintln!("@ok");
            }
            ["expect", from, qpn, first, count] => {
                let from: IpAddr = from.parse().expect("from");
                let qpn: u32 = qpn.parse().expect("qpn");
                let (first, count): (u32, u32) =
                    (first.parse().expect("first"), count.parse().expect("count"));
                let mut arrived = std::mem::take(&mut early);
                let have = total(&arrived);
                if have < count as usize {
                    merge(
                        &mut arrived,
                        receive(&mut link, start, count as usize - have, PATIENCE),
                    );
                }
                let expected: BTreeMap<_, _> =
                    (first..first + count).map(|n| (Some(n), 1)).collect();
                if arrived == Arrived::from([((from, qpn), expected)]) {
                    eprintln!("@ok");
                } else {
                    eprintln!("@wrong {}", format!("{arrived:?}").replace(' ', ""));
                }
            }
            // Which numbers have not come yet, once nothing comes any more; all that came must be
            // right.
            ["missing", from, qpn, first, count] => {
                let from: IpAddr = from.parse().expect("from");
                let qpn: u32 = qpn.parse().expect("qpn");
                let (first, count): (u32, u32) =
                    (first.parse().expect("first"), count.parse().expect("count"));
                merge(
                    &mut early,
                    receive(&mut link, start, usize::MAX, Duration::from_millis(3)),
                );
                let numbers = early.entry((from, qpn)).or_default().clone();
                // Earlier ones too: what was sent again may have come late after all.
                let right = early.len() == 1
                    && numbers
                        .keys()
                        .all(|n| n.is_some_and(|n| (0..first + count).contains(&n)));
                if right {
                    let missing: Vec<String> = (first..first + count)
                        .filter(|&n| !numbers.contains_key(&Some(n)))
                        .map(|n| n.to_string())
                        .collect();
                    if missing.is_empty() {
                        early.clear();
                    }
                    eprintln!("@missing {}", missing.join(" "));
                } else {
                    eprintln!("@wrong {}", format!("{early:?}").replace(' ', ""));
                }
            }
            ["request", local, remote, port, first, count] => {
                let (local, remote) = (
                    local.parse().expect("local"),
                    remote.parse().expect("remote"),
                );
                let message = request(local, remote, port.parse().expect("port"));
                let (first, count): (u32, u32) =
                    (first.parse().expect("first"), count.parse().expect("count"));
                let packets: Vec<_> = (first..first + count)
                    .map(|number| packet_to_qp1(message, number))
                    .collect();
                send_packets(
                    &mut link,
                    &spec(local, remote, QP1),
                    &packets,
                    now_ns(start),
                );
                eprintln!("@ok");
            }
            // Answers for these communication ids in turn.
            ["answer", local, remote, first, count, ref ids @ ..] => {
                let (local, remote) = (
                    local.parse().expect("local"),
                    remote.parse().expect("remote"),
                );
                let (first, count): (u32, u32) =
                    (first.parse().expect("first"), count.parse().expect("count"));
                let packets: Vec<_> = (first..first + count)
                    .flat_map(|number| ids.iter().map(move |id| (number, id)))
                    .map(|(number, id)| packet_to_qp1(answer(id.parse().expect("id")), number))
                    .collect();
                send_packets(
                    &mut link,
                    &spec(local, remote, QP1),
                    &packets,
                    now_ns(start),
                );
                eprintln!("@ok");
            }
            ["withdraw", local, remote, first, count] => {
                let (local, remote) = (
                    local.parse().expect("local"),
                    remote.parse().expect("remote"),
                );
                let (first, count): (u32, u32) =
                    (first.parse().expect("first"), count.parse().expect("count"));
                let packets: Vec<_> = (first..first + count)
                    .map(|number| packet_to_qp1(withdrawal(), number))
                    .collect();
                send_packets(
                    &mut link,
                    &spec(local, remote, QP1),
                    &packets,
                    now_ns(start),
                );
                eprintln!("@ok");
            }
            // What QP 1 does not take: the message with one byte changed, and too short.
            ["junk", local, remote] => {
                let (local, remote) = (
                    local.parse().expect("local"),
                    remote.parse().expect("remote"),
                );
                let good = packet_to_qp1(answer(0), 0);
                let mut packets: Vec<_> = [0, 12, 20, 21, 22, 23, 37]
                    .iter()
                    .map(|at| {
                        let mut bad = good.clone();
                        bad[*at] ^= 0x22;
                        bad
                    })
                    .collect();
                packets.extend([0, 4, 8, 12].map(|cut| good[..12 + cut].to_vec()));
                packets.push([&good[..], &[0; 4]].concat());
                let n = packets.len();
                send_packets(
                    &mut link,
                    &spec(local, remote, QP1),
                    &packets,
                    now_ns(start),
                );
                eprintln!("@{n}");
            }
            ["listen", addr] => {
                let addr = addr.parse().expect("address");
                let ports = link.ports().expect("ports");
                let claim = ports
                    .bind(PortSpace::Udp, addr, BindFlags::default(), || 0)
                    .and_then(|mut claim| claim.listen().map(|()| claim));
                match claim {
                    Ok(claim) => {
                        claims.push(claim);
                        eprintln!("@ok");
                    }
                    Err(e) => eprintln!("@errno {}", e.raw_os_error().unwrap_or(0)),
                }
            }
            ["join", group, ifindex] => {
                let (group, ifindex) = (
                    group.parse().expect("group"),
                    ifindex.parse().expect("ifindex"),
                );
                link.join(group, ifindex).expect("joined");
                eprintln!("@ok");
            }
            ["unlisten"] => {
                claims.clear();
                eprintln!("@ok");
            }
            ["last-words", n] => {
                let last_words = [n.parse().expect("a byte"); LAST_WORDS_LEN];
                link.write_last_words(&last_words).expect("written");
                eprintln!("@ok");
            }
            ["take-last-words"] => {
                let dead = link.take_last_words_of_the_dead();
                let last_words: Vec<String> = dead
                    .iter()
                    .flat_map(|process| process.last_words())
                    .map(|last_words| last_words[LAST_WORDS_LEN - 1].to_string())
                    .collect();
                eprintln!("@last-words {}", last_words.join(" "));
            }
            ["alive", qpn] => {
                let range = qpn.parse::<u32>().expect("qpn") >> 12;
                eprintln!("@{}", link.ports().expect("ports").range_is_alive(range));
            }
            // A child of fork that gives its copies up and stays; the answer is its pid.
            ["fork-and-stay"] => {
                // SAFETY: the child touches nothing but its own copies and never comes back.
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    link.abandon();
                    claims.clear();
                    loop {
                        // SAFETY: waits for a signal; takes no pointer.
                        unsafe { libc::pause() };
                    }
                }
                eprintln!("@{pid}");
            }
            ["claim"] => {
                let range = loop {
                    match link.claim_qpn_range() {
                        // Another agent is at the registry.
                        Err(e) if e.is_busy() => std::thread::yield_now(),
                        range => break range.expect("a range"),
                    }
                };
                eprintln!("@{}", range.first);
            }
            ["total"] => eprintln!("@{}", total(&early)),
            ["counters"] => eprintln!("@{}", counters_in_words(&link.counters())),
            // Whatever arrives at the group goes to this slot of it from now on.
            ["steer", slot] => {
                attach_constant_program(&link, slot.parse().expect("slot"));
                eprintln!("@ok");
            }
            ["settle"] => {
                let until = Instant::now() + Duration::from_millis(30);
                while Instant::now() < until {
                    merge(
                        &mut early,
                        receive(&mut link, start, 1, Duration::from_millis(1)),
                    );
                }
                while let Some(due) = link.next_timeout() {
                    link.flush(due);
                }
                eprintln!("@ok");
            }
            // A child of fork gives its copies up; then this process goes on as if nothing had
            // been.
            ["fork"] => {
                // SAFETY: the child touches nothing but its own copy of the link and ends without
                // running anything else.
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    let ports = link.ports().expect("ports");
                    link.abandon();
                    drop(link);
                    claims.clear();
                    let addr = (std::net::Ipv4Addr::LOCALHOST, 0).into();
                    let refused = ports.bind(PortSpace::Udp, addr, BindFlags::default(), || 0);
                    let errno = refused.err().and_then(|e| e.raw_os_error());
                    // SAFETY: ends this process at once.
                    unsafe { libc::_exit(i32::from(errno != Some(libc::ENODEV))) };
                }
                let mut status = 1;
                // SAFETY: the status is a local int.
                unsafe { libc::waitpid(pid, &raw mut status, 0) };
                assert_eq!(status, 0, "the forked child");
                eprintln!("@ok");
            }
            ["quit"] => break,
            _ => panic!("unknown command {line}"),
        }
    }
}

pub fn total(arrived: &Arrived) -> usize {
    arrived
        .values()
        .flat_map(|n| n.values())
        .map(|&n| n as usize)
        .sum()
}

pub fn merge(into: &mut Arrived, from: Arrived) {
    for (key, numbers) in from {
        let slot = into.entry(key).or_default();
        for (number, n) in numbers {
            *slot.entry(number).or_default() += n;
        }
    }
}

/// A reuseport program that sends everything to one slot; `u32::MAX`: to the hash.
fn attach_constant_program(link: &RoceLink, slot: u32) {
    let mut filter = [libc::sock_filter {
        code: 6,
        jt: 0,
        jf: 0,
        k: slot,
    }];
    let program = libc::sock_fprog {
        len: 1,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program and its one instruction live through the call; the kernel copies them.
    let ret = unsafe {
        libc::setsockopt(
            link.rx_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as u32,
        )
    };
    assert_eq!(ret, 0, "{}", std::io::Error::last_os_error());
}

/// Until something is there to be read; it comes soon.
pub fn wait_readable(fd: std::os::fd::RawFd) {
    let mut set = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, which lives through the call.
    let ready = unsafe { libc::poll(&raw mut set, 1, PATIENCE.as_millis() as i32) };
    assert_eq!(ready, 1, "nothing is readable");
}

/// Sends what no queue pair takes, faster than it can be looked at, until the flag is set: packets
/// of 16 bytes to `qpn`, 64 by a call, whose ICRC is wrong.
pub fn flood(to: IpAddr, qpn: u32, stop: &std::sync::atomic::AtomicBool) {
    use std::os::fd::AsRawFd;
    let socket = std::net::UdpSocket::bind((to, 0)).expect("an address of ours");
    socket.connect((to, 4791)).expect("the port");
    let mut packet = [0; 16];
    write_packet(&mut packet, qpn, 0);
    let len = packet.len() as i32;
    // SAFETY: the option is an int, which lives through the call.
    let ret = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const len).cast(),
            size_of::<i32>() as u32,
        )
    };
    assert_eq!(ret, 0, "{}", std::io::Error::last_os_error());
    let packets = packet.repeat(64);
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        // For a moment nobody may have the port.
        let _ = socket.send(&packets);
    }
}

/// The end of a cable: what is sent here arrives at the other end as it is.
pub struct CableEnd {
    socket: std::os::fd::OwnedFd,
    ifindex: i32,
}

impl CableEnd {
    /// That of the interface with this number.
    pub fn of(ifindex: i32) -> CableEnd {
        use std::os::fd::FromRawFd;
        // SAFETY: no pointers; a new descriptor is nobody else's.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0, "{}", std::io::Error::last_os_error());
            std::os::fd::OwnedFd::from_raw_fd(fd)
        };
        CableEnd { socket, ifindex }
    }

    /// From now on what comes out of the cable waits for [`receive`](CableEnd::receive).
    pub fn listen(&self) {
        use std::os::fd::AsRawFd;
        let time = libc::timeval {
            tv_sec: PATIENCE.as_secs() as libc::time_t,
            tv_usec: 0,
        };
        // SAFETY: all zero is a sockaddr_ll; the options and the address live through the calls,
        // with the lengths given.
        unsafe {
            let fd = self.socket.as_raw_fd();
            let set = libc::setsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const time).cast(),
                size_of::<libc::timeval>() as u32,
            );
            assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
            let mut at: libc::sockaddr_ll = std::mem::zeroed();
            at.sll_family = libc::AF_PACKET as u16;
            at.sll_protocol = (libc::ETH_P_IP as u16).to_be();
            at.sll_ifindex = self.ifindex;
            let len = size_of::<libc::sockaddr_ll>() as u32;
            let bound = libc::bind(fd, (&raw const at).cast(), len);
            assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
        }
    }

    /// The next frame with an IPv4 packet.
    pub fn receive(&self) -> Vec<u8> {
        use std::os::fd::AsRawFd;
        let mut frame = vec![0; 128 * 1024];
        // SAFETY: the frame has room for what is read into it.
        let len = unsafe {
            let (fd, room) = (self.socket.as_raw_fd(), frame.as_mut_ptr().cast());
            libc::recv(fd, room, frame.len(), 0)
        };
        assert!(len >= 0, "{}", std::io::Error::last_os_error());
        frame.truncate(len as usize);
        frame
    }

    pub fn send(&self, frame: &[u8]) {
        use std::os::fd::AsRawFd;
        // SAFETY: all zero is a sockaddr_ll; the frame and the address live through the call, with
        // the lengths given.
        let sent = unsafe {
            let mut to: libc::sockaddr_ll = std::mem::zeroed();
            to.sll_family = libc::AF_PACKET as u16;
            to.sll_ifindex = self.ifindex;
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const to).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        let error = std::io::Error::last_os_error();
        assert_eq!(sent, frame.len() as isize, "{error}");
    }
}

/// As [`isolated`], but where namespaces cannot be made the test runs here: others who come and go
/// on the port meanwhile may then cost it a packet.
pub fn isolated_if_possible(name: &str) -> bool {
    if std::env::var_os("RNIC_LINK_TEST_ISOLATED").is_none() && !can_isolate() {
        eprintln!("{name}: a network namespace cannot be made here; running in this one");
        return true;
    }
    isolated(name)
}

fn can_isolate() -> bool {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("/bin/true");
    // SAFETY: as in `isolated`.
    unsafe { command.pre_exec(enter_namespace) };
    command.status().is_ok_and(|status| status.success())
}

/// Runs the test named `name`, with its module, again in a network namespace of its own, where
/// nobody else uses the port. True: we are there, go on. False: it was run there, or namespaces
/// cannot be made, which is said.
pub fn isolated(name: &str) -> bool {
    use std::os::unix::process::CommandExt;
    if std::env::var_os("RNIC_LINK_TEST_ISOLATED").is_some() {
        return true;
    }
    let exe = std::env::current_exe().expect("path of this test");
    let mut command = Command::new(exe);
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("RNIC_LINK_TEST_ISOLATED", "1");
    // In a user namespace we are root, and root's own folder is somebody else's.
    let short = name.rsplit("::").next().expect("a name");
    let runtime = std::env::temp_dir().join(format!("rnic-link-{short}-{}", std::process::id()));
    command.env("RNIC_RUNTIME_DIR", &runtime);
    // SAFETY: `enter_namespace` makes system calls only and allocates nothing.
    unsafe { command.pre_exec(enter_namespace) };
    match command.stderr(Stdio::inherit()).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "failed in its namespace: {said}");
            assert!(
                said.contains("1 passed"),
                "no test is called {name}: {said}"
            );
        }
        Err(e) => rnic_skip::skipped(name, &format!("no network namespace here: {e}")),
    }
    let _ = std::fs::remove_dir_all(runtime);
    false
}

fn enter_namespace() -> std::io::Result<()> {
    let last = std::io::Error::last_os_error;
    // SAFETY: plain system calls, every pointer to a local value of the type that the call wants.
    unsafe {
        let uid = libc::geteuid();
        if uid == 0 {
            if libc::unshare(libc::CLONE_NEWNET) != 0 {
                return Err(last());
            }
        } else {
            if libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) != 0 {
                return Err(last());
            }
            // "0 <uid> 1", written without allocating: root in there, so that exec keeps the
            // capabilities.
            let mut digits = [0u8; 10];
            let mut at = digits.len();
            let mut rest = uid;
            while rest > 0 {
                at -= 1;
                digits[at] = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
            let number = &digits[at..];
            let mut map = *b"0              ";
            map[2..2 + number.len()].copy_from_slice(number);
            map[3 + number.len()] = b'1';
            let fd = libc::open(c"/proc/self/uid_map".as_ptr(), libc::O_WRONLY);
            let len = number.len() + 4;
            if fd < 0 || libc::write(fd, map.as_ptr().cast(), len) != len as isize {
                return Err(last());
            }
            libc::close(fd);
        }
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as _;
        request.ifr_name[1] = b'o' as _;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as _;
        if fd < 0 || libc::ioctl(fd, libc::SIOCSIFFLAGS, &raw const request) != 0 {
            return Err(last());
        }
        libc::close(fd);
    }
    Ok(())
}
