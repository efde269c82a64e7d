//! Where packets of one `poll_transmit` go.

use crate::{Address, IoVecs, Load, PacketSink};
use rnic_wire::PathMtu;

/// What an operation that needs no packets costs of a budget beside its bytes: they are copied
/// fast, but each takes a system call.
pub(crate) const COST_EXECUTED: usize = 4096;

/// A sink with a budget.
pub(crate) struct Output<'a, S> {
    sink: &'a mut S,
    /// Bytes that may still be emitted; the packet that crosses the line is the last.
    left: usize,
    /// Bytes by which the last packet crossed the line.
    over: usize,
    /// The sink refused a packet.
    full: bool,
}

impl<'a, S: PacketSink> Output<'a, S> {
    pub(crate) fn new(sink: &'a mut S, budget: usize) -> Output<'a, S> {
        Output {
            sink,
            left: budget,
            over: 0,
            full: false,
        }
    }

    /// Room for a packet, unless the sink is full or the budget spent.
    #[inline]
    pub(crate) fn packet(&mut self, len: usize) -> Option<&mut [u8]> {
        self.take(len, |sink| sink.packet(len))
    }

    /// [`PacketSink::row`], within the budget.
    #[inline]
    pub(crate) fn row(
        &mut self,
        len: usize,
        most: usize,
        mut build: impl FnMut(&mut [u8]) -> bool,
    ) -> usize {
        if self.left == 0 || self.full {
            return 0;
        }
        let most = most.min(self.left.div_ceil(len));
        let mut ended = false;
        let count = self.sink.row(len, most, |packet| {
            ended = !build(packet);
            !ended
        });
        self.full = count < most && !ended;
        self.spend(count * len);
        count
    }

    /// The same for a packet that takes several PSNs if `multi_psn` says their path MTU.
    #[inline]
    pub(crate) fn packet_or_multi_psn(
        &mut self,
        multi_psn: Option<PathMtu>,
        headers: usize,
        payload: usize,
    ) -> Option<&mut [u8]> {
        let len = headers + payload;
        match multi_psn {
            Some(mtu) => self.take(len, |sink| sink.multi_psn_packet(headers, payload, mtu)),
            None => self.packet(len),
        }
    }

    /// Room for the headers of a packet whose payload was copied from memory; `None`:
    /// [`Output::packet_or_multi_psn`] knows better.
    #[inline]
    pub(crate) fn carry(
        &mut self,
        headers: usize,
        payload: usize,
        mtu: PathMtu,
        load: &Load<'_>,
    ) -> Option<&mut [u8]> {
        if self.left == 0 || self.full {
            return None;
        }
        let buf = self.sink.carry(headers, payload, mtu, load)?;
        let len = headers + payload;
        self.over = len.saturating_sub(self.left);
        self.left = self.left.saturating_sub(len);
        Some(buf)
    }

    /// The most payload that the next packet may carry: what the path takes, and of the budget what
    /// crosses its line by less than an MTU.
    #[inline]
    pub(crate) fn most_payload(&self, mtu: u32) -> usize {
        let mtu = mtu as usize;
        let most = self.sink.most_payload(mtu);
        most.min(self.left.saturating_add(mtu - 1))
    }

    /// The most that a packet may point at, of which the budget knows only the packet; 0: none may.
    #[inline]
    pub(crate) fn most_pointed(&self) -> usize {
        self.sink.most_pointed()
    }

    /// Room for the headers of a packet that points.
    pub(crate) fn point(
        &mut self,
        headers: usize,
        mtu: PathMtu,
        iov: &IoVecs,
    ) -> Option<&mut [u8]> {
        self.take(headers, |sink| sink.point(headers, mtu, iov.as_slice()))
    }

    /// [`PacketSink::send_short`].
    #[inline]
    pub(crate) fn send_short(&mut self, packet: &[u8]) -> bool {
        let sent = self.left > 0 && !self.full && self.sink.send_short(packet);
        if sent {
            self.spend(packet.len());
        }
        sent
    }

    /// [`PacketSink::all_executed`].
    #[inline]
    pub(crate) fn all_executed(&self) -> bool {
        self.sink.all_executed()
    }

    /// What is left of the budget.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Nothing is left of the budget.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// Takes from the budget what work cost that emitted nothing.
    #[inline]
    pub(crate) fn spend(&mut self, cost: usize) {
        self.over = cost.saturating_sub(self.left);
        self.left = self.left.saturating_sub(cost);
    }

    /// Room for a datagram, likewise.
    #[inline]
    pub(crate) fn packet_to(&mut self, to: &Address, len: usize) -> Option<&mut [u8]> {
        self.take(len, |sink| sink.packet_to(to, len))
    }

    #[inline]
    fn take<'s>(
        &'s mut self,
        len: usize,
        room: impl FnOnce(&'s mut S) -> Option<&'s mut [u8]>,
    ) -> Option<&'s mut [u8]> {
        if self.left == 0 || self.full {
            return None;
        }
        match room(self.sink) {
            Some(buf) => {
                self.over = len.saturating_sub(self.left);
                self.left = self.left.saturating_sub(len);
                Some(buf)
            }
            None => {
                self.full = true;
                None
            }
        }
    }

    pub(crate) fn retract(&mut self) {
        self.sink.retract();
    }

    /// Lets `emit` spend half of what is left, and what it overspends out of the other half.
    pub(crate) fn half<R>(&mut self, emit: impl FnOnce(&mut Self) -> R) -> R {
        let half = self.left / 2;
        let kept = self.left - half.max(self.left.min(1));
        self.left -= kept;
        let result = emit(self);
        self.left += kept.saturating_sub(core::mem::take(&mut self.over));
        result
    }
}
