use proptest::prelude::*;
use rnic_wire::cm::{Drep, Message, ServiceId, SidrRep, SidrReq, SidrStatus};

use super::*;

/// Classic BPF as linux/filter.txt describes it, for the instructions that the program uses.
fn run(program: &[BpfInsn], packet: &[u8]) -> Option<u32> {
    let (mut a, mut at) = (0u32, 0usize);
    loop {
        let i = *program.get(at)?;
        at += 1;
        let jump = |taken: bool| usize::from(if taken { i.jt } else { i.jf });
        match i.code {
            LD_W_ABS => {
                let k = i.k as usize;
                // The kernel returns 0 for a load beyond the packet.
                let Some(bytes) = packet.get(k..k + 4) else {
                    return Some(0);
                };
                a = u32::from_be_bytes(bytes.try_into().unwrap());
            }
            LD_H_ABS => {
                let k = i.k as usize;
                let Some(bytes) = packet.get(k..k + 2) else {
                    return Some(0);
                };
                a = u16::from_be_bytes(bytes.try_into().unwrap()).into();
            }
            JA => at += i.k as usize,
            AND_K => a &= i.k,
            RSH_K => a >>= i.k,
            JEQ_K => at += jump(a == i.k),
            JGT_K => at += jump(a > i.k),
            JGE_K => at += jump(a >= i.k),
            RET_K => return Some(i.k),
            RET_A => return Some(a),
            code => panic!("unknown instruction {code:#x}"),
        }
    }
}

fn packet(qpn: u32) -> [u8; 64] {
    let mut p = [0xa5; 64];
    p[5..8].copy_from_slice(&qpn.to_be_bytes()[1..]);
    p
}

#[test]
fn ranges_go_to_their_places_and_the_rest_to_the_hash() {
    let routes = [(1, 3), (2, 3), (3, 3), (4, 0), (9, 1), (4094, 200)];
    let program = program(&routes, None);
    for range in 0..4095 {
        for low in [0, 1, 0xfff] {
            let slot = routes
                .iter()
                .find(|r| r.0 == range)
                .map_or(NOWHERE, |r| r.1.into());
            assert_eq!(
                run(&program, &packet(range << 12 | low)),
                Some(slot),
                "range {range}"
            );
        }
    }
    for slot in 0..=0xff {
        assert_eq!(run(&program, &packet(FIRST_PROBE_QPN | slot)), Some(slot));
    }
    assert_eq!(run(&program, &packet(0xff_feff)), Some(NOWHERE));
    assert_eq!(run(&program, &[0; 3]), Some(0));
}

/// A packet to QP 1 with the message: BTH, DETH, MAD.
fn managed(message: Message) -> Vec<u8> {
    let mad = Mad {
        tid: 0xffff_ffff_ffff_ffff,
        attr_modifier: 0,
        message,
    };
    let mut out = vec![0xa5; MAD as usize];
    out[5..8].copy_from_slice(&QP1.to_be_bytes()[1..]);
    out.extend_from_slice(&mad.emit());
    out
}

#[test]
fn answers_to_qp_1_go_to_whose_id_they_name() {
    const OTHERS: u32 = 0x2345_6789;
    let routes = [(0x123, 3), (0x234, 4)];
    let program = program(&routes, None);
    for (id, slot) in [
        (0x1234_5678, 3),
        (0x1230_0000, 3),
        (0x1240_0000, NOWHERE),
        (0, NOWHERE),
        (u32::MAX, NOWHERE),
    ] {
        let drep = Drep {
            local_id: OTHERS,
            remote_id: id,
            private_data: [0xff; 224],
        };
        let sidr_rep = SidrRep {
            request_id: id,
            status: SidrStatus::VALID,
            info_len: 0,
            qpn: OTHERS,
            service_id: ServiceId(u64::MAX),
            qkey: OTHERS,
            additional_info: [0; 72],
            private_data: [0xff; 136],
        };
        for message in [Message::Drep(drep), Message::SidrRep(sidr_rep)] {
            assert_eq!(run(&program, &managed(message)), Some(slot), "{id:#x}");
        }
    }
    // The requester's own id, and whatever lies where an answer has its receiver's.
    let sidr_req = Message::SidrReq(SidrReq {
        request_id: OTHERS,
        pkey: 0x1234,
        service_id: ServiceId(0x1234_5678_1234_5678),
        private_data: [0x12; 216],
    });
    let mut req = managed(sidr_req);
    let to_taker = super::program(&routes, Some(7));
    for attribute in [Attribute::SidrReq, Attribute::Req] {
        req[MAD as usize + 17] = attribute as u8;
        assert_eq!(run(&program, &req), Some(NOWHERE));
        assert_eq!(run(&to_taker, &req), Some(7));
    }
    // Too short: anybody may drop it.
    assert_eq!(run(&program, &req[..30]), Some(0));
}

