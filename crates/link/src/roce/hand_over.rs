//! Packets that are for other processes.

use rnic_wire::cm::Addressee;
use rnic_wire::{Bth, ICRC_LEN};

use crate::LinkCounters;
use rnic_host::membership::Membership;
use rnic_host::qp1::{self, Recipient};
use rnic_host::registry::range_of;
use rnic_host::steering::{FIRST_PROBE_QPN, MULTICAST_QPN};
use rnic_host::train::Train;

/// Where a train came from.
#[derive(Clone, Copy)]
pub(super) enum Origin {
    /// Port 4791: what is not ours is handed over.
    Port { now_ns: u64 },
    /// The hand-over socket, in a message that ends there: what is not ours is lost.
    Handover { end: usize },
}

impl Origin {
    pub(super) fn message_end(self) -> Option<usize> {
        match self {
            Origin::Port { .. } => None,
            Origin::Handover { end } => Some(end),
        }
    }
}

/// How many packets at the front are for the same range as the first, whose QPN is given.
pub(super) fn foreign_run(packets: &[u8], segment: usize, qpn: u32) -> usize {
    let same = |packet: &[u8]| {
        Bth::dest_qpn_of_sealed(packet).is_some_and(|q| range_of(q) == range_of(qpn))
    };
    packets
        .chunks(segment)
        .take_while(|packet| same(packet))
        .count()
}

/// A packet to QP 1 whose ICRC is right. What is for others (too) is handed over. False: it is not
/// for this process, or is nothing, and dropped.
#[cold]
pub(super) fn is_for_us(
    packet: &[u8],
    origin: Origin,
    membership: &mut Membership,
    counters: &mut LinkCounters,
    train: &Train,
) -> bool {
    let Some(recipient) = qp1::recipient(&packet[..packet.len() - ICRC_LEN]) else {
        counters.rx_bad_mad += 1;
        return false;
    };
    // The process that handed it over has looked. If its addressee is gone since, this process is
    // as good as any; but of several links of a process only the first takes it, and what is for
    // all comes there, too.
    let Origin::Port { now_ns } = origin else {
        return membership.first_link().is_none();
    };
    let single = Train {
        len: packet.len(),
        ..*train
    };
    let first_range = match recipient {
        Recipient::One(addressee) => match membership.process_for(&addressee) {
            Some(first_range) => {
                if matches!(addressee, Addressee::Connection(_)) {
                    // These are steered; requests are not.
                    membership.steering_is_stale(now_ns);
                }
                first_range
            }
            None => match membership.first_link() {
                Some(first_range) => first_range,
                None => return true,
            },
        },
        Recipient::All => {
            let (others, lost) = membership.hand_to_all(&single, packet, now_ns);
            counters.rx_handed_over += others;
            counters.hand_over_lost(lost);
            return membership.first_link().is_none();
        }
    };
    let lost = membership.hand_to(first_range, &single, packet, now_ns);
    counters.rx_handed_over += 1;
    counters.hand_over_lost(lost);
    false
}

/// `n` packets for one range of others: a probe, or to be handed over, or nobody's.
#[cold]
pub(super) fn foreign(
    train: &Train,
    run: &[u8],
    n: usize,
    qpn: u32,
    origin: Origin,
    membership: &mut Membership,
    counters: &mut LinkCounters,
) {
    if qpn >= FIRST_PROBE_QPN && n == 1 && membership.on_probe(train, run) {
        return;
    }
    counters.rx_packets += n as u64;
    counters.rx_bytes += run.len() as u64;
    let train = Train {
        len: run.len(),
        ..*train
    };
    let handed_over = match origin {
        // See `groups`. To all others: which of them is the member is not known, and the rest have
        // nothing to count.
        _ if qpn == MULTICAST_QPN && train.dst.is_multicast() => {
            if let Origin::Port { now_ns } = origin {
                let (others, lost) = membership.hand_to_all(&train, run, now_ns);
                counters.rx_handed_over += others * n as u64;
                counters.hand_over_lost(lost);
            }
            return;
        }
        Origin::Port { now_ns } => membership.hand_over(qpn, &train, run, now_ns),
        Origin::Handover { .. } => None,
    };
    match handed_over {
        Some(lost) => {
            counters.rx_handed_over += n as u64;
            counters.hand_over_lost(lost);
        }
        None => counters.rx_unknown_qpn += n as u64,
    }
}
