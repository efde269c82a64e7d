//! What a RoCEv2 packet is: headers, opcodes, the invariant CRC.
//!
//! Formats only: no I/O, no clock, no allocation, no `unsafe`. The crate builds without an
//! operating system.
//!
//! A packet is decoded in two steps. [`Bth::parse`] needs the first twelve bytes and says which
//! queue pair the packet is for; [`Packet::parse`] then reads the extension headers that the opcode
//! asks for and finds the payload. Both take the bytes from the first byte of the BTH up to the
//! last pad byte: the receiver of the packet checks and cuts off the ICRC first ([`check`],
//! [`IcrcContext::check`]).
//!
//! # Panics
//! No function of this crate panics because of the *contents* of its input, nor because a slice to
//! parse is short. The functions that write headers panic when the output slice is too short, which
//! is the caller's own arithmetic.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod aeth;
pub mod cm;
mod gid;
mod grh;
mod headers;
mod icrc;
pub mod ip;
mod mtu;
mod opcode;
mod packet;
mod peer_ids;
mod pkey;
mod psn;
mod usual;

pub use aeth::{Aeth, CREDITS_INVALID, NakCode, Syndrome, credit_code, credit_count, rnr_timer_ns};
pub use gid::Gid;
pub use grh::{Grh, UdPrefix};
pub use headers::{AtomicAckEth, AtomicEth, Bth, Deth, Feth, Ieth, ImmDt, Rdeth, Reth, Xrceth};
pub use icrc::{
    Flow, ICRC_LEN, IcrcContext, IcrcError, IcrcOk, ROCE_PORT, append_icrc, check, icrc,
};
pub use mtu::PathMtu;
pub use opcode::{Opcode, Operation, Service};
pub use packet::{Ext, MAX_HEADER_LEN, Packet, PacketError, Payload, emit, header_len, pad_len};
pub use peer_ids::{FlowIds, Leeway, PeerIds};
pub use pkey::{DEFAULT_PKEY, is_full_member, is_valid_pkey, pkeys_match};
pub use psn::Psn;
pub use usual::Usual;

/// Makes the examples of README.md tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
