//! What a queue pair asks of the device around it.

use crate::{Address, BindWindow, Completion, Evidence, Placement, RecvWqe, SendData, Sge};
use rnic_types::QpEvent;
use rnic_wire::PathMtu;

/// A protection domain's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pd(pub u32);

impl Pd {
    /// Numbers of protection domains of this process lie below.
    const REMOTE_SRQ: u32 = 1 << 31;

    /// That of an SRQ which another process owns: its keys are that process's.
    pub const fn of_remote_srq(srqn: u32) -> Pd {
        Pd(Pd::REMOTE_SRQ | srqn)
    }

    /// The SRQ that it is named by, if it is another process's.
    pub const fn remote_srq(self) -> Option<u32> {
        if self.0 & Pd::REMOTE_SRQ == 0 {
            None
        } else {
            Some(self.0 & !Pd::REMOTE_SRQ)
        }
    }
}

/// Rights a remote operation needs of a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemoteAccess {
    /// RDMA READ.
    Read,
    /// RDMA WRITE.
    Write,
    /// Atomics.
    Atomic,
    /// FLUSH to global visibility.
    FlushGlobal,
    /// FLUSH to persistence.
    FlushPersistent,
}

/// An atomic operation on 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Store `swap` if the value equals `compare`.
    CompareSwap {
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Add, wrapping.
    FetchAdd {
        /// Addend.
        add: u64,
    },
}

/// Why a local scatter/gather entry is refused. Each yields status `LocalProtectionError`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LocalFault {
    /// No region has that lkey (never had, or deregistered).
    UnknownKey,
    /// The region belongs to another protection domain.
    OtherPd,
    /// The range leaves the region.
    OutOfRange,
    /// LOCAL_WRITE is missing.
    NoLocalWrite,
    /// The memory behind the region is gone (unmapped without deregistration).
    Unmapped,
}

/// Why a remote operation is refused. Each yields NAK "remote access error".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemoteFault {
    /// No region or window has that rkey.
    UnknownKey,
    /// The region belongs to another protection domain.
    OtherPd,
    /// The range leaves the region.
    OutOfRange,
    /// REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC, FLUSH_GLOBAL or FLUSH_PERSISTENT is missing in the
    /// region.
    NoRight,
    /// The memory behind the region is gone.
    Unmapped,
}

/// Why a bind or local invalidate is refused. Each yields status `MemoryWindowBindError`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BindFault {
    /// No window has that rkey, or it is bound to nothing and there is nothing to invalidate.
    UnknownWindow,
    /// No region has that lkey.
    UnknownRegion,
    /// The window is of another protection domain than the queue pair.
    OtherPd,
    /// The window would leave the region.
    OutOfRange,
    /// The region was registered without MW_BIND.
    NoBindRight,
    /// WRITE or atomics are asked for, and the region lacks LOCAL_WRITE.
    NoLocalWrite,
    /// A type-2 window has to be invalidated before it is bound again.
    AlreadyBound,
    /// The rkey is of a region of `ibv_reg_mr`, which cannot be invalidated.
    InvalidatesRegion,
    /// The window is bound to another queue pair.
    OtherQp,
    /// The region is of another protection domain than the queue pair.
    RegionOfOtherPd,
    /// The window is of type 1, which cannot be invalidated.
    InvalidatesType1,
}

/// Why a detached payload ([`rnic_wire::Payload::Detached`]) did not get where it
/// belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Misplaced<F> {
    /// The memory that it is for is not accessible.
    Refused(F),
    /// Its bytes cannot be had any more: the packet counts as lost. Part of the memory may be
    /// written.
    Lost,
}

impl<F> From<F> for Misplaced<F> {
    fn from(fault: F) -> Misplaced<F> {
        Misplaced::Refused(fault)
    }
}

/// A part of an RDMA WRITE or READ, for [`Device::execute`].
#[derive(Clone, Copy, Debug)]
pub struct OneSided<'a> {
    /// The queue pair's protection domain.
    pub pd: Pd,
    /// The queue pair that it is connected with.
    pub dest_qpn: u32,
    /// Its path MTU: the peer executes only what it would have taken as packets.
    pub mtu: PathMtu,
    /// A WRITE, else a READ.
    pub write: bool,
    /// The peer's key.
    pub rkey: u32,
    /// Where at the peer this part begins.
    pub va: u64,
    /// Where the bytes of the whole operation are here, or go.
    pub data: &'a SendData,
    /// Bytes of them before this part.
    pub offset: u64,
    /// Bytes of this part.
    pub len: u32,
    /// Bytes of the whole operation. It begins `offset` bytes before `va`, and the peer has to
    /// permit all of it.
    pub whole: u32,
    /// The operation ends with it. Programs spin on the end of a WRITE: they may not see it before
    /// the rest.
    pub ends: bool,
}

