//! The queue pairs of one measurement, of any service.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rnic::{
    Buffer, Completion, CompletionQueue, Connected, DatagramQueuePair, Destination, Endpoint,
    HEADER_LEN, PathMtu, PreparedQueuePair, QueuePair, Rc, SendRequest, SharedReceiveQueue, Uc, Ud,
};
use serde::{Deserialize, Serialize};

use super::{Side, decoded, encoded};
use crate::commands::study::setup::{Flow, Operation, Service, Setup, Waiting};
use crate::peer::waiting::PEER_TIMEOUT;
use crate::platform::failure::{Failure, Result};

/// A queue pair that knows its peer.
enum End {
    Rc(QueuePair<Rc>),
    Uc(QueuePair<Uc>),
    Ud(DatagramQueuePair, Destination),
}

/// What the other side has to know of each queue pair.
#[derive(Debug, Serialize, Deserialize)]
enum There {
    /// An endpoint's bytes.
    Connected(Vec<u8>),
    Datagram {
        addr: std::net::IpAddr,
        qpn: u32,
        qkey: u32,
    },
}

pub struct Rig {
    ends: Vec<End>,
    pub send_cq: CompletionQueue,
    pub recv_cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    service: Service,
    /// Which queue pair has this number.
    of_number: HashMap<u32, usize>,
    waiting: Waiting,
}

impl Rig {
    /// Makes queue pairs, posts their receives and connects them with the other side's.
    pub fn new(side: &mut Side, setup: &Setup) -> Result<Rig> {
        let depth = send_depth(setup);
        let entries = (depth * setup.queue_pairs).min(1 << 16) as u32;
        let send_cq = side.context.create_cq(entries).build()?;
        let recv_cq = side.context.create_cq(setup.receives() as u32).build()?;
        let srq = match setup.shared_receives {
            true => Some(side.pd.create_srq(setup.receives_of_each() as u32)?),
            false => None,
        };
        let mut rig = Rig {
            ends: Vec::new(),
            send_cq,
            recv_cq,
            srq,
            service: setup.service,
            of_number: HashMap::new(),
            waiting: setup.waiting,
        };
        match setup.service {
            Service::Rc => rig.connect::<Rc>(side, setup, End::Rc)?,
            Service::Uc => rig.connect::<Uc>(side, setup, End::Uc)?,
            Service::Ud => rig.address(side, setup)?,
        }
        Ok(rig)
    }

    fn connect<T: Connected>(
        &mut self,
        side: &mut Side,
        setup: &Setup,
        end: fn(QueuePair<T>) -> End,
    ) -> Result<()> {
        let mtu = setup.path_mtu.map(|bytes| {
            let known = PathMtu::ALL.into_iter().find(|mtu| mtu.bytes() == bytes);
            known.ok_or_else(|| Failure::new(format!("{bytes} bytes are no path MTU")))
        });
        let mtu = mtu.transpose()?;
        let mut prepared: Vec<PreparedQueuePair<T>> = Vec::new();
        for _ in 0..setup.queue_pairs {
            let mut builder = (side.pd.create_qp::<T>(&self.send_cq, &self.recv_cq))
                .gid(&side.gid)
                .max_send_wr(send_depth(setup) as u32)
                .max_recv_wr(setup.receives_of_each() as u32)
                .max_inline_data(side.inline())
                // Both sides poll: where others want the processors, one of them is away for long.
                .timeout(17);
            if let Some(mtu) = mtu {
                builder = builder.path_mtu(mtu);
            }
            if let Some(srq) = &self.srq {
                builder = builder.srq(srq);
            }
            prepared.push(builder.build()?);
        }
        self.of_number = (prepared.iter().map(PreparedQueuePair::qpn))
            .zip(0..)
            .collect();
        let mut buffers = receives(side, setup, 0)?.into_iter();
        match &self.srq {
            Some(srq) => buffers.try_for_each(|buffer| srq.post_recv(buffer, 0))?,
            None => {
                for qp in &prepared {
                    let mut mine = buffers.by_ref().take(setup.receives_of_each());
                    mine.try_for_each(|buffer| qp.post_recv(buffer, 0))?;
                }
            }
        }
        let here = prepared
            .iter()
            .map(|qp| There::Connected(qp.endpoint().to_bytes().into()));
        let there = swap(side, here.collect())?;
        for (qp, there) in prepared.into_iter().zip(there) {
            let There::Connected(bytes) = there else {
                return Err(Failure::new("the other side has datagrams"));
            };
            let endpoint = Endpoint::from_bytes(&bytes)?;
            self.ends.push(end(qp.handshake(endpoint)?));
        }
        Ok(())
    }

