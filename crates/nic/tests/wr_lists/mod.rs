//! What is posted in lists of all kinds is executed and completes in its order, whichever of it
//! leaves as it is posted.

use crate::pair;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rnic_nic::{
    Access, Context, Cq, Immediate, Mr, QpInit, RecvWqe, SendData, SendOp, SendWqe, SgList, Sge,
    ShortSend, Status,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Of one case.
const MOST: usize = 48;

/// A work request.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    kind: Kind,
    signaled: bool,
}

/// Work requests that are posted together.
#[derive(Clone, Debug)]
pub struct List {
    posted: Vec<Posted>,
    /// All is waited for before the next list is posted: that one has the queue for itself.
    ends: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Send,
    SendImm,
    WriteImm,
    Write,
    Read,
    FetchAdd,
    CompareSwap,
}

/// As atomics, since the NIC writes meanwhile.
#[repr(C)]
struct Words {
    source: [AtomicU64; MOST],
    /// What READs and atomics bring.
    originals: [AtomicU64; MOST],
    /// What messages bring.
    received: [AtomicU64; MOST],
    /// Of the target.
    counter: AtomicU64,
    written: AtomicU64,
}

fn sge(word: &AtomicU64, mr: &Mr) -> Sge {
    Sge {
        addr: word.as_ptr() as u64,
        length: 8,
        lkey: mr.lkey(),
    }
}

/// The next `n` completions, all good: work request and immediate data.
fn completions(cq: &Cq, n: usize) -> Vec<(u64, Immediate)> {
    let start = Instant::now();
    let mut seen = Vec::new();
    while seen.len() < n {
        assert!(start.elapsed() < PATIENCE, "{seen:?} of {n}");
        cq.poll(16, &mut |c| {
            assert_eq!(c.status, Status::Success);
            seen.push((c.wr_id, c.immediate));
        })
        .expect("polled");
    }
    seen
}

