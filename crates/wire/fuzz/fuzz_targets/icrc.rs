//! Any flow and packet: the ICRC written holds, whatever the identification, and any bytes may be checked.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rnic_wire::{Flow, FlowIds, IcrcContext, IcrcOk, Leeway, PeerIds, ROCE_PORT};
use std::net::IpAddr;

fuzz_target!(
    |input: (bool, [u8; 16], [u8; 16], u16, u16, u16, bool, Vec<u8>)| {
        let (v4, src, dst, src_port, ip_id, expected, df, mut packet) = input;
        let ip = |bytes: [u8; 16]| {
            if v4 {
                IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]])
            } else {
                IpAddr::from(bytes)
            }
        };
        let flow = Flow {
            src: ip(src),
            dst: ip(dst),
            src_port,
            dst_port: ROCE_PORT,
        };
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
);
