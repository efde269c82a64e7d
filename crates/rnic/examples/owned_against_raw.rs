//! What the safe API costs: a SEND and a WRITE with buffers that move into the queue and come back,
//! against the same requests on the device below, posted by address.
//!
//! ```text
//! cargo run --release --example owned_against_raw [-- ROUNDS]
//! ```
//! Both ways take turns, round by round, in one process and on one thread, so that a change of the
//! machine's state hits both. A round is a number of requests of one kind, each awaited by polling;
//! what is compared is the median of the ratios of neighbouring rounds. Take an idle machine.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use rnic::{
    Buffer, CompletionOpcode, CompletionQueue, Context, QueuePair, Rc, RemoteMemory, SendRequest,
};
use rnic_nic as nic;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Requests of a round.
const REQUESTS: u32 = 400;
/// Bytes of a request, each in a row of its own.
const SIZES: [usize; 3] = [64, 1024, 16384];
/// A completion that does not come is a failure.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
enum Kind {
    Send,
    Write,
}

impl Kind {
    /// A SEND has one on each side.
    fn completions(self) -> usize {
        match self {
            Kind::Send => 2,
            Kind::Write => 1,
        }
    }
}

/// By the safe API: two queue pairs, and buffers that go around.
struct Owned {
    left: QueuePair<Rc>,
    right: QueuePair<Rc>,
    cq: CompletionQueue,
    to: RemoteMemory,
    _region: rnic::WritableRegion,
    sends: Option<Buffer>,
    receives: Option<Buffer>,
}

fn next(cq: &CompletionQueue) -> Outcome<rnic::Completion> {
    let begin = Instant::now();
    let mut polls = 0u32;
    loop {
        if let Some(done) = cq.poll_one()? {
            return Ok(done.ok()?);
        }
        polls += 1;
        if polls.is_multiple_of(1 << 16) && begin.elapsed() > PATIENCE {
            return Err("a completion did not come".into());
        }
    }
}

impl Owned {
    fn new(size: usize) -> Outcome<Owned> {
        let context = Context::open_by_name("rnic0")?;
        let gid = context.loopback_gid()?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(64).build()?;
        let left = pd.create_qp::<Rc>(&cq, &cq).gid(&gid).build()?;
        let right = pd.create_qp::<Rc>(&cq, &cq).gid(&gid).build()?;
        let (to_left, to_right) = (left.endpoint(), right.endpoint());
        let region = pd.writable(size).build()?;
        Ok(Owned {
            left: left.handshake(to_right)?,
            right: right.handshake(to_left)?,
            cq,
            to: region.remote(),
            _region: region,
            sends: Some(pd.buffer(size)?),
            receives: Some(pd.buffer(size)?),
        })
    }

    fn round(&mut self, kind: Kind) -> Outcome<Duration> {
        let begin = Instant::now();
        for id in 0..REQUESTS {
            let buffer = self.sends.take().ok_or("it came back")?;
            let request = match kind {
                Kind::Send => {
                    let into = self.receives.take().ok_or("it came back")?;
                    self.right.post_recv(into, id.into())?;
                    SendRequest::send(buffer)
                }
                Kind::Write => SendRequest::write(buffer, self.to),
            };
            self.left.post(request.id(id.into()))?;
            for _ in 0..kind.completions() {
                let done = next(&self.cq)?;
                let place = match done.opcode() {
                    CompletionOpcode::Recv => &mut self.receives,
                    _ => &mut self.sends,
                };
                *place = done.into_buffer();
            }
        }
        Ok(begin.elapsed())
    }
}

/// On the device: the program answers for addresses and lifetimes by itself.
struct Raw {
    left: nic::Qp,
    right: nic::Qp,
    cq: nic::Cq,
    regions: [nic::Mr; 3],
    _memory: Vec<u8>,
    size: usize,
}

impl Raw {
    fn new(size: usize) -> Outcome<Raw> {
        let context = nic::Context::open()?;
        let table = context.gid_table();
        let gid = table.iter().filter(|row| row.addr.is_loopback());
        let gid = gid
            .min_by_key(|row| row.addr.is_ipv6())
            .ok_or("no loopback")?;
        let pd = context.alloc_pd();
        let cq = context.create_cq(64, None, 0)?;
        let make = || {
            pd.create_qp(&nic::QpInit {
                qp_type: nic::QpType::Rc,
                send_cq: cq.clone(),
                recv_cq: cq.clone(),
                srq: None,
                cap: nic::QpCap {
                    max_send_wr: 64,
                    max_recv_wr: 64,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: 64,
                },
                sq_sig_all: false,
                cookie: 0,
            })
        };
        let (left, right) = (make()?, make()?);
        for (qp, peer) in [(&left, &right), (&right, &left)] {
            connect(qp, peer.qpn(), gid)?;
        }
        let mut memory = vec![0u8; 3 * size];
        let access = nic::Access::LOCAL_WRITE | nic::Access::REMOTE_WRITE;
        let mut regions = Vec::new();
        for part in memory.chunks_exact_mut(size) {
            let at = part.as_mut_ptr();
            // SAFETY: the memory lives as long as the regions, which are dropped first, and nobody
            // else uses it.
            regions.push(unsafe { pd.reg_mr(at, size, at as u64, access) }?);
        }
        let regions = regions.try_into().map_err(|_| "three regions")?;
        Ok(Raw {
            left,
            right,
            cq,
            regions,
            _memory: memory,
            size,
        })
    }

