//! QP 1: management datagrams between the link and the connection manager.

use std::net::IpAddr;

use rnic_host::QP1;
use rnic_host::qp1::OPCODE;
use rnic_link::{AddressVector, PathId, Port, Received};
use rnic_wire::cm::{Addressee, MAD_LEN, QP1_QKEY};
use rnic_wire::{Bth, Deth, Ext, Packet, Psn, emit};

use crate::addressing::pkey_table::PkeyTable;
use crate::observe;

/// Paths kept open for the peers that were written to last.
const PATHS: usize = 64;
/// Datagrams that may wait for the round's end; more are lost, and come again.
const MOST_WAITING: usize = 1024;
/// BTH and DETH.
const HEADERS: usize = Bth::LEN + Deth::LEN;

/// A datagram that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) src_port: u16,
    /// The own P_Key by which it was taken in.
    pub(crate) pkey: u16,
    pub(crate) mad: [u8; MAD_LEN],
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Yes,
    Malformed,
    /// Dropped: no P_Key of the table is of its partition.
    BadPkey,
    /// Dropped: too many wait.
    NoRoom,
}

/// QP 1 of this process.
#[derive(Debug, Default)]
pub(crate) struct Qp1 {
    waiting: Vec<Arrived>,
    paths: Vec<Kept>,
    psn: u32,
}

#[derive(Debug)]
struct Kept {
    vector: AddressVector,
    path: PathId,
    used: u64,
}

impl Qp1 {
    /// Takes a packet to QP 1, which is in all partitions of the port (IBTA vol. 1, 10.9.3).
    pub(crate) fn receive(&mut self, received: &Received<'_>, pkeys: &PkeyTable) -> Taken {
        let Ok(packet) = Packet::parse(received.bytes) else {
            return Taken::Malformed;
        };
        let good = packet.bth.opcode == OPCODE
            && packet
                .ext
                .deth
                .is_some_and(|deth| deth.qkey == QP1_QKEY && deth.src_qp == QP1);
        // The connection manager knows peers by GID, and a packet without a GRH has none.
        let (Some(src), Some(dst)) = (received.src.ip(), received.dst.ip()) else {
            return Taken::Malformed;
        };
        let own = pkeys.index_matching(packet.bth.pkey);
        let Some(pkey) = own.and_then(|index| pkeys.get(index)) else {
            if let Addressee::Service(service, _) = Addressee::of(packet.payload.here()) {
                let between = (dst, src);
                observe::cm::other_partition(service, between, packet.bth.pkey, pkeys);
            }
            return Taken::BadPkey;
        };
        match <[u8; MAD_LEN]>::try_from(packet.payload.here()) {
            Ok(_) if good && self.waiting.len() >= MOST_WAITING => Taken::NoRoom,
            Ok(mad) if good => {
                self.waiting.push(Arrived {
                    src,
                    dst,
                    src_port: received.src_port,
                    pkey,
                    mad,
                });
                Taken::Yes
            }
            _ => Taken::Malformed,
        }
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn take_waiting(&mut self) -> Vec<Arrived> {
        std::mem::take(&mut self.waiting)
    }

    /// Sends a datagram to QP 1 of a peer, in that partition. What cannot be sent is lost: the
    /// connection manager repeats what matters.
    pub(crate) fn send(
        &mut self,
        link: &mut Port,
        vector: &AddressVector,
        pkey: u16,
        mad: &[u8; MAD_LEN],
        now: u64,
    ) {
        let Some(path) = self.path(link, vector, now) else {
            return;
        };
        let bth = Bth {
            opcode: OPCODE,
            pkey,
            dest_qp: QP1,
            psn: Psn::new(self.psn),
            ..Bth::default()
        };
        let ext = Ext {
            deth: Some(Deth {
                qkey: QP1_QKEY,
                src_qp: QP1,
            }),
            ..Ext::default()
        };
        let len = HEADERS + MAD_LEN;
        for _ in 0..2 {
            // Whatever room was given is sent.
            if let Some(room) = link.packet(path, len) {
                emit(&bth, &ext, room);
                room[HEADERS..].copy_from_slice(mad);
                self.psn = (self.psn + 1) & 0xff_ffff;
                return;
            }
            link.flush(now);
        }
    }

    fn path(&mut self, link: &mut Port, vector: &AddressVector, now: u64) -> Option<PathId> {
        if let Some(kept) = self.paths.iter_mut().find(|kept| kept.vector == *vector) {
            kept.used = now;
            return Some(kept.path);
        }
        if self.paths.len() >= PATHS {
            // What was built for a path leaves before it is given back.
            link.flush(now);
            let oldest = (0..self.paths.len()).min_by_key(|i| self.paths[*i].used)?;
            link.release_path(self.paths.swap_remove(oldest).path);
        }
        let path = link.path(vector).ok()?;
        self.paths.push(Kept {
            vector: *vector,
            path,
            used: now,
        });
        Some(path)
    }

    /// The host's addresses have changed: paths are looked for anew.
    pub(crate) fn forget_paths(&mut self, link: &mut Port) {
        for kept in self.paths.drain(..) {
            link.release_path(kept.path);
        }
    }
}