    fn address(&mut self, side: &mut Side, setup: &Setup) -> Result<()> {
        let mut qps = Vec::new();
        for _ in 0..setup.queue_pairs {
            let builder = (side.pd.create_qp::<Ud>(&self.send_cq, &self.recv_cq))
                .gid(&side.gid)
                .max_send_wr(send_depth(setup) as u32)
                .max_recv_wr(setup.receives_of_each() as u32)
                .max_inline_data(side.inline());
            qps.push(builder.build()?);
        }
        self.of_number = qps.iter().map(DatagramQueuePair::qpn).zip(0..).collect();
        let mut buffers = receives(side, setup, HEADER_LEN)?.into_iter();
        for qp in &qps {
            let mut mine = buffers.by_ref().take(setup.receives_of_each());
            mine.try_for_each(|buffer| qp.post_recv(buffer, 0))?;
        }
        let addr = side.gid.addr;
        let here = qps.iter().map(|qp| There::Datagram {
            addr,
            qpn: qp.qpn(),
            qkey: qp.qkey(),
        });
        let there = swap(side, here.collect())?;
        for (qp, there) in qps.into_iter().zip(there) {
            let There::Datagram { addr, qpn, qkey } = there else {
                return Err(Failure::new("the other side has connections"));
            };
            let ah = side.pd.create_ah(&side.gid, addr)?;
            self.ends.push(End::Ud(qp, Destination { ah, qpn, qkey }));
        }
        Ok(())
    }

    pub fn path_mtu(&self) -> Option<usize> {
        match self.ends.first()? {
            End::Rc(qp) => Some(qp.path_mtu().bytes()),
            End::Uc(qp) => Some(qp.path_mtu().bytes()),
            End::Ud(..) => None,
        }
    }

    pub fn queue_pairs(&self) -> usize {
        self.ends.len()
    }

    pub fn post(&self, qp: usize, request: SendRequest) -> Result<()> {
        match &self.ends[qp] {
            End::Rc(qp) => qp.post(request)?,
            End::Uc(qp) => qp.post(request)?,
            End::Ud(qp, to) => qp.post(request, to)?,
        }
        Ok(())
    }

    /// Posts them by one call, where there are several.
    pub fn post_list(&self, qp: usize, requests: &mut Vec<SendRequest>) -> Result<()> {
        if let ([_, _, ..], End::Rc(qp)) = (&requests[..], &self.ends[qp]) {
            return Ok(qp.post_list(requests)?);
        }
        requests
            .drain(..)
            .try_for_each(|request| self.post(qp, request))
    }

    /// Which queue pair a completion is of.
    pub fn queue_pair_of(&self, completion: &Completion) -> usize {
        let found = self.of_number.get(&completion.qpn());
        found.copied().unwrap_or_default()
    }

    /// Bytes of a message that was received, without what is in front of it.
    pub fn message_len(&self, received: &Completion) -> usize {
        let header = match self.service {
            Service::Ud => HEADER_LEN,
            _ => 0,
        };
        received.byte_len().saturating_sub(header)
    }

