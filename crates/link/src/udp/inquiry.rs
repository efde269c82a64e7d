//! A question to a peer's port that does not answer: what the kernel and ICMP say of it.

use std::io;
use std::net::IpAddr;

use crate::netlink::next_hop;
use crate::staging::path::PathSpec;
use crate::udp::tx::way;
use rnic_sys::{self as sys, Fd};

/// A socket that is connected to port 4791 of the peer's host, apart from those that carry packets:
/// an error that the kernel keeps for it takes no packet of a queue pair with it.
#[derive(Debug)]
pub struct Inquiry(Fd);

impl Inquiry {
    /// Between two addresses, neither of them link-local.
    ///
    /// # Errors
    /// What connect(2) says: there is no way, for example.
    pub fn open(local: IpAddr, remote: IpAddr) -> io::Result<Inquiry> {
        let fd = way(&between(local, remote))?;
        let (level, option) = match remote.to_canonical().is_ipv4() {
            true => (libc::IPPROTO_IP, libc::IP_RECVERR),
            false => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        };
        sys::set_option(&fd, level, option, 1)?;
        Ok(Inquiry(fd))
    }

    /// Sends an empty datagram, which no RoCEv2 receiver takes for a packet, and never blocks. An
    /// error that was there already comes out instead.
    ///
    /// # Errors
    /// What ICMP said of an earlier one (ECONNREFUSED: nothing takes that port), or what the kernel
    /// of this host says.
    pub fn ask(&self) -> io::Result<()> {
        sys::send_to(&self.0, &[], None).map(drop)
    }

    /// The error that came for what was asked, once.
    pub fn answer(&self) -> Option<i32> {
        let error = sys::get_option(&self.0, libc::SOL_SOCKET, libc::SO_ERROR);
        error.ok().filter(|error| *error != 0)
    }
}

/// The longest IP packet that interfaces and routes of this host take on the way between two
/// addresses, whatever ICMP said; bytes.
pub fn longest_packet(local: IpAddr, remote: IpAddr) -> Option<u32> {
    next_hop::longest_packet(local.to_canonical(), remote.to_canonical(), 0)
}

/// A path for questions.
pub(super) fn between(local: IpAddr, remote: IpAddr) -> PathSpec {
    PathSpec {
        local,
        scope_id: 0,
        remote,
        dest_qpn: 0,
        traffic_class: 0,
        hop_limit: 0,
    }
}
