//! Two processes that show or measure something together.
//!
//! * [`meet`]: how they find each other; [`node`]: what each has of the device.
//! * [`between`]: the two ends, as results name them.
//! * [`waiting`]: how long one waits for the other.
//! * [`lab`]: one process that does one of each.
//! * [`measure`]: latency and bandwidth; [`bulk`]: a transfer beside it.

pub mod between;
pub mod bulk;
pub mod lab;
pub mod measure;
pub mod meet;
pub mod node;
pub mod waiting;
