//! Whom a MAD is for, when several processes share one QP 1.

use super::field::{be32, be64};
use super::{Attribute, IpCmHeader, MAD_LEN, Mad, ServiceId};
use core::net::IpAddr;

/// Whom a MAD is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Addressee {
    /// The owner of the receiver's communication id, or of the request id of its SIDR exchange.
    Connection(u32),
    /// The process that listens to the service, at the address if one is known: a REQ or SIDR_REQ.
    Service(ServiceId, Option<IpAddr>),
    /// Nobody in particular: no message of the connection manager, or one that names no receiver.
    Nobody,
}

impl Addressee {
    /// Reads no more than is needed of the payload of a packet to QP 1.
    ///
    /// A REJ that names no communication id of its receiver (the requester gave up before it
    /// learned it) is for [`Addressee::Nobody`].
    pub fn of(mad: &[u8]) -> Addressee {
        let Ok(mad) = <&[u8; MAD_LEN]>::try_from(mad) else {
            return Addressee::Nobody;
        };
        let Ok(attribute) = Mad::attribute(mad) else {
            return Addressee::Nobody;
        };
        let body = &mad[Mad::HEADER_LEN..];
        match attribute {
            Attribute::Req => service(ServiceId(be64(body, 8)), &body[140..]),
            Attribute::SidrReq => service(ServiceId(be64(body, 8)), &body[16..]),
            // The id of the request is the first field of the answer.
            Attribute::SidrRep => Addressee::Connection(be32(body, 0)),
            _ => match be32(body, 4) {
                0 => Addressee::Nobody,
                id => Addressee::Connection(id),
            },
        }
    }
}

fn service(service: ServiceId, private_data: &[u8]) -> Addressee {
    let address = match service.port() {
        Some(_) => IpCmHeader::parse(private_data)
            .ok()
            .map(|header| header.dst),
        None => None,
    };
    Addressee::Service(service, address)
}

#[cfg(test)]
mod tests;
