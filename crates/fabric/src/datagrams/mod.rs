//! Queue pairs of UD: each sends to several others and to multicast groups.
//!
//! | file | duty |
//! | --- | --- |
//! | `oracle` | what completes next, and which datagrams may come, how often, in which order |
//! | `program` | the program at a queue pair: it polls, posts, and has all of it checked |

mod oracle;
mod program;

use std::cell::Cell;
use std::net::IpAddr;

use crate::scenario::{Datagram, Endpoint, Scenario, To};

pub(crate) use program::Program;

/// A work request whose Q_Key has this bit stands for its queue pair's Q_Key (IBTA vol. 1, 10.2.5).
const OWN_QKEY: u32 = 1 << 31;

/// All endpoints of a scenario, as each of them knows them.
pub(crate) struct Everybody {
    specs: Vec<Endpoint>,
    /// Of each, its host's address.
    addresses: Vec<IpAddr>,
    /// Of each, its QPN, once it has one.
    qpns: Vec<Cell<u32>>,
    /// Of each, how many datagrams it has posted.
    posted: Vec<Cell<usize>>,
    /// The network keeps packets in order, each once.
    in_order: bool,
}

impl Everybody {
    pub(crate) fn new(scenario: &Scenario, in_order: bool) -> Result<Everybody, String> {
        let specs = scenario.endpoints.clone();
        let address = |endpoint: &Endpoint| match scenario.hosts.get(endpoint.host) {
            Some(host) => Ok(host.address),
            None => Err(format!(
                "endpoint {}: there is no host {}",
                endpoint.name, endpoint.host
            )),
        };
        let datagrams = specs.iter().flat_map(|spec| &spec.datagrams);
        for datagram in datagrams {
            if let To::Endpoint(to) = datagram.to
                && to >= specs.len()
            {
                return Err(format!("there is no endpoint {to}"));
            }
        }
        Ok(Everybody {
            addresses: specs.iter().map(address).collect::<Result<_, _>>()?,
            qpns: specs.iter().map(|_| Cell::new(0)).collect(),
            posted: specs.iter().map(|_| Cell::new(0)).collect(),
            specs,
            in_order,
        })
    }

    /// The Q_Key of the work request.
    fn named_qkey(&self, from: usize, datagram: &Datagram) -> u32 {
        let usual = match datagram.to {
            To::Endpoint(to) => self.specs[to].qkey,
            To::Group(_) => self.specs[from].qkey,
        };
        datagram.qkey.unwrap_or(usual)
    }

    /// The Q_Key that a datagram of endpoint `from` has on the wire.
    fn qkey(&self, from: usize, datagram: &Datagram) -> u32 {
        match self.named_qkey(from, datagram) {
            own if own & OWN_QKEY != 0 => self.specs[from].qkey,
            named => named,
        }
    }

    /// A datagram comes to endpoint `to`, if the network brings it.
    fn is_for(&self, to: usize, datagram: &Datagram) -> bool {
        match datagram.to {
            To::Endpoint(at) => at == to,
            To::Group(group) => self.specs[to].groups.contains(&group),
        }
    }

    /// The endpoint of that QPN.
    pub(crate) fn of_qpn(&self, qpn: u32) -> Option<usize> {
        self.qpns.iter().position(|known| known.get() == qpn)
    }

    /// The endpoints that get what arrives at a host: their places.
    pub(crate) fn recipients(
        &self,
        host: usize,
        (dst, qpn): (IpAddr, u32),
    ) -> impl Iterator<Item = usize> {
        let specs = self.specs.iter().enumerate();
        let here = specs.filter(move |(_, spec)| spec.host == host);
        let meant = here.filter(move |(at, spec)| match dst.is_multicast() {
            true => spec.groups.contains(&dst),
            false => self.qpns[*at].get() == qpn,
        });
        meant.map(|(at, _)| at)
    }
}