/// Some bytes of this process's memory (`struct iovec`), for [`PacketSink::point`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoVec {
    /// Address of the first.
    pub at: u64,
    /// Bytes.
    pub len: u64,
}

/// A list of them: where the bytes of a scatter/gather list are, without its keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct IoVecs {
    list: [IoVec; IoVecs::MOST],
    count: usize,
}

impl IoVecs {
    /// Entries at most.
    pub const MOST: usize = 16;

    /// Adds one; false: there is no room.
    pub fn push(&mut self, entry: IoVec) -> bool {
        let Some(place) = self.list.get_mut(self.count) else {
            return false;
        };
        *place = entry;
        self.count += 1;
        true
    }

    /// All of them.
    pub fn as_slice(&self) -> &[IoVec] {
        &self.list[..self.count]
    }
}

/// The device as one queue pair sees it: memory, its receive queue, its completion queues.
///
/// Every method is cheap and none blocks, but a flush to persistence, which may wait for a disk. A
/// region that was checked may be gone at the next call (deregistered between two packets of a
/// message), so each access checks again and may fail.
pub trait Device {
    /// May `pd` use this entry? `write`: the NIC will store into it (receives, READ, atomics).
    fn check_local(&self, pd: Pd, sge: &Sge, write: bool) -> Result<(), LocalFault>;
    /// Copies `out.len()` bytes from `addr` in the region of `lkey`.
    fn read_local(&self, pd: Pd, lkey: u32, addr: u64, out: &mut [u8]) -> Result<(), LocalFault>;
    /// Where `len` bytes of `list`, from byte `offset` on, are, if the peer may copy them from
    /// there. From then on until they are acknowledged the device sees to it that what changes or
    /// goes is not taken for the message: before a work request ends otherwise than by an
    /// acknowledge, and before a region goes. False: they have to be copied here.
    fn locate(
        &mut self,
        _pd: Pd,
        _list: &[Sge],
        _offset: u64,
        _len: u64,
        _iov: &mut IoVecs,
    ) -> bool {
        false
    }
    /// A peer could not copy what [`Device::locate`] said: is the memory behind this entry still
    /// there?
    fn check_presence(&self, _pd: Pd, _sge: &Sge) -> Result<(), LocalFault> {
        Ok(())
    }
    /// Copies `data` to `addr` in the region of `lkey`.
    fn write_local(&mut self, pd: Pd, lkey: u32, addr: u64, data: &[u8]) -> Result<(), LocalFault>;

    /// Copies `len` bytes, from byte `from` of the packet in hand on, to `addr` in the region of
    /// `lkey`: as [`Device::write_local`], of a detached payload. A device whose packets
    /// are all here has no use for it.
    fn place_local(
        &mut self,
        _pd: Pd,
        _lkey: u32,
        _addr: u64,
        _from: usize,
        _len: usize,
    ) -> Result<(), Misplaced<LocalFault>> {
        Err(Misplaced::Lost)
    }
    /// Copies `out.len()` bytes of the packet in hand, from byte `from` on; false: they cannot be
    /// had.
    fn fetch(&self, _from: usize, _out: &mut [u8]) -> bool {
        false
    }

