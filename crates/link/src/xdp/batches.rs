//! Where the first packet of a batch ends. Nobody tells, so it is the length with which its ICRC is
//! right, and that of the packet behind it with the same length. The first alone would be too
//! little: a corrupted packet has as many lengths as words, and each is one more way to pass.
//!
//! Anybody can send what is no packet at all, so each byte is looked at once, however many lengths
//! there may be. An ICRC covers lengths that stand in front of the packet, but CRCs are affine:
//! what they add to that of a packet is what they add to that of as many zeros ([`of_lengths`]).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use rnic_wire::ip::IpUdp;
use rnic_wire::{Bth, Flow, ICRC_LEN, IcrcContext, IcrcOk, ROCE_PORT};

use super::socket::FRAME;
use rnic_host::train::IpIds;

/// Packets are filled up to whole words (IBTA vol. 1, 9.2.1).
const WORD: usize = 4;
/// In which word of a packet the byte is that the ICRC takes for ones, the word's first.
const MASKED: usize = 1;

/// How long each packet of a batch is but the last, which may be shorter, and what their IPv4
/// headers had; `packet` as a whole if it is one, or nothing.
pub(super) fn segment_of(headers: &IpUdp, packet: &[u8]) -> (usize, IpIds) {
    let first = IcrcOk {
        ip_id: headers.ip_id,
        df: headers.dont_fragment,
    };
    let whole = (packet.len(), IpIds::starting(first));
    if packet.len() < 2 * (Bth::LEN + ICRC_LEN) {
        return whole;
    }
    let context = IcrcContext::new(&headers.flow);
    let is_right = |bytes, header| context.check_exactly(bytes, header).is_ok();
    if is_right(packet, first) {
        return whole;
    }
    let (words, _) = packet.as_chunks::<WORD>();
    let mut crc = context.icrc(first.ip_id, first.df, &[]);
    for (n, (word, lengths)) in words.iter().zip(of_lengths(context.is_ipv4())).enumerate() {
        if n * WORD >= Bth::LEN && (crc ^ lengths).to_le_bytes() == *word {
            let segment = (n + 1) * WORD;
            let behind = &packet[segment..];
            let second = &behind[..segment.min(behind.len())];
            // The kernel counts where it cuts, and also puts together what has one identification.
            let as_cut = [1, 0].map(|step| IpIds::Seen { first, step });
            let found = as_cut.into_iter().find(|ids| {
                let header = ids.of(1);
                header.is_some_and(|header| is_right(second, header))
            });
            // Nor is it looked for another length: somebody might make all of them look right.
            return found.map_or(whole, |ids| (segment, ids));
        }
        crc = with_word(crc, n, *word);
    }
    whole
}

/// By how many words they have: in what the ICRC of packets differs from the CRC that begins as
/// that of none.
fn of_lengths(v4: bool) -> &'static [u32] {
    static BOTH: [OnceLock<Box<[u32]>>; 2] = [const { OnceLock::new() }; 2];
    BOTH[usize::from(v4)].get_or_init(|| {
        // Of any flow.
        let (src, dst) = if v4 {
            (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into())
        } else {
            (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into())
        };
        let context = IcrcContext::new(&Flow {
            src,
            dst,
            src_port: 0,
            dst_port: ROCE_PORT,
        });
        let mut crc = context.icrc(0, true, &[]);
        let zeros = [0; FRAME];
        let words = 0..FRAME / WORD;
        words
            .map(|n| {
                let differs = context.icrc(0, true, &zeros[..n * WORD]) ^ crc;
                crc = with_word(crc, n, [0; WORD]);
                differs
            })
            .collect()
    })
}

/// The CRC-32 of what `crc` is that of and the `n`th word of a packet behind it.
#[inline]
fn with_word(crc: u32, n: usize, mut word: [u8; WORD]) -> u32 {
    if n == MASKED {
        word[0] = 0xff;
    }
    let [a, b, c, d] = (!crc ^ u32::from_le_bytes(word)).to_le_bytes();
    let [t0, t1, t2, t3] = &TABLES;
    !(t3[usize::from(a)] ^ t2[usize::from(b)] ^ t1[usize::from(c)] ^ t0[usize::from(d)])
}

/// What a byte adds to the CRC's register, by how many bytes are behind it.
static TABLES: [[u32; 256]; WORD] = {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut tables = [[0; 256]; WORD];
    let mut byte = 0;
    while byte < 256 {
        let mut register = byte as u32;
        let mut step = 0;
        while step < 8 * WORD {
            register = (register >> 1) ^ (POLYNOMIAL * (register & 1));
            step += 1;
            if step % 8 == 0 {
                tables[step / 8 - 1][byte] = register;
            }
        }
        byte += 1;
    }
    tables
};

#[cfg(test)]
mod tests;
