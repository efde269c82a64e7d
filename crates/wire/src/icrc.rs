//! The invariant CRC of RoCEv2 (IBTA annex A17.3.3): CRC-32 over the IP and UDP headers and the
//! packet, with everything that may change on the way set to ones.
//!
//! Three facts make it cheap here. CRC is affine, so what the two length fields, the identification
//! and the DF bit contribute is looked up and xored in, and the constant part of the headers is
//! summed once per flow. The byte of the BTH that is masked (FECN, BECN, reserved) is masked by
//! changing the initial state, so the packet is summed in place by one call. And since the
//! contribution of the identification of a received IPv4 packet, which a UDP socket does not tell,
//! fills only 16 bits of a 32-bit difference, it can be solved for: that the other 16 bits vanish
//! is the check that remains.

mod gf2;

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

use crate::Bth;

/// UDP destination port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;

/// Length of the ICRC in bytes.
pub const ICRC_LEN: usize = 4;

/// The addresses and ports of a packet: all of them are under the ICRC.
///
/// IPv4-mapped IPv6 addresses count as the IPv4 addresses they stand for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Flow {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// UDP source port.
    pub src_port: u16,
    /// UDP destination port.
    pub dst_port: u16,
}

/// The part of the ICRC that packets of one flow share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcrcContext {
    /// CRC of the masked headers with lengths, ID and flags zero.
    base: u32,
    v4: bool,
}

/// What had to be assumed about the IP header for the ICRC to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct IcrcOk {
    /// IPv4 identification; over IPv6 the expected one, which says nothing.
    pub ip_id: u16,
    /// IPv4 DF bit; true over IPv6.
    pub df: bool,
}

/// Why a packet is not to be believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum IcrcError {
    /// Shorter than BTH and ICRC, or longer than a UDP datagram can be.
    Length,
    /// The ICRC does not fit, whatever the IP header was.
    Mismatch,
    /// The ICRC fits, but only with an IP header that this peer does not send
    /// ([`FlowIds`](crate::FlowIds)).
    Unlikely,
}

impl fmt::Display for IcrcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IcrcError::Length => "no length of a RoCEv2 packet",
            IcrcError::Mismatch => "the ICRC does not hold",
            IcrcError::Unlikely => {
                "the ICRC would hold with an IP header that the peer does not send"
            }
        })
    }
}

impl core::error::Error for IcrcError {}

/// The ICRC of `bytes`: BTH up to the last pad byte. `ip_id` and `dont_fragment` matter over IPv4
/// alone.
///
/// For more than one packet of a flow, keep an [`IcrcContext`].
pub fn icrc(flow: &Flow, ip_id: u16, dont_fragment: bool, bytes: &[u8]) -> u32 {
    IcrcContext::new(flow).icrc(ip_id, dont_fragment, bytes)
}

/// Writes the ICRC of all but the last four bytes of `packet` into these four.
///
/// # Panics
/// If `packet` is shorter than [`ICRC_LEN`].
pub fn append_icrc(flow: &Flow, ip_id: u16, dont_fragment: bool, packet: &mut [u8]) {
    IcrcContext::new(flow).append(ip_id, dont_fragment, packet);
}

/// Checks a received packet: BTH up to and including the ICRC. See [`IcrcContext::check`].
///
/// # Errors
/// See [`IcrcError`].
pub fn check(flow: &Flow, bytes_with_icrc: &[u8], expected_id: u16) -> Result<IcrcOk, IcrcError> {
    IcrcContext::new(flow).check(bytes_with_icrc, expected_id)
}

impl Bth {
    /// The destination QPN of a packet with its ICRC; `None`: it is too short for a BTH and an
    /// ICRC.
    #[inline]
    pub fn dest_qpn_of_sealed(packet: &[u8]) -> Option<u32> {
        Bth::dest_qpn(&packet[..packet.len().checked_sub(ICRC_LEN)?])
    }
}

