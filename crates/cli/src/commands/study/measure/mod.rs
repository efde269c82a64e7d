//! One measurement: both sides make the queue pairs of a [`Setup`], the leading one takes times,
//! and all goes again.
//!
//! The leader runs for as long as it wants. The follower serves until the leader's last message,
//! which is empty (or, for WRITEs that it watches, has a mark of its own).

mod follow;
mod lead;
mod rig;
mod sender;

use std::net::IpAddr;
use std::time::Duration;

use rnic::exchange::Exchange;
use rnic::{
    BackEnd, Capabilities, Context, GidEntry, ProtectionDomain, RemoteMemory, WritableRegion,
};
use serde::{Deserialize, Serialize};

use super::setup::{Flow, INLINE, LARGEST, Service, Setup};
use crate::peer::measure::stats::Distribution;
use crate::platform::failure::{Failure, Result};
use crate::text::gid::Choice;
use rig::Rig;

/// What a side has from the first measurement to the last.
pub struct Side {
    context: Context,
    pub gid: GidEntry,
    pd: ProtectionDomain,
    region: WritableRegion,
    /// The peer's region.
    remote: RemoteMemory,
    pub peer_addr: IpAddr,
    /// What each side's device can do: this side's first.
    can: [Can; 2],
    pub exchange: Exchange,
}

/// What a measurement may ask of a device.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Can {
    uc: bool,
    ud: bool,
    srq: bool,
    atomics: bool,
    inline: u32,
}

impl Can {
    fn of(capabilities: &Capabilities) -> Can {
        Can {
            uc: capabilities.uc,
            ud: capabilities.ud,
            srq: capabilities.srq,
            atomics: capabilities.atomics,
            inline: capabilities.max_inline_data,
        }
    }

    /// What it lacks for a measurement.
    fn lacks(&self, setup: &Setup) -> Option<&'static str> {
        match setup.service {
            Service::Uc if !self.uc => return Some("unreliable connections (UC)"),
            Service::Ud if !self.ud => return Some("datagrams (UD)"),
            _ => {}
        }
        if setup.shared_receives && !self.srq {
            return Some("shared receive queues");
        }
        if setup.operation.is_atomic() && !self.atomics {
            return Some("atomics");
        }
        (setup.inline && setup.size > self.inline as usize).then_some("so much inline data")
    }
}

/// What the leader asks for.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    Measure(Setup),
    End,
}

/// What the follower has to say in the end.
#[derive(Debug, Serialize, Deserialize)]
struct Account {
    /// Messages that arrived, where it counts them.
    received: u64,
    processor_us: u64,
}

/// What one measurement gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Times of single operations; none in a stream.
    pub times: Distribution,
    /// Messages, or operations, that were completed or arrived in that time.
    pub count: u64,
    pub time: Duration,
    /// Of both processes, from the first message to the last.
    pub processor_time: Duration,
    /// Messages in all that time.
    pub all: u64,
    /// Messages that did not arrive: only where the service may lose them.
    pub lost: u64,
    /// Path MTU that both sides agreed on; `None` for UD, which has none.
    pub path_mtu: Option<usize>,
}

fn decoded<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        Failure::new(format!("the other side says something else: {error}"))
            .cause("it is no `rnic study`, or one of another version")
            .next("use the same rnic on both sides")
    })
}

fn encoded(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Failure::new(error.to_string()))
}

/// Of the two processes and all their threads.
fn processor_time() -> Duration {
    rnic_sys::child::processor_time()
}

impl Side {
    /// Opens the device, or the default one, and meets the other side, which does the same.
    pub fn new(
        mut exchange: Exchange,
        device: Option<&str>,
        gid: &Choice,
        default: impl FnOnce(&Context) -> rnic::Result<GidEntry>,
    ) -> Result<Side> {
        let context = match device {
            Some(name) => Context::open_by_name(name)?,
            None => Context::open()?,
        };
        let gid = gid.resolve(&context, default)?;
        let pd = context.alloc_pd()?;
        let can = Can::of(&context.capabilities());
        let region = pd.writable(LARGEST).readable();
        let region = match can.atomics {
            true => region.atomic().build()?,
            false => region.build()?,
        };
        let hello = encoded(&Hello {
            version: VERSION,
            region: region.remote().to_bytes().into(),
            addr: gid.addr,
            can,
        })?;
        let theirs: Hello = decoded(&exchange.swap(&hello)?)?;
        if theirs.version != VERSION {
            return Err(Failure::new("the other side is another version of rnic")
                .next("use the same rnic on both sides"));
        }
        Ok(Side {
            context,
            gid,
            pd,
            region,
            remote: RemoteMemory::from_bytes(&theirs.region)?,
            peer_addr: theirs.addr,
            can: [can, theirs.can],
            exchange,
        })
    }

    /// What the device is called.
    pub fn device(&self) -> String {
        self.pd.context().name().to_owned()
    }

    /// What does the NIC's work.
    pub fn back_end(&self) -> BackEnd {
        self.context.back_end()
    }

    /// What a device lacks for a measurement: this side's, or the peer's.
    pub fn lacks(&self, setup: &Setup) -> Option<&'static str> {
        self.can.iter().find_map(|can| can.lacks(setup))
    }

    /// The most inline data of its queue pairs.
    fn inline(&self) -> u32 {
        self.can[0].inline.min(INLINE as u32)
    }

    /// Measures for about `time`.
    pub fn lead(&mut self, setup: &Setup, time: Duration) -> Result<Outcome> {
        setup.check()?;
        self.exchange.send(&encoded(&Order::Measure(*setup))?)?;
        self.region.copy_in(setup.size - 1, &[0])?;
        let rig = Rig::new(self, setup)?;
        self.exchange.barrier()?;
        let before = processor_time();
        let mut outcome = lead::run(self, &rig, setup, time)?;
        outcome.processor_time = processor_time().saturating_sub(before);
        let account = lead::dismiss(self, &rig, setup)?;
        outcome.processor_time += Duration::from_micros(account.processor_us);
        if rig.may_lose() && setup.flow == Flow::Stream {
            // What was sent is no longer what arrived.
            outcome.lost = outcome.all.saturating_sub(account.received);
            outcome.count = outcome.count.saturating_sub(outcome.lost);
        }
        outcome.path_mtu = rig.path_mtu();
        self.exchange.barrier()?;
        Ok(outcome)
    }

    pub fn end(&mut self) -> Result<()> {
        Ok(self.exchange.send(&encoded(&Order::End)?)?)
    }

    /// The other side's part, until the leader's end.
    pub fn follow(&mut self) -> Result<()> {
        loop {
            let order: Order = decoded(&self.exchange.recv()?)?;
            let Order::Measure(setup) = order else {
                return Ok(());
            };
            setup.check()?;
            self.region.copy_in(setup.size - 1, &[0])?;
            let rig = Rig::new(self, &setup)?;
            self.exchange.barrier()?;
            let before = processor_time();
            let received = follow::serve(self, &rig, &setup)?;
            let account = Account {
                received,
                processor_us: processor_time().saturating_sub(before).as_micros() as u64,
            };
            self.exchange.send(&encoded(&account)?)?;
            // Nothing of the leader's is on its way to these queue pairs once it has said so.
            self.exchange.barrier()?;
        }
    }
}

/// What the sides tell each other first.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    version: u32,
    /// As its bytes.
    region: Vec<u8>,
    addr: IpAddr,
    can: Can,
}

/// Of what the sides say to each other.
const VERSION: u32 = 2;
