//! What was dropped without a word to the peer, as the services UC and UD do, and requests that never
//! fitted the first PSN expected. The first of each cause is told when it comes, since a process may
//! be killed; how many they were, when its queue pair ends.

use rnic_link::Address;
use rnic_transport::{Counters, Dropped};
use rnic_wire::Psn;

use super::failure::name_sender;
use super::line::Line;
use super::{Kind, State, write};

/// What is told of one queue pair's drops.
#[derive(Debug, Default)]
pub(super) struct Silent {
    /// The first message of each cause.
    dropped: Vec<First>,
    /// The first PSN expected, and that of the first request that had another.
    start: Option<(Psn, Psn)>,
}

/// A message that was dropped, and whence it came, as far as that is known.
#[derive(Clone, Copy, Debug)]
struct First {
    why: Dropped,
    from: Option<Address>,
    src_qpn: Option<u32>,
}

impl State {
    /// A message was dropped, the first one of its cause.
    pub(super) fn message_dropped(
        &mut self,
        qpn: u32,
        why: Dropped,
        from: Option<Address>,
        src_qpn: Option<u32>,
    ) {
        if self.spend(Kind::Drop) {
            let first = First { why, from, src_qpn };
            self.silent.entry(qpn).or_default().dropped.push(first);
            let mut line = self.record("dropped");
            self.describe_drop(&mut line, qpn, first, 1);
            write(line);
        }
    }

    /// The first request that came has another PSN than the expected one. Told only if none is ever
    /// taken: else it was a loss, which was repaired.
    pub(super) fn other_start(&mut self, qpn: u32, expected: Psn, came: Psn) {
        self.silent.entry(qpn).or_default().start = Some((expected, came));
    }

    /// Nothing will be dropped there any more.
    pub(super) fn tell_drops(&mut self, qpn: u32, counters: &Counters) {
        let Some(silent) = self.silent.remove(&qpn) else {
            return;
        };
        for first in silent.dropped {
            let count = count(first.why, counters);
            if count > 1 {
                let mut line = self.record("dropped");
                self.describe_drop(&mut line, qpn, first, count);
                write(line);
            }
        }
        if let Some((expected, came)) = silent.start
            && counters.messages_received == 0
            && self.spend(Kind::Drop)
        {
            let mut line = self.record("dropped");
            self.name_qp(&mut line, qpn);
            line.text("cause", "start psn")
                .number("count", counters.start_psn_violations)
                .number("expected_psn", expected.value().into())
                .number("psn", came.value().into());
            write(line);
        }
    }

    fn describe_drop(&self, line: &mut Line, qpn: u32, first: First, count: u64) {
        let First { why, from, src_qpn } = first;
        self.name_qp(line, qpn);
        name_sender(line, from, src_qpn);
        line.text("cause", name(why)).number("count", count);
        if let Some(mtu) = self.connections.get(&qpn).and_then(|c| c.attr.path_mtu) {
            line.number("path_mtu", mtu.bytes() as u64);
        }
        match why {
            Dropped::WrongQkey { came, own } => {
                line.number("qkey", came.into())
                    .number("own_qkey", own.into());
            }
            Dropped::TooLong { room, length } => {
                line.number("room", room).number("length", length);
            }
            Dropped::PacketLength(length) => {
                line.number("length", length.into());
            }
            Dropped::NoReceive | Dropped::Access | Dropped::Incomplete | Dropped::Malformed => {}
        }
    }
}

fn count(why: Dropped, counters: &Counters) -> u64 {
    match why {
        Dropped::WrongQkey { .. } => counters.qkey_violations,
        Dropped::NoReceive => counters.no_receive_drops,
        Dropped::TooLong { .. } => counters.too_long_drops,
        Dropped::Access => counters.access_drops,
        Dropped::Incomplete => counters.incomplete_drops,
        Dropped::PacketLength(_) => counters.packet_length_drops,
        Dropped::Malformed => counters.malformed_drops,
    }
}

fn name(why: Dropped) -> &'static str {
    match why {
        Dropped::WrongQkey { .. } => "wrong q_key",
        Dropped::NoReceive => "no receive",
        Dropped::TooLong { .. } => "too long",
        Dropped::Access => "access",
        Dropped::Incomplete => "incomplete",
        Dropped::PacketLength(_) => "packet length",
        Dropped::Malformed => "malformed",
    }
}
