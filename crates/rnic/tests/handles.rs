//! The objects beneath, with the feature `raw`.

use rnic::handles::{AsHandle, Handle};
use rnic::{BackEnd, Context};

use crate::loopback::pair;

/// Each handle has the object of its back end, of the right type.
#[test]
fn the_objects_beneath_are_those_of_the_back_end() {
    let (left, _right) = pair();
    let context = Context::open().expect("the device opens");
    let region = left.pd.writable(64).build().expect("memory");
    let all: [(&str, &dyn AsHandle); 5] = [
        ("context", &context),
        ("pd", &left.pd),
        ("cq", &left.cq),
        ("qp", &left.qp),
        ("mr", &region),
    ];
    for (name, object) in all {
        // SAFETY: it is looked at, and nothing is done by it.
        match (unsafe { object.handle() }, context.back_end()) {
            (Handle::Software(any), BackEnd::Software) => {
                let right = match name {
                    "context" => any.is::<rnic_nic::Context>(),
                    "pd" => any.is::<rnic_nic::Pd>(),
                    "cq" => any.is::<rnic_nic::Cq>(),
                    "qp" => any.is::<rnic_nic::Qp>(),
                    _ => any.is::<rnic_nic::Mr>(),
                };
                assert!(right, "{name}");
            }
            (Handle::System(pointer), BackEnd::System) => {
                assert!(pointer.is_aligned(), "{name}");
            }
            (handle, back_end) => panic!("{name}: {handle:?} of {back_end:?}"),
        }
    }
}

/// What the object says of itself is what the handle says.
#[test]
fn an_object_beneath_is_the_very_same() {
    let (left, _right) = pair();
    // SAFETY: it is looked at, and nothing is done by it.
    let number = match unsafe { left.qp.handle() } {
        Handle::Software(any) => any.downcast_ref::<rnic_nic::Qp>().expect("a Qp").qpn(),
        // SAFETY: an `ibv_qp` that is alive; its number is 52 bytes from the start (verbs.h).
        Handle::System(pointer) => unsafe { pointer.byte_add(52).cast::<u32>().read() },
        other => panic!("{other:?}"),
    };
    assert_eq!(number, left.qp.qpn());
}
