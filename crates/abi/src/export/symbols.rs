//! Exported symbols and their versions.
//!
//! Programs ask for `ibv_open_device@IBVERBS_1.1`, not for `ibv_open_device`. Stable Rust cannot
//! say so, the assembler can: each exported name is a jump to the Rust function, with its `.symver`
//! directives in the same block, so that neither codegen units nor LTO can part them. The version
//! nodes themselves are in `nodes.map` (see `build.rs`).

/// Exports functions: `ibv_name @@ "NODE" @ "OTHER NODE" ... => function;`.
///
/// The first node is the default version, which linkers take; the others satisfy binaries that name
/// them.
macro_rules! export {
    ($($name:ident @@ $default:literal $(@ $other:literal)* => $function:path;)*) => {
        $($crate::export::symbols::trampoline!(
            concat!("rnic_export.", stringify!($name)), $function, "",
            concat!(".symver rnic_export.", stringify!($name), ", ", stringify!($name), "@@", $default)
            $(, concat!(".symver rnic_export.", stringify!($name), ", ", stringify!($name), "@", $other))*
        );)*
    };
}

/// Exports functions that linkers do not see: `ibv_name @ "NODE" => function;` beside a default
/// version, or alone.
macro_rules! export_hidden {
    ($($name:ident @ $version:literal => $function:path;)*) => {
        $($crate::export::symbols::trampoline!(
            concat!("rnic_hidden.", stringify!($name)), $function, "",
            concat!(".symver rnic_hidden.", stringify!($name), ", ", stringify!($name), "@", $version)
        );)*
    };
}

/// Exports functions that get one more argument than C knows of, their third: where they were
/// called from.
macro_rules! export_told_caller {
    ($($name:ident @@ $default:literal => $function:path;)*) => {
        $($crate::export::symbols::trampoline!(
            concat!("rnic_export.", stringify!($name)), $function, $crate::export::symbols::caller_in_third!(),
            concat!(".symver rnic_export.", stringify!($name), ", ", stringify!($name), "@@", $default)
        );)*
    };
}

/// A jump under a label of its own, and the directives that name it.
macro_rules! trampoline {
    ($label:expr, $function:path, $before:expr, $($directive:expr),+) => {
        // The test harness is a program: it has no version script.
        #[cfg(not(test))]
        ::core::arch::global_asm!(
            concat!(".pushsection .text.", $label, ",\"ax\",@progbits"),
            ".p2align 4",
            concat!(".globl ", $label),
            concat!(".type ", $label, ",@function"),
            concat!($label, ":"),
            $before,
            $crate::export::symbols::jump!(),
            concat!(".size ", $label, ", . - ", $label),
            $($directive,)+
            ".popsection",
            function = sym $function,
        );
        #[cfg(test)]
        const _: *const () = $function as *const ();
    };
}

#[cfg(all(target_arch = "x86_64", not(test)))]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}

#[cfg(all(target_arch = "aarch64", not(test)))]
macro_rules! jump {
    () => {
        "b {function}"
    };
}

/// Puts the return address into the register of a third argument.
#[cfg(all(target_arch = "x86_64", not(test)))]
macro_rules! caller_in_third {
    () => {
        "mov rdx, qword ptr [rsp]"
    };
}

#[cfg(all(target_arch = "aarch64", not(test)))]
macro_rules! caller_in_third {
    () => {
        "mov x2, x30"
    };
}

#[cfg(not(test))]
pub(crate) use {caller_in_third, jump};
pub(crate) use {export, export_hidden, export_told_caller, trampoline};
