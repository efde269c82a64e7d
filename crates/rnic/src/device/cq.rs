//! Completion queues and their channels.

use std::os::fd::RawFd;

use rnic_libibverbs as system;

use super::either;
use crate::nic::{self, Completion, Result};

#[derive(Clone)]
pub(crate) enum CompChannel {
    Software(nic::CompChannel),
    System(system::CompChannel),
}

impl CompChannel {
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
    System(system::Cq),
}

impl Cq {
    pub(crate) fn is_system(&self) -> bool {
        matches!(self, Cq::System(_))
    }

    pub(crate) fn capacity(&self) -> u32 {
        either!(Cq, self, cq => cq.capacity())
    }

    #[inline]
    pub(crate) fn check_alive(&self, verb: &'static str) -> Result<()> {
        either!(Cq, self, cq => cq.check_alive(verb))
    }

    #[inline]
    pub(crate) fn poll(&self, max: usize, out: &mut dyn FnMut(&Completion)) -> Result<usize> {
        either!(Cq, self, cq => cq.poll(max, out))
    }

    /// Takes all that there are, also those of the software NIC whose event nobody has fetched: the
    /// device drops them with the queue pair.
    pub(crate) fn take_all(&self, mut out: impl FnMut(Completion)) {
        match self {
            Cq::Software(cq) => {
                while let Ok(Some((entry, _))) = cq.take_any() {
                    out(entry);
                }
            }
            Cq::System(cq) => while let Ok(1..) = cq.poll(16, &mut |entry| out(*entry)) {},
        }
    }

    pub(crate) fn request_notify(&self, solicited_only: bool) {
        match self {
            Cq::Software(cq) => cq.request_notify(solicited_only),
            Cq::System(cq) => {
                // It fails with the device alone, which the poll behind it tells.
                let _ = cq.request_notify(solicited_only);
            }
        }
    }
}
