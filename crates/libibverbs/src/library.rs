//! The library itself: loaded once, kept for ever.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rnic_layouts::*;
use rnic_nic::{Error, Result};

/// What is loaded if [`rnic_settings::LIBIBVERBS`] names nothing else.
const NAME: &str = "libibverbs.so.1";

macro_rules! symbols {
    ($($field:ident: $name:literal, $version:literal, fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// The functions that every library of this ABI has.
        pub struct Library {
            $(pub $field: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            /// Since rdma-core 34.
            pub query_gid_table: Option<QueryGidTable>,
        }

        impl Library {
            fn resolve(loaded: &Loaded) -> Result<Library> {
                Ok(Library {
                    $($field: {
                        let found = loaded.require($name, $version)?;
                        // SAFETY: the symbol of this name and version has this signature: it is
                        // what the version promises.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($arg),*) $(-> $ret)?,
                            >(found)
                        }
                    },)*
                    query_gid_table: loaded
                        .find(c"_ibv_query_gid_table", c"IBVERBS_1.11")
                        // SAFETY: as above.
                        .map(|found| unsafe {
                            std::mem::transmute::<*mut c_void, QueryGidTable>(found)
                        }),
                })
            }
        }
    };
}

/// Context, entries, how many, flags, size of an entry; gives how many there are.
type QueryGidTable =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;

symbols! {
    get_device_list: c"ibv_get_device_list", c"IBVERBS_1.1", fn(*mut c_int) -> *mut *mut ibv_device;
    free_device_list: c"ibv_free_device_list", c"IBVERBS_1.1", fn(*mut *mut ibv_device);
    get_device_name: c"ibv_get_device_name", c"IBVERBS_1.1", fn(*mut ibv_device) -> *const c_char;
    get_device_guid: c"ibv_get_device_guid", c"IBVERBS_1.1", fn(*mut ibv_device) -> u64;
    open_device: c"ibv_open_device", c"IBVERBS_1.1", fn(*mut ibv_device) -> *mut ibv_context;
    close_device: c"ibv_close_device", c"IBVERBS_1.1", fn(*mut ibv_context) -> c_int;
    query_device: c"ibv_query_device", c"IBVERBS_1.1",
        fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    query_port: c"ibv_query_port", c"IBVERBS_1.1",
        fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    query_gid: c"ibv_query_gid", c"IBVERBS_1.1",
        fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
    query_pkey: c"ibv_query_pkey", c"IBVERBS_1.1",
        fn(*mut ibv_context, u8, c_int, *mut u16) -> c_int;
    get_async_event: c"ibv_get_async_event", c"IBVERBS_1.1",
        fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
    ack_async_event: c"ibv_ack_async_event", c"IBVERBS_1.1", fn(*mut ibv_async_event);
    alloc_pd: c"ibv_alloc_pd", c"IBVERBS_1.1", fn(*mut ibv_context) -> *mut ibv_pd;
    dealloc_pd: c"ibv_dealloc_pd", c"IBVERBS_1.1", fn(*mut ibv_pd) -> c_int;
    reg_mr: c"ibv_reg_mr", c"IBVERBS_1.1", fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    dereg_mr: c"ibv_dereg_mr", c"IBVERBS_1.1", fn(*mut ibv_mr) -> c_int;
    create_comp_channel: c"ibv_create_comp_channel", c"IBVERBS_1.0",
        fn(*mut ibv_context) -> *mut ibv_comp_channel;
    destroy_comp_channel: c"ibv_destroy_comp_channel", c"IBVERBS_1.0",
        fn(*mut ibv_comp_channel) -> c_int;
    create_cq: c"ibv_create_cq", c"IBVERBS_1.1",
        fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    destroy_cq: c"ibv_destroy_cq", c"IBVERBS_1.1", fn(*mut ibv_cq) -> c_int;
    get_cq_event: c"ibv_get_cq_event", c"IBVERBS_1.1",
        fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ack_cq_events: c"ibv_ack_cq_events", c"IBVERBS_1.1", fn(*mut ibv_cq, c_uint);
    create_srq: c"ibv_create_srq", c"IBVERBS_1.1",
        fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    modify_srq: c"ibv_modify_srq", c"IBVERBS_1.1",
        fn(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int;
    query_srq: c"ibv_query_srq", c"IBVERBS_1.1", fn(*mut ibv_srq, *mut ibv_srq_attr) -> c_int;
    destroy_srq: c"ibv_destroy_srq", c"IBVERBS_1.1", fn(*mut ibv_srq) -> c_int;
    create_qp: c"ibv_create_qp", c"IBVERBS_1.1",
        fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    query_qp: c"ibv_query_qp", c"IBVERBS_1.1",
        fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
    modify_qp: c"ibv_modify_qp", c"IBVERBS_1.1", fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    destroy_qp: c"ibv_destroy_qp", c"IBVERBS_1.1", fn(*mut ibv_qp) -> c_int;
    create_ah: c"ibv_create_ah", c"IBVERBS_1.1", fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    destroy_ah: c"ibv_destroy_ah", c"IBVERBS_1.1", fn(*mut ibv_ah) -> c_int;
    attach_mcast: c"ibv_attach_mcast", c"IBVERBS_1.1",
        fn(*mut ibv_qp, *const ibv_gid, u16) -> c_int;
    detach_mcast: c"ibv_detach_mcast", c"IBVERBS_1.1",
        fn(*mut ibv_qp, *const ibv_gid, u16) -> c_int;
}

/// A loaded object. It is never closed: its providers have state of their own, and threads.
struct Loaded {
    handle: *mut c_void,
    name: String,
}

/// What dlerror(3) says of the calling thread's last failure.
fn dl_error() -> String {
    // SAFETY: no arguments; the text is this thread's until its next call of dl*.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason is given".to_owned();
    }
    // SAFETY: a text that ends with a zero.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

impl Loaded {
    fn open(path: &CStr) -> Result<Loaded> {
        // SAFETY: a path that ends with a zero. Constructors of the library run, as they would had
        // the program been linked with it.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let name = path.to_string_lossy().into_owned();
        if handle.is_null() {
            // It names the file itself.
            return Err(Error::new(
                "dlopen",
                libc::ENOENT,
                format!(
                    "RDMA devices of the system need {NAME} (package libibverbs1, or rdma-core): {}",
                    dl_error()
                ),
            ));
        }
        Ok(Loaded { handle, name })
    }

    fn find(&self, name: &CStr, version: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is of a loaded object; both texts end with a zero.
        #[cfg(target_env = "gnu")]
        let found = unsafe { libc::dlvsym(self.handle, name.as_ptr(), version.as_ptr()) };
        #[cfg(not(target_env = "gnu"))]
        let found = {
            let _ = version;
            self.any_version(name)
        };
        (!found.is_null()).then_some(found)
    }

    fn any_version(&self, name: &CStr) -> *mut c_void {
        // SAFETY: as in `find`.
        unsafe { libc::dlsym(self.handle, name.as_ptr()) }
    }

    fn require(&self, name: &CStr, version: &CStr) -> Result<*mut c_void> {
        self.find(name, version).ok_or_else(|| {
            let (symbol, version) = (name.to_string_lossy(), version.to_string_lossy());
            let what = match self.any_version(name).is_null() {
                true => format!("{} has no function {symbol}", self.name),
                false => format!(
                    "{} has {symbol}, but not of the version {version}: it has another ABI",
                    self.name
                ),
            };
            Error::new("dlvsym", libc::ENOSYS, what)
        })
    }
}

impl Library {
    /// The library of the system, or the one that [`rnic_settings::LIBIBVERBS`] names.
    ///
    /// # Errors
    /// It cannot be loaded, or lacks a function.
    pub fn get() -> Result<&'static Library> {
        static LIBRARY: OnceLock<Result<Library>> = OnceLock::new();
        let loaded = LIBRARY.get_or_init(|| {
            let path = rnic_settings::LIBIBVERBS.path();
            let path = path.unwrap_or_else(|| NAME.into());
            let path = CString::new(path.as_os_str().as_bytes());
            let path = path.map_err(|_| Error::invalid("dlopen", "a path with a zero in it"))?;
            count_forks();
            Library::resolve(&Loaded::open(&path)?)
        });
        loaded.as_ref().map_err(Clone::clone)
    }
}

/// How often this process is a forked child of one that has the library.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that something was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// This one.
    #[inline]
    pub fn this() -> Process {
        Process(FORKS.load(Ordering::Relaxed))
    }
}

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

fn count_forks() {
    // SAFETY: the handler only counts, which is allowed in a child.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}
