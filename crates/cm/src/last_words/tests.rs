use super::*;

fn some() -> LastWords {
    LastWords {
        local_id: 0x1230_0001,
        remote_id: 0x8888_7777,
        remote_qpn: 0xab_cdef,
        address: Address {
            local_gid: Gid([1; 16]),
            remote_gid: Gid([2; 16]),
            flow_label: 0xf_1234,
            traffic_class: 0x6a,
            hop_limit: 64,
            pkey: 0xffff,
        },
    }
}

#[test]
fn a_record_says_it_all() {
    assert_eq!(LastWords::from_bytes(&some().to_bytes()), Some(some()));
}

/// The file may be half written, or somebody may have written to it.
#[test]
fn what_is_no_record_is_refused() {
    assert_eq!(LastWords::from_bytes(&[0; LastWords::LEN]), None);
    let good = some().to_bytes();
    for at in 0..LastWords::LEN {
        let mut bad = good;
        bad[at] ^= 0x10;
        assert_eq!(LastWords::from_bytes(&bad), None, "byte {at}");
        let mut cut = good;
        cut[at..].fill(0);
        assert_eq!(LastWords::from_bytes(&cut), None, "written up to {at}");
    }
}
