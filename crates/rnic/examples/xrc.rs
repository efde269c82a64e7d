//! XRC: one connection to a host, and a receive queue for each of its workers.
#![forbid(unsafe_code)]

use std::time::Duration;

use rnic::{Context, Result, SendRequest, Xrc};

/// Sends each of three workers a message by one queue pair.
pub fn main() -> Result<()> {
    let context = Context::open()?;
    if !context.capabilities().xrc {
        println!("{} has no XRC", context.name());
        return Ok(());
    }
    let gid = context.loopback_gid()?;
    let pd = context.alloc_pd()?;

    // The receiving host. Its workers may be processes: a domain of a file is for all of them.
    let domain = context.open_xrc_domain()?;
    let mut workers = Vec::new();
    for _ in 0..3 {
        let cq = context.create_cq(16).build()?;
        let queue = domain.create_srq(&pd, &cq, 16)?;
        queue.post_recv(pd.buffer(64)?, 0)?;
        workers.push((queue, cq));
    }
    let target = domain.create_target().gid(&gid).build()?;

    // The sending host: one queue pair, however many workers there are.
    let send_cq = context.create_cq(16).build()?;
    let sender = pd.create_qp::<Xrc>(&send_cq, &send_cq).gid(&gid).build()?;
    let (to_target, to_sender) = (target.endpoint(), sender.endpoint());
    let _target = target.handshake(to_sender)?;
    let sender = sender.handshake(to_target)?;
    for (number, (queue, _)) in workers.iter().enumerate() {
        let text = format!("task {number}");
        sender.post(SendRequest::send_inline(text.as_bytes()), queue.number())?;
    }
    for (number, (_, cq)) in workers.iter().enumerate() {
        let task = cq.wait(Duration::from_secs(10))?.ok()?;
        assert_eq!(task.data(), format!("task {number}").as_bytes());
        println!("worker {number} got its task");
    }
    Ok(())
}
