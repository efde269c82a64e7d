//! Completions of RDMA WRITEs of UC that wait for the peer's answer: none is lost, none is late for good, and all are in order.

mod pair;
#[allow(dead_code, reason = "these WRITEs need little of it")]
mod region;

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use region::{Region, wait};
use rnic_nic::{
    Context, Cq, Pd, Qp, QpAttr, QpAttrMask as M, QpInit, QpState, QpType, SendData, SendOp,
    SendWqe, SgList, Status,
};

const PATIENCE: Duration = Duration::from_secs(60);
const DEPTH: u32 = 16;

/// Two queue pairs, connected with each other, each with a completion queue of its own, and bytes that they write.
struct PingPong {
    /// In this order: what is here ends before its device.
    a: Qp,
    b: Qp,
    ours: Cq,
    theirs: Cq,
    from: Region,
    there: Region,
    back: Region,
    /// To and fro.
    rounds: std::cell::Cell<u32>,
    _pd: Pd,
    _context: Context,
}

impl PingPong {
    fn new() -> PingPong {
        let context = Context::open().expect("a device");
        let pd = context.alloc_pd();
        let [ours, theirs] = [(); 2].map(|()| {
            context
                .create_cq(4 * DEPTH, None, 0)
                .expect("a completion queue")
        });
        let qp = |cq: &Cq| {
            let init = QpInit {
                qp_type: QpType::Uc,
                ..pair::init(cq, cq, None, DEPTH)
            };
            pd.create_qp(&init).expect("a queue pair")
        };
        let (a, b) = (qp(&ours), qp(&theirs));
        pair::connect(&context, &a, &b);
        let [from, there, back] = [(); 3].map(|()| Region::new(&pd, 8, |_| 0));
        PingPong {
            a,
            b,
            ours,
            theirs,
            from,
            there,
            back,
            rounds: 0.into(),
            _pd: pd,
            _context: context,
        }
    }

    /// Writes that value from `from` to `to`.
    fn write(&self, qp: &Qp, to: &Region, value: u8) {
        // SAFETY: the region's memory; the WRITE before has left, as each waits for what the one before did.
        unsafe { (self.from.mr.addr() as *mut u8).write_volatile(value) };
        let write = SendWqe {
            wr_id: value.into(),
            op: SendOp::Write {
                remote_addr: to.mr.addr(),
                rkey: to.mr.rkey(),
            },
            data: SendData::Gather(SgList::from_slice(&[self.from.sge(0, 1)])),
            ..SendWqe::default()
        };
        pair::post(qp, &mut vec![write]);
    }

    /// Until the value is there, polling where nothing completes.
    fn await_value(&self, at: &Region, value: u8) {
        let start = Instant::now();
        // SAFETY: the region's memory, which the device stores in by atomics.
        let byte = unsafe { AtomicU8::from_ptr(at.mr.addr() as *mut u8) };
        while byte.load(Ordering::Acquire) != value {
            assert!(start.elapsed() < PATIENCE, "{value} never came");
            self.theirs.poll(0, &mut |_| {}).expect("polled");
        }
    }

    /// Goes to and fro until a completion of `a` waits for the answer, which has not left. Gives the value of that WRITE.
    fn until_one_waits(&self) -> u8 {
        let start = Instant::now();
        for value in (1..=250).cycle() {
            self.rounds.set(self.rounds.get() + 1);
            self.write(&self.a, &self.there, value);
            self.await_value(&self.there, value);
            let waits = self.ours.poll(1, &mut |_| {}).expect("polled") == 0;
            if waits {
                return value;
            }
            self.write(&self.b, &self.back, value);
            self.await_value(&self.back, value);
            wait(&self.theirs, 1);
            assert!(start.elapsed() < PATIENCE, "none waits");
        }
        unreachable!()
    }

    /// The next completion of `a`.
    fn next(&self) -> (u64, Status) {
        let start = Instant::now();
        let mut found = None;
        while found.is_none() {
            assert!(start.elapsed() < PATIENCE, "a completion is lost");
            self.ours
                .poll(1, &mut |c| found = Some((c.wr_id, c.status)))
                .expect("polled");
        }
        found.expect("found")
    }

    fn to(&self, state: QpState) {
        let attr = QpAttr {
            qp_state: state,
            ..QpAttr::default()
        };
        self.a.modify(&attr, M::STATE).expect("modify");
    }
}

#[test]
fn a_completion_that_waits_for_an_answer_comes_whatever_happens() {
    // SAFETY: before there are other threads that read the environment.
    unsafe { std::env::set_var("RNIC_HOST_PATH", "off") };
    let c = PingPong::new();
    let comes = |c: &PingPong, value: u8| {
        assert_eq!(c.next(), (value.into(), Status::Success));
    };

    let is_there = |c: &PingPong, value: u8| {
        let mut found = None;
        c.ours
            .poll(1, &mut |c| found = Some((c.wr_id, c.status)))
            .expect("polled");
        assert_eq!(found, Some((value.into(), Status::Success)));
    };

    // With the answer, or most would have waited in vain, and fewer and fewer would wait. On a machine where answers take
    // long the same happens.
    let come_with_answers = |_| {
        let c = PingPong::new();
        for _ in 0..64 {
            let value = c.until_one_waits();
            c.write(&c.b, &c.back, value);
            comes(&c, value);
            c.await_value(&c.back, value);
            wait(&c.theirs, 1);
            if c.rounds.get() > 20_000 {
                return false;
            }
        }
        true
    };
    assert!((0..10).any(come_with_answers));

    // Without one.
    let value = c.until_one_waits();
    comes(&c, value);

    // The program goes on without it: in order.
    let value = c.until_one_waits();
    c.write(&c.a, &c.there, value + 1);
    comes(&c, value);
    comes(&c, value + 1);

    // The queue pair fails, and nothing is there to be flushed.
    let value = c.until_one_waits();
    c.to(QpState::Err);
    is_there(&c, value);

    // One that is reset has none.
    let c = PingPong::new();
    c.until_one_waits();
    c.to(QpState::Reset);
    pair::reach(&c._context, &c.a, c.b.qpn(), 14);
    c.write(&c.a, &c.there, 251);
    comes(&c, 251);

    // One that is destroyed neither.
    let c = PingPong::new();
    c.until_one_waits();
    let PingPong { a, ours, .. } = c;
    drop(a);
    assert_eq!(ours.poll(16, &mut |_| {}).expect("polled"), 0);
}
