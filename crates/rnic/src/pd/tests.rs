use crate::Context;

/// Raw work requests are safe to post, so no safe call may lead from a number to a domain whose
/// buffers are lent as slices.
#[test]
fn a_domain_is_not_found_by_its_number() {
    let context = Context::open().expect("the device opens");
    let pd = context.alloc_pd().expect("pd");
    let found = context.raw.import_pd(pd.nic().number());
    assert_eq!(found.expect_err("not to be found").errno(), libc::ENOENT);
    // Those of the layer beneath are.
    let raw = context.raw.alloc_pd();
    let found = context.raw.import_pd(raw.number());
    assert_eq!(found.expect("found").number(), raw.number());
}
