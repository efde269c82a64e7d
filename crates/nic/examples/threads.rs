//! Messages in several threads at once, each with two queue pairs and a completion queue of its own: what shards of the
//! engine are worth on a machine.
//!
//! `threads KIND SIZE BATCH ROUNDS THREADS`: as `messages`, in each thread. Compare `RNIC_SHARDS=1` with as many shards as
//! threads; cores must be there for all of them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Barrier;
use std::time::Instant;

use rnic_nic::{
    Access, AhAttr, Context, Cq, Gid, PathMtu, Pd, Qp, QpAttr, QpAttrMask as M, QpCap, QpInit,
    QpState, QpType, RecvWqe, SendData, SendOp, SendWqe, SgList, Sge, Status,
};

const REGION: usize = 1 << 20;

fn create(pd: &Pd, cq: &Cq) -> Qp {
    pd.create_qp(&QpInit {
        qp_type: QpType::Rc,
        send_cq: cq.clone(),
        recv_cq: cq.clone(),
        srq: None,
        cap: QpCap {
            max_send_wr: 512,
            max_recv_wr: 512,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        sq_sig_all: false,
        cookie: 0,
    })
    .expect("a queue pair")
}

/// INIT, RTR and RTS towards `peer` over the loopback address.
fn connect(context: &Context, qp: &Qp, peer: u32) {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let gid = context
        .gid_table()
        .into_iter()
        .find(|entry| entry.addr == here)
        .expect("127.0.0.1 has a GID");
    let attr = QpAttr {
        qp_access_flags: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        port_num: 1,
        path_mtu: Some(PathMtu::M1024),
        dest_qp_num: peer,
        min_rnr_timer: 1,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ah: AhAttr {
            dgid: Gid::from(here),
            sgid_index: gid.index as u8,
            is_global: true,
            port_num: 1,
            ..AhAttr::default()
        },
        ..QpAttr::default()
    };
    let to = |state, mask| {
        let attr = QpAttr {
            qp_state: state,
            ..attr
        };
        qp.modify(&attr, M::STATE | mask).expect("modify");
    };
    to(QpState::Init, M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS);
    let rtr = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    to(QpState::Rtr, rtr | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER);
    let rts = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN;
    to(QpState::Rts, rts | M::MAX_QP_RD_ATOMIC);
}

struct Ends {
    a: Qp,
    b: Qp,
    cq: Cq,
    from: Sge,
    into: Sge,
    op: SendOp,
    batch: u64,
}

/// Posts one list and takes all its completions.
#[inline(never)]
fn round(ends: &Ends) {
    let sends = ends.op == SendOp::Send;
    if sends {
        let mut receives = (0..ends.batch).map(|wr_id| {
            Ok(RecvWqe {
                wr_id,
                sges: SgList::from_slice(&[ends.into]),
            })
        });
        ends.b.post_recv(&mut receives).expect("receives");
    }
    let mut list = (0..ends.batch).map(|wr_id| {
        Ok(SendWqe {
            wr_id,
            op: ends.op,
            data: SendData::Gather(SgList::from_slice(&[ends.from])),
            signaled: true,
            ..SendWqe::default()
        })
    });
    ends.a.post_send(&mut list).expect("sends");
    let mut missing = ends.batch * if sends { 2 } else { 1 };
    while missing > 0 {
        let taken = ends
            .cq
            .poll(16, &mut |completion| {
                assert_eq!(completion.status, Status::Success)
            })
            .expect("poll");
        missing -= taken as u64;
    }
}

/// One thread's work, from when all are ready: nanoseconds for `rounds` rounds.
fn work(
    context: &Context,
    all: &Barrier,
    sends: bool,
    (size, batch, rounds): (u64, u64, u64),
) -> u64 {
    let pd = context.alloc_pd();
    let cq = context
        .create_cq(2048, None, 0)
        .expect("a completion queue");
    let (a, b) = (create(&pd, &cq), create(&pd, &cq));
    connect(context, &a, b.qpn());
    connect(context, &b, a.qpn());
    let mut bytes = vec![0u8; 2 * REGION];
    let base = bytes.as_mut_ptr();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    // SAFETY: the bytes outlive the region, which ends below, and nobody looks at them meanwhile.
    let mr = unsafe { pd.reg_mr(base, 2 * REGION, base as u64, access) }.expect("a region");
    let sge = |offset: usize| Sge {
        addr: base as u64 + offset as u64,
        length: size as u32,
        lkey: mr.lkey(),
    };
    let op = if sends {
        SendOp::Send
    } else {
        SendOp::Write {
            remote_addr: base as u64 + REGION as u64,
            rkey: mr.rkey(),
        }
    };
    let ends = Ends {
        a,
        b,
        cq,
        from: sge(0),
        into: sge(REGION),
        op,
        batch,
    };
    // The memory, the path and the shard's ring.
    for _ in 0..rounds.min(100) {
        round(&ends);
    }
    all.wait();
    let begun = Instant::now();
    for _ in 0..rounds {
        round(&ends);
    }
    let took = begun.elapsed().as_nanos() as u64;
    let Ends { a, b, .. } = ends;
    drop((a, b));
    mr.deregister();
    took
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, otherwise: u64| {
        words
            .get(at)
            .map_or(otherwise, |word| word.parse().expect("a number"))
    };
    let (size, batch, rounds) = (number(1, 64), number(2, 16), number(3, 20_000));
    let threads = number(4, 2);
    let sends = words.first().is_none_or(|kind| kind != "write");
    let context = Context::open().expect("a device");
    let all = Barrier::new(threads as usize);
    let took: Vec<u64> = std::thread::scope(|scope| {
        let work = || work(&context, &all, sends, (size, batch, rounds));
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ended = running
            .into_iter()
            .map(|thread| thread.join().expect("it ends"));
        ended.collect()
    });
    let slowest = took.iter().copied().max().unwrap_or(1).max(1);
    let messages = threads * rounds * batch;
    println!(
        "{:.2} million messages of {size} bytes a second in {threads} threads, {batch} in a list",
        messages as f64 * 1000.0 / slowest as f64
    );
}
