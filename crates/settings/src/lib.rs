//! The environment variables that set up the NIC.
//!
//! Every setting of rnic is read here and nowhere else: its name, its values, its default and what
//! it means stand in one table, from which `rnic --help` and `rnic devices -v` are made. A program
//! may change its environment until a setting is first used; code that uses one often keeps it.

#![deny(unsafe_code)]

pub mod ablation;

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;

/// A variable of the environment.
#[derive(Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What is in force without it, in words or as a value.
    pub default: &'static str,
    /// What it does, in lines that are short enough for a terminal.
    pub meaning: &'static [&'static str],
    /// Whether the value can be used.
    check: fn(&Variable) -> Result<(), Invalid>,
}

/// The value of a variable is none of those that it may have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is wrong: {why}")]
pub struct Invalid {
    /// Its name.
    pub variable: &'static str,
    /// What it says, and what it may say.
    pub why: String,
}

/// Takes any value.
fn anything(_: &Variable) -> Result<(), Invalid> {
    Ok(())
}

macro_rules! variables {
    ($($(#[$doc:meta])* $name:ident($text:literal, $default:literal, $check:expr):
        $($line:literal),+;)+) => {
        $(
            $(#[$doc])*
            pub static $name: Variable = Variable {
                name: $text,
                default: $default,
                meaning: &[$($line),+],
                check: $check,
            };
        )+
        /// All variables, in the order in which people are shown them.
        pub static ALL: &[&Variable] = &[$(&$name),+];
    };
}

variables! {
    /// Fault injection on what the process sends. The link parses it.
    FAULTS("RNIC_FAULTS", "none", anything):
        "damage what the process sends:",
        "drop=1%,dup=1%,reorder=5%,corrupt=1%,delay=10us,seed=42";
    /// A pcap file to which every packet is appended.
    PCAP("RNIC_PCAP", "none", anything):
        "append every packet to this file";
    /// Interfaces of AF_XDP. The link parses it.
    XDP("RNIC_XDP", "none", anything):
        "interfaces whose packets bypass the kernel's network stack (root): eth0,",
        "eth0:zerocopy (without copies) or eth0:generic (a driver without XDP)";
    /// How processes of one host reach each other.
    HOST_PATH("RNIC_HOST_PATH", "on", |_| host_path().map(drop)):
        "`on` (default), `rings` or `off`: between processes of this host, shared",
        "memory; shared memory, with every operation in packets; UDP";
    /// Where the kernel may segment batches of packets (UDP_SEGMENT).
    GSO("RNIC_GSO", "on", |_| gso().map(drop)):
        "`on` (default), `local` or `off`: the kernel may segment batches everywhere,",
        "only to this host, nowhere";
    /// How threads wait for events.
    WAIT("RNIC_WAIT", "adaptive", |_| wait().map(drop)):
        "how threads wait for events: `adaptive` (default), `sleep` or `spin`";
    /// The number of engines.
    SHARDS("RNIC_SHARDS", "auto", |_| shards().map(drop)):
        "engines, for threads with completion queues of their own: 1 to 16, or `auto`",
        "(default): half of the cores, at most 8, but one with RNIC_XDP";
    /// The P_Key table of the port.
    PKEYS("RNIC_PKEYS", "0xffff", |_| pkeys().map(drop)):
        "the port's P_Key table, from index 0 on: 0xffff,0x8001 (default: 0xffff alone)";
    /// Nothing is held back for speed.
    STRICT("RNIC_STRICT", "off", anything):
        "1: hold nothing back for speed: posts and ACKs leave at once, to debug with";
    /// How access to memory that was unmapped while registered becomes an error.
    GUARDED_MEMORY("RNIC_GUARDED_MEMORY", "handler", |_| guarded_memory().map(drop)):
        "what notices that memory was unmapped while registered: a `handler` of SIGSEGV",
        "(default), the `kernel`, at a cost, or nothing (`off`: the program ends there)";
    /// Refused verbs are told.
    LOG("RNIC_LOG", "off", anything):
        "1: say in words why a verb was refused";
    /// Nothing is told.
    QUIET("RNIC_QUIET", "off", anything):
        "1: say nothing on standard error";
    /// The stock librdmacm.so.1.
    LIBRDMACM("RNIC_LIBRDMACM", "the installed one", anything):
        "the stock librdmacm.so.1, for rsockets (default: the installed one)";
    /// The device that programs of the Rust API open.
    DEVICE("RNIC_DEVICE", "rnic0", anything):
        "the device that programs of the Rust API open: one of the system's, such as",
        "mlx5_0, or `system:rnic0` for one of the software NIC's name (default: rnic0)";
    /// The stock libibverbs.so.1.
    LIBIBVERBS("RNIC_LIBIBVERBS", "libibverbs.so.1", anything):
        "the libibverbs.so.1 whose devices the Rust API can open (default: the installed one)";
    /// The folder that processes of one user share.
    RUNTIME_DIR("RNIC_RUNTIME_DIR", "/tmp/rnic-UID", anything):
        "folder for what processes of one user share (default: /tmp/rnic-UID)";
}

/// The library that `rnic run` preloads. Programs do not read it.
pub static LIB: Variable = Variable {
    name: "RNIC_LIB",
    default: "librnic_verbs.so, found near rnic or inside it",
    meaning: &[
        "the library to preload (default: librnic_verbs.so, found near rnic",
        "or inside it)",
    ],
    check: anything,
};
/// Where a process that `rnic run` started writes what it has to report. People do not set it.
pub static REPORT: Variable = internal("RNIC_REPORT");
/// The report has counters, too.
pub static STATS: Variable = internal("RNIC_STATS");
/// The report has what would fail on hardware, too.
pub static LINT: Variable = internal("RNIC_LINT");
/// Where each work request is noted as it is posted, done and seen by the program, for
/// `rnic run --trace`.
pub static TRACE: Variable = internal("RNIC_TRACE");
/// The report has what threads wait for in calls that are not the NIC's, too. To find out, a thread
/// opens files of procfs now and then, which have numbers that the program may count on.
pub static WATCH: Variable = internal("RNIC_WATCH");
/// The report has how each queue pair is used, too, for `rnic advise`.
pub static USAGE: Variable = internal("RNIC_USAGE");
/// The file in which a preloaded recorder counts what sockets are used for, for `rnic advise`.
pub static RECORD: Variable = internal("RNIC_RECORD");

/// One of those that `rnic run` and `rnic advise` set for the programs that they start.
const fn internal(name: &'static str) -> Variable {
    Variable {
        name,
        default: "off",
        meaning: &["set by `rnic run`"],
        check: anything,
    }
}

impl Variable {
    /// What it says; `None` if it is not set, or empty.
    pub fn text(&self) -> Option<OsString> {
        env::var_os(self.name).filter(|text| !text.is_empty())
    }

    /// The same, as the name of a file.
    pub fn path(&self) -> Option<PathBuf> {
        self.text().map(PathBuf::from)
    }

    /// It is set to something other than `0` and `off`.
    pub fn is_on(&self) -> bool {
        self.text().is_some_and(|text| text != "0" && text != "off")
    }

    /// One of several words, each with what it means; the first is the default.
    fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, Invalid> {
        let Some(text) = self.text() else {
            return Ok(words[0].1);
        };
        let found = words.iter().find(|(word, _)| text == *word);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let possible: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.invalid(&text, possible.join(", "))
        })
    }

    fn invalid(&self, said: &OsString, possible: impl Display) -> Invalid {
        Invalid {
            variable: self.name,
            why: format!("{said:?} is none of {possible}"),
        }
    }

    /// What is in force: the value of the environment, or the default.
    pub fn in_force(&self) -> InForce {
        let said = self.text();
        InForce {
            value: match &said {
                Some(text) => text.to_string_lossy().into_owned(),
                None => self.default.to_owned(),
            },
            is_set: said.is_some(),
            problem: (self.check)(self).err().map(|invalid| invalid.why),
        }
    }
}

