//! One AF_XDP socket: frames in memory that the kernel shares, and rings that say which of them
//! hold what.
//!
//! Four rings (Documentation/networking/af_xdp.rst): *fill*, frames for the kernel to receive into;
//! *received*; *to send*; *sent*, frames that are free again. Each side counts what it put in or
//! took out; the counts are all that is shared of a ring's state.
//!
//! Where the card's driver can, the card reads and writes the frames by itself (*zero copy*); else
//! the kernel copies each packet. With zero copy a driver goes through the rings as the card has
//! room and packets come, and says by a flag whether it has to be woken for what was put in. To
//! send, one call then is enough for all that is in the ring.

use std::io;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use rnic_sys::segment::Segment;
use rnic_sys::{self as sys, Fd, RingOffsets};

/// Bytes of a frame: a page, the most that there is.
pub(super) const FRAME: usize = 4096;
/// The kernel leaves so many bytes in front of what it receives.
pub(super) const HEADROOM: usize = 256;
/// Frames to send.
const TO_SEND: u32 = 1024;
/// A queue that its last user has just left is given back a moment later.
const PATIENCE: Duration = Duration::from_secs(2);
/// struct xdp_desc: a frame's address, its length, options.
const DESCRIPTOR: usize = 16;
/// The fill ring and that of what was sent have addresses only.
const ADDRESS: usize = 8;

/// A ring, as its user sees it.
#[derive(Debug)]
struct Ring {
    memory: Segment,
    at: RingOffsets,
    /// Entries, a power of two.
    size: u32,
    entry: usize,
    /// This side's count.
    count: u32,
}

impl Ring {
    fn map(
        socket: &Fd,
        offset: usize,
        at: RingOffsets,
        size: u32,
        entry: usize,
    ) -> io::Result<Ring> {
        let len = at.entries + size as usize * entry;
        Ok(Ring {
            memory: Segment::map(socket, offset, len)?,
            at,
            size,
            entry,
            count: 0,
        })
    }

    fn place(&self, count: u32) -> usize {
        self.at.entries + (count & (self.size - 1)) as usize * self.entry
    }

    /// What the kernel put in and was not taken yet. Never more than there is room for, whatever
    /// the kernel says.
    #[inline]
    fn filled(&self) -> u32 {
        let producer = self.memory.flag(self.at.producer).load(Ordering::Acquire);
        producer.wrapping_sub(self.count).min(self.size)
    }

    /// What the kernel did not take yet of what was put in.
    #[inline]
    fn untaken(&self) -> u32 {
        let consumer = self.memory.flag(self.at.consumer).load(Ordering::Acquire);
        self.count.wrapping_sub(consumer)
    }

    /// The kernel has to be woken to look at what was put in.
    #[inline]
    fn needs_wakeup(&self) -> bool {
        let flags = self.memory.flag(self.at.flags).load(Ordering::Relaxed);
        flags & sys::RING_NEEDS_WAKEUP != 0
    }

    /// Tells the kernel how much was taken.
    fn took(&self) {
        let consumer = self.memory.flag(self.at.consumer);
        consumer.store(self.count, Ordering::Release);
    }

    /// Tells the kernel how much was put in.
    fn put(&self) {
        let producer = self.memory.flag(self.at.producer);
        producer.store(self.count, Ordering::Release);
    }
}

/// A frame that was received: where, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    at: usize,
    pub(super) len: usize,
}

/// The socket of one queue of an interface.
#[derive(Debug)]
pub(super) struct Socket {
    // Closed before its memory goes.
    fd: Fd,
    received: Ring,
    fill: Ring,
    to_send: Ring,
    sent: Ring,
    /// Of the kernel's to receive into, and behind them those to send.
    frames: Segment,
    /// Frames to send that hold nothing.
    free: Vec<usize>,
    /// The card reads and writes the frames.
    zero_copy: bool,
}

