//! Futures of requests and messages: they give what blocking calls give, on any executor.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use rnic::aio::{self, CompletionQueue, Pool, QueuePair, QueuePairBuilder, Reactor};
use rnic::{
    Buffer, Context, Destination, Error, HEADER_LEN, ProtectionDomain, QpState, Rc, SendRequest,
    Status, Ud,
};

/// A future that is not done by then hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Side {
    pub(crate) pd: ProtectionDomain,
    pub(crate) qp: QueuePair<Rc>,
}

impl Side {
    pub(crate) fn buffer(&self, bytes: &[u8]) -> Buffer {
        self.pd.buffer_from(bytes).expect("memory")
    }
}

pub(crate) type Builder = QueuePairBuilder<Rc>;

/// Two connected sides on these queues.
pub(crate) fn pair_on(
    queues: [&CompletionQueue; 2],
    build: impl Fn(Builder) -> Builder,
) -> [Side; 2] {
    let prepared = queues.map(|cq| {
        let gid = cq.context().loopback_gid().expect("an address");
        let pd = cq.context().alloc_pd().expect("pd");
        let qp = build(cq.create_qp::<Rc>(&pd).gid(&gid))
            .build()
            .expect("qp");
        (pd, qp)
    });
    let [left, right] = prepared;
    let (to_left, to_right) = (left.1.endpoint(), right.1.endpoint());
    let left = Side {
        pd: left.0,
        qp: left.1.handshake(to_right).expect("handshake"),
    };
    let right = Side {
        pd: right.0,
        qp: right.1.handshake(to_left).expect("handshake"),
    };
    [left, right]
}

pub(crate) fn queue() -> CompletionQueue {
    let context = Context::open().expect("the device opens");
    CompletionQueue::new(&context, 1024).expect("a queue")
}

fn pair() -> [Side; 2] {
    let (left, right) = (queue(), queue());
    pair_on([&left, &right], |builder| builder.receives(8, 4096))
}

/// On a current-thread runtime, with a deadline.
pub(crate) fn on_tokio<T>(future: impl Future<Output = T>) -> T {
    within(PATIENCE, future)
}

/// The same with another deadline.
pub(crate) fn within<T>(patience: Duration, future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let done = tokio::time::timeout(patience, future).await;
        done.expect("the futures are done in time")
    })
}

