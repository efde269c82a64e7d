//! A device that somebody else drives.

use std::os::fd::RawFd;

use rnic_link::SimulatedPort;

use crate::cm::EventChannel;
use crate::driving::Nic;
use crate::error::Result;
use crate::host::Host;
use crate::objects::context::Context;
use crate::{DropCounters, LinkCounters, Objects};

/// A device without a thread, in a simulation. Any number of them may be in one process, beside the
/// process's own.
#[derive(Clone, Debug)]
pub struct SimulatedDevice {
    nic: Nic,
}

impl SimulatedDevice {
    /// On that host, with that port. It has one engine.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn open(host: Host, port: SimulatedPort) -> Result<SimulatedDevice> {
        let nic = Nic::simulated(host, port)?;
        Ok(SimulatedDevice { nic })
    }

    /// Opens the device for a program.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn context(&self) -> Result<Context> {
        Context::open_on(self.nic.clone(), None)
    }

    /// An event channel of the connection manager; ids that are made with it are this device's. It
    /// is non-blocking: nobody else would go on while this thread waits.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn event_channel(&self) -> Result<EventChannel> {
        EventChannel::of(self.nic.clone())
    }

    /// Its process is killed: others of its host see that it is gone, its last words are theirs to
    /// send, and from now on it sends and receives nothing. To be dropped with all that it has.
    pub fn kill(&self) {
        self.nic.lock().link.abandon();
    }

    /// The machine that it is on.
    pub fn host(&self) -> &Host {
        self.nic.host()
    }

    /// The application polls from now on, and has the engine to itself; or it does not any more
    /// (`driving/election.rs`).
    pub fn leave_to_polling(&self, polls: bool) {
        self.nic.leave_to_polling(polls);
    }

    /// The background thread stays awake from now on, and is to [look](SimulatedDevice::look_awake)
    /// soon, over and over; or it goes to sleep, and is to [run](SimulatedDevice::run) once more.
    pub fn stay_awake(&self, awake: bool) {
        self.nic.stay_awake(awake);
    }

    /// One look of the background thread while it stays awake.
    pub fn look_awake(&self) {
        self.nic.look_awake();
    }

    /// The program has done something that the background thread wakes for.
    pub fn is_rung(&self) -> bool {
        self.nic.is_rung()
    }

    /// The background thread wakes, too, when one of these descriptors becomes readable: another
    /// process of the host sees to that.
    pub fn waits_for(&self) -> impl Iterator<Item = RawFd> {
        self.nic.waits_for()
    }

    /// Packets lie in its memory that it has not taken in.
    pub fn has_arrivals(&self) -> bool {
        self.nic.lock().link.has_arrivals()
    }

    /// Does what the background thread of a process does when it wakes. Gives the time at which it
    /// wants to do so again, ns, if nothing arrives before; a time that has passed: at once.
    pub fn run(&self) -> Option<u64> {
        self.nic.run()
    }

    /// What lives now.
    pub fn objects(&self) -> Objects {
        self.nic.lock().objects()
    }

    /// Turns that the engine gave to queue pairs; short messages leave without one.
    pub fn turns(&self) -> u64 {
        self.nic.lock().turns()
    }

    /// What was counted so far.
    pub fn counters(&self) -> (LinkCounters, DropCounters) {
        self.nic.lock().counters()
    }
}
