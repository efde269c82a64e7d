use crate::{Context, device};

/// Raw work requests are safe to post, so no safe call may lead from a number to a domain whose
/// buffers are lent as slices.
#[test]
fn a_domain_is_not_found_by_its_number() {
    let context = Context::open().expect("the device opens");
    let pd = context.alloc_pd().expect("pd");
    let (device::Context::Software(raw_context), device::Pd::Software(raw)) =
        (&context.raw, pd.raw())
    else {
        panic!("the software NIC");
    };
    let found = raw_context.import_pd(raw.number());
    assert_eq!(found.expect_err("not to be found").errno(), libc::ENOENT);
    // Those of the layer beneath are.
    let raw = raw_context.alloc_pd();
    let found = raw_context.import_pd(raw.number());
    assert_eq!(found.expect("found").number(), raw.number());
}
