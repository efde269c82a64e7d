//! The TCP connection by which two hosts tell each other what RDMA needs to begin.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rnic::{Context, GidEntry};

/// Of a call: the time that an address has when there is none left.
const SHORTEST: Duration = Duration::from_millis(100);

/// Calls these addresses, one after the other and again, until one answers or the time is over: a server that has just been
/// started may not listen yet.
pub fn call(known: &[SocketAddr], time: Duration) -> io::Result<TcpStream> {
    let deadline = Instant::now() + time;
    loop {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for addr in known {
            let left = deadline.saturating_duration_since(Instant::now());
            match TcpStream::connect_timeout(addr, left.max(SHORTEST)) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        if Instant::now() >= deadline {
            return Err(last);
        }
        std::thread::sleep(SHORTEST);
    }
}

/// The GID of the address that the TCP connection uses, which the peer can reach, if the device has it.
pub fn same_way(addr: IpAddr) -> impl FnOnce(&Context) -> rnic::Result<GidEntry> {
    move |context| {
        let known = context.gid_for(addr.to_canonical());
        known.or_else(|_| context.routable_gid(1))
    }
}
