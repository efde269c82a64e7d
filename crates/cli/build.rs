//! Puts the shared library into the program, if `RNIC_EMBED_LIBRARY` names one when the program is built, and the recorder
//! of `rnic advise`, if `RNIC_EMBED_RECORDER` does.
//!
//! `tools/release` sets it. Without it the program looks for the library beside itself, as a build of the workspace
//! leaves it.

use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use lzma_rust2::{LzipOptions, LzipWriter};

/// A library that may be put inside.
struct Inside {
    /// Where it is.
    variable: &'static str,
    /// What it is called in the folder of the build.
    file: &'static str,
    /// Which one it is.
    id: &'static str,
    /// That it is there.
    cfg: &'static str,
}

const ALL: [Inside; 2] = [
    Inside {
        variable: "RNIC_EMBED_LIBRARY",
        file: "library.lz",
        id: "RNIC_LIBRARY_ID",
        cfg: "rnic_embedded",
    },
    Inside {
        variable: "RNIC_EMBED_RECORDER",
        file: "recorder.lz",
        id: "RNIC_RECORDER_ID",
        cfg: "rnic_embedded_recorder",
    },
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for inside in ALL {
        let Inside { variable, cfg, .. } = inside;
        println!("cargo::rerun-if-env-changed={variable}");
        println!("cargo::rustc-check-cfg=cfg({cfg})");
        let Some(path) = std::env::var_os(variable).filter(|path| !path.is_empty()) else {
            continue;
        };
        let path = PathBuf::from(path);
        println!("cargo::rerun-if-changed={}", path.display());
        if let Err(why) = embed(&path, &inside) {
            println!("cargo::error={variable} names {}: {why}", path.display());
            std::process::exit(1);
        }
    }
}

fn embed(path: &Path, inside: &Inside) -> Result<(), String> {
    if path.is_relative() {
        return Err("the path has to begin with /, as cargo builds in a folder of its own".into());
    }
    let library = std::fs::read(path).map_err(|error| error.to_string())?;
    let target = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let machine = match target.as_str() {
        "x86_64" => 62u16,
        "aarch64" => 183,
        other => return Err(format!("no library is known for {other}")),
    };
    let is_library = library.starts_with(b"\x7fELF") && library.get(16..18) == Some(&[3, 0]);
    if !is_library {
        return Err("it is no shared library".into());
    }
    if library.get(18..20) != Some(&machine.to_le_bytes()) {
        return Err(format!("it is for another machine than {target}"));
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo has set no OUT_DIR")?);
    // Neither a name nor a time is in the file: the same library gives the same bytes.
    let file = std::fs::File::create(out.join(inside.file)).map_err(|error| error.to_string())?;
    let mut lzip = LzipWriter::new(file, LzipOptions::with_preset(9));
    std::io::copy(&mut &library[..], &mut lzip)
        .and_then(|_| lzip.finish()?.sync_all())
        .map_err(|error| error.to_string())?;
    let mut hasher = std::hash::DefaultHasher::new();
    library.hash(&mut hasher);
    println!("cargo::rustc-env={}={:016x}", inside.id, hasher.finish());
    println!("cargo::rustc-cfg={}", inside.cfg);
    Ok(())
}
