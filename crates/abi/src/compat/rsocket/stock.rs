//! Finding and loading the librdmacm of rdma-core behind our own.
//!
//! Our library has its name, so it is loaded by its path. It comes into a scope of its own
//! (RTLD_LOCAL), where the dynamic linker looks for its `rdma_*` and `ibv_*` in the global scope
//! first: that is why ours is made global before, which it is not yet if the program has loaded it
//! with dlopen(3).

use core::ffi::{c_char, c_void};
use rnic_settings::LIBRDMACM;
use std::ffi::{CStr, CString, OsString};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::Functions;
use super::symbolic::{self, Calls};
use crate::export::seam;

const NAME: &str = "librdmacm.so.1";

/// Where distributions have it, when the cache of ldconfig(8) does not say.
const FOLDERS: [&str; 9] = [
    #[cfg(target_arch = "x86_64")]
    "/usr/lib/x86_64-linux-gnu",
    #[cfg(target_arch = "aarch64")]
    "/usr/lib/aarch64-linux-gnu",
    #[cfg(target_arch = "x86_64")]
    "/lib/x86_64-linux-gnu",
    #[cfg(target_arch = "aarch64")]
    "/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/lib",
    "/usr/local/lib64",
    "/usr/local/lib",
    "/run/current-system/sw/lib",
];

/// The real library's functions, loaded at the first call. `None`, said once on standard error
/// (unless `RNIC_QUIET=1`), if there is none.
pub(super) fn functions() -> Option<&'static Functions> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    let load = || match Library::load() {
        Ok(library) => Some(Functions::find(&library)),
        Err(why) => {
            if !rnic_settings::QUIET.is_on() {
                rnic_host::log(format_args!("no rsockets: {why}"));
            }
            None
        }
    };
    // A thread that is cancelled is not while this is under way.
    FUNCTIONS.get_or_init(|| seam::attempt(load)).as_ref()
}

/// Where the real library lies, once it is loaded.
static LIES_AT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Whether an address is in the real library's code.
pub fn are_calling(caller: *const c_void) -> bool {
    let library = LIES_AT.load(Ordering::Relaxed);
    !library.is_null() && object_of(caller.cast_mut()).is_some_and(|(object, _)| object == library)
}

/// The real library. It stays loaded: rsockets have threads of their own.
pub(super) struct Library {
    handle: NonNull<c_void>,
    /// Where our own library lies, whose functions of the same names are not meant.
    ours: *mut c_void,
}

impl Library {
    fn load() -> Result<Library, String> {
        let (ours, path) = own_object().ok_or("the library's own path is not known")?;
        // SAFETY: the path of a loaded object; NOLOAD only changes its scope.
        let own = unsafe {
            libc::dlopen(
                path,
                libc::RTLD_NOLOAD | libc::RTLD_GLOBAL | libc::RTLD_LAZY,
            )
        };
        let own = NonNull::new(own)
            .ok_or_else(|| format!("the library cannot be made global: {}", dl_error()))?;
        let mut failures = Vec::new();
        for candidate in candidates() {
            match Library::open(&candidate, ours).and_then(|library| library.bind(&candidate, own))
            {
                Ok(library) => return Ok(library),
                Err(why) => failures.push(why),
            }
        }
        let tried = match failures.is_empty() {
            true => format!("there is no {NAME}"),
            false => failures.join("; "),
        };
        Err(format!(
            "they need the librdmacm of rdma-core (Debian: librdmacm1), or its path in {}; {tried}",
            LIBRDMACM.name
        ))
    }

    fn open(path: &Path, ours: *mut c_void) -> Result<Library, String> {
        let name = CString::new(path.as_os_str().to_owned().into_vec())
            .map_err(|_| "a path with a NUL byte".to_owned())?;
        // SAFETY: a C string. The library's constructors do nothing but prepare it.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LOCAL | libc::RTLD_NOW) };
        let Some(handle) = NonNull::new(handle) else {
            return Err(dl_error());
        };
        let library = Library { handle, ours };
        match library.function("rsocket") {
            Some(function) => {
                if let Some((object, _)) = object_of(function.as_ptr()) {
                    LIES_AT.store(object, Ordering::Relaxed);
                }
                Ok(library)
            }
            // A link to our own library, or something else of that name.
            None => Err(format!("{} has no rsockets", path.display())),
        }
    }

