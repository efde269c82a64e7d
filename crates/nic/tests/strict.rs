//! With `RNIC_STRICT=1` nothing is held back for speed: a message is on its way when its post
//! returns, and its ACK when the poll returns that found the message. The same traffic without it
//! shows that the test can tell.

use crate::pair;

use std::process::Command;

use crate::region::Region;
use rnic_nic::{
    Context, Qp, QpInit, RecvWqe, SendData, SendOp, SendWqe, SgList, ShortSend, port_counters,
};

const ROUNDS: usize = 50;
/// Messages that are posted one after the other; the last one is signaled.
const BURST: usize = 16;

fn packets_sent() -> u64 {
    port_counters().qps.packets_sent
}

fn send(qp: &Qp, region: &Region, len: usize, signaled: bool) {
    let wqe = SendWqe {
        op: SendOp::Send,
        data: SendData::Gather(SgList::from_slice(&[region.sge(0, len)])),
        signaled,
        ..SendWqe::default()
    };
    // As the C ABI does.
    let short = ShortSend::of(&wqe);
    if !short.is_some_and(|short| qp.post_short(short)) {
        qp.post_send(&mut std::iter::once(Ok(wqe))).expect("posted");
    }
}

/// Sends messages of one packet, and gives how many packets were still here when a call returned
/// that should have sent them.
fn held_back(len: usize) -> u64 {
    let context = Context::open().expect("a device");
    let pd = context.alloc_pd();
    let cq = context.create_cq(256, None, 0).expect("a queue");
    let [a, b] = [(); 2].map(|()| {
        let init = QpInit {
            sq_sig_all: false,
            ..pair::init(&cq, &cq, None, 64)
        };
        pd.create_qp(&init).expect("a queue pair")
    });
    pair::connect(&context, &a, &b);
    let [from, to] = [(); 2].map(|()| Region::new(&pd, 4096, |_| 0));
    let mut held = 0;
    for _ in 0..ROUNDS {
        for _ in 0..BURST {
            let wqe = RecvWqe {
                wr_id: 0,
                sges: SgList::from_slice(&[to.sge(0, len)]),
            };
            b.post_recv(&mut std::iter::once(Ok(wqe))).expect("posted");
        }
        let at_first = packets_sent();
        for n in 0..BURST {
            let before = packets_sent();
            send(&a, &from, len, n == BURST - 1);
            // ACKs may add to it.
            held += u64::from(packets_sent() == before);
        }
        let (mut found, mut sent) = (0, 0);
        while found < BURST {
            let mut count = |to_b: bool| *if to_b { &mut found } else { &mut sent } += 1;
            cq.poll(1, &mut |c| count(c.qpn == b.qpn()))
                .expect("polled");
        }
        held += u64::from(packets_sent() < at_first + BURST as u64 + 1);
        while sent == 0 {
            cq.poll(1, &mut |_| sent += 1).expect("polled");
        }
    }
    drop((a, b));
    for region in [from, to] {
        drop(region.revoke());
    }
    held
}

#[test]
#[ignore = "started by the other tests"]
fn inner() {
    let held: u64 = [8, 1000].map(held_back).iter().sum();
    println!("held back: {held}.");
}

/// What [`inner`] says, in a process of its own.
fn in_a_process(path: &str, strict: &str) -> u64 {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "strict::inner", "--ignored", "--nocapture"])
        .envs([("RNIC_HOST_PATH", path), ("RNIC_STRICT", strict)])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let number = said.split("held back: ").nth(1).expect("it says");
    let number = number.split('.').next().expect("a number");
    number.parse().expect("a number")
}

#[test]
fn nothing_is_held_back_over_udp() {
    assert_eq!(in_a_process("off", "1"), 0);
    assert_ne!(in_a_process("off", "0"), 0, "by default ACKs are shared");
}

#[test]
fn nothing_is_held_back_by_memory() {
    assert_eq!(in_a_process("rings", "1"), 0);
}
