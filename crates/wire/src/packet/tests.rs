use super::*;
use crate::{Psn, Syndrome};
use std::vec;

const MTU: PathMtu = PathMtu::M1024;

fn headers_of(service: Service) -> [usize; 26] {
    Operation::ALL.map(|operation| header_len(Opcode::new(service, operation)))
}

use crate::Operation;

#[test]
fn header_lengths() {
    assert_eq!(
        headers_of(Service::Rc),
        [
            12, 12, 12, 16, 12, 16, // SEND
            28, 12, 12, 16, 28, 32, // WRITE
            28, 16, 12, 16, 16, // READ
            16, 24, 40, 40, // ACK, atomics
            12, // RESYNC: not here
            16, 16, // SEND with invalidate
            32, // FLUSH
            28, // ATOMIC WRITE
        ]
    );
    // A shared receive queue number in each request, in no response.
    assert_eq!(
        headers_of(Service::Xrc),
        [
            16, 16, 16, 20, 16, 20, 32, 16, 16, 20, 32, 36, 32, 16, 12, 16, 16, 16, 24, 44, 44, 12,
            20, 20, 36, 32
        ]
    );
    assert_eq!(
        header_len(Opcode::new(Service::Ud, Operation::SendOnly)),
        20
    );
    assert_eq!(
        header_len(Opcode::new(Service::Ud, Operation::SendOnlyImm)),
        24
    );
    assert_eq!(
        header_len(Opcode::new(Service::Uc, Operation::WriteOnlyImm)),
        32
    );
    assert_eq!(header_len(Opcode::new(Service::Rd, Operation::Resync)), 24);
    assert_eq!(header_len(Opcode::CNP), 12);
    assert_eq!(
        (0..=255).map(|code| header_len(Opcode(code))).max(),
        Some(MAX_HEADER_LEN)
    );
}

#[test]
fn flush_by_hand() {
    let bth = Bth {
        opcode: Opcode(0x1c),
        pkey: 0xffff,
        dest_qp: 0x11_2233,
        ack_req: true,
        psn: Psn::new(0xfe_dcba),
        ..Bth::default()
    };
    let ext = Ext {
        feth: Some(Feth {
            placement: Feth::GLOBAL | Feth::PERSISTENT,
            selectivity: Feth::REGION,
        }),
        reth: Some(Reth {
            va: 0x0102_0304_0506_0708,
            rkey: 0x090a_0b0c,
            dma_len: 5,
        }),
        ..Ext::default()
    };
    let wire = [
        0x1c, 0, 0xff, 0xff, 0, 0x11, 0x22, 0x33, 0x80, 0xfe, 0xdc, 0xba, // BTH
        0, 0, 0, 0x13, // FETH
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 5, // RETH
    ];
    let packet = Packet {
        bth,
        ext,
        payload: Payload::Here(&[]),
    };
    let mut out = [0xee; 32];
    assert_eq!(packet.emit(&mut out), wire.len());
    assert_eq!(out, wire);
    assert_eq!(Packet::parse(&wire), Ok(packet));
    // Reserved bits are sent as zero and ignored.
    let mut reserved = wire;
    reserved[12..15].fill(0xff);
    reserved[15] |= 0xc0;
    assert_eq!(Packet::parse(&reserved), Ok(packet));
}

#[test]
fn write_only_with_immediate_by_hand() {
    let bth = Bth {
        opcode: Opcode::new(Service::Rc, Operation::WriteOnlyImm),
        solicited: true,
        pad: pad_len(5),
        pkey: 0xffff,
        becn: true,
        dest_qp: 0x11_2233,
        ack_req: true,
        psn: Psn::new(0xfe_dcba),
        ..Bth::default()
    };
    let ext = Ext {
        reth: Some(Reth {
            va: 0x0102_0304_0506_0708,
            rkey: 0x090a_0b0c,
            dma_len: 5,
        }),
        imm: Some(ImmDt([0xa1, 0xa2, 0xa3, 0xa4])),
        ..Ext::default()
    };
    let wire = [
        0x0b, 0xb0, 0xff, 0xff, 0x40, 0x11, 0x22, 0x33, 0x80, 0xfe, 0xdc, 0xba, // BTH
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 5, // RETH
        0xa1, 0xa2, 0xa3, 0xa4, // ImmDt
        b'h', b'e', b'l', b'l', b'o', 0, 0, 0,
    ];
    let packet = Packet {
        bth,
        ext,
        payload: Payload::Here(b"hello"),
    };
    let mut out = [0xee; 64];
    assert_eq!(packet.emit(&mut out), wire.len());
    assert_eq!(out[..wire.len()], wire);
    assert_eq!(out[wire.len()..], [0xee; 64][wire.len()..]);
    assert_eq!(Packet::parse(&wire), Ok(packet));
    // Of the same packet through shared memory the headers are enough.
    let detached = Packet {
        payload: Payload::Detached {
            from: 32,
            len: 5,
            mtu: MTU,
        },
        ..packet
    };
    for front in 32..=wire.len() {
        assert_eq!(
            Packet::parse_front(&wire[..front], wire.len(), MTU),
            Ok(detached)
        );
    }
}

