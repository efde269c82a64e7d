//! What kind of program a file is, as far as loading another library into it goes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// An executable file.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    /// Loaded by a dynamic loader, whose path is given.
    Dynamic { loader: OsString },
    /// Has no loader: nothing can be put in front of its libraries, which are inside it.
    Static,
    /// For another kind of processor, or of another width.
    OtherMachine { machine: u16, bits: u8 },
    /// An ELF file that is not a program (a library without an entry, an object file) or is
    /// damaged.
    NotAProgram(&'static str),
    /// `#!` and its line, split at the first blank.
    Script {
        interpreter: OsString,
        argument: Option<OsString>,
    },
    /// None of these.
    Unknown,
}

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("which ELF machine is this?");

const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const PT_INTERP: u32 = 3;

/// Longest `#!` line that Linux reads.
const SCRIPT_LINE: usize = 256;

/// Looks at the bytes of a file (its beginning is enough as long as it holds the program headers
/// and the loader's name).
pub fn kind(bytes: &[u8]) -> Kind {
    if let Some(rest) = bytes.strip_prefix(b"#!") {
        return script(rest);
    }
    if !bytes.starts_with(b"\x7fELF") {
        return Kind::Unknown;
    }
    elf(bytes).unwrap_or(Kind::NotAProgram("its headers are cut off or damaged"))
}

fn script(rest: &[u8]) -> Kind {
    let line = rest.split(|b| *b == b'\n').next().unwrap_or_default();
    let line = &line[..line.len().min(SCRIPT_LINE)];
    let line = line.trim_ascii();
    let (interpreter, argument) = match line.iter().position(|b| matches!(b, b' ' | b'\t')) {
        Some(at) => (&line[..at], Some(line[at..].trim_ascii())),
        None => (line, None),
    };
    if interpreter.is_empty() {
        return Kind::Unknown;
    }
    Kind::Script {
        interpreter: OsString::from_vec(interpreter.to_vec()),
        argument: argument.map(|a| OsString::from_vec(a.to_vec())),
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn elf(bytes: &[u8]) -> Option<Kind> {
    let [class, data] = field(bytes, 4)?;
    // EI_DATA 1: little endian, as both processors we know are.
    let machine = match data {
        2 => u16::from_be_bytes(field(bytes, 18)?),
        _ => u16::from_le_bytes(field(bytes, 18)?),
    };
    if class != 2 || data != 1 || machine != MACHINE {
        return Some(Kind::OtherMachine {
            machine,
            bits: if class == 1 { 32 } else { 64 },
        });
    }
    let u16_at = |at| field(bytes, at).map(u16::from_le_bytes);
    let u32_at = |at| field(bytes, at).map(u32::from_le_bytes);
    let usize_at = |at| usize::try_from(u64::from_le_bytes(field(bytes, at)?)).ok();
    if !matches!(u16_at(16)?, ET_EXEC | ET_DYN) {
        return Some(Kind::NotAProgram("it is an object or core file"));
    }
    let (table, size, count) = (usize_at(32)?, usize::from(u16_at(54)?), u16_at(56)?);
    if size < 56 {
        return None;
    }
    for index in 0..usize::from(count) {
        let header = table.checked_add(index.checked_mul(size)?)?;
        if u32_at(header)? != PT_INTERP {
            continue;
        }
        let (offset, len) = (usize_at(header + 8)?, usize_at(header + 32)?);
        let name = bytes.get(offset..offset.checked_add(len)?)?;
        let name = name.split(|b| *b == 0).next().unwrap_or_default();
        return Some(Kind::Dynamic {
            loader: OsString::from_vec(name.to_vec()),
        });
    }
    // ET_DYN without a loader is a static-pie program, or a library that somebody tries to run.
    Some(Kind::Static)
}

/// The file, of which these bytes are the beginning, may be loaded into programs of this machine.
pub fn is_library(bytes: &[u8]) -> bool {
    let number = |at| field(bytes, at).map(u16::from_le_bytes);
    let ours = bytes.starts_with(b"\x7fELF\x02\x01") && number(18) == Some(MACHINE);
    // Not by `kind`: some libraries can be started as well, and glibc's has the loader's name far
    // from its beginning.
    ours && number(16) == Some(ET_DYN)
}

/// The processor an ELF machine number stands for.
pub fn machine_name(machine: u16) -> String {
    match machine {
        3 => "x86 (32 bit)".into(),
        40 => "ARM (32 bit)".into(),
        62 => "x86-64".into(),
        183 => "ARM (64 bit)".into(),
        243 => "RISC-V".into(),
        21 => "POWER (64 bit)".into(),
        22 => "S/390".into(),
        other => format!("ELF machine {other}"),
    }
}

#[cfg(test)]
mod tests;
