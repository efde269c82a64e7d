//! How the two sides of `rnic bench`, `rnic study` and `rnic verify` find each other between two
//! hosts: one waits at a TCP address, the other one calls it.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use rnic::exchange;

use crate::platform::failure::{Failure, Result};

/// Where the sides of a command meet unless they are told otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Meeting {
    /// `rnic COMMAND`
    command: &'static str,
    /// Where its server listens. 18515 is that of perftest and of the pingpongs of ibverbs-utils.
    port: u16,
}

pub const BENCH: Meeting = Meeting {
    command: "bench",
    port: 18516,
};
pub const STUDY: Meeting = Meeting {
    command: "study",
    port: 18518,
};
pub const VERIFY: Meeting = Meeting {
    command: "verify",
    port: 18517,
};

/// A server that is being started on the other host may take its time.
const CALL: Duration = Duration::from_secs(10);

impl Meeting {
    /// Waits for one client, at `addr` or at all addresses of this host.
    pub fn wait(self, addr: Option<&str>) -> Result<TcpStream> {
        let (shown, addresses) = match addr {
            Some(addr) => (addr.to_owned(), self.own(addr)?),
            None => (format!("TCP port {}", self.port), any(self.port).into()),
        };
        let listener = bind(&addresses).map_err(|error| {
            Failure::from(error)
                .during(&format!("listening on {shown}"))
                .next("an address of this host, and a port that is free: --server ADDRESS:PORT")
        })?;
        let local = listener.local_addr()?;
        crate::remark!(
            "rnic: waiting for a client on {local}; there: rnic {} --connect {}",
            self.command,
            self.callable(local)
        );
        let (stream, client) = listener.accept()?;
        crate::remark!("rnic: connected with {client}");
        Ok(stream)
    }

    /// Calls the server at HOST or HOST:PORT.
    pub fn call(self, host: &str) -> Result<TcpStream> {
        let known = self.known(host)?;
        let port = known.first().map_or(self.port, SocketAddr::port);
        // It is there already, as a rule; who has to wait is told for what.
        exchange::call(&known[..], Duration::ZERO)
            .or_else(|_| {
                crate::remark!("rnic: waiting for a server at {host}, TCP port {port}");
                exchange::call(&known[..], CALL)
            })
            .map_err(|error| {
                Failure::new(format!("no server at {host}: {error}"))
                    .cause(format!(
                        "nobody listens there, or a firewall drops TCP port {port}"
                    ))
                    .next(format!(
                        "start one: `rnic {} --server`, there",
                        self.command
                    ))
            })
    }

    /// What a client calls, of whatever kind the address is.
    fn callable(self, local: SocketAddr) -> String {
        if !local.ip().is_unspecified() {
            return local.to_string();
        }
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        match (name.trim(), local.port()) {
            ("", port) => format!("ADDRESS:{port}, with an address of this host"),
            (name, port) if port == self.port => name.to_owned(),
            (name, port) => format!("{name}:{port}"),
        }
    }

    fn known(self, host: &str) -> Result<Vec<SocketAddr>> {
        self.addresses(host).map_err(|error| {
            Failure::new(format!("{host} is no address"))
                .cause(error.to_string())
                .next("HOST or HOST:PORT, as the server says")
        })
    }

    /// Where a server listens: a port alone stands for all addresses of this host.
    fn own(self, addr: &str) -> Result<Vec<SocketAddr>> {
        match addr.parse() {
            Ok(port) => Ok(any(port).into()),
            Err(_) => self.addresses(addr).map_err(|error| {
                Failure::new(format!("{addr} is no address"))
                    .cause(error.to_string())
                    .next("--server alone, or with ADDRESS, PORT or ADDRESS:PORT of this host")
            }),
        }
    }

    /// The addresses that HOST or HOST:PORT stands for.
    fn addresses(self, host: &str) -> std::io::Result<Vec<SocketAddr>> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        // An address of IPv6 has colons of its own.
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Ok(vec![(ip, self.port).into()]);
        }
        let known = host.to_socket_addrs();
        Ok(known
            .or_else(|_| (bare, self.port).to_socket_addrs())?
            .collect())
    }
}

/// All addresses of this host; the second where there is no IPv6.
fn any(port: u16) -> [SocketAddr; 2] {
    [
        ([0u16; 8], port).into(), // [::]
        ([0u8; 4], port).into(),  // 0.0.0.0
    ]
}

/// The first that can be had, or why the first cannot.
fn bind(addresses: &[SocketAddr]) -> std::io::Result<TcpListener> {
    let mut bound = addresses.iter().map(TcpListener::bind);
    let first = bound
        .next()
        .unwrap_or_else(|| Err(std::io::ErrorKind::AddrNotAvailable.into()));
    first.or_else(|error| bound.find_map(|next| next.ok()).ok_or(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        let one = |host: &str| BENCH.addresses(host).expect(host)[0].to_string();
        assert_eq!(one("127.0.0.1"), "127.0.0.1:18516");
        assert_eq!(one("127.0.0.1:7"), "127.0.0.1:7");
        // Its last group is no port.
        assert_eq!(one("fd00::1:2"), "[fd00::1:2]:18516");
        assert_eq!(one("[fd00::1]"), "[fd00::1]:18516");
        assert_eq!(one("[fd00::1]:2"), "[fd00::1]:2");
        assert!(BENCH.addresses("").is_err());
        let verify = VERIFY.addresses("localhost").expect("in /etc/hosts");
        assert!(verify.iter().all(|addr| addr.port() == 18517));
    }

    #[test]
    fn ports_are_documented() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/running.md");
        let document = std::fs::read_to_string(file).expect("docs/running.md");
        for Meeting { command, port } in [BENCH, STUDY, VERIFY] {
            let row = format!("| TCP {port} | `rnic {command}` |");
            assert!(document.contains(&row), "no {row}");
            let row = format!("  TCP {port}            rnic {command}");
            assert!(crate::PORTS.contains(&row), "no {row}");
        }
    }

    #[test]
    fn where_a_server_listens_and_what_a_client_is_told() {
        let one = |addr: &str| BENCH.own(addr).expect(addr)[0].to_string();
        assert_eq!(one("7000"), "[::]:7000");
        assert_eq!(one("127.0.0.1"), "127.0.0.1:18516");
        assert_eq!(one("0.0.0.0:7"), "0.0.0.0:7");
        let text = BENCH.own("a:b:c").unwrap_err().to_string();
        assert!(text.contains("ADDRESS:PORT"), "{text}");
        assert_eq!(
            BENCH.callable("10.0.0.1:18516".parse().unwrap()),
            "10.0.0.1:18516"
        );
        assert!(!BENCH.callable(any(18516)[0]).contains("::"));
        assert!(BENCH.callable(any(7)[0]).contains(":7"));
    }
}
