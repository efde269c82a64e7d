//! The data path takes no memory that it has not taken before: once each operation was done for a
//! while, neither the thread that posts and polls nor the engine's own allocates, whichever way
//! packets go.

mod pair;
mod region;

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use region::{Region, wait};
use rnic_nic::{
    AhAttr, Context, Cq, Gid, Mr, Pd, Qp, QpAttr, QpAttrMask as M, QpInit, QpState, QpType,
    RecvWqe, SendData, SendOp, SendWqe, SgList, Sge, Srq, SrqInit,
};

/// Allocations are counted.
static COUNTED: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn count() {
    if COUNTED.load(Ordering::Relaxed) {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: the system's allocator does all.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's contract.
        unsafe { System.realloc(block, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROOM: usize = 256 * 1024;
const DEPTH: u32 = 16;
const GRH: usize = 40;
const QKEY: u32 = 7;

/// Two queue pairs of a kind, and their memory.
struct Both {
    cq: Cq,
    qps: [Qp; 2],
    srq: Option<Srq>,
    regions: [Region; 2],
}

fn both(context: &Context, pd: &Pd, qp_type: QpType, shared: bool) -> Both {
    let cq = context.create_cq(4 * DEPTH, None, 0).expect("a queue");
    let srq = shared.then(|| {
        let init = SrqInit {
            max_wr: DEPTH,
            max_sge: 2,
            xrc: None,
            cookie: 0,
        };
        pd.create_srq(&init).expect("a shared receive queue")
    });
    let qps = [None, srq.as_ref()].map(|srq| {
        let init = QpInit {
            qp_type,
            ..pair::init(&cq, &cq, srq, DEPTH)
        };
        pd.create_qp(&init).expect("a queue pair")
    });
    let [a, b] = &qps;
    if qp_type == QpType::Ud {
        qps.iter().for_each(to_rts);
    } else {
        pair::connect(context, a, b);
    }
    Both {
        cq,
        qps,
        srq,
        regions: [(); 2].map(|()| Region::new(pd, ROOM, |_| 7)),
    }
}

fn to_rts(qp: &Qp) {
    let attr = QpAttr {
        port_num: 1,
        qkey: QKEY,
        ..QpAttr::default()
    };
    let init = M::PKEY_INDEX | M::PORT | M::QKEY;
    for (qp_state, mask) in [
        (QpState::Init, init),
        (QpState::Rtr, M::STATE),
        (QpState::Rts, M::SQ_PSN),
    ] {
        let attr = QpAttr { qp_state, ..attr };
        qp.modify(&attr, M::STATE | mask).expect("modify");
    }
}

impl Both {
    fn piece(&self, of: usize, at: usize, len: usize) -> Sge {
        self.regions[of].sge(at, len)
    }

    fn post(&self, op: SendOp, data: SendData) {
        let wqe = SendWqe {
            wr_id: 1,
            op,
            data,
            signaled: true,
            ..SendWqe::default()
        };
        let posted = self.qps[0].post_send(&mut std::iter::once(Ok(wqe)));
        posted.map_err(|(_, why)| why).expect("posted");
    }

    fn receive(&self, len: usize) {
        let mut sges = SgList::new();
        sges.push(self.piece(1, 0, len));
        let wqe = RecvWqe { wr_id: 2, sges };
        let mut one = std::iter::once(Ok(wqe));
        let posted = match &self.srq {
            Some(srq) => srq.post_recv(&mut one),
            None => self.qps[1].post_recv(&mut one),
        };
        posted.map_err(|(_, why)| why).expect("posted");
    }

    fn gather(&self, len: usize, pieces: usize) -> SendData {
        let each = len / pieces;
        let list = (0..pieces).map(|n| self.piece(0, n * each, each));
        SendData::Gather(list.collect())
    }

    /// SENDs of that length, as many as fit at a time.
    fn messages(&self, op: &SendOp, data: impl Fn() -> SendData, len: usize, prefix: usize) {
        for _ in 0..DEPTH {
            self.receive(len + prefix);
        }
        for _ in 0..DEPTH {
            self.post(*op, data());
        }
        wait(&self.cq, 2 * DEPTH as usize);
    }
}

fn traffic(rc: &Both, shared: &Both, uc: &Both, ud: &Both, to: &SendOp, counter: &Mr) {
    for both in [rc, shared, uc] {
        for (len, pieces) in [(8, 1), (500, 1), (4000, 2), (100_000, 1), (100_000, 2)] {
            both.messages(&SendOp::Send, || both.gather(len, pieces), len, 0);
        }
        let inline = || SendData::Inline([7; 60].into_iter().collect());
        both.messages(&SendOp::Send, inline, 60, 0);
    }
    for (len, pieces) in [(8, 1), (500, 2)] {
        ud.messages(to, || ud.gather(len, pieces), len, GRH);
    }
    let (remote_addr, rkey) = (rc.regions[1].mr.addr(), rc.regions[1].mr.rkey());
    for len in [8, 500, 100_000] {
        for op in [
            SendOp::Write { remote_addr, rkey },
            SendOp::Read { remote_addr, rkey },
        ] {
            for _ in 0..DEPTH {
                rc.post(op, rc.gather(len, 2));
            }
            wait(&rc.cq, DEPTH as usize);
        }
    }
    let rkey = counter.rkey();
    for _ in 0..DEPTH {
        let op = SendOp::FetchAdd {
            remote_addr,
            rkey,
            add: 1,
        };
        rc.post(op, rc.gather(8, 1));
    }
    wait(&rc.cq, DEPTH as usize);
}

#[test]
fn traffic_by_memory_takes_none() {
    in_a_process("on");
}

#[test]
fn traffic_by_rings_takes_no_memory() {
    in_a_process("rings");
}

#[test]
fn traffic_over_udp_takes_no_memory() {
    in_a_process("off");
}

/// One process each: the way is chosen when the device is opened, and the allocations of all
/// threads are counted. They have a network namespace each, and take turns: UC loses what another
/// process at the port makes late.
fn in_a_process(path: &str) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/alone"))
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "inner", "--ignored"])
        .env("RNIC_HOST_PATH", path)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let ran = said.contains("1 passed");
    assert!(output.status.success() && ran, "{said}");
}

#[test]
#[ignore = "started by the other tests"]
fn inner() {
    let context = Context::open().expect("a device");
    let pd = context.alloc_pd();
    let rc = both(&context, &pd, QpType::Rc, false);
    let shared = both(&context, &pd, QpType::Rc, true);
    let uc = both(&context, &pd, QpType::Uc, false);
    let ud = both(&context, &pd, QpType::Ud, false);
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let row = context.gid_table().into_iter().find(|row| row.addr == here);
    let ah = pd.create_ah(&AhAttr {
        dgid: Gid::from(here),
        sgid_index: row.expect("127.0.0.1 has a GID").index as u8,
        is_global: true,
        port_num: 1,
        ..AhAttr::default()
    });
    let ah = ah.expect("an address handle");
    let to = SendOp::Datagram {
        to: ah.address(ud.qps[1].qpn(), QKEY),
        imm: None,
    };
    let at = rc.regions[1].mr.addr();
    // SAFETY: the region's memory, which outlives both and nobody looks at.
    let counter = unsafe { pd.reg_mr(at as *mut u8, 8, at, pair::RIGHTS) };
    let counter = counter.expect("a region");
    for _ in 0..20 {
        traffic(&rc, &shared, &uc, &ud, &to, &counter);
    }
    // Once a second or so the engine's thread looks after the files that processes share, and after
    // a socket that others fill: that is not the data path, and may take memory. What the data path
    // takes it takes each time. Where the rounds take so long that each time has such a second in
    // it (under emulation), fewer rounds are a time.
    let mut count = usize::MAX;
    let mut rounds = 20;
    for _ in 0..20 {
        let began = Instant::now();
        COUNT.store(0, Ordering::SeqCst);
        COUNTED.store(true, Ordering::SeqCst);
        for _ in 0..rounds {
            traffic(&rc, &shared, &uc, &ud, &to, &counter);
        }
        COUNTED.store(false, Ordering::SeqCst);
        count = COUNT.load(Ordering::SeqCst);
        if count == 0 {
            break;
        }
        if began.elapsed() > Duration::from_millis(300) {
            rounds = (rounds / 2).max(1);
        }
    }
    // It does count.
    COUNTED.store(true, Ordering::SeqCst);
    drop(std::hint::black_box(Box::new(1)));
    COUNTED.store(false, Ordering::SeqCst);
    assert_eq!(COUNT.load(Ordering::SeqCst), count + 1);
    assert_eq!(count, 0, "allocations in {rounds} rounds");
    pair::deregister(counter);
    for both in [rc, shared, uc, ud] {
        drop(both.qps);
        both.regions
            .into_iter()
            .for_each(|region| drop(region.revoke()));
    }
}
