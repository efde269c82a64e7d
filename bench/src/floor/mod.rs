//! The floors: what the machine does with the same bytes and no protocol at all.
//!
//! Each is a program of two processes, which the harness starts, pins and connects by a socket that
//! is their standard input. The leading one prints the figure.

mod channel;
mod copies;
mod ring;
mod shared;
mod stream;
mod wake;

use std::net::IpAddr;
use std::time::Duration;

use crate::Result;
use channel::Channel;

/// Bytes that RoCEv2 adds to the payload of a packet in the middle of a message: BTH and ICRC.
pub const OVERHEAD: usize = 12 + 4;
/// UDP payload of a SEND of ten bytes: BTH, data padded to four, ICRC.
pub const DATAGRAM: usize = OVERHEAD + 12;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Datagrams there and back, both sides polling; half a round trip.
    UdpPingPong,
    /// The same, both sides asleep in recvfrom(2).
    UdpWake,
    /// Two eventfds, both sides asleep in read(2).
    EventfdWake,
    /// Slots of a shared-memory ring there and back; half a round trip.
    RingPingPong,
    /// Messages of so many bytes through the ring, one way; per second.
    RingRate(usize),
    /// Segments with so many bytes of payload: GSO, GRO, a CRC on both sides, one copy; payload per
    /// second.
    Stream(usize),
    /// The same; segments per second.
    StreamRate(usize),
    /// process_vm_writev(2) by the sender, 1 MiB a call.
    VmWrite,
    /// process_vm_writev(2) by the sender, 64 KiB a call, to and from so many buffers in turn.
    VmWriteTo(usize),
    /// process_vm_readv(2) by the receiver, which is told by a ring.
    VmRead,
    /// Through a ring in shared memory: a copy in and a copy out, overlapped.
    DoubleCopy,
    /// memcpy(3) into memory of the peer.
    Memcpy,
}

impl Kind {
    /// On the command line.
    pub fn text(self) -> String {
        match self {
            Kind::UdpPingPong => "udp-ping-pong".into(),
            Kind::UdpWake => "udp-wake".into(),
            Kind::EventfdWake => "eventfd-wake".into(),
            Kind::RingPingPong => "ring-ping-pong".into(),
            Kind::RingRate(size) => format!("ring-rate-{size}"),
            Kind::Stream(mtu) => format!("stream-{mtu}"),
            Kind::StreamRate(size) => format!("stream-rate-{size}"),
            Kind::VmWrite => "vm-write".into(),
            Kind::VmWriteTo(buffers) => format!("vm-write-{buffers}"),
            Kind::VmRead => "vm-read".into(),
            Kind::DoubleCopy => "double-copy".into(),
            Kind::Memcpy => "memcpy".into(),
        }
    }

    pub fn parse(text: &str) -> Option<Kind> {
        let plain = [
            Kind::UdpPingPong,
            Kind::UdpWake,
            Kind::EventfdWake,
            Kind::RingPingPong,
            Kind::VmWrite,
            Kind::VmRead,
            Kind::DoubleCopy,
            Kind::Memcpy,
        ];
        let (name, number) = text.rsplit_once('-').unwrap_or((text, ""));
        let number = number.parse().ok().filter(|n| (1..=8192).contains(n));
        plain
            .into_iter()
            .find(|kind| kind.text() == text)
            .or(match (name, number) {
                ("vm-write", Some(n)) => Some(Kind::VmWriteTo(n)),
                ("ring-rate", Some(n)) => Some(Kind::RingRate(n)),
                ("stream", Some(n)) => Some(Kind::Stream(n)),
                ("stream-rate", Some(n)) => Some(Kind::StreamRate(n)),
                _ => None,
            })
    }

    /// What it is, for people.
    pub fn describe(self) -> String {
        match self {
            Kind::UdpPingPong => format!("bare UDP ping-pong, {DATAGRAM} B datagrams, polling"),
            Kind::UdpWake => format!("bare UDP ping-pong, {DATAGRAM} B, asleep in recvfrom"),
            Kind::EventfdWake => "bare eventfd ping-pong, asleep in read".into(),
            Kind::RingPingPong => "bare shared-memory ring".into(),
            Kind::RingRate(size) => format!("bare shared-memory ring, {size} B"),
            Kind::Stream(mtu) => format!("bare GSO/GRO stream, {mtu} B payload, CRC, copy"),
            Kind::StreamRate(size) => format!("bare GSO/GRO stream, {size} B payload, CRC, copy"),
            Kind::VmWrite => "process_vm_writev, bare".into(),
            Kind::VmWriteTo(buffers) => {
                format!("process_vm_writev, 64 KiB, {buffers} buffers in turn")
            }
            Kind::VmRead => "process_vm_readv by the receiver".into(),
            Kind::DoubleCopy => "two copies through a ring, overlapped".into(),
            Kind::Memcpy => "memcpy into the peer's memory".into(),
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct Args {
    kind: String,
    /// Take the times, and print the figure
    #[arg(long)]
    lead: bool,
    /// Measure for so long, milliseconds
    #[arg(long, default_value_t = 500)]
    milliseconds: u64,
    /// Own address
    #[arg(long, default_value = "127.0.0.1")]
    addr: IpAddr,
    /// Processor to run on
    #[arg(long)]
    cpu: Option<usize>,
}

/// One of the two processes.
pub fn main(args: Args) -> Result<()> {
    let kind = Kind::parse(&args.kind).ok_or_else(|| format!("no floor `{}`", args.kind))?;
    if let Some(cpu) = args.cpu {
        rnic_sys::child::pin_thread(cpu)?;
    }
    let channel = Channel::of_stdin()?;
    let time = Duration::from_millis(args.milliseconds);
    let side = Side {
        lead: args.lead,
        time,
        addr: args.addr,
        channel,
    };
    let value = match kind {
        Kind::UdpPingPong => wake::udp(side, false),
        Kind::UdpWake => wake::udp(side, true),
        Kind::EventfdWake => wake::eventfd(side),
        Kind::RingPingPong => ring::ping_pong(side),
        Kind::RingRate(size) => ring::rate(side, size),
        Kind::Stream(mtu) => stream::run(side, mtu),
        Kind::StreamRate(size) => Ok(stream::run(side, size)? * 1e3 / size as f64),
        Kind::VmWrite => copies::vm_write(side, 1 << 20, 1),
        Kind::VmWriteTo(buffers) => copies::vm_write(side, 64 << 10, buffers),
        Kind::VmRead => copies::vm_read(side),
        Kind::DoubleCopy => copies::double_copy(side),
        Kind::Memcpy => copies::memcpy(side),
    }?;
    if args.lead {
        println!("result {value}");
    }
    Ok(())
}

/// What one of the two processes knows.
pub struct Side {
    lead: bool,
    time: Duration,
    addr: IpAddr,
    channel: Channel,
}

/// Figures are microseconds, GB/s and millions per second.
fn micros(nanos: f64) -> f64 {
    nanos / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for kind in [
            Kind::UdpPingPong,
            Kind::UdpWake,
            Kind::EventfdWake,
            Kind::RingPingPong,
            Kind::RingRate(64),
            Kind::Stream(1024),
            Kind::StreamRate(8),
            Kind::VmWrite,
            Kind::VmWriteTo(100),
            Kind::VmRead,
            Kind::DoubleCopy,
            Kind::Memcpy,
        ] {
            assert_eq!(Kind::parse(&kind.text()), Some(kind));
        }
        assert_eq!(Kind::parse("stream-0"), None);
        assert_eq!(Kind::parse("x"), None);
    }
}
