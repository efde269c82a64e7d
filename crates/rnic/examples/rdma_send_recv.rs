//! Two-sided RDMA: a client and a server exchange a message with send and receive.
//!
//! ```text
//! rdma_send_recv [-p PORT]            the server: waits for one client
//! rdma_send_recv [-p PORT] HOST       the client
//! ```
//! `examples/c/rdma_send_recv.c` is the same in C; the two understand each other. What takes many
//! steps there, the resolution of the address, the exchange of the queue pairs' numbers, the states
//! of the queue pair, is one call here:
//!
//! ```text
//! client                                            server
//! make a queue pair, post a receive                 listen
//! connect               --- request -->             request, which brings the client's address
//!     .                                             make a queue pair, post a receive
//!     .                 <-- response ---            accept
//! connected             --- ready to use -->        connected
//! send a message        === data ===>               its completion: a message has come
//! its completion: the answer has come   <=== data ===   send the answer
//! disconnect            --- request -->             the client has disconnected
//! ```
//! "Two-sided" means that both applications take part: each message that is sent uses up one
//! receive that the other side has posted before, and a message that finds no receive is refused
//! (the sender's NIC tries again for a while).
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use rnic::{
    CmConnector, CmListener, CompletionOpcode, CompletionQueue, Context, PreparedQueuePair,
    ProtectionDomain, QueuePair, Rc, SendRequest,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Bytes of a buffer.
const MESSAGE: usize = 256;
/// Longer than that no answer takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a side needs before it has a connection.
struct Side {
    /// Objects of one protection domain may be used with each other, and with nothing else.
    pd: ProtectionDomain,
    /// Where work that is done is reported: one queue for both sends and receives.
    cq: CompletionQueue,
}

impl Side {
    fn new() -> Outcome<Side> {
        let context = Context::open()?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(4).build()?;
        Ok(Side { pd, cq })
    }

    /// A queue pair that can receive one message. It is posted before the peer can know of the
    /// queue pair, so it is never too late.
    fn queue_pair(&self) -> Outcome<PreparedQueuePair<Rc>> {
        let qp = self.pd.create_qp::<Rc>(&self.cq, &self.cq).build()?;
        // The NIC reads and writes the application's memory by itself, so it has to be told which.
        // Posting moves the buffer away; the completion gives it back.
        qp.post_recv(self.pd.buffer(MESSAGE)?, 1)?;
        Ok(qp)
    }

    /// Hands a message to the NIC, as C programs would: with a zero at its end.
    fn send(&self, qp: &QueuePair, text: &str) -> Outcome<()> {
        let message = [text.as_bytes(), b"\0"].concat();
        qp.post(SendRequest::send(self.pd.buffer_from(&message)?).id(2))?;
        Ok(())
    }

    /// Waits for `count` completions of any kind.
    fn wait_for_completions(&self, count: u32) -> Outcome<()> {
        for _ in 0..count {
            // `ok`: an error if the work request has failed.
            let completion = self.cq.wait(PATIENCE)?.ok()?;
            if completion.opcode() == CompletionOpcode::Recv {
                let data = completion.data();
                let text = data.strip_suffix(b"\0").unwrap_or(data);
                println!("received {} bytes: \"{}\"", data.len(), text.escape_ascii());
            } else {
                println!("sent");
            }
        }
        Ok(())
    }
}

fn serve(port: u16) -> Outcome<()> {
    let listener = CmListener::<Rc>::bind(("::", port))?;
    println!("listening on port {}", listener.local_addr()?.port());
    std::io::stdout().flush()?;

    let request = listener.request(None)?;
    let side = Side::new()?;
    let connection = request.accept(side.queue_pair()?)?;
    println!("connected");

    side.wait_for_completions(1)?;
    side.send(&connection, "hello from the server")?;
    side.wait_for_completions(1)?;

    connection.wait_disconnected(Some(PATIENCE))?;
    println!("the client has disconnected");
    Ok(())
}

fn connect_to(host: &str, port: u16) -> Outcome<()> {
    let side = Side::new()?;
    let connection = CmConnector::new((host, port))?.connect(side.queue_pair()?)?;
    println!("connected");

    side.send(&connection, "hello from the client")?;
    side.wait_for_completions(2)?; // of the send, and of the receive
    Ok(()) // the connection ends with its variable
}

fn main() -> Outcome<()> {
    let mut port = 18600;
    let mut host = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), &host) {
            ("-p", _) => port = args.next().ok_or("-p needs a port")?.parse()?,
            (_, None) if !arg.starts_with('-') => host = Some(arg),
            _ => return Err("usage: rdma_send_recv [-p PORT] [HOST]".into()),
        }
    }
    match host {
        Some(host) => connect_to(&host, port),
        None => serve(port),
    }
}
