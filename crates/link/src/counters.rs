//! What passed and what was dropped, as numbers.

/// Counts of what passed and what was dropped, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets that the kernel took.
    pub tx_packets: u64,
    /// Their bytes, BTH to ICRC.
    pub tx_bytes: u64,
    /// Those of them that went to multicast groups.
    pub tx_multicast: u64,
    /// System calls that sent something.
    pub tx_syscalls: u64,
    /// Packets that were lost on the way out: too long for the path, no route, no room.
    pub tx_errors: u64,
    /// Packets for which a socket's send buffer had no room at first.
    pub tx_waited: u64,
    /// Packets of `tx_packets` that went through memory.
    pub tx_host_packets: u64,
    /// Their bytes, with an ICRC each that they do not have.
    pub tx_host_bytes: u64,
    /// Packets of `tx_packets` that went past the kernel's network stack.
    pub tx_xdp_packets: u64,
    /// Those of them that the card read by itself (zero copy).
    pub tx_zero_copy_packets: u64,
    /// Packets of `tx_packets` that left by the tap that a card without checksum offload needs.
    pub tx_detour_packets: u64,
    /// Packets that arrived, whatever became of them.
    pub rx_packets: u64,
    /// Their bytes, BTH to ICRC.
    pub rx_bytes: u64,
    /// Those of them that came to multicast groups.
    pub rx_multicast: u64,
    /// System calls that received something.
    pub rx_syscalls: u64,
    /// Dropped: the ICRC does not hold.
    pub rx_bad_icrc: u64,
    /// Dropped: too short for BTH and ICRC, or longer than the receive buffer.
    pub rx_truncated: u64,
    /// Lost: the socket's receive buffer, or AF_XDP's ring, had no room. Only in
    /// [`crate::RoceLink::all_counters`].
    pub rx_overrun: u64,
    /// Given to the process whose QPN range it is.
    pub rx_handed_over: u64,
    /// Taken from a process to which it came by mistake.
    pub rx_adopted: u64,
    /// Dropped: nobody has that QPN range, or its owner's hand-over socket is full.
    pub rx_unknown_qpn: u64,
    /// Dropped: to QP 1, but no message of the connection manager.
    pub rx_bad_mad: u64,
    /// Packets of `rx_packets` that came past the kernel's network stack, for this process or not.
    pub rx_xdp_packets: u64,
    /// Packets of `rx_packets` that came through memory.
    pub rx_host_packets: u64,
    /// Their bytes, with an ICRC each that they do not have.
    pub rx_host_bytes: u64,
    /// Those of them whose payload was copied from the sender's memory.
    pub rx_host_pointed: u64,
    /// Rings given up because the other process wrote nonsense.
    pub host_rings_wrong: u64,
    /// Processes of this host whose memory the kernel does not let this one reach.
    pub host_out_of_reach: u64,
    /// Bytes written into memory of processes of this host without packets.
    pub tx_reached_bytes: u64,
    /// Bytes read from it.
    pub rx_reached_bytes: u64,
    /// Packets that went through injected faults ([`crate::FaultSpec`]).
    pub fault_packets: u64,
    /// Those of them that were dropped.
    pub fault_drops: u64,
    /// Those that were sent twice.
    pub fault_duplicates: u64,
    /// Those that were held back until later ones had passed.
    pub fault_reorders: u64,
    /// Those that were changed, or cut.
    pub fault_corruptions: u64,
    /// Those that were delayed.
    pub fault_delays: u64,
}

impl std::ops::AddAssign for LinkCounters {
    fn add_assign(&mut self, other: LinkCounters) {
        // All of them, so that none is forgotten.
        let LinkCounters {
            tx_packets,
            tx_bytes,
            tx_multicast,
            tx_syscalls,
            tx_errors,
            tx_waited,
            tx_host_packets,
            tx_host_bytes,
            tx_xdp_packets,
            tx_zero_copy_packets,
            tx_detour_packets,
            rx_packets,
            rx_bytes,
            rx_multicast,
            rx_syscalls,
            rx_bad_icrc,
            rx_truncated,
            rx_overrun,
            rx_handed_over,
            rx_adopted,
            rx_unknown_qpn,
            rx_bad_mad,
            rx_xdp_packets,
            rx_host_packets,
            rx_host_bytes,
            rx_host_pointed,
            host_rings_wrong,
            host_out_of_reach,
            tx_reached_bytes,
            rx_reached_bytes,
            fault_packets,
            fault_drops,
            fault_duplicates,
            fault_reorders,
            fault_corruptions,
            fault_delays,
        } = other;
        self.tx_packets += tx_packets;
        self.tx_bytes += tx_bytes;
        self.tx_multicast += tx_multicast;
        self.tx_syscalls += tx_syscalls;
        self.tx_errors += tx_errors;
        self.tx_waited += tx_waited;
        self.tx_host_packets += tx_host_packets;
        self.tx_host_bytes += tx_host_bytes;
        self.tx_xdp_packets += tx_xdp_packets;
        self.tx_zero_copy_packets += tx_zero_copy_packets;
        self.tx_detour_packets += tx_detour_packets;
        self.rx_packets += rx_packets;
        self.rx_bytes += rx_bytes;
        self.rx_multicast += rx_multicast;
        self.rx_syscalls += rx_syscalls;
        self.rx_bad_icrc += rx_bad_icrc;
        self.rx_truncated += rx_truncated;
        self.rx_overrun += rx_overrun;
        self.rx_handed_over += rx_handed_over;
        self.rx_adopted += rx_adopted;
        self.rx_unknown_qpn += rx_unknown_qpn;
        self.rx_bad_mad += rx_bad_mad;
        self.rx_xdp_packets += rx_xdp_packets;
        self.rx_host_packets += rx_host_packets;
        self.rx_host_bytes += rx_host_bytes;
        self.rx_host_pointed += rx_host_pointed;
        self.host_rings_wrong += host_rings_wrong;
        self.host_out_of_reach += host_out_of_reach;
        self.tx_reached_bytes += tx_reached_bytes;
        self.rx_reached_bytes += rx_reached_bytes;
        self.fault_packets += fault_packets;
        self.fault_drops += fault_drops;
        self.fault_duplicates += fault_duplicates;
        self.fault_reorders += fault_reorders;
        self.fault_corruptions += fault_corruptions;
        self.fault_delays += fault_delays;
    }
}

impl LinkCounters {
    /// Packets counted as handed over did not get through the socket. Those from before the
    /// counters began are in neither count.
    pub(crate) fn hand_over_lost(&mut self, lost: u64) {
        let lost = lost.min(self.rx_handed_over);
        self.rx_handed_over -= lost;
        self.rx_unknown_qpn += lost;
    }
}
