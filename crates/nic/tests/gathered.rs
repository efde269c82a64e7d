//! What waits in a send queue for company leaves although its program never polls again, and in order.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rnic_nic::{
    Access, AhAttr, Context, Gid, PathMtu, QpAttr, QpAttrMask as M, QpCap, QpInit, QpState, QpType,
    SendData, SendOp, SendWqe, SgList, Sge,
};

const PATIENCE: Duration = Duration::from_secs(60);
const ROUNDS: u64 = 300;
const POSTS: u64 = 5;

/// The word that the queue pair's peer writes to, and its sources; as atomics, since the NIC writes meanwhile.
#[repr(C)]
struct Words {
    target: AtomicU64,
    sources: [AtomicU64; POSTS as usize],
}

#[test]
fn posts_of_a_program_that_never_polls_arrive() {
    // SAFETY: the only test of this program, and no other thread runs yet.
    unsafe { std::env::set_var("RNIC_HOST_PATH", "off") };
    let context = Context::open().expect("a device");
    let pd = context.alloc_pd();
    let cq = context.create_cq(64, None, 0).expect("a completion queue");
    let create = || {
        pd.create_qp(&QpInit {
            qp_type: QpType::Rc,
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            cap: QpCap {
                max_send_wr: 32,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig_all: true,
            cookie: 0,
        })
        .expect("a queue pair")
    };
    let (a, b) = (create(), create());
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let gid = context
        .gid_table()
        .into_iter()
        .find(|entry| entry.addr == here)
        .expect("127.0.0.1 has a GID");
    for (qp, peer) in [(&a, b.qpn()), (&b, a.qpn())] {
        let attr = QpAttr {
            qp_access_flags: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            port_num: 1,
            path_mtu: Some(PathMtu::M1024),
            dest_qp_num: peer,
            max_dest_rd_atomic: 1,
            max_rd_atomic: 1,
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
        let to = |qp_state, mask| {
            let attr = QpAttr { qp_state, ..attr };
            qp.modify(&attr, M::STATE | mask).expect("modify");
        };
        to(QpState::Init, M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS);
        let rtr = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        to(QpState::Rtr, rtr | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER);
        let rts = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN;
        to(QpState::Rts, rts | M::MAX_QP_RD_ATOMIC);
    }
    let words = Box::new(Words {
        target: AtomicU64::new(0),
        sources: Default::default(),
    });
    let at = &raw const *words;
    // SAFETY: the box outlives the region, which is deregistered below, and its words are atomic.
    let mr = unsafe {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        pd.reg_mr(at.cast_mut().cast(), size_of::<Words>(), at as u64, access)
    }
    .expect("a region");

    for round in 0..ROUNDS {
        for (k, source) in words.sources.iter().enumerate() {
            let value = round * POSTS + k as u64 + 1;
            source.store(value, Ordering::Relaxed);
            let wqe = SendWqe {
                wr_id: value,
                op: SendOp::Write {
                    remote_addr: &raw const words.target as u64,
                    rkey: mr.rkey(),
                },
                data: SendData::Gather(SgList::from_slice(&[Sge {
                    addr: source.as_ptr() as u64,
                    length: 8,
                    lkey: mr.lkey(),
                }])),
                ..SendWqe::default()
            };
            a.post_send(&mut std::iter::once(Ok(wqe))).expect("posted");
        }
        let start = Instant::now();
        let mut seen = 0;
        while seen < (round + 1) * POSTS {
            let now = words.target.load(Ordering::Acquire);
            assert!(now >= seen, "{now} behind {seen}");
            seen = now;
            assert!(
                start.elapsed() < PATIENCE,
                "round {round}: {seen} is the last that came"
            );
        }
        let mut done = 0;
        while done < POSTS as usize {
            assert!(
                start.elapsed() < PATIENCE,
                "round {round}: {done} completed"
            );
            done += cq.poll(16, &mut |_| {}).expect("polled");
        }
        // Polls in vain let the background thread leave the engine to this one.
        for _ in 0..round % 7 * 100 {
            cq.poll(16, &mut |_| {}).expect("polled");
        }
    }
    mr.deregister();
}
