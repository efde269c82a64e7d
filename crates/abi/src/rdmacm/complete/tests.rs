use super::outcome;
use crate::c::cm::*;

fn of(event: u32, status: i32) -> Result<(), i32> {
    // SAFETY: integers and pointers.
    let mut c: rdma_cm_event = unsafe { std::mem::zeroed() };
    (c.event, c.status) = (event, status);
    outcome(&c).map_err(|refusal| refusal.errno())
}

#[test]
fn a_failure_becomes_errno_as_librdmacm_has_it() {
    assert_eq!(of(RDMA_CM_EVENT_ESTABLISHED, 0), Ok(()));
    // The status of a rejection is a reason, not an errno.
    assert_eq!(of(RDMA_CM_EVENT_REJECTED, 28), Err(libc::ECONNREFUSED));
    assert_eq!(of(RDMA_CM_EVENT_UNREACHABLE, -110), Err(110));
    assert_eq!(of(RDMA_CM_EVENT_CONNECT_ERROR, 22), Err(22));
    assert_eq!(of(RDMA_CM_EVENT_ADDR_ERROR, i32::MIN), Err(i32::MAX));
}
