//! What processes that were killed had to tell their peers.

use std::time::Duration;

use crate::driving::Nic;
use crate::engine::cm_service::EXECUTION;
use crate::error::Result;

/// Tells the peers of processes that were killed on this host that their connections are over, as a
/// kernel would do; for who starts and ends processes. Opens the device only if there is something
/// to tell, and takes about a second then.
///
/// # Errors
/// Those of [`crate::Context::open`].
pub fn execute_wills_of_the_dead() -> Result<bool> {
    if !rnic_host::wills::of_the_dead_wait() {
        return Ok(false);
    }
    let nic = Nic::get()?;
    let mut engine = nic.lock();
    let now = rnic_sys::now_ns();
    let some = engine.execute_wills(now);
    nic.after_drive(engine);
    if some {
        std::thread::sleep(Duration::from_nanos(EXECUTION));
        nic.lock().execute_wills(rnic_sys::now_ns());
    }
    Ok(some)
}
