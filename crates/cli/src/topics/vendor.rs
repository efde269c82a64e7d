//! `ibv_wc.vendor_err`: rnic's own codes, and those of Mellanox/NVIDIA NICs that programs' outputs
//! show.

use super::topic::{Kind, Topic};
use rnic_nic::vendor_err as code;

const fn rnic(number: u32, name: &'static str, meaning: &'static str, see: &'static str) -> Topic {
    Topic {
        kind: Kind::Vendor,
        number,
        name,
        text: "",
        meaning,
        side: "rnic's own code; finer than the status",
        causes: &[],
        check: &[],
        follows: see,
    }
}

const fn mellanox(number: u32, name: &'static str, see: &'static str) -> Topic {
    Topic {
        kind: Kind::Vendor,
        number,
        name,
        text: "",
        meaning: "Commonly seen with Mellanox/NVIDIA NICs (mlx4, mlx5), which do not document these codes.",
        side: "only on such hardware; rnic has codes of its own",
        causes: &[],
        check: &[],
        follows: see,
    }
}

const LOCAL: &str = "Status 4: rnic explain 4";
const LENGTH: &str = "Status 1: rnic explain 1";
const OPERATION: &str = "Status 2: rnic explain 2";
const RESPONSE: &str = "Status 7: rnic explain 7";
const RETRY: &str = "Status 12: rnic explain 12";
const RNR: &str = "Status 13: rnic explain 13";
const FLUSHED: &str = "Status 5: rnic explain 5";

