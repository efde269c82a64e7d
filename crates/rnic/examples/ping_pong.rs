//! Two processes send a message back and forth.
//!
//! ```text
//! cargo run --release --example ping_pong -- server 0.0.0.0:18515
//! cargo run --release --example ping_pong -- client 127.0.0.1:18515
//! ```
#![forbid(unsafe_code)]

use std::error::Error;
use std::time::{Duration, Instant};

use rnic::exchange::Exchange;
use rnic::{Context, Rc, SendRequest};

const ROUNDS: u32 = 1000;
const SIZE: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let (client, mut exchange) = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", addr] => (
            false,
            Exchange::listen(addr, |addr| println!("waiting on {addr}"))?,
        ),
        ["client", addr] => (true, Exchange::connect(addr, PATIENCE)?),
        _ => return Err("usage: ping_pong server|client ADDRESS:PORT".into()),
    };

    let context = Context::open()?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(16).build()?;
    let prepared = pd.create_qp::<Rc>(&cq, &cq).build()?;
    // A receive must be there before the peer sends, so it is posted before the peer can know us.
    prepared.post_recv(pd.buffer(SIZE)?, 0)?;
    let remote = exchange.swap_endpoints(&prepared.endpoint())?;
    let qp = prepared.handshake(remote)?;
    println!("{} connected to {}", qp.qpn(), remote.addr());

    let start = Instant::now();
    let mut message = Some(pd.buffer(SIZE)?);
    let mut received = 0;
    if client {
        let buffer = message.take().ok_or("the buffer is here")?;
        qp.post(SendRequest::send(buffer))?;
    }
    while received < ROUNDS || message.is_none() {
        let completion = cq.wait(PATIENCE)?.ok()?;
        let receive = completion.opcode() == rnic::CompletionOpcode::Recv;
        let buffer = completion
            .into_buffer()
            .ok_or("every request here has a buffer")?;
        if !receive {
            message = Some(buffer);
            continue;
        }
        received += 1;
        // The received buffer goes back as the next answer; the one that was sent receives.
        if received < ROUNDS || !client {
            let next = match message.take() {
                Some(next) => next,
                None => pd.buffer(SIZE)?,
            };
            qp.post_recv(next, 0)?;
            qp.post(SendRequest::send(buffer))?;
        } else {
            message.get_or_insert(buffer);
        }
    }
    if client {
        let time = start.elapsed() / (2 * ROUNDS);
        println!(
            "{ROUNDS} round trips, {:.2} us one way",
            time.as_secs_f64() * 1e6
        );
    }
    exchange.barrier()?;
    Ok(())
}
