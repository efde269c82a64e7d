//! The machine that the device is on: its clock, its randomness, its addresses.
//!
//! A device of a process is on the [system](Host::system), as everybody knows it. One that is
//! [simulated](Host::simulated) has a clock that somebody sets, random numbers that a seed decides,
//! and the addresses that it was given. All that the device, its engines and its connection manager
//! do goes by their host, and by nothing else: the same calls give the same packets.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rnic_sys::{StreamClock, Way};
use rnic_wire::Gid;
use rustix_futex_sync::Mutex;

use crate::addressing::gid_table::{self, GidEntry};
use crate::addressing::pkey_table::PkeyTable;

/// The machine that a device is on.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// `None`: the system.
    simulated: Option<Arc<Simulated>>,
}

#[derive(Debug)]
struct Simulated {
    now: AtomicU64,
    /// State of SplitMix64.
    random: AtomicU64,
    gids: Mutex<Vec<GidEntry>>,
    pkeys: PkeyTable,
    guid: u64,
}

impl Simulated {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }
}

/// How a simulated host is to be.
#[derive(Clone, Debug)]
pub struct SimulatedHost {
    /// Decides all random numbers.
    pub seed: u64,
    /// The time at first, ns.
    pub now_ns: u64,
    /// Addresses of its one interface.
    pub addresses: Vec<IpAddr>,
    /// MTU of that interface, bytes.
    pub mtu: u32,
}

impl Host {
    /// The system.
    pub fn system() -> Host {
        Host::default()
    }

    /// A simulated one, in the default partition alone.
    pub fn simulated(spec: &SimulatedHost) -> Host {
        Host::simulated_in(spec, PkeyTable::default())
    }

    /// A simulated one, in these partitions.
    pub fn simulated_in(spec: &SimulatedHost, pkeys: PkeyTable) -> Host {
        let row = |(index, addr): (usize, &IpAddr)| GidEntry {
            index: index as u32,
            gid: Gid::from(*addr),
            addr: *addr,
            ifindex: 1,
            ifname: "sim0".to_owned(),
            netdev_mtu: spec.mtu,
            scope_id: 0,
            loopback: false,
            running: true,
        };
        Host {
            simulated: Some(Arc::new(Simulated {
                now: AtomicU64::new(spec.now_ns),
                random: AtomicU64::new(spec.seed),
                gids: Mutex::new(spec.addresses.iter().enumerate().map(row).collect()),
                pkeys,
                guid: spec.seed | 2 << 56,
            })),
        }
    }

    /// It is not the system.
    pub fn is_simulated(&self) -> bool {
        self.simulated.is_some()
    }

    /// Sets a simulated host's clock, ns. It does not go back.
    pub fn set_time(&self, now_ns: u64) {
        if let Some(simulated) = &self.simulated {
            simulated.now.fetch_max(now_ns, Ordering::Relaxed);
        }
    }

