//! Every symbol and version that the real libraries export is exported here, so nothing that loads against them fails
//! to load against us.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use object::read::elf::ElfFile64;
use object::{Endianness, Object};

/// Dynamic symbols defined in a shared object: name, version, whether that is the default version, code or data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Symbol {
    name: String,
    version: String,
    default: bool,
    function: bool,
}

fn exported(path: &Path) -> BTreeSet<Symbol> {
    let data = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file = ElfFile64::<Endianness>::parse(&*data).expect("an ELF file");
    let endian = file.endian();
    let sections = file.elf_section_table();
    let versions = sections
        .versions(endian, &*data)
        .expect("readable version sections")
        .expect("symbol versions");
    let table = file.elf_dynamic_symbol_table();
    let mut symbols = BTreeSet::new();
    for (index, symbol) in table.enumerate() {
        use object::elf::{SHN_ABS, SHN_UNDEF, STT_FUNC, STT_NOTYPE, STT_SECTION};
        use object::read::elf::Sym;
        // GNU ld also exports each version node as an absolute symbol; nothing can refer to those.
        let section = symbol.st_shndx(endian);
        if section == SHN_UNDEF
            || section == SHN_ABS
            || matches!(symbol.st_type(), STT_NOTYPE | STT_SECTION)
        {
            continue;
        }
        let name = symbol.name(endian, table.strings()).expect("a name");
        let at = versions.version_index(endian, index);
        let version = versions.version(at).expect("a version");
        symbols.insert(Symbol {
            name: String::from_utf8_lossy(name).into_owned(),
            version: version.map_or(String::new(), |v| {
                String::from_utf8_lossy(v.name()).into_owned()
            }),
            default: !at.is_hidden(),
            function: symbol.st_type() == STT_FUNC,
        });
    }
    assert!(file.is_64());
    symbols
}

fn real(name: &str) -> Option<std::path::PathBuf> {
    [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
    ]
    .iter()
    .map(|dir| Path::new(dir).join(name))
    .find(|path| path.exists())
}

fn compare_with(name: &str, package: &str) {
    let Some(real) = real(name) else {
        common::allowed_missing(&[package], "RNIC_ALLOW_MISSING_HEADERS");
        return;
    };
    let ours = exported(common::library());
    let missing: Vec<_> = exported(&real)
        .into_iter()
        .filter(|s| !ours.contains(s))
        .collect();
    assert!(
        missing.is_empty(),
        "{} has, and we do not: {missing:#?}",
        real.display()
    );
}

#[test]
fn every_symbol_and_version_of_libibverbs_is_there() {
    compare_with("libibverbs.so.1", "libibverbs1");
}

#[test]
fn every_symbol_and_version_of_librdmacm_is_there() {
    compare_with("librdmacm.so.1", "librdmacm1");
}

/// librspreload.so stands in for libc's socket functions with rsockets, which stand on us: a socket of our own that we
/// made through libc would be one of those. (What it does to read, write, close, poll and fcntl of descriptors that it
/// does not know is to hand them on.)
#[test]
fn sockets_are_not_libcs() {
    let path = common::library();
    let data = std::fs::read(path).expect("readable");
    let file = ElfFile64::<Endianness>::parse(&*data).expect("an ELF file");
    let table = file.elf_dynamic_symbol_table();
    let imported = |wanted: &str| {
        table.iter().any(|symbol| {
            use object::read::elf::Sym;
            let name = symbol.name(file.endian(), table.strings());
            symbol.st_shndx(file.endian()) == object::elf::SHN_UNDEF
                && name.is_ok_and(|name| name == wanted.as_bytes())
        })
    };
    assert!(imported("malloc"), "imports can be told");
    let sockets: Vec<_> = "socket bind listen accept accept4 connect shutdown recv recvfrom recvmsg recvmmsg send sendto \
        sendmsg sendmmsg getsockopt setsockopt getsockname getpeername select sendfile dup2 readv epoll_wait"
        .split_whitespace()
        .filter(|name| imported(name))
        .collect();
    assert!(sockets.is_empty(), "{sockets:?}");
}

/// NCCL and other users of dlvsym ask for one exact version.
#[test]
fn versions_are_exact() {
    let ours = exported(common::library());
    for (name, version) in [
        ("ibv_create_comp_channel", "IBVERBS_1.0"),
        ("ibv_open_device", "IBVERBS_1.1"),
        ("ibv_reg_mr_iova2", "IBVERBS_1.8"),
        ("ibv_query_ece", "IBVERBS_1.10"),
        ("ibv_reg_dmabuf_mr", "IBVERBS_1.12"),
        ("rdma_establish", "RDMACM_1.2"),
    ] {
        let defaults: Vec<_> = ours
            .iter()
            .filter(|s| s.name == name && s.default)
            .collect();
        assert_eq!(defaults.len(), 1, "{name}: {defaults:?}");
        assert_eq!(defaults[0].version, version, "{name}");
    }
}

