//! What futures cost beside calls that block: round trips of a small message between two threads,
//! by each of both in turns, and their medians.
//!
//! ```text
//! cargo run --release --example futures_cost [ROUNDS] [TRIPS] [MANNER]
//! ```
//! With the number of a manner, from 0 on, it measures that alone: what the system counts of the
//! process, as switches of threads (getrusage(2)), is that manner's then.
//!
//! Each round does as many trips by each manner, one manner behind the other, so that what disturbs
//! the machine disturbs all. Client and server are of the same manner. Those that sleep at once do
//! not look for a message before they sleep, which shows what a wake-up costs.
#![forbid(unsafe_code)]

use std::error::Error;
use std::future::Future;
use std::time::{Duration, Instant};

use rnic::aio;
use rnic::{CompletionOpcode, Context, Rc, SendRequest};

const SIZE: usize = 32;
const PATIENCE: Duration = Duration::from_secs(30);
/// As of [`rnic::CompletionQueue::wait`].
const SPIN: Duration = Duration::from_micros(50);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A completion queue, its protection domain, and a connected queue pair.
struct Blocking {
    pd: rnic::ProtectionDomain,
    cq: rnic::CompletionQueue,
    qp: rnic::QueuePair<Rc>,
}

struct Futures {
    qp: aio::QueuePair<Rc>,
}

fn blocking_pair(context: &Context) -> Outcome<[Blocking; 2]> {
    let gid = context.loopback_gid()?;
    let prepare = || -> Outcome<_> {
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(64).build()?);
        let qp = pd.create_qp::<Rc>(&cq, &cq).gid(&gid).build()?;
        for _ in 0..4 {
            qp.post_recv(pd.buffer(SIZE)?, 0)?;
        }
        Ok((pd, cq, qp))
    };
    let (left, right) = (prepare()?, prepare()?);
    let (to_left, to_right) = (left.2.endpoint(), right.2.endpoint());
    let connect = |(pd, cq, qp): (_, _, rnic::PreparedQueuePair<Rc>), to| -> Outcome<_> {
        Ok(Blocking {
            pd,
            cq,
            qp: qp.handshake(to)?,
        })
    };
    Ok([connect(left, to_right)?, connect(right, to_left)?])
}

/// smol waits for the descriptors.
struct Smol;

impl aio::Reactor for Smol {
    fn watch(&self, source: aio::Source) -> std::io::Result<aio::Watch> {
        let source = smol::Async::new_nonblocking(source)?;
        let task = smol::spawn(async move {
            while source.readable().await.is_ok() && source.get_ref().readable() {}
        });
        Ok(aio::Watch::new(task))
    }
}

fn futures_pair(
    context: &Context,
    set: impl Fn(aio::CompletionQueueBuilder) -> aio::CompletionQueueBuilder,
) -> Outcome<[Futures; 2]> {
    let gid = context.loopback_gid()?;
    let prepare = || -> Outcome<_> {
        let pd = context.alloc_pd()?;
        let cq = set(aio::CompletionQueue::builder(context, 256)).build()?;
        let qp = cq.create_qp::<Rc>(&pd).gid(&gid).receives(4, SIZE);
        Ok(qp.build()?)
    };
    let (left, right) = (prepare()?, prepare()?);
    let (to_left, to_right) = (left.endpoint(), right.endpoint());
    let (left, right) = (left.handshake(to_right)?, right.handshake(to_left)?);
    Ok([Futures { qp: left }, Futures { qp: right }])
}

/// The client begins, the server answers. Each sends a message, and waits for the send and for the
/// next message, in whichever order they come.
fn blocking(side: &Blocking, spin: Duration, begins: bool, trips: usize) -> Outcome<()> {
    let mut buffer = Some(side.pd.buffer(SIZE)?);
    let (mut to_send, mut sent, mut received) = (usize::from(begins), 0, 0);
    loop {
        if to_send > 0
            && let Some(buffer) = buffer.take()
        {
            side.qp.post(SendRequest::send(buffer))?;
            to_send -= 1;
        }
        if (sent, received) == (trips, trips) {
            return Ok(());
        }
        let completion = side.cq.wait_spinning(spin, PATIENCE)?.ok()?;
        if completion.opcode() == CompletionOpcode::Recv {
            received += 1;
            to_send += usize::from(!begins || received < trips);
            let back = completion.into_buffer().ok_or("it had one")?;
            side.qp.post_recv(back, 0)?;
        } else {
            sent += 1;
            buffer = completion.into_buffer();
        }
    }
}