    /// Whether a message may be lost without a word.
    pub fn may_lose(&self) -> bool {
        self.service != Service::Rc
    }

    /// Posts the buffer of a message again, where it came from.
    pub fn post_again(&self, received: Completion) -> Result<()> {
        let qp = self.queue_pair_of(&received);
        let Some(buffer) = received.into_buffer() else {
            return Err(Failure::new("a message without its buffer"));
        };
        match (&self.srq, &self.ends[qp]) {
            (Some(srq), _) => srq.post_recv(buffer, 0)?,
            (None, End::Rc(qp)) => qp.post_recv(buffer, 0)?,
            (None, End::Uc(qp)) => qp.post_recv(buffer, 0)?,
            (None, End::Ud(qp, _)) => qp.post_recv(buffer, 0)?,
        }
        Ok(())
    }

    /// The next completion, waited for in the manner of the setup. `None`: for a while there was
    /// none.
    pub fn wait(&self, cq: &CompletionQueue) -> Result<Option<Completion>> {
        let found = match self.waiting {
            Waiting::Busy => poll_busily(cq),
            Waiting::Adaptive => cq.wait(WHILE),
            Waiting::Event => wait_for_event(cq),
        };
        match found {
            Ok(completion) => Ok(Some(completion.ok()?)),
            Err(rnic::Error::Timeout(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The next completion of requests that complete in any case.
    pub fn completed(&self) -> Result<Completion> {
        let patience = PEER_TIMEOUT.as_millis() / WHILE.as_millis();
        for _ in 0..patience {
            if let Some(completion) = self.wait(&self.send_cq)? {
                return Ok(completion);
            }
        }
        Err(rnic::Error::Timeout(PEER_TIMEOUT).into())
    }
}

/// How long a side waits for a message before it looks whether it was lost, or the peer is gone.
pub const WHILE: Duration = Duration::from_millis(100);

/// As a program does that never sleeps.
fn poll_busily(cq: &CompletionQueue) -> rnic::Result<Completion> {
    let mut start = None;
    loop {
        for _ in 0..64 {
            if let Some(completion) = cq.poll_one()? {
                return Ok(completion);
            }
        }
        if start.get_or_insert_with(Instant::now).elapsed() > WHILE {
            return Err(rnic::Error::Timeout(WHILE));
        }
    }
}

/// As a program does that never polls in vain: it arms, looks once, and sleeps on the channel.
fn wait_for_event(cq: &CompletionQueue) -> rnic::Result<Completion> {
    loop {
        cq.arm(false);
        if let Some(completion) = cq.poll_one()? {
            return Ok(completion);
        }
        cq.channel().wait_event(Some(WHILE))?;
        if let Some(completion) = cq.poll_one()? {
            return Ok(completion);
        }
    }
}

/// Depth of each send queue.
fn send_depth(setup: &Setup) -> usize {
    match setup.flow {
        Flow::Stream => (setup.depth + setup.batch).max(2 * setup.signal_every) + 2,
        _ => 64,
    }
}

/// Buffers for all receives, of one piece of registered memory.
fn receives(side: &Side, setup: &Setup, header: usize) -> Result<Vec<Buffer>> {
    let size = match setup.operation {
        Operation::Send => setup.size,
        // The last message is empty.
        _ => 1,
    } + header;
    let count = setup.receives();
    let mut rest = side.pd.buffer(size * count)?;
    let mut buffers: Vec<Buffer> = (1..count).map(|_| rest.split_to(size)).collect();
    buffers.push(rest);
    Ok(buffers)
}

fn swap(side: &mut Side, here: Vec<There>) -> Result<Vec<There>> {
    let theirs = side.exchange.swap(&encoded(&here)?)?;
    let there: Vec<There> = decoded(&theirs)?;
    match there.len() == here.len() {
        true => Ok(there),
        false => Err(Failure::new(
            "the other side has another number of queue pairs",
        )),
    }
}
