//! Questions about the device, its port, GIDs and P_Keys.

use core::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicI64, Ordering};

use rnic_nic::{Context, GidEntry, MAX_CQ_PERIOD, PortAttr, PortState, key_violations};

use crate::c::*;
use crate::convert::strings::set_text;
use crate::export::seam::{EINVAL, EOPNOTSUPP, NULL, Refusal, Result, Verb};
use crate::export::symbols::export;
use crate::handles::context::nic;

/// Completion timestamps count nanoseconds of CLOCK_MONOTONIC: a clock of 1 000 000 kHz.
const CORE_CLOCK_KHZ: u64 = 1_000_000;

/// Copies the first `len` bytes of `value` to `to` and zeroes what the caller has beyond our
/// structure.
///
/// # Safety
/// `to` has room for `len` bytes.
unsafe fn copy_out<T: Copy>(value: &T, to: *mut T, len: usize) {
    let ours = len.min(size_of::<T>());
    // SAFETY: `ours` bytes are in both, the rest is the caller's by contract.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const *value).cast::<u8>(), to.cast::<u8>(), ours);
        std::ptr::write_bytes(to.cast::<u8>().add(ours), 0, len - ours);
    }
}

fn int(value: u32) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

/// A counter that stays at its greatest value, as those of a port do.
fn saturated(count: u64) -> u32 {
    count.try_into().unwrap_or(u32::MAX)
}

fn device_attr(context: &Context) -> ibv_device_attr {
    let nic = context.device_attr();
    // SAFETY: integers and chars only.
    let mut attr: ibv_device_attr = unsafe { std::mem::zeroed() };
    set_text(&mut attr.fw_ver, &nic.fw_ver);
    attr.node_guid = nic.guid.to_be();
    attr.sys_image_guid = nic.guid.to_be();
    attr.max_mr_size = nic.max_mr_size;
    attr.page_size_cap = nic.page_size_cap;
    attr.vendor_id = nic.vendor_id;
    attr.vendor_part_id = nic.vendor_part_id;
    attr.hw_ver = nic.hw_ver;
    attr.max_qp = int(nic.max_qp);
    attr.max_qp_wr = int(nic.max_qp_wr);
    attr.device_cap_flags = nic.device_cap_flags;
    attr.max_sge = int(nic.max_sge);
    attr.max_sge_rd = int(nic.max_sge_rd);
    attr.max_srq = int(nic.max_srq);
    attr.max_srq_wr = int(nic.max_srq_wr);
    attr.max_srq_sge = int(nic.max_srq_sge);
    attr.max_cq = int(nic.max_cq);
    attr.max_cqe = int(nic.max_cqe);
    attr.max_mr = int(nic.max_mr);
    attr.max_mw = int(nic.max_mw);
    attr.max_pd = int(nic.max_pd);
    attr.max_qp_rd_atom = int(nic.max_qp_rd_atom);
    attr.max_res_rd_atom = int(nic.max_res_rd_atom);
    attr.max_qp_init_rd_atom = int(nic.max_qp_init_rd_atom);
    attr.max_ah = int(nic.max_ah);
    attr.max_mcast_grp = int(nic.max_mcast_grp);
    attr.max_mcast_qp_attach = int(nic.max_qp);
    attr.max_total_mcast_qp_attach = int(nic.max_qp);
    attr.atomic_cap = IBV_ATOMIC_HCA;
    attr.max_pkeys = nic.max_pkeys;
    attr.local_ca_ack_delay = nic.local_ca_ack_delay;
    attr.phys_port_cnt = nic.phys_port_cnt;
    attr
}

unsafe extern "C" fn query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    Verb("ibv_query_device").status(|| {
        // SAFETY: a context of ours, or NULL.
        let nic = unsafe { nic(context) }?;
        if attr.is_null() {
            return Err(NULL);
        }
        // SAFETY: the caller's structure.
        unsafe { *attr = device_attr(nic) };
        Ok(())
    })
}

/// On-demand paging works for whatever a service can do.
fn odp_caps() -> ibv_odp_caps {
    let datagram = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    ibv_odp_caps {
        general_caps: u64::from(IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT),
        rc_odp_caps: datagram
            | IBV_ODP_SUPPORT_WRITE
            | IBV_ODP_SUPPORT_READ
            | IBV_ODP_SUPPORT_ATOMIC
            | IBV_ODP_SUPPORT_FLUSH
            | IBV_ODP_SUPPORT_ATOMIC_WRITE,
        uc_odp_caps: datagram | IBV_ODP_SUPPORT_WRITE,
        ud_odp_caps: datagram,
    }
}

