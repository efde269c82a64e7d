//! The open device.

use std::os::fd::RawFd;

use rnic_libibverbs as system;

use super::{CompChannel, Cq, Pd, Xrcd, either, of_another_device};
use crate::nic::{self, AsyncEvent, DeviceAttr, GidEntry, PortAttr, Result};

#[derive(Clone)]
pub(crate) enum Context {
    Software(nic::Context),
    System(system::Context),
}

/// Names and GUIDs of the system's devices.
pub(crate) fn system_devices() -> Result<Vec<(String, u64)>> {
    let all = system::devices()?;
    let told = all.iter().map(|d| (d.name().to_owned(), d.guid()));
    Ok(told.collect())
}

impl Context {
    pub(crate) fn open_software() -> Result<Context> {
        Ok(Context::Software(nic::Context::open()?))
    }

    pub(crate) fn open_system(name: &str) -> Result<Context> {
        Ok(Context::System(system::Context::open(name)?))
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Context::Software(_) => nic::DEVICE_NAME,
            Context::System(context) => context.name(),
        }
    }

    pub(crate) fn is_system(&self) -> bool {
        matches!(self, Context::System(_))
    }

    /// `None`: the software NIC, which can do everything.
    pub(crate) fn abilities(&self) -> Option<system::Abilities> {
        match self {
            Context::Software(_) => None,
            Context::System(context) => Some(context.abilities()),
        }
    }

    /// The same as far as nothing has to be tried.
    pub(crate) fn told(&self) -> Option<system::Abilities> {
        match self {
            Context::Software(_) => None,
            Context::System(context) => Some(context.told()),
        }
    }

    pub(crate) fn device_attr(&self) -> DeviceAttr {
        match self {
            Context::Software(context) => context.device_attr(),
            Context::System(context) => DeviceAttr {
                max_inline_data: context.abilities().max_inline_data,
                ..context.device_attr()
            },
        }
    }

    pub(crate) fn port_attr(&self, port: u8) -> Result<PortAttr> {
        either!(Context, self, context => context.port_attr(port))
    }

    pub(crate) fn pkeys(&self) -> Vec<u16> {
        match self {
            Context::Software(context) => context.pkeys().all().to_vec(),
            Context::System(context) => context.pkeys(),
        }
    }

    pub(crate) fn gid_table(&self) -> Vec<GidEntry> {
        either!(Context, self, context => context.gid_table())
    }

    pub(crate) fn gid(&self, index: u32) -> Option<GidEntry> {
        match self {
            Context::Software(context) => context.gid(index),
            Context::System(context) => {
                let table = context.gid_table();
                table.into_iter().find(|row| row.index == index)
            }
        }
    }

    pub(crate) fn alloc_pd(&self) -> Result<Pd> {
        Ok(match self {
            // Private: a raw handle, by which the NIC can be told to write where a slice is lent,
            // takes an `unsafe` call.
            Context::Software(context) => Pd::Software(context.alloc_private_pd()),
            Context::System(context) => Pd::System(context.alloc_pd()?),
        })
    }

    pub(crate) fn create_comp_channel(&self) -> Result<CompChannel> {
        Ok(match self {
            Context::Software(context) => CompChannel::Software(context.create_comp_channel()?),
            Context::System(context) => CompChannel::System(context.create_comp_channel()?),
        })
    }

    pub(crate) fn create_cq(
        &self,
        entries: u32,
        channel: &CompChannel,
        id: u64,
        timestamps: bool,
    ) -> Result<Cq> {
        Ok(match (self, channel) {
            (Context::Software(context), CompChannel::Software(channel)) => {
                let options = nic::CqOptions {
                    timestamps,
                    ..nic::CqOptions::default()
                };
                let cq = context.create_cq_ex(entries, Some(channel), id, options)?;
                match timestamps {
                    false => Cq::Software(cq),
                    true => Cq::Stamped(cq),
                }
            }
            (Context::System(context), CompChannel::System(channel)) => {
                Cq::System(context.create_cq(entries, Some(channel), id, timestamps)?)
            }
            _ => return Err(of_another_device("ibv_create_cq")),
        })
    }

    /// What the clock of the device shows.
    pub(crate) fn clock(&self) -> Result<system::DeviceClock> {
        Ok(match self {
            Context::Software(context) => system::DeviceClock {
                now: context.clock_ns(),
                khz: 1_000_000,
                mask: u64::MAX,
            },
            Context::System(context) => context.clock()?,
        })
    }

    pub(crate) fn open_xrcd(&self, file: Option<RawFd>) -> Result<Xrcd> {
        Ok(match self {
            Context::Software(context) => Xrcd::Software(context.open_xrcd(file, true, false)?),
            Context::System(context) => Xrcd::System(context.open_xrcd(file)?),
        })
    }

    pub(crate) fn check_alive(&self, verb: &'static str) -> Result<()> {
        match self {
            Context::Software(context) => context.check_alive(verb),
            Context::System(context) => context.check_alive(verb),
        }
    }

    pub(crate) fn async_fd(&self) -> RawFd {
        either!(Context, self, context => context.async_fd())
    }

    pub(crate) fn wait_async_event(&self) -> Result<AsyncEvent> {
        either!(Context, self, context => context.wait_async_event())
    }

    /// The calling thread waits from now on, as the software NIC tells those that ask.
    pub(crate) fn begin_wait(&self, verb: &'static str) {
        if let Context::Software(context) = self {
            context.begin_wait(verb);
        }
    }
}
