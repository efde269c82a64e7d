//! A client sends messages, a server sends each of them back: two threads with a queue pair each.
#![forbid(unsafe_code)]

use std::time::Duration;

use rnic::{CompletionOpcode, Context, Endpoint, PreparedQueuePair, Rc, Result, SendRequest};

const ROUNDS: u32 = 100;
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers each message with its own bytes, in the buffer that it came in.
fn serve(prepared: PreparedQueuePair<Rc>, client: Endpoint) -> Result<()> {
    let qp = prepared.handshake(client)?;
    let (mut answered, mut spare) = (0, Some(qp.pd().buffer(64)?));
    while answered < ROUNDS {
        let done = qp.recv_cq().wait(PATIENCE)?.ok()?;
        let (opcode, length) = (done.opcode(), done.byte_len());
        let buffer = done.into_buffer();
        match (opcode, buffer) {
            (CompletionOpcode::Recv, Some(buffer)) => {
                if let Some(next) = spare.take() {
                    qp.post_recv(next, 0)?;
                }
                qp.post(SendRequest::send(buffer).range(..length)?)?;
            }
            // The answer has left: its buffer receives the message after the next.
            (_, buffer) => (spare, answered) = (buffer, answered + 1),
        }
        if let Some(next) = spare.take() {
            qp.post_recv(next, 0)?;
        }
    }
    Ok(())
}

/// Runs both.
pub fn main() -> Result<()> {
    let context = Context::open()?;
    let gid = context.loopback_gid()?;
    let pd = context.alloc_pd()?;
    let prepare = || {
        let cq = context.create_cq(256).build()?;
        pd.create_qp::<Rc>(&cq, &cq).gid(&gid).build()
    };
    let (server, client) = (prepare()?, prepare()?);
    server.post_recv(pd.buffer(64)?, 0)?;
    let (to_server, to_client) = (server.endpoint(), client.endpoint());
    let server = std::thread::spawn(move || serve(server, to_client));

    let qp = client.handshake(to_server)?;
    for round in 0..ROUNDS {
        let message = format!("message {round}");
        qp.post_recv(pd.buffer(64)?, 1)?;
        qp.post(SendRequest::send(pd.buffer_from(message.as_bytes())?))?;
        // The message has left, and the answer has come, in either order.
        let mut answer = qp.recv_cq().wait(PATIENCE)?.ok()?;
        if answer.opcode() == CompletionOpcode::Send {
            answer = qp.recv_cq().wait(PATIENCE)?.ok()?;
        } else {
            qp.send_cq().wait(PATIENCE)?.ok()?;
        }
        assert_eq!(answer.data(), message.as_bytes());
    }
    println!("{ROUNDS} messages came back");
    server.join().expect("the server does not panic")
}
