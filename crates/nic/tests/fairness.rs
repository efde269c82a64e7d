//! A bulk transfer does not starve a ping-pong of the same engine: what of it passes while a short
//! message is on its way stays below what a queue pair has under way when it is alone.
//!
//! Counted in bytes, not in time, so that it holds on a loaded machine. Not under sanitizers
//! (`./test sanitize` skips it), which slow the engine down tenfold, and what the kernel does not.

use crate::pair;

use std::process::Command;
use std::time::{Duration, Instant};

use rnic_nic::{
    Completion, Context, Cq, Mr, Pd, Qp, RecvWqe, SendData, SendOp, SendWqe, SgList, Sge, Status,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the bulk's messages, and how many of them are posted at any time: four windows.
const LONG: usize = 256 * 1024;
const DEPTH: usize = 16;
/// Short messages, there and back, and their bytes.
const TRIPS: usize = 50;
const BATCHES: usize = 8;
const SHORT: usize = 8;

/// KiB of the bulk that may pass for each short message, by path. Where nobody sees to it: 4100
/// without packets, 770 by rings, and 390 (WRITE) and 510 (READ) by UDP.
const MOST: [(&str, u64); 3] = [("on", 700), ("rings", 640), ("off", 500)];
const PATH: &str = "RNIC_HOST_PATH";

/// Two connected queue pairs, with what they send from and into.
struct Pair {
    qps: [Qp; 2],
    sent: Cq,
    received: Cq,
    mr: Mr,
    // Goes after the region.
    _buffer: Vec<u8>,
}

impl Pair {
    fn new(context: &Context, pd: &Pd, length: usize) -> Pair {
        let cq = || context.create_cq(256, None, 0).expect("a completion queue");
        let (sent, received) = (cq(), cq());
        let qps = [(); 2].map(|()| pair::create(pd, &sent, &received, None, 64));
        pair::connect(context, &qps[0], &qps[1]);
        let mut buffer = vec![7u8; 2 * length];
        let at = buffer.as_mut_ptr();
        // SAFETY: the buffer outlives the region, and nobody looks at it meanwhile.
        let mr = unsafe { pd.reg_mr(at, buffer.len(), at as u64, pair::RIGHTS) };
        Pair {
            qps,
            sent,
            received,
            mr: mr.expect("a region"),
            _buffer: buffer,
        }
    }

    fn part(&self, second: usize, length: usize) -> SgList {
        SgList::from_slice(&[Sge {
            addr: self.mr.addr() + (second * length) as u64,
            length: length as u32,
            lkey: self.mr.lkey(),
        }])
    }

    fn post(&self, qp: usize, op: SendOp, length: usize) {
        let wqe = SendWqe {
            op,
            data: SendData::Gather(self.part(0, length)),
            ..SendWqe::default()
        };
        let mut list = std::iter::once(Ok(wqe));
        self.qps[qp].post_send(&mut list).expect("posted");
    }

    /// One more message of the bulk.
    fn go_on(&self, read: bool) {
        let (remote_addr, rkey) = (self.mr.addr() + LONG as u64, self.mr.rkey());
        let op = match read {
            true => SendOp::Read { remote_addr, rkey },
            false => SendOp::Write { remote_addr, rkey },
        };
        self.post(0, op, LONG);
    }
}

/// Completions, at most so many.
fn take(cq: &Cq, most: usize) -> usize {
    let mut check = |completion: &Completion| assert_eq!(completion.status, Status::Success);
    cq.poll(most, &mut check).expect("polled")
}

/// Bytes of the bulk that have moved.
fn moved(bulk: &Pair) -> u64 {
    let counters = bulk.qps[0].counters();
    counters.bytes_sent + counters.bytes_received + counters.without_packets.total().bytes
}

/// A short message goes from that queue pair to the other. What completes of the bulk meanwhile is
/// posted anew.
fn trip(bulk: &Pair, ping: &Pair, from: usize, read: bool) {
    let receive = RecvWqe {
        wr_id: 0,
        sges: ping.part(1, SHORT),
    };
    let mut list = std::iter::once(Ok(receive));
    ping.qps[1 - from].post_recv(&mut list).expect("posted");
    ping.post(from, SendOp::Send, SHORT);
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "it has not come");
        for _ in 0..take(&bulk.sent, 16) {
            bulk.go_on(read);
        }
        if take(&ping.received, 1) == 1 {
            break;
        }
    }
    take(&ping.sent, 1);
}

fn measure(bulk: &Pair, ping: &Pair, read: bool) {
    let path = std::env::var(PATH).unwrap_or("on".into());
    let most = MOST.iter().find(|(name, _)| *name == path);
    let (_, most) = *most.expect("a path");
    for _ in 0..DEPTH {
        bulk.go_on(read);
    }
    let batch = |_| {
        let before = moved(bulk);
        for k in 0..TRIPS {
            trip(bulk, ping, k % 2, read);
        }
        (moved(bulk) - before) / 1024 / TRIPS as u64
    };
    // In some of them the bulk may have had a core while the ping-pong had none, or the other way
    // round.
    let mut each: Vec<u64> = (0..BATCHES).map(&batch).collect();
    // All of them are sooner over than the bulk's ACK timeout, should the network have lost
    // something of it at first.
    let start = Instant::now();
    while each.iter().all(|moved| *moved < 16) && start.elapsed() < PATIENCE {
        each.push(batch(0));
    }
    println!("{path}: {each:?} KiB for each, read: {read}");
    let (least, greatest) = (each.iter().min(), each.iter().max());
    assert!(
        least <= Some(&most),
        "so much of the bulk passes a short message"
    );
    assert!(greatest >= Some(&16), "nor is the bulk starved");
    let mut left = DEPTH;
    let start = Instant::now();
    while left > 0 {
        assert!(start.elapsed() < PATIENCE, "{left} left");
        left -= take(&bulk.sent, 16);
    }
}

/// Run by the others in a process of its own, since paths and shards are chosen as the device is
/// opened.
#[test]
#[ignore = "a part of the other tests"]
fn measure_both() {
    let context = Context::open().expect("a device");
    let pd = context.alloc_pd();
    let bulk = Pair::new(&context, &pd, LONG);
    let ping = Pair::new(&context, &pd, SHORT);
    for read in [false, true] {
        measure(&bulk, &ping, read);
    }
}

fn by(path: &str) {
    // Their queue pairs are in one engine, and in two, which one thread drives.
    for shards in ["1", "2"] {
        by_shards(path, shards);
    }
}

fn by_shards(path: &str, shards: &str) {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program)
        .args([
            "--exact",
            "fairness::measure_both",
            "--ignored",
            "--nocapture",
        ])
        .env(PATH, path)
        .env("RNIC_SHARDS", shards)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{path}, {shards} shards: {}\n{said}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_bulk_transfer_does_not_starve_a_ping_pong_without_packets() {
    by("on");
}

#[test]
fn a_bulk_transfer_does_not_starve_a_ping_pong_by_rings() {
    by("rings");
}

#[test]
fn a_bulk_transfer_does_not_starve_a_ping_pong_by_udp() {
    by("off");
}