    fn sge(&self, region: usize) -> nic::Sge {
        nic::Sge {
            addr: self.regions[region].addr(),
            length: self.size as u32,
            lkey: self.regions[region].lkey(),
        }
    }

    fn round(&mut self, kind: Kind) -> Outcome<Duration> {
        let begin = Instant::now();
        for id in 0..REQUESTS {
            let wr_id = u64::from(id);
            let op = match kind {
                Kind::Send => {
                    let sges = [self.sge(1)].into_iter().collect();
                    let receive = nic::RecvWqe { wr_id, sges };
                    let posted = self.right.post_recv(&mut std::iter::once(Ok(receive)));
                    posted.map_err(|(_, error)| error)?;
                    nic::SendOp::Send
                }
                Kind::Write => nic::SendOp::Write {
                    remote_addr: self.regions[2].addr(),
                    rkey: self.regions[2].rkey(),
                },
            };
            let request = nic::SendWqe {
                wr_id,
                op,
                data: nic::SendData::Gather([self.sge(0)].into_iter().collect()),
                srqn: 0,
                signaled: true,
                solicited: false,
                fence: false,
            };
            let posted = self.left.post_send(&mut std::iter::once(Ok(request)));
            posted.map_err(|(_, error)| error)?;
            for _ in 0..kind.completions() {
                taken(&self.cq)?;
            }
        }
        Ok(begin.elapsed())
    }
}

fn taken(cq: &nic::Cq) -> Outcome<()> {
    let begin = Instant::now();
    let mut polls = 0u32;
    let mut status = nic::Status::Success;
    while cq.poll(1, &mut |done| status = black_box(*done).status)? == 0 {
        polls += 1;
        if polls.is_multiple_of(1 << 16) && begin.elapsed() > PATIENCE {
            return Err("a completion did not come".into());
        }
    }
    match status {
        nic::Status::Success => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// As the safe API's builder does by default.
fn connect(qp: &nic::Qp, peer: u32, gid: &nic::GidEntry) -> Outcome<()> {
    use nic::QpAttrMask as M;
    let attr = nic::QpAttr {
        qp_access_flags: nic::Access::REMOTE_WRITE,
        port_num: 1,
        path_mtu: Some(nic::PathMtu::largest_for_netdev(gid.netdev_mtu)),
        dest_qp_num: peer,
        max_dest_rd_atomic: 16,
        max_rd_atomic: 16,
        min_rnr_timer: 12,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ah: nic::AhAttr {
            dgid: gid.gid,
            sgid_index: u8::try_from(gid.index)?,
            hop_limit: 64,
            is_global: true,
            port_num: 1,
            ..nic::AhAttr::default()
        },
        ..nic::QpAttr::default()
    };
    let steps = [
        (
            nic::QpState::Init,
            M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS,
        ),
        (
            nic::QpState::Rtr,
            M::AV
                | M::PATH_MTU
                | M::DEST_QPN
                | M::RQ_PSN
                | M::MAX_DEST_RD_ATOMIC
                | M::MIN_RNR_TIMER,
        ),
        (
            nic::QpState::Rts,
            M::SQ_PSN | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC,
        ),
    ];
    for (qp_state, mask) in steps {
        let attr = nic::QpAttr { qp_state, ..attr };
        qp.modify(&attr, mask | M::STATE)?;
    }
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Outcome<()> {
    let rounds = std::env::args().nth(1);
    let rounds: usize = rounds.map_or(Ok(201), |text| text.parse())?;
    if rounds == 0 {
        return Err("at least one round".into());
    }
    println!("{rounds} rounds of {REQUESTS} requests each way; nanoseconds of a request, medians");
    for size in SIZES {
        let (mut owned, mut raw) = (Owned::new(size)?, Raw::new(size)?);
        for (kind, name) in [(Kind::Send, "SEND"), (Kind::Write, "WRITE")] {
            // Warm caches and paths.
            owned.round(kind)?;
            raw.round(kind)?;
            let (mut safe, mut below, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for round in 0..rounds {
                // Neither always comes first.
                let (a, b) = match round % 2 {
                    0 => (owned.round(kind)?, raw.round(kind)?),
                    _ => {
                        let b = raw.round(kind)?;
                        (owned.round(kind)?, b)
                    }
                };
                let each = |time: Duration| time.as_secs_f64() * 1e9 / f64::from(REQUESTS);
                safe.push(each(a));
                below.push(each(b));
                ratios.push(a.as_secs_f64() / b.as_secs_f64());
            }
            println!(
                "{name:5} of {size:5} bytes: owned {:6.0}, raw {:6.0}, ratio {:.3}",
                median(&mut safe),
                median(&mut below),
                median(&mut ratios)
            );
        }
    }
    Ok(())
}
