//! What stands between the staging of packets and a link that carries them, and is such a link
//! itself.

pub mod faults;
pub mod pcap;