    /// [`Device::execute`] may have a chance.
    fn may_execute(&self) -> bool {
        false
    }
    /// [`Device::execute`] of that part would have a good chance now.
    fn would_execute(&self, _part: &OneSided<'_>) -> bool {
        false
    }
    /// Executes a part of an RDMA WRITE or READ in the peer's memory, which this device reaches by
    /// itself: all of it, under the peer's rules, the last bytes of a WRITE last. False: it does
    /// not, and part of it may be done.
    fn execute(&mut self, _part: &OneSided<'_>) -> bool {
        false
    }
    /// Executes whole operations of one kind, one after the other, of which each is a part. Gives
    /// how many were; the next one was not, and some of it may be done.
    fn execute_row(&mut self, parts: &[OneSided<'_>]) -> usize {
        parts.iter().take_while(|part| self.execute(part)).count()
    }

    /// May a remote operation of this kind touch `len` bytes at `va`? Not asked for `len` 0 READs
    /// and WRITEs.
    fn check_remote(
        &self,
        pd: Pd,
        rkey: u32,
        va: u64,
        len: u64,
        access: RemoteAccess,
    ) -> Result<(), RemoteFault>;
    /// Copies for an RDMA READ; checks as [`Device::check_remote`] does.
    fn read_remote(&self, pd: Pd, rkey: u32, va: u64, out: &mut [u8]) -> Result<(), RemoteFault>;
    /// Copies for an RDMA WRITE; checks as [`Device::check_remote`] does.
    fn write_remote(&mut self, pd: Pd, rkey: u32, va: u64, data: &[u8]) -> Result<(), RemoteFault>;
    /// [`Device::place_local`] for an RDMA WRITE; checks as [`Device::check_remote`] does.
    fn place_remote(
        &mut self,
        _pd: Pd,
        _rkey: u32,
        _va: u64,
        _from: usize,
        _len: usize,
    ) -> Result<(), Misplaced<RemoteFault>> {
        Err(Misplaced::Lost)
    }
    /// Stores the aligned 8 bytes at `va` at once, for an ATOMIC WRITE; checks as for an RDMA
    /// WRITE.
    fn atomic_write(
        &mut self,
        pd: Pd,
        rkey: u32,
        va: u64,
        value: [u8; 8],
    ) -> Result<(), RemoteFault>;
    /// Sees to it that what was written to `range` (address and length), or to all of the region,
    /// is placed so, for a FLUSH; checks the right to each placement as above.
    fn flush(
        &mut self,
        pd: Pd,
        rkey: u32,
        range: Option<(u64, u32)>,
        placement: Placement,
    ) -> Result<(), RemoteFault>;
    /// Executes an atomic on the aligned 8 bytes at `va` and gives the value before; checks as
    /// above.
    fn atomic(&mut self, pd: Pd, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, RemoteFault>;
    /// SEND with invalidate revokes `rkey` (a type-2 window bound to QP `qpn`, or a region that
    /// allows it).
    fn invalidate(&mut self, pd: Pd, qpn: u32, rkey: u32) -> Result<(), RemoteFault>;
    /// Binds a window on behalf of queue pair `qpn`; nothing changes if it is refused.
    fn bind_window(&mut self, pd: Pd, qpn: u32, bind: &BindWindow) -> Result<(), BindFault>;
    /// Revokes `rkey`, a type-2 window that is bound to queue pair `qpn`.
    fn local_invalidate(&mut self, pd: Pd, qpn: u32, rkey: u32) -> Result<(), BindFault>;

    /// The oldest posted receive, from the queue pair's own queue or its SRQ.
    fn take_receive(&mut self) -> Option<RecvWqe>;
    /// The same, left where it lies; `None` as well if it is an SRQ's.
    fn next_receive(&self) -> Option<&RecvWqe> {
        None
    }
    /// The receive taken last was not used: it is the oldest posted one again.
    fn return_receive(&mut self, wqe: RecvWqe);
    /// XRC: receives come from, and complete to, the SRQ of this number until another is selected.
    /// Gives the SRQ's protection domain, in which the request works; `None` if the queue pair's
    /// XRC domain has no such SRQ.
    fn select_srq(&mut self, _srqn: u32) -> Option<Pd> {
        None
    }
    /// XRC: an SRQ that is not here is another process's, of the same XRC domain. Then the request
    /// is not executed: the caller of [`QueuePair::handle_packet`](crate::QueuePair::handle_packet)
    /// keeps the packet, has it executed there ([`Delegate`](crate::Delegate)), and says what
    /// became of it.
    fn is_remote_srq(&mut self, _srqn: u32) -> bool {
        false
    }
    /// XRC: the next `len` of `left` bytes of a READ can be read now. If they are another process's
    /// and have to be fetched first, the responder waits for
    /// [`Rc::memory_came`](crate::Rc::memory_came).
    fn is_at_hand(&mut self, _pd: Pd, _rkey: u32, _va: u64, _len: u32, _left: u32) -> bool {
        true
    }
    /// The protection domain that keys of a receive belong to: the SRQ's, or `own`, the queue
    /// pair's.
    fn receive_pd(&self, own: Pd) -> Pd {
        own
    }
    /// Receives posted now (for the AETH credit count). `None`: an SRQ, which sends no credits.
    fn receives_posted(&self) -> Option<u32>;

    /// A send work request ended.
    fn complete_send(&mut self, completion: Completion);
    /// A receive work request ended.
    fn complete_recv(&mut self, completion: Completion);
    /// Something for the asynchronous event queue.
    fn event(&mut self, event: QpEvent);

    /// Why something is about to fail, for people; may be ignored.
    fn evidence(&mut self, _evidence: &Evidence) {}
}

/// What a packet is to carry, for [`PacketSink::carry`].
#[derive(Clone, Copy, Debug)]
pub enum Load<'a> {
    /// Bytes of a work request's list, from an offset on.
    Local {
        /// The queue pair's protection domain.
        pd: Pd,
        /// The list.
        list: &'a [Sge],
        /// Bytes of it before them.
        offset: u64,
    },
    /// Bytes that an RDMA READ asks for.
    Remote {
        /// The queue pair's protection domain.
        pd: Pd,
        /// The key that the peer names them by.
        rkey: u32,
        /// The address that it does.
        va: u64,
    },
}

/// Where outgoing packets are built: a staging buffer that the link sends.
pub trait PacketSink {
    /// Room for one packet of exactly `len` bytes, from the first byte of the BTH to the last pad
    /// byte, without ICRC. The bytes are uninitialised in meaning: write them all. `None`: the
    /// batch is full, come back later.
    fn packet(&mut self, len: usize) -> Option<&mut [u8]>;
    /// [`PacketSink::packet`] for a datagram, which goes where its work request says.
    fn packet_to(&mut self, to: &Address, len: usize) -> Option<&mut [u8]>;
    /// The most payload bytes that one packet may carry: the path MTU, or more where packets go by
    /// memory. There one packet takes the PSNs of several (see `multi_psn.rs`). The peer must take
    /// it as [`rnic_wire::Payload::Detached`] then.
    fn most_payload(&self, mtu: usize) -> usize {
        mtu
    }
    /// [`PacketSink::packet`] for a multi-PSN packet: bytes of headers, and behind them of
    /// payload and pad. The peer has to learn of what path MTU its PSNs are. `None` as well if the
    /// path does not take such any more.
    fn multi_psn_packet(
        &mut self,
        headers: usize,
        payload: usize,
        _mtu: PathMtu,
    ) -> Option<&mut [u8]> {
        self.packet(headers + payload)
    }
    /// Room for the headers of a multi-PSN packet; its payload, so many bytes, the
    /// sink has copied from memory to where it goes, by the rules that [`Device`] copies by.
    /// `None`: nothing was done; [`PacketSink::multi_psn_packet`] says why, or takes all of it.
    fn carry(
        &mut self,
        _headers: usize,
        _payload: usize,
        _mtu: PathMtu,
        _load: &Load<'_>,
    ) -> Option<&mut [u8]> {
        None
    }
    /// The most payload bytes of a packet that says where they are instead of carrying them (see
    /// `multi_psn.rs`); 0: there is no such packet on this path.
    fn most_pointed(&self) -> usize {
        0
    }
    /// Room for the headers of a packet whose payload the peer copies from `iov`; else as
    /// [`PacketSink::packet`].
    fn point(&mut self, _headers: usize, _mtu: PathMtu, _iov: &[IoVec]) -> Option<&mut [u8]> {
        None
    }
    /// [`PacketSink::packet`] for a row of packets of the same length, at most so many: `build`
    /// gets the room of one after the other, and ends the row with false, which takes that one
    /// back. How many there are; if neither all nor ended, the batch is full.
    fn row(&mut self, len: usize, most: usize, mut build: impl FnMut(&mut [u8]) -> bool) -> usize {
        for count in 0..most {
            let Some(packet) = self.packet(len) else {
                return count;
            };
            if !build(packet) {
                self.retract();
                return count;
            }
        }
        most
    }
    /// Whatever this path was ever given was executed: what the peer's memory is made to say now
    /// overtakes nothing. Only paths by memory can tell.
    fn all_executed(&self) -> bool {
        false
    }
    /// Takes back the packet given out last (its memory vanished while it was being filled).
    fn retract(&mut self);
    /// Takes a short packet as it is, if it leaves at once or with the next ones. False: nothing
    /// was done.
    fn send_short(&mut self, _packet: &[u8]) -> bool {
        false
    }
}