impl Socket {
    /// Opens one with so many frames to receive into, a power of two; with `zero_copy` if the
    /// driver can.
    ///
    /// # Errors
    /// EPERM: it takes CAP_NET_RAW; EBUSY: another socket has the queue.
    pub(super) fn open(
        ifindex: u32,
        queue: u32,
        to_receive: u32,
        zero_copy: bool,
    ) -> io::Result<Socket> {
        let fd = sys::socket(libc::AF_XDP, libc::SOCK_RAW)?;
        let len = (to_receive + TO_SEND) as usize * FRAME;
        let frames = Segment::create(len, len)?.0;
        frames.lend_to(&fd, FRAME as u32)?;
        for (option, size) in [
            (libc::XDP_UMEM_FILL_RING, to_receive),
            (libc::XDP_UMEM_COMPLETION_RING, TO_SEND),
            (libc::XDP_RX_RING, to_receive),
            (libc::XDP_TX_RING, TO_SEND),
        ] {
            sys::set_option(&fd, libc::SOL_XDP, option, size as i32)?;
        }
        let [received, to_send, fill, sent] = sys::xdp_ring_offsets(&fd)?;
        let map = |offset: u64, at, size, entry| Ring::map(&fd, offset as usize, at, size, entry);
        let received = map(
            libc::XDP_PGOFF_RX_RING as u64,
            received,
            to_receive,
            DESCRIPTOR,
        )?;
        let to_send = map(libc::XDP_PGOFF_TX_RING as u64, to_send, TO_SEND, DESCRIPTOR)?;
        let fill = map(libc::XDP_UMEM_PGOFF_FILL_RING, fill, to_receive, ADDRESS)?;
        let sent = map(libc::XDP_UMEM_PGOFF_COMPLETION_RING, sent, TO_SEND, ADDRESS)?;
        let mut socket = Socket {
            received,
            fill,
            to_send,
            sent,
            frames,
            free: (to_receive..to_receive + TO_SEND)
                .map(|frame| frame as usize * FRAME)
                .collect(),
            zero_copy: false,
            fd,
        };
        for frame in 0..to_receive {
            socket.give_back(frame as usize * FRAME);
        }
        socket.fill.put();
        let until = Instant::now() + PATIENCE;
        loop {
            match sys::bind_xdp(&socket.fd, ifindex, queue, zero_copy) {
                Err(error)
                    if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until =>
                {
                    std::thread::sleep(Duration::from_millis(1));
                }
                result => break result?,
            }
        }
        socket.zero_copy = zero_copy && sys::is_zero_copy(&socket.fd).unwrap_or(false);
        Ok(socket)
    }

    /// The card reads and writes the frames by itself.
    pub(super) fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// An address of the kernel's in the frames, which is so whatever it says.
    #[inline]
    fn inside(&self, address: u64) -> usize {
        (address as usize).min(self.frames.len() - 1)
    }

    pub(super) fn fd(&self) -> &Fd {
        &self.fd
    }

    /// Packets that it had no room for.
    pub(super) fn overrun(&self) -> u64 {
        sys::xdp_overrun(&self.fd).unwrap_or(0)
    }

