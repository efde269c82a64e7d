//! Headers of packets that are alike but for their lengths, as those of one flow are: most of them
//! is written, or looked at, once.

use super::{IpError, IpUdp, Ipv4Header, UDP_LEN, fold, sum};

const V4_LEN: usize = Ipv4Header::LEN + UDP_LEN;

/// Writes what [`IpUdp::emit`] does.
#[derive(Clone, Debug)]
pub struct PreparedHeaders {
    headers: IpUdp,
    /// Over IPv4: with lengths, identification and checksum 0.
    v4: Option<[u8; V4_LEN]>,
    /// What these add to the IPv4 header's checksum.
    sum: u64,
}

impl PreparedHeaders {
    /// The identification of `headers` is not looked at.
    #[must_use]
    pub fn new(headers: &IpUdp) -> PreparedHeaders {
        let mut bytes = [0; IpUdp::MAX_LEN];
        let len = headers.emit(&[], &mut bytes);
        let v4 = bytes.first_chunk().filter(|_| len == V4_LEN).map(|v4| {
            let mut v4: [u8; V4_LEN] = *v4;
            // Total length and identification; checksum; the UDP length.
            v4[2..6].fill(0);
            v4[10..12].fill(0);
            v4[24..26].fill(0);
            v4
        });
        PreparedHeaders {
            headers: *headers,
            v4,
            sum: v4.map_or(0, |v4| sum(&v4[..Ipv4Header::LEN])),
        }
    }

    /// As [`IpUdp::emit`], with this identification.
    ///
    /// # Panics
    /// If `out` is shorter than the headers.
    #[inline]
    pub fn emit(&self, ip_id: u16, udp_payload: &[u8], out: &mut [u8]) -> usize {
        let Some(v4) = &self.v4 else {
            let headers = IpUdp {
                ip_id,
                ..self.headers
            };
            return headers.emit(udp_payload, out);
        };
        // Longer than a datagram can be: the length fields are cut.
        let udp_len = (UDP_LEN + udp_payload.len()) as u16;
        let total_len = udp_len.wrapping_add(Ipv4Header::LEN as u16);
        let checksum = !fold(self.sum + u64::from(total_len) + u64::from(ip_id));
        let out = &mut out[..V4_LEN];
        out.copy_from_slice(v4);
        out[2..4].copy_from_slice(&total_len.to_be_bytes());
        out[4..6].copy_from_slice(&ip_id.to_be_bytes());
        out[10..12].copy_from_slice(&checksum.to_be_bytes());
        out[24..26].copy_from_slice(&udp_len.to_be_bytes());
        V4_LEN
    }
}

/// Reads what [`IpUdp::parse_front`] does of packets that arrive, and remembers the last one. The
/// IPv4 header's checksum has to be right, as a receiver's kernel demands it (RFC 1122, 3.2.1.2).
#[derive(Clone, Debug, Default)]
pub struct LastHeaders {
    /// Over IPv4: what of the headers is the same in the next packet, and what was found in them.
    last: Option<([u64; 3], IpUdp)>,
}

impl LastHeaders {
    /// As [`IpUdp::parse_front`].
    ///
    /// # Errors
    /// See [`IpError`]; only here [`IpError::Checksum`].
    #[inline]
    pub fn parse_front(&mut self, front: &[u8], len: usize) -> Result<(IpUdp, usize), IpError> {
        let key = front.first_chunk().map(key_of);
        if let (Some((last, found)), Some((key, lens))) = (&self.last, key)
            && *last == key
            && let Some(payload) = lens.payload(len)
            && front
                .first_chunk()
                .is_some_and(Ipv4Header::has_right_checksum)
        {
            let found = IpUdp {
                ip_id: lens.ip_id,
                ..*found
            };
            return Ok((found, payload));
        }
        self.parse_anew(front, len)
    }

    #[cold]
    fn parse_anew(&mut self, front: &[u8], len: usize) -> Result<(IpUdp, usize), IpError> {
        let (found, payload) = IpUdp::parse_front(front, len)?;
        let is_v4 = IpUdp::len_of(front) == V4_LEN;
        let header = front.first_chunk().filter(|_| is_v4);
        if header.is_some_and(|header| !Ipv4Header::has_right_checksum(header)) {
            return Err(IpError::Checksum);
        }
        let key = front.first_chunk().filter(|_| is_v4).map(key_of);
        self.last = key.map(|(key, _)| (key, found));
        Ok((found, payload))
    }
}

/// What differs from one IPv4 packet of a flow to the next, but for checksums.
#[derive(Clone, Copy)]
struct Lengths {
    total_len: u16,
    ip_id: u16,
    udp_len: u16,
}

impl Lengths {
    /// Bytes of the UDP payload in a packet of `len` bytes; `None`: they contradict each other.
    #[inline]
    fn payload(self, len: usize) -> Option<usize> {
        let total = usize::from(self.total_len);
        let udp = total.checked_sub(Ipv4Header::LEN)?;
        let payload = udp.checked_sub(UDP_LEN)?;
        (total <= len && usize::from(self.udp_len) == udp).then_some(payload)
    }
}

/// The rest of an IPv4 and a UDP header, in any order: version to TOS, flags to protocol,
/// addresses, ports.
#[inline]
fn key_of(b: &[u8; V4_LEN]) -> ([u64; 3], Lengths) {
    let first = u64::from_ne_bytes([b[0], b[1], b[6], b[7], b[8], b[9], 0, 0]);
    let addresses = [b[12], b[13], b[14], b[15], b[16], b[17], b[18], b[19]];
    let ports = [b[20], b[21], b[22], b[23], 0, 0, 0, 0];
    let key = [
        first,
        u64::from_ne_bytes(addresses),
        u64::from_ne_bytes(ports),
    ];
    let lens = Lengths {
        total_len: u16::from_be_bytes([b[2], b[3]]),
        ip_id: u16::from_be_bytes([b[4], b[5]]),
        udp_len: u16::from_be_bytes([b[24], b[25]]),
    };
    (key, lens)
}

#[cfg(test)]
mod tests;
