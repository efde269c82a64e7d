//! eBPF maps and programs (bpf(2)), and AF_XDP sockets (Documentation/networking/af_xdp.rst of the
//! kernel).

use std::io;
use std::os::fd::RawFd;

use rustix::event::PollFlags;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XdpOptionsFlags, XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{self, SendFlags, sockopt};

use crate::Fd;
use crate::raw::raw;

// linux/bpf.h
const BPF_MAP_CREATE: i32 = 0;
const BPF_MAP_UPDATE_ELEM: i32 = 2;
const BPF_MAP_DELETE_ELEM: i32 = 3;
const BPF_PROG_LOAD: i32 = 5;
const BPF_LINK_CREATE: i32 = 28;
const BPF_XDP: u32 = 37;
const BPF_F_MMAPABLE: u32 = 1 << 10;

/// `union bpf_attr`, as far as it is used here: zero where nothing is written.
#[repr(C, align(8))]
struct Attr([u8; 128]);

impl Attr {
    fn new() -> Attr {
        Attr([0; 128])
    }

    fn word(mut self, at: usize, value: u32) -> Attr {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn pointer<T>(mut self, at: usize, value: *const T) -> Attr {
        self.0[at..at + 8].copy_from_slice(&(value as usize as u64).to_ne_bytes());
        self
    }

    /// # Safety
    /// What it points to is as long as the kernel takes it to be, and lives through the call, which
    /// only reads it.
    unsafe fn call(&self, command: i32) -> io::Result<usize> {
        // SAFETY: the attributes are borrowed, and the caller vouches for what they point to.
        unsafe { raw!(libc::SYS_bpf, command, self.0.as_ptr(), self.0.len()) }
    }
}

/// What a map is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// By a hash of the key.
    Hash = 1,
    /// By index, a u32. All elements are there from the beginning, zero.
    Array = 2,
    /// AF_XDP sockets by index, a u32.
    Sockets = 17,
}

/// A table that a program in the kernel looks things up in.
#[derive(Debug)]
pub struct BpfMap {
    fd: Fd,
    key: usize,
}

impl BpfMap {
    /// An empty one, with keys of `key` bytes; values are a u32 each.
    pub fn new(kind: MapKind, key: usize, entries: u32) -> io::Result<BpfMap> {
        BpfMap::create(kind, key, 4, entries, 0)
    }

    /// One element of four u32, zero, that can be mapped: memory that a program and this process
    /// share.
    ///
    /// # Errors
    /// EINVAL before Linux 5.5.
    pub fn shared() -> io::Result<BpfMap> {
        BpfMap::create(MapKind::Array, 4, 16, 1, BPF_F_MMAPABLE)
    }

    fn create(
        kind: MapKind,
        key: usize,
        value: u32,
        entries: u32,
        flags: u32,
    ) -> io::Result<BpfMap> {
        let attr = Attr::new()
            .word(0, kind as u32)
            .word(4, key as u32)
            .word(8, value)
            .word(12, entries)
            .word(16, flags);
        // SAFETY: these attributes have no pointers, and the call makes a descriptor.
        let fd = unsafe { Fd::from_number(attr.call(BPF_MAP_CREATE)?) };
        Ok(BpfMap { fd, key })
    }

    /// What [`BpfMap::shared`] is mapped by.
    pub fn fd(&self) -> &Fd {
        &self.fd
    }

    /// The number by which a program names it.
    pub fn raw(&self) -> RawFd {
        self.fd.raw()
    }

    /// Sets the value of a key.
    pub fn set(&self, key: &[u8], value: u32) -> io::Result<()> {
        let attr = self.about(key)?.pointer(16, &raw const value);
        // SAFETY: the key has the map's length, the value is a u32, and both outlive the call.
        unsafe { attr.call(BPF_MAP_UPDATE_ELEM)? };
        Ok(())
    }

    /// Takes a key out. What the call does not use has to be zero.
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        let attr = self.about(key)?;
        // SAFETY: the key has the map's length, and outlives the call.
        unsafe { attr.call(BPF_MAP_DELETE_ELEM)? };
        Ok(())
    }

    fn about(&self, key: &[u8]) -> io::Result<Attr> {
        if key.len() != self.key {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let attr = Attr::new().word(0, self.fd.raw() as u32);
        Ok(attr.pointer(8, key.as_ptr()))
    }
}

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ProgramKind {
    /// Packets that leave, or arrive, as traffic control (tc(8)) has them.
    TrafficControl = 3,
    /// Frames that arrive, before anything is made of them.
    Xdp = 6,
}

/// Has the kernel verify a program and keep it. Each instruction is 8 bytes, as linux/bpf.h has
/// them.
pub fn load_program(kind: ProgramKind, program: &[u64]) -> io::Result<Fd> {
    let attr = Attr::new()
        .word(0, kind as u32)
        .word(4, program.len() as u32)
        .pointer(8, program.as_ptr())
        .pointer(16, c"Dual MIT/GPL".as_ptr());
    // SAFETY: so many instructions of 8 bytes, and a terminated string; both outlive the call,
    // which makes a descriptor.
    Ok(unsafe { Fd::from_number(attr.call(BPF_PROG_LOAD)?) })
}

/// Where in the kernel a program sees packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the network card's driver, before anything is made of a packet.
    Driver,
    /// Behind it, in any network card's way.
    Generic,
}

