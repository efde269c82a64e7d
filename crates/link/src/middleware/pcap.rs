//! Capture: what was sent and received, as whole IP packets in a pcap file that Wireshark reads.
//!
//! Link type LINUX_SLL (113), whose header says of each packet whether it was sent or received: a
//! packet that both of its ends wrote is told from one that came twice. Nanoseconds, addresses and
//! ports, IDs, TTL and traffic class as on the wire, right checksums. If the kernel does not tell
//! TTL and traffic class of received packets, they are written as the defaults. Records
//! are appended by single `write`s of whole records to a file opened with O_APPEND, so several
//! processes may share one file. A packet between two processes that both capture is in it twice,
//! sent and received. What came to another process and was handed over is in the files of both,
//! once if they share it. Probes ([`rnic_host::steering`]) are no RoCEv2 and are left out.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rnic_wire::ip::IpUdp;
use rnic_wire::{Flow, IcrcOk, ROCE_PORT};

use crate::senders::Senders;
use crate::staging::batch::TxBatch;
use crate::staging::datagram::{Arrival, Link};
use crate::staging::path::{Route, default_hop_limits};
use crate::{LinkCounters, LinkError};
use rnic_host::handover;
use rnic_host::steering::Probe;
use rnic_host::train::{IpMarks, Train};
use rnic_sys::{self as sys, Fd};

const MAGIC_NS: u32 = 0xa1b2_3c4d;
const LINKTYPE_SLL: u32 = 113;
/// Bytes of its header.
const SLL_LEN: usize = 16;
const SNAP_LEN: u32 = 262_144;
const HEADER_LEN: usize = 24;
/// Records are written out when so many bytes of them wait, and at the end of every call.
const WRITE_AT: usize = 256 * 1024;
/// How long a process that opens the file waits for others that do.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

fn file_header() -> [u8; HEADER_LEN] {
    let mut out = [0; HEADER_LEN];
    out[..4].copy_from_slice(&MAGIC_NS.to_ne_bytes());
    out[4..6].copy_from_slice(&2u16.to_ne_bytes());
    out[6..8].copy_from_slice(&4u16.to_ne_bytes());
    out[16..20].copy_from_slice(&SNAP_LEN.to_ne_bytes());
    out[20..24].copy_from_slice(&LINKTYPE_SLL.to_ne_bytes());
    out
}

/// Which way a packet went.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Received = 0,
    Sent = 4,
}

/// Packet type, ARPHRD_NONE, no address, EtherType.
fn sll_header(way: Way, ipv6: bool) -> [u8; SLL_LEN] {
    let mut out = [0; SLL_LEN];
    out[1] = way as u8;
    out[2..4].copy_from_slice(&[0xff, 0xfe]);
    out[14..].copy_from_slice(if ipv6 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
    out
}

/// A capture file.
#[derive(Debug)]
pub struct Capture {
    file: Fd,
    number: u16,
    pending: Vec<u8>,
    default_ttl: [u8; 2],
    failed: bool,
}

impl Capture {
    /// Opens `path` to append to it; the first of all processes writes the header. An error if the
    /// file is there and is no capture of this kind.
    pub fn open(path: &Path) -> Result<Capture, LinkError> {
        Capture::open_file(path, LOCK_PATIENCE).map_err(LinkError::io("open the capture file"))
    }

    fn open_file(path: &Path, patience: Duration) -> io::Result<Capture> {
        let name =
            CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let file =
            sys::open_at_following(&name, libc::O_RDWR | libc::O_CREAT | libc::O_APPEND, 0o644)?;
        // Held for two calls by each process that opens it.
        let start = Instant::now();
        while !sys::try_lock_file(&file)? {
            if start.elapsed() >= patience {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "a process holds its lock and does not let go (is one of yours stopped?)",
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut header = [0; HEADER_LEN];
        let n = sys::read_at(&file, &mut header, 0);
        let result = match n {
            Ok(0) => write_all(&file, &file_header()),
            Ok(_) if header == file_header() => Ok(()),
            Ok(_) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it exists and is no capture of this program; remove it or choose another name",
            )),
            Err(e) => Err(e),
        };
        sys::unlock_file(&file);
        result?;
        Ok(Capture {
            number: number_of(sys::stat(&file)?.id),
            file,
            pending: Vec::new(),
            default_ttl: default_hop_limits(),
            failed: false,
        })
    }

    /// Processes that have the same file open have the same number, which is not 0; others have
    /// another one, as a rule.
    pub fn number(&self) -> u16 {
        self.number
    }

    fn record(&mut self, way: Way, mut headers: IpUdp, packet: &[u8]) {
        if headers.hop_limit == 0 {
            headers.hop_limit = match headers.flow.dst {
                // Of sockets that were not told another one: ip(7), ipv6(7).
                group if group.is_multicast() => 1,
                ip => self.default_ttl[usize::from(ip.is_ipv6())],
            };
        }
        let mut ip = [0; IpUdp::MAX_LEN];
        let ip_len = headers.emit(packet, &mut ip);
        let link = sll_header(way, headers.flow.dst.is_ipv6());
        let len = (SLL_LEN + ip_len + packet.len()) as u32;
        let now = sys::now_realtime_ns();
        for field in [
            (now / 1_000_000_000) as u32,
            (now % 1_000_000_000) as u32,
            len,
            len,
        ] {
            self.pending.extend_from_slice(&field.to_ne_bytes());
        }
        self.pending.extend_from_slice(&link);
        self.pending.extend_from_slice(&ip[..ip_len]);
        self.pending.extend_from_slice(packet);
        if self.pending.len() >= WRITE_AT {
            self.write_out();
        }
    }

    /// Records a packet sent.
    pub fn sent(&mut self, route: &Route, ip_id: u16, packet: &[u8]) {
        let headers = IpUdp {
            flow: route.flow,
            ip_id: if route.flow.src.is_ipv4() { ip_id } else { 0 },
            dont_fragment: true,
            traffic_class: route.traffic_class,
            hop_limit: route.hop_limit,
        };
        self.record(Way::Sent, headers, packet);
    }

    /// Records a packet received, with what its IPv4 header was found to have had and with the marks
    /// that it came with.
    pub fn received(&mut self, flow: &Flow, header: IcrcOk, marks: Option<IpMarks>, packet: &[u8]) {
        let headers = IpUdp {
            flow: *flow,
            ip_id: if flow.src.is_ipv4() { header.ip_id } else { 0 },
            dont_fragment: header.df,
            traffic_class: marks.map_or(0, |marks| marks.traffic_class),
            hop_limit: marks.map_or(0, |marks| marks.hop_limit),
        };
        self.record(Way::Received, headers, packet);
    }

    /// Writes what waits. A full disk ends the capture, with a word, and nothing else.
    pub fn write_out(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        if !self.failed
            && let Err(e) =
                rnic_sys::signal::without_file_size_signal(|| write_all(&self.file, &self.pending))
        {
            self.failed = true;
            rnic_host::log(format_args!("the capture ends here: {e}"));
        }
        self.pending.clear();
    }
}

fn number_of((device, inode): (u64, u64)) -> u16 {
    let mixed = (device.rotate_left(32) ^ inode).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 48) as u16).max(1)
}

