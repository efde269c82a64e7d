//! What each queue pair has carried, and how fast, for whoever looks from outside. The look itself
//! has the process measure latencies from then on.

use rnic_link::Address;
use rnic_transport::Counters;
use rnic_wire::Gid;

use super::Page;
use super::record::qp_type;
use crate::engine::services::reader::Reader;
use crate::engine::{Engine, QpEntry};
use crate::observe::Histogram;
use crate::queues::{QpState, QpType, ReceiveSource};

/// How packets of a queue pair reach its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Path {
    /// It has no peer: it is not connected, or carries datagrams.
    None = 0,
    /// Through memory that two processes of this host share, or that one has for itself.
    Memory = 1,
    /// Over UDP, to this host.
    Host = 2,
    /// Over UDP, to another host.
    Network = 3,
}

impl Path {
    fn of(code: u8) -> Option<Path> {
        let all = [Path::None, Path::Memory, Path::Host, Path::Network];
        all.into_iter().find(|path| *path as u8 == code)
    }
}

/// A queue pair as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The process, as this one sees it.
    pub pid: u32,
    /// Its number.
    pub qpn: u32,
    /// Its service.
    pub qp_type: QpType,
    /// Its state.
    pub state: QpState,
    /// The number of its peer; 0: none.
    pub dest_qpn: u32,
    /// How packets leave.
    pub path: Path,
    /// Its own address, if it has a peer.
    pub local: Option<Address>,
    /// Its peer's.
    pub peer: Option<Address>,
    /// Send work requests that are posted and not done.
    pub sends_outstanding: u32,
    /// Receives that are posted; `None`: they are of a shared receive queue.
    pub receives_posted: Option<u32>,
    /// What it has counted.
    pub counters: Counters,
    /// How long signaled send work requests took from post to completion, of those that were
    /// posted since somebody looks.
    pub latency: Histogram,
}

/// Most bytes of a record: numbers and addresses, counters, a histogram that is full.
const LONGEST: usize = 64 + COUNTS * 8 + 2 + Histogram::BUCKETS * 10;

impl Engine {
    /// Adds queue pairs from the place `from` on.
    pub(super) fn tell_carried(&mut self, from: u32, page: &mut Page) {
        let now = self.clock.exact_ns();
        let link = &self.link;
        for (place, entry) in self.qps.iter_mut().enumerate().skip(from as usize) {
            if !page.has_room(place, LONGEST) {
                return;
            }
            let path = match entry.peer.map(|peer| peer.path) {
                None => Path::None,
                Some(path) if link.is_by_memory(path) => Path::Memory,
                Some(path) if link.is_of_this_host(path) => Path::Host,
                Some(_) => Path::Network,
            };
            encode(&mut page.bytes, &carried(entry, path));
            let room = entry.shared.cap.max_send_wr;
            let outstanding = entry.signals.outstanding();
            entry.latencies.watch(now, outstanding, room);
        }
    }
}

fn carried(entry: &QpEntry, path: Path) -> Carried {
    let shared = &entry.shared;
    Carried {
        pid: 0,
        qpn: shared.qpn,
        qp_type: shared.qp_type(),
        state: shared.state(),
        dest_qpn: entry.attr.dest_qp_num,
        path,
        local: entry.peer.map(|peer| peer.local),
        peer: entry.peer.map(|peer| peer.remote),
        sends_outstanding: entry.signals.outstanding(),
        receives_posted: matches!(shared.source, ReceiveSource::Own)
            .then(|| entry.receives.len() as u32),
        counters: entry.transport.counters(),
        latency: entry.latencies.histogram().cloned().unwrap_or_default(),
    }
}

fn encode(out: &mut Vec<u8>, carried: &Carried) {
    out.extend_from_slice(&carried.qpn.to_ne_bytes());
    let codes = [
        carried.qp_type as u8,
        carried.state as u8,
        carried.path as u8,
    ];
    out.extend_from_slice(&codes);
    address(out, carried.local);
    address(out, carried.peer);
    // No queue has room for so many.
    let receives = carried.receives_posted.unwrap_or(u32::MAX);
    for word in [carried.dest_qpn, carried.sends_outstanding, receives] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    encode_counts(out, &carried.counters);
    let buckets = carried.latency.counts().count() as u16;
    out.extend_from_slice(&buckets.to_ne_bytes());
    for (bucket, count) in carried.latency.counts() {
        out.extend_from_slice(&(bucket as u16).to_ne_bytes());
        out.extend_from_slice(&count.to_ne_bytes());
    }
}

const NO_ADDRESS: u8 = 0;
const GID: u8 = 1;
const LID: u8 = 2;

fn address(out: &mut Vec<u8>, address: Option<Address>) {
    match address {
        None => out.push(NO_ADDRESS),
        Some(Address::RoceV2(ip)) => {
            out.push(GID);
            out.extend_from_slice(&Gid::from(ip).0);
        }
        Some(Address::Ib { lid }) => {
            out.push(LID);
            out.extend_from_slice(&lid.to_ne_bytes());
        }
    }
}

fn read_address(r: &mut Reader<'_>) -> Option<Option<Address>> {
    Some(match r.u8()? {
        NO_ADDRESS => None,
        GID => Some(Address::RoceV2(Gid(r.array()?).ip())),
        LID => Some(Address::Ib {
            lid: r.array().map(u16::from_ne_bytes)?,
        }),
        _ => return None,
    })
}

