//! Where packets come from and go to.

use rnic_wire::cm::{Attribute, MAD_LEN, Mad, ReqPath};
use rnic_wire::{DEFAULT_PKEY, Gid};

/// The hop limit that Linux uses.
const HOP_LIMIT: u8 = 64;

/// Both ends of a path between two QPs 1, seen from here: of a packet that arrived, `local_gid` was
/// the destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Address {
    /// Our end.
    pub local_gid: Gid,
    /// The peer's end.
    pub remote_gid: Gid,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// P_Key of the packet's BTH.
    pub pkey: u16,
}

impl Address {
    /// A path with the hop limit that Linux uses, in the default partition.
    pub const fn new(local_gid: Gid, remote_gid: Gid) -> Address {
        Address {
            local_gid,
            remote_gid,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: HOP_LIMIT,
            pkey: DEFAULT_PKEY,
        }
    }

    /// Both lead from the same address to the same one, however.
    pub(crate) fn joins_same_ends(&self, other: &Address) -> bool {
        (self.local_gid, self.remote_gid) == (other.local_gid, other.remote_gid)
    }

    /// The path of a REQ, for who sent it.
    pub const fn of_requester(path: &ReqPath, pkey: u16) -> Address {
        Address {
            local_gid: path.local_gid,
            remote_gid: path.remote_gid,
            flow_label: path.flow_label,
            traffic_class: path.traffic_class,
            // 0 is what some say who mean "in this subnet": over IP such a packet does not leave
            // its host.
            hop_limit: if path.hop_limit == 0 {
                HOP_LIMIT
            } else {
                path.hop_limit
            },
            pkey,
        }
    }

    /// The path of a REQ, for who received it.
    pub const fn of_responder(path: &ReqPath, pkey: u16) -> Address {
        Address {
            local_gid: path.remote_gid,
            remote_gid: path.local_gid,
            ..Address::of_requester(path, pkey)
        }
    }
}

/// A MAD to be sent from QP 1 to QP 1: UD SEND_ONLY, Q_Key [`QP1_QKEY`](rnic_wire::cm::QP1_QKEY),
/// not solicited.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The path.
    pub address: Address,
    /// The payload.
    pub mad: [u8; MAD_LEN],
}

impl Transmit {
    /// It is repeated until it is answered.
    pub fn awaits_answer(&self) -> bool {
        use Attribute::{Dreq, Rep, Req, SidrReq};
        matches!(Mad::attribute(&self.mad), Ok(Req | Rep | Dreq | SidrReq))
    }
}
