//! An engine in three shards is one device: queue pairs of different shards exchange messages,
//! share completion queues, receive queues, memory and windows, and whatever ends, ends in all of
//! them.

use crate::environment;
use crate::pair;

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::pair::{RIGHTS, connect, create};
use rnic_nic::{
    Completion, Context, Cq, Mr, MwType, Pd, Qp, QpAttr, QpAttrMask as M, QpState, RecvWqe,
    SendData, SendOp, SendWqe, SgList, Sge, ShortSend, SrqInit, Status,
};
use rnic_transport::BindWindow;

const PATIENCE: Duration = Duration::from_secs(60);
const SHARDS: usize = 3;

fn open() -> Context {
    static SET: Once = Once::new();
    SET.call_once(|| environment::set("RNIC_SHARDS", SHARDS.to_string()));
    Context::open().expect("the device opens")
}

fn cq(context: &Context) -> Cq {
    context
        .create_cq(1024, None, 0)
        .expect("a completion queue")
}

/// Each with a completion queue of its own. Each SHARDS of them that follow one another are in
/// different shards, as their numbers say.
fn apart<const N: usize>(context: &Context, pd: &Pd) -> [(Qp, Cq); N] {
    let mut ranges = Vec::new();
    // While they are there, the next ones are where fewer are.
    let mut others = Vec::new();
    [(); N].map(|()| {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "completion queues take turns");
            let cq = cq(context);
            let qp = create(pd, &cq, &cq, None, 64);
            let range = qp.qpn() >> 12;
            let around = ranges.len() % SHARDS;
            if !ranges[ranges.len() - around..].contains(&range) {
                ranges.push(range);
                return (qp, cq);
            }
            others.push((qp, cq));
        }
    })
}

/// Memory with its region. Words, as the NIC writes them while others look.
struct Region {
    words: Box<[AtomicU64]>,
    mr: Mr,
}

impl Region {
    fn new(pd: &Pd, words: usize) -> Region {
        let words: Box<[AtomicU64]> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let at = words.as_ptr().cast_mut().cast();
        // SAFETY: the words outlive the region: `revoke` ends it before, and else they are left for
        // good.
        let mr = unsafe { pd.reg_mr(at, 8 * words.len(), at as u64, RIGHTS) };
        Region {
            mr: mr.expect("a region"),
            words,
        }
    }

    /// Deregisters, then gives the words, which the NIC cannot touch any more.
    fn revoke(self) -> Box<[AtomicU64]> {
        pair::deregister(self.mr);
        self.words
    }

    fn sge(&self, word: usize, words: usize) -> Sge {
        Sge {
            addr: self.mr.addr() + 8 * word as u64,
            length: 8 * words as u32,
            lkey: self.mr.lkey(),
        }
    }
}

fn post(qp: &Qp, wr_id: u64, op: SendOp, sge: Sge) {
    let wqe = SendWqe {
        wr_id,
        op,
        data: SendData::Gather(SgList::from_slice(&[sge])),
        signaled: true,
        ..SendWqe::default()
    };
    // As the C ABI does.
    if !ShortSend::of(&wqe).is_some_and(|short| qp.post_short(short)) {
        qp.post_send(&mut std::iter::once(Ok(wqe))).expect("posted");
    }
}

/// Polls until `n` completions came.
fn poll(cq: &Cq, n: usize) -> Vec<Completion> {
    let start = Instant::now();
    let mut got = Vec::new();
    while got.len() < n {
        let waited = start.elapsed();
        assert!(waited < PATIENCE, "{} of {n} completions", got.len());
        cq.poll(n - got.len(), &mut |c| got.push(*c)).expect("poll");
    }
    got
}

fn poll_well(cq: &Cq, n: usize) -> Vec<Completion> {
    let got = poll(cq, n);
    assert!(got.iter().all(|c| c.status == Status::Success), "{got:?}");
    got
}

#[test]
fn one_thread_drives_queue_pairs_of_all_shards() {
    let context = open();
    let pd = context.alloc_pd();
    let ends: [(Qp, Cq); 2 * SHARDS] = apart(&context, &pd);
    let region = Region::new(&pd, 2 * SHARDS);
    for (i, (a, a_cq)) in ends.iter().enumerate() {
        // A pair of each shard with each of the others, one after the other.
        for (b, b_cq) in ends.iter().skip(i + 1) {
            connect(&context, a, b);
            region.words[0].store(7, Ordering::Relaxed);
            let receive = RecvWqe {
                wr_id: 1,
                sges: SgList::from_slice(&[region.sge(1, 1)]),
            };
            b.post_recv(&mut std::iter::once(Ok(receive)))
                .expect("posted");
            post(a, 2, SendOp::Send, region.sge(0, 1));
            poll_well(b_cq, 1);
            poll_well(a_cq, 1);
            assert_eq!(region.words[1].swap(0, Ordering::Relaxed), 7);
            let reset = QpAttr {
                qp_state: QpState::Reset,
                ..QpAttr::default()
            };
            for qp in [a, b] {
                qp.modify(&reset, M::STATE).expect("reset");
            }
        }
    }
    drop(ends);
    region.revoke();
}

