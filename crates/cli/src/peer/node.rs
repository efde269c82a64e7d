//! A process that has the device open, and its peer: the same program, started again or waiting
//! elsewhere.

use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rnic::exchange::Exchange;
use rnic::{
    CompletionQueue, Context, GidEntry, PathMtu, ProtectionDomain, QueuePair, Rc, RemoteMemory,
    WritableRegion,
};

use super::between::Between;
use super::bulk::Bulk;
use super::waiting::PEER_TIMEOUT;
use crate::platform::failure::{Failure, Result};

/// The second process, started by the first and connected to it by pipes. Killed when dropped.
pub struct Peer {
    child: Child,
}

impl Peer {
    /// Starts `rnic part ROLE ARGS...`.
    pub fn start(role: &str, args: &[String]) -> Result<(Peer, Exchange)> {
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        command
            .args(["part", role])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // It has nothing to say of its own then.
        rnic_sys::child::die_with_parent(&mut command);
        let mut child = command
            .spawn()
            .map_err(|error| Failure::from(error).during("starting the second process"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new("the second process has no pipes"));
        };
        let peer = Peer { child };
        Ok((peer, Exchange::over(output, input)?))
    }

    /// Process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What failed here, with the end of that process in front if it was killed: then it could not
    /// say so itself.
    pub fn blame(&mut self, failure: Failure) -> Failure {
        // Its end of the channel is closed before it counts as ended.
        let deadline = Instant::now() + Duration::from_secs(1);
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(Some(status)) if status.signal().is_some() => {
                    return failure.during(&format!("the second process was killed ({status})"));
                }
                _ => return failure,
            }
        }
    }

    /// Waits for its end; the channel to it is closed first, which ends a peer that still listens.
    pub fn finish(mut self, exchange: Exchange) -> Result<()> {
        drop(exchange);
        let status = self.child.wait()?;
        match status.success() {
            true => Ok(()),
            false => Err(Failure::new(format!("the second process failed: {status}"))
                .cause("it has said why above")),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Fails if it has ended, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The channel of the second process to the first.
pub fn parent() -> Result<Exchange> {
    // Without the buffer of the standard library, so that the descriptor tells whether a message is
    // there.
    let input = std::fs::File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    Ok(Exchange::over(input, std::io::stdout())?)
}

/// Bytes of the region of a [`Station`] that nobody wants larger.
pub const REGION: usize = 2 << 20;
/// Most bytes that a station sends inline.
pub const INLINE: usize = 64;
/// Depth of a station's queues.
pub const DEPTH: u32 = 128;

/// Ties the calling thread, and it alone, to one of the two processors that a pair of processes
/// takes.
pub fn pin(processor: Option<usize>) {
    if let (Some(processor), cpus @ [_, _, ..]) = (processor, &rnic_sys::child::allowed_cpus()[..])
    {
        // Not being allowed to is no reason not to measure.
        let _ = rnic_sys::child::pin_thread(cpus[processor]);
    }
}

/// A path MTU on the command line.
pub fn parse_mtu(text: &str) -> std::result::Result<PathMtu, String> {
    let bytes: usize = text.parse().map_err(|_| "not a number".to_owned())?;
    let known = PathMtu::ALL.into_iter().find(|mtu| mtu.bytes() == bytes);
    known.ok_or_else(|| "a path MTU is 256, 512, 1024, 2048 or 4096".to_owned())
}

/// A queue pair that is connected with the one that the peer makes at the same time; both are ready
/// when this returns.
fn connect(
    exchange: &mut Exchange,
    pd: &ProtectionDomain,
    send_cq: &CompletionQueue,
    recv_cq: &CompletionQueue,
    gid: &GidEntry,
    mtu: Option<PathMtu>,
) -> Result<QueuePair<Rc>> {
    let mut builder = pd
        .create_qp::<Rc>(send_cq, recv_cq)
        .gid(gid)
        .max_send_wr(DEPTH)
        .max_recv_wr(DEPTH)
        .max_inline_data(INLINE as u32)
        // Both sides poll: where others want the processors, one of them is away for longer than a
        // usual timeout.
        .timeout(17);
    if let Some(mtu) = mtu {
        builder = builder.path_mtu(mtu);
    }
    let prepared = builder.build()?;
    let remote = exchange.swap_endpoints(&prepared.endpoint())?;
    let qp = prepared.handshake(remote)?;
    exchange.barrier()?;
    Ok(qp)
}

/// One connected queue pair with queues, a region that the peer may use, and the channel to the
/// peer.
pub struct Station {
    context: Context,
    pub gid: GidEntry,
    pub pd: ProtectionDomain,
    pub send_cq: CompletionQueue,
    pub recv_cq: CompletionQueue,
    pub qp: QueuePair<Rc>,
    pub region: WritableRegion,
    /// The peer's region.
    pub remote: RemoteMemory,
    pub exchange: Exchange,
    /// What there is beside, if anything.
    pub bulk: Option<Bulk>,
}

impl Station {
    /// Connects to the peer, which does the same at the other end of the channel. `region`: bytes
    /// that the peer may use.
    pub fn connect(
        mut exchange: Exchange,
        choose: impl FnOnce(&Context) -> Result<GidEntry>,
        mtu: Option<PathMtu>,
        region: usize,
    ) -> Result<Station> {
        let context = Context::open()?;
        let gid = choose(&context)?;
        let pd = context.alloc_pd()?;
        let send_cq = context.create_cq(DEPTH).build()?;
        let recv_cq = context.create_cq(DEPTH).build()?;
        let region = pd.writable(region).readable().atomic().build()?;
        let memory = RemoteMemory::from_bytes(&exchange.swap(&region.remote().to_bytes())?)?;
        let qp = connect(&mut exchange, &pd, &send_cq, &recv_cq, &gid, mtu)?;
        Ok(Station {
            context,
            gid,
            pd,
            send_cq,
            recv_cq,
            qp,
            region,
            remote: memory,
            exchange,
            bulk: None,
        })
    }

    /// Opens one more connection to the peer, which does the same, for RDMA WRITEs of `size` bytes
    /// beside what is measured. They go to the end of the peer's region.
    pub fn add_bulk(&mut self, size: usize) -> Result<()> {
        let cq = self.context.create_cq(DEPTH).build()?;
        let mtu = Some(self.qp.path_mtu());
        let qp = connect(&mut self.exchange, &self.pd, &cq, &cq, &self.gid, mtu)?;
        let start = self.remote.len.saturating_sub(size as u64);
        let target = self.remote.slice(start, size as u64)?;
        self.bulk = Some(Bulk::new(&self.pd, cq, qp, target)?);
        Ok(())
    }

    /// Between whom: `peer` is what the other end is called.
    pub fn between(&self, peer: String) -> Between {
        let qp = &self.qp;
        Between::new(&self.gid, qp.remote().addr(), peer, qp.path_mtu().bytes())
    }

    /// The next send completion, which must be a success.
    pub fn sent(&self) -> Result<rnic::Completion> {
        Ok(self.send_cq.wait(PEER_TIMEOUT)?.ok()?)
    }

    /// The next receive completion, which must be a success.
    pub fn received(&self) -> Result<rnic::Completion> {
        Ok(self.recv_cq.wait(PEER_TIMEOUT)?.ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_mtus() {
        assert_eq!(parse_mtu("4096"), Ok(PathMtu::M4096));
        assert!(parse_mtu("1000").is_err() && parse_mtu("x").is_err());
    }
}
