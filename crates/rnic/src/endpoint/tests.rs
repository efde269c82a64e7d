use super::*;

fn sample() -> Endpoint {
    Endpoint {
        gid: Gid::from(IpAddr::from([10, 0, 0, 7])),
        qpn: 0x12_3456,
        psn: 0xff_fffe,
        path_mtu: PathMtu::M4096,
    }
}

#[test]
fn endpoint_round_trips() {
    for mtu in PathMtu::ALL {
        let endpoint = Endpoint {
            path_mtu: mtu,
            ..sample()
        };
        assert_eq!(
            Endpoint::from_bytes(&endpoint.to_bytes()).unwrap(),
            endpoint
        );
    }
    assert_eq!(sample().addr(), IpAddr::from([10, 0, 0, 7]));
}

#[test]
fn damaged_endpoints_are_refused() {
    let good = sample().to_bytes();
    assert!(Endpoint::from_bytes(&good[..31]).is_err());
    assert!(Endpoint::from_bytes(&[]).is_err());
    for (at, value) in [(0, 0u8), (4, 2), (5, 0), (5, 6), (6, 1), (24, 1), (28, 1)] {
        let mut bytes = good;
        bytes[at] = value;
        assert!(Endpoint::from_bytes(&bytes).is_err(), "byte {at} = {value}");
    }
}

#[test]
fn remote_memory_slices_stay_inside() {
    let memory = RemoteMemory {
        addr: 0x1000,
        len: 100,
        rkey: 7,
    };
    assert_eq!(
        RemoteMemory::from_bytes(&memory.to_bytes()).unwrap(),
        memory
    );
    assert_eq!(memory.slice(10, 90).unwrap().addr, 0x100a);
    assert!(memory.slice(10, 91).is_err());
    assert!(memory.slice(u64::MAX, 2).is_err());
    assert!(RemoteMemory::from_bytes(&[0; 19]).is_err());
}

#[cfg(feature = "serde")]
#[test]
fn serde_round_trips() {
    let text = serde_json::to_string(&sample()).unwrap();
    assert_eq!(serde_json::from_str::<Endpoint>(&text).unwrap(), sample());
    assert!(serde_json::from_str::<Endpoint>(&text.replacen("82", "83", 1)).is_err());
}
