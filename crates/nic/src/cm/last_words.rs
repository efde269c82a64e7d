//! What processes that were killed had to tell their peers.

use std::time::Duration;

use crate::driving::Nic;
use crate::engine::cm_service::LAST_WORDS_NS;
use crate::error::Result;

/// Tells the peers of processes that were killed on this host that their connections are over, as a
/// kernel would do; for a program that starts and ends others. Opens the device only if there is something
/// to tell, and takes about a second then.
///
/// # Errors
/// Those of [`crate::Context::open`].
pub fn send_last_words_of_the_dead() -> Result<bool> {
    if !rnic_host::last_words::dead_left_any() {
        return Ok(false);
    }
    let nic = Nic::get()?;
    let mut engine = nic.lock();
    let now = nic.host().now_ns();
    let some = engine.send_last_words(now);
    nic.after_drive(engine);
    if some {
        std::thread::sleep(Duration::from_nanos(LAST_WORDS_NS));
        let now = nic.host().now_ns();
        nic.lock().send_last_words(now);
    }
    Ok(some)
}
