//! Records come back as they were, and whatever comes is read without harm.

use proptest::prelude::*;

use super::*;

fn one_of_each() -> Vec<(Kind, Detail)> {
    let v6 = "[fe80::1%7]:65535".parse().ok();
    vec![
        (
            Kind::Pd,
            Detail::Pd {
                users: 1,
                context: 2,
            },
        ),
        (
            Kind::Cq,
            Detail::Cq {
                cqe: 1,
                users: 2,
                context: 3,
            },
        ),
        (
            Kind::Qp,
            Detail::Qp {
                qp_type: QpType::XrcRecv,
                state: QpState::Err,
                port: 1,
                path_mig_state: 2,
                dest_qp_num: 3,
                rq_psn: 4,
                sq_psn: 5,
                pd: 6,
                srq: 7,
            },
        ),
        (
            Kind::CmId,
            Detail::CmId {
                qpn: 1,
                qp_type: QpType::Ud,
                port_space: 0x013f,
                state: 8,
                port: 1,
                local: "10.0.0.1:4791".parse().ok(),
                peer: v6,
            },
        ),
        (
            Kind::CmId,
            Detail::CmId {
                qpn: 0,
                qp_type: QpType::Rc,
                port_space: 0x0106,
                state: 0,
                port: 0,
                local: v6,
                peer: v6,
            },
        ),
        (
            Kind::Mr,
            Detail::Mr {
                key: 1,
                length: u64::MAX,
                pd: 4,
            },
        ),
        (Kind::Context, Detail::Context),
        (
            Kind::Srq,
            Detail::Srq {
                xrc: true,
                pd: 1,
                cq: 2,
            },
        ),
    ]
}

#[test]
fn records_come_back_as_they_were() {
    for (kind, detail) in one_of_each() {
        let mut bytes = Vec::new();
        encode(&mut bytes, 77, &detail);
        assert!(bytes.len() <= LONGEST, "{detail:?}: {}", bytes.len());
        encode(&mut bytes, 78, &detail);
        let back: Vec<_> = decode(kind, &bytes).collect();
        assert_eq!(back, [(77, detail), (78, detail)]);
        // Cut short, the last is none.
        let cut = &bytes[..bytes.len() - 1];
        assert_eq!(decode(kind, cut).count(), 1, "{detail:?}");
    }
}

#[test]
fn counters_come_back_as_they_were() {
    let mut counters = PortCounters::default();
    counters.link.tx_packets = 5;
    counters.drops.bad_pkey = 6;
    counters.qps.access_naks_sent = u64::MAX;
    let mut bytes = Vec::new();
    encode_counters(&mut bytes, &counters);
    assert_eq!(decode_counters(&bytes), Some(counters));
    assert_eq!(decode_counters(&bytes[1..]), None);
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for kind in Kind::OBJECTS {
            prop_assert!(decode(kind, &bytes).count() <= bytes.len() / 4);
        }
        let _ = decode_counters(&bytes);
    }
}