/// `ibv_query_device_ex(3)`: none of the extended capabilities but completion timestamps.
pub unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    Verb("ibv_query_device_ex").status(|| {
        // SAFETY: a context of ours, or NULL.
        let nic = unsafe { nic(context) }?;
        if attr.is_null() || attr_size < size_of::<ibv_device_attr>() {
            return Err(EINVAL.because(format!(
                "attr is {attr:?}, its size {attr_size}: at least {} are needed",
                size_of::<ibv_device_attr>()
            )));
        }
        // SAFETY: NULL or the caller's structure.
        if unsafe { input.as_ref() }.is_some_and(|i| i.comp_mask != 0) {
            return Err(EINVAL.because("comp_mask of the input is not 0"));
        }
        // SAFETY: integers and chars only.
        let mut ex: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
        ex.orig_attr = device_attr(nic);
        ex.completion_timestamp_mask = u64::MAX;
        ex.hca_core_clock = CORE_CLOCK_KHZ;
        ex.odp_caps = odp_caps();
        ex.xrc_odp_caps = ex.odp_caps.rc_odp_caps;
        ex.max_dm_size = nic.device_attr().max_dm_size;
        ex.device_cap_flags_ex = u64::from(ex.orig_attr.device_cap_flags)
            | IBV_DEVICE_FLUSH_GLOBAL
            | IBV_DEVICE_FLUSH_PERSISTENT
            | IBV_DEVICE_ATOMIC_WRITE;
        ex.cq_mod_caps = ibv_cq_moderation_caps {
            max_cq_count: u16::MAX,
            max_cq_period: MAX_CQ_PERIOD,
        };
        ex.phys_port_cnt_ex = u32::from(ex.orig_attr.phys_port_cnt);
        // SAFETY: the caller says how much room there is.
        unsafe { copy_out(&ex, attr, attr_size) };
        Ok(())
    })
}

/// What the device has of a port.
fn port_of(context: &Context, port: u32) -> Result<PortAttr> {
    match u8::try_from(port).map(|port| context.port_attr(port)) {
        Ok(Ok(attr)) => Ok(attr),
        // The refusal is to name the verb that was called.
        _ => Err(EINVAL.because(format!(
            "port {port} does not exist: ports count from 1, and the device has one"
        ))),
    }
}

fn port_attr(context: &Context, port: u8) -> Result<ibv_port_attr> {
    /// `IB_WIDTH_4X`, `IB_SPEED_EDR`: 4 x 25 Gbit/s. A name for programs that rank devices; nothing
    /// is paced by it.
    const WIDTH_4X: u8 = 2;
    const SPEED_EDR: u8 = 32;
    const PHYS_LINK_UP: u8 = 5;
    const PHYS_DISABLED: u8 = 3;
    let nic = port_of(context, u32::from(port))?;
    let up = nic.state == PortState::Active;
    // SAFETY: integers only.
    let mut attr: ibv_port_attr = unsafe { std::mem::zeroed() };
    attr.state = if up { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN };
    attr.max_mtu = nic.max_mtu.to_ibv();
    attr.active_mtu = nic.active_mtu.to_ibv();
    attr.gid_tbl_len = int(nic.gid_tbl_len);
    attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    attr.max_msg_sz = nic.max_msg_sz;
    attr.pkey_tbl_len = nic.pkey_tbl_len;
    let violations = key_violations();
    attr.bad_pkey_cntr = saturated(violations.pkey);
    attr.qkey_viol_cntr = saturated(violations.qkey);
    attr.max_vl_num = 1;
    attr.active_width = WIDTH_4X;
    attr.active_speed = SPEED_EDR;
    attr.active_speed_ex = u32::from(SPEED_EDR);
    attr.phys_state = if up { PHYS_LINK_UP } else { PHYS_DISABLED };
    attr.link_layer = IBV_LINK_LAYER_ETHERNET as u8;
    attr.flags = IBV_QPF_GRH_REQUIRED as u8;
    Ok(attr)
}

/// The `query_port` operation: fills as much as the caller's version of the structure holds.
pub unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    len: usize,
) -> c_int {
    Verb("ibv_query_port").status(|| {
        // SAFETY: a context of ours, or NULL.
        let nic = unsafe { nic(context) }?;
        if attr.is_null() {
            return Err(NULL);
        }
        let value = port_attr(nic, port)?;
        // SAFETY: the caller says how much room there is.
        unsafe { copy_out(&value, attr, len) };
        Ok(())
    })
}

/// The exported `ibv_query_port` of programs older than the operation.
unsafe extern "C" fn query_port_compat(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: by this function's contract the caller has that much room.
    unsafe { query_port(context, port, attr, COMPAT_PORT_ATTR_LEN) }
}

