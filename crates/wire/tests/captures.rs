//! Every packet of the captures of Linux Soft-RoCE (tests/captures/README.md): decoded, written
//! again byte for byte, and its ICRC checked with the IPv4 identification known and unknown.

use crate::support::captures;
use rnic_wire::{Bth, FlowIds, Gid, IcrcContext, IcrcError, Leeway, Packet, PacketError, PeerIds};
use std::collections::BTreeMap;
use std::net::IpAddr;

#[test]
fn every_packet_is_there() {
    let captures = captures();
    assert_eq!(captures.len(), 71);
    assert_eq!(
        captures
            .iter()
            .map(|(_, packets)| packets.len())
            .sum::<usize>(),
        1396
    );
}

#[test]
fn every_packet_is_written_again_byte_for_byte() {
    let mut reserved = BTreeMap::new();
    let mut refused = BTreeMap::new();
    let mut same = 0;
    for (name, packets) in captures() {
        for (i, (_, datagram)) in packets.iter().enumerate() {
            let bytes = &datagram[..datagram.len() - 4];
            let packet = match Packet::parse(bytes) {
                Ok(packet) => packet,
                Err(error) => {
                    *refused
                        .entry((name.clone(), format!("{error:?}")))
                        .or_insert(0) += 1;
                    // The BTH, at least, is none the worse for it.
                    let mut bth = [0; Bth::LEN];
                    Bth::parse(bytes).unwrap().emit(&mut bth);
                    assert_eq!(bth, bytes[..Bth::LEN]);
                    continue;
                }
            };
            let mut again = vec![0xee; packet.wire_len()];
            assert_eq!(packet.emit(&mut again), bytes.len());
            if again == bytes {
                same += 1;
                continue;
            }
            // Reserved bits of the BTH are sent as zero, whatever came.
            let mut cleared = bytes.to_vec();
            cleared[4] &= 0xc0;
            cleared[8] &= 0x80;
            assert_eq!(again, cleared, "{name} {i}");
            *reserved.entry(name.clone()).or_insert(0) += 1;
        }
    }
    // Crafted on purpose: two with a BTH version, two with a reserved opcode; reserved bits in
    // four.
    assert_eq!(
        refused,
        BTreeMap::from([
            (
                ("probe_ud".to_owned(), format!("{:?}", PacketError::Version)),
                2
            ),
            (
                (
                    "probe_ud".to_owned(),
                    format!("{:?}", PacketError::UnknownOpcode)
                ),
                2
            ),
        ])
    );
    assert_eq!(reserved, BTreeMap::from([("probe_ud".to_owned(), 4)]));
    assert_eq!(same, 1396 - 4 - 4);
}

#[test]
fn every_icrc_is_right_but_for_those_sent_wrong_on_purpose() {
    let mut wrong = BTreeMap::new();
    let mut right = 0;
    for (name, packets) in captures() {
        for (i, (meta, datagram)) in packets.iter().enumerate() {
            let context = IcrcContext::new(&meta.flow);
            let (bytes, trailer) = datagram.split_last_chunk::<4>().unwrap();
            let icrc = context.icrc(meta.ip_id, meta.dont_fragment, bytes);
            if icrc.to_le_bytes() != *trailer {
                *wrong.entry(name.clone()).or_insert(0) += 1;
                continue;
            }
            right += 1;
            let mut again = datagram.clone();
            again[bytes.len()..].fill(0);
            context.append(meta.ip_id, meta.dont_fragment, &mut again);
            assert_eq!(again, *datagram);
            // As a UDP socket sees it: without knowing ID and DF.
            for expected in [0, meta.ip_id, 0xabcd] {
                let ok = context.check_any_df(datagram, expected).unwrap();
                assert_eq!(ok.df, meta.dont_fragment, "{name} {i}");
                if meta.flow.src.is_ipv4() {
                    assert_eq!(ok.ip_id, meta.ip_id, "{name} {i}");
                }
                let strict = if meta.dont_fragment {
                    Ok(ok)
                } else {
                    Err(IcrcError::Mismatch)
                };
                assert_eq!(context.check(datagram, expected), strict, "{name} {i}");
            }
        }
    }
    assert_eq!(
        wrong,
        BTreeMap::from([("probe_gso".to_owned(), 4), ("probe_ud".to_owned(), 4)])
    );
    assert_eq!(right, 1388);
}

/// A receiver that has only the socket's view accepts all that Soft-RoCE sends: its IDs are no
/// reason to refuse.
#[test]
fn no_peer_of_the_captures_is_refused() {
    for (name, packets) in captures()
        .into_iter()
        .filter(|(name, _)| !name.starts_with("probe_"))
    {
        let mut sources: BTreeMap<IpAddr, PeerIds> = BTreeMap::new();
        let mut flows: BTreeMap<(IpAddr, u16), FlowIds> = BTreeMap::new();
        let mut leeway = Leeway::default();
        for (i, (meta, datagram)) in packets.iter().enumerate() {
            let source = sources.entry(meta.flow.src).or_default();
            let flow = flows
                .entry((meta.flow.src, meta.flow.src_port))
                .or_default();
            let context = IcrcContext::new(&meta.flow);
            let result = flow.check(source, &mut leeway, &context, datagram, 0);
            assert!(result.is_ok(), "{name} {i}: {result:?}");
        }
    }
}

/// Addresses in the IP headers and GIDs in what the programs printed are the same thing.
#[test]
fn addresses_are_gids() {
    let (name, packets) = captures()
        .into_iter()
        .find(|(name, _)| name == "ud_tclass_v4")
        .unwrap();
    let meta = packets.first().unwrap().0;
    assert_eq!(
        (meta.traffic_class, meta.hop_limit, meta.dont_fragment),
        (0x6a, 64, true),
        "{name}"
    );
    assert_eq!(
        Gid::from(meta.flow.src).to_string(),
        "0000:0000:0000:0000:0000:ffff:0a00:0001"
    );
    assert_eq!(
        Gid::from(meta.flow.dst).to_string(),
        "0000:0000:0000:0000:0000:ffff:0a00:0002"
    );
}
