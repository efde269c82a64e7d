//! Links the shared library under the name and with the symbol versions of the libraries it stands in for.
//!
//! The version script holds empty nodes only. `.symver` directives beside each exported function say
//! which symbol has which version (see `src/export/symbols.rs`). rust-lld accepts the script beside
//! the one that rustc passes itself.

fn main() {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("nodes.map");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=nodes.map");
    println!(
        "cargo:rustc-cdylib-link-arg=-Wl,--version-script={}",
        script.display()
    );
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    // The engine has a thread: dlclose(3) must not unmap the code under it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
