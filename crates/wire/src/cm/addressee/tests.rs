use super::*;
use crate::cm::{
    Answered, Drep, Dreq, Message, Mra, PortSpace, Rej, RejectReason, Rtu, SidrRep, SidrReq,
    SidrStatus, private_data,
};

const ME: u32 = 0x0012_3456;
const PEER: u32 = 0x8888_7777;

fn of(message: Message) -> Addressee {
    let mad = Mad {
        tid: 9,
        attr_modifier: 0,
        message,
    };
    Addressee::of(&mad.emit())
}

#[test]
fn answers_name_the_id_of_their_receiver() {
    let (local_id, remote_id) = (PEER, ME);
    for message in [
        Message::Rtu(Rtu {
            local_id,
            remote_id,
            private_data: [0; 224],
        }),
        Message::Mra(Mra {
            local_id,
            remote_id,
            message: Answered::Req,
            service_timeout: 24,
            private_data: [0; 222],
        }),
        Message::Rej(Rej {
            local_id: 0,
            remote_id,
            message: Answered::Req,
            info_len: 0,
            reason: RejectReason::INVALID_SERVICE_ID,
            additional_info: [0; 72],
            private_data: [0; 148],
        }),
        Message::Dreq(Dreq {
            local_id,
            remote_id,
            remote_qpn: 17,
            private_data: [0; 220],
        }),
        Message::Drep(Drep {
            local_id,
            remote_id,
            private_data: [0; 224],
        }),
        Message::SidrRep(SidrRep {
            request_id: ME,
            status: SidrStatus::VALID,
            info_len: 0,
            qpn: 17,
            service_id: ServiceId::new(PortSpace::Udp, 7174),
            qkey: 1,
            additional_info: [0; 72],
            private_data: [0; 136],
        }),
    ] {
        assert_eq!(of(message), Addressee::Connection(ME), "{message:?}");
    }
}

#[test]
fn a_rejection_of_a_requester_that_never_heard_from_us_names_nobody() {
    let rej = Rej {
        local_id: PEER,
        remote_id: 0,
        message: Answered::Req,
        info_len: 8,
        reason: RejectReason::TIMEOUT,
        additional_info: [0; 72],
        private_data: [0; 148],
    };
    assert_eq!(of(Message::Rej(rej)), Addressee::Nobody);
}

fn sidr_req(service_id: ServiceId, private: &[u8]) -> Message {
    Message::SidrReq(SidrReq {
        request_id: PEER,
        pkey: 0xffff,
        service_id,
        private_data: private_data(private).unwrap(),
    })
}

#[test]
fn requests_name_service_and_address() {
    for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let dst: IpAddr = dst.parse().unwrap();
        let header = IpCmHeader {
            src_port: 52583,
            src: src.parse().unwrap(),
            dst,
        };
        let mut private = [0; IpCmHeader::LEN];
        header.emit(&mut private);
        let service = ServiceId::new(PortSpace::Udp, 7174);
        assert_eq!(
            of(sidr_req(service, &private)),
            Addressee::Service(service, Some(dst))
        );
        // Of another version: the service is known all the same.
        private[0] = 1;
        assert_eq!(
            of(sidr_req(service, &private)),
            Addressee::Service(service, None)
        );
        // A service that is none of rdma_cm's has no such header, whatever its private data look
        // like.
        private[0] = 0;
        let service = ServiceId(0x1000_0000_0106_1d2f);
        assert_eq!(
            of(sidr_req(service, &private)),
            Addressee::Service(service, None)
        );
    }
}

#[test]
fn what_is_no_message_is_for_nobody() {
    let service = ServiceId::new(PortSpace::Tcp, 7471);
    let mad = Mad {
        tid: 9,
        attr_modifier: 0,
        message: sidr_req(service, &[]),
    };
    let good = mad.emit();
    assert_eq!(Addressee::of(&good), Addressee::Service(service, None));
    assert_eq!(Addressee::of(&[]), Addressee::Nobody);
    assert_eq!(Addressee::of(&good[..255]), Addressee::Nobody);
    // Versions, class, method, attribute.
    for at in [0, 1, 2, 3, 16, 17] {
        let mut bad = good;
        bad[at] ^= 0x80;
        assert_eq!(Addressee::of(&bad), Addressee::Nobody, "byte {at}");
    }
}
