//! The lines of Rust that set what a question is about. They are compiled with the tests.

use std::time::Duration;

use rnic::{
    Buffer, CompletionQueue, Context, GidEntry, PathMtu, ProtectionDomain, QueuePair,
    QueuePairBuilder, Rc, RemoteMemory, Result, SendRequest, Uc, Ud,
};

pub fn inline(qp: &QueuePair, builder: QueuePairBuilder<Rc>, buffer: Buffer) -> Result<()> {
    // study: inline
    let builder = builder.max_inline_data(256); // room in the queue
    qp.post(SendRequest::send_inline(b"short"))?; // inline
    qp.post(SendRequest::send(buffer))?; // not inline
    // end
    builder.build().map(drop)
}

pub fn operation(qp: &QueuePair, buffers: [Buffer; 3], remote: RemoteMemory) -> Result<()> {
    let [a, b, c] = buffers;
    // study: operation
    qp.post(SendRequest::send(a))?; // the peer posts a receive
    qp.post(SendRequest::write(b, remote))?; // remote: its address and rkey
    qp.post(SendRequest::read(c, remote))?;
    // end
    Ok(())
}

pub fn polling(cq: &CompletionQueue, timeout: Duration) -> Result<()> {
    // study: polling
    while cq.poll_one()?.is_none() {} // busy

    cq.arm(false); // event: arm, look once, sleep
    if cq.poll_one()?.is_none() {
        cq.channel().wait_event(None)?;
    }

    cq.wait(timeout)?; // adaptive: polls a little, then sleeps
    // end
    Ok(())
}

pub fn signaled(qp: &QueuePair, requests: Vec<SendRequest>, every: usize) -> Result<()> {
    // study: signaled
    for (n, request) in (1..).zip(requests) {
        match n % every {
            0 => qp.post(request)?,
            _ => qp.post(request.unsignaled())?,
        }
    }
    // end
    Ok(())
}

pub fn batch(qp: &QueuePair, mut requests: Vec<SendRequest>) -> Result<()> {
    // study: batch
    qp.post_list(&mut requests)?; // one post, one doorbell
    // end
    Ok(())
}

pub fn depth(builder: QueuePairBuilder<Rc>, context: &Context, depth: u32) -> Result<()> {
    // study: depth
    let cq = context.create_cq(depth).build()?;
    let builder = builder.max_send_wr(depth);
    // end
    drop(cq);
    builder.build().map(drop)
}

pub fn mtu(builder: QueuePairBuilder<Rc>) -> Result<()> {
    // study: mtu
    let builder = builder.path_mtu(PathMtu::M1024);
    // end
    builder.build().map(drop)
}

pub fn service(pd: &ProtectionDomain, cq: &CompletionQueue, gid: &GidEntry) -> Result<()> {
    // study: service
    let rc = pd.create_qp::<Rc>(cq, cq).gid(gid).build()?;
    let uc = pd.create_qp::<Uc>(cq, cq).gid(gid).build()?;
    let ud = pd.create_qp::<Ud>(cq, cq).gid(gid).build()?;
    // end
    drop((rc, uc, ud));
    Ok(())
}

pub fn qps(pd: &ProtectionDomain, cq: &CompletionQueue, count: usize) -> Result<()> {
    // study: qps
    let qps: Result<Vec<_>> = (0..count)
        .map(|_| pd.create_qp::<Rc>(cq, cq).build())
        .collect();
    // end
    qps.map(drop)
}

pub fn srq(pd: &ProtectionDomain, cq: &CompletionQueue, buffer: Buffer) -> Result<()> {
    // study: srq
    let srq = pd.create_srq(65)?;
    srq.post_recv(buffer, 0)?;
    let qp = pd.create_qp::<Rc>(cq, cq).srq(&srq).build()?;
    // end
    drop(qp);
    Ok(())
}

pub fn registration(qp: &QueuePair, pd: &ProtectionDomain, to: RemoteMemory) -> Result<()> {
    // study: registration
    let buffer = pd.buffer(65536)?; // once: it comes back with the completion
    qp.post(SendRequest::write(buffer, to))?;
    let done = qp.send_cq().wait(Duration::from_secs(1))?;
    let again = done.ok()?.into_buffer(); // each: drop it, which deregisters it
    // end
    drop(again);
    Ok(())
}

pub fn throughput(pd: &ProtectionDomain, qp: &QueuePair, to: RemoteMemory) -> Result<()> {
    // study: throughput
    let buffer = pd.buffer(1 << 20)?;
    qp.post(SendRequest::write(buffer, to))?; // and others, before it completes
    // end
    Ok(())
}

pub fn atomics(qp: &QueuePair, buffers: [Buffer; 2], word: RemoteMemory) -> Result<()> {
    let [a, b] = buffers;
    let (expected, new) = (1, 2);
    // study: atomics
    qp.post(SendRequest::fetch_add(a, word, 1))?;
    qp.post(SendRequest::compare_swap(b, word, expected, new))?;
    // end
    Ok(())
}