/// What releases after the installed one added: a program built against them loads, and finds what it asks for.
#[test]
fn symbols_of_later_releases_are_there() {
    let ours = exported(common::library());
    let has = |name: &str, version: &str| {
        ours.iter()
            .any(|s| s.name == name && s.version == version && s.function)
    };
    const LATER: &[(&str, &[&str])] = &[
        (
            "IBVERBS_1.15",
            &["ibv_alloc_dmah", "ibv_dealloc_dmah", "ibv_reg_mr_ex"],
        ),
        (
            "IBVERBS_1.16",
            &["ibv_dm_export_dmabuf_fd", "ibv_query_port_speed"],
        ),
        (
            "IBVERBS_1.17",
            &["ibv_alloc_buf", "ibv_free_buf", "ibv_reg_buf_mr"],
        ),
        (
            "IBVERBS_1.18",
            &[
                "ibv_create_comp_cntr",
                "ibv_destroy_comp_cntr",
                "ibv_read_comp_cntr",
            ],
        ),
        (
            "RDMACM_1.4",
            &[
                "rdma_query_addrinfo",
                "rdma_resolve_addrinfo",
                "rdma_write_cm_event",
            ],
        ),
        ("IBVERBS_PRIVATE_34", &["verbs_register_driver_34"]),
        ("IBVERBS_PRIVATE_57", &["verbs_register_driver_57"]),
        ("IBVERBS_PRIVATE_59", &["verbs_register_driver_59"]),
        ("IBVERBS_PRIVATE_64", &["verbs_register_driver_64"]),
    ];
    for (version, names) in LATER {
        for name in *names {
            assert!(has(name, version), "{name}@{version}");
        }
    }
}

/// Providers of every release bind the private symbols of their own number.
#[test]
fn private_symbols_have_the_number_of_every_release() {
    let ours = exported(common::library());
    let with = |version: &str| -> BTreeSet<&str> {
        ours.iter()
            .filter(|s| s.version == version && !s.name.starts_with("verbs_register_driver_"))
            .map(|s| s.name.as_str())
            .collect()
    };
    let first = with("IBVERBS_PRIVATE_34");
    assert!(first.len() > 60, "{first:?}");
    for later in [
        "IBVERBS_PRIVATE_57",
        "IBVERBS_PRIVATE_59",
        "IBVERBS_PRIVATE_64",
    ] {
        let missing: Vec<_> = first.difference(&with(later)).copied().collect();
        assert!(missing.is_empty(), "{later} lacks {missing:?}");
    }
}

/// What programs or libraries could bind to by accident: an unversioned name would match any reference to it.
#[test]
fn nothing_else_is_exported() {
    let hooks: BTreeSet<&str> = HOOKS.iter().copied().collect();
    let stray: Vec<_> = exported(common::library())
        .into_iter()
        .filter(|s| s.version.is_empty() && !hooks.contains(s.name.as_str()))
        .collect();
    assert!(stray.is_empty(), "unversioned exports: {stray:?}");
    let exported = exported(common::library());
    for hook in hooks {
        let found = exported
            .iter()
            .any(|s| s.name == hook && s.version.is_empty());
        assert!(found, "{hook} is not interposed");
    }
}

/// libc functions that the library interposes, unversioned on purpose.
const HOOKS: &[&str] = &[
    "open",
    "open64",
    "__open_2",
    "__open64_2",
    "openat",
    "openat64",
    "__openat_2",
    "__openat64_2",
    "fopen",
    "fopen64",
    "stat",
    "stat64",
    "lstat",
    "lstat64",
    "fstatat",
    "fstatat64",
    "statx",
    "__xstat",
    "__xstat64",
    "__lxstat",
    "__lxstat64",
    "__fxstatat",
    "__fxstatat64",
    "access",
    "faccessat",
    "eaccess",
    "readlink",
    "readlinkat",
    "__readlink_chk",
    "realpath",
    "__realpath_chk",
    "canonicalize_file_name",
    "getxattr",
    "lgetxattr",
    "listxattr",
    "llistxattr",
    "opendir",
    "scandir",
    "scandir64",
    "chdir",
    "glob",
    "glob64",
    "socket",
    "send",
    "sendto",
    "sendmsg",
    "recv",
    "__recv_chk",
    "recvfrom",
    "__recvfrom_chk",
    "recvmsg",
];

#[test]
fn the_library_calls_itself_libibverbs() {
    let data = std::fs::read(common::library()).expect("the library");
    let file = ElfFile64::<Endianness>::parse(&*data).expect("an ELF file");
    assert!(file.exports().is_ok());
    let output = std::process::Command::new("readelf")
        .arg("-d")
        .arg(common::library())
        .output();
    let Ok(output) = output else {
        common::allowed_missing(&["binutils"], "RNIC_ALLOW_MISSING_HEADERS");
        return;
    };
    let dynamic = common::text(&output);
    assert!(dynamic.contains("soname: [libibverbs.so.1]"), "{dynamic}");
    assert!(
        dynamic.contains("NODELETE"),
        "the engine's thread runs our code: {dynamic}"
    );
}
