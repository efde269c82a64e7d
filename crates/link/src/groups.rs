//! Which multicast groups this process is a member of.
//!
//! The kernel gives each member's socket a copy of its own; except that where exactly one socket of a host is a member of
//! an IPv4 group, kernels of today (seen on Linux 6.18) find that one early and then choose anew among its SO_REUSEPORT
//! group, which knows nothing of members: the one copy may reach any process. Who gets a packet without being a member
//! hands it to all others. IPv6 has no such early look.

use std::collections::HashSet;
use std::net::IpAddr;

#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// On interfaces.
    joined: HashSet<(IpAddr, u32)>,
    /// Left, but what came before may still wait in the socket: others had copies of it.
    left: Vec<IpAddr>,
}

impl Groups {
    pub(crate) fn join(&mut self, group: IpAddr, ifindex: u32) {
        self.joined.insert((group, ifindex));
    }

    pub(crate) fn leave(&mut self, group: IpAddr, ifindex: u32) {
        if self.joined.remove(&(group, ifindex)) && !self.left.contains(&group) {
            self.left.push(group);
        }
    }

    /// A packet to `group` that came here is this process's, or was: no other has to be told.
    pub(crate) fn may_hear(&self, group: IpAddr) -> bool {
        group.is_ipv6()
            || self.joined.iter().any(|(joined, _)| *joined == group)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_is_heard_until_the_socket_is_empty() {
        let group: IpAddr = "239.7.7.1".parse().unwrap();
        let mut groups = Groups::default();
        assert!(!groups.may_hear(group));
        groups.join(group, 1);
        groups.join(group, 2);
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
