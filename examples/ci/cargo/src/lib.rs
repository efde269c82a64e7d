//! A sample of a project over libibverbs, by the crate sideway: a queue pair that is connected with
//! itself.

use std::error::Error;

use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::completion::{GenericCompletionQueue, WorkCompletionStatus};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::queue_pair::{
    PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState, SetScatterGatherEntry,
    WorkRequestFlags,
};
use sideway::ibverbs::AccessFlags;

/// Writes 64 bytes by RDMA WRITE into the second half of a buffer of 128 bytes, `past` bytes behind
/// its start. Returns the completion's status, and whether the bytes have arrived.
pub fn write_to_itself(past: u64) -> Result<(u32, bool), Box<dyn Error>> {
    let devices = DeviceList::new()?;
    let device = devices.iter().next().ok_or("no RDMA device")?;
    let context = device.open()?;
    let pd = context.alloc_pd()?;
    let mut memory = vec![0u8; 128];
    memory[..64].fill(7);
    let access = AccessFlags::LocalWrite | AccessFlags::RemoteWrite;
    // SAFETY: the memory outlives the region, which is dropped first.
    let region = unsafe { pd.reg_mr(memory.as_ptr() as _, memory.len(), access)? };
    let cq = GenericCompletionQueue::from(context.create_cq_builder().setup_cqe(16).build()?);
    let mut builder = pd.create_qp_builder();
    let mut qp = builder
        .setup_send_cq(cq.clone())
        .setup_recv_cq(cq.clone())
        .build()?;

    let mut attr = QueuePairAttribute::new();
    attr.setup_state(QueuePairState::Init)
        .setup_pkey_index(0)
        .setup_port(1)
        .setup_access_flags(access);
    qp.modify(&attr)?;
    let gids = context.query_gid_table()?;
    let gid = gids
        .iter()
        .find(|gid| !gid.gid().is_unicast_link_local())
        .ok_or("no address")?;
    let mut way = AddressHandleAttribute::new();
    way.setup_port(1)
        .setup_grh_src_gid_index(gid.gid_index().try_into()?)
        .setup_grh_dest_gid(&gid.gid())
        .setup_grh_hop_limit(64);
    let mut attr = QueuePairAttribute::new();
    attr.setup_state(QueuePairState::ReadyToReceive)
        .setup_path_mtu(Mtu::Mtu1024)
        .setup_dest_qp_num(qp.qp_number())
        .setup_rq_psn(1)
        .setup_max_dest_read_atomic(1)
        .setup_min_rnr_timer(12)
        .setup_address_vector(&way);
    qp.modify(&attr)?;
    let mut attr = QueuePairAttribute::new();
    attr.setup_state(QueuePairState::ReadyToSend)
        .setup_sq_psn(1)
        .setup_timeout(14)
        .setup_retry_cnt(7)
        .setup_rnr_retry(7)
        .setup_max_read_atomic(1);
    qp.modify(&attr)?;

    let start = memory.as_ptr() as u64;
    let mut guard = qp.start_post_send();
    let request = guard
        .construct_wr(1, WorkRequestFlags::Signaled)
        .setup_write(region.rkey(), start + 64 + past);
    // SAFETY: the entry lies within the region, which is there until the completion has come.
    unsafe { request.setup_sge(region.lkey(), start, 64) };
    guard.post()?;
    loop {
        if let Ok(mut completions) = cq.start_poll() {
            if let Some(completion) = completions.next() {
                let status = completion.status();
                let arrived = status == WorkCompletionStatus::Success as u32
                    && memory[64..].iter().all(|byte| *byte == 7);
                return Ok((status, arrived));
            }
        }
    }
}
