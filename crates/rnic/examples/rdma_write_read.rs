//! One-sided RDMA: a client writes into the server's memory and reads from it, without the server's
//! doing.
//!
//! ```text
//! rdma_write_read [-p PORT]                 the server: offers a buffer to one client
//! rdma_write_read [-p PORT] [-r | -w] HOST  the client: writes the buffer, then reads it (-r: only reads, -w: only writes)
//! ```
//! `examples/c/rdma_write_read.c` is the same in C; the two understand each other.
//!
//! Who wants to access the memory of another has to know three things of it: its address, its
//! length, and its key (the rkey, which the NIC gave out when the memory was registered). RDMA has
//! no way of its own to ask for them, so the server tells them in a message, by send and receive:
//!
//! ```text
//! client                                            server
//! connect (as in rdma_send_recv)                    accept
//! receive               <=== address, length, rkey  send
//! RDMA write            === data ===>               (its application does not notice)
//! RDMA read             <=== data ===               (nor this)
//! send                  === "done" ===>             receive: now it may look
//! disconnect                                        the client has disconnected
//! ```
//! The last message is needed because nothing tells the server's application that its memory has
//! changed.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use rnic::{
    Buffer, CmConnector, CmListener, Completion, CompletionOpcode, CompletionQueue, Context,
    ProtectionDomain, Rc, RemoteMemory, SendRequest,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Bytes that the server offers.
const REGION: usize = 4096;
/// The offer, as it goes over the network. Both sides have to agree on its form: address (64 bits),
/// length and rkey (32 bits each), big endian.
const OFFER: usize = 16;
const PATIENCE: Duration = Duration::from_secs(30);

fn encode(memory: &RemoteMemory) -> Outcome<Vec<u8>> {
    let mut bytes = memory.addr.to_be_bytes().to_vec();
    bytes.extend(u32::try_from(memory.len)?.to_be_bytes());
    bytes.extend(memory.rkey.to_be_bytes());
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Outcome<RemoteMemory> {
    let bytes: [u8; OFFER] = bytes.try_into().map_err(|_| "not an offer")?;
    let (addr, rest) = bytes.split_at(8);
    let (len, rkey) = rest.split_at(4);
    Ok(RemoteMemory {
        addr: u64::from_be_bytes(addr.try_into()?),
        len: u32::from_be_bytes(len.try_into()?).into(),
        rkey: u32::from_be_bytes(rkey.try_into()?),
    })
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    bytes[..end.unwrap_or(bytes.len())]
        .escape_ascii()
        .to_string()
}

struct Side {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    /// Completions that came before it was their turn: sends and receives complete in order each,
    /// not with each other.
    early: Vec<Completion>,
}

impl Side {
    fn new() -> Outcome<Side> {
        let context = Context::open()?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(4).build()?;
        Ok(Side {
            pd,
            cq,
            early: Vec::new(),
        })
    }

    /// Waits for a completion of this kind.
    fn wait_for(&mut self, opcode: CompletionOpcode, what: &str) -> Outcome<Completion> {
        loop {
            let found = self.early.iter().position(|done| done.opcode() == opcode);
            if let Some(at) = found {
                println!("{what}");
                return Ok(self.early.remove(at));
            }
            // `ok`: an error if the work request has failed.
            self.early.push(self.cq.wait(PATIENCE)?.ok()?);
        }
    }

    /// The memory that the client writes from and reads into: nobody else can touch it.
    fn region(&self, contents: &str) -> Outcome<Buffer> {
        let mut buffer = self.pd.buffer(REGION)?;
        buffer[..contents.len()].copy_from_slice(contents.as_bytes());
        Ok(buffer)
    }
}

fn serve(port: u16) -> Outcome<()> {
    let listener = CmListener::<Rc>::bind(("::", port))?;
    println!("listening on port {}", listener.local_addr()?.port());
    std::io::stdout().flush()?;

    let request = listener.request(None)?;
    let mut side = Side::new()?;
    // What a peer may write at any time is no slice: its bytes are copied in and out.
    let region = side.pd.writable(REGION).readable().build()?;
    region.copy_in(0, b"what the server wrote\0")?;

    let qp = side.pd.create_qp::<Rc>(&side.cq, &side.cq).build()?;
    qp.post_recv(side.pd.buffer(OFFER)?, 1)?; // for "done"
    let connection = request.accept(qp)?;
    println!("connected");

    let offer = side.pd.buffer_from(&encode(&region.remote())?)?;
    connection.post(SendRequest::send(offer))?;
    side.wait_for(CompletionOpcode::Send, "offered the region")?;
    side.wait_for(CompletionOpcode::Recv, "the client is done")?;
    let mut bytes = vec![0; REGION];
    region.copy_out(0, &mut bytes)?;
    println!("the region now holds \"{}\"", text(&bytes));

    connection.wait_disconnected(Some(PATIENCE))?;
    Ok(())
}

fn connect_to(host: &str, port: u16, writes: bool, reads: bool) -> Outcome<()> {
    let mut side = Side::new()?;
    let qp = side.pd.create_qp::<Rc>(&side.cq, &side.cq).build()?;
    qp.post_recv(side.pd.buffer(OFFER)?, 1)?; // for the offer
    let connection = CmConnector::new((host, port))?.connect(qp)?;
    println!("connected");

    let received = side.wait_for(CompletionOpcode::Recv, "received the offer")?;
    let offer = decode(received.data())?;
    println!(
        "the server offers {} bytes at {:#x}, rkey {:#x}",
        offer.len, offer.addr, offer.rkey
    );
    let offered = offer.slice(0, offer.len.min(REGION as u64))?;
    let length = offered.len as usize;

    if writes {
        let data = side.region("what the client wrote")?;
        connection.post(SendRequest::write(data, offered).range(..length)?)?;
        // The completion says that the data lies in the server's memory (and gives the buffer
        // back).
        side.wait_for(CompletionOpcode::RdmaWrite, "written")?;
    }
    if reads {
        connection.post(SendRequest::read(side.region("")?, offered).range(..length)?)?;
        let read = side.wait_for(CompletionOpcode::RdmaRead, "read")?;
        let buffer = read.into_buffer().ok_or("a READ has a buffer")?;
        println!("the server's region holds \"{}\"", text(&buffer));
    }

    connection.post(SendRequest::send_inline(b""))?;
    side.wait_for(CompletionOpcode::Send, "told the server")?;
    Ok(()) // the connection ends with its variable
}

fn main() -> Outcome<()> {
    let (mut port, mut writes, mut reads) = (18601, true, true);
    let mut host = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), &host) {
            ("-p", _) => port = args.next().ok_or("-p needs a port")?.parse()?,
            ("-r", _) => writes = false,
            ("-w", _) => reads = false,
            (_, None) if !arg.starts_with('-') => host = Some(arg),
            _ => return Err("usage: rdma_write_read [-p PORT] [-r | -w] [HOST]".into()),
        }
    }
    match host {
        Some(host) => connect_to(&host, port, writes, reads),
        None => serve(port),
    }
}
