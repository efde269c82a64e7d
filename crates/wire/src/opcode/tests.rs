use super::*;
use std::vec::Vec;

/// The codes below 32 that `service` defines.
fn defined(service: Service) -> Vec<u8> {
    (0..32)
        .filter(|code| Opcode(service.code() << 5 | code).operation().is_some())
        .collect()
}

#[test]
fn each_service_has_its_operations() {
    let all_but_resync: Vec<u8> = (0..=20).chain([22, 23, 28, 29]).collect();
    assert_eq!(defined(Service::Rc), all_but_resync);
    assert_eq!(defined(Service::Xrc), all_but_resync);
    assert_eq!(defined(Service::Uc), (0..=11).collect::<Vec<_>>());
    assert_eq!(defined(Service::Rd), (0..=21).collect::<Vec<_>>());
    assert_eq!(defined(Service::Ud), [4, 5]);
    for service in [Service::Cnp, Service::Other(6), Service::Other(7)] {
        assert_eq!(defined(service), []);
    }
}

#[test]
fn code_points_are_values() {
    for byte in 0..=255 {
        let opcode = Opcode(byte);
        assert_eq!(opcode.service().code(), byte >> 5);
        if let Some(operation) = opcode.operation() {
            assert_eq!(Opcode::new(opcode.service(), operation), opcode);
        }
    }
    for (i, operation) in Operation::ALL.into_iter().enumerate() {
        assert_eq!(Operation::from_code(operation as u8), Some(operation));
        let code = if i < 24 { i } else { i + 4 };
        assert_eq!(operation as usize, code);
    }
    let reserved: Vec<u8> = (0..=255)
        .filter(|code| Operation::from_code(*code).is_none())
        .collect();
    assert_eq!(reserved.len(), 256 - Operation::ALL.len());
    assert_eq!(Opcode::CNP.service(), Service::Cnp);
    assert_eq!(Opcode::CNP.operation(), None);
    assert_eq!(Opcode::new(Service::Rc, Operation::SendOnly).0, 0x04);
    assert_eq!(Opcode::new(Service::Ud, Operation::SendOnly).0, 0x64);
    assert_eq!(Opcode::new(Service::Xrc, Operation::FetchAdd).0, 0xb4);
}

#[test]
fn positions_and_directions() {
    use Operation::*;
    for operation in Operation::ALL {
        let positions = [
            operation.is_first(),
            operation.is_middle(),
            operation.is_last(),
            operation.is_only(),
        ];
        assert_eq!(
            positions.into_iter().filter(|&p| p).count(),
            1,
            "{operation:?}"
        );
        assert_ne!(
            operation.is_request(),
            operation.is_response(),
            "{operation:?}"
        );
    }
    assert!(ReadRequest.is_only() && !ReadRequest.has_payload());
    assert!(ReadResponseMiddle.has_payload() && !ReadResponseMiddle.has_aeth());
    assert!(AtomicAcknowledge.has_aeth() && AtomicAcknowledge.has_atomic_ack());
    assert!(!WriteLastImm.has_reth() && WriteLastImm.has_immediate() && WriteLastImm.is_last());
    assert!(Flush.is_request() && Flush.has_reth() && Flush.has_feth() && !Flush.has_payload());
    assert!(Resync.is_request() && !Resync.has_payload());
}