/// A setting as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// What the environment says, or the default.
    pub value: String,
    /// The environment says it.
    pub is_set: bool,
    /// Why the device cannot be opened with it.
    pub problem: Option<String>,
}

/// How processes of one user reach each other on one host ([`HOST_PATH`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostPath {
    /// Shared memory; WRITEs and READs may go without packets.
    #[default]
    On,
    /// Shared memory, and every operation takes packets.
    Rings,
    /// UDP, as between hosts.
    Off,
}

/// What notices that registered memory is gone ([`GUARDED_MEMORY`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuardedMemory {
    /// A handler of SIGSEGV and SIGBUS.
    #[default]
    Handler,
    /// The kernel, which copies all of it.
    Kernel,
    /// Nothing.
    Off,
}

/// Says what notices that registered memory is gone.
///
/// # Errors
/// [`GUARDED_MEMORY`] is set to something else.
pub fn guarded_memory() -> Result<GuardedMemory, Invalid> {
    use GuardedMemory::{Handler, Kernel, Off};
    GUARDED_MEMORY.one_of(&[
        ("handler", Handler),
        ("kernel", Kernel),
        ("1", Kernel),
        ("on", Kernel),
        ("off", Off),
        ("0", Off),
    ])
}

/// Says how processes of one host reach each other.
///
/// # Errors
/// [`HOST_PATH`] is set to something else.
pub fn host_path() -> Result<HostPath, Invalid> {
    use HostPath::{Off, On, Rings};
    HOST_PATH.one_of(&[
        ("on", On),
        ("1", On),
        ("rings", Rings),
        ("off", Off),
        ("0", Off),
    ])
}

