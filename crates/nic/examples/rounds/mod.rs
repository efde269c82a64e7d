//! Two queue pairs of one process, and lists of messages from one to the other.

#[path = "../../tests/pair/mod.rs"]
mod pair;

use rnic_nic::{
    Access, Context, Cq, Mr, Qp, RecvWqe, SendData, SendOp, SendWqe, SgList, Sge, Status,
};

const REGION: usize = 1 << 20;
/// Work requests in a list, at most.
const DEPTH: u32 = 512;

/// What each round sends.
#[derive(Clone, Copy)]
pub struct Work {
    /// SENDs, or WRITEs.
    pub sends: bool,
    /// Bytes of a message.
    pub size: u64,
    /// Messages in a list.
    pub batch: u64,
}

/// Both queue pairs and their memory.
pub struct Ends {
    a: Qp,
    b: Qp,
    cq: Cq,
    mr: Mr,
    from: Sge,
    into: Sge,
    op: SendOp,
    batch: u64,
    _bytes: Vec<u8>,
}

impl Ends {
    pub fn new(context: &Context, work: Work) -> Ends {
        let pd = context.alloc_pd();
        let cq = context
            .create_cq(2048, None, 0)
            .expect("a completion queue");
        let [a, b] = [(); 2].map(|()| pair::create(&pd, &cq, &cq, None, DEPTH));
        pair::connect(context, &a, &b);
        let mut bytes = vec![0u8; 2 * REGION];
        let base = bytes.as_mut_ptr();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        // SAFETY: `Ends` keeps the bytes until after the region has ended, and nobody looks at them
        // meanwhile.
        let mr = unsafe { pd.reg_mr(base, 2 * REGION, base as u64, access) }.expect("a region");
        let sge = |offset: usize| Sge {
            addr: base as u64 + offset as u64,
            length: work.size as u32,
            lkey: mr.lkey(),
        };
        let op = if work.sends {
            SendOp::Send
        } else {
            SendOp::Write {
                remote_addr: base as u64 + REGION as u64,
                rkey: mr.rkey(),
            }
        };
        Ends {
            from: sge(0),
            into: sge(REGION),
            op,
            batch: work.batch,
            a,
            b,
            cq,
            mr,
            _bytes: bytes,
        }
    }

    /// Ends the queue pairs, and then their memory.
    pub fn end(self) {
        let Ends { a, b, mr, .. } = self;
        drop((a, b));
        mr.deregister();
    }
}

/// Posts one list and takes all its completions.
#[inline(never)]
pub fn round(ends: &Ends) {
    let sends = ends.op == SendOp::Send;
    if sends {
        let mut receives = (0..ends.batch).map(|wr_id| {
            Ok(RecvWqe {
                wr_id,
                sges: SgList::from_slice(&[ends.into]),
            })
        });
        ends.b.post_recv(&mut receives).expect("receives");
    }
    let mut list = (0..ends.batch).map(|wr_id| {
        Ok(SendWqe {
            wr_id,
            op: ends.op,
            data: SendData::Gather(SgList::from_slice(&[ends.from])),
            signaled: true,
            ..SendWqe::default()
        })
    });
    ends.a.post_send(&mut list).expect("sends");
    let mut missing = ends.batch * if sends { 2 } else { 1 };
    while missing > 0 {
        let taken = ends
            .cq
            .poll(16, &mut |completion| {
                assert_eq!(completion.status, Status::Success)
            })
            .expect("poll");
        missing -= taken as u64;
    }
}