    /// Has its calls to `rdma_*` arrive at ours.
    fn bind(self, path: &Path, own: NonNull<c_void>) -> Result<Library, String> {
        let what = |why: &dyn std::fmt::Display| {
            format!(
                "{} calls its own rdma_* (it is linked with -Bsymbolic-functions), and cannot be made to call rnic's: {why}",
                path.display()
            )
        };
        let file = std::fs::read(path).map_err(|e| what(&e))?;
        let Calls::Inside(entries) = Calls::of(&file).map_err(|e| what(&e))? else {
            return Ok(self);
        };
        for entry in entries {
            let Ok(name) = CString::new(entry.name.as_str()) else {
                continue;
            };
            // SAFETY: a handle of dlopen and a C string.
            let ours = NonNull::new(unsafe { libc::dlsym(own.as_ptr(), name.as_ptr()) });
            // What ours lacks, rsockets do not call.
            if let (Some(theirs), Some(ours)) = (self.function(&entry.name), ours) {
                // SAFETY: functions of the same name have the same type. Nobody has called the
                // library yet, but for its constructors, which are done, and neither is ever
                // unloaded.
                unsafe { symbolic::redirect(theirs, entry.room, ours) }
                    .map_err(|e| what(&format_args!("{}: {e}", entry.name)))?;
            }
        }
        Ok(self)
    }

    /// A function of the real library. What its release lacks is found in ours, which it depends
    /// on: that is none.
    pub(super) fn function(&self, name: &str) -> Option<NonNull<c_void>> {
        let name = CString::new(name).ok()?;
        // SAFETY: a handle of dlopen and a C string.
        let function = unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) };
        let function = NonNull::new(function)?;
        let (object, _) = object_of(function.as_ptr())?;
        (object != self.ours).then_some(function)
    }
}

/// Files that may be the library, the likeliest first.
fn candidates() -> Vec<PathBuf> {
    if let Some(path) = LIBRDMACM.path() {
        return vec![path];
    }
    let mut found = in_cache(&std::fs::read("/etc/ld.so.cache").unwrap_or_default());
    for folder in FOLDERS {
        let path = Path::new(folder).join(NAME);
        if path.exists() && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// The paths in a cache of ldconfig(8) that end in our name. The file has them as C strings,
/// whatever its version; those of other architectures do not load.
fn in_cache(cache: &[u8]) -> Vec<PathBuf> {
    let suffix = format!("/{NAME}");
    let mut found: Vec<PathBuf> = Vec::new();
    for text in cache.split(|byte| *byte == 0) {
        if text.first() == Some(&b'/') && text.ends_with(suffix.as_bytes()) {
            let path = PathBuf::from(OsString::from_vec(text.to_vec()));
            if !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}

/// Our own object: where it lies, and the path that it was loaded by.
fn own_object() -> Option<(*mut c_void, *const c_char)> {
    object_of(own_object as *mut c_void)
}

/// The object that an address lies in.
fn object_of(address: *mut c_void) -> Option<(*mut c_void, *const c_char)> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; `info` is a place for the answer.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroed is a valid value, and dladdr has filled it in.
    let info = unsafe { info.assume_init() };
    Some((info.dli_fbase, info.dli_fname))
}

/// What dlopen(3) has to say about its failure.
fn dl_error() -> String {
    // SAFETY: the thread's message, NULL or a C string that lives until its next call.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "unknown error of the dynamic linker".to_owned();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_searched_for_whole_names() {
        let cache = b"glibc-ld.so.cache1.1\x02\0\0\0librdmacm.so.1\0/usr/lib/x/librdmacm.so.1\0libibverbs.so.1\0\
            /usr/lib/x/libibverbs.so.1\0/opt/lib/librdmacm.so.1\0/usr/lib/x/librdmacm.so.1\0/lib/notlibrdmacm.so.1\0\
            /lib/librdmacm.so\0";
        assert_eq!(
            in_cache(cache),
            ["/usr/lib/x/librdmacm.so.1", "/opt/lib/librdmacm.so.1"].map(PathBuf::from)
        );
        assert_eq!(in_cache(b""), [] as [PathBuf; 0]);
    }
}
