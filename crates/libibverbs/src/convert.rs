//! Values of C become those of `rnic-types`, and back.

use core::ffi::c_char;

use rnic_layouts::cm::{rdma_conn_param, rdma_ud_param};
use rnic_layouts::*;
use rnic_types::cm::{ConnEvent, EventKind, UdEvent};
use rnic_types::{
    Completion, CompletionOpcode, DeviceAttr, Immediate, NetworkHeader, PathMtu, PortAttr,
    PortState, QpAttr, QpEvent, QpState, Status,
};

use rnic_convert::ah_from_c;
pub use rnic_convert::{ah_to_c, attr_to_c, cap_from_c, cap_to_c};

/// Marks the ids of sends, by the highest two bits. What a failed request was, its completion does
/// not tell otherwise: only id, status, QP number and vendor's code mean something then
/// (ibv_poll_cq(3)). So ids of sends are smaller than 2^62, and those of receives smaller than that
/// or at least 2^63.
pub const OF_SEND: u64 = 1 << 62;

fn is_send(wr_id: u64) -> bool {
    wr_id >> 62 == 1
}

pub fn status(value: u32) -> Status {
    use Status::*;
    const ALL: [Status; 16] = [
        Success,
        LocalLengthError,
        LocalQpOperationError,
        LocalProtectionError,
        WorkRequestFlushed,
        MemoryWindowBindError,
        BadResponse,
        LocalAccessError,
        RemoteInvalidRequest,
        RemoteAccessError,
        RemoteOperationError,
        RetryExceeded,
        RnrRetryExceeded,
        RemoteAborted,
        FatalError,
        ResponseTimeout,
    ];
    let found = ALL.into_iter().find(|status| *status as u32 == value);
    found.unwrap_or(GeneralError)
}

fn opcode(value: u32, is_send: bool) -> CompletionOpcode {
    use CompletionOpcode::*;
    const SENDS: [CompletionOpcode; 9] = [
        Send,
        RdmaWrite,
        RdmaRead,
        CompareSwap,
        FetchAdd,
        BindMw,
        LocalInvalidate,
        Flush,
        AtomicWrite,
    ];
    if !is_send {
        return match value == RecvRdmaWithImm as u32 {
            true => RecvRdmaWithImm,
            false => Recv,
        };
    }
    let found = SENDS.into_iter().find(|opcode| *opcode as u32 == value);
    found.unwrap_or(Send)
}

/// A completion. Only what means something is taken over.
pub fn completion(wc: &ibv_wc) -> Completion {
    let status = status(wc.status);
    let done = status == Status::Success;
    let is_send = is_send(wc.wr_id);
    let opcode = match done {
        true => opcode(wc.opcode, is_send),
        false if is_send => CompletionOpcode::Send,
        false => CompletionOpcode::Recv,
    };
    let byte_len = match opcode {
        CompletionOpcode::CompareSwap | CompletionOpcode::FetchAdd => 8,
        CompletionOpcode::RdmaRead => wc.byte_len,
        _ if is_send => 0,
        _ => wc.byte_len,
    };
    let received = done && !is_send;
    let flag = |bit| received && wc.wc_flags & bit != 0;
    Completion {
        wr_id: if is_send {
            wc.wr_id & !OF_SEND
        } else {
            wc.wr_id
        },
        status,
        opcode,
        byte_len: if done { byte_len } else { 0 },
        vendor_err: if done { 0 } else { wc.vendor_err },
        qpn: wc.qp_num,
        src_qpn: if received { wc.src_qp } else { 0 },
        immediate: match (flag(IBV_WC_WITH_IMM), flag(IBV_WC_WITH_INV)) {
            (true, _) => Immediate::Data(wc.imm_data.to_ne_bytes()),
            (_, true) => Immediate::Invalidated(wc.imm_data),
            _ => Immediate::None,
        },
        // Which one it is, its bytes tell.
        grh: flag(IBV_WC_GRH).then_some(NetworkHeader::Ipv6),
        pkey_index: if received { wc.pkey_index } else { 0 },
        solicited: false,
    }
}