    /// Nothing was received.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.received.filled() == 0
    }

    /// The frame received next, which stays what it is until [`Socket::took`].
    #[inline]
    pub(super) fn next(&mut self) -> Option<Frame> {
        if self.is_empty() {
            return None;
        }
        let mut descriptor = [0; DESCRIPTOR];
        let place = self.received.place(self.received.count);
        self.received.memory.read(place, &mut descriptor);
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, ..] = descriptor;
        let at = self.inside(u64::from_ne_bytes([a0, a1, a2, a3, a4, a5, a6, a7]));
        let len = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        Some(Frame {
            at,
            len: len.min(FRAME - at % FRAME),
        })
    }

    /// Bytes of a received frame from `from` on.
    #[inline]
    pub(super) fn read(&self, frame: Frame, from: usize, to: &mut [u8]) {
        self.frames.read(frame.at + from, to);
    }

    /// The frame that [`Socket::next`] gave may be received into again.
    #[inline]
    pub(super) fn took(&mut self, frame: Frame) {
        self.received.count = self.received.count.wrapping_add(1);
        self.give_back(frame.at - frame.at % FRAME);
    }

    /// Tells the kernel of all that was taken.
    #[inline]
    pub(super) fn took_all(&self) {
        self.received.took();
        self.fill.put();
        self.refill();
    }

    /// Wakes a driver that ran out of frames. While the card has some left it takes more at the
    /// next packet by itself, so it is only woken where there may be no next one. It says so after
    /// it looked for the last time, so a thread that took all before that looks again when nothing
    /// came.
    #[inline]
    pub(super) fn refill(&self) {
        if !self.zero_copy {
            return;
        }
        // Between what was put in and the flag, as in `wake`.
        fence(Ordering::SeqCst);
        if self.fill.needs_wakeup() && self.fill.untaken() >= self.fill.size / 2 {
            sys::refill_xdp(&self.fd);
        }
    }

    fn give_back(&mut self, at: usize) {
        let place = self.fill.place(self.fill.count);
        self.fill.memory.write(place, &(at as u64).to_ne_bytes());
        self.fill.count = self.fill.count.wrapping_add(1);
    }

    /// So many frames to send are free.
    #[inline]
    pub(super) fn has_room(&mut self, frames: usize) -> bool {
        if self.free.len() < frames {
            self.reap();
        }
        self.free.len() >= frames
    }

    /// Has a frame sent at the next [`Socket::kick`], if one [is free](Socket::has_room).
    #[inline]
    pub(super) fn send(&mut self, headers: &[u8], payload: &[u8]) {
        let Some(at) = self.free.pop() else {
            return;
        };
        self.frames.write(at, headers);
        self.frames.write(at + headers.len(), payload);
        let mut descriptor = [0; DESCRIPTOR];
        descriptor[..8].copy_from_slice(&(at as u64).to_ne_bytes());
        let len = (headers.len() + payload.len()) as u32;
        descriptor[8..12].copy_from_slice(&len.to_ne_bytes());
        let place = self.to_send.place(self.to_send.count);
        self.to_send.memory.write(place, &descriptor);
        self.to_send.count = self.to_send.count.wrapping_add(1);
    }

    /// The card's driver has all that was put in; with `too` the card is through with it, too.
    pub(super) fn is_done(&mut self, too: bool) -> bool {
        if self.to_send.untaken() != 0 {
            return false;
        }
        if too && self.free.len() < TO_SEND as usize {
            self.reap();
        }
        !too || self.free.len() == TO_SEND as usize
    }

    /// Frames that were sent are free again.
    fn reap(&mut self) {
        for _ in 0..self.sent.filled() {
            let mut address = [0; ADDRESS];
            let place = self.sent.place(self.sent.count);
            self.sent.memory.read(place, &mut address);
            let at = self.inside(u64::from_ne_bytes(address));
            self.free.push(at - at % FRAME);
            self.sent.count = self.sent.count.wrapping_add(1);
        }
        self.sent.took();
    }

    /// Has the kernel send what was not sent yet. Gives the system calls that took, and whether all
    /// is sent, or the driver was woken for it.
    ///
    /// # Errors
    /// The interface is down or gone.
    pub(super) fn kick(&mut self) -> io::Result<(u64, bool)> {
        self.to_send.put();
        if self.zero_copy {
            return self.wake();
        }
        let mut calls = 0;
        loop {
            let before = self.to_send.untaken();
            if before == 0 {
                break;
            }
            calls += 1;
            match sys::kick_xdp(&self.fd) {
                Ok(()) => {}
                Err(e) if is_full(&e) => {}
                Err(e) => return Err(e),
            }
            if self.to_send.untaken() == before {
                return Ok((calls, false));
            }
        }
        self.reap();
        Ok((calls, true))
    }

    /// Has the driver go through the ring, unless it is at it. It goes on by itself as the card has
    /// room.
    fn wake(&mut self) -> io::Result<(u64, bool)> {
        if self.to_send.untaken() == 0 {
            return Ok((0, true));
        }
        // Between what was put in and the flag: a side that goes to sleep sets the flag and looks
        // at the ring once more.
        fence(Ordering::SeqCst);
        if !self.to_send.needs_wakeup() {
            return Ok((0, false));
        }
        let woken = match sys::kick_xdp(&self.fd) {
            Ok(()) => true,
            Err(e) if is_full(&e) => false,
            Err(e) => return Err(e),
        };
        self.reap();
        Ok((1, woken))
    }
}

/// The kernel takes so many at a time, or the card is full.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS)
    )
}
