//! Work requests as they lie in the queues: the values of `rnic-types`, and short ones.

pub use rnic_types::{
    Address, BindWindow, Flush, InlineBytes, Placement, RecvWqe, SendData, SendOp, SendWqe, SgList,
    Sge,
};
use smallvec::SmallVec;

/// Most bytes of a [`ShortSend`].
pub const MAX_SHORT: usize = 64;

/// A short SEND that asks for nothing else, in few words: a [`SendWqe`] is copied several times on
/// its way into the send queue, for more than the message takes.
#[derive(Clone, Copy, Debug)]
pub struct ShortSend<'a> {
    /// See [`SendWqe`].
    pub wr_id: u64,
    /// Its bytes.
    pub data: ShortData<'a>,
    /// See [`SendWqe`].
    pub signaled: bool,
    /// See [`SendWqe`].
    pub solicited: bool,
}

/// When the packet of a [`ShortSend`] asks for an acknowledge (AckReq, IBTA vol. 1, 9.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckRequest {
    /// It does.
    Now,
    /// A message is expected to follow at once that does, for both. If none does, the requester
    /// sends one packet again and asks.
    Later,
}

/// Where the bytes of a [`ShortSend`] are.
#[derive(Clone, Copy, Debug)]
pub enum ShortData<'a> {
    /// In registered memory, in one piece.
    Registered(Sge),
    /// Here.
    Inline(&'a [u8]),
}

impl<'a> ShortSend<'a> {
    /// What `wqe` says, if so few words are enough. Its length may be more than can be.
    pub fn of(wqe: &'a SendWqe) -> Option<ShortSend<'a>> {
        let data = match &wqe.data {
            SendData::Gather(list) => match **list {
                [sge] => ShortData::Registered(sge),
                _ => return None,
            },
            SendData::Inline(bytes) => ShortData::Inline(bytes),
        };
        let plain = wqe.op == SendOp::Send && !wqe.fence && wqe.srqn == 0;
        plain.then_some(ShortSend {
            wr_id: wqe.wr_id,
            data,
            signaled: wqe.signaled,
            solicited: wqe.solicited,
        })
    }

    /// Bytes in total.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.data {
            ShortData::Registered(sge) => sge.length as usize,
            ShortData::Inline(bytes) => bytes.len(),
        }
    }

    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes `wqe`, whatever it was, say this, where it lies.
    #[inline(always)]
    pub(crate) fn put(&self, wqe: &mut SendWqe) {
        match (&mut wqe.data, self.data) {
            (SendData::Gather(list), ShortData::Registered(sge)) => match &mut **list {
                // As it was, mostly. By parts: they have just been stored, and a copy of all would
                // wait for that.
                [held] => {
                    held.addr = sge.addr;
                    held.length = sge.length;
                    held.lkey = sge.lkey;
                }
                _ => {
                    list.clear();
                    list.push(sge);
                }
            },
            (data, ShortData::Registered(sge)) => {
                *data = SendData::Gather(SgList::from_elem(sge, 1))
            }
            (SendData::Inline(held), ShortData::Inline(bytes)) => {
                held.clear();
                held.extend_from_slice(bytes);
            }
            (data, ShortData::Inline(bytes)) => {
                *data = SendData::Inline(SmallVec::from_slice(bytes));
            }
        }
        wqe.wr_id = self.wr_id;
        wqe.op = SendOp::Send;
        (wqe.signaled, wqe.solicited, wqe.fence) = (self.signaled, self.solicited, false);
        wqe.srqn = 0;
    }
}
