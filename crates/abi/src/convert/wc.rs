//! Completions.

use rnic_nic::{Completion, Immediate, NetworkHeader};

use crate::c::*;

/// What is the service level over InfiniBand. Over RoCE, where there is none, ConnectX adapters say
/// there what network header a UD receive begins with, and UCX throws datagrams away whose header
/// is not of the type that it finds.
pub fn service_level(completion: &Completion) -> u8 {
    const UDP: u8 = 1 << 3;
    match completion.grh {
        None => 0,
        Some(NetworkHeader::Ipv6) => UDP | 1,
        Some(NetworkHeader::Ipv4) => UDP | 2,
    }
}

/// The C form of a completion.
pub fn work_completion(completion: &Completion) -> ibv_wc {
    let (imm_data, wc_flags) = match completion.immediate {
        Immediate::None => (0, 0),
        Immediate::Data(bytes) => (u32::from_ne_bytes(bytes), IBV_WC_WITH_IMM),
        Immediate::Invalidated(key) => (key, IBV_WC_WITH_INV),
    };
    let wc_flags = match completion.grh {
        Some(_) => wc_flags | IBV_WC_GRH,
        None => wc_flags,
    };
    ibv_wc {
        wr_id: completion.wr_id,
        status: completion.status as u32,
        opcode: completion.opcode as u32,
        vendor_err: completion.vendor_err,
        byte_len: completion.byte_len,
        imm_data,
        qp_num: completion.qpn,
        src_qp: completion.src_qpn,
        wc_flags,
        pkey_index: completion.pkey_index,
        slid: 0,
        sl: service_level(completion),
        dlid_path_bits: 0,
    }
}
