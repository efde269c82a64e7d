//! Text for C, and names of enum values, in the words that libibverbs uses: programs print them and
//! scripts look for them.

use core::ffi::{c_char, c_int, c_uint};
use std::ffi::CStr;

use crate::export::symbols::export;

/// Copies text into a C array of chars, cut to leave room for the NUL.
pub fn set_text(field: &mut [c_char], text: &str) {
    field.fill(0);
    let room = field.len() - 1;
    for (to, from) in field[..room].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
}

/// The entry of a table by its enum value, or "unknown".
fn name(table: &'static [&'static CStr], value: usize, unknown: &'static CStr) -> *const c_char {
    table.get(value).copied().unwrap_or(unknown).as_ptr()
}

const NODE_TYPE: [&CStr; 8] = [
    c"unknown",
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

const PORT_STATE: [&CStr; 6] = [
    c"no state change (NOP)",
    c"down",
    c"init",
    c"armed",
    c"active",
    c"active defer",
];

const EVENT_TYPE: [&CStr; 20] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

const WC_STATUS: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

const CM_EVENT: [&CStr; 16] = [
    c"RDMA_CM_EVENT_ADDR_RESOLVED",
    c"RDMA_CM_EVENT_ADDR_ERROR",
    c"RDMA_CM_EVENT_ROUTE_RESOLVED",
    c"RDMA_CM_EVENT_ROUTE_ERROR",
    c"RDMA_CM_EVENT_CONNECT_REQUEST",
    c"RDMA_CM_EVENT_CONNECT_RESPONSE",
    c"RDMA_CM_EVENT_CONNECT_ERROR",
    c"RDMA_CM_EVENT_UNREACHABLE",
    c"RDMA_CM_EVENT_REJECTED",
    c"RDMA_CM_EVENT_ESTABLISHED",
    c"RDMA_CM_EVENT_DISCONNECTED",
    c"RDMA_CM_EVENT_DEVICE_REMOVAL",
    c"RDMA_CM_EVENT_MULTICAST_JOIN",
    c"RDMA_CM_EVENT_MULTICAST_ERROR",
    c"RDMA_CM_EVENT_ADDR_CHANGE",
    c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
];

const WR_OPCODE: [&CStr; 16] = [
    c"IBV_WR_RDMA_WRITE",
    c"IBV_WR_RDMA_WRITE_WITH_IMM",
    c"IBV_WR_SEND",
    c"IBV_WR_SEND_WITH_IMM",
    c"IBV_WR_RDMA_READ",
    c"IBV_WR_ATOMIC_CMP_AND_SWP",
    c"IBV_WR_ATOMIC_FETCH_AND_ADD",
    c"IBV_WR_LOCAL_INV",
    c"IBV_WR_BIND_MW",
    c"IBV_WR_SEND_WITH_INV",
    c"IBV_WR_TSO",
    c"IBV_WR_DRIVER1",
    c"unknown",
    c"unknown",
    c"IBV_WR_FLUSH",
    c"IBV_WR_ATOMIC_WRITE",
];

extern "C" fn node_type_str(value: c_int) -> *const c_char {
    name(&NODE_TYPE, usize::try_from(value).unwrap_or(0), c"unknown")
}

extern "C" fn port_state_str(value: c_uint) -> *const c_char {
    name(&PORT_STATE, value as usize, c"unknown")
}

extern "C" fn event_type_str(value: c_uint) -> *const c_char {
    name(&EVENT_TYPE, value as usize, c"unknown")
}

extern "C" fn wc_status_str(value: c_uint) -> *const c_char {
    name(&WC_STATUS, value as usize, c"unknown")
}

extern "C" fn wr_opcode_str(value: c_uint) -> *const c_char {
    name(&WR_OPCODE, value as usize, c"unknown")
}

/// The name of an event of the connection manager, also where `rdma_event_str` has none.
pub fn cm_event_name(kind: u32) -> &'static str {
    match kind {
        16 => "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
        17 => "RDMA_CM_EVENT_ADDRINFO_ERROR",
        18 => "RDMA_CM_EVENT_USER",
        _ => {
            let name = CM_EVENT.get(kind as usize).copied();
            name.and_then(|name| name.to_str().ok())
                .unwrap_or("UNKNOWN EVENT")
        }
    }
}

extern "C" fn rdma_event_str(value: c_uint) -> *const c_char {
    name(&CM_EVENT, value as usize, c"UNKNOWN EVENT")
}

export! {
    ibv_node_type_str @@ "IBVERBS_1.1" => node_type_str;
    ibv_port_state_str @@ "IBVERBS_1.1" => port_state_str;
    ibv_event_type_str @@ "IBVERBS_1.1" => event_type_str;
    ibv_wc_status_str @@ "IBVERBS_1.1" => wc_status_str;
    ibv_wr_opcode_str @@ "IBVERBS_PRIVATE_65" @ "IBVERBS_PRIVATE_64" => wr_opcode_str;
    rdma_event_str @@ "RDMACM_1.0" => rdma_event_str;
}