/// Receivers of three shards take from one receive queue, and one thread polls one completion queue
/// for all of them.
#[test]
fn shards_share_a_receive_queue_and_a_completion_queue() {
    const EACH: u64 = 200;
    const ROOM: u64 = 32;
    let context = open();
    let pd = context.alloc_pd();
    let srq = pd
        .create_srq(&SrqInit {
            max_wr: 63,
            max_sge: 1,
            xrc: None,
            cookie: 0,
        })
        .expect("a shared receive queue");
    let shared = cq(&context);
    let senders: [(Qp, Cq); SHARDS] = apart(&context, &pd);
    let receivers = [(); SHARDS].map(|()| create(&pd, &cq(&context), &shared, Some(&srq), 64));
    for ((a, _), b) in senders.iter().zip(&receivers) {
        connect(&context, a, b);
    }
    let from = Region::new(&pd, SHARDS);
    let to = Region::new(&pd, ROOM as usize);
    let receive = |place: u64| {
        let wqe = RecvWqe {
            wr_id: place,
            sges: SgList::from_slice(&[to.sge(place as usize, 1)]),
        };
        srq.post_recv(&mut std::iter::once(Ok(wqe)))
            .expect("posted");
    };
    (0..ROOM).for_each(receive);
    std::thread::scope(|scope| {
        for (i, (qp, cq)) in senders.iter().enumerate() {
            let from = &from;
            scope.spawn(move || {
                for message in 1..=EACH {
                    from.words[i].store(message, Ordering::Relaxed);
                    post(qp, message, SendOp::Send, from.sge(i, 1));
                    poll_well(cq, 1);
                }
            });
        }
        let mut last = [0; SHARDS];
        for _ in 0..EACH * SHARDS as u64 {
            let done = poll_well(&shared, 1)[0];
            let found = receivers.iter().position(|qp| qp.qpn() == done.qpn);
            let message = to.words[done.wr_id as usize].load(Ordering::Relaxed);
            let last = &mut last[found.expect("one of ours")];
            assert_eq!(message, *last + 1, "in order, each once");
            *last = message;
            receive(done.wr_id);
        }
    });
    drop((senders, receivers));
    to.revoke();
    from.revoke();
}

