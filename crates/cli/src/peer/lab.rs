//! One of each, within a process: what there has to be in a capture in which words are looked up.
//!
//! `rnic explain` starts this as `rnic part lab`, with a capture, and reads that.

use std::time::Duration;

use rnic::{
    CmConnector, CmListener, CompletionQueue, Context, Destination, GidEntry, HEADER_LEN,
    ProtectionDomain, QueuePair, Rc, RemoteMemory, SendRequest, Uc, Ud,
};

use crate::platform::failure::{Failure, Result};

const PATIENCE: Duration = Duration::from_secs(10);
/// Fits into one packet of any path MTU.
const SHORT: usize = 200;

struct Lab {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    gid: GidEntry,
}

impl Lab {
    fn complete(&self, what: &str) -> Result<()> {
        let completion = self.cq.wait(PATIENCE)?;
        completion
            .ok()
            .map(drop)
            .map_err(|error| Failure::from(error).during(what))
    }

    /// Two connected ends, each with receives.
    fn pair(&self) -> Result<(QueuePair<Rc>, QueuePair<Rc>)> {
        let build = || {
            // 12: 0.64 ms.
            let builder = self.pd.create_qp::<Rc>(&self.cq, &self.cq);
            builder.gid(&self.gid).min_rnr_timer(12).build()
        };
        let (a, b) = (build()?, build()?);
        let (to_a, to_b) = (a.endpoint(), b.endpoint());
        Ok((a.handshake(to_b)?, b.handshake(to_a)?))
    }

    fn connected(&self) -> Result<()> {
        let (a, b) = self.pair()?;
        let region = self.pd.writable(4096).readable().atomic().build()?;
        let there = region.remote();
        let buffer = || self.pd.buffer(SHORT);
        // Nothing is posted yet: the first answer is an RNR NAK, and the second SEND finds it.
        a.post(SendRequest::send(buffer()?).solicited())?;
        let sent = a.counters().packets_sent;
        let end = std::time::Instant::now() + PATIENCE;
        while a.counters().packets_sent <= sent && std::time::Instant::now() < end {
            // Polling drives the device; nothing can have completed.
            if self.cq.poll_one()?.is_some() {
                return Err(Failure::new("a message was taken without a receive"));
            }
        }
        b.post_recv(buffer()?, 1)?;
        self.complete("SEND")?;
        self.complete("receive")?;
        b.post_recv_empty(2)?;
        let part = there.slice(0, SHORT as u64)?;
        let word = there.slice(0, 8)?;
        let plain = SendRequest::write(buffer()?, part);
        for (request, what) in [
            (plain, "RDMA WRITE"),
            (SendRequest::read(buffer()?, part), "RDMA READ"),
            (
                SendRequest::fetch_add(self.pd.buffer(8)?, word, 7),
                "FETCH-AND-ADD",
            ),
        ] {
            a.post(request)?;
            self.complete(what)?;
        }
        a.post(SendRequest::write(buffer()?, part).imm(*b"done"))?;
        self.complete("RDMA WRITE with immediate")?;
        self.complete("its receive")?;
        // The region ends before: refused, and both queue pairs are in error then.
        let beyond = RemoteMemory {
            addr: there.addr + there.len,
            ..part
        };
        a.post(SendRequest::write(buffer()?, beyond))?;
        match self.cq.wait(PATIENCE)?.ok() {
            Err(_) => Ok(()),
            Ok(_) => Err(Failure::new("a WRITE past the end of a region was done")),
        }
    }

    fn unreliable(&self) -> Result<()> {
        let build = || {
            let builder = self.pd.create_qp::<Uc>(&self.cq, &self.cq);
            builder.gid(&self.gid).build()
        };
        let (a, b) = (build()?, build()?);
        let (to_a, to_b) = (a.endpoint(), b.endpoint());
        let (a, b) = (a.handshake(to_b)?, b.handshake(to_a)?);
        b.post_recv(self.pd.buffer(SHORT)?, 3)?;
        a.post(SendRequest::send(self.pd.buffer(SHORT)?))?;
        self.complete("SEND over UC")?;
        self.complete("its receive")
    }

    fn datagram(&self) -> Result<()> {
        let build = || {
            let builder = self.pd.create_qp::<Ud>(&self.cq, &self.cq);
            builder.gid(&self.gid).build()
        };
        let (a, b) = (build()?, build()?);
        b.post_recv(self.pd.buffer(HEADER_LEN + SHORT)?, 4)?;
        let to = Destination {
            ah: self.pd.create_ah(&self.gid, self.gid.addr)?,
            qpn: b.qpn(),
            qkey: b.qkey(),
        };
        a.post(SendRequest::send(self.pd.buffer(SHORT)?), &to)?;
        self.complete("SEND over UD")?;
        self.complete("its receive")
    }

    fn by_the_connection_manager(&self) -> Result<()> {
        let build = || self.pd.create_qp::<Rc>(&self.cq, &self.cq).build();
        let listener = CmListener::<Rc>::bind((self.gid.addr, 0))?;
        let address = listener.local_addr()?;
        let (ours, theirs) = (build()?, build()?);
        std::thread::scope(|scope| {
            let accepted = scope.spawn(move || -> Result<()> {
                let request = listener.request(Some(PATIENCE))?;
                let connection = request.accept_with(theirs, b"welcome")?;
                Ok(connection.wait_disconnected(Some(PATIENCE))?)
            });
            let connection = CmConnector::new(address)?
                .private_data(b"hello")
                .connect(ours)?;
            connection.disconnect();
            match accepted.join() {
                Ok(result) => result,
                Err(_) => Err(Failure::new("the listening thread ended")),
            }
        })
    }
}

/// The process.
pub fn main() -> Result<()> {
    let context = Context::open()?;
    let gid = context.loopback_gid()?;
    let lab = Lab {
        pd: context.alloc_pd()?,
        cq: context.create_cq(64).build()?,
        gid,
    };
    lab.by_the_connection_manager()?;
    lab.unreliable()?;
    lab.datagram()?;
    lab.connected()
}
