//! Packets, their ICRC, and messages of the connection manager.

use std::net::IpAddr;

use rnic_wire::cm::{Addressee, IpCmHeader, Mad, Message};
use rnic_wire::ip::IpUdp;
use rnic_wire::{
    Bth, Flow, FlowIds, IcrcContext, IcrcOk, Leeway, Packet, PeerIds, ROCE_PORT, UdPrefix, Usual,
    header_len,
};

use crate::input::Input;

/// Any bytes as a packet, as an IP packet and as the prefix of a UD receive: no panic, and what was
/// read is written again such that it reads the same.
pub(crate) fn packet(bytes: &[u8]) {
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
        // Behind the BTH, whose reserved bits are cleared, nothing is lost but reserved bytes and
        // padding.
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
                let both = (packet.ext.aeth, packet.ext.atomic_ack);
                assert_eq!(both, (Some(aeth), Some(ack)));
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
}

/// Any flow and packet: the ICRC written holds, whatever the identification, and any bytes may be
/// checked.
pub(crate) fn icrc(bytes: &[u8]) {
    let mut input = Input(bytes);
    let flags = input.u8();
    let (v4, df) = (flags & 1 == 0, flags & 2 == 0);
    let mut ip = || match v4 {
        true => IpAddr::from(input.array::<4>()),
        false => IpAddr::from(input.array::<16>()),
    };
    let (src, dst) = (ip(), ip());
    let flow = Flow {
        src,
        dst,
        src_port: input.u16(),
        dst_port: ROCE_PORT,
    };
    let (ip_id, expected) = (input.u16(), input.u16());
    let mut packet = input.0.to_vec();
    let context = IcrcContext::new(&flow);
    let _ = context.check(&packet, expected);
    let (mut source, mut leeway) = (PeerIds::default(), Leeway::default());
    let _ = FlowIds::default().check(&mut source, &mut leeway, &context, &packet, 0);
    if packet.len() < 16 {
        return;
    }
    context.append(ip_id, df, &mut packet);
    let (bytes, trailer) = packet.split_last_chunk::<4>().expect("16 bytes at least");
    let cut = 12 + usize::from(expected) % (bytes.len() - 11);
    assert_eq!(
        context
            .icrc_parts(ip_id, df, &[&bytes[..cut], &bytes[cut..]])
            .to_le_bytes(),
        *trailer
    );
    let found = if context.is_ipv4() {
        IcrcOk { ip_id, df }
    } else {
        IcrcOk {
            ip_id: expected,
            df: true,
        }
    };
    assert_eq!(context.check_any_df(&packet, expected), Ok(found));
}

/// Any bytes as a message of the connection manager: no panic, what was read is written again such
/// that it reads the same, and it is for the same addressee.
pub(crate) fn mad(bytes: &[u8]) {
    let addressee = Addressee::of(bytes);
    let Ok(mad) = Mad::parse(bytes) else {
        return;
    };
    let again = mad.emit();
    assert_eq!(Mad::parse(&again), Ok(mad));
    assert_eq!(Addressee::of(&again), addressee);
    let private_data = match &mad.message {
        Message::Req(req) => &req.private_data[..],
        Message::SidrReq(req) => &req.private_data[..],
        _ => return,
    };
    if let Ok(header) = IpCmHeader::parse(private_data) {
        let mut out = [0; IpCmHeader::LEN];
        header.emit(&mut out);
        assert_eq!(IpCmHeader::parse(&out), Ok(header));
    }
}
