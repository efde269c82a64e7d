//! A peer that is stopped in the middle of an RDMA WRITE, which it executes by itself: the region's
//! memory outlives the region.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rnic::exchange::Exchange;
use rnic::{
    CompletionQueue, Context, QueuePair, Rc, RemoteMemory, SendRequest, Status, WritableRegion,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Takes a while, and has a mapping of its own, which freeing it ends.
const LONG: usize = 64 << 20;
/// Where the other process finds this one.
const PLACE: &str = "RNIC_TEST_PLACE";

/// The other process, ended with its handle.
struct Peer(Child);

impl Peer {
    fn start(place: String) -> Peer {
        let this = std::env::current_exe().expect("own path");
        let args = ["--ignored", "--exact", "stopped_peer::the_peer"];
        let mut command = Command::new(this);
        let command = command.args(args).env(PLACE, place);
        let child = command.stdout(Stdio::null()).spawn();
        Peer(child.expect("it starts"))
    }

    /// Its connection; it may end without one.
    fn call(&mut self, listener: &TcpListener) -> TcpStream {
        listener.set_nonblocking(true).expect("a socket");
        loop {
            match listener.accept() {
                Ok((stream, _)) => return stream,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            assert!(self.0.try_wait().expect("our child").is_none(), "it runs");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// On return none of its threads runs.
    fn stop(&self) {
        let pid = self.0.id();
        // SAFETY: takes no pointer; the child has not been waited for, so the number is its own.
        assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGSTOP) }, 0);
        let how = libc::WSTOPPED | libc::WNOWAIT;
        // SAFETY: of plain C integers; all zeros are a value of it.
        let mut info = unsafe { std::mem::zeroed() };
        // SAFETY: `info` is a place for the answer.
        let waited = unsafe { libc::waitid(libc::P_PID, pid, &mut info, how) };
        assert_eq!(waited, 0);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Something is mapped there.
fn is_mapped(address: u64) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
    maps.lines().any(|line| {
        let range = line.split(' ').next().and_then(|r| r.split_once('-'));
        let (from, to) = range.expect("a range");
        let number = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
        (number(from)..number(to)).contains(&address)
    })
}

/// What a peer writes to, and the peer, which is stopped: in the middle of a write or, now and
/// then, between two.
struct Target {
    region: WritableRegion,
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    peer: Peer,
}

impl Target {
    /// `None`: processes do not reach each other's memory here.
    fn with_stopped_peer() -> Option<Target> {
        let context = Context::open().expect("the device opens");
        let gid = context.loopback_gid().expect("an address");
        let pd = context.alloc_pd().expect("pd");
        let cq = context.create_cq(16).build().expect("cq");
        // A READ fails, and the queue pair with it, without a peer.
        let qp = pd.create_qp::<Rc>(&cq, &cq).gid(&gid);
        let qp = qp.max_rd_atomic(0, 16).build().expect("qp");
        let region = pd.writable(LONG).build().expect("memory");

        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut peer = Peer::start(listener.local_addr().expect("its address").to_string());
        let mut exchange = Exchange::from_tcp(peer.call(&listener)).expect("TCP");
        let remote = exchange.swap_endpoints(&qp.endpoint()).expect("swapped");
        let qp = qp.handshake(remote).expect("handshake");
        exchange.send(&region.remote().to_bytes()).expect("sent");
        if exchange.recv().expect("its answer") != b"reaches" {
            rnic_skip::skipped(
                "a peer that is stopped in the middle of a WRITE",
                "processes may not reach each other's memory here",
            );
            return None;
        }
        let deadline = Instant::now() + PATIENCE;
        let comes = |at| {
            while region.load_u8(at).expect("in range") == 0 {
                assert!(Instant::now() < deadline, "it writes");
            }
        };
        comes(LONG - 1);
        // Not at the end of a write, where it is busy with other things, but when one has begun.
        region.copy_in(0, &[0]).expect("in range");
        comes(0);
        peer.stop();
        Some(Target {
            region,
            qp,
            cq,
            peer,
        })
    }
}

/// By packets nobody but this process writes to its memory.
fn by_packets() -> bool {
    std::env::var("RNIC_HOST_PATH").is_ok_and(|path| path == "off" || path == "rings")
}

/// Processes write to each other's memory by the software NIC alone.
fn is_hardware() -> bool {
    crate::device().back_end != rnic::BackEnd::Software
}

/// Nothing else gets memory that a peer may still write to.
#[test]
fn memory_that_a_stopped_peer_may_write_to_is_not_freed() {
    if by_packets() || is_hardware() {
        return;
    }
    for _ in 0..10 {
        let Some(target) = Target::with_stopped_peer() else {
            return;
        };
        let middle = target.region.remote().addr + LONG as u64 / 2;
        assert!(is_mapped(middle));
        drop(target.region);
        if is_mapped(middle) {
            return;
        }
    }
    panic!("its memory was freed each time");
}

/// Whoever destroys a queue pair may give its memory to others. A peer's write that is under way is
/// waited for, a second at most, though the queue pair has failed by itself before.
#[test]
fn a_write_under_way_is_waited_for_after_an_error() {
    if by_packets() || is_hardware() {
        return;
    }
    for _ in 0..10 {
        let Some(target) = Target::with_stopped_peer() else {
            return;
        };
        let Target {
            region,
            qp,
            cq,
            peer,
        } = target;
        let buffer = qp.pd().buffer(8).expect("memory");
        qp.post(SendRequest::read(buffer, region.remote()))
            .expect("posted");
        let done = cq.wait(PATIENCE).expect("a completion");
        assert_eq!(done.status(), Status::LocalQpOperationError);
        let start = Instant::now();
        drop(qp);
        if start.elapsed() > Duration::from_millis(900) {
            return;
        }
        drop((region, peer));
    }
    panic!("it was not waited for");
}

/// Writes for ever.
#[test]
#[ignore = "the other process of the test"]
fn the_peer() {
    let place = std::env::var(PLACE).expect("started by the test");
    let mut exchange = Exchange::connect(place, PATIENCE).expect("TCP");
    let context = Context::open().expect("the device opens");
    let gid = context.loopback_gid().expect("an address");
    let pd = context.alloc_pd().expect("pd");
    let cq = context.create_cq(16).build().expect("cq");
    let qp = pd.create_qp::<Rc>(&cq, &cq).gid(&gid).build().expect("qp");
    let remote = exchange.swap_endpoints(&qp.endpoint()).expect("swapped");
    let qp = qp.handshake(remote).expect("handshake");
    let region = RemoteMemory::from_bytes(&exchange.recv().expect("a region")).expect("a region");
    // The first one takes a packet.
    let reached = || rnic::stats().map_or(0, |(link, _)| link.tx_reached_bytes);
    let deadline = Instant::now() + PATIENCE;
    while reached() == 0 && Instant::now() < deadline {
        qp.post(SendRequest::write_inline(&[0; 8], region))
            .expect("posted");
        cq.wait(PATIENCE)
            .expect("a completion")
            .ok()
            .expect("success");
    }
    let answer: &[u8] = if reached() > 0 {
        b"reaches"
    } else {
        b"does not"
    };
    exchange.send(answer).expect("sent");
    let mut buffer = pd.buffer(LONG).expect("memory");
    buffer.fill(1);
    loop {
        qp.post(SendRequest::write(buffer, region)).expect("posted");
        let done = cq.wait(PATIENCE).expect("a completion");
        if done.status() != Status::Success {
            return;
        }
        buffer = done.into_buffer().expect("comes back");
    }
}
