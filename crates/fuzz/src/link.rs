//! What other processes send to a process's hand-over socket, and what people write into the
//! environment.

use rnic_host::handover;
use rnic_host::steering::Probe;
use rnic_link::{FaultSpec, XdpSpec};

/// Any bytes as a message that came to the hand-over socket: its records lie in it, one behind the
/// other, none is empty, and a header that is written again reads the same. Any bytes as a probe.
pub(crate) fn handover(bytes: &[u8]) {
    let mut at = 0;
    for (train, capture, packets) in handover::records(bytes) {
        assert!(train.len > 0 && train.segment > 0);
        at += handover::HEADER_LEN;
        assert_eq!(packets, &bytes[at..at + train.len]);
        let mut again = handover::encode_header(&train, capture).to_vec();
        again.extend_from_slice(packets);
        let read = handover::decode_header(&again).expect("its own");
        assert_eq!(format!("{read:?}"), format!("{train:?}"));
        at += train.len;
    }
    assert!(at <= bytes.len());
    if let Some(probe) = Probe::decode(bytes) {
        assert_eq!(Probe::decode(&probe.encode()), Some(probe));
    }
}

/// Any text as `RNIC_FAULTS` and as `RNIC_XDP`: probabilities are some, and what is shown reads the
/// same.
pub(crate) fn settings(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    if let Ok(spec) = text.parse::<FaultSpec>() {
        for chance in [spec.drop, spec.duplicate, spec.reorder, spec.corrupt] {
            assert!((0.0..=1.0).contains(&chance));
        }
        assert!(spec.delay_ns <= 10_000_000_000);
        let shown = spec.to_string();
        assert_eq!(shown.parse(), Ok(spec), "{shown}");
    }
    if let Ok(spec) = text.parse::<XdpSpec>() {
        let shown = spec.to_string();
        assert_eq!(shown.parse(), Ok(spec), "{shown}");
    }
}