async fn futures(side: &Futures, begins: bool, trips: usize) -> Outcome<()> {
    let mut buffer = side.qp.pd().buffer(SIZE)?;
    for _ in 0..trips {
        if !begins {
            side.qp.recv().await?;
        }
        let send = side.qp.send(buffer);
        let sent = if begins {
            let (sent, answer) = smol::future::zip(send, side.qp.recv()).await;
            answer?;
            sent?
        } else {
            send.await?
        };
        buffer = sent.into_buffer().ok_or("it had one")?;
    }
    Ok(())
}

/// Both sides, each in a thread; how long one trip takes, in ns.
fn trip(
    trips: usize,
    server: impl FnOnce() -> Outcome<()> + Send,
    client: impl FnOnce() -> Outcome<()>,
) -> Outcome<f64> {
    std::thread::scope(|scope| {
        let server = scope.spawn(server);
        let start = Instant::now();
        client()?;
        let time = start.elapsed();
        server.join().map_err(|_| "the server panicked")??;
        Ok(time.as_nanos() as f64 / trips as f64)
    })
}

fn on_tokio<T>(future: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(future)
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let rounds = args.next().transpose()?.unwrap_or(21).max(1);
    let trips = args.next().transpose()?.unwrap_or(5000).max(1);
    let context = Context::open()?;
    let [left, right] = &blocking_pair(&context)?;
    let [ours, theirs] = &futures_pair(&context, |builder| builder)?;
    let asleep = &futures_pair(&context, |builder| builder.spin(Duration::ZERO))?;
    let by_smol = &futures_pair(&context, |builder| {
        builder.spin(Duration::ZERO).reactor(Smol)
    })?;
    let by_blocking = |spin| {
        trip(
            trips,
            move || blocking(right, spin, false, trips),
            move || blocking(left, spin, true, trips),
        )
    };
    let by_futures = |[ours, theirs]: [&Futures; 2]| {
        trip(
            trips,
            || aio::block_on(futures(theirs, false, trips)),
            || aio::block_on(futures(ours, true, trips)),
        )
    };
    let on_tokio = || {
        trip(
            trips,
            || on_tokio(futures(theirs, false, trips)),
            || on_tokio(futures(ours, true, trips)),
        )
    };
    type Manner<'a> = &'a dyn Fn() -> Outcome<f64>;
    let manners: [(&str, Manner<'_>); 6] = [
        ("calls that block", &|| by_blocking(SPIN)),
        ("futures, rnic::aio::block_on", &|| {
            by_futures([ours, theirs])
        }),
        ("futures, tokio", &on_tokio),
        ("calls that sleep at once", &|| by_blocking(Duration::ZERO)),
        ("futures that do", &|| by_futures(asleep.each_ref())),
        ("futures that do, smol's reactor", &|| {
            by_futures(by_smol.each_ref())
        }),
    ];
    let only = args.next().transpose()?;
    let manners: Vec<_> = match only {
        Some(number) => vec![*manners.get(number).ok_or("there is no such manner")?],
        None => manners.to_vec(),
    };
    let mut times = vec![Vec::new(); manners.len()];
    for _ in 0..rounds {
        for ((_, manner), times) in manners.iter().zip(&mut times) {
            times.push(manner()?);
        }
    }
    let base = median(&mut times[0]);
    println!("{rounds} rounds of {trips} trips of {SIZE} bytes each, medians:");
    for ((name, _), times) in manners.iter().zip(&mut times) {
        let time = median(times);
        println!(
            "{name:32} {time:8.0} ns a trip, {:.2} of the first",
            time / base
        );
    }
    Ok(())
}