/// Records of a process, up to the first that is none.
pub(crate) fn decode(pid: u32, bytes: &[u8]) -> impl Iterator<Item = Carried> {
    let mut rest = Reader(bytes);
    std::iter::from_fn(move || decode_one(pid, &mut rest))
}

fn decode_one(pid: u32, r: &mut Reader<'_>) -> Option<Carried> {
    let qpn = r.u32()?;
    let (qp_type, state) = (qp_type(r.u8()?)?, QpState::from_ibv(r.u8()?.into())?);
    let path = Path::of(r.u8()?)?;
    let (local, peer) = (read_address(r)?, read_address(r)?);
    let (dest_qpn, sends_outstanding, receives) = (r.u32()?, r.u32()?, r.u32()?);
    let counters = decode_counts(r)?;
    let mut latency = Histogram::default();
    for _ in 0..r.array().map(u16::from_ne_bytes)? {
        let bucket = r.array().map(u16::from_ne_bytes)?;
        latency.add_to(bucket.into(), r.u64()?);
    }
    Some(Carried {
        pid,
        qpn,
        qp_type,
        state,
        dest_qpn,
        path,
        local,
        peer,
        sends_outstanding,
        receives_posted: (receives != u32::MAX).then_some(receives),
        counters,
        latency,
    })
}

/// Defines both directions for all that a queue pair counts.
macro_rules! counts {
    ($($($field:ident).+;)*) => {
        const COUNTS: usize = [$(stringify!($($field).+)),*].len();

        fn encode_counts(out: &mut Vec<u8>, counters: &Counters) {
            $(out.extend_from_slice(&counters.$($field).+.to_ne_bytes());)*
        }

        fn decode_counts(r: &mut Reader<'_>) -> Option<Counters> {
            let mut counters = Counters::default();
            $(counters.$($field).+ = r.u64()?;)*
            Some(counters)
        }

        /// Each count another one.
        #[cfg(test)]
        fn numbered() -> Counters {
            let mut counters = Counters::default();
            let mut number = 1u64 << 40;
            $(number += 1; counters.$($field).+ = number;)*
            counters
        }
    };
}

counts! {
    packets_sent;
    packets_received;
    bytes_sent;
    bytes_received;
    messages_sent;
    messages_received;
    retransmitted_packets;
    timeouts;
    sequence_naks_sent;
    sequence_naks_received;
    rnr_naks_sent;
    rnr_naks_received;
    access_naks_sent;
    invalid_naks_sent;
    operational_naks_sent;
    access_naks_received;
    invalid_naks_received;
    operational_naks_received;
    naks_received;
    duplicates_received;
    out_of_sequence;
    messages_dropped;
    no_receive_drops;
    too_long_drops;
    access_drops;
    incomplete_drops;
    packet_length_drops;
    malformed_drops;
    qkey_violations;
    start_psn_violations;
    dropped;
    requested.send.messages;
    requested.send.bytes;
    requested.write.messages;
    requested.write.bytes;
    requested.read.messages;
    requested.read.bytes;
    requested.atomic.messages;
    requested.atomic.bytes;
    requested.flush.messages;
    requested.flush.bytes;
    without_packets.send.messages;
    without_packets.send.bytes;
    without_packets.write.messages;
    without_packets.write.bytes;
    without_packets.read.messages;
    without_packets.read.bytes;
    without_packets.atomic.messages;
    without_packets.atomic.bytes;
    without_packets.flush.messages;
    without_packets.flush.bytes;
    served.send.messages;
    served.send.bytes;
    served.write.messages;
    served.write.bytes;
    served.read.messages;
    served.read.bytes;
    served.atomic.messages;
    served.atomic.bytes;
    served.flush.messages;
    served.flush.bytes;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(latency: Histogram) -> Carried {
        Carried {
            pid: 7,
            qpn: 0xab_cdef,
            qp_type: QpType::Uc,
            state: QpState::Sqd,
            dest_qpn: 0x12_3456,
            path: Path::Network,
            local: "fe80::1".parse().ok().map(Address::RoceV2),
            peer: "192.0.2.7".parse().ok().map(Address::RoceV2),
            sends_outstanding: 3,
            receives_posted: None,
            counters: numbered(),
            latency,
        }
    }

    /// Promise: each counter that a queue pair has is told, and none twice.
    #[test]
    fn all_is_told() {
        let words = size_of::<Counters>() / size_of::<u64>();
        assert_eq!(
            COUNTS, words,
            "a counter is missing in the list, or is there twice"
        );
        let mut full = Histogram::default();
        (0..Histogram::BUCKETS).for_each(|bucket| full.add_to(bucket, u64::MAX - bucket as u64));
        for receives_posted in [None, Some(0), Some(9)] {
            let carried = Carried {
                receives_posted,
                ..one(full.clone())
            };
            let mut bytes = Vec::new();
            encode(&mut bytes, &carried);
            assert!(bytes.len() <= LONGEST, "{}", bytes.len());
            encode(&mut bytes, &carried);
            let read: Vec<Carried> = decode(7, &bytes).collect();
            assert_eq!(read, [carried.clone(), carried]);
        }
    }

    proptest! {
        /// Promise: whatever another process answers is read as records or left.
        #[test]
        fn anything_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            let _ = decode(1, &bytes).count();
        }

        #[test]
        fn what_is_cut_off_is_no_record(at in 0usize..2000) {
            let mut bytes = Vec::new();
            encode(&mut bytes, &one(Histogram::default()));
            let at = at.min(bytes.len() - 1);
            prop_assert_eq!(decode(7, &bytes[..at]).count(), 0);
        }
    }
}
