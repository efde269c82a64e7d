//! Between the transport and the link: where packets are built.

use rnic_link::{MOST_BY_REFERENCE, MOST_PIECES, PathId, Port, Vacant};
use rnic_sys::process::Span;
use rnic_transport::{Address, IoVec, IoVecs, Load, PacketSink};
use rnic_wire::{PathMtu, pad_len};

use super::ah_table::{AhNumber, AhTable};
use super::local_pause::LocalPause;
use crate::memory::MemoryTable;

/// What the link has of paths, as the transport's place for packets.
pub(super) struct PathSink<'a> {
    pub(super) link: &'a mut Port,
    pub(super) memory: &'a MemoryTable,
    pub(super) ahs: &'a mut AhTable,
    /// Of the queue pair.
    pub(super) qpn: u32,
    /// Of a connection.
    pub(super) path: Option<PathId>,
    pub(super) staged: &'a mut usize,
    /// Of a service without acknowledgements.
    pub(super) local_pause: Option<&'a mut LocalPause>,
}

const _: () = assert!(IoVecs::MOST <= MOST_PIECES, "a list fits");

/// Leads nowhere: the link loses and counts what goes there.
const NOWHERE: PathId = PathId(u32::MAX);

impl PathSink<'_> {
    #[inline]
    fn packet_by(&mut self, path: PathId, len: usize) -> Option<&mut [u8]> {
        if let Some(local_pause) = &mut self.local_pause
            && self.link.is_local(path)
        {
            local_pause.count(len, 1);
        }
        let room = self.link.packet(path, len)?;
        *self.staged += len;
        Some(room)
    }
}

impl PacketSink for PathSink<'_> {
    fn packet(&mut self, len: usize) -> Option<&mut [u8]> {
        self.packet_by(self.path.unwrap_or(NOWHERE), len)
    }

    #[inline]
    fn row(&mut self, len: usize, most: usize, build: impl FnMut(&mut [u8]) -> bool) -> usize {
        let path = self.path.unwrap_or(NOWHERE);
        let count = self.link.row(path, len, most, build);
        if let Some(local_pause) = &mut self.local_pause
            && self.link.is_local(path)
        {
            local_pause.count(len, count);
        }
        *self.staged += len * count;
        count
    }

    fn packet_to(&mut self, to: &Address, len: usize) -> Option<&mut [u8]> {
        let path = self.ahs.path(AhNumber(to.path), to.qpn, self.link);
        self.packet_by(path.unwrap_or(NOWHERE), len)
    }

    fn most_payload(&self, mtu: usize) -> usize {
        let most = self.path.map_or(0, |path| self.link.most_by_value(path));
        most.max(mtu)
    }

    fn multi_psn_packet(
        &mut self,
        headers: usize,
        payload: usize,
        mtu: PathMtu,
    ) -> Option<&mut [u8]> {
        let room = self
            .link
            .multi_psn_packet(self.path?, headers, payload, mtu)?;
        *self.staged += headers + payload;
        Some(room)
    }

    fn carry(
        &mut self,
        headers: usize,
        payload: usize,
        mtu: PathMtu,
        load: &Load<'_>,
    ) -> Option<&mut [u8]> {
        let loaded = self.memory.load(load, payload)?;
        let pad = usize::from(pad_len(payload));
        let place = |vacant: &Vacant<'_>| {
            vacant.write(payload, &[0; 3][..pad]);
            loaded.unload(vacant)
        };
        let front = self
            .link
            .vacant(self.path?, headers, payload + pad, mtu, place)?;
        *self.staged += headers + payload + pad;
        Some(front)
    }

    fn most_pointed(&self) -> usize {
        let may = self
            .path
            .is_some_and(|path| self.link.may_go_by_reference(path));
        if may { MOST_BY_REFERENCE } else { 0 }
    }

    fn point(&mut self, headers: usize, mtu: PathMtu, iov: &[IoVec]) -> Option<&mut [u8]> {
        let mut spans = [Span::EMPTY; MOST_PIECES];
        for (span, entry) in spans.iter_mut().zip(iov) {
            *span = Span::new(entry.at as usize, entry.len as usize);
        }
        let spans = spans.get(..iov.len())?;
        let room = self
            .link
            .by_reference(self.path?, headers, (self.qpn, mtu), spans)?;
        *self.staged += headers;
        Some(room)
    }

    fn all_executed(&self) -> bool {
        self.path.is_some_and(|path| self.link.is_drained(path))
    }

    fn retract(&mut self) {
        self.link.retract();
    }

    #[inline(always)]
    fn send_short(&mut self, packet: &[u8]) -> bool {
        self.path
            .is_some_and(|path| self.link.send_short(path, packet))
    }
}
