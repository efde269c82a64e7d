//! Any bytes as a packet, as an IP packet and as the prefix of a UD receive: no panic, and what was read is written
//! again such that it reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rnic_wire::ip::IpUdp;
use rnic_wire::{Bth, Packet, UdPrefix, Usual, header_len};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(bth) = Bth::parse(bytes) {
        let mut again = [0; Bth::LEN];
        bth.emit(&mut again);
        assert_eq!(Bth::parse(&again), Ok(bth));
    }
    if let Ok(packet) = Packet::parse(bytes) {
        assert!(packet.bth.opcode.operation().is_some());
        assert_eq!(packet.wire_len(), bytes.len());
        let mut again = vec![0; bytes.len()];
        packet.emit(&mut again);
        assert_eq!(Packet::parse(&again), Ok(packet));
        // Behind the BTH, whose reserved bits are cleared, nothing is lost but reserved bytes and padding.
        let payload = header_len(packet.bth.opcode);
        assert_eq!(
            packet.payload.here(),
            &bytes[payload..payload + packet.payload.len()]
        );
    }
    if let Some((bth, usual)) = Usual::parse(bytes) {
        let packet = Packet::parse(bytes).expect("a usual packet is one");
        assert_eq!(packet.bth, bth);
        match usual {
            Usual::Send(payload) => assert_eq!(packet.payload.here(), payload),
            Usual::Acknowledge(aeth) => assert_eq!(packet.ext.aeth, Some(aeth)),
            Usual::Atomic(atomic) => assert_eq!(packet.ext.atomic, Some(atomic)),
            Usual::AtomicAcknowledge(aeth, ack) => {
                assert_eq!((packet.ext.aeth, packet.ext.atomic_ack), (Some(aeth), Some(ack)));
            }
        }
    }
    if let Ok((headers, payload)) = IpUdp::parse(bytes) {
        let mut again = vec![0; IpUdp::MAX_LEN];
        let len = headers.emit(payload, &mut again);
        // Over IPv6 with mapped addresses what is written is IPv4.
        if len == headers.header_len() && again[0] >> 4 == bytes[0] >> 4 {
            again.truncate(len);
            again.extend(payload);
            assert_eq!(IpUdp::parse(&again), Ok((headers, payload)));
        }
    }
    if let Some(Ok(prefix)) = bytes.first_chunk().map(UdPrefix::parse) {
        let mut again = [0; UdPrefix::LEN];
        prefix.emit(&mut again);
        assert_eq!(UdPrefix::parse(&again), Ok(prefix));
    }
});