/// Polls once with a waker that counts.
fn poll_once<F: Future + Unpin>(future: &mut F) -> (Poll<F::Output>, Arc<Count>) {
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let polled = pin!(future).poll(&mut TaskContext::from_waker(&waker));
    (polled, count)
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_message_each_way() {
    let [left, right] = pair();
    aio::block_on(async {
        let sent = left.qp.send(left.buffer(b"ping")).await.expect("sent");
        assert_eq!(&sent.into_buffer().expect("it comes back")[..], b"ping");
        let message = right.qp.recv().await.expect("a message");
        assert_eq!(&message[..], b"ping");
        let request = SendRequest::send_inline(b"pong").imm(*b"imm!").id(7);
        let sent = right.qp.request(request).await.expect("sent");
        assert_eq!(sent.id(), 7, "the id is the caller's");
        let message = left.qp.recv().await.expect("a message");
        assert_eq!(
            (&message[..], message.imm()),
            (&b"pong"[..], Some(*b"imm!"))
        );
        let buffer = message.into_buffer().expect("it had one");
        assert_eq!(&buffer[..4], b"pong");
    });
}

#[test]
fn one_sided_operations() {
    let [left, right] = pair();
    let region = right.pd.writable(4096).readable();
    let region = match crate::device().atomics {
        true => region.atomic(),
        false => region,
    };
    let region = region.build().expect("memory");
    let to = region.remote();
    on_tokio(async {
        let written = left.qp.write(left.buffer(b"written"), to).await;
        written.expect("written");
        let read = left.pd.buffer(7).expect("memory");
        let read = left.qp.read(read, to).await.expect("read");
        assert_eq!(read.data(), b"written");
        let imm = left.qp.write_with_imm(left.buffer(b"W"), to, *b"note");
        imm.await.expect("written");
        let note = right.qp.recv().await.expect("the notice");
        assert_eq!((note.imm(), note.len()), (Some(*b"note"), 0));
        if crate::device().atomics {
            let word = to.slice(8, 8).expect("inside");
            assert_eq!(left.qp.fetch_add(word, 5).await.expect("added"), 0);
            let swapped = left.qp.compare_swap(word, 5, 9).await;
            assert_eq!(swapped.expect("swapped"), 5);
            assert_eq!(region.load_u64(8, Ordering::Relaxed).expect("a word"), 9);
        }
    });
}

/// A request gives the buffers back with its error, and every other future learns of it.
#[test]
fn an_error_reaches_every_future() {
    let [left, right] = pair();
    let region = right.pd.writable(64).build().expect("memory");
    let mut wrong = region.remote();
    wrong.rkey ^= 0xff00;
    on_tokio(async {
        let (bad, waits) = tokio::join!(left.qp.write(left.buffer(b"no"), wrong), left.qp.recv());
        let bad = bad.expect_err("no such key");
        assert!(
            bad.error.to_string().contains("refused access"),
            "{}",
            bad.error
        );
        assert_eq!(&bad.buffers[0][..], b"no");
        let waits = waits.expect_err("the queue pair failed").to_string();
        assert!(waits.contains("refused access"), "the cause: {waits}");
        let flushed = left.qp.send_inline(b"late").await.expect_err("it failed");
        match flushed.error {
            Error::Completion(error) => assert_eq!(error.status, Status::WorkRequestFlushed),
            other => panic!("{other}"),
        }
        assert_eq!(left.qp.state(), QpState::Err);
        // The same again, as often as is asked.
        left.qp.recv().await.expect_err("it has failed");
    });
}

/// More requests than the send queue holds wait for room; none fails for it.
#[test]
fn a_full_send_queue_waits() {
    const DEPTH: u32 = 4;
    let (left, right) = (queue(), queue());
    let [left, right] = pair_on([&left, &right], |builder| {
        builder.max_send_wr(DEPTH).receives(64, 64)
    });
    on_tokio(async {
        let sends: Vec<_> = (0..200_u32)
            .map(|n| {
                let qp = left.qp.clone();
                async move { qp.send_inline(&n.to_be_bytes()).await.map(drop) }
            })
            .collect();
        let mut tasks = tokio::task::JoinSet::new();
        for send in sends {
            tasks.spawn(send);
        }
        let mut seen = [false; 200];
        for _ in 0..200 {
            assert!(left.qp.in_flight() <= DEPTH as usize);
            let message = right.qp.recv().await.expect("a message");
            let n = u32::from_be_bytes(message[..].try_into().expect("4 bytes"));
            assert!(!std::mem::replace(&mut seen[n as usize], true), "once");
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("no panic").expect("sent");
        }
    });
}

/// A future that is dropped while its request is under way leaves the buffer to the device, and the
/// pool gets it afterwards. A receive that is dropped loses no message.
#[test]
fn dropped_futures_lose_nothing() {
    let (left, right) = (queue(), queue());
    let pool = Pool::new(&left.context().alloc_pd().expect("pd"), 1, 64).expect("buffers");
    let pool_of_both = pool.clone();
    let [left, right] = pair_on([&left, &right], move |b| b.pool(&pool_of_both));
    drop(pool.try_take());
    let mut buffer = left.pd.buffer(64).expect("memory");
    buffer.fill(b'x');
    let mut send = left.qp.send(buffer);
    // The peer has no receive yet.
    assert!(poll_once(&mut send).0.is_pending());
    drop(send);
    // One that was never polled sends nothing.
    drop(left.qp.send_inline(b"never"));
    assert_eq!((left.qp.in_flight(), pool.free()), (1, 0));
    let mut receives = vec![right.qp.recv(), right.qp.recv()];
    for _ in 0..2 {
        let receive = right.pd.buffer(64).expect("memory");
        right.qp.post_recv(receive).expect("posted");
    }
    let taken = receives.iter_mut().map(|receive| poll_once(receive).0);
    let taken: Vec<_> = taken.filter(Poll::is_ready).collect();
    drop(receives);
    on_tokio(async {
        if taken.is_empty() {
            let message = right.qp.recv().await.expect("it is still there");
            assert_eq!(&message[..], [b'x'; 64]);
        }
        left.qp.send_inline(b"after").await.expect("sent");
        assert_eq!(&right.qp.recv().await.expect("a message")[..], b"after");
    });
    assert_eq!((left.qp.in_flight(), pool.free()), (0, 1));
}

/// The waker that counts is the one that was given last, and it is told once the message comes, by
/// whichever thread.
#[test]
fn a_sleeping_future_is_woken_from_elsewhere() {
    let context = Context::open().expect("the device opens");
    let sleepy = CompletionQueue::builder(&context, 256).spin(Duration::ZERO);
    let sleepy = sleepy.build().expect("a queue");
    let [left, right] = pair_on([&queue(), &sleepy], |builder| builder.receives(4, 64));
    let mut receive = right.qp.recv();
    let (first, old) = poll_once(&mut receive);
    let (second, new) = poll_once(&mut receive);
    assert!(first.is_pending() && second.is_pending());
    let sender = std::thread::spawn(move || {
        aio::block_on(left.qp.send_inline(b"wake up")).expect("sent");
        left
    });
    let start = std::time::Instant::now();
    while new.0.load(Ordering::SeqCst) == 0 {
        assert!(start.elapsed() < PATIENCE, "it is woken");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(old.0.load(Ordering::SeqCst), 0, "the old waker is not used");
    let message = aio::block_on(receive).expect("a message");
    assert_eq!(&message[..], b"wake up");
    drop(sender.join().expect("no panic"));
}

/// A time-out beside a receive is no error, and what comes later is not lost.
#[test]
fn select_with_a_timeout() {
    let [left, right] = pair();
    on_tokio(async {
        for round in 0..20_u8 {
            let nothing = tokio::time::timeout(Duration::from_micros(200), right.qp.recv());
            assert!(nothing.await.is_err(), "nothing was sent");
            left.qp.send_inline(&[round]).await.expect("sent");
            let message = right.qp.recv().await.expect("a message");
            assert_eq!(&message[..], [round]);
        }
    });
}

#[test]
fn without_receives_nobody_waits_for_ever() {
    let (left, right) = (queue(), queue());
    let [_left, right] = pair_on([&left, &right], |builder| builder);
    let error = aio::block_on(right.qp.recv()).expect_err("none is posted");
    assert!(
        error.to_string().contains("no receive is posted"),
        "{error}"
    );
}

/// The queue is never made to overrun.
#[test]
fn a_completion_queue_takes_no_more_queue_pairs_than_fit() {
    let context = Context::open().expect("the device opens");
    let cq = CompletionQueue::new(&context, 100).expect("a queue");
    let pd = context.alloc_pd().expect("pd");
    let gid = context.loopback_gid().expect("an address");
    let fits = cq.capacity() / 100;
    let build = || {
        let builder = cq.create_qp::<Rc>(&pd).gid(&gid);
        builder.max_send_wr(60).max_recv_wr(40).build()
    };
    let all: Vec<_> = (0..fits).map(|_| build().expect("it fits")).collect();
    let error = build().expect_err("no room").to_string();
    assert!(error.contains("make it larger"), "{error}");
    drop(all);
    build().expect("there is room again");
}

#[test]
fn pipelines_signal_few_and_lose_none() {
    let (left, right) = (queue(), queue());
    let [left, right] = pair_on([&left, &right], |builder| builder.max_send_wr(16));
    let region = right
        .pd
        .writable(8 * 1000)
        .readable()
        .build()
        .expect("memory");
    let to = region.remote();
    // More pipelines than there are halves of the queue.
    let mut pipes: Vec<_> = (0..5)
        .map(|_| left.qp.pipeline(100).expect("a pipeline"))
        .collect();
    on_tokio(async {
        for n in 0..1000_u64 {
            let place = to.slice(8 * n, 8).expect("inside");
            let write = match n % 2 {
                0 => SendRequest::write_inline(&n.to_ne_bytes(), place),
                _ => SendRequest::write(left.buffer(&n.to_ne_bytes()), place),
            };
            let pipe = &mut pipes[n as usize % 5];
            pipe.push(write).await.expect("pushed");
        }
        for pipe in &mut pipes {
            pipe.flush().await.expect("all are done");
            assert_eq!(pipe.take_buffers().len(), 100);
        }
    });
    for n in 0..1000 {
        let value = region.load_u64(8 * n, Ordering::Relaxed).expect("a word");
        assert_eq!(value, n as u64);
    }
    let mut pipe = left.qp.pipeline(4).expect("a pipeline");
    for n in 0..100_u64 {
        let write = SendRequest::write_inline(&[7; 8], to.slice(8 * n, 8).expect("inside"));
        pipe.push_blocking(write).expect("pushed");
    }
    pipe.flush_blocking().expect("all are done");
    assert_eq!(
        region.load_u64(8 * 99, Ordering::Relaxed).expect("a word"),
        u64::from_ne_bytes([7; 8])
    );
}

/// Of an unsignaled request the error comes, too, and is told by the next push and by flush.
#[test]
fn a_pipeline_tells_of_a_request_that_failed() {
    let (left, right) = (queue(), queue());
    let [left, right] = pair_on([&left, &right], |builder| builder.max_send_wr(16));
    let region = right.pd.writable(64).build().expect("memory");
    let mut wrong = region.remote();
    wrong.rkey ^= 0xff00;
    let mut pipe = left.qp.pipeline(8).expect("a pipeline");
    on_tokio(async {
        pipe.push(SendRequest::write(left.buffer(b"lost"), wrong))
            .await
            .expect("posted");
        let mut refused = None;
        for _ in 0..1000 {
            let write = SendRequest::write(left.buffer(b"later"), region.remote());
            if let Err(error) = pipe.push(write).await {
                refused = Some(error);
                break;
            }
        }
        let refused = refused.expect("the error is told");
        assert!(
            refused.error.to_string().contains("refused access"),
            "{}",
            refused.error
        );
        assert_eq!(&refused.buffers[0][..], b"later");
        let error = pipe.flush().await.expect_err("it failed").to_string();
        assert!(error.contains("refused access"), "{error}");
        assert!(!pipe.take_buffers().is_empty(), "the buffers come back");
    });
}

#[test]
fn datagrams() {
    if !crate::device().ud {
        return;
    }
    let cq = queue();
    let gid = cq.context().loopback_gid().expect("an address");
    let pd = cq.context().alloc_pd().expect("pd");
    let build = |receives| {
        let qp = cq.create_qp::<Ud>(&pd).gid(&gid);
        qp.receives(receives, HEADER_LEN + 256).build().expect("qp")
    };
    let (left, right) = (build(4), build(16));
    let ah = pd.create_ah(&gid, gid.addr).expect("a way");
    let (qpn, qkey) = (right.qpn(), right.qkey());
    let to = Destination { ah, qpn, qkey };
    on_tokio(async {
        for n in 0..100_u8 {
            left.send_inline_to(&[n; 3], &to).await.expect("sent");
            let message = right.recv().await.expect("a datagram");
            assert_eq!(&message[..], [n; 3]);
            assert_eq!(message.completion().source(), Some((gid.addr, left.qpn())));
        }
        let wrong = right.request(
            SendRequest::flush(rnic::RemoteMemory {
                addr: 0,
                len: 0,
                rkey: 0,
            }),
            &to,
        );
        let error = wrong.await.expect_err("no datagram").error;
        assert!(
            error.to_string().contains("a datagram is a SEND"),
            "{error}"
        );
    });
}

/// A runtime that is dropped does not take the descriptors' reactor with it.
#[test]
fn another_executor_goes_on() {
    struct Forgetful;
    impl Reactor for Forgetful {
        /// As if its runtime were shut down at once.
        fn watch(&self, source: aio::Source) -> std::io::Result<aio::Watch> {
            drop(source);
            Ok(aio::Watch::new(()))
        }
    }
    let context = Context::open().expect("the device opens");
    let cq = CompletionQueue::builder(&context, 256).spin(Duration::ZERO);
    let cq = cq.reactor(Forgetful).build().expect("a queue");
    let [left, right] = pair_on([&cq, &cq], |builder| builder.receives(4, 64));
    for n in 0..10_u8 {
        let thread = std::thread::spawn({
            let qp = left.qp.clone();
            move || {
                std::thread::sleep(Duration::from_millis(2));
                aio::block_on(qp.send_inline(&[n])).expect("sent");
            }
        });
        let message = on_tokio(right.qp.recv()).expect("a message");
        assert_eq!(&message[..], [n]);
        thread.join().expect("no panic");
    }
}

/// Many tasks of a runtime with several threads, many queue pairs, one completion queue.
#[test]
fn many_connections_on_one_queue() {
    const PAIRS: usize = 100;
    const ROUNDS: u32 = 20;
    let context = Context::open().expect("the device opens");
    let cq = CompletionQueue::new(&context, 16 * 2 * PAIRS as u32).expect("a queue");
    let pairs: Vec<_> = (0..PAIRS)
        .map(|_| {
            pair_on([&cq, &cq], |b| {
                b.max_send_wr(4).max_recv_wr(4).receives(4, 64)
            })
        })
        .collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for [left, right] in pairs {
            tasks.spawn(async move {
                for n in 0..ROUNDS {
                    left.qp.send_inline(&n.to_be_bytes()).await.expect("sent");
                    let answer = left.qp.recv().await.expect("an answer");
                    assert_eq!(&answer[..], (n + 1).to_be_bytes());
                }
            });
            tasks.spawn(async move {
                for _ in 0..ROUNDS {
                    let question = right.qp.recv().await.expect("a question");
                    let n = u32::from_be_bytes(question[..].try_into().expect("4 bytes"));
                    right
                        .qp
                        .send_inline(&(n + 1).to_be_bytes())
                        .await
                        .expect("sent");
                }
            });
        }
        let all = async {
            while let Some(done) = tasks.join_next().await {
                done.expect("no panic");
            }
        };
        tokio::time::timeout(PATIENCE, all)
            .await
            .expect("done in time");
    });
}
