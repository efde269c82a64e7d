//! `rdma_set_option(3)`, and the ports of an id.

use core::ffi::{c_int, c_void};

use rnic_nic::cm::{IdOption, PathRecord};
use rnic_nic::{Gid, PathMtu};

use super::address;
use super::id::{self, IdObject};
use crate::c::cm::*;
use crate::c::ibv_gid;
use crate::export::seam::{self, EINVAL, Refusal, Result, Verb};
use crate::export::symbols::export;

/// The value of an option, which has to have its size.
///
/// # Safety
/// NULL, or `len` bytes.
unsafe fn value<T: Copy>(value: *const c_void, len: usize) -> Result<T> {
    if len != size_of::<T>() {
        return Err(EINVAL.because(format!(
            "the value has {len} bytes, the option {}",
            size_of::<T>()
        )));
    }
    if value.is_null() {
        return Err(Refusal::new(libc::EFAULT).because("the value is NULL"));
    }
    // SAFETY: by contract as long as a `T`, which is an integer or a structure of integers.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

/// # Safety
/// As [`value`].
unsafe fn option(level: u32, name: u32, val: *const c_void, len: usize) -> Result<IdOption> {
    // SAFETY: by contract.
    unsafe {
        Ok(match (level, name) {
            (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => IdOption::Tos(value(val, len)?),
            (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => {
                IdOption::ReuseAddr(value::<c_int>(val, len)? != 0)
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => {
                IdOption::AfOnly(value::<c_int>(val, len)? != 0)
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => IdOption::AckTimeout(value(val, len)?),
            (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => IdOption::Path(path(val, len)?),
            _ => {
                return Err(Refusal::new(libc::ENOSYS)
                    .because(format!("there is no option {name} of level {level}"))
                    .answer());
            }
        })
    }
}

/// The first complete one among several path records, which is all that a connection without
/// alternates has use for.
///
/// # Safety
/// As [`value`].
unsafe fn path(val: *const c_void, len: usize) -> Result<PathRecord> {
    const NEEDED: u32 = 1 | 1 << 1; // IB_PATH_GMP | IB_PATH_PRIMARY
    let size = size_of::<ibv_path_data>();
    if len == 0 || !len.is_multiple_of(size) {
        return Err(EINVAL.because(format!("the value has {len} bytes, a path record {size}")));
    }
    if val.is_null() {
        return Err(Refusal::new(libc::EFAULT).because("the value is NULL"));
    }
    for index in 0..len / size {
        // SAFETY: by contract that many structures of integers.
        let data: ibv_path_data =
            unsafe { val.cast::<ibv_path_data>().add(index).read_unaligned() };
        const WAYS: u32 = 1 << 3 | 1 << 5; // IB_PATH_BIDIRECTIONAL
        if data.flags == NEEDED | WAYS {
            return path_from_c(&data.path);
        }
    }
    Err(EINVAL.because("no path record is primary, for GMPs, and bidirectional"))
}

fn path_from_c(path: &ibv_path_record) -> Result<PathRecord> {
    let flow = u32::from_be(path.flowlabel_hoplimit);
    let gid = |gid: &ibv_gid| Gid(gid.raw);
    Ok(PathRecord {
        dgid: gid(&path.dgid),
        sgid: gid(&path.sgid),
        flow_label: flow >> 8 & 0xf_ffff,
        hop_limit: flow as u8,
        traffic_class: path.tclass,
        pkey: u16::from_be(path.pkey),
        sl: (u16::from_be(path.qosclass_sl) & 0xf) as u8,
        mtu: PathMtu::from_ibv(u32::from(path.mtu & 0x3f))
            .ok_or_else(|| EINVAL.because(format!("mtu of the path is {}", path.mtu & 0x3f)))?,
        rate: path.rate & 0x3f,
        packet_life_time: path.packetlifetime & 0x3f,
    })
}

/// Gives an id its path, an array of path records in the wire's form, as `RDMA_OPTION_IB_PATH`
/// does.
///
/// # Safety
/// NULL, or `len` bytes.
pub unsafe fn set_path(id: &IdObject, val: *const c_void, len: usize) -> Result<()> {
    // SAFETY: by contract.
    let option = unsafe { option(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, val, len) }?;
    Ok(id.nic().set_option(option)?)
}

unsafe extern "C" fn set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    val: *mut c_void,
    len: usize,
) -> c_int {
    Verb("rdma_set_option").does(|| {
        let id = id::from_c(id)?;
        // SAFETY: the caller's value, as long as it says.
        let option = unsafe { option(level as u32, name as u32, val, len) }?;
        id.nic().set_option(option)?;
        Ok(0)
    })
}

/// `rdma_get_src_port(3)`: in network byte order, 0 before it is bound.
extern "C" fn get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: a plain field of a live id.
    port(id, |c| unsafe { &(*c).route.addr.src_storage })
}

extern "C" fn get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: a plain field of a live id.
    port(id, |c| unsafe { &(*c).route.addr.dst_storage })
}

fn port<'a>(
    id: *mut rdma_cm_id,
    field: impl FnOnce(*mut rdma_cm_id) -> &'a libc::sockaddr_storage,
) -> u16 {
    let mut port = 0;
    seam::quiet(|| {
        port = address::port(field(id::find(id)?.c()));
        Ok(())
    });
    port
}

export! {
    rdma_set_option @@ "RDMACM_1.0" => set_option;
    rdma_get_src_port @@ "RDMACM_1.0" => get_src_port;
    rdma_get_dst_port @@ "RDMACM_1.0" => get_dst_port;
}
