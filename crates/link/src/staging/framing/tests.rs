use rnic_wire::{Flow, ROCE_PORT};

use super::*;

/// CRC-32 bit by bit over the masked headers as IBTA annex A17 lists them: shares no code with the
/// crate's.
pub(crate) fn slow_icrc(flow: &Flow, ip_id: u16, packet: &[u8]) -> u32 {
    let (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) = (flow.src, flow.dst) else {
        panic!("IPv4 only");
    };
    let udp_len = (packet.len() + 8 + 4) as u16;
    let mut m = vec![0xff; 8];
    m.extend([0x45, 0xff]);
    m.extend((udp_len + 20).to_be_bytes());
    m.extend(ip_id.to_be_bytes());
    m.extend([0x40, 0, 0xff, 17, 0xff, 0xff]);
    m.extend(src.octets());
    m.extend(dst.octets());
    m.extend(flow.src_port.to_be_bytes());
    m.extend(flow.dst_port.to_be_bytes());
    m.extend(udp_len.to_be_bytes());
    m.extend([0xff, 0xff]);
    let bth = m.len();
    m.extend(packet);
    m[bth + 4] = 0xff;
    let mut crc = u32::MAX;
    for byte in m {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 != 0 {
                crc >> 1 ^ 0xedb8_8320
            } else {
                crc >> 1
            };
        }
    }
    !crc
}

fn flow() -> Flow {
    Flow {
        src: "10.1.2.3".parse().unwrap(),
        dst: "10.4.5.6".parse().unwrap(),
        src_port: 50_000,
        dst_port: ROCE_PORT,
    }
}

#[test]
fn every_packet_of_a_run_gets_the_icrc_of_its_id() {
    let (flow, context) = (flow(), IcrcContext::new(&flow()));
    let mut bytes: Vec<u8> = (0..5 * 104 + 60).map(|i| (i * 7) as u8).collect();
    for (numbering, step) in [(Numbering::Batch, 1), (Numbering::Single, 0)] {
        seal(&mut bytes, 104, &context, numbering);
        let packets: Vec<_> = bytes.chunks(104).collect();
        assert_eq!(packets.len(), 6);
        for (k, packet) in packets.iter().enumerate() {
            let (data, icrc) = packet.split_last_chunk::<4>().unwrap();
            let expected = slow_icrc(&flow, (k * step) as u16, data);
            assert_eq!(u32::from_le_bytes(*icrc), expected, "{numbering:?} {k}");
        }
    }
}

#[test]
fn pieces_too_short_are_left_alone() {
    let context = IcrcContext::new(&flow());
    let mut bytes = [1, 2, 3];
    seal(&mut bytes, 0, &context, Numbering::Batch);
    seal(&mut bytes, 2, &context, Numbering::Batch);
    seal(&mut [], 10, &context, Numbering::Batch);
    assert_eq!(bytes, [1, 2, 3]);
}
