//! Packets made by hand, cut behind their headers, so that no ICRC is looked at.

/// A frame on its own.
#[derive(Clone, Debug)]
pub struct Owned {
    pub time_ns: u64,
    pub link_type: u16,
    pub wire_len: u32,
    pub bytes: Vec<u8>,
}

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];
const QP_OF_A: u32 = 0x11;
const QP_OF_B: u32 = 0x22;

/// What two queue pairs say to each other, a packet each 10 us.
#[derive(Default)]
pub struct Made {
    pub frames: Vec<Owned>,
    now: u64,
    /// The packets' IP identifications count up.
    pub numbered: bool,
}

impl Made {
    /// From A to B: opcode, PSN, extension headers, bytes of payload.
    pub fn a(&mut self, opcode: u8, psn: u32, ext: &[u8], payload: u16) {
        self.push((A, B, QP_OF_B), opcode, psn, ext, payload);
    }

    /// From B to A.
    pub fn b(&mut self, opcode: u8, psn: u32, ext: &[u8], payload: u16) {
        self.push((B, A, QP_OF_A), opcode, psn, ext, payload);
    }

    /// Nothing comes for a while.
    pub fn wait(&mut self, ns: u64) {
        self.now += ns;
    }

    fn push(
        &mut self,
        (src, dst, qpn): ([u8; 4], [u8; 4], u32),
        opcode: u8,
        psn: u32,
        ext: &[u8],
        payload: u16,
    ) {
        self.now += 10_000;
        let udp_len = 8 + 12 + ext.len() as u16 + payload + 4;
        let word = u16::to_be_bytes;
        let id = if self.numbered {
            self.frames.len() as u16
        } else {
            0
        };
        let bytes = [
            // Ethernet.
            &[2; 12][..],
            &[8, 0],
            // IPv4 with DF, and UDP.
            &[0x45, 0],
            &word(20 + udp_len),
            &word(id),
            &[0x40, 0, 64, 17, 0, 0],
            &src,
            &dst,
            &word(50_000),
            &word(4791),
            &word(udp_len),
            &[0, 0],
            // BTH.
            &[opcode, 0x40, 0xff, 0xff],
            &qpn.to_be_bytes(),
            &(psn & 0xff_ffff).to_be_bytes(),
            ext,
        ];
        let bytes = bytes.concat();
        self.frames.push(Owned {
            time_ns: 1_000_000_000 + self.now,
            link_type: 1,
            wire_len: 14 + 20 + u32::from(udp_len),
            bytes,
        });
    }
}

/// A pcap file of Ethernet frames.
pub fn pcap(frames: &[Owned]) -> Vec<u8> {
    // With nanoseconds, version 2.4.
    let header = [0xa1b2_3c4d, 0x0004_0002, 0, 0, 65535, 1];
    let mut bytes = header.map(u32::to_le_bytes).concat();
    for frame in frames {
        let (seconds, ns) = (frame.time_ns / 1_000_000_000, frame.time_ns % 1_000_000_000);
        let len = frame.bytes.len() as u32;
        let record = [seconds as u32, ns as u32, len, frame.wire_len];
        bytes.extend(record.map(u32::to_le_bytes).concat());
        bytes.extend(&frame.bytes);
    }
    bytes
}

pub fn reth(len: u32) -> Vec<u8> {
    [
        &0x1000u64.to_be_bytes()[..],
        &7u32.to_be_bytes(),
        &len.to_be_bytes(),
    ]
    .concat()
}

pub fn aeth(syndrome: u8) -> [u8; 4] {
    [syndrome, 0, 0, 0]
}

pub fn deth(qkey: u32, src_qp: u32) -> Vec<u8> {
    [qkey.to_be_bytes(), src_qp.to_be_bytes()].concat()
}

/// Syndromes: that of an ACK, and of NAKs.
pub const ACK: u8 = 0x1f;
/// Wait for 10.24 ms.
pub const NOT_READY: u8 = 0x20 | 20;
pub const SEQUENCE_ERROR: u8 = 0x60;
pub const INVALID_REQUEST: u8 = 0x61;
/// Opcodes, those of RC.
pub const SEND_FIRST: u8 = 0;
pub const SEND_MIDDLE: u8 = 1;
pub const SEND_LAST: u8 = 2;
pub const SEND_LAST_IMM: u8 = 3;
pub const SEND_ONLY: u8 = 4;
pub const WRITE_ONLY: u8 = 10;
pub const READ: u8 = 12;
pub const RESPONSE_FIRST: u8 = 13;
pub const RESPONSE_MIDDLE: u8 = 14;
pub const RESPONSE_LAST: u8 = 15;
pub const RESPONSE_ONLY: u8 = 16;
pub const ACKNOWLEDGE: u8 = 17;
pub const UC: u8 = 0x20;
pub const UD_SEND_ONLY: u8 = 0x64;
