//! Other users of this host may send from each of its addresses, to QP 1 as well.

use std::time::Duration;

use rnic_nic::cm::EventKind;
use rnic_nic::{QpState, device_guid};
use rnic_wire::cm::{
    Answered, Dreq, Mad, Message, PortSpace, QP1_QKEY, Rej, RejectReason, Req, ReqPath, ServiceId,
    Transport,
};
use rnic_wire::{Bth, Deth, Ext, Gid, Opcode, Operation, Service, emit};

use super::connect::connected;
use super::tools::{HOST, channel, expect, waits};
use crate::stranger::{HERE, Stranger};

/// A message from QP 1 to QP 1.
fn packet(message: Message) -> Vec<u8> {
    let bth = Bth {
        opcode: Opcode::new(Service::Ud, Operation::SendOnly),
        pkey: 0xffff,
        dest_qp: 1,
        ..Bth::default()
    };
    let ext = Ext {
        deth: Some(Deth {
            qkey: QP1_QKEY,
            src_qp: 1,
        }),
        ..Ext::default()
    };
    let mut packet = vec![0; Bth::LEN + Deth::LEN];
    emit(&bth, &ext, &mut packet);
    let mad = Mad {
        tid: 0x6666,
        attr_modifier: 0,
        message,
    };
    packet.extend_from_slice(&mad.emit());
    packet
}

/// "My queue pair wants another connection, so the old one is dead."
fn claim(local_id: u32, qpn: u32) -> Message {
    let path = ReqPath {
        local_gid: Gid::from(HERE),
        remote_gid: Gid::from(HERE),
        hop_limit: 64,
        ack_timeout: 14,
        ..ReqPath::default()
    };
    Message::Req(Req {
        local_id,
        vendor_id: 0,
        service_id: ServiceId::new(PortSpace::Tcp, 1),
        ca_guid: device_guid(),
        qkey: 0,
        qpn,
        responder_resources: 1,
        local_eecn: 0,
        initiator_depth: 1,
        remote_eecn: 0,
        remote_response_timeout: 20,
        transport: Transport::Rc,
        flow_control: false,
        starting_psn: 0x66,
        local_response_timeout: 20,
        retry_count: 7,
        pkey: 0xffff,
        path_mtu: 3,
        rdc_exists: false,
        rnr_retry_count: 7,
        max_cm_retries: 15,
        srq: false,
        primary: path,
        alternate: ReqPath::default(),
        private_data: [0; 92],
    })
}

/// Whoever has seen the start PSNs of some connections does not know the next one's.
#[test]
fn start_psns_come_in_no_order() {
    let (ours, theirs) = (channel(), channel());
    let mut psns: Vec<u32> = (0..16)
        .flat_map(|_| {
            let (client, server) = connected(&ours, &theirs);
            let psns = [&client, &server].map(|id| {
                let (attr, _) = id.init_qp_attr(QpState::Rtr).expect("a connection");
                attr.rq_psn
            });
            client.disconnect().expect("disconnected");
            expect(&theirs, EventKind::Disconnected);
            server.disconnect().expect("so it is");
            expect(&ours, EventKind::Disconnected);
            psns
        })
        .collect();
    let steps = psns.windows(2).map(|w| w[1].abs_diff(w[0]));
    let near = steps.filter(|step| *step < 256).count();
    assert!(near < 4, "{psns:x?}");
    psns.sort_unstable();
    psns.dedup();
    assert!(psns.len() >= 31, "{psns:x?}");
}

/// Of a connection everything is known but its communication ids; the range in them can be learned.
#[test]
fn a_stranger_ends_no_connection() {
    let _alone = HOST.read();
    let (ours, theirs) = (channel(), channel());
    let (client, server) = connected(&ours, &theirs);
    let peer = |id: &rnic_nic::cm::Id| {
        let (attr, _) = id.init_qp_attr(QpState::Rtr).expect("a connection");
        attr.dest_qp_num
    };
    let qpns = [peer(&server), peer(&client)];
    let stranger = Stranger::new();
    // Any range: its own is that of its first queue pairs.
    for range in [0, 5, 0xfff] {
        for qpn in qpns {
            for counter in 0..16 {
                let id = range << 20 | counter;
                stranger.send(&packet(claim(id, qpn)));
                stranger.send(&packet(Message::Dreq(Dreq {
                    local_id: id,
                    remote_id: id ^ 1,
                    remote_qpn: qpn,
                    private_data: [0; 220],
                })));
                let guid = device_guid().to_be_bytes();
                let mut info = [0; 72];
                info[..8].copy_from_slice(&guid);
                for remote_id in [0, id ^ 1] {
                    stranger.send(&packet(Message::Rej(Rej {
                        local_id: id,
                        remote_id,
                        message: Answered::Req,
                        info_len: 8,
                        reason: RejectReason::TIMEOUT,
                        additional_info: info,
                        private_data: [0; 148],
                    })));
                }
            }
        }
    }
    // A request of this process comes behind all of that, so it has been taken in.
    let (more, other) = connected(&ours, &theirs);
    more.disconnect().expect("disconnected");
    expect(&theirs, EventKind::Disconnected);
    other.disconnect().expect("so it is");
    expect(&ours, EventKind::Disconnected);
    drop((more, other));
    assert!(!waits(&theirs, Duration::ZERO) && !waits(&ours, Duration::ZERO));
    // The peer's own word still counts.
    client.disconnect().expect("disconnected");
    expect(&theirs, EventKind::Disconnected);
    server.disconnect().expect("so it is");
    expect(&ours, EventKind::Disconnected);
}