    /// The monotonic clock, ns.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        match &self.simulated {
            None => rnic_sys::now_ns(),
            Some(simulated) => simulated.now_ns(),
        }
    }

    /// What counts short times of no exact length ([`rnic_sys::ticks_or_ns`]).
    #[inline]
    pub(crate) fn ticks_or_ns(&self) -> u64 {
        match &self.simulated {
            None => rnic_sys::ticks_or_ns(),
            Some(simulated) => simulated.now_ns(),
        }
    }

    /// Nanoseconds since 1970; of a simulated host, its clock.
    pub(crate) fn now_realtime_ns(&self) -> u64 {
        match &self.simulated {
            None => rnic_sys::now_realtime_ns(),
            Some(simulated) => simulated.now_ns(),
        }
    }

    /// Eight random bytes.
    pub(crate) fn random_u64(&self) -> u64 {
        let Some(simulated) = &self.simulated else {
            return rnic_sys::random_u64();
        };
        // SplitMix64 (Steele, Lea and Flood 2014).
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let before = simulated.random.fetch_add(STEP, Ordering::Relaxed);
        let mut z = before.wrapping_add(STEP);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// As many random bytes as there is room for.
    pub(crate) fn random_bytes(&self, room: &mut [u8]) {
        if self.simulated.is_none() {
            return rnic_sys::random_bytes(room);
        }
        for chunk in room.chunks_mut(8) {
            let bytes = self.random_u64().to_ne_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }

    /// The GID table ([`gid_table`](crate::gid_table)).
    pub fn gid_table(&self) -> Vec<GidEntry> {
        match &self.simulated {
            None => gid_table::gid_table(),
            Some(simulated) => simulated.gids.lock().clone(),
        }
    }

    /// The P_Key table of the port.
    pub fn pkeys(&self) -> &PkeyTable {
        match &self.simulated {
            None => PkeyTable::of_process(),
            Some(simulated) => &simulated.pkeys,
        }
    }

    /// The way to an address and UDP port, from `source` if it is given. That of a simulated host
    /// begins at its first address of the family, and the way to itself at the address meant.
    ///
    /// # Errors
    /// ENETUNREACH, EHOSTUNREACH: there is none; EADDRNOTAVAIL: `source` is no address of the host.
    pub(crate) fn way_to(&self, source: Option<SocketAddr>, peer: SocketAddr) -> io::Result<Way> {
        let Some(simulated) = &self.simulated else {
            return rnic_sys::way_to(source, peer);
        };
        let gids = simulated.gids.lock();
        let is_own = |ip: IpAddr| gids.iter().any(|row| row.addr == ip);
        let ip = match source {
            Some(source) if is_own(source.ip()) => Ok(source.ip()),
            Some(_) => Err(libc::EADDRNOTAVAIL),
            None if is_own(peer.ip()) => Ok(peer.ip()),
            None => {
                let mut addresses = gids.iter().map(|row| row.addr);
                let first = addresses.find(|addr| addr.is_ipv4() == peer.is_ipv4());
                first.ok_or(libc::ENETUNREACH)
            }
        };
        Ok(Way {
            source: SocketAddr::new(ip.map_err(io::Error::from_raw_os_error)?, 0),
            mtu: None,
        })
    }

    /// The interface that has an address, and whether it is up.
    pub(crate) fn interface_of(&self, addr: IpAddr) -> Option<(String, bool)> {
        let Some(simulated) = &self.simulated else {
            return rnic_sys::interface_of(addr);
        };
        let gids = simulated.gids.lock();
        let row = gids.iter().find(|row| row.addr == addr);
        row.map(|row| (row.ifname.clone(), row.running))
    }

    /// The device's GUID in host order.
    pub(crate) fn device_guid(&self) -> u64 {
        match &self.simulated {
            None => gid_table::device_guid(),
            Some(simulated) => simulated.guid,
        }
    }
}

/// The clock of a thread that reads it over and over ([`StreamClock`]).
#[derive(Debug, Default)]
pub(crate) struct Clock {
    host: Host,
    stream: StreamClock,
}

impl Clock {
    pub(crate) fn of(host: Host) -> Clock {
        Clock {
            host,
            stream: StreamClock::default(),
        }
    }

    /// The time, at most a few microseconds ago.
    #[inline]
    pub(crate) fn now_ns(&mut self) -> u64 {
        match &self.host.simulated {
            None => self.stream.now_ns(),
            Some(simulated) => simulated.now_ns(),
        }
    }

    /// [`Host::ticks_or_ns`].
    #[inline]
    pub(crate) fn ticks_or_ns(&self) -> u64 {
        self.host.ticks_or_ns()
    }

    /// The time now.
    #[inline]
    pub(crate) fn exact_ns(&self) -> u64 {
        self.host.now_ns()
    }

    /// What was read last.
    #[inline]
    pub(crate) fn last_ns(&self) -> u64 {
        match &self.host.simulated {
            None => self.stream.last_ns(),
            Some(simulated) => simulated.now_ns(),
        }
    }
}