/// Posts them, and looks at what came of it.
pub fn run(lists: &[List]) {
    let context = Context::open().expect("a device");
    let pd = context.alloc_pd();
    let queue = || context.create_cq(MOST as u32, None, 0).expect("a queue");
    let (sends, receives, other) = (queue(), queue(), queue());
    let init = QpInit {
        sq_sig_all: false,
        ..pair::init(&sends, &other, None, MOST as u32)
    };
    let a = pd.create_qp(&init).expect("a queue pair");
    let b = pair::create(&pd, &other, &receives, None, MOST as u32);
    pair::connect(&context, &a, &b);
    let words = Box::new(Words {
        source: std::array::from_fn(|i| AtomicU64::new(1000 + i as u64)),
        originals: [const { AtomicU64::new(u64::MAX) }; MOST],
        received: [const { AtomicU64::new(0) }; MOST],
        counter: AtomicU64::new(0),
        written: AtomicU64::new(0),
    });
    let at = std::ptr::from_ref(&*words).cast_mut().cast::<u8>();
    let access =
        Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    // SAFETY: the words outlive the region, and all that touches them meanwhile is atomic.
    let mr = unsafe { pd.reg_mr(at, size_of::<Words>(), at as u64, access) }.expect("a region");
    for (i, word) in words.received.iter().enumerate() {
        let wqe = RecvWqe {
            wr_id: i as u64,
            sges: SgList::from_slice(&[sge(word, &mr)]),
        };
        b.post_recv(&mut std::iter::once(Ok(wqe))).expect("posted");
    }

    let (mut counter, mut written) = (0, 0);
    let (mut originals, mut reads, mut messages) = (Vec::new(), Vec::new(), Vec::new());
    let mut posted = 0;
    let (mut signaled, mut done) = (Vec::new(), Vec::new());
    for (n, list) in lists.iter().enumerate() {
        let mut wqes = Vec::new();
        let ends = list.ends || n + 1 == lists.len();
        for (k, one) in list.posted.iter().enumerate() {
            // All before it is complete with it.
            let signals = one.signaled || ends && k + 1 == list.posted.len();
            if signals {
                signaled.push(posted as u64);
            }
            let (i, value) = (posted, 1000 + posted as u64);
            posted += 1;
            let rkey = mr.rkey();
            let imm = (i as u32).to_be_bytes();
            let target = |word: &AtomicU64| word.as_ptr() as u64;
            let (mut local, counter_at) = (&words.source[i], target(&words.counter));
            let op = match one.kind {
                Kind::Send => {
                    messages.push((value, Immediate::None));
                    SendOp::Send
                }
                Kind::SendImm => {
                    messages.push((value, Immediate::Data(imm)));
                    SendOp::SendImm(imm)
                }
                Kind::WriteImm | Kind::Write => {
                    written = value;
                    let remote_addr = target(&words.written);
                    if matches!(one.kind, Kind::WriteImm) {
                        messages.push((0, Immediate::Data(imm)));
                        SendOp::WriteImm {
                            remote_addr,
                            rkey,
                            imm,
                        }
                    } else {
                        SendOp::Write { remote_addr, rkey }
                    }
                }
                Kind::Read => {
                    local = &words.originals[i];
                    // What is behind it may be done before it is read (IBTA vol. 1, 10.8.3.3: it
                    // would take a fence).
                    reads.push((i, counter));
                    SendOp::Read {
                        remote_addr: counter_at,
                        rkey,
                    }
                }
                Kind::FetchAdd | Kind::CompareSwap => {
                    local = &words.originals[i];
                    originals.push((i, counter));
                    let before = counter;
                    let remote_addr = counter_at;
                    if matches!(one.kind, Kind::FetchAdd) {
                        counter += 1;
                        SendOp::FetchAdd {
                            remote_addr,
                            rkey,
                            add: 1,
                        }
                    } else {
                        counter += 100;
                        SendOp::CompareSwap {
                            remote_addr,
                            rkey,
                            compare: before,
                            swap: counter,
                        }
                    }
                }
            };
            wqes.push(SendWqe {
                wr_id: i as u64,
                op,
                data: SendData::Gather(SgList::from_slice(&[sge(local, &mr)])),
                signaled: signals,
                ..SendWqe::default()
            });
        }
        // As the C ABI does.
        let short = match &wqes[..] {
            [only] => ShortSend::of(only),
            _ => None,
        };
        if !short.is_some_and(|short| a.post_short(short)) {
            pair::post(&a, &mut wqes);
        }
        if ends {
            let some = completions(&sends, signaled.len() - done.len());
            done.extend(some.into_iter().map(|(wr, _)| wr));
        }
    }

    assert_eq!(done, signaled, "completed out of order");
    let came = completions(&receives, messages.len());
    for (place, ((wr, immediate), (value, wanted))) in came.iter().zip(&messages).enumerate() {
        assert_eq!((*wr, *immediate), (place as u64, *wanted));
        let word = words.received[place].load(Ordering::Relaxed);
        assert_eq!(word, *value, "message {place}");
    }
    for (i, wanted) in originals {
        let original = words.originals[i].load(Ordering::Relaxed);
        assert_eq!(original, wanted, "atomic {i}");
    }
    for (i, least) in reads {
        let read = words.originals[i].load(Ordering::Relaxed);
        assert!((least..=counter).contains(&read), "READ {i}: {read}");
    }
    assert_eq!(words.counter.load(Ordering::Relaxed), counter);
    assert_eq!(words.written.load(Ordering::Relaxed), written);
    mr.deregister();
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        2 => Just(Kind::Send),
        1 => Just(Kind::SendImm),
        1 => Just(Kind::WriteImm),
        1 => Just(Kind::Write),
        1 => Just(Kind::Read),
        3 => Just(Kind::FetchAdd),
        1 => Just(Kind::CompareSwap),
    ]
}

/// More atomics than may be under way at once included.
pub fn lists() -> impl Strategy<Value = Vec<List>> {
    let one = (kinds(), any::<bool>()).prop_map(|(kind, signaled)| Posted { kind, signaled });
    let list = (prop::collection::vec(one, 1..8), any::<bool>());
    let list = list.prop_map(|(posted, ends)| List { posted, ends });
    prop::collection::vec(list, 1..7)
}
