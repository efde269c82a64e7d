//! The same as `tokio_echo` on smol, by messages instead of bytes: each is echoed from where it
//! landed, without a copy. smol's own reactor waits for the device.
//!
//! ```text
//! cargo run --example smol_echo -- server ADDRESS:PORT [CLIENTS]
//! cargo run --example smol_echo -- client ADDRESS:PORT WORDS...
//! ```
#![forbid(unsafe_code)]

use std::error::Error;

use rnic::aio::{CompletionQueue, ConnectRequest, Listener, Reactor, Source, Watch};
use rnic::{CmConnector, Context, ProtectionDomain, Rc, SendRequest};

const SIZE: usize = 4096;

struct Smol;

impl Reactor for Smol {
    fn watch(&self, source: Source) -> std::io::Result<Watch> {
        let source = smol::Async::new_nonblocking(source)?;
        let task = smol::spawn(async move {
            while source.readable().await.is_ok() && source.get_ref().readable() {}
        });
        Ok(Watch::new(task))
    }
}

/// Echoes until the client disconnects.
async fn echo(
    request: ConnectRequest,
    cq: CompletionQueue,
    pd: ProtectionDomain,
) -> rnic::Result<usize> {
    let qp = cq.create_qp::<Rc>(&pd).receives(16, SIZE).build()?;
    let connection = request.accept(qp).await?;
    let mut count = 0;
    while let Ok(message) = connection.recv().await {
        let len = message.len();
        let Some(buffer) = message.into_buffer() else {
            continue;
        };
        let answer = SendRequest::send(buffer).range(..len)?;
        let sent = connection.request(answer).await?;
        // The buffer takes a message to come.
        if let Some(buffer) = sent.into_buffer() {
            connection.post_recv(buffer)?;
        }
        count += 1;
    }
    Ok(count)
}

async fn serve(cq: CompletionQueue, addr: &str, clients: usize) -> Result<(), Box<dyn Error>> {
    let pd = cq.context().alloc_pd()?;
    let listener = Listener::bind(&cq, addr)?;
    println!("listening on {}", listener.local_addr()?);
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let request = listener.accept().await?;
        tasks.push(smol::spawn(echo(request, cq.clone(), pd.clone())));
    }
    for task in tasks {
        println!("{} messages", task.await?);
    }
    Ok(())
}

async fn ask(cq: CompletionQueue, addr: &str, words: &[String]) -> Result<(), Box<dyn Error>> {
    let pd = cq.context().alloc_pd()?;
    let qp = cq.create_qp::<Rc>(&pd).receives(4, SIZE).build()?;
    let connection = qp.connect(&CmConnector::new(addr)?).await?;
    for word in words {
        connection.send(pd.buffer_from(word.as_bytes())?).await?;
        println!("{}", String::from_utf8_lossy(&connection.recv().await?));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let context = Context::open()?;
    let cq = CompletionQueue::builder(&context, 16 << 10)
        .reactor(Smol)
        .build()?;
    smol::block_on(async {
        match &args[..] {
            [server, addr, clients] if server == "server" => {
                serve(cq, addr, clients.parse()?).await
            }
            [server, addr] if server == "server" => serve(cq, addr, usize::MAX).await,
            [client, addr, words @ ..] if client == "client" => ask(cq, addr, words).await,
            _ => Err(
                "usage: smol_echo server ADDRESS:PORT [CLIENTS] | client ADDRESS:PORT WORDS..."
                    .into(),
            ),
        }
    })
}
