//! Packets that the device took from the link and did not use. What a queue pair counts is in
//! `transport/src/counters.rs`.

/// What is wrong with packets that no queue pair took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounters {
    /// No queue pair of that number.
    pub unknown_qpn: u64,
    /// Header lengths, version, opcode or padding wrong.
    pub malformed: u64,
    /// P_Key not in the table.
    pub bad_pkey: u64,
    /// Not from the address, or not to the address, that the queue pair is connected with.
    pub wrong_address: u64,
    /// From the address of this host that the queue pair is connected with, but not from the
    /// process that has the peer.
    pub wrong_process: u64,
    /// The queue pair is in a state that receives nothing.
    pub not_ready: u64,
    /// To QP 1, where too many wait already.
    pub no_room: u64,
}

impl std::ops::AddAssign for DropCounters {
    fn add_assign(&mut self, other: DropCounters) {
        let DropCounters {
            unknown_qpn,
            malformed,
            bad_pkey,
            wrong_address,
            wrong_process,
            not_ready,
            no_room,
        } = other;
        self.unknown_qpn += unknown_qpn;
        self.malformed += malformed;
        self.bad_pkey += bad_pkey;
        self.wrong_address += wrong_address;
        self.wrong_process += wrong_process;
        self.not_ready += not_ready;
        self.no_room += no_room;
    }
}
