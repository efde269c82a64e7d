//! A program of the Rust API that waits for what never comes.
//!
//! ```text
//! sleeper WAY
//! ```
//! prints `waits`, and then waits for ever: in a blocking call, or by a future.
#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use rnic::aio::{self, CompletionQueue, Listener, QueuePair};
use rnic::cm::CmListener;
use rnic::{Context, ProtectionDomain, Rc};

fn main() -> ExitCode {
    rnic_sys::signal::end_on_broken_pipe();
    let way = std::env::args().nth(1).unwrap_or_default();
    match run(&way) {
        Ok(()) => eprintln!("{way}: the wait is over"),
        Err(error) => eprintln!("{way}: {error}"),
    }
    ExitCode::FAILURE
}

/// To be called last.
fn say() {
    println!("waits");
}

/// Two ends; each takes so many messages.
fn pair(receives: usize) -> rnic::Result<(ProtectionDomain, [QueuePair<Rc>; 2])> {
    let context = Context::open()?;
    let (gid, pd) = (context.loopback_gid()?, context.alloc_pd()?);
    let prepare = |receives| {
        let cq = CompletionQueue::new(&context, 64)?;
        let builder = cq.create_qp::<Rc>(&pd).gid(&gid).max_send_wr(1);
        // 7: for ever.
        let builder = builder.rnr_retry(7);
        match receives {
            0 => builder.build(),
            some => builder.receives(some, 64).build(),
        }
    };
    let (one, other) = (prepare(0)?, prepare(receives)?);
    let (to_one, to_other) = (one.endpoint(), other.endpoint());
    let ends = [one.handshake(to_other)?, other.handshake(to_one)?];
    Ok((pd, ends))
}

fn run(way: &str) -> Result<(), Box<dyn Error>> {
    match way {
        "queue" => {
            let context = Context::open()?;
            let cq = context.create_cq(16).build()?;
            say();
            cq.wait(Duration::from_secs(3600))?;
        }
        "request" => {
            let listener = CmListener::<Rc>::bind("127.0.0.1:7520")?;
            say();
            listener.request(None)?;
        }
        "message" => {
            let (_pd, [_one, other]) = pair(4)?;
            say();
            aio::block_on(other.recv())?;
        }
        // The one receive is that of the message.
        "held" => {
            let (pd, [one, other]) = pair(1)?;
            aio::block_on(one.send(pd.buffer_from(b"one")?))?;
            let _held = aio::block_on(other.recv())?;
            say();
            aio::block_on(other.recv())?;
        }
        // The peer has no receive.
        "completion" => {
            let (pd, [one, _other]) = pair(0)?;
            let request = one.send(pd.buffer_from(b"one")?);
            say();
            aio::block_on(request)?;
        }
        "listener" => {
            let context = Context::open()?;
            let cq = CompletionQueue::new(&context, 64)?;
            let listener = Listener::<Rc>::bind(&cq, "127.0.0.1:7521")?;
            say();
            aio::block_on(listener.accept())?;
        }
        _ => return Err("unknown way".into()),
    }
    Ok(())
}
