//! Two sides of a connection in two partitions.

use super::Report;
use super::record::{Failure, Partition};

/// What to do about two partitions.
pub const PARTITIONS: &str = "give both sides a P_Key of one partition, one of them that of a full member (0x8000): \
     pkey_index, RNIC_PKEYS; rnic devices -v shows the table";

/// What one side of the connection dropped for its P_Key.
pub fn partition_of(report: &Report, failure: &Failure) -> Option<String> {
    let of_this_side =
        |p: &&Partition| (p.process, p.ends.key()) == (failure.process, failure.ends.key());
    let mut partitions = report.partitions.iter();
    if let Some(theirs) = report
        .all(|report| &report.partitions)
        .find(|p| p.ends.is_opposite(&failure.ends))
    {
        let (own, peers) = (theirs.peer_pkey, theirs.pkey);
        let process = report.process(theirs.process);
        return Some(format!(
            "the peer, {process}, drops the packets: {}",
            partitions_differ(own, peers)
        ));
    }
    let own = partitions.find(of_this_side)?;
    Some(format!(
        "the peer's packets are dropped here: {}",
        partitions_differ(own.pkey, own.peer_pkey)
    ))
}

/// How the two differ.
pub fn partitions_differ(own: u16, peers: u16) -> String {
    let how = match (own ^ peers) & 0x7fff {
        0 => "are both of limited members",
        _ => "are of two partitions",
    };
    format!("the P_Keys {own:#06x} of this side and {peers:#06x} of the peer {how}")
}