/// Puts a program in front of an interface. It is there as long as the descriptor is open. EBUSY:
/// another one is.
pub fn attach_xdp(program: &Fd, ifindex: u32, mode: XdpMode) -> io::Result<Fd> {
    // XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE
    let flags = match mode {
        XdpMode::Driver => 4,
        XdpMode::Generic => 2,
    };
    let attr = Attr::new()
        .word(0, program.raw() as u32)
        .word(4, ifindex)
        .word(8, BPF_XDP)
        .word(12, flags);
    // SAFETY: these attributes have no pointers, and the call makes a descriptor.
    Ok(unsafe { Fd::from_number(attr.call(BPF_LINK_CREATE)?) })
}

/// What a program says to a packet that it is given (BPF_PROG_TEST_RUN).
pub fn try_program(program: &Fd, packet: &[u8]) -> io::Result<u32> {
    const BPF_PROG_TEST_RUN: i32 = 10;
    let mut out = vec![0u8; packet.len()];
    let mut attr = Attr::new()
        .word(0, program.raw() as u32)
        .word(8, packet.len() as u32)
        .word(12, out.len() as u32)
        .pointer(16, packet.as_ptr())
        .pointer(24, out.as_mut_ptr());
    let (call, attributes) = (libc::SYS_bpf, attr.0.as_mut_ptr());
    // SAFETY: both buffers have the lengths given and outlive the call; it writes the second and
    // the local attributes.
    unsafe { raw!(call, BPF_PROG_TEST_RUN, attributes, attr.0.len()) }?;
    let said = attr.0[4..].first_chunk();
    Ok(said.map_or(0, |said| u32::from_ne_bytes(*said)))
}

/// Where in a mapping of a ring its parts are.
#[derive(Clone, Copy, Debug)]
pub struct RingOffsets {
    /// The producer's count, a u32.
    pub producer: usize,
    /// The consumer's.
    pub consumer: usize,
    /// What the kernel says of it, a u32.
    pub flags: usize,
    /// The entries.
    pub entries: usize,
}

/// A flag of a ring that the program fills: the kernel does not look at it by itself, and has to be
/// [asked to](kick_xdp).
pub const RING_NEEDS_WAKEUP: u32 = libc::XDP_RING_NEED_WAKEUP;

impl From<XdpRingOffset> for RingOffsets {
    fn from(ring: XdpRingOffset) -> RingOffsets {
        RingOffsets {
            producer: ring.producer as usize,
            consumer: ring.consumer as usize,
            // Before Linux 5.4 rings have none.
            flags: ring.flags.unwrap_or(0) as usize,
            entries: ring.desc as usize,
        }
    }
}

/// Those of all four rings: received, to send, to be filled, sent.
pub fn xdp_ring_offsets(socket: &Fd) -> io::Result<[RingOffsets; 4]> {
    let offsets = sockopt::xdp_mmap_offsets(socket)?;
    Ok([offsets.rx, offsets.tx, offsets.fr, offsets.cr].map(RingOffsets::from))
}

/// Gives an AF_XDP socket the memory that its frames are in.
///
/// # Safety
/// `base` is the start of a shared mapping of `len` bytes that nobody takes for anything but bytes
/// that change at any time, as long as the socket is open.
pub unsafe fn register_frames(
    socket: &Fd,
    base: *mut u8,
    len: usize,
    frame: u32,
) -> io::Result<()> {
    let request = XdpUmemReg {
        addr: base.expose_provenance() as u64,
        len: len as u64,
        chunk_size: frame,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    Ok(sockopt::set_xdp_umem_reg(socket, request)?)
}

/// Binds an AF_XDP socket to a queue of an interface. `zero_copy`: the card may read and write the
/// frames by itself, if its driver can; else the kernel copies each packet, for which any driver
/// will do. EBUSY: another socket has the queue, or had it a moment ago.
pub fn bind_xdp(socket: &Fd, ifindex: u32, queue: u32, zero_copy: bool) -> io::Result<()> {
    // With neither XDP_COPY nor XDP_ZEROCOPY the kernel tries the one and falls back to the other.
    let flags = match zero_copy {
        true => SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP,
        false => SocketAddrXdpFlags::XDP_COPY,
    };
    Ok(net::bind(
        socket,
        &SocketAddrXdp::new(flags, ifindex, queue),
    )?)
}

/// Whether the card reads and writes the frames of a bound AF_XDP socket by itself.
pub fn is_zero_copy(socket: &Fd) -> io::Result<bool> {
    let options = sockopt::xdp_options(socket)?;
    Ok(options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
}

/// Packets for which an AF_XDP socket had no frame, or no room in its ring.
pub fn xdp_overrun(socket: &Fd) -> io::Result<u64> {
    let statistics = sockopt::xdp_statistics(socket)?;
    Ok(statistics.rx_dropped + statistics.rx_ring_full.unwrap_or(0))
}

/// Has a driver that receives into an AF_XDP socket's frames by itself look at the fill ring: to
/// ask for events does (to receive would too, since Linux 5.11).
pub fn refill_xdp(socket: &Fd) {
    crate::poll_one(socket, PollFlags::IN, 0);
}

/// Has the kernel send what is in the ring of an AF_XDP socket, some of it. EAGAIN: not all.
pub fn kick_xdp(socket: &Fd) -> io::Result<()> {
    net::send(socket, &[], SendFlags::DONTWAIT)?;
    Ok(())
}