/// Peers of all shards write without end while the region comes and goes: afterwards nobody touches
/// the memory.
#[test]
fn deregistration_ends_the_access_of_all_shards() {
    const REFUSED: u32 = 8;
    /// Of the region, for each shard: two that write to one place would race, on hardware too.
    const WORDS: usize = 512;
    let context = open();
    let pd = context.alloc_pd();
    let stop = AtomicBool::new(false);
    let refused: [AtomicU32; SHARDS] = Default::default();
    let target = rustix_futex_sync::Mutex::new((0u64, 0u32));
    std::thread::scope(|scope| {
        for (shard, refused) in refused.iter().enumerate() {
            let (context, pd, stop, target) = (&context, &pd, &stop, &target);
            scope.spawn(move || {
                let source = Region::new(pd, WORDS);
                for word in &source.words {
                    word.store(u64::MAX, Ordering::Relaxed);
                }
                while !stop.load(Ordering::Relaxed) {
                    let [(a, a_cq), (b, b_cq)] = apart(context, pd);
                    connect(context, &a, &b);
                    while !stop.load(Ordering::Relaxed) {
                        let (base, rkey) = *target.lock();
                        let remote_addr = base + (8 * WORDS * shard) as u64;
                        let op = SendOp::Write { remote_addr, rkey };
                        post(&a, 1, op, source.sge(0, WORDS));
                        let done = poll(&a_cq, 1)[0];
                        // Nothing completes here: the target's shard is driven.
                        b_cq.poll(1, &mut |_| {}).expect("poll");
                        if done.status != Status::Success {
                            assert_eq!(done.status, Status::RemoteAccessError);
                            refused.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                    }
                }
                source.revoke();
            });
        }
        let start = Instant::now();
        while refused.iter().any(|r| r.load(Ordering::Relaxed) < REFUSED) {
            assert!(start.elapsed() < PATIENCE, "no access is ever refused");
            let region = Region::new(&pd, WORDS * SHARDS);
            *target.lock() = (region.mr.addr(), region.mr.rkey());
            std::thread::yield_now();
            let words = region.revoke();
            words.iter().for_each(|w| w.store(0, Ordering::Relaxed));
            std::thread::yield_now();
            let untouched = words.iter().all(|w| w.load(Ordering::Relaxed) == 0);
            assert!(untouched, "written after deregistration");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn atomics_of_all_shards_are_atomic() {
    const EACH: u64 = 300;
    let context = open();
    let pd = context.alloc_pd();
    let counter = Region::new(&pd, 1);
    std::thread::scope(|scope| {
        for _ in 0..SHARDS {
            scope.spawn(|| {
                let [(a, cq), (b, _b_cq)] = apart(&context, &pd);
                connect(&context, &a, &b);
                let before = Region::new(&pd, 1);
                let op = SendOp::FetchAdd {
                    remote_addr: counter.mr.addr(),
                    rkey: counter.mr.rkey(),
                    add: 1,
                };
                let mut last = None;
                for i in 0..EACH {
                    post(&a, i, op, before.sge(0, 1));
                    poll_well(&cq, 1);
                    let seen = Some(before.words[0].load(Ordering::Relaxed));
                    assert!(seen > last);
                    last = seen;
                }
                drop((a, b));
                before.revoke();
            });
        }
    });
    let counted = counter.words[0].load(Ordering::Relaxed);
    assert_eq!(counted, EACH * SHARDS as u64);
    counter.revoke();
}

/// A type-1 window is the whole domain's: bound by a queue pair of one shard it is open to those of
/// others, and closed.
#[test]
fn a_window_bound_in_one_shard_is_open_in_the_others() {
    let context = open();
    let pd = context.alloc_pd();
    let ends: [(Qp, Cq); 2 * SHARDS] = apart(&context, &pd);
    let (from, to) = (Region::new(&pd, 1), Region::new(&pd, 1));
    for pair in ends.chunks(2) {
        connect(&context, &pair[0].0, &pair[1].0);
    }
    let window = pd.alloc_mw(MwType::Type1).expect("a window");
    let bind = |rkey, length| BindWindow {
        rkey,
        lkey: to.mr.lkey(),
        addr: to.mr.addr(),
        length,
        read: false,
        write: true,
        atomic: false,
        zero_based: false,
    };
    let rkey = window.first_rkey() ^ 1;
    let (binder, binder_cq) = &ends[0];
    let nothing = from.sge(0, 0);
    post(binder, 0, SendOp::BindWindow(bind(rkey, 8)), nothing);
    poll_well(binder_cq, 1);
    let op = SendOp::Write {
        remote_addr: to.mr.addr(),
        rkey,
    };
    for (i, pair) in (1..).zip(ends.chunks(2)) {
        from.words[0].store(i, Ordering::Relaxed);
        post(&pair[0].0, i, op, from.sge(0, 1));
        poll_well(&pair[0].1, 1);
        assert_eq!(to.words[0].load(Ordering::Relaxed), i);
    }
    post(binder, 0, SendOp::BindWindow(bind(rkey, 0)), nothing);
    poll_well(binder_cq, 1);
    for pair in ends.chunks(2) {
        post(&pair[0].0, 9, op, from.sge(0, 1));
        assert_eq!(poll(&pair[0].1, 1)[0].status, Status::RemoteAccessError);
    }
    drop((window, ends));
    from.revoke();
    to.revoke();
}

/// Queue pairs of one shard end in the middle of what those of others send them, and the other way
/// round.
#[test]
fn queue_pairs_end_while_other_shards_talk_to_them() {
    const ROUNDS: usize = 12;
    let context = open();
    std::thread::scope(|scope| {
        for _ in 0..SHARDS {
            scope.spawn(|| {
                let pd = context.alloc_pd();
                for round in 0..ROUNDS {
                    let [(a, a_cq), (b, b_cq)] = apart(&context, &pd);
                    connect(&context, &a, &b);
                    let (from, to) = (Region::new(&pd, 4096), Region::new(&pd, 4096));
                    let op = SendOp::Write {
                        remote_addr: to.mr.addr(),
                        rkey: to.mr.rkey(),
                    };
                    for i in 0..16 {
                        post(&a, i, op, from.sge(0, 4096));
                    }
                    if round % 3 == 0 {
                        poll_well(&a_cq, 16);
                    }
                    if round % 2 == 0 {
                        drop((b, b_cq));
                        to.revoke();
                        drop(a);
                    } else {
                        drop((a, a_cq));
                        from.revoke();
                        drop(b);
                    }
                }
            });
        }
    });
}

/// Who waits for an event of queue pairs of several shards is woken by each.
#[test]
fn events_come_from_all_shards() {
    let context = open();
    let pd = context.alloc_pd();
    let channel = context.create_comp_channel().expect("a channel");
    let armed = context.create_cq(64, Some(&channel), 5).expect("a queue");
    let senders: [(Qp, Cq); SHARDS] = apart(&context, &pd);
    let receivers = [(); SHARDS].map(|()| create(&pd, &cq(&context), &armed, None, 64));
    let (from, to) = (Region::new(&pd, 1), Region::new(&pd, 1));
    for ((a, a_cq), b) in senders.iter().zip(&receivers) {
        connect(&context, a, b);
        let receive = RecvWqe {
            wr_id: 1,
            sges: SgList::from_slice(&[to.sge(0, 1)]),
        };
        b.post_recv(&mut std::iter::once(Ok(receive)))
            .expect("posted");
        armed.request_notify(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                post(a, 2, SendOp::Send, from.sge(0, 1));
                poll_well(a_cq, 1);
            });
            assert_eq!(channel.get_event().expect("an event"), 5);
        });
        poll_well(&armed, 1);
    }
    drop((senders, receivers));
    from.revoke();
    to.revoke();
}
