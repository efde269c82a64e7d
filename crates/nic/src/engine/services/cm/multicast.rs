//! Multicast groups.
//!
//! On RoCE there is no subnet manager to ask: the membership is that of the IP group, which the
//! device joins when a queue pair is attached (`ibv_attach_mcast(3)`). What is told here is how to
//! send to the group.

use std::net::SocketAddr;

use rnic_host::MULTICAST_QPN;
use rnic_wire::Gid;

use super::UDP_QKEY;
use super::entry::{State, Waiting};
use super::slab::Key;
use super::state::{Cm, Membership};
use crate::addressing::address::AhAttr;
use crate::error::{Error, Result};
use crate::queues::QpType;
use rnic_types::cm::{EventKind, EventParam, UdEvent};

/// Linux' hop limit of groups.
const HOP_LIMIT: u8 = 64;

impl Cm {
    pub(crate) fn join(&mut self, key: Key, group: SocketAddr, uid: u64) -> Result<Key> {
        const VERB: &str = "rdma_join_multicast";
        let entry = self.entry(VERB, key)?;
        entry.expect(VERB, &[State::Bound, State::AddrResolved])?;
        let Some(source) = entry.source else {
            return Err(Error::invalid(
                VERB,
                "the id is not bound to an address of the device",
            ));
        };
        if entry.qp_type != QpType::Ud {
            return Err(Error::invalid(
                VERB,
                "groups are for datagrams: port space UDP or IPOIB",
            ));
        }
        if !group.ip().is_multicast() || group.is_ipv4() != source.addr.is_ipv4() {
            return Err(Error::invalid(
                VERB,
                format!(
                    "{} is no multicast group of the family of {}",
                    group.ip(),
                    source.addr
                ),
            ));
        }
        let ah = AhAttr {
            dgid: Gid::from(group.ip()),
            sgid_index: source.gid_index as u8,
            hop_limit: HOP_LIMIT,
            traffic_class: entry.options.tos.unwrap_or(0),
            is_global: true,
            port_num: 1,
            ..AhAttr::default()
        };
        let membership = self.memberships.insert(Membership { reported: 0 });
        self.entry(VERB, key)?.memberships.push(membership);
        self.post(Waiting {
            param: EventParam::Ud(UdEvent {
                ah,
                qp_num: MULTICAST_QPN,
                qkey: UDP_QKEY,
                ..UdEvent::default()
            }),
            multicast: Some((membership, uid)),
            ..Waiting::new(key, EventKind::MulticastJoin)
        });
        Ok(membership)
    }

    pub(crate) fn leave(&mut self, key: Key, membership: Key) -> Result<u32> {
        const VERB: &str = "rdma_leave_multicast";
        let entry = self.entry(VERB, key)?;
        let place = entry.memberships.iter().position(|m| *m == membership);
        let left = || {
            Error::new(
                VERB,
                libc::EADDRNOTAVAIL,
                "the id is no member of the group",
            )
        };
        entry.memberships.swap_remove(place.ok_or_else(left)?);
        self.drop_multicast_events(key, membership);
        let membership = self.memberships.remove(membership).ok_or_else(left)?;
        Ok(membership.reported)
    }
}