/// `ibv_query_port_speed(3)`: in units of 100 Mbit/s, what [`port_attr`] says by width and speed.
unsafe extern "C" fn query_port_speed(
    context: *mut ibv_context,
    port: u32,
    speed: *mut u64,
) -> c_int {
    const UNITS: u64 = 4 * 250;
    Verb("ibv_query_port_speed").status(|| {
        // SAFETY: a context of ours, or NULL.
        port_of(unsafe { nic(context) }?, port)?;
        if speed.is_null() {
            return Err(NULL);
        }
        // SAFETY: the caller's variable.
        unsafe { *speed = UNITS };
        Ok(())
    })
}

/// The rows of a table that programs ask for. Some go through it row by row until one is refused,
/// librdmacm through that of P_Keys; nothing is wrong with that.
struct Table {
    what: &'static str,
    /// The row that was asked for last, of any thread: it only matters to words.
    last: AtomicI64,
}

static GIDS: Table = Table::new("GID");
static PKEYS: Table = Table::new("P_Key");

impl Table {
    const fn new(what: &'static str) -> Table {
        Table {
            what,
            last: AtomicI64::new(i64::MIN),
        }
    }

    /// The row of this index, in a table of so many; `more` is said of a table that has no such
    /// row.
    fn row(&self, index: i64, rows: u32, more: impl FnOnce() -> String) -> Result<u32> {
        let is_next = self.last.swap(index, Ordering::Relaxed).checked_add(1) == Some(index);
        match u32::try_from(index) {
            Ok(row) if row < rows => return Ok(row),
            _ if is_next => {
                let words = format!("the {} table has no more rows", self.what);
                return Err(EINVAL.because(words).answer());
            }
            _ => {}
        }
        let has = match rows {
            0 => "is empty".to_owned(),
            1 => "has 0 alone".to_owned(),
            rows => format!("has 0 to {}", rows - 1),
        };
        Err(EINVAL.because(format!(
            "{} index {index}: the table {has}{}",
            self.what,
            more()
        )))
    }
}

/// The entry in a row of the GID table: `Ok(None)` for a row that exists but is empty.
fn gid_row(context: &Context, port: u32, index: i64) -> Result<Option<GidEntry>> {
    let rows = port_of(context, port)?.gid_tbl_len;
    let row = GIDS.row(index, rows, || {
        let used = context.gid_table().len();
        format!(", of which {used} have a GID: see `rnic devices`")
    })?;
    Ok(context.gid(row))
}

/// `flags` and `entry_size` of the questions to the GID table.
fn known_entry(flags: u32, entry_size: usize) -> Result<()> {
    match (flags, size_of::<ibv_gid_entry>()) {
        (0, least) if entry_size >= least => Ok(()),
        (0, least) => Err(EINVAL.because(format!("entry_size is {entry_size}, less than {least}"))),
        (flags, _) => Err(EINVAL.because(format!("flags are {flags:#x}, and none are known"))),
    }
}

unsafe extern "C" fn query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    Verb("ibv_query_gid").number(|| {
        // SAFETY: a context of ours, or NULL.
        let nic = unsafe { nic(context) }?;
        let row = gid_row(nic, u32::from(port), i64::from(index))?;
        if gid.is_null() {
            return Err(NULL);
        }
        let raw = row.map_or([0; 16], |entry| entry.gid.0);
        // SAFETY: the caller's union of 16 bytes; it may be less aligned than ours.
        unsafe { gid.cast::<[u8; 16]>().write_unaligned(raw) };
        Ok(0)
    })
}

fn gid_entry(row: &GidEntry) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid { raw: row.gid.0 },
        gid_index: row.index,
        port_num: 1,
        gid_type: IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: row.ifindex,
    }
}

unsafe extern "C" fn query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    Verb("ibv_query_gid_ex").status(|| {
        // SAFETY: a context of ours, or NULL.
        let nic = unsafe { nic(context) }?;
        known_entry(flags, entry_size)?;
        if entry.is_null() {
            return Err(NULL);
        }
        // An empty row is no refusal: those who go through the table skip it.
        let row = gid_row(nic, port, i64::from(index))?
            .ok_or(const { Refusal::silent(libc::ENODATA) })?;
        // SAFETY: the caller says how much room there is.
        unsafe { copy_out(&gid_entry(&row), entry, entry_size) };
        Ok(())
    })
}

