//! Multicast: one datagram for all members of a group.
#![forbid(unsafe_code)]

use std::net::IpAddr;
use std::time::Duration;

use rnic::{Context, Destination, HEADER_LEN, MULTICAST_QPN, Result, SendRequest, Ud};

/// Three members hear one sender.
pub fn main() -> Result<()> {
    let context = Context::open()?;
    let gid = context.loopback_gid()?;
    if !context.capabilities().multicast || gid.addr.is_ipv6() {
        println!("{} has no groups at {}", context.name(), gid.addr);
        return Ok(());
    }
    let group = IpAddr::from([239, 1, 2, 3]);
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(64).build()?;
    let mut members = Vec::new();
    for _ in 0..3 {
        let member = pd.create_qp::<Ud>(&cq, &cq).gid(&gid).build()?;
        member.attach(group)?;
        member.post_recv(pd.buffer(HEADER_LEN + 64)?, 0)?;
        members.push(member);
    }
    let send_cq = context.create_cq(16).build()?;
    let sender = pd.create_qp::<Ud>(&send_cq, &send_cq).gid(&gid).build()?;
    let all = Destination {
        ah: pd.create_ah(&gid, group)?,
        qpn: MULTICAST_QPN,
        qkey: members[0].qkey(),
    };
    sender.post(SendRequest::send_inline(b"to all of you"), &all)?;
    for _ in &members {
        let heard = cq.wait(Duration::from_secs(10))?.ok()?;
        assert_eq!(heard.message(), b"to all of you");
        println!("QP {} heard it", heard.qpn());
    }
    Ok(())
}