pub const TOPICS: &[Topic] = &[
    rnic(
        code::FLUSHED,
        "rnic FLUSHED",
        "A consequence: another work request failed first, or the queue pair was moved to ERR.",
        FLUSHED,
    ),
    rnic(
        code::LOCAL + 1,
        "rnic LOCAL unknown lkey",
        "No region has that lkey: never had, or deregistered.",
        LOCAL,
    ),
    rnic(
        code::LOCAL + 2,
        "rnic LOCAL other PD",
        "The region belongs to another protection domain than the queue pair.",
        LOCAL,
    ),
    rnic(
        code::LOCAL + 3,
        "rnic LOCAL out of range",
        "The scatter/gather entry leaves the region.",
        LOCAL,
    ),
    rnic(
        code::LOCAL + 4,
        "rnic LOCAL no LOCAL_WRITE",
        "The region lacks IBV_ACCESS_LOCAL_WRITE, which receives, READ and atomics need.",
        LOCAL,
    ),
    rnic(
        code::LOCAL + 5,
        "rnic LOCAL unmapped",
        "The memory behind the region is gone: unmapped without deregistration.",
        LOCAL,
    ),
    rnic(
        code::MESSAGE_TOO_LONG,
        "rnic MESSAGE_TOO_LONG",
        "Message longer than the port's largest.",
        LENGTH,
    ),
    rnic(
        code::ATOMIC_TOO_SHORT,
        "rnic ATOMIC_TOO_SHORT",
        "Atomic whose list has no room for 8 bytes.",
        LENGTH,
    ),
    rnic(
        code::NO_RD_ATOMIC,
        "rnic NO_RD_ATOMIC",
        "READ or atomic on a queue pair with max_rd_atomic 0.",
        OPERATION,
    ),
    rnic(
        code::INLINE_READ,
        "rnic INLINE_READ",
        "READ or atomic with inline data.",
        OPERATION,
    ),
    rnic(
        code::RECEIVE_TOO_SHORT,
        "rnic RECEIVE_TOO_SHORT",
        "The message was longer than the receive.",
        LENGTH,
    ),
    rnic(
        code::INVALIDATE,
        "rnic INVALIDATE",
        "The key that SEND with invalidate names cannot be invalidated.",
        LOCAL,
    ),
    rnic(
        code::WRONG_SERVICE,
        "rnic WRONG_SERVICE",
        "The queue pair's transport service has no such operation.",
        OPERATION,
    ),
    rnic(
        code::DATAGRAM_TOO_LONG,
        "rnic DATAGRAM_TOO_LONG",
        "A UD message longer than the MTU of the port.",
        LENGTH,
    ),
    rnic(
        code::BIND + 1,
        "rnic BIND unknown window",
        "No window has that rkey, or it is bound to nothing.",
        "Status 6: rnic explain 6",
    ),
    rnic(
        code::BIND + 2,
        "rnic BIND unknown region",
        "No region has the lkey of the bind.",
        "Status 6: rnic explain 6",
    ),
    rnic(
        code::BIND + 3,
        "rnic BIND other PD",
        "The window is of another protection domain than the queue pair.",
        "Status 6: rnic explain 6",
    ),
    rnic(
        code::BIND + 4,
        "rnic BIND out of range",
        "The window would leave the region.",
        "Status 6: rnic explain 6",
    ),
    rnic(
        code::BIND + 5,
        "rnic BIND no MW_BIND",
        "The region lacks IBV_ACCESS_MW_BIND.",
        "Status 6: rnic explain 6",
    ),
    rnic(
        code::BIND + 6,
        "rnic BIND no LOCAL_WRITE",
        "The window grants remote write or atomics, and the region lacks IBV_ACCESS_LOCAL_WRITE.",
        "Status 6: rnic explain 6",
    ),
    rnic(
        code::BIND + 7,
        "rnic BIND already bound",
        "A type 2 window is bound already: invalidate it first.",
        "Status 6: rnic explain 6",
    ),
    rnic(
        code::BIND + 8,
        "rnic BIND invalidates region",
        "The rkey is that of a region of ibv_reg_mr, which cannot be invalidated.",
        "Status 6: rnic explain 6",
    ),
    rnic(
        code::BIND + 9,
        "rnic BIND other QP",
        "The window is bound to another queue pair.",
        "Status 6: rnic explain 6",
    ),
    rnic(
        code::BIND + 10,
        "rnic BIND region of other PD",
        "The region is of another protection domain than the queue pair.",
        "Status 6: rnic explain 6",
    ),
    rnic(
        code::BIND + 11,
        "rnic BIND invalidates type 1",
        "The window is of type 1, which a bind of length 0 closes.",
        "Status 6: rnic explain 6",
    ),
    rnic(
        code::NAK + 1,
        "rnic NAK invalid request",
        "The peer answered NAK invalid request.",
        "Status 9: rnic explain 9",
    ),
    rnic(
        code::NAK + 2,
        "rnic NAK remote access error",
        "The peer answered NAK remote access error.",
        "Status 10: rnic explain 10",
    ),
    rnic(
        code::NAK + 3,
        "rnic NAK remote operational error",
        "The peer answered NAK remote operational error.",
        "Status 11: rnic explain 11",
    ),
    rnic(
        code::TIMEOUT,
        "rnic TIMEOUT",
        "The peer did not answer; the ACK timeout used up the retries.",
        RETRY,
    ),
    rnic(
        code::SEQUENCE_NAK,
        "rnic SEQUENCE_NAK",
        "The peer kept asking for the same packet; that used up the retries.",
        RETRY,
    ),
    rnic(
        code::LOST_RESPONSE,
        "rnic LOST_RESPONSE",
        "The responses of a READ or atomic kept getting lost; that used up the retries.",
        RETRY,
    ),
    rnic(
        code::RNR,
        "rnic RNR",
        "The peer had no receive posted; RNR retries used up.",
        RNR,
    ),
    rnic(
        code::UNEXPECTED_RESPONSE,
        "rnic UNEXPECTED_RESPONSE",
        "A response of a kind that the request cannot have.",
        RESPONSE,
    ),
    rnic(
        code::RESPONSE_LENGTH,
        "rnic RESPONSE_LENGTH",
        "A READ response of the wrong length: path_mtu differs?",
        RESPONSE,
    ),
    rnic(
        code::RESERVED_SYNDROME,
        "rnic RESERVED_SYNDROME",
        "An AETH syndrome of a reserved type.",
        RESPONSE,
    ),
    mellanox(
        0x51,
        "Mellanox 0x51",
        "Usually with status 4, local protection error: rnic explain 4",
    ),
    mellanox(
        0x53,
        "Mellanox 0x53",
        "Usually with status 4, local protection error: rnic explain 4",
    ),
    mellanox(
        0x56,
        "Mellanox 0x56",
        "Usually with status 4, local protection error: rnic explain 4",
    ),
    mellanox(
        0x81,
        "Mellanox 0x81",
        "Usually with status 12, transport retry counter exceeded: rnic explain 12",
    ),
    mellanox(
        0x87,
        "Mellanox 0x87",
        "Usually with status 13, RNR retry counter exceeded: rnic explain 13",
    ),
    mellanox(
        0x88,
        "Mellanox 0x88",
        "Usually with status 10, remote access error: rnic explain 10",
    ),
    mellanox(
        0x89,
        "Mellanox 0x89",
        "Usually with status 11, remote operation error: rnic explain 11",
    ),
    mellanox(
        0x8a,
        "Mellanox 0x8a",
        "Usually with status 9, remote invalid request error: rnic explain 9",
    ),
    mellanox(
        0xf4,
        "Mellanox 0xf4",
        "Usually with status 5, flushed: rnic explain 5",
    ),
    mellanox(
        0xf5,
        "Mellanox 0xf5",
        "Usually with status 5, flushed: rnic explain 5",
    ),
    mellanox(
        0xf9,
        "Mellanox 0xf9",
        "Usually with status 5, flushed: rnic explain 5",
    ),
];
