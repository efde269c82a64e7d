//! The device as sysfs would show it, and the libibverbs functions that read sysfs.
//!
//! There is no `/sys/class/infiniband/rnic0`. What programs look up there is computed by [`tree`];
//! the real files of the machine stay reachable under every other path.

use core::ffi::{c_char, c_int};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use rnic_nic::{
    DEVICE_NAME, GidEntry, PkeyTable, PortState, device_guid, gid_table, netdev, port_counters,
};

use crate::export::seam::{self, NULL, Refusal, Result, Verb};
use crate::export::symbols::export;
use crate::system::counters::{self, COUNTERS};

/// Name of the character device in `/dev/infiniband`.
pub const UVERBS_NAME: &str = "uverbs0";
/// Its number, major and minor: the first of the kernel's.
pub const UVERBS_DEV: (u32, u32) = (231, 192);

/// A file of the virtual tree: path from `/`, contents.
pub type File = (String, Contents);

/// What a file is.
#[derive(Debug, Hash)]
pub enum Contents {
    /// Text.
    Text(String),
    /// A link to this path of the real system.
    Link(String),
}

impl From<&str> for Contents {
    fn from(text: &str) -> Contents {
        Contents::Text(text.to_owned())
    }
}

impl From<String> for Contents {
    fn from(text: String) -> Contents {
        Contents::Text(text)
    }
}

/// Every file that the device has below `/sys/class`, with its contents now.
pub fn tree() -> Vec<File> {
    let gids = gid_table();
    let device = format!("/sys/class/infiniband/{DEVICE_NAME}");
    let mut files = vec![
        (format!("{device}/node_type"), "1: CA\n".into()),
        (
            format!("{device}/node_desc"),
            format!("{DEVICE_NAME}\n").into(),
        ),
        (
            format!("{device}/node_guid"),
            guid_line(device_guid()).into(),
        ),
        (
            format!("{device}/sys_image_guid"),
            guid_line(device_guid()).into(),
        ),
        (
            format!("{device}/fw_ver"),
            concat!(env!("CARGO_PKG_VERSION"), "\n").into(),
        ),
        (format!("{device}/hw_rev"), "1\n".into()),
        (format!("{device}/board_id"), "RNIC_SOFT\n".into()),
        (format!("{device}/hca_type"), "rnic\n".into()),
    ];
    port_files(&format!("{device}/ports/1"), &gids, &mut files);
    device_files(&device, netdev(&gids), &mut files);
    let uverbs = format!("/sys/class/infiniband_verbs/{UVERBS_NAME}");
    files.push((
        "/sys/class/infiniband_verbs/abi_version".into(),
        "6\n".into(),
    ));
    files.push((format!("{uverbs}/abi_version"), "1\n".into()));
    files.push((format!("{uverbs}/ibdev"), format!("{DEVICE_NAME}\n").into()));
    let (major, minor) = UVERBS_DEV;
    files.push((format!("{uverbs}/dev"), format!("{major}:{minor}\n").into()));
    files
}

/// What a card's folder on its bus has, as far as it is true of the interface behind the device:
/// programs look for that in `device/net`. There is no link to a bus, nor a vendor: those of the
/// interface's card would have programs take it for an RDMA card of that vendor.
fn device_files(device: &str, netdev: Option<&GidEntry>, files: &mut Vec<File>) {
    let Some(GidEntry {
        ifname, ifindex, ..
    }) = netdev
    else {
        return;
    };
    // As Soft-RoCE says whose it is.
    files.push((format!("{device}/parent"), format!("{ifname}\n").into()));
    let real = format!("/sys/class/net/{ifname}");
    let of_card = |file: &str, default: &str| {
        let said = fs::read_to_string(format!("{real}/device/{file}"));
        said.unwrap_or_else(|_| default.to_owned())
    };
    let folder = format!("{device}/device");
    files.push((
        format!("{folder}/numa_node"),
        of_card("numa_node", "-1\n").into(),
    ));
    files.push((format!("{folder}/uevent"), "DRIVER=rnic\n".into()));
    let interface = format!("{folder}/net/{ifname}");
    let said = fs::read_to_string(format!("{real}/ifindex")).unwrap_or_default();
    if said.trim().parse() == Ok(*ifindex) {
        files.push((interface, Contents::Link(real)));
        return;
    }
    // The system's files are those of another network namespace.
    for (file, text) in [
        ("ifindex", format!("{ifindex}\n")),
        ("dev_id", "0x0\n".to_owned()),
        ("dev_port", "0\n".to_owned()),
    ] {
        files.push((format!("{interface}/{file}"), text.into()));
    }
}

