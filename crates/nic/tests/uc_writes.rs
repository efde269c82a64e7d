//! RDMA WRITEs of UC, which may go without packets where those between processes of one host do:
//! each in its place, and none to what was taken back.

use crate::pair;

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::region::{Region, wait};
use proptest::prelude::*;
use rnic_nic::{
    Access, Context, Cq, Pd, Qp, QpAttr, QpAttrMask as M, QpInit, QpState, QpType, RecvWqe,
    SendData, SendOp, SendWqe, SgList,
};

const ROOM: usize = 16 * 1024;
const LONGEST: usize = 5000;
const DEPTH: u32 = 64;
const PATIENCE: Duration = Duration::from_secs(60);

/// Two queue pairs, connected with each other, and their device.
struct Connection {
    context: Context,
    pd: Pd,
    cq: Cq,
    a: Qp,
    b: Qp,
}

fn connection() -> Connection {
    let context = Context::open().expect("a device");
    let pd = context.alloc_pd();
    let cq = context
        .create_cq(4 * DEPTH, None, 0)
        .expect("a completion queue");
    let [a, b] = [(); 2].map(|()| {
        let init = QpInit {
            qp_type: QpType::Uc,
            ..pair::init(&cq, &cq, None, DEPTH)
        };
        pd.create_qp(&init).expect("a queue pair")
    });
    pair::connect(&context, &a, &b);
    Connection {
        context,
        pd,
        cq,
        a,
        b,
    }
}

/// As far as the environment says.
fn may_do_without() -> bool {
    std::env::var_os("RNIC_HOST_PATH")
        .is_none_or(|path| ["", "on", "1"].iter().any(|on| path == *on))
}

/// A WRITE of so many bytes from the beginning of one region to that of another.
fn write(from: &Region, to: &Region, len: usize) -> SendWqe {
    SendWqe {
        op: SendOp::Write {
            remote_addr: to.mr.addr(),
            rkey: to.mr.rkey(),
        },
        data: SendData::Gather(SgList::from_slice(&[from.sge(0, len)])),
        ..SendWqe::default()
    }
}

/// The first byte, whoever stores there.
fn first(region: &Region) -> u8 {
    // SAFETY: the region's memory, which the device stores in by atomics.
    unsafe { AtomicU8::from_ptr(region.mr.addr() as *mut u8) }.load(Ordering::Acquire)
}

fn set_first(region: &Region, value: u8) {
    // SAFETY: as in `first`; nothing else of the process stores there now.
    unsafe { (region.mr.addr() as *mut u8).write_volatile(value) };
}

/// A SEND arrives behind all that was posted before it.
fn settle(c: &Connection, here: &Region, there: &Region) {
    let receive = RecvWqe {
        wr_id: 0,
        sges: SgList::from_slice(&[there.sge(ROOM, 1)]),
    };
    c.b.post_recv(&mut std::iter::once(Ok(receive)))
        .map_err(|(_, why)| why)
        .expect("posted");
    let send = SendWqe {
        op: SendOp::Send,
        data: SendData::Gather(SgList::from_slice(&[here.sge(0, 1)])),
        ..SendWqe::default()
    };
    pair::post(&c.a, &mut vec![send]);
    wait(&c.cq, 2);
}

#[test]
fn a_ping_pong_takes_no_packets() {
    const ROUNDS: u8 = 200;
    let c = connection();
    let [here, there, back] = [(); 3].map(|()| Region::new(&c.pd, ROOM, |_| 0));
    let await_first = |region: &Region, value| {
        let start = Instant::now();
        while first(region) != value {
            assert!(start.elapsed() < PATIENCE, "{value} never came");
            c.cq.poll(16, &mut |_| {}).expect("polled");
        }
    };
    for round in 1..=ROUNDS {
        set_first(&here, round);
        pair::post(&c.a, &mut vec![write(&here, &there, 1)]);
        wait(&c.cq, 1);
        await_first(&there, round);
        pair::post(&c.b, &mut vec![write(&there, &back, 1)]);
        wait(&c.cq, 1);
        await_first(&back, round);
    }
    let may = may_do_without();
    for qp in [&c.a, &c.b] {
        let without = qp.counters().without_packets.total().messages;
        let all = if may { u64::from(ROUNDS) } else { 0 };
        assert!(
            (all.saturating_sub(20)..=all).contains(&without),
            "{without} of {ROUNDS}"
        );
    }
}

