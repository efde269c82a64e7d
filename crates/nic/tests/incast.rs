//! Hundreds of queue pairs that lose much on the way to one host wait for each other: none for
//! ever, whatever happens to it meanwhile, and not on a host that does not answer.

use crate::environment;
use crate::pair;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rnic_nic::{
    Completion, Context, Cq, Mr, Pd, Qp, QpAttr, QpAttrMask, QpState, SendData, SendOp, SendWqe,
    SgList, Sge, Status,
};

const PATIENCE: Duration = Duration::from_secs(120);
const PAIRS: usize = 150;
/// Work requests of each queue pair.
const DEPTH: usize = 6;
const LENGTH: usize = 3000;
/// Of the ACK timeout: 8.4 ms. What answers late on a slow machine, under a sanitizer for one, uses
/// up no more than a few retries.
const TIMEOUT: u8 = 11;
/// Enough for many ACK timers to end, which is what a crowd is found by. Eight losses in a row of a
/// request or its answer, which hardware would end a queue pair for as well, do not come by chance:
/// 1 in 100 million, where 15% are 1 in 25,000.
const FAULTS: &str = "drop=5%,seed=7";

/// A region that all write to and read from.
struct Bench {
    context: Context,
    pd: Pd,
    cq: Cq,
    mr: Mr,
    // Goes after the region.
    _buffer: Vec<u8>,
}

impl Bench {
    fn open() -> Bench {
        let context = Context::open().expect("a device");
        let pd = context.alloc_pd();
        let depth = 4 * PAIRS * DEPTH;
        let cq = context.create_cq(depth as u32, None, 0);
        let mut buffer = vec![7u8; 2 * LENGTH];
        let at = buffer.as_mut_ptr();
        // SAFETY: the buffer outlives the region, and nobody looks at it meanwhile.
        let mr = unsafe { pd.reg_mr(at, buffer.len(), at as u64, pair::RIGHTS) };
        Bench {
            cq: cq.expect("a completion queue"),
            mr: mr.expect("a region"),
            context,
            pd,
            _buffer: buffer,
        }
    }

    fn create(&self) -> Qp {
        pair::create(&self.pd, &self.cq, &self.cq, None, DEPTH as u32)
    }

    /// So many that are connected by twos, one behind the other.
    fn pairs(&self) -> Vec<Qp> {
        let qps: Vec<Qp> = (0..2 * PAIRS).map(|_| self.create()).collect();
        for ends in qps.chunks(2) {
            pair::reach(&self.context, &ends[0], ends[1].qpn(), TIMEOUT);
            pair::reach(&self.context, &ends[1], ends[0].qpn(), TIMEOUT);
        }
        qps
    }

    /// A WRITE or a READ; its number tells whose it is.
    fn wqe(&self, qp: &Qp, read: bool) -> SendWqe {
        let (remote_addr, rkey) = (self.mr.addr() + LENGTH as u64, self.mr.rkey());
        SendWqe {
            wr_id: u64::from(qp.qpn()),
            op: match read {
                true => SendOp::Read { remote_addr, rkey },
                false => SendOp::Write { remote_addr, rkey },
            },
            data: SendData::Gather(SgList::from_slice(&[Sge {
                addr: self.mr.addr(),
                length: LENGTH as u32,
                lkey: self.mr.lkey(),
            }])),
            ..SendWqe::default()
        }
    }

    fn post(&self, qp: &Qp) {
        let mut list = (0..DEPTH).map(|n| Ok(self.wqe(qp, n % 3 == 1)));
        qp.post_send(&mut list).expect("posted");
    }

    /// Completions of so many work requests, by queue pair and status.
    fn wait_for(&self, count: usize) -> HashMap<(u64, Status), usize> {
        let mut ended = HashMap::new();
        let mut left = count;
        let start = Instant::now();
        while left > 0 {
            let mut end = |completion: &Completion| {
                *ended
                    .entry((completion.wr_id, completion.status))
                    .or_default() += 1;
            };
            left -= self.cq.poll(64, &mut end).expect("polled");
            assert!(start.elapsed() < PATIENCE, "{left} of {count} never ended");
        }
        ended
    }
}

/// Both ends write and read, so that who waits answers the other all the same.
fn all_are_done(bench: &Bench) {
    let qps = bench.pairs();
    for round in 0..3 {
        for qp in &qps {
            bench.post(qp);
        }
        let ended = bench.wait_for(qps.len() * DEPTH);
        let of = |qp: &&Qp| ended.get(&(u64::from(qp.qpn()), Status::Success));
        let others = qps.iter().filter(|qp| of(qp) != Some(&DEPTH));
        let others: Vec<_> = others.map(Qp::counters).collect();
        assert!(others.is_empty(), "round {round}: {others:#?}");
    }
}

/// Some are reset, made to fail and destroyed while all wait for each other: the others do not wait
/// for them.
fn who_leaves_is_not_waited_for(bench: &Bench) {
    let mut qps = bench.pairs();
    // One end of each pair sends.
    for ends in qps.chunks(2) {
        bench.post(&ends[0]);
    }
    let to = |qp: &Qp, qp_state| {
        let attr = QpAttr {
            qp_state,
            ..QpAttr::default()
        };
        qp.modify(&attr, QpAttrMask::STATE).expect("modify");
    };
    for (n, ends) in qps.chunks(2).enumerate() {
        match n % 5 {
            0 => to(&ends[0], QpState::Reset),
            1 => to(&ends[0], QpState::Err),
            _ => {}
        }
    }
    let last = qps.split_off(2 * (PAIRS - PAIRS / 5));
    drop(last);
    let stay = |n: &usize| n % 5 > 1;
    let sending = (0..qps.len() / 2).filter(stay).map(|n| &qps[2 * n]);
    let mut left: HashMap<u64, usize> = sending.map(|qp| (u64::from(qp.qpn()), DEPTH)).collect();
    let start = Instant::now();
    while !left.is_empty() {
        let ended = &mut |completion: &Completion| {
            if let Some(count) = left.get_mut(&completion.wr_id) {
                assert_eq!(completion.status, Status::Success);
                *count -= 1;
            }
        };
        bench.cq.poll(64, ended).expect("polled");
        left.retain(|_, count| *count > 0);
        assert!(start.elapsed() < PATIENCE, "{left:?} never ended");
    }
}

/// Each finds out by its own retries.
fn nobody_waits_for_a_dead_host(bench: &Bench) {
    let gone = bench.create().qpn();
    let qps: Vec<Qp> = (0..PAIRS).map(|_| bench.create()).collect();
    for qp in &qps {
        pair::reach(&bench.context, qp, gone, TIMEOUT);
        bench.post(qp);
    }
    let ended = bench.wait_for(qps.len() * DEPTH);
    for qp in &qps {
        let of = |status| ended.get(&(u64::from(qp.qpn()), status)).copied();
        assert_eq!(of(Status::RetryExceeded), Some(1), "{ended:?}");
        assert_eq!(of(Status::WorkRequestFlushed), Some(DEPTH - 1), "{ended:?}");
    }
}

#[test]
fn nobody_is_held_back_for_ever() {
    environment::set("RNIC_HOST_PATH", "off");
    environment::set("RNIC_FAULTS", FAULTS);
    let bench = Bench::open();
    all_are_done(&bench);
    who_leaves_is_not_waited_for(&bench);
    nobody_waits_for_a_dead_host(&bench);
}