#[test]
fn one_error_per_cause() {
    let mut bytes = vec![0; 40];
    assert_eq!(Bth::parse(&bytes[..11]), Err(PacketError::Truncated));
    assert_eq!(Packet::parse(&[]), Err(PacketError::Truncated));
    assert!(Packet::parse(&bytes).is_ok());
    bytes[1] = 0x01;
    assert_eq!(Packet::parse(&bytes), Err(PacketError::Version));
    bytes[1] = 0;
    for code in [0x15, 0x18, 0x1f, 0x2c, 0x60, 0x81, 0xc0, 0xff] {
        bytes[0] = code;
        assert_eq!(
            Packet::parse(&bytes),
            Err(PacketError::UnknownOpcode),
            "{code:#x}"
        );
    }
    bytes[0] = 0x11;
    assert_eq!(Packet::parse(&bytes[..15]), Err(PacketError::Truncated));
    let ack = Packet::parse(&bytes[..16]).unwrap();
    assert_eq!(
        ack.ext.aeth,
        Some(Aeth {
            syndrome: Syndrome::Ack { credits: 0 },
            msn: 0
        })
    );
    assert_eq!(ack.payload.here(), []);
    // A pad count where there is nothing to pad.
    bytes[1] = 0x10;
    assert_eq!(Packet::parse(&bytes[..16]), Err(PacketError::BadPad));
    assert_eq!(
        Packet::parse_front(&bytes[..16], 16, MTU),
        Err(PacketError::BadPad)
    );
    assert_eq!(
        Packet::parse_front(&bytes[..15], 100, MTU),
        Err(PacketError::Truncated)
    );
    assert_eq!(
        Packet::parse_front(&bytes[..16], 15, MTU),
        Err(PacketError::Truncated)
    );
    bytes[0] = 0x04;
    bytes[1] = 0;
    assert!(Packet::parse_front(&bytes, 12 + (1 << 31), MTU).is_ok());
    assert_eq!(
        Packet::parse_front(&bytes, 13 + (1 << 31), MTU),
        Err(PacketError::TooLong)
    );
    bytes[1] = 0x30;
    assert_eq!(Packet::parse(&bytes[..14]), Err(PacketError::BadPad));
    assert_eq!(Packet::parse(&bytes[..15]).unwrap().payload.here(), []);
    assert_eq!(Packet::parse(&bytes[..16]).unwrap().payload.here(), [0]);
}

#[test]
fn padding_fills_up_to_four() {
    assert_eq!(
        [0, 1, 2, 3, 4, 5, 4096, 4097].map(pad_len),
        [0, 3, 2, 1, 0, 3, 0, 3]
    );
}

#[test]
fn a_payload_is_split_wherever_it_is() {
    let here = Payload::Here(b"hello");
    assert_eq!(
        here.split_at(2),
        (Payload::Here(b"he"), Payload::Here(b"llo"))
    );
    assert_eq!(here.split_at(9), (here, Payload::Here(b"")));
    let part = |from, len| Payload::Detached {
        from,
        len,
        mtu: MTU,
    };
    let detached = part(28, 5);
    assert_eq!(detached.split_at(2), (part(28, 2), part(30, 3)));
    assert_eq!((detached.len(), detached.here()), (5, &[][..]));
    assert!(detached.split_at(5).1.is_empty());
}