unsafe extern "C" fn query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    Verb("ibv_query_gid_table").count(|| {
        // SAFETY: a context of ours, or NULL.
        let nic = unsafe { nic(context) }?;
        known_entry(flags, entry_size)?;
        if entries.is_null() && max_entries > 0 {
            return Err(NULL);
        }
        let table = nic.gid_table();
        if table.len() > max_entries {
            return Err(EINVAL.because(format!(
                "max_entries is {max_entries}, the table has {} entries",
                table.len()
            )));
        }
        for (i, row) in table.iter().enumerate() {
            // SAFETY: `i` is less than `max_entries`, each of `entry_size` bytes.
            unsafe {
                copy_out(
                    &gid_entry(row),
                    entries.wrapping_byte_add(i * entry_size),
                    entry_size,
                )
            };
        }
        Ok(table.len())
    })
}

/// `enum ibv_gid_type_sysfs`, which is not `enum ibv_gid_type`.
const GID_TYPE_SYSFS_ROCE_V2: c_uint = 1;

unsafe extern "C" fn query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: c_uint,
    kind: *mut c_uint,
) -> c_int {
    Verb("ibv_query_gid_type").number(|| {
        // SAFETY: a context of ours, or NULL.
        let nic = unsafe { nic(context) }?;
        if kind.is_null() {
            return Err(NULL);
        }
        gid_row(nic, u32::from(port), i64::from(index))?
            .ok_or(const { Refusal::silent(libc::EINVAL) })?;
        // SAFETY: the caller's variable.
        unsafe { *kind = GID_TYPE_SYSFS_ROCE_V2 };
        Ok(0)
    })
}

unsafe extern "C" fn query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    Verb("ibv_query_pkey").number(|| {
        // SAFETY: a context of ours, or NULL.
        let nic = unsafe { nic(context) }?;
        port_of(nic, u32::from(port))?;
        let table = nic.pkeys();
        let row = PKEYS.row(i64::from(index), table.len().into(), String::new)?;
        if pkey.is_null() {
            return Err(NULL);
        }
        let found = table.all()[row as usize];
        // SAFETY: the caller's variable.
        unsafe { *pkey = found.to_be() };
        Ok(0)
    })
}

unsafe extern "C" fn get_pkey_index(context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
    Verb("ibv_get_pkey_index").number(|| {
        // SAFETY: a context of ours, or NULL.
        let nic = unsafe { nic(context) }?;
        port_of(nic, u32::from(port))?;
        let pkey = u16::from_be(pkey);
        let index = nic.pkeys().index_of(pkey).ok_or_else(|| {
            EINVAL.because(format!(
                "P_Key {pkey:#06x} is not in the table {} (RNIC_PKEYS)",
                nic.pkeys()
            ))
        })?;
        Ok(c_int::from(index))
    })
}

/// Nanoseconds of a system clock.
pub fn clock(id: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a local structure; the clocks asked for exist.
    unsafe { libc::clock_gettime(id, &mut now) };
    now
}

/// `ibv_query_rt_values_ex(3)`: the clock of completion timestamps.
pub unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    Verb("ibv_query_rt_values_ex").status(|| {
        // SAFETY: a context of ours, or NULL.
        unsafe { nic(context) }?;
        // SAFETY: NULL or the caller's structure.
        let values = unsafe { values.as_mut() }.ok_or(NULL)?;
        if values.comp_mask != IBV_VALUES_MASK_RAW_CLOCK {
            return Err(EOPNOTSUPP.because(format!(
                "comp_mask is {:#x}: the device has the raw clock",
                values.comp_mask
            )));
        }
        values.raw_clock = clock(libc::CLOCK_MONOTONIC);
        Ok(())
    })
}

export! {
    ibv_query_device @@ "IBVERBS_1.1" => query_device;
    ibv_query_port @@ "IBVERBS_1.1" => query_port_compat;
    ibv_query_port_speed @@ "IBVERBS_1.16" => query_port_speed;
    ibv_query_gid @@ "IBVERBS_1.1" => query_gid;
    _ibv_query_gid_ex @@ "IBVERBS_1.11" => query_gid_ex;
    _ibv_query_gid_table @@ "IBVERBS_1.11" => query_gid_table;
    ibv_query_gid_type @@ "IBVERBS_PRIVATE_34" @ "IBVERBS_PRIVATE_33" @ "IBVERBS_PRIVATE_57" @ "IBVERBS_PRIVATE_59"
        @ "IBVERBS_PRIVATE_64" @ "IBVERBS_PRIVATE_65" => query_gid_type;
    ibv_query_pkey @@ "IBVERBS_1.1" => query_pkey;
    ibv_get_pkey_index @@ "IBVERBS_1.5" => get_pkey_index;
}

#[cfg(test)]
mod tests;
