//! What a queue pair counts.

use crate::{Device, Dropped, Evidence, SendOp};
use rnic_wire::{Operation, Psn};

/// Whole messages and their payload bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Traffic {
    pub messages: u64,
    pub bytes: u64,
}

impl Traffic {
    /// One more message.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }
}

impl core::ops::AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        self.messages += other.messages;
        self.bytes += other.bytes;
    }
}

/// Traffic by kind of operation, with or without immediate data or invalidation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ByOperation {
    pub send: Traffic,
    pub write: Traffic,
    pub read: Traffic,
    pub atomic: Traffic,
    /// They have no bytes.
    pub flush: Traffic,
}

impl core::ops::AddAssign for ByOperation {
    fn add_assign(&mut self, other: ByOperation) {
        self.send += other.send;
        self.write += other.write;
        self.read += other.read;
        self.atomic += other.atomic;
        self.flush += other.flush;
    }
}

impl ByOperation {
    /// A send work request that is done.
    #[inline]
    pub(crate) fn requested(&mut self, op: &SendOp, bytes: u64) {
        match op {
            SendOp::Send
            | SendOp::SendImm(_)
            | SendOp::SendInvalidate(_)
            | SendOp::Datagram { .. } => self.send.add(bytes),
            SendOp::Write { .. } | SendOp::WriteImm { .. } => self.write.add(bytes),
            SendOp::Read { .. } => self.read.add(bytes),
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } | SendOp::AtomicWrite { .. } => {
                self.atomic.add(bytes);
            }
            SendOp::Flush(_) => self.flush.add(0),
            // Nothing leaves this side.
            SendOp::BindWindow(_) | SendOp::LocalInvalidate(_) => {}
        }
    }

    /// A packet of a SEND or WRITE that was taken.
    #[inline]
    pub(crate) fn served(&mut self, operation: Operation, bytes: usize, last: bool) {
        use Operation::*;
        let traffic = match operation {
            WriteFirst | WriteMiddle | WriteLast | WriteLastImm | WriteOnly | WriteOnlyImm => {
                &mut self.write
            }
            _ => &mut self.send,
        };
        traffic.bytes += bytes as u64;
        traffic.messages += u64::from(last);
    }

    /// All kinds together.
    pub fn total(&self) -> Traffic {
        let kinds = [self.send, self.write, self.read, self.atomic, self.flush];
        // Those that another process says of itself may be anything.
        let sum = |of: fn(&Traffic) -> u64| kinds.iter().map(of).fold(0, u64::saturating_add);
        Traffic {
            messages: sum(|kind| kind.messages),
            bytes: sum(|kind| kind.bytes),
        }
    }
}

/// Counts of one queue pair; they only grow. Bytes are payload bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Counters {
    pub packets_sent: u64,
    pub packets_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// Send work requests that succeeded.
    pub messages_sent: u64,
    /// Requests of the peer that were executed, each once.
    pub messages_received: u64,
    pub retransmitted_packets: u64,
    pub timeouts: u64,
    pub sequence_naks_sent: u64,
    pub sequence_naks_received: u64,
    pub rnr_naks_sent: u64,
    pub rnr_naks_received: u64,
    pub access_naks_sent: u64,
    pub invalid_naks_sent: u64,
    pub operational_naks_sent: u64,
    pub access_naks_received: u64,
    pub invalid_naks_received: u64,
    pub operational_naks_received: u64,
    /// NAKs of every kind, RNR included.
    pub naks_received: u64,
    /// Requests executed before, responses consumed before.
    pub duplicates_received: u64,
    /// Requests and READ responses ahead of the expected PSN.
    pub out_of_sequence: u64,
    /// UC and UD: messages that were lost here, for one of the causes that follow.
    pub messages_dropped: u64,
    /// Of these: no receive was posted.
    pub no_receive_drops: u64,
    /// Of these: longer than the receive.
    pub too_long_drops: u64,
    /// Of these: key, range or right of the memory.
    pub access_drops: u64,
    /// Of these: some of the packets did not come.
    pub incomplete_drops: u64,
    /// Of these: a packet of a length that the path MTU does not make.
    pub packet_length_drops: u64,
    /// Of these: opcode or length out of place.
    pub malformed_drops: u64,
    /// UD: datagrams with another Q_Key.
    pub qkey_violations: u64,
    /// As responder: requests that came before any was taken, with another PSN than the first one
    /// expected.
    pub start_psn_violations: u64,
    /// Packets that meant nothing here: wrong state, PSN never sent, no match.
    pub dropped: u64,
    /// Send work requests that succeeded, by operation. A READ's bytes came in, all others' went
    /// out.
    pub requested: ByOperation,
    /// Those of them that the device executed in the peer's memory by itself.
    pub without_packets: ByOperation,
    /// Requests of the peer that were executed; of a message that is still coming, its bytes so
    /// far.
    pub served: ByOperation,
}

impl Counters {
    /// UC and UD: counts a message that is dropped, and tells of the first one of its cause.
    /// `src_qpn`: as [`Evidence::MessageDropped`] has it.
    #[cold]
    pub(crate) fn drop_message<H: Device>(
        &mut self,
        why: Dropped,
        src_qpn: Option<u32>,
        device: &mut H,
    ) {
        let of_cause = match why {
            Dropped::WrongQkey { .. } => &mut self.qkey_violations,
            Dropped::NoReceive => &mut self.no_receive_drops,
            Dropped::TooLong { .. } => &mut self.too_long_drops,
            Dropped::Access => &mut self.access_drops,
            Dropped::Incomplete => &mut self.incomplete_drops,
            Dropped::PacketLength(_) => &mut self.packet_length_drops,
            Dropped::Malformed => &mut self.malformed_drops,
        };
        *of_cause += 1;
        if *of_cause == 1 {
            device.evidence(&Evidence::MessageDropped { why, src_qpn });
        }
        // It never belonged to this queue pair.
        if !matches!(why, Dropped::WrongQkey { .. }) {
            self.messages_dropped += 1;
        }
    }

    /// As responder: counts a request before any was taken, and tells of the first one.
    #[cold]
    pub(crate) fn other_start<H: Device>(&mut self, expected: Psn, came: Psn, device: &mut H) {
        self.start_psn_violations += 1;
        if self.start_psn_violations == 1 {
            device.evidence(&Evidence::OtherStartPsn { expected, came });
        }
    }
}

impl core::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        macro_rules! add {
            ($($field:ident)*) => {
                // All of them: a new one that is forgotten here does not compile.
                let Counters { $($field),* } = other;
                $(self.$field += $field;)*
            };
        }
        add! {
            packets_sent packets_received bytes_sent bytes_received messages_sent messages_received retransmitted_packets timeouts sequence_naks_sent sequence_naks_received rnr_naks_sent rnr_naks_received access_naks_sent invalid_naks_sent operational_naks_sent access_naks_received invalid_naks_received operational_naks_received naks_received duplicates_received out_of_sequence messages_dropped no_receive_drops too_long_drops access_drops incomplete_drops packet_length_drops malformed_drops qkey_violations start_psn_violations dropped requested without_packets served
        }
    }
}
