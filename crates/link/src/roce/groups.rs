//! Which multicast groups this process is a member of.
//!
//! The kernel gives each member's socket a copy of its own; except that where exactly one socket of
//! a host is a member of an IPv4 group, kernels of today (seen on Linux 6.18) find that one early
//! and then choose anew among its SO_REUSEPORT group, which knows nothing of members: the one copy
//! may reach any process, and be lost with it if that one ends. So no socket of ours is a group's
//! only member: beside it is a [`Companion`], which gets nothing. Where there can be none, the
//! process that gets a packet without being a member hands it to all others. IPv6 has no such early
//! look.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use rnic_wire::ROCE_PORT;

use rnic_host::steering;
use rnic_sys::{self as sys, Addr, Fd};

#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// On interfaces.
    joined: HashMap<(IpAddr, u32), Option<Companion>>,
    /// Left, but what came before may still wait in the socket: others had copies of it.
    left: Vec<IpAddr>,
}

impl Groups {
    pub(crate) fn join(&mut self, group: IpAddr, ifindex: u32, companion: Option<Companion>) {
        self.joined.insert((group, ifindex), companion);
    }

    pub(crate) fn leave(&mut self, group: IpAddr, ifindex: u32) {
        if self.joined.remove(&(group, ifindex)).is_some() && !self.left.contains(&group) {
            self.left.push(group);
        }
    }

    /// A packet to `group` that came here is this process's, or was: no other has to be told.
    pub(crate) fn may_hear(&self, group: IpAddr) -> bool {
        group.is_ipv6()
            || self.joined.keys().any(|(joined, _)| *joined == group)
            || self.left.contains(&group)
    }

    /// The socket was found empty.
    #[inline]
    pub(crate) fn drained(&mut self) {
        if !self.left.is_empty() {
            self.left.clear();
        }
    }
}

/// A member of a group at our port that takes no packets. Bound to the group's own address, it is
/// of no SO_REUSEPORT group that a unicast packet could find.
#[derive(Debug)]
pub(crate) struct Companion(#[expect(dead_code, reason = "open until it goes")] Fd);

impl Companion {
    /// To be opened before the receiving socket joins. `None` where the group needs none, or the
    /// system has none to give.
    pub(crate) fn open(group: IpAddr, ifindex: u32) -> Option<Companion> {
        match group {
            IpAddr::V4(group) => Companion::member_of(group, ifindex).ok(),
            IpAddr::V6(_) => None,
        }
    }

    fn member_of(group: Ipv4Addr, ifindex: u32) -> io::Result<Companion> {
        let fd = sys::socket(libc::AF_INET, libc::SOCK_DGRAM)?;
        sys::attach_filter(&fd, &steering::NOTHING)?;
        sys::set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        sys::bind(&fd, &Addr::inet(&(group, ROCE_PORT).into()))?;
        sys::set_membership(&fd, group.into(), ifindex, true)?;
        Ok(Companion(fd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_is_heard_until_the_socket_is_empty() {
        let group: IpAddr = "239.7.7.1".parse().unwrap();
        let mut groups = Groups::default();
        assert!(!groups.may_hear(group));
        groups.join(group, 1, None);
        groups.join(group, 2, None);
        groups.leave(group, 1);
        groups.drained();
        assert!(groups.may_hear(group), "still a member on the other one");
        groups.leave(group, 2);
        assert!(groups.may_hear(group));
        groups.drained();
        assert!(!groups.may_hear(group));
        groups.leave(group, 2);
        assert!(!groups.may_hear(group), "left before");
    }
}
