//! How many of each object the process holds: what a test or a monitor compares to find a leak.

use super::Engine;
use super::fork;

/// Objects of this process's NIC that live now, counted by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Memory regions and bound windows.
    pub memory: usize,
    /// Event channels of the connection manager.
    pub cm_channels: usize,
    /// Its ids, requests that wait at listeners included.
    pub cm_ids: usize,
    /// Its connections and resolutions, those in time-wait included.
    pub cm_connections: usize,
    /// Requests that nobody listens for, so far.
    pub cm_held: usize,
}

impl Engine {
    /// Regions and the like are the same in all shards, and other objects are in the first alone.
    fn objects(&self) -> Objects {
        let (cm_channels, cm_ids, cm_connections) = self.cm.objects();
        Objects {
            queue_pairs: self.qps.len(),
            memory: self.memory.len(),
            cm_channels,
            cm_ids,
            cm_connections,
            cm_held: self.cm.held.len(),
        }
    }
}

/// What lives now, if the device is open.
pub fn objects() -> Option<Objects> {
    let handle = fork::current().filter(|handle| handle.shared.is_alive())?;
    let mut objects = handle.shared.shards.first().lock().objects();
    for shard in handle.shared.shards.iter().skip(1) {
        objects.queue_pairs += shard.lock().qps.len();
    }
    Some(objects)
}