/// Attributes that a device or a connection manager gives; the state is the caller's to judge.
pub fn attr_from_c(attr: &ibv_qp_attr, qp_state: QpState) -> QpAttr {
    QpAttr {
        qp_state,
        cur_qp_state: qp_state,
        ..rnic_convert::attr_from_c(attr)
    }
}

/// What an event of a connection manager says of datagrams.
pub fn ud_event(param: &rdma_ud_param, private_data: Vec<u8>) -> UdEvent {
    UdEvent {
        private_data,
        ah: ah_from_c(&param.ah_attr),
        qp_num: param.qp_num,
        qkey: param.qkey,
    }
}

/// What one says of a connection.
pub fn conn_event(param: &rdma_conn_param, private_data: Vec<u8>) -> ConnEvent {
    ConnEvent {
        private_data,
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        flow_control: param.flow_control != 0,
        retry_count: param.retry_count,
        rnr_retry_count: param.rnr_retry_count,
        srq: param.srq != 0,
        qp_num: param.qp_num,
        ..ConnEvent::default()
    }
}

/// What happened, if it is known.
pub fn event_kind(value: u32) -> Option<EventKind> {
    use EventKind::*;
    const ALL: [EventKind; 16] = [
        AddrResolved,
        AddrError,
        RouteResolved,
        RouteError,
        ConnectRequest,
        ConnectResponse,
        ConnectError,
        Unreachable,
        Rejected,
        Established,
        Disconnected,
        DeviceRemoval,
        MulticastJoin,
        MulticastError,
        AddrChange,
        TimewaitExit,
    ];
    ALL.into_iter().find(|kind| *kind as u32 == value)
}

