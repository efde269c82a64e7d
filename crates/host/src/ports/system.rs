//! What the system says about ports: the same files that the kernel's own RDMA CM goes by.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use rnic_sys as sys;

/// Linux's defaults.
const EPHEMERAL: RangeInclusive<u16> = 32768..=60999;
const UNPRIVILEGED: u32 = 1024;
/// Ports are claimed a thousand times a second; the settings change once in a machine's life.
const FRESH: Duration = Duration::from_secs(1);

/// The settings, as of a moment ago.
#[derive(Debug, Default)]
pub(super) struct System(Option<(Instant, Settings)>);

/// The settings of this network namespace.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Ports that are given to a program that does not name one.
    pub ephemeral: RangeInclusive<u16>,
    /// The first port that needs no privilege.
    pub unprivileged: u32,
    /// IPv6 claims keep to their family unless told otherwise.
    pub v6_only: bool,
}

impl System {
    pub(super) fn get(&mut self) -> Settings {
        match &self.0 {
            Some((read, settings)) if read.elapsed() < FRESH => settings.clone(),
            _ => {
                let settings = Settings::read();
                self.0 = Some((Instant::now(), settings.clone()));
                settings
            }
        }
    }

    /// For good.
    #[cfg(test)]
    pub(super) fn set_ephemeral(&mut self, ephemeral: RangeInclusive<u16>) {
        let settings = Settings {
            ephemeral,
            ..Settings::read()
        };
        self.0 = Some((Instant::now() + Duration::from_secs(1 << 20), settings));
    }
}

impl Settings {
    fn read() -> Settings {
        let file =
            |name| std::fs::read_to_string(format!("/proc/sys/net/{name}")).unwrap_or_default();
        let number = |name| file(name).trim().parse().ok();
        Settings {
            ephemeral: parse_range(&file("ipv4/ip_local_port_range")).unwrap_or(EPHEMERAL),
            unprivileged: number("ipv4/ip_unprivileged_port_start").unwrap_or(UNPRIVILEGED),
            v6_only: number("ipv6/bindv6only").is_some_and(|n| n != 0),
        }
    }

    /// The calling thread may claim this port: it is not privileged, or the thread is.
    pub(super) fn may_claim(&self, port: u16) -> bool {
        u32::from(port) >= self.unprivileged || may_bind_service()
    }
}

/// `None`: no range of ports.
pub(super) fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let mut words = text.split_whitespace();
    let (low, high) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    (0 < low && low <= high).then_some(low..=high)
}

/// capabilities(7)
fn may_bind_service() -> bool {
    const CAP_NET_BIND_SERVICE: u32 = 10;
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    match effective {
        Some(mask) => mask >> CAP_NET_BIND_SERVICE & 1 != 0,
        None => sys::effective_uid() == 0,
    }
}
