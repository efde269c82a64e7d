//! What a queue pair counts.

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
    /// NAKs of every kind, RNR included.
    pub naks_received: u64,
    /// Requests executed before, responses consumed before.
    pub duplicates_received: u64,
    /// Requests and READ responses ahead of the expected PSN.
    pub out_of_sequence: u64,
    /// Packets that meant nothing here: wrong state, PSN never sent, no match.
    pub dropped: u64,
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
            packets_sent packets_received bytes_sent bytes_received messages_sent messages_received retransmitted_packets timeouts sequence_naks_sent sequence_naks_received rnr_naks_sent rnr_naks_received access_naks_sent invalid_naks_sent naks_received duplicates_received out_of_sequence dropped
        }
    }
}
