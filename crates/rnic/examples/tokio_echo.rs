//! An echo server on tokio: each connection is a byte stream in a task of its own.
//!
//! ```text
//! cargo run --features tokio --example tokio_echo -- server ADDRESS:PORT [CLIENTS]
//! cargo run --features tokio --example tokio_echo -- client ADDRESS:PORT WORDS...
//! ```
//! With a number of clients, the server ends behind the last one.
#![forbid(unsafe_code)]

use std::error::Error;

use rnic::aio::{ByteStream, CompletionQueue, Listener, Tokio};
use rnic::{CmConnector, Context};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};
use tokio::task::JoinSet;

async fn serve(cq: CompletionQueue, addr: &str, clients: usize) -> Result<(), Box<dyn Error>> {
    let pd = cq.context().alloc_pd()?;
    let listener = Listener::bind(&cq, addr)?;
    println!("listening on {}", listener.local_addr()?);
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let request = listener.accept().await?;
        let (cq, pd) = (cq.clone(), pd.clone());
        tasks.spawn(async move {
            let stream = ByteStream::accept(request, &cq, &pd).await?;
            let (mut reader, mut writer) = split(stream);
            let bytes = copy(&mut reader, &mut writer).await?;
            writer.shutdown().await?;
            Ok::<_, Box<dyn Error + Send + Sync>>(bytes)
        });
        while let Some(done) = tasks.try_join_next() {
            println!("{:?}", done?);
        }
    }
    while let Some(done) = tasks.join_next().await {
        println!("{:?}", done?);
    }
    Ok(())
}

async fn ask(cq: CompletionQueue, addr: &str, words: &[String]) -> Result<(), Box<dyn Error>> {
    let pd = cq.context().alloc_pd()?;
    let mut stream = ByteStream::connect(&CmConnector::new(addr)?, &cq, &pd).await?;
    stream.write_all(words.join(" ").as_bytes()).await?;
    stream.shutdown().await?;
    let mut echo = String::new();
    stream.read_to_string(&mut echo).await?;
    println!("{echo}");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let context = Context::open()?;
    // Each connection takes some of it.
    let entries = context.device_attr().max_cqe.min(64 << 10);
    let cq = CompletionQueue::builder(&context, entries).reactor(Tokio::current());
    let cq = cq.build()?;
    match &args[..] {
        [server, addr] if server == "server" => serve(cq, addr, usize::MAX).await,
        [server, addr, clients] if server == "server" => serve(cq, addr, clients.parse()?).await,
        [client, addr, words @ ..] if client == "client" => ask(cq, addr, words).await,
        _ => Err(
            "usage: tokio_echo server ADDRESS:PORT [CLIENTS] | client ADDRESS:PORT WORDS...".into(),
        ),
    }
}
