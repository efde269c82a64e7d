//! Futures that are dropped at any moment: what the device uses stays, what was sent arrives, and
//! nobody is forgotten.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use rnic::aio::{CompletionQueue, Pool, QueuePair};
use rnic::{Buffer, Context, Rc, RemoteMemory, SendRequest};

use crate::futures::{on_tokio, pair_on, within};

/// So many futures are begun and dropped: a million of them by `./test full`, and few where the
/// kernel that carries them is emulated (`interop/run --api`).
fn count() -> usize {
    let is_set = |name| std::env::var_os(name).is_some();
    match (is_set("RNIC_TEST_FULL"), is_set("RNIC_TEST_DEVICE")) {
        (true, _) => 1_000_000,
        (_, true) => 2_000,
        _ => 50_000,
    }
}

type Any = Pin<Box<dyn Future<Output = bool> + Send>>;

/// A future of any kind, as chance has it. It gives whether it was carried out.
fn begin(qp: &QueuePair<Rc>, buffer: Buffer, to: RemoteMemory, kind: u32) -> Any {
    let qp = qp.clone();
    match kind % 7 {
        0 => Box::pin(async move { qp.send(buffer).await.is_ok() }),
        1 => Box::pin(async move { qp.send_inline(&[1; 16]).await.is_ok() }),
        2 => Box::pin(async move { qp.read(buffer, to).await.is_ok() }),
        3 => Box::pin(async move { qp.write(buffer, to).await.is_ok() }),
        4 => Box::pin(async move { qp.write_with_imm(buffer, to, [4; 4]).await.is_ok() }),
        5 if crate::device().atomics => Box::pin(async move { qp.fetch_add(to, 1).await.is_ok() }),
        _ => Box::pin(async move {
            let mut pipe = qp.pipeline(3).expect("a pipeline");
            let write = SendRequest::write(buffer, to);
            pipe.push(write).await.is_ok() && pipe.flush().await.is_ok()
        }),
    }
}

/// Each future is polled a few times and dropped, or awaited, as chance has it; its waker may be
/// another one each time. Meanwhile a task receives. In the end every request was carried out or
/// never posted, and the buffers are in the pool, or were given back.
#[test]
fn futures_dropped_at_random() {
    let count = count();
    let seed = 0x5eed;
    println!("seed {seed:#x}, {count} futures");
    let mut random = fastrand::Rng::with_seed(seed);
    let context = Context::open().expect("the device opens");
    let queues = [0, 1].map(|_| CompletionQueue::new(&context, 1024).expect("a queue"));
    let pool = Pool::new(&context.alloc_pd().expect("pd"), 1, 64).expect("buffers");
    drop(pool.try_take());
    let pool_of_both = pool.clone();
    let [left, right] = pair_on([&queues[0], &queues[1]], move |builder| {
        let builder = builder.pool(&pool_of_both).max_send_wr(16);
        builder.max_recv_wr(64).receives(64, 64)
    });
    let region = right.pd.writable(64).readable().atomic();
    let region = region.build().expect("memory");
    let to = region.remote();
    // A million takes its time, with a sanitizer on a loaded machine above all.
    within(Duration::from_secs(280), async {
        let receiver = tokio::spawn(async move {
            let mut received = 0_usize;
            let mut random = fastrand::Rng::with_seed(seed + 1);
            loop {
                let mut next = right.qp.recv();
                if random.u8(..) < 32 {
                    let mut cx = TaskContext::from_waker(Waker::noop());
                    if let Poll::Ready(message) = Pin::new(&mut next).poll(&mut cx) {
                        if message.is_ok_and(|message| message.imm() == Some(*b"last")) {
                            return received;
                        }
                        received += 1;
                    }
                    drop(next);
                    continue;
                }
                let message = next.await.expect("a message");
                if message.imm() == Some(*b"last") {
                    return received;
                }
                received += 1;
            }
        });
        let mut kept: Vec<Any> = Vec::new();
        let mut messages = 0..=0;
        for _ in 0..count {
            let buffer = match pool.try_take() {
                Some(buffer) => buffer,
                None => left.pd.buffer(64).expect("memory"),
            };
            let kind = random.u32(..7);
            let is_message = matches!(kind, 0 | 1 | 4);
            let mut future = begin(&left.qp, buffer, to, kind);
            let polls = random.u32(..4);
            let mut done = false;
            for _ in 0..polls {
                let mut cx = TaskContext::from_waker(Waker::noop());
                if let Poll::Ready(ok) = future.as_mut().poll(&mut cx) {
                    assert!(ok, "nothing fails here");
                    done = true;
                    break;
                }
            }
            let keeps = !done && random.u8(..) < 64;
            // One that was polled and dropped may have been posted.
            let sure = usize::from(is_message && (done || keeps));
            let perhaps = usize::from(is_message && (done || keeps || polls > 0));
            messages = messages.start() + sure..=messages.end() + perhaps;
            match keeps {
                true => kept.push(future),
                false => drop(future),
            }
            if kept.len() > 20 {
                let at = random.usize(..kept.len());
                assert!(kept.swap_remove(at).await, "nothing fails here");
            }
            if random.u8(..) < 8 {
                tokio::task::yield_now().await;
            }
        }
        for future in kept {
            assert!(future.await, "nothing fails here");
        }
        let last = SendRequest::send_inline(b"").imm(*b"last");
        left.qp.request(last).await.expect("sent");
        let received = receiver.await.expect("no panic");
        assert!(messages.contains(&received), "{received} of {messages:?}");
        assert_eq!(left.qp.in_flight(), 0, "nothing is forgotten");
    });
}

/// Tasks that are aborted while they wait leave no one else waiting.
#[test]
fn aborted_tasks_leave_room_for_others() {
    let context = Context::open().expect("the device opens");
    let cq = CompletionQueue::new(&context, 1024).expect("a queue");
    let [left, right] = pair_on([&cq, &cq], |builder| builder.max_send_wr(2));
    on_tokio(async {
        // No receive is posted at the peer: two are in flight, the others wait for room.
        let mut tasks: Vec<_> = (0..20_u8)
            .map(|n| {
                let qp = left.qp.clone();
                tokio::spawn(async move { qp.send_inline(&[n]).await.map(drop) })
            })
            .collect();
        while left.qp.in_flight() < 2 {
            tokio::task::yield_now().await;
        }
        for task in tasks.drain(..10) {
            task.abort();
        }
        for _ in 0..20 {
            right.qp.post_recv(right.buffer(&[0])).expect("posted");
        }
        for task in tasks {
            task.await.expect("not aborted").expect("sent");
        }
        let mut last = None;
        for _ in 0..10 {
            let message = right.qp.recv().await.expect("a message");
            last = Some(message[0]);
        }
        assert!(last.is_some());
    });
}