#[test]
fn every_second_range_of_all_still_fits_the_kernel() {
    let routes: Vec<_> = (1..4095).map(|r| (r, (r % 7) as u8)).collect();
    let program = program(&routes, None);
    assert!(program.len() <= 4096);
    assert_eq!(run(&program, &packet(1 << 12)), Some(1));
    // What did not fit.
    assert_eq!(run(&program, &packet(4094 << 12)), Some(NOWHERE));
}

#[test]
fn one_process_with_all_ranges_is_one_test() {
    let routes: Vec<_> = (1..4095).map(|r| (r, 5)).collect();
    assert!(program(&routes, None).len() < 24);
}

#[test]
fn a_place_is_the_lowest_of_a_round() {
    let probe = |slot, round| Probe {
        slot,
        cookie: 1,
        round,
    };
    let mut slot = KnownSlot::default();
    assert_eq!(slot.number(), None);
    assert!(slot.learn(&probe(2, 10)));
    // Fallen to us by hash.
    assert!(!slot.learn(&probe(5, 10)));
    assert_eq!(slot.number(), Some(2));
    // The same again, in another round.
    assert!(!slot.learn(&probe(2, 11)));
    // Out of order.
    assert!(slot.learn(&probe(7, 12)));
    assert!(slot.learn(&probe(2, 12)));
    assert!(slot.learn(&probe(1, 13)));
    assert_eq!(slot.number(), Some(1));
}

/// Two processes that come at once each send a round. A probe for a slot that does not exist falls
/// to anybody, and must not be taken for the first of a round that had begun before.
#[test]
fn rounds_that_come_mixed_are_told_apart() {
    let probe = |slot, round| Probe {
        slot,
        cookie: 1,
        round,
    };
    let mut slot = KnownSlot::default();
    assert!(slot.learn(&probe(2, 10)));
    assert!(!slot.learn(&probe(2, 11)));
    for (astray, round) in [(5, 10), (6, 11), (7, 10), (5, 11)] {
        assert!(!slot.learn(&probe(astray, round)));
        assert_eq!(slot.number(), Some(2));
    }
    // The group has shrunk: a later round says so, and the rest of older ones changes nothing.
    assert!(slot.learn(&probe(1, 12)));
    assert!(!slot.learn(&probe(3, 11)));
    assert!(!slot.learn(&probe(0, 10)));
    assert_eq!(slot.number(), Some(1));
}

#[test]
fn probes_survive_the_wire() {
    let probe = Probe {
        slot: 77,
        cookie: 0x1122_3344_5566_7788,
        round: u64::MAX,
    };
    assert_eq!(Probe::decode(&probe.encode()), Some(probe));
    assert_eq!(
        Bth::dest_qpn_of_sealed(&probe.encode()),
        Some(FIRST_PROBE_QPN | 77)
    );
}

proptest! {
    #[test]
    fn no_packet_is_taken_for_a_probe_by_mistake(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        prop_assert_eq!(Probe::decode(&bytes), None);
    }

    #[test]
    fn a_probe_is_its_encoding(bytes in proptest::array::uniform::<_, PROBE_LEN>(any::<u8>())) {
        let mut bytes = bytes;
        bytes[0] = OPCODE;
        bytes[5] = 0xff;
        bytes[6] = 0xff;
        bytes[12..20].copy_from_slice(&MAGIC);
        let probe = Probe::decode(&bytes).expect("a probe");
        prop_assert_eq!(&probe.encode()[12..], &bytes[12..]);
    }
}
