//! System calls by their number, for those that rustix does not have.
//!
//! None goes through libc: its functions may be another library's (see the crate), its
//! `syscall` changes errno, which belongs to the program that a library is preloaded into. On other
//! processors than the two below libc's `syscall` is taken.

use std::io;

use libc::c_long;

/// An argument of a system call: a word.
pub(crate) trait Arg {
    /// As a word.
    fn word(self) -> usize;
}

macro_rules! numbers {
    ($($kind:ty),*) => {$(
        impl Arg for $kind {
            #[inline(always)]
            fn word(self) -> usize {
                // With its sign, as the kernel takes an int.
                self as isize as usize
            }
        }
    )*};
}
numbers!(i32, u32, i64, u64, isize, usize);

impl<T> Arg for *const T {
    #[inline(always)]
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Arg for *mut T {
    #[inline(always)]
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

/// What the kernel says: a number, or an error.
#[inline(always)]
fn result(said: isize) -> io::Result<usize> {
    match usize::try_from(said) {
        Ok(said) => Ok(said),
        Err(_) => Err(io::Error::from_raw_os_error(said.wrapping_neg() as i32)),
    }
}

/// The system call of that number.
///
/// # Safety
/// Of what the arguments point to, the kernel reads and writes what that call reads and writes. It
/// must be there for as long as the call lasts, and be the caller's to lend.
#[inline(always)]
pub(crate) unsafe fn call(number: c_long, args: [usize; 6]) -> io::Result<usize> {
    let [a, b, c, d, e, f] = args;
    let said: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's calling convention: it changes rax, rcx and r11 alone, and uses no stack
    // of this process. What it does to memory the caller has vouched for.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => said,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel's calling convention: it changes x0 alone, and uses no stack of this
    // process. What it does to memory the caller has vouched for.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a as isize => said,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            in("x4") e,
            in("x5") f,
            options(nostack),
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    // SAFETY: the caller has vouched for what the call does.
    unsafe {
        said = match libc::syscall(number, a, b, c, d, e, f) {
            -1 => -(*libc::__errno_location() as isize),
            done => done as isize,
        };
    }
    result(said)
}

/// A system call with fewer arguments: `raw!(SYS_getsockopt, fd, level)`, in an unsafe block.
macro_rules! raw {
    ($number:expr $(, $arg:expr)* $(,)?) => {
        $crate::raw::call($number, $crate::raw::words([$($crate::raw::Arg::word($arg)),*]))
    };
}
pub(crate) use raw;

/// Six words: those given, and zeros.
#[inline(always)]
pub(crate) fn words<const N: usize>(given: [usize; N]) -> [usize; 6] {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&given);
    all
}
