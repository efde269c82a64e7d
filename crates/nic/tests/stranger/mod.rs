//! Somebody who is no process of this user, as far as these can tell: a bare socket of this host,
//! which sends whatever it likes with a right ICRC.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;

use rnic_wire::{Bth, Deth, Ext, Flow, ICRC_LEN, Opcode, Operation, Psn, ROCE_PORT, Service, emit};

/// The address that everybody here has.
pub const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The socket.
pub struct Stranger(UdpSocket);

impl Stranger {
    pub fn new() -> Stranger {
        let socket = UdpSocket::bind((HERE, 0)).expect("a socket");
        let probe = libc::IP_PMTUDISC_PROBE;
        let (level, name) = (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER);
        // SAFETY: the option is a local int, whose length is given.
        let set = unsafe {
            let value = (&raw const probe).cast();
            libc::setsockopt(socket.as_raw_fd(), level, name, value, 4)
        };
        assert_eq!(set, 0, "packets leave with identification 0");
        Stranger(socket)
    }

    /// From the BTH to the end of the payload.
    pub fn send(&self, packet: &[u8]) {
        let flow = Flow {
            src: HERE,
            dst: HERE,
            src_port: self.0.local_addr().expect("bound").port(),
            dst_port: ROCE_PORT,
        };
        let mut packet = packet.to_vec();
        packet.resize(packet.len() + ICRC_LEN, 0);
        rnic_wire::append_icrc(&flow, 0, true, &mut packet);
        self.0.send_to(&packet, (HERE, ROCE_PORT)).expect("sent");
    }
}

/// A SEND of one packet, of whole words.
#[allow(
    dead_code,
    reason = "some tests send messages of the connection manager"
)]
pub fn send_only(service: Service, qpn: u32, psn: u32, payload: &[u8]) -> Vec<u8> {
    let bth = Bth {
        opcode: Opcode::new(service, Operation::SendOnly),
        pkey: 0xffff,
        dest_qp: qpn,
        ack_req: true,
        psn: Psn::new(psn),
        ..Bth::default()
    };
    let mut packet = vec![0; Bth::LEN];
    emit(&bth, &Ext::default(), &mut packet);
    packet.extend_from_slice(payload);
    packet
}

/// The same for a UD queue pair.
#[allow(dead_code, reason = "most tests have queue pairs that are connected")]
pub fn datagram(qpn: u32, qkey: u32, payload: &[u8]) -> Vec<u8> {
    let bth = Bth {
        opcode: Opcode::new(Service::Ud, Operation::SendOnly),
        pkey: 0xffff,
        dest_qp: qpn,
        ..Bth::default()
    };
    let ext = Ext {
        deth: Some(Deth { qkey, src_qp: 2 }),
        ..Ext::default()
    };
    let mut packet = vec![0; Bth::LEN + Deth::LEN];
    emit(&bth, &ext, &mut packet);
    packet.extend_from_slice(payload);
    packet
}

/// The packet with another P_Key.
#[allow(dead_code, reason = "most tests stay in the default partition")]
pub fn with_pkey(mut packet: Vec<u8>, pkey: u16) -> Vec<u8> {
    packet[2..4].copy_from_slice(&pkey.to_be_bytes());
    packet
}
