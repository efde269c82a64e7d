//! One-sided key-value get: a client finds a value in a server's table by RDMA READ, and the server
//! does nothing. A slot has a key and a value, of 32 bytes each.
#![forbid(unsafe_code)]

use rnic::{Context, QueuePair, Rc, RemoteMemory, Result, SendRequest};

const HALF: usize = 32;
const SLOT: usize = 2 * HALF;
const SLOTS: usize = 256;
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// Where a key may be: the slot that its hash names first, then those behind it.
fn places(key: &str) -> impl Iterator<Item = usize> {
    let hash = |hash, byte| (hash * 33 + usize::from(byte)) % 65_521;
    let first = key.bytes().fold(0, hash);
    (first..first + SLOTS).map(|slot| slot % SLOTS * SLOT)
}

fn half(text: &str) -> [u8; HALF] {
    std::array::from_fn(|at| text.as_bytes().get(at).copied().unwrap_or(0))
}

fn get(qp: &QueuePair<Rc>, table: RemoteMemory, key: &str) -> Result<Option<String>> {
    for place in places(key) {
        let slot = table.slice(place as u64, SLOT as u64)?;
        qp.post(SendRequest::read(qp.pd().buffer(SLOT)?, slot))?;
        let read = qp.send_cq().wait(PATIENCE)?.ok()?;
        let (found, value) = read.data().split_at(HALF);
        if found == half(key) {
            return Ok(Some(String::from_utf8_lossy(value).replace('\0', "")));
        }
        if found == [0; HALF] {
            break;
        }
    }
    Ok(None)
}

/// The server's part is to fill the table; then the client gets.
pub fn main() -> Result<()> {
    let context = Context::open()?;
    let pd = context.alloc_pd()?;
    let mut table = pd.buffer(SLOTS * SLOT)?;
    for (key, value) in [("apple", "red"), ("pear", "green"), ("plum", "blue")] {
        let mut free = places(key).filter(|at| table[*at] == 0);
        let slot = free.next().expect("the table is not full");
        table[slot..slot + SLOT].copy_from_slice(&[half(key), half(value)].concat());
    }
    let table = pd.share(table)?;
    let cq = context.create_cq(16).build()?;
    let server = pd.create_qp::<Rc>(&cq, &cq).build()?;
    let client = pd.create_qp::<Rc>(&cq, &cq).build()?;
    let to_server = server.endpoint();
    let _server = server.handshake(client.endpoint())?;
    let client = client.handshake(to_server)?;
    assert_eq!(get(&client, table.remote(), "pear")?, Some("green".into()));
    assert_eq!(get(&client, table.remote(), "grape")?, None);
    println!("a pear is green");
    Ok(())
}
