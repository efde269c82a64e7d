//! A conversation under way.

use rnic_wire::Service;

use crate::closing::Agreed;
use crate::end::{End, other};
use crate::finding::What;
use crate::model::{Conversation, Endpoint, Pairing, Side};
use crate::notes::{Notes, Numbers};
use crate::packet::Packet;
use crate::tracker::{FullPacket, Mtu, Tracker};

pub(crate) struct Live {
    pub service: Service,
    pub ends: [Endpoint; 2],
    pub pairing: Pairing,
    pub mtu: Mtu,
    /// What the REQ says of the path MTU.
    pub agreed_mtu: Option<u32>,
    pub time: (u64, u64),
    pub numbers: (u64, u64),
    pub packets: [u64; 2],
    pub trackers: [Tracker; 2],
    pub notes: Notes,
    pub qkeys: [Vec<(u32, u64)>; 2],
    pub ecn_marked: Numbers,
    pub cnps: Numbers,
    pub attempts: u32,
    /// Merged into another one; whether its end 0 is that one's end 1.
    pub merged: Option<(usize, bool)>,
    /// Before the RTU was seen.
    pub connecting: bool,
    pub before_rtu_told: bool,
}

impl Live {
    pub fn new(service: Service, ends: [Endpoint; 2], p: &Packet, keep: usize) -> Live {
        let unreliable = matches!(service, Service::Uc | Service::Ud);
        Live {
            service,
            ends,
            pairing: Pairing::OneWay,
            mtu: None,
            agreed_mtu: None,
            time: (p.time_ns, p.time_ns),
            numbers: (p.number, p.number),
            packets: [0, 0],
            trackers: [0, 1].map(|end| Tracker::new(end, unreliable, keep)),
            notes: Notes::default(),
            qkeys: Default::default(),
            ecn_marked: Numbers::default(),
            cnps: Numbers::default(),
            attempts: 0,
            merged: None,
            connecting: false,
            before_rtu_told: false,
        }
    }

    pub fn is_paired(&self) -> bool {
        self.pairing != Pairing::OneWay
    }

    pub fn last(&mut self, p: &Packet) {
        self.time.0 = self.time.0.min(p.time_ns);
        self.time.1 = self.time.1.max(p.time_ns);
        self.numbers.1 = p.number;
    }

    pub fn seen(&mut self, p: &Packet, from: End) {
        self.last(p);
        self.packets[from] += 1;
        self.ends[from].src_port = Some(p.outer.flow.src_port);
        if p.outer.traffic_class & 3 == 3 {
            self.ecn_marked.push(p);
        }
    }

    /// What is odd about a packet whatever its place.
    pub fn look_at(&mut self, p: &Packet, from: End) {
        if p.bth.pkey & 0x7fff != 0x7fff {
            let what = What::Pkey { pkey: p.bth.pkey };
            self.notes.at(from, p.time_ns, &[p.number], what);
        }
        if !p.cut && !(p.payload_len + u32::from(p.bth.pad)).is_multiple_of(4) {
            let what = What::Padding { pad: p.bth.pad };
            self.notes.at(from, p.time_ns, &[p.number], what);
        }
    }

    pub fn look_at_datagram(&mut self, p: &Packet, from: End) {
        self.look_at(p, from);
        if p.payload_len > 4096 {
            let what = What::DatagramTooLong { len: p.payload_len };
            self.notes.at(from, p.time_ns, &[p.number], what);
        }
        let Some(deth) = p.ext.deth else { return };
        // It is the receiver's, so each direction has its own.
        let qkey = deth.qkey;
        let qkeys = &mut self.qkeys[from];
        if let Some((_, count)) = qkeys.iter_mut().find(|(known, _)| *known == qkey) {
            *count += 1;
        } else if qkeys.len() < 64 {
            if let Some(&(expected, _)) = qkeys.first() {
                let what = What::Qkey { qkey, expected };
                self.notes.at(from, p.time_ns, &[p.number], what);
            }
            qkeys.push((qkey, 1));
        }
    }

    /// The path MTUs of the two ends, as far as they sent packets that show it.
    fn tell_mtus(&mut self) {
        let full = |end: End| {
            let [own, peers] = [end, other(end)].map(|end| &self.trackers[end]);
            own.full.or(peers.full_answer)
        };
        let found = [full(0), full(1)];
        if let [Some(a), Some(b)] = found
            && a.len != b.len
        {
            let what = What::MtusDiffer {
                mtus: [a.len, b.len],
            };
            let time = a.time.max(b.time);
            self.notes.at(0, time, &[a.number, b.number], what);
            return;
        }
        let Some(agreed) = self.agreed_mtu else {
            return;
        };
        for (end, first) in found.into_iter().enumerate() {
            if let Some(FullPacket { len, number, time }) = first
                && len != agreed
            {
                let what = What::MtuNotAgreed { agreed, len };
                self.notes.at(end, time, &[number], what);
            }
        }
    }

    pub fn finish(mut self, end_ns: u64, agreed: [Agreed; 2]) -> Conversation {
        for end in [0, 1] {
            let tracker = &mut self.trackers[end];
            tracker.finish(end_ns, agreed[end], &mut self.notes);
            if let Some(agreed) = agreed[end].reads
                && tracker.side.most_reads > u64::from(agreed)
            {
                let seen = tracker.side.most_reads;
                let what = What::TooManyReads { seen, agreed };
                let (time, number) = tracker.most_reads_at;
                self.notes.at(end, time, &[number], what);
            }
            let (orphans, answers) = (tracker.orphans.count, tracker.answers);
            if orphans == 0 {
                continue;
            }
            let inferred = matches!(self.pairing, Pairing::Inferred { .. });
            let what = if inferred && orphans * 4 > answers {
                What::PairingDoubtful { orphans, answers }
            } else {
                What::Orphans { count: orphans }
            };
            let Numbers { first, time, .. } = &tracker.orphans;
            self.notes.at(end, *time, first, what);
        }
        self.tell_mtus();
        let (marked, cnps) = (self.ecn_marked.count, self.cnps.count);
        if marked + cnps > 0 {
            let what = What::Congestion { marked, cnps };
            let mut all = self.ecn_marked;
            all.append(&self.cnps);
            self.notes.at(0, all.time, &all.first, what);
        }
        self.notes.sort();
        let sides = self.trackers.map(|tracker| -> Side { tracker.side });
        Conversation {
            service: self.service,
            ends: self.ends,
            pairing: self.pairing,
            mtu: self.mtu,
            time: self.time,
            numbers: self.numbers,
            packets: self.packets,
            sides,
            findings: self.notes.findings,
            more_findings: self.notes.more,
            qkeys: self.qkeys,
            ecn_marked: marked,
            cnps,
        }
    }
}