#[test]
fn nothing_is_written_to_what_was_taken_back() {
    let c = connection();
    let [here, there] = [3, 4].map(|byte| Region::new(&c.pd, ROOM + 1, |_| byte));
    let often = |wqe: &SendWqe| {
        for _ in 0..8 {
            pair::post(&c.a, &mut vec![wqe.clone()]);
            wait(&c.cq, 1);
        }
    };
    let whole = write(&here, &there, ROOM);
    let write_all = || often(&whole);
    write_all();
    settle(&c, &here, &there);
    assert_eq!(first(&there), 3);
    let without = || c.a.counters().without_packets.total().messages;
    let start = Instant::now();
    while may_do_without() && without() == 0 {
        assert!(start.elapsed() < PATIENCE, "all went by packets");
        write_all();
        settle(&c, &here, &there);
    }
    // The right of the queue pair, and of the region.
    let attr = QpAttr {
        qp_access_flags: Access::LOCAL_WRITE,
        ..QpAttr::default()
    };
    c.b.modify(&attr, M::ACCESS_FLAGS).expect("modify");
    set_first(&there, 5);
    write_all();
    settle(&c, &here, &there);
    assert_eq!(first(&there), 5);
    let attr = QpAttr {
        qp_access_flags: pair::RIGHTS,
        ..QpAttr::default()
    };
    c.b.modify(&attr, M::ACCESS_FLAGS).expect("modify");
    write_all();
    settle(&c, &here, &there);
    assert_eq!(first(&there), 3);
    let (other, before) = (Region::new(&c.pd, ROOM + 1, |_| 0), without());
    let mut bytes = there.revoke();
    bytes.fill(6);
    write_all();
    settle(&c, &here, &other);
    assert!(bytes.iter().all(|byte| *byte == 6));
    assert_eq!(without(), before);
    // The queue pair itself.
    let to_other = write(&here, &other, ROOM);
    often(&to_other);
    let failed = QpAttr {
        qp_state: QpState::Err,
        ..QpAttr::default()
    };
    c.b.modify(&failed, M::STATE).expect("modify");
    set_first(&other, 7);
    often(&to_other);
    assert_eq!(first(&other), 7);
    drop(c.context);
}

#[derive(Clone, Copy, Debug)]
struct Step {
    kind: Kind,
    here: usize,
    there: usize,
    len: usize,
    /// It is posted with the next.
    listed: bool,
    /// All before is waited for.
    awaited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Write,
    Send,
    WriteImm,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind =
        prop_oneof![6 => Just(Kind::Write), 1 => Just(Kind::Send), 1 => Just(Kind::WriteImm)];
    let len = prop_oneof![6 => 1..40_usize, 2 => 40..LONGEST];
    let place = 0..ROOM - LONGEST;
    let step = (
        kind,
        place.clone(),
        place,
        len,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(kind, here, there, len, listed, awaited)| Step {
            kind,
            here,
            there,
            len,
            listed,
            awaited,
        });
    prop::collection::vec(step, 1..DEPTH as usize)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Memory is as if they were done one by one, whichever way each went.
    #[test]
    fn each_is_executed_in_its_place(steps in steps()) {
        let c = connection();
        let here = Region::new(&c.pd, ROOM + 1, |i| (i * 7) as u8);
        let there = Region::new(&c.pd, ROOM + 1, |i| (i * 13 + 5) as u8);
        let (ours, mut theirs) = (here.bytes.to_vec(), there.bytes.to_vec());
        let (mut list, mut outstanding) = (Vec::new(), 0);
        for step in &steps {
            let Step { kind, here: at, there: to, len, listed, awaited } = *step;
            theirs[to..to + len].copy_from_slice(&ours[at..at + len]);
            let (remote_addr, rkey) = (there.mr.addr() + to as u64, there.mr.rkey());
            let op = match kind {
                Kind::Write => SendOp::Write { remote_addr, rkey },
                Kind::WriteImm => SendOp::WriteImm { remote_addr, rkey, imm: [1; 4] },
                Kind::Send => SendOp::Send,
            };
            outstanding += 1;
            if kind != Kind::Write {
                let sges = SgList::from_slice(&[there.sge(to, len)]);
                let receive = RecvWqe { wr_id: 0, sges };
                c.b.post_recv(&mut std::iter::once(Ok(receive))).map_err(|(_, why)| why).expect("posted");
                outstanding += 1;
            }
            list.push(SendWqe {
                op,
                data: SendData::Gather(here.pieces(at, len, len / 3, 0)),
                ..SendWqe::default()
            });
            if !listed {
                pair::post(&c.a, &mut list);
                if awaited {
                    wait(&c.cq, std::mem::take(&mut outstanding));
                }
            }
        }
        pair::post(&c.a, &mut list);
        wait(&c.cq, outstanding);
        settle(&c, &here, &there);
        theirs[ROOM] = ours[0];
        prop_assert!(there.revoke()[..] == theirs[..]);
    }
}
