//! A short message that waits for a batch as a packet leaves although its program never polls
//! again, and in order; so does one that asks for no acknowledge, because its program signals few.

use crate::environment;
use crate::pair;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rnic_nic::{
    Access, Context, Mr, Qp, QpCap, QpInit, QpType, RecvWqe, SendData, SendOp, SendWqe, SgList,
    Sge, ShortSend, Status,
};

const PATIENCE: Duration = Duration::from_secs(60);
const ROUNDS: u64 = 200;
/// One in so many is signaled,
const PERIOD: u64 = 100;
/// but these are not.
const POSTS: usize = 40;

/// What is sent from, and received to; as atomics, since the NIC writes meanwhile.
#[repr(C)]
struct Words {
    source: AtomicU64,
    targets: [AtomicU64; POSTS],
}

fn sge(word: &AtomicU64, mr: &Mr) -> Sge {
    Sge {
        addr: word.as_ptr() as u64,
        length: 8,
        lkey: mr.lkey(),
    }
}

fn receive(qp: &Qp, word: &AtomicU64, mr: &Mr) {
    let wqe = RecvWqe {
        wr_id: 0,
        sges: SgList::from_slice(&[sge(word, mr)]),
    };
    qp.post_recv(&mut std::iter::once(Ok(wqe))).expect("posted");
}

fn send(qp: &Qp, word: &AtomicU64, mr: &Mr, signaled: bool) {
    let wqe = SendWqe {
        op: SendOp::Send,
        data: SendData::Gather(SgList::from_slice(&[sge(word, mr)])),
        signaled,
        ..SendWqe::default()
    };
    let short = ShortSend::of(&wqe).expect("a short one");
    // As the C ABI does.
    if !qp.post_short(short) {
        qp.post_send(&mut std::iter::once(Ok(wqe))).expect("posted");
    }
}

#[test]
fn short_messages_of_a_program_that_never_polls_arrive() {
    environment::set("RNIC_HOST_PATH", "off");
    let context = Context::open().expect("a device");
    let pd = context.alloc_pd();
    let cq = context.create_cq(1024, None, 0).expect("a queue");
    let [a, b] = [(); 2].map(|()| {
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
    });
    pair::connect(&context, &a, &b);
    let words = Box::new(Words {
        source: AtomicU64::new(0),
        targets: std::array::from_fn(|_| AtomicU64::new(0)),
    });
    let at = &raw const *words;
    // SAFETY: the box outlives the region, which is deregistered below, and its words are atomic.
    let mr = unsafe {
        let access = Access::LOCAL_WRITE;
        pd.reg_mr(at.cast_mut().cast(), size_of::<Words>(), at as u64, access)
    }
    .expect("a region");
    let poll = |n: usize| {
        let (start, mut done) = (Instant::now(), 0);
        while done < n {
            assert!(start.elapsed() < PATIENCE, "{done} of {n} completed");
            let found = cq.poll(64, &mut |c| assert_eq!(c.status, Status::Success));
            done += found.expect("polled");
        }
    };

    for round in 1..=ROUNDS {
        // How many are signaled is learned.
        for n in 1..=PERIOD {
            receive(&b, &words.targets[0], &mr);
            send(&a, &words.source, &mr, n == PERIOD);
        }
        poll(PERIOD as usize + 1);
        words.source.store(round, Ordering::Relaxed);
        for target in &words.targets {
            receive(&b, target, &mr);
        }
        for _ in 0..POSTS {
            send(&a, &words.source, &mr, false);
        }
        let start = Instant::now();
        let mut came = 0;
        while came < POSTS {
            assert!(start.elapsed() < PATIENCE, "round {round}: {came} came");
            // From the end: what lies before must be there as well.
            let is_there = |at: &AtomicU64| at.load(Ordering::Acquire) == round;
            came = words
                .targets
                .iter()
                .rposition(is_there)
                .map_or(0, |n| n + 1);
            assert!(words.targets[..came].iter().all(is_there));
        }
        poll(POSTS);
    }
    mr.deregister();
}