fn write_all(file: &Fd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match sys::write(file, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// A link that is captured.
pub struct Pcap<L> {
    inner: L,
    capture: Capture,
    /// The capture believes what the link would: else a corrupted packet would now and then be in
    /// it as a good one with a strange identification.
    senders: Senders,
    start: Instant,
}

impl<L: Link> Pcap<L> {
    /// Around `inner`.
    pub fn new(inner: L, capture: Capture) -> Pcap<L> {
        Pcap {
            inner,
            capture,
            senders: Senders::default(),
            start: Instant::now(),
        }
    }

    fn received(&mut self, train: &Train, packets: &[u8]) {
        let flow = Flow {
            src: train.src,
            dst: train.dst,
            src_port: train.src_port,
            dst_port: ROCE_PORT,
        };
        let now_ms = self.start.elapsed().as_millis() as u32;
        let mut sender = self.senders.of(&flow);
        for (k, packet) in packets.chunks(train.segment).enumerate() {
            if Probe::decode(packet).is_some() {
                continue;
            }
            let likely = IcrcOk {
                ip_id: k as u16,
                df: true,
            };
            let header = match sender.check(packet, train.ids, k, now_ms) {
                Ok(header) => header,
                // With this one its ICRC is wrong in the capture, too.
                Err(_) => train.ids.of(k).unwrap_or(likely),
            };
            self.capture.received(&flow, header, train.marks, packet);
        }
    }
}

impl<L: Link> Link for Pcap<L> {
    fn max_segments(&self, route: &Route) -> usize {
        self.inner.max_segments(route)
    }

    fn send(&mut self, batch: &mut TxBatch, now_ns: u64, counters: &mut LinkCounters) {
        // Before they are sent: on one host the answer could be in the file first otherwise.
        for run in batch.runs() {
            let Some(route) = &run.route else { continue };
            for (k, packet) in batch.bytes(run).chunks(run.segment).enumerate() {
                self.capture.sent(route, k as u16, packet);
            }
        }
        self.capture.write_out();
        self.inner.send(batch, now_ns, counters);
    }

    fn received_by_xdp(&self) -> u64 {
        self.inner.received_by_xdp()
    }

    fn overrun(&self) -> u64 {
        self.inner.overrun()
    }

    fn has_arrivals(&self) -> bool {
        self.inner.has_arrivals()
    }

    fn has_left(&self) -> bool {
        self.inner.has_left()
    }

    fn is_still(&self) -> bool {
        self.inner.is_still()
    }

    fn receive(&mut self, buffer: &mut [u8], thorough: bool) -> io::Result<Arrival> {
        let arrival = self.inner.receive(buffer, thorough)?;
        if let Arrival::Train(train) = &arrival {
            self.received(train, &buffer[..train.len]);
            self.capture.write_out();
        }
        Ok(arrival)
    }

    fn adopt(&mut self, message: &[u8]) {
        for (train, capture, packets) in handover::records(message) {
            // The process that it came to may share the file, and has put it there.
            if capture != self.capture.number {
                self.received(&train, packets);
            }
        }
        self.capture.write_out();
    }

    fn next_timeout(&self) -> Option<u64> {
        self.inner.next_timeout()
    }
}

#[cfg(test)]
mod tests;
