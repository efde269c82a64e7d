//! A librdmacm that calls its own `rdma_*` without asking the dynamic linker.
//!
//! Ubuntu links libraries with `-Bsymbolic-functions`: calls from a library to its own exported
//! functions are bound when it is linked, so that `rsocket.c` there never finds ours. The private
//! copy that we have loaded is used for nothing but its `r*`, so the entry of each of its `rdma_*`
//! becomes a jump to ours.

use core::ffi::c_void;
use std::io;
use std::ptr::NonNull;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol, ObjectSymbolTable, RelocationTarget, SymbolKind};

/// What `rsocket.c` calls first.
const FIRST: &str = "rdma_create_id";

/// A function of the library that is to be ours.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    /// Bytes that are its alone.
    pub(super) room: usize,
}

/// What a library's calls to its own `rdma_*` are bound to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Calls {
    /// Whatever the dynamic linker finds first: ours.
    Outside,
    /// The library's own, which these are.
    Inside(Vec<Entry>),
}

impl Calls {
    /// Those of a library's file.
    pub(super) fn of(file: &[u8]) -> object::Result<Calls> {
        let elf = ElfFile64::<object::Endianness>::parse(file)?;
        let Some(symbols) = elf.dynamic_symbol_table() else {
            return Ok(Calls::Inside(Vec::new()));
        };
        let asks = |relocation: object::Relocation| match relocation.target() {
            RelocationTarget::Symbol(index) => symbols
                .symbol_by_index(index)
                .and_then(|symbol| symbol.name())
                .is_ok_and(|name| name == FIRST),
            _ => false,
        };
        let relocations = elf.dynamic_relocations();
        if relocations.is_some_and(|mut all| all.any(|(_, relocation)| asks(relocation))) {
            return Ok(Calls::Outside);
        }
        let entry = |symbol: object::read::elf::ElfSymbol64<'_, '_>| {
            let name = symbol.name().ok()?.to_owned();
            let ours = name.starts_with("rdma_")
                && symbol.kind() == SymbolKind::Text
                && symbol.is_definition();
            // Behind a function that begins on such a boundary comes filling, up to the next one.
            let room = match symbol.address().is_multiple_of(16) {
                true => symbol.size().next_multiple_of(16),
                false => symbol.size(),
            };
            let room = room as usize;
            ours.then_some(Entry { name, room })
        };
        Ok(Calls::Inside(symbols.symbols().filter_map(entry).collect()))
    }
}

/// movabs rax, `to`; jmp rax.
#[cfg(target_arch = "x86_64")]
fn jump(to: *const c_void) -> Option<Vec<u8>> {
    let mut code = vec![0x48, 0xb8];
    code.extend_from_slice(&(to as u64).to_le_bytes());
    code.extend_from_slice(&[0xff, 0xe0]);
    Some(code)
}

#[cfg(not(target_arch = "x86_64"))]
fn jump(_: *const c_void) -> Option<Vec<u8>> {
    None
}

/// Has callers of the function at `entry` arrive at `to`.
///
/// # Safety
/// `entry` is the first byte of a function with the type of `to`, of which nobody executes anything
/// now, and which has that room; `to` stays where it is.
///
/// # Errors
/// There is too little room, the processor is another one, or the system lets nobody write code
/// (SELinux's `execmod`).
pub(super) unsafe fn redirect(
    entry: NonNull<c_void>,
    room: usize,
    to: NonNull<c_void>,
) -> io::Result<()> {
    // SAFETY: sysconf takes no pointer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as usize;
    let unsupported = || io::Error::from(io::ErrorKind::Unsupported);
    let code = jump(to.as_ptr()).filter(|code| code.len() <= room);
    let code = code.ok_or_else(unsupported)?;
    let at = entry.as_ptr().cast::<u8>();
    let start = at as usize & !(page - 1);
    let len = at as usize + code.len() - start;
    let protect = |rights| {
        // SAFETY: pages of a library that stays loaded; all of them can be executed all the time.
        match unsafe { libc::mprotect(start as *mut c_void, len, rights) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    protect(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC)?;
    // SAFETY: the caller's promise; the bytes can be written since the call above.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), at, code.len()) };
    protect(libc::PROT_READ | libc::PROT_EXEC)
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn one() -> i32 {
        1
    }
    extern "C" fn two() -> i32 {
        2
    }

    /// As Debian links it.
    #[test]
    fn the_installed_library_asks_the_dynamic_linker() {
        for path in [
            "/usr/lib/x86_64-linux-gnu/librdmacm.so.1",
            "/usr/lib64/librdmacm.so.1",
        ] {
            if let Ok(file) = std::fs::read(path) {
                assert_eq!(Calls::of(&file), Ok(Calls::Outside), "{path}");
            }
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_jump_goes_where_it_should() {
        let entry = NonNull::new(one as *mut c_void).unwrap();
        let to = NonNull::new(two as *mut c_void).unwrap();
        assert_eq!(jump(to.as_ptr()).map(|code| code.len()), Some(12));
        // SAFETY: it is not called, for want of room.
        let refused = unsafe { redirect(entry, 11, to) };
        assert!(refused.is_err());
        assert_eq!((one(), two()), (1, 2));
    }
}