/// A text that may fill its field to the end.
pub fn text(field: &[c_char]) -> String {
    let bytes = field.iter().map(|c| c.to_ne_bytes()[0]);
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A limit that C declares as `int`; none is negative.
fn limit(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

/// `max_inline_data` is of each queue pair, and not known here.
pub fn device_attr(attr: &ibv_device_attr) -> DeviceAttr {
    DeviceAttr {
        fw_ver: text(&attr.fw_ver),
        guid: u64::from_be(attr.node_guid),
        vendor_id: attr.vendor_id,
        vendor_part_id: attr.vendor_part_id,
        hw_ver: attr.hw_ver,
        max_mr_size: attr.max_mr_size,
        page_size_cap: attr.page_size_cap,
        max_qp: limit(attr.max_qp),
        max_qp_wr: limit(attr.max_qp_wr),
        device_cap_flags: attr.device_cap_flags,
        max_sge: limit(attr.max_sge),
        max_sge_rd: limit(attr.max_sge_rd),
        max_srq: limit(attr.max_srq),
        max_srq_wr: limit(attr.max_srq_wr),
        max_srq_sge: limit(attr.max_srq_sge),
        max_cq: limit(attr.max_cq),
        max_cqe: limit(attr.max_cqe),
        max_mr: limit(attr.max_mr),
        max_mw: limit(attr.max_mw),
        max_dm_size: 0,
        max_pd: limit(attr.max_pd),
        max_qp_rd_atom: limit(attr.max_qp_rd_atom),
        max_res_rd_atom: limit(attr.max_res_rd_atom),
        max_qp_init_rd_atom: limit(attr.max_qp_init_rd_atom),
        max_inline_data: 0,
        max_ah: limit(attr.max_ah),
        max_mcast_grp: limit(attr.max_mcast_grp),
        max_pkeys: attr.max_pkeys,
        phys_port_cnt: attr.phys_port_cnt,
        local_ca_ack_delay: attr.local_ca_ack_delay,
    }
}

pub fn port_attr(attr: &ibv_port_attr) -> PortAttr {
    let mtu = |code| PathMtu::from_ibv(code).unwrap_or(PathMtu::M256);
    PortAttr {
        state: match attr.state == IBV_PORT_ACTIVE {
            true => PortState::Active,
            false => PortState::Down,
        },
        max_mtu: mtu(attr.max_mtu),
        active_mtu: mtu(attr.active_mtu),
        gid_tbl_len: limit(attr.gid_tbl_len),
        pkey_tbl_len: attr.pkey_tbl_len,
        max_msg_sz: attr.max_msg_sz,
    }
}

/// An event of a queue pair.
pub fn qp_event(kind: u32) -> Option<QpEvent> {
    Some(match kind {
        IBV_EVENT_QP_FATAL => QpEvent::Fatal,
        IBV_EVENT_QP_REQ_ERR => QpEvent::RequestError,
        IBV_EVENT_QP_ACCESS_ERR => QpEvent::AccessError,
        IBV_EVENT_COMM_EST => QpEvent::CommunicationEstablished,
        IBV_EVENT_SQ_DRAINED => QpEvent::SendQueueDrained,
        IBV_EVENT_QP_LAST_WQE_REACHED => QpEvent::LastWqeReached,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wc(wr_id: u64, status: u32, opcode: u32) -> ibv_wc {
        ibv_wc {
            wr_id,
            status,
            opcode,
            vendor_err: 7,
            byte_len: 99,
            imm_data: 0x0102_0304,
            qp_num: 5,
            src_qp: 6,
            wc_flags: !0,
            pkey_index: 3,
            ..ibv_wc::default()
        }
    }

    /// Of a failed request only id, status, number and vendor's code count, whatever else is there.
    #[test]
    fn a_failure_tells_sends_from_receives_by_their_ids_alone() {
        for opcode in [0, 1, 128, 129, 77, u32::MAX] {
            let send = completion(&wc(12 | OF_SEND, 10, opcode));
            assert_eq!((send.wr_id, send.opcode), (12, CompletionOpcode::Send));
            assert_eq!(send.status, Status::RemoteAccessError);
            let receive = completion(&wc(12, 5, opcode));
            assert_eq!(receive.opcode, CompletionOpcode::Recv);
            assert_eq!((receive.byte_len, receive.vendor_err), (0, 7));
            assert_eq!((receive.immediate, receive.grh), (Immediate::None, None));
        }
    }

    #[test]
    fn nonsense_of_a_library_is_still_a_completion() {
        assert_eq!(status(3), Status::GeneralError);
        assert_eq!(status(u32::MAX), Status::GeneralError);
        assert_eq!(status(21), Status::GeneralError);
        let odd = completion(&wc(1 | OF_SEND, 0, 128));
        assert_eq!((odd.opcode, odd.byte_len), (CompletionOpcode::Send, 0));
        let odd = completion(&wc(1, 0, 2));
        assert_eq!((odd.opcode, odd.byte_len), (CompletionOpcode::Recv, 99));
        let port = ibv_port_attr {
            max_mtu: 9,
            gid_tbl_len: -1,
            ..port_of_zeros()
        };
        let port = port_attr(&port);
        assert_eq!((port.gid_tbl_len, port.max_mtu), (0, PathMtu::M256));
        assert_eq!(text(&[b'a' as c_char; 4]), "aaaa");
    }

    fn port_of_zeros() -> ibv_port_attr {
        ibv_port_attr {
            state: 0,
            max_mtu: 0,
            active_mtu: 0,
            gid_tbl_len: 0,
            port_cap_flags: 0,
            max_msg_sz: 0,
            bad_pkey_cntr: 0,
            qkey_viol_cntr: 0,
            pkey_tbl_len: 0,
            lid: 0,
            sm_lid: 0,
            lmc: 0,
            max_vl_num: 0,
            sm_sl: 0,
            subnet_timeout: 0,
            init_type_reply: 0,
            active_width: 0,
            active_speed: 0,
            phys_state: 0,
            link_layer: 0,
            flags: 0,
            port_cap_flags2: 0,
            active_speed_ex: 0,
        }
    }
}
