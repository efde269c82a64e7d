//! What is told of objects, byte by byte. It comes from other processes: whatever it is, it is read
//! as records or left.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::{Detail, Kind};
use crate::engine::PortCounters;
use crate::engine::services::reader::Reader;
use crate::queues::{QpState, QpType};

/// Most bytes of a record.
pub(super) const LONGEST: usize = 96;

pub(super) fn encode(out: &mut Vec<u8>, number: u32, detail: &Detail) {
    let words = |out: &mut Vec<u8>, words: &[u32]| {
        for word in words {
            out.extend_from_slice(&word.to_ne_bytes());
        }
    };
    words(out, &[number]);
    match *detail {
        Detail::Pd { users, context } => words(out, &[users, context]),
        Detail::Cq {
            cqe,
            users,
            context,
        } => words(out, &[cqe, users, context]),
        Detail::Qp {
            qp_type,
            state,
            port,
            path_mig_state,
            dest_qp_num,
            rq_psn,
            sq_psn,
            pd,
            srq,
        } => {
            out.extend_from_slice(&[qp_type as u8, state as u8, port, path_mig_state]);
            words(out, &[dest_qp_num, rq_psn, sq_psn, pd, srq]);
        }
        Detail::CmId {
            qpn,
            qp_type,
            port_space,
            state,
            port,
            local,
            peer,
        } => {
            out.extend_from_slice(&[qp_type as u8, state, port]);
            words(out, &[qpn, port_space.into()]);
            address(out, local);
            address(out, peer);
        }
        Detail::Mr { key, length, pd } => {
            words(out, &[key, pd]);
            out.extend_from_slice(&length.to_ne_bytes());
        }
        Detail::Context => {}
        Detail::Srq { xrc, pd, cq } => words(out, &[xrc.into(), pd, cq]),
    }
}

/// Records of a kind, up to the first that is none.
pub(crate) fn decode(kind: Kind, bytes: &[u8]) -> impl Iterator<Item = (u32, Detail)> {
    let mut rest = Reader(bytes);
    std::iter::from_fn(move || {
        let number = rest.u32()?;
        Some((number, decode_one(kind, &mut rest)?))
    })
}

fn decode_one(kind: Kind, r: &mut Reader<'_>) -> Option<Detail> {
    Some(match kind {
        Kind::Pd => Detail::Pd {
            users: r.u32()?,
            context: r.u32()?,
        },
        Kind::Cq => Detail::Cq {
            cqe: r.u32()?,
            users: r.u32()?,
            context: r.u32()?,
        },
        Kind::Qp => Detail::Qp {
            qp_type: qp_type(r.u8()?)?,
            state: QpState::from_ibv(r.u8()?.into())?,
            port: r.u8()?,
            path_mig_state: r.u8()?,
            dest_qp_num: r.u32()?,
            rq_psn: r.u32()?,
            sq_psn: r.u32()?,
            pd: r.u32()?,
            srq: r.u32()?,
        },
        Kind::CmId => {
            let (qp_type, state, port) = (qp_type(r.u8()?)?, r.u8()?, r.u8()?);
            Detail::CmId {
                qpn: r.u32()?,
                qp_type,
                port_space: r.u32()? as u16,
                state,
                port,
                local: read_address(r)?,
                peer: read_address(r)?,
            }
        }
        Kind::Mr => {
            let (key, pd) = (r.u32()?, r.u32()?);
            Detail::Mr {
                key,
                pd,
                length: r.u64()?,
            }
        }
        Kind::Context => Detail::Context,
        Kind::Srq => Detail::Srq {
            xrc: r.u32()? != 0,
            pd: r.u32()?,
            cq: r.u32()?,
        },
        Kind::Counters | Kind::Carried => return None,
    })
}

pub(super) fn qp_type(code: u8) -> Option<QpType> {
    use QpType::*;
    let mut all = [Rc, Uc, Ud, XrcSend, XrcRecv].into_iter();
    all.find(|qp_type| *qp_type as u8 == code)
}

const NO_ADDRESS: u8 = 0;
const V4: u8 = 4;
const V6: u8 = 6;

fn address(out: &mut Vec<u8>, addr: Option<SocketAddr>) {
    match addr {
        None => out.push(NO_ADDRESS),
        Some(SocketAddr::V4(v4)) => {
            out.push(V4);
            out.extend_from_slice(&v4.ip().octets());
            out.extend_from_slice(&u32::from(v4.port()).to_ne_bytes());
        }
        Some(SocketAddr::V6(v6)) => {
            out.push(V6);
            out.extend_from_slice(&v6.ip().octets());
            out.extend_from_slice(&u32::from(v6.port()).to_ne_bytes());
            out.extend_from_slice(&v6.scope_id().to_ne_bytes());
        }
    }
}

fn read_address(r: &mut Reader<'_>) -> Option<Option<SocketAddr>> {
    Some(match r.u8()? {
        NO_ADDRESS => None,
        V4 => Some(SocketAddr::new(
            IpAddr::from(r.array::<4>()?),
            r.u32()? as u16,
        )),
        V6 => {
            let (ip, port) = (Ipv6Addr::from(r.array::<16>()?), r.u32()? as u16);
            Some(SocketAddrV6::new(ip, port, 0, r.u32()?).into())
        }
        _ => return None,
    })
}

/// Defines both directions for the counts that programs are shown.
macro_rules! counters {
    ($($($field:ident).+;)*) => {
        pub(super) fn encode_counters(out: &mut Vec<u8>, counters: &PortCounters) {
            $(out.extend_from_slice(&counters.$($field).+.to_ne_bytes());)*
        }

        /// `None`: too few.
        pub(crate) fn decode_counters(bytes: &[u8]) -> Option<PortCounters> {
            let mut r = Reader(bytes);
            let mut counters = PortCounters::default();
            $(counters.$($field).+ = r.u64()?;)*
            Some(counters)
        }
    };
}

counters! {
    link.tx_packets;
    link.tx_bytes;
    link.tx_multicast;
    link.tx_errors;
    link.tx_waited;
    link.tx_reached_bytes;
    link.rx_packets;
    link.rx_bytes;
    link.rx_multicast;
    link.rx_bad_icrc;
    link.rx_truncated;
    link.rx_reached_bytes;
    drops.malformed;
    drops.bad_pkey;
    qps.duplicates_received;
    qps.out_of_sequence;
    qps.rnr_naks_sent;
    qps.rnr_naks_received;
    qps.sequence_naks_received;
    qps.timeouts;
    qps.access_naks_sent;
}

#[cfg(test)]
mod tests;
