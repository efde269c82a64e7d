//! `enum ibv_wr_opcode`: what can be asked of a send queue.

use super::topic::{Kind, Topic};

const fn request(
    number: u32,
    name: &'static str,
    meaning: &'static str,
    follows: &'static str,
) -> Topic {
    Topic {
        kind: Kind::Request,
        number,
        name,
        text: "",
        meaning,
        side: "requester",
        causes: &[],
        check: &[],
        follows,
    }
}

const GRANT: &str = "The peer needs a region with the right and qp_access_flags with it; else the request ends with status 10 or 9.";
const RECEIVE: &str = "The peer needs a posted receive at least as long as the message; else RNR NAKs (status 13) or status 9.";

pub const TOPICS: &[Topic] = &[
    request(
        0,
        "IBV_WR_RDMA_WRITE",
        "RDMA WRITE (RC, UC): stores into the peer's memory; the peer's program is not told.",
        GRANT,
    ),
    request(
        1,
        "IBV_WR_RDMA_WRITE_WITH_IMM",
        "RDMA WRITE that takes a receive of the peer and hands it four bytes (RC, UC).",
        "Needs the right to write, as IBV_WR_RDMA_WRITE, and a posted receive, of any length.",
    ),
    request(
        2,
        "IBV_WR_SEND",
        "A message into the peer's next receive (RC, UC, UD).",
        RECEIVE,
    ),
    request(
        3,
        "IBV_WR_SEND_WITH_IMM",
        "A message with four bytes beside it (RC, UC, UD).",
        RECEIVE,
    ),
    request(
        4,
        "IBV_WR_RDMA_READ",
        "RDMA READ (RC): fetches from the peer's memory. The local region needs IBV_ACCESS_LOCAL_WRITE.",
        GRANT,
    ),
    request(
        5,
        "IBV_WR_ATOMIC_CMP_AND_SWP",
        "Atomic compare-and-swap of 8 bytes at a multiple of 8 (RC).",
        GRANT,
    ),
    request(
        6,
        "IBV_WR_ATOMIC_FETCH_AND_ADD",
        "Atomic fetch-and-add of 8 bytes at a multiple of 8 (RC).",
        GRANT,
    ),
    request(
        7,
        "IBV_WR_LOCAL_INV",
        "Revokes a memory window's key locally.",
        "Later accesses with that rkey are refused.",
    ),
    request(
        8,
        "IBV_WR_BIND_MW",
        "Binds a memory window to a range of a region.",
        "Failure is status 6.",
    ),
    request(
        9,
        "IBV_WR_SEND_WITH_INV",
        "A message that revokes a key of the peer (RC).",
        "The key must be of a type 2 window bound to that queue pair; else the peer refuses.",
    ),
    request(
        10,
        "IBV_WR_TSO",
        "Segmentation offload of raw packets.",
        "Only raw packet queue pairs have it: EOPNOTSUPP or EINVAL elsewhere.",
    ),
    request(
        14,
        "IBV_WR_FLUSH",
        "FLUSH: done when earlier writes to the peer's memory are visible there, or persistent (RC, recent NICs).",
        "The peer's region and qp_access_flags need IBV_ACCESS_FLUSH_GLOBAL or IBV_ACCESS_FLUSH_PERSISTENT; else status 10 or 9. Only ibv_wr_flush posts it. EOPNOTSUPP where the device lacks it.",
    ),
    request(
        15,
        "IBV_WR_ATOMIC_WRITE",
        "ATOMIC WRITE: stores 8 bytes at once, at a multiple of 8 (RC, recent NICs).",
        "Needs the right to write, as IBV_WR_RDMA_WRITE. EOPNOTSUPP or EINVAL where the device lacks it.",
    ),
];
