//! A key-value store whose clients get by RDMA READ, of which the server's program notices nothing:
//! `kv_get server ADDRESS:PORT KEY=VALUE...`, and `kv_get client ADDRESS:PORT KEY...`.
use rnic::aio::{self, CompletionQueue, Listener};
use rnic::{CmConnector, Context, Rc, RemoteMemory};

type Outcome = Result<(), Box<dyn std::error::Error>>;
const SLOTS: usize = 256;
/// Bytes of a slot: "KEY=VALUE", and zeros.
const SLOT: usize = 256;

/// FNV-1a, on which both sides agree.
fn slot_of(key: &str) -> usize {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    key.bytes().fold(0xcbf2_9ce4_8422_2325, mix) as usize % SLOTS * SLOT
}

async fn serve(cq: CompletionQueue, addr: &str, pairs: &[String]) -> Outcome {
    let pd = cq.context().alloc_pd()?;
    let mut table = pd.buffer(SLOTS * SLOT)?;
    for pair in pairs {
        let (key, _) = pair.split_once('=').ok_or("KEY=VALUE")?;
        let slot = &mut table[slot_of(key)..][..SLOT];
        if slot[0] != 0 || pair.len() > SLOT {
            return Err(format!("{pair} is too long, or its slot is taken").into());
        }
        slot[..pair.len()].copy_from_slice(pair.as_bytes());
    }
    let table = pd.share(table)?;
    let listener = Listener::<Rc>::bind(&cq, addr)?;
    println!("listening on {}", listener.local_addr()?);
    let (request, qp) = (listener.accept().await?, cq.create_qp::<Rc>(&pd).build()?);
    let connection = request.accept_with(qp, &table.remote().to_bytes());
    Ok(connection.await?.disconnected().await?)
}

async fn get(cq: CompletionQueue, addr: &str, keys: &[String]) -> Outcome {
    let pd = cq.context().alloc_pd()?;
    let qp = cq.create_qp::<Rc>(&pd).build()?;
    let connection = qp.connect(&CmConnector::new(addr)?).await?;
    let table = RemoteMemory::from_bytes(&connection.private_data()[..RemoteMemory::BYTES])?;
    for key in keys {
        let at = table.slice(slot_of(key) as u64, SLOT as u64)?;
        let slot = connection.read(pd.buffer(SLOT)?, at).await?;
        let text = String::from_utf8_lossy(slot.data());
        let text = text.trim_end_matches('\0');
        let value = text.strip_prefix(key).and_then(|v| v.strip_prefix('='));
        println!("{key}: {}", value.unwrap_or("no such key"));
    }
    Ok(())
}

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let cq = CompletionQueue::new(&Context::open()?, 256)?;
    match &args[..] {
        [role, addr, pairs @ ..] if role == "server" => aio::block_on(serve(cq, addr, pairs)),
        [role, addr, keys @ ..] if role == "client" => aio::block_on(get(cq, addr, keys)),
        _ => Err("kv_get server ADDRESS:PORT KEY=VALUE... | client ADDRESS:PORT KEY...".into()),
    }
}
