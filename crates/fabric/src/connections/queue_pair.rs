//! The queue pair of a connection, and the messages that it brings.

use rnic_nic::cm::Id;
use rnic_nic::{
    Access, Completion, Context, Cq, Pd, Qp, QpCap, QpInit, QpState, QpType, RecvWqe, SendData,
    SendOp, SendWqe, SgList, Status,
};

use crate::memory::Memory;

/// Most messages of one side.
pub(super) const MOST_MESSAGES: usize = 4;
/// Bytes of a message.
const LEN: usize = 48;
/// Receives have wr_ids from here on.
const RECEIVE: u64 = 1 << 32;

/// The queue pair of one side of a connection.
pub(super) struct QueuePair {
    // Dropped in this order.
    qp: Qp,
    cq: Cq,
    inbox: Memory,
    outbox: Memory,
    attempt: u32,
    end: usize,
    posted: usize,
    /// Messages that the peer has, as its acknowledgements say.
    pub(super) completed: usize,
    pub(super) received: usize,
    /// A work request has failed.
    pub(super) is_broken: bool,
}

/// What that message of that side says.
fn message(attempt: u32, end: usize, nth: usize) -> [u8; LEN] {
    let seed = u64::from(attempt) << 8 | (end as u64) << 4 | nth as u64;
    let mut rng = fastrand::Rng::with_seed(seed);
    std::array::from_fn(|_| rng.u8(..))
}

fn in_words<T: std::fmt::Display>(error: T) -> String {
    error.to_string()
}

impl QueuePair {
    /// With receives for all that the peer may say, in INIT.
    pub(super) fn new(
        context: &Context,
        id: &Id,
        attempt: u32,
        end: usize,
    ) -> Result<QueuePair, String> {
        let pd: Pd = context.alloc_pd();
        let most = MOST_MESSAGES as u32;
        let cq = context.create_cq(2 * most + 2, None, 0).map_err(in_words)?;
        let (len, local) = (MOST_MESSAGES * LEN, Access::LOCAL_WRITE);
        let inbox = Memory::new(&pd, (1 << 28, len), local, |bytes| bytes.fill(0));
        let outbox = Memory::new(&pd, (2 << 28, len), Access(0), |bytes| {
            let (messages, _) = bytes.as_chunks_mut::<LEN>();
            for (nth, room) in messages.iter_mut().enumerate() {
                *room = message(attempt, end, nth);
            }
        });
        let qp = pd
            .create_qp(&QpInit {
                qp_type: QpType::Rc,
                send_cq: cq.clone(),
                recv_cq: cq.clone(),
                srq: None,
                cap: QpCap {
                    max_send_wr: most,
                    max_recv_wr: most,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: 0,
                },
                sq_sig_all: true,
                cookie: 0,
            })
            .map_err(in_words)?;
        let queue_pair = QueuePair {
            qp,
            cq,
            inbox: inbox.map_err(in_words)?,
            outbox: outbox.map_err(in_words)?,
            attempt,
            end,
            posted: 0,
            completed: 0,
            received: 0,
            is_broken: false,
        };
        queue_pair.enter(id, QpState::Init)?;
        let receives = (0..MOST_MESSAGES).map(|nth| {
            Ok(RecvWqe {
                wr_id: RECEIVE + nth as u64,
                sges: SgList::from_slice(&[queue_pair.inbox.sge(nth * LEN, LEN)]),
            })
        });
        queue_pair
            .qp
            .post_recv(&mut receives.into_iter())
            .map_err(|(_, why)| why.to_string())?;
        Ok(queue_pair)
    }

    pub(super) fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    /// Takes it to a state, as the connection manager says.
    fn enter(&self, id: &Id, state: QpState) -> Result<(), String> {
        let (attr, mask) = id.init_qp_attr(state).map_err(in_words)?;
        self.qp.modify(&attr, mask).map_err(in_words)
    }

    /// The peer is known: it may send and receive.
    pub(super) fn make_ready(&self, id: &Id) -> Result<(), String> {
        self.enter(id, QpState::Rtr)?;
        self.enter(id, QpState::Rts)
    }

    /// The connection is over.
    pub(super) fn end(&self) -> Result<(), String> {
        let attr = rnic_nic::QpAttr {
            qp_state: QpState::Err,
            ..rnic_nic::QpAttr::default()
        };
        let mask = rnic_nic::QpAttrMask::STATE;
        self.qp.modify(&attr, mask).map_err(in_words)
    }

    /// Sends all of its messages.
    pub(super) fn send(&mut self, count: usize) -> Result<(), String> {
        self.posted = count;
        let wqes = (0..count).map(|nth| {
            Ok(SendWqe {
                wr_id: nth as u64,
                op: SendOp::Send,
                data: SendData::Gather(SgList::from_slice(&[self.outbox.sge(nth * LEN, LEN)])),
                signaled: true,
                solicited: false,
                fence: false,
                srqn: 0,
            })
        });
        self.qp
            .post_send(&mut wqes.into_iter())
            .map_err(|(_, why)| why.to_string())
    }

    /// Takes completions; checks what came.
    pub(super) fn poll(&mut self) -> Result<bool, String> {
        let mut taken = Vec::new();
        self.cq
            .poll(2 * MOST_MESSAGES + 2, &mut |completion: &Completion| {
                taken.push(*completion);
            })
            .map_err(in_words)?;
        for completion in &taken {
            self.check(completion)?;
        }
        if !self.inbox.guards_hold() || !self.outbox.guards_hold() {
            return Err("a byte outside of the regions has changed".to_owned());
        }
        Ok(!taken.is_empty())
    }

    fn check(&mut self, completion: &Completion) -> Result<(), String> {
        if completion.status != Status::Success {
            self.is_broken = true;
            return Ok(());
        }
        if self.is_broken {
            return Err("something succeeds after a failure".to_owned());
        }
        match completion.wr_id.checked_sub(RECEIVE) {
            None if completion.wr_id as usize == self.completed => self.completed += 1,
            Some(nth) if nth as usize == self.received => {
                let wanted = message(self.attempt, 1 - self.end, self.received);
                let at = self.received * LEN;
                if completion.byte_len as usize != LEN || self.inbox.differs(at, &wanted).is_some()
                {
                    return Err(format!("message {nth} is not what the peer has sent"));
                }
                self.received += 1;
            }
            _ => {
                return Err(format!(
                    "work request {} ends out of turn",
                    completion.wr_id
                ));
            }
        }
        Ok(())
    }
}
