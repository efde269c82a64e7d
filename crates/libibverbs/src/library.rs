//! The library itself: loaded once, kept for ever.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rnic_layouts::cm::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use rnic_layouts::*;
use rnic_types::{Error, Result};

/// What is loaded if [`rnic_settings::LIBIBVERBS`] names nothing else.
const NAME: &str = "libibverbs.so.1";

macro_rules! symbols {
    ($(#[$doc:meta])* $library:ident {
        $($field:ident: $name:literal, $version:literal, fn($($arg:ty),*) $(-> $ret:ty)?;)*
    } if there {
        $($maybe:ident: $maybe_name:literal, $maybe_version:literal, $function:ty;)*
    }) => {
        $(#[$doc])*
        pub struct $library {
            $(pub $field: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $(pub $maybe: Option<$function>,)*
        }

        impl $library {
            fn resolve(loaded: &Loaded) -> Result<$library> {
                Ok($library {
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
                    $($maybe: loaded.find($maybe_name, $maybe_version).map(|found| {
                        // SAFETY: as above.
                        unsafe { std::mem::transmute::<*mut c_void, $function>(found) }
                    }),)*
                })
            }
        }
    };
}

/// Context, entries, how many, flags, size of an entry; gives how many there are.
type QueryGidTable =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;

/// Domain, memory, bytes, the address it goes by, rights.
type RegisterAt = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, u64, c_int) -> *mut ibv_mr;
/// Domain, offset, bytes, the address it goes by, descriptor, rights.
type RegisterDmabuf =
    unsafe extern "C" fn(*mut ibv_pd, u64, usize, u64, c_int, c_int) -> *mut ibv_mr;

symbols! {
    /// The functions of libibverbs.
    Library {
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
    } if there {
        query_gid_table: c"_ibv_query_gid_table", c"IBVERBS_1.11", QueryGidTable;
        reg_mr_iova: c"ibv_reg_mr_iova", c"IBVERBS_1.7", RegisterAt;
        reg_dmabuf_mr: c"ibv_reg_dmabuf_mr", c"IBVERBS_1.12", RegisterDmabuf;
    }
}

symbols! {
    /// The functions of librdmacm.
    Manager {
        create_event_channel: c"rdma_create_event_channel", c"RDMACM_1.0",
            fn() -> *mut rdma_event_channel;
        destroy_event_channel: c"rdma_destroy_event_channel", c"RDMACM_1.0",
            fn(*mut rdma_event_channel);
        get_cm_event: c"rdma_get_cm_event", c"RDMACM_1.0",
            fn(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
        ack_cm_event: c"rdma_ack_cm_event", c"RDMACM_1.0", fn(*mut rdma_cm_event) -> c_int;
        create_id: c"rdma_create_id", c"RDMACM_1.0",
            fn(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_uint) -> c_int;
        destroy_id: c"rdma_destroy_id", c"RDMACM_1.0", fn(*mut rdma_cm_id) -> c_int;
        migrate_id: c"rdma_migrate_id", c"RDMACM_1.0",
            fn(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int;
        bind_addr: c"rdma_bind_addr", c"RDMACM_1.0",
            fn(*mut rdma_cm_id, *mut libc::sockaddr) -> c_int;
        resolve_addr: c"rdma_resolve_addr", c"RDMACM_1.0",
            fn(*mut rdma_cm_id, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
        resolve_route: c"rdma_resolve_route", c"RDMACM_1.0", fn(*mut rdma_cm_id, c_int) -> c_int;
        connect: c"rdma_connect", c"RDMACM_1.0",
            fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        listen: c"rdma_listen", c"RDMACM_1.0", fn(*mut rdma_cm_id, c_int) -> c_int;
        accept: c"rdma_accept", c"RDMACM_1.0", fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        establish: c"rdma_establish", c"RDMACM_1.2", fn(*mut rdma_cm_id) -> c_int;
        reject: c"rdma_reject", c"RDMACM_1.0", fn(*mut rdma_cm_id, *const c_void, u8) -> c_int;
        disconnect: c"rdma_disconnect", c"RDMACM_1.0", fn(*mut rdma_cm_id) -> c_int;
        init_qp_attr: c"rdma_init_qp_attr", c"RDMACM_1.2",
            fn(*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int;
        set_option: c"rdma_set_option", c"RDMACM_1.0",
            fn(*mut rdma_cm_id, c_int, c_int, *mut c_void, usize) -> c_int;
        join_multicast: c"rdma_join_multicast", c"RDMACM_1.0",
            fn(*mut rdma_cm_id, *mut libc::sockaddr, *mut c_void) -> c_int;
    } if there {}
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
    /// `what`: what it is, and the package that has it.
    fn open(path: &CStr, what: &str) -> Result<Loaded> {
        // SAFETY: a path that ends with a zero. Constructors of the library run, as they would had
        // the program been linked with it.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let name = path.to_string_lossy().into_owned();
        if handle.is_null() {
            // It names the file itself.
            return Err(Error::new(
                "dlopen",
                libc::ENOENT,
                format!("RDMA devices of the system need {what}: {}", dl_error()),
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
            let what = "libibverbs.so.1 (package libibverbs1, or rdma-core)";
            Library::resolve(&Loaded::open(&path, what)?)
        });
        loaded.as_ref().map_err(Clone::clone)
    }
}

impl Manager {
    /// The library of the system.
    ///
    /// # Errors
    /// It cannot be loaded, or lacks a function.
    pub fn get() -> Result<&'static Manager> {
        static MANAGER: OnceLock<Result<Manager>> = OnceLock::new();
        let loaded = MANAGER.get_or_init(|| {
            // Its ids are of devices of that one.
            Library::get()?;
            let what = "librdmacm.so.1 (package librdmacm1, or rdma-core) to connect";
            Manager::resolve(&Loaded::open(c"librdmacm.so.1", what)?)
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
