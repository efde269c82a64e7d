//! The network's end of a simulated port: packets that were sent, and those that arrived.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Address;

/// Buffers that are kept for later packets.
const MOST_SPARE: usize = 256;

/// A packet on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Source address.
    pub src: Address,
    /// Destination address.
    pub dst: Address,
    /// UDP source port, as a network may hash it.
    pub src_port: u16,
    /// Service level, of an InfiniBand subnet.
    pub sl: u8,
    /// TOS or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit; 0: the system's default.
    pub hop_limit: u8,
    /// From the first byte of the BTH to the last pad byte, without ICRC.
    pub bytes: Vec<u8>,
}

impl Frame {
    /// Destination QPN, from the BTH; 0 if there is none.
    pub fn dest_qpn(&self) -> u32 {
        match self.bytes[..] {
            [_, _, _, _, _, a, b, c, ..] => u32::from_be_bytes([0, a, b, c]),
            _ => 0,
        }
    }
}

#[derive(Debug)]
pub(super) struct Queues {
    pub(super) sent: VecDeque<Frame>,
    /// With those that another process has handed over: so true.
    pub(super) arrived: VecDeque<(Frame, bool)>,
    /// With the first range of the process that they are for.
    pub(super) handed_over: VecDeque<(u32, Frame)>,
    /// Bytes of `arrived`.
    pub(super) waiting: usize,
    pub(super) overrun: u64,
    pub(super) looks: u64,
    pub(super) spare: Vec<Vec<u8>>,
    pub(super) groups: Vec<IpAddr>,
    /// Packets that a round takes from rings at most.
    pub(super) quota: usize,
    /// Steps that are left to the process; `None`: any number.
    pub(super) steps: Option<u64>,
    pub(super) is_dead: bool,
}

impl Default for Queues {
    fn default() -> Queues {
        Queues {
            sent: VecDeque::new(),
            arrived: VecDeque::new(),
            handed_over: VecDeque::new(),
            waiting: 0,
            overrun: 0,
            looks: 0,
            spare: Vec::new(),
            groups: Vec::new(),
            quota: usize::MAX,
            steps: None,
            is_dead: false,
        }
    }
}

impl Queues {
    /// One step more. False: the process is dead.
    #[inline]
    pub(super) fn lives_on(&mut self) -> bool {
        match &mut self.steps {
            None => {}
            Some(0) => self.is_dead = true,
            Some(left) => *left -= 1,
        }
        !self.is_dead
    }

    pub(super) fn put_by(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < MOST_SPARE {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
}

/// The network's end of a port.
#[derive(Clone, Debug)]
pub struct Wire {
    queues: Arc<Mutex<Queues>>,
    receive_buffer: usize,
    first_range: u32,
}

impl Wire {
    pub(super) fn new(receive_buffer: usize, first_range: u32) -> Wire {
        Wire {
            queues: Arc::default(),
            receive_buffer,
            first_range,
        }
    }

    /// Nobody is at the other end any more.
    pub(super) fn cut(&mut self) {
        self.queues = Arc::default();
    }

    pub(super) fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The packet that was sent first of those that were not taken yet.
    pub fn take(&self) -> Option<Frame> {
        self.queues().sent.pop_front()
    }

    /// A packet has arrived. False: the receive buffer is full, and it is lost.
    pub fn arrive(&self, frame: Frame) -> bool {
        self.put(frame, false)
    }

    /// A packet that another process of the host hands over.
    pub fn hand_over(&self, frame: Frame) -> bool {
        self.put(frame, true)
    }

    fn put(&self, frame: Frame, is_handed_over: bool) -> bool {
        let mut queues = self.queues();
        if queues.waiting + frame.bytes.len() > self.receive_buffer {
            queues.overrun += 1;
            queues.put_by(frame.bytes);
            return false;
        }
        queues.waiting += frame.bytes.len();
        queues.arrived.push_back((frame, is_handed_over));
        true
    }

    /// A packet that came here and is for another process of the host, whose first range this is.
    pub fn take_handed_over(&self) -> Option<(u32, Frame)> {
        self.queues().handed_over.pop_front()
    }

    /// The first QPN range of the process.
    pub fn first_range(&self) -> u32 {
        self.first_range
    }

    /// Gives a buffer back that is not needed any more, for packets to come.
    pub fn put_by(&self, bytes: Vec<u8>) {
        self.queues().put_by(bytes);
    }

    /// Packets that arrived and were not taken in.
    pub fn waiting(&self) -> usize {
        self.queues().arrived.len()
    }

    /// How often the device has looked for packets in a round.
    pub fn looks(&self) -> u64 {
        self.queues().looks
    }

    /// A round takes so many packets from rings at most, or one or two more; what is left, the next
    /// one takes.
    pub fn set_quota(&self, packets: usize) {
        self.queues().quota = packets;
    }

    /// The process is killed after so many steps of its port: in the middle of whatever it does.
    pub fn die_after(&self, steps: u64) {
        self.queues().steps = Some(steps);
    }

    /// The process was killed.
    pub fn is_dead(&self) -> bool {
        self.queues().is_dead
    }

    /// The device is a member of a multicast group.
    pub fn is_member(&self, group: IpAddr) -> bool {
        self.queues().groups.contains(&group)
    }
}
