//! Copies by instructions whose addresses the handler of faults knows.

use libc::ucontext_t;

use super::Word;

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(include_str!("x86_64.s"));
#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(include_str!("aarch64.s"));

/// A fault in a copy is noticed.
pub(super) const NOTICES: bool = true;

unsafe extern "C" {
    fn rnic_guarded_copy(to: *mut u8, from: *const u8, len: usize) -> u32;
    #[cfg(target_arch = "x86_64")]
    fn rnic_guarded_copy_avx(to: *mut u8, from: *const u8, len: usize) -> u32;
    fn rnic_guarded_store_1(to: *mut u8, value: u8) -> u32;
    fn rnic_guarded_store_4(to: *mut u8, value: u32) -> u32;
    fn rnic_guarded_store_8(to: *mut u8, value: u64) -> u32;
    fn rnic_guarded_add(at: *mut u64, add: u64, before: &mut u64) -> u32;
    fn rnic_guarded_swap(at: *mut u64, compare: u64, swap: u64, before: &mut u64) -> u32;
    /// Begin and end of all of these, and where one goes on that met a fault. None is called.
    safe static rnic_guarded_begin: u8;
    safe static rnic_guarded_end: u8;
    safe static rnic_guarded_gone: u8;
}

/// # Safety
/// As [`super::copy`]'s.
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    if len >= 128 && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: by contract; the processor has the instructions.
        return unsafe { rnic_guarded_copy_avx(to, from, len) } != 0;
    }
    // SAFETY: by contract.
    unsafe { rnic_guarded_copy(to, from, len) != 0 }
}

/// # Safety
/// As [`super::store`]'s.
#[inline]
pub(super) unsafe fn store(to: *mut u8, word: Word) -> bool {
    // SAFETY: by contract.
    let stored = unsafe {
        match word {
            Word::Byte(value) => rnic_guarded_store_1(to, value),
            Word::Half(value) => rnic_guarded_store_4(to, value),
            Word::Whole(value) => rnic_guarded_store_8(to, value),
        }
    };
    stored != 0
}

/// # Safety
/// As [`super::store`]'s.
pub(super) unsafe fn fetch_add(at: *mut u64, add: u64) -> Option<u64> {
    let mut before = 0;
    // SAFETY: by contract; `before` is ours.
    let done = unsafe { rnic_guarded_add(at, add, &mut before) } != 0;
    done.then_some(before)
}

/// # Safety
/// As [`super::store`]'s.
pub(super) unsafe fn compare_swap(at: *mut u64, compare: u64, swap: u64) -> Option<u64> {
    let mut before = 0;
    // SAFETY: by contract; `before` is ours.
    let done = unsafe { rnic_guarded_swap(at, compare, swap, &mut before) } != 0;
    done.then_some(before)
}

/// If one of these met the fault, lets it go on where it returns.
///
/// # Safety
/// `context` is what the kernel passed to the handler.
pub(super) unsafe fn leave(context: *mut ucontext_t) -> bool {
    let begin = &raw const rnic_guarded_begin as usize;
    let end = &raw const rnic_guarded_end as usize;
    let gone = &raw const rnic_guarded_gone as usize;
    // SAFETY: by contract, and nobody else has it now.
    let machine = unsafe { &mut (*context).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    let at = &mut machine.gregs[libc::REG_RIP as usize];
    #[cfg(target_arch = "aarch64")]
    let at = &mut machine.pc;
    let ours = (begin..end).contains(&(*at as usize));
    if ours {
        *at = gone as _;
    }
    ours
}