impl IcrcContext {
    /// Sums up the headers of `flow`.
    pub fn new(flow: &Flow) -> IcrcContext {
        let [s0, s1] = flow.src_port.to_be_bytes();
        let [d0, d1] = flow.dst_port.to_be_bytes();
        let udp = [s0, s1, d0, d1, 0, 0, 0xff, 0xff];
        let mut crc = crc32fast::Hasher::new();
        // In place of a local route header.
        crc.update(&[0xff; 8]);
        let v4 = match (flow.src.to_canonical(), flow.dst.to_canonical()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                crc.update(&[0x45, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 17, 0xff, 0xff]);
                crc.update(&src.octets());
                crc.update(&dst.octets());
                true
            }
            (src, dst) => {
                crc.update(&[0x6f, 0xff, 0xff, 0xff, 0, 0, 17, 0xff]);
                crc.update(&as_v6(src).octets());
                crc.update(&as_v6(dst).octets());
                false
            }
        };
        crc.update(&udp);
        IcrcContext {
            base: crc.finalize(),
            v4,
        }
    }

    /// The ICRC of `bytes`: BTH up to the last pad byte, at most 65 KiB.
    #[inline]
    pub fn icrc(&self, ip_id: u16, dont_fragment: bool, bytes: &[u8]) -> u32 {
        let mut crc = self.hasher(ip_id, dont_fragment, bytes.len(), bytes.get(4).copied());
        crc.update(bytes);
        crc.finalize()
    }

    /// As [`IcrcContext::icrc`], of a packet that lies in pieces. The first piece holds at least
    /// the BTH.
    pub fn icrc_parts(&self, ip_id: u16, dont_fragment: bool, parts: &[&[u8]]) -> u32 {
        let len = parts.iter().map(|part| part.len()).sum();
        let masked = parts.first().and_then(|bth| bth.get(4)).copied();
        let mut crc = self.hasher(ip_id, dont_fragment, len, masked);
        for part in parts {
            crc.update(part);
        }
        crc.finalize()
    }

    /// Writes the ICRC of all but the last four bytes of `packet` into these four.
    ///
    /// # Panics
    /// If `packet` is shorter than [`ICRC_LEN`].
    #[inline]
    pub fn append(&self, ip_id: u16, dont_fragment: bool, packet: &mut [u8]) {
        let (bytes, trailer) = packet.split_at_mut(packet.len() - ICRC_LEN);
        trailer.copy_from_slice(&self.icrc(ip_id, dont_fragment, bytes).to_le_bytes());
    }

    /// Checks a received packet: BTH up to and including the ICRC.
    ///
    /// `expected_id` is the IPv4 identification tried first; any other is solved for. DF set and an
    /// IHL of 5 are assumed. Over IPv4 a random corruption passes with a probability of 2^-16:
    /// receivers use [`FlowIds::check`](crate::FlowIds::check). A single flipped bit never passes.
    ///
    /// # Errors
    /// See [`IcrcError`].
    #[inline]
    pub fn check(&self, bytes_with_icrc: &[u8], expected_id: u16) -> Result<IcrcOk, IcrcError> {
        self.check_any_df(bytes_with_icrc, expected_id)
            .and_then(|ok| {
                if ok.df {
                    Ok(ok)
                } else {
                    Err(IcrcError::Mismatch)
                }
            })
    }

    /// As [`IcrcContext::check`], but finds out whether DF is set, too.
    ///
    /// Not a check to rely on alone: two bits of a long packet, 1564 and 14855 places behind the
    /// identification, pass for DF when flipped. [`FlowIds::check`](crate::FlowIds::check) knows
    /// whether the peer sets DF and sees through that.
    ///
    /// # Errors
    /// See [`IcrcError`].
    #[inline]
    pub fn check_any_df(
        &self,
        bytes_with_icrc: &[u8],
        expected_id: u16,
    ) -> Result<IcrcOk, IcrcError> {
        let (bytes, trailer) = parts(bytes_with_icrc)?;
        let difference = self.icrc(expected_id, true, bytes) ^ trailer;
        if difference == 0 {
            return Ok(IcrcOk {
                ip_id: expected_id,
                df: true,
            });
        }
        if !self.v4 {
            return Err(IcrcError::Mismatch);
        }
        // Moved back to where the ID lies, a difference of IDs fills the high half of the register
        // and nothing else.
        let moved = gf2::multiply(difference, gf2::back_to_id(bytes.len()));
        for (df, moved) in [(true, moved), (false, moved ^ gf2::DF_AT_ID)] {
            if moved & 0xffff == 0 {
                // The register's bytes are those of the ID in the order of the wire.
                let flipped = ((moved >> 16) as u16).swap_bytes();
                return Ok(IcrcOk {
                    ip_id: expected_id ^ flipped,
                    df,
                });
            }
        }
        Err(IcrcError::Mismatch)
    }

    /// Checks a received packet whose IP header is known: all 32 bits of the ICRC have to be right.
    /// Over IPv6 nothing is made of `header`.
    ///
    /// # Errors
    /// See [`IcrcError`].
    #[inline]
    pub fn check_exactly(&self, bytes_with_icrc: &[u8], header: IcrcOk) -> Result<(), IcrcError> {
        let (bytes, trailer) = parts(bytes_with_icrc)?;
        if self.icrc(header.ip_id, header.df, bytes) == trailer {
            Ok(())
        } else {
            Err(IcrcError::Mismatch)
        }
    }

    /// Whether the flow is IPv4: only then is there an identification to be inferred.
    #[inline]
    pub fn is_ipv4(&self) -> bool {
        self.v4
    }

    /// A hasher in the state in which it has seen all that precedes the BTH of a packet of `len`
    /// bytes whose byte 4 is `masked`, prepared such that this byte counts as ones.
    #[inline]
    fn hasher(
        &self,
        ip_id: u16,
        dont_fragment: bool,
        len: usize,
        masked: Option<u8>,
    ) -> crc32fast::Hasher {
        let udp_len = (len + 8 + ICRC_LEN) as u16;
        let mut state = self.base;
        if self.v4 {
            state ^= gf2::V4_TOTAL_LEN.of(udp_len.wrapping_add(20)) ^ gf2::UDP_LEN.of(udp_len);
            state ^= gf2::V4_ID.of(ip_id);
            state ^= if dont_fragment { gf2::V4_DF } else { 0 };
        } else {
            state ^= gf2::V6_BOTH_LEN.of(udp_len);
        }
        if let Some(byte) = masked {
            state ^= gf2::BYTE_4_LATER[usize::from(byte ^ 0xff)];
        }
        crc32fast::Hasher::new_with_initial(state)
    }
}

/// What fits a UDP datagram over IPv4, less the ICRC.
const MAX_PACKET_LEN: usize = 65_535 - 28 - ICRC_LEN;

/// BTH up to the last pad byte, and the ICRC.
#[inline]
fn parts(bytes_with_icrc: &[u8]) -> Result<(&[u8], u32), IcrcError> {
    let (bytes, trailer) = bytes_with_icrc
        .split_last_chunk::<ICRC_LEN>()
        .ok_or(IcrcError::Length)?;
    if bytes.len() < Bth::LEN || bytes.len() > MAX_PACKET_LEN {
        return Err(IcrcError::Length);
    }
    Ok((bytes, u32::from_le_bytes(*trailer)))
}

fn as_v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

#[cfg(test)]
mod tests;