/// Where packets may be left to the kernel to segment (UDP_SEGMENT, [`GSO`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gso {
    /// `on`: wherever the kernel does it.
    #[default]
    On,
    /// `local`: only towards addresses of this host, where no network card has a say in the IP
    /// identification.
    LocalOnly,
    /// `off`: nowhere.
    Off,
}

/// Says where the kernel may segment packets.
///
/// # Errors
/// [`GSO`] is set to something else.
pub fn gso() -> Result<Gso, Invalid> {
    use Gso::{LocalOnly, Off, On};
    GSO.one_of(&[
        ("on", On),
        ("1", On),
        ("local", LocalOnly),
        ("off", Off),
        ("0", Off),
    ])
}

/// How threads wait for events ([`WAIT`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Awake for a moment where that has paid, then asleep.
    #[default]
    Adaptive,
    /// Asleep at once.
    Sleep,
    /// Awake, unless others need the core.
    Spin,
}

/// Says how threads wait for events.
///
/// # Errors
/// [`WAIT`] is set to something else.
pub fn wait() -> Result<Wait, Invalid> {
    use Wait::{Adaptive, Sleep, Spin};
    WAIT.one_of(&[("adaptive", Adaptive), ("sleep", Sleep), ("spin", Spin)])
}

/// Most engines of a process.
pub const MAX_SHARDS: usize = 16;

/// Gives the number of engines that a process may have; `None`: as many as suit the machine.
///
/// # Errors
/// [`SHARDS`] is neither a number from 1 to [`MAX_SHARDS`] nor `auto`.
pub fn shards() -> Result<Option<usize>, Invalid> {
    let Some(text) = SHARDS.text().filter(|text| text != "auto") else {
        return Ok(None);
    };
    let number = text.to_str().and_then(|text| text.parse().ok());
    let possible = 1..=MAX_SHARDS;
    let number = number.filter(|n| possible.contains(n));
    number
        .map(Some)
        .ok_or_else(|| SHARDS.invalid(&text, format_args!("1 to {MAX_SHARDS} and auto")))
}

/// Most entries of a port's P_Key table, as of ConnectX adapters.
pub const MAX_PKEYS: usize = 128;

/// Gives the P_Key table of the port, index 0 first. It has one entry at least, each another one,
/// and none names the partition 0, which does not exist (IBTA vol. 1, 10.9.1).
///
/// # Errors
/// [`PKEYS`] is set to something else.
pub fn pkeys() -> Result<Vec<u16>, Invalid> {
    let Some(text) = PKEYS.text() else {
        return Ok(vec![0xffff]);
    };
    let possible = || {
        let all = "lists of different P_Keys (0x0001 to 0x7fff, 0x8001 to 0xffff)";
        PKEYS.invalid(&text, format_args!("{all}, {MAX_PKEYS} at most"))
    };
    let mut pkeys = Vec::new();
    for said in text.to_str().ok_or_else(possible)?.split(',') {
        let pkey = number(said.trim()).filter(|pkey| pkey & 0x7fff != 0);
        let pkey = pkey.filter(|pkey| !pkeys.contains(pkey) && pkeys.len() < MAX_PKEYS);
        pkeys.push(pkey.ok_or_else(possible)?);
    }
    Ok(pkeys)
}

/// A decimal or, after `0x`, hexadecimal number of 16 bits.
fn number(text: &str) -> Option<u16> {
    let digits = |digits: &str, radix| {
        // `from_str_radix` takes a sign, too.
        let all = digits.bytes().all(|digit| digit.is_ascii_alphanumeric());
        all.then(|| u16::from_str_radix(digits, radix).ok())?
    };
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => digits(hex, 16),
        None => digits(text, 10),
    }
}

#[cfg(test)]
mod tests;