fn port_files(port: &str, gids: &[GidEntry], files: &mut Vec<File>) {
    let (state, phys_state) = match rnic_nic::port_state(gids) {
        PortState::Down => ("1: DOWN\n", "3: Disabled\n"),
        PortState::Active => ("4: ACTIVE\n", "5: LinkUp\n"),
    };
    for (name, value) in [
        ("state", state),
        ("phys_state", phys_state),
        ("link_layer", "Ethernet\n"),
        ("rate", "100 Gb/sec (4X EDR)\n"),
        ("lid", "0x0\n"),
        ("lid_mask_count", "0\n"),
        ("sm_lid", "0x0\n"),
        ("sm_sl", "0\n"),
        ("cap_mask", "0x04010000\n"),
    ] {
        files.push((format!("{port}/{name}"), value.into()));
    }
    for (index, pkey) in PkeyTable::of_process().all().iter().enumerate() {
        files.push((
            format!("{port}/pkeys/{index}"),
            format!("{pkey:#06x}\n").into(),
        ));
    }
    // What they count, processes of the device see (`hooks::live`).
    for counter in COUNTERS {
        files.push((format!("{port}/{}", counter.file), "0\n".into()));
    }
    for entry in gids {
        let index = entry.index;
        files.push((
            format!("{port}/gids/{index}"),
            format!("{}\n", entry.gid).into(),
        ));
        files.push((
            format!("{port}/gid_attrs/types/{index}"),
            "RoCE v2\n".into(),
        ));
        files.push((
            format!("{port}/gid_attrs/ndevs/{index}"),
            format!("{}\n", entry.ifname).into(),
        ));
    }
}

/// Four groups of four digits, as the kernel prints a GUID.
fn guid_line(guid: u64) -> String {
    let mut line = String::new();
    for shift in [48, 32, 16, 0] {
        let separator = if shift == 48 { "" } else { ":" };
        let _ = write!(line, "{separator}{:04x}", (guid >> shift) & 0xffff);
    }
    line.push('\n');
    line
}

/// Contents of a file below a directory, from the virtual tree or the real one.
fn read(directory: &str, file: &str) -> Result<Vec<u8>> {
    let path = Path::new(directory).join(file);
    if let Some(counter) = counters::at(path.as_os_str().as_encoded_bytes()) {
        let value = (COUNTERS[counter].value)(&port_counters());
        return Ok(format!("{value}\n").into_bytes());
    }
    let found = tree().into_iter().find(|(name, _)| Path::new(name) == path);
    if let Some((_, Contents::Text(text))) = found {
        return Ok(text.into_bytes());
    }
    fs::read(path).map_err(|e| Refusal::silent(e.raw_os_error().unwrap_or(libc::EIO)))
}

/// Bytes read, without a final newline, which is replaced by NUL where there is room; -1 and errno.
unsafe extern "C" fn read_sysfs_file(
    directory: *const c_char,
    file: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    Verb("ibv_read_sysfs_file").number(|| {
        // SAFETY: C strings of the caller.
        let (directory, file) = unsafe { (seam::text(directory)?, seam::text(file)?) };
        if buffer.is_null() {
            return Err(NULL);
        }
        let contents = read(directory, file)?;
        let read = contents.len().min(size);
        let text = contents[..read]
            .strip_suffix(b"\n")
            .unwrap_or(&contents[..read]);
        // SAFETY: the caller says that there is room for `size` bytes, and `text` is no longer than
        // that.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), text.len());
            if text.len() < size {
                *buffer.add(text.len()) = 0;
            }
        }
        Ok(text.len() as c_int)
    })
}

/// Where sysfs is mounted; `SYSFS_PATH` says otherwise, as in libibverbs.
extern "C" fn get_sysfs_path() -> *const c_char {
    static PATH: OnceLock<std::ffi::CString> = OnceLock::new();
    PATH.get_or_init(|| {
        std::env::var("SYSFS_PATH")
            .ok()
            .and_then(|path| std::ffi::CString::new(path.trim_end_matches('/')).ok())
            .unwrap_or_else(|| c"/sys".into())
    })
    .as_ptr()
}

export! {
    ibv_read_sysfs_file @@ "IBVERBS_1.0" => read_sysfs_file;
    ibv_get_sysfs_path @@ "IBVERBS_1.0" => get_sysfs_path;
}
