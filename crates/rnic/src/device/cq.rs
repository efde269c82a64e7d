//! Completion queues and their channels.

use std::os::fd::RawFd;
use std::sync::Weak;

use rnic_libibverbs as system;

use super::either;
use crate::nic::{self, Completion, Result, Stamp};

#[derive(Clone)]
pub(crate) enum CompChannel {
    Software(nic::CompChannel),
    System(system::CompChannel),
}

impl CompChannel {
    /// The software NIC asks these futures, which its events wake, what they sleep for.
    pub(crate) fn know_futures(&self, futures: Weak<dyn nic::Futures>) {
        if let CompChannel::Software(channel) = self {
            channel.know_futures(futures);
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        either!(CompChannel, self, channel => channel.fd())
    }

    pub(crate) fn get_event(&self) -> Result<u64> {
        either!(CompChannel, self, channel => channel.get_event())
    }
}

#[derive(Clone)]
pub(crate) enum Cq {
    Software(nic::Cq),
    /// With a stamp for each completion.
    Stamped(nic::Cq),
    System(system::Cq),
}

/// Does the same with each.
macro_rules! each {
    ($self:expr, $cq:ident => $what:expr) => {
        match $self {
            Cq::Software($cq) | Cq::Stamped($cq) => $what,
            Cq::System($cq) => $what,
        }
    };
}

impl Cq {
    pub(crate) fn is_system(&self) -> bool {
        matches!(self, Cq::System(_))
    }

    pub(crate) fn capacity(&self) -> u32 {
        each!(self, cq => cq.capacity())
    }

    #[inline]
    pub(crate) fn check_alive(&self, verb: &'static str) -> Result<()> {
        each!(self, cq => cq.check_alive(verb))
    }

    #[inline]
    pub(crate) fn poll(
        &self,
        max: usize,
        out: &mut dyn FnMut(&Completion, Stamp),
    ) -> Result<usize> {
        match self {
            Cq::Software(cq) => cq.poll(max, &mut |entry| out(entry, Stamp::default())),
            Cq::Stamped(cq) => {
                let mut next = cq.poll_one()?;
                let mut taken = 0;
                while let Some((entry, stamp)) = next {
                    out(&entry, stamp);
                    taken += 1;
                    next = match taken < max {
                        true => cq.take_any()?,
                        false => None,
                    };
                }
                Ok(taken)
            }
            Cq::System(cq) => cq.poll(max, out),
        }
    }

    /// Takes all that there are, also those of the software NIC whose event nobody has fetched: the
    /// device drops them with the queue pair.
    pub(crate) fn take_all(&self, mut out: impl FnMut(Completion, Stamp)) {
        match self {
            Cq::Software(cq) | Cq::Stamped(cq) => {
                while let Ok(Some((entry, stamp))) = cq.take_any() {
                    out(entry, stamp);
                }
            }
            Cq::System(cq) => while let Ok(1..) = cq.poll(16, &mut |entry, s| out(*entry, s)) {},
        }
    }

    pub(crate) fn request_notify(&self, solicited_only: bool) {
        match self {
            Cq::Software(cq) | Cq::Stamped(cq) => cq.request_notify(solicited_only),
            Cq::System(cq) => {
                // It fails with the device alone, which the poll behind it tells.
                let _ = cq.request_notify(solicited_only);
            }
        }
    }

    /// The software NIC's, if it is.
    pub(crate) fn software(&self) -> Option<&nic::Cq> {
        match self {
            Cq::Software(cq) | Cq::Stamped(cq) => Some(cq),
            Cq::System(_) => None,
        }
    }
}
