//! The port's counters under the names that sysfs gives them: those of the InfiniBand performance
//! manager (IBTA vol. 1, 16.1.3.5) in `counters`, those of ConnectX in `hw_counters`.
//!
//! They count what this process has sent and received. What cannot happen here is 0; what is not
//! counted is not there.

use rnic_nic::PortCounters;

/// A counter's file below `/sys/class/infiniband/rnic0/ports/1`, and its value.
pub struct Counter {
    pub file: &'static str,
    pub value: fn(&PortCounters) -> u64,
}

/// What cannot happen.
fn none(_: &PortCounters) -> u64 {
    0
}

/// Defines the table: file => value of the counts `$c`.
macro_rules! counters {
    (|$c:ident| $($file:literal => $value:expr;)*) => {
        &[$(Counter {
            file: $file,
            value: |$c: &PortCounters| $value,
        },)*]
    };
}

pub const COUNTERS: &[Counter] = counters! { |c|
    // Data is counted in words of four bytes; what reaches the peer's memory without packets counts
    // as on hardware.
    "counters/port_xmit_data" => (c.link.tx_bytes + c.link.tx_reached_bytes) / 4;
    "counters/port_rcv_data" => (c.link.rx_bytes + c.link.rx_reached_bytes) / 4;
    "counters/port_xmit_packets" => c.link.tx_packets;
    "counters/port_rcv_packets" => c.link.rx_packets;
    "counters/unicast_xmit_packets" => c.link.tx_packets - c.link.tx_multicast;
    "counters/unicast_rcv_packets" => c.link.rx_packets - c.link.rx_multicast;
    "counters/multicast_xmit_packets" => c.link.tx_multicast;
    "counters/multicast_rcv_packets" => c.link.rx_multicast;
    "counters/port_rcv_errors" => c.link.rx_bad_icrc + c.link.rx_truncated + c.drops.malformed;
    "counters/port_xmit_discards" => c.link.tx_errors;
    "counters/port_rcv_constraint_errors" => c.drops.bad_pkey;
    "counters/port_xmit_constraint_errors" => none(c);
    "counters/port_rcv_remote_physical_errors" => none(c);
    "counters/port_rcv_switch_relay_errors" => none(c);
    // Hardware counts ticks of a length of its own, in which packets waited for the link.
    "counters/port_xmit_wait" => c.link.tx_waited;
    "counters/symbol_error" => none(c);
    "counters/link_downed" => none(c);
    "counters/link_error_recovery" => none(c);
    "counters/local_link_integrity_errors" => none(c);
    "counters/excessive_buffer_overrun_errors" => none(c);
    "counters/VL15_dropped" => none(c);
    "hw_counters/duplicate_request" => c.qps.duplicates_received;
    "hw_counters/out_of_sequence" => c.qps.out_of_sequence;
    "hw_counters/out_of_buffer" => c.qps.rnr_naks_sent;
    "hw_counters/packet_seq_err" => c.qps.sequence_naks_received;
    "hw_counters/local_ack_timeout_err" => c.qps.timeouts;
    "hw_counters/rnr_nak_retry_err" => c.qps.rnr_naks_received;
    "hw_counters/resp_remote_access_errors" => c.qps.access_naks_sent;
    "hw_counters/rx_icrc_encapsulated" => c.link.rx_bad_icrc;
};

/// Where the files are.
pub const PORT: &str = "/sys/class/infiniband/rnic0/ports/1/";

/// The counter whose canonical path this is.
pub fn at(path: &[u8]) -> Option<usize> {
    let file = path.strip_prefix(PORT.as_bytes())?;
    COUNTERS.iter().position(|c| c.file.as_bytes() == file)
}
