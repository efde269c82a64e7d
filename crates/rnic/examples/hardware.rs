//! Which devices there are, and what the one can do that `RNIC_DEVICE` names:
//!
//! ```text
//! cargo run --example hardware
//! RNIC_DEVICE=mlx5_0 cargo run --example hardware
//! ```
//! Then it registers a page, and has the device write into it by itself.
#![forbid(unsafe_code)]

use std::time::Duration;

use rnic::{Context, Rc, Result, SendRequest, devices};

/// Lists, asks, tries.
pub fn main() -> Result<()> {
    for device in devices() {
        println!("{:20} {:?}", device.name(), device.back_end());
    }
    let context = Context::open()?;
    println!("{}: {:#?}", context.name(), context.capabilities());
    for entry in context.gid_table() {
        println!("GID {}: {}", entry.index, entry.addr);
    }
    let gid = context.routable_gid(1)?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(16).build()?;
    let prepared = pd.create_qp::<Rc>(&cq, &cq).gid(&gid).build()?;
    let itself = prepared.endpoint();
    let qp = prepared.handshake(itself)?;
    let page = pd.writable(4096).build()?;
    qp.post(SendRequest::write(
        pd.buffer_from(b"by the device")?,
        page.remote(),
    ))?;
    cq.wait(Duration::from_secs(10))?.ok()?;
    let mut written = [0; 13];
    page.copy_out(0, &mut written)?;
    assert_eq!(&written, b"by the device");
    println!(
        "it wrote {:?} to its own memory",
        written.escape_ascii().to_string()
    );
    Ok(())
}
