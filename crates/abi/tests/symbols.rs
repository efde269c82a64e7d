//! Every symbol and version that the real libraries export is exported here, so nothing that loads
//! against them fails to load against us.

use crate::common;

use std::collections::BTreeSet;
use std::path::Path;

use object::read::elf::ElfFile64;
use object::{Endianness, Object};

/// Dynamic symbols defined in a shared object: name, version, whether that is the default version,
/// code or data.
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

/// librspreload.so stands in for libc's socket functions with rsockets, which stand on us: a socket
/// of our own that we made through libc would be one of those. (What it does to read, write, close,
/// poll and fcntl of descriptors that it does not know is to hand them on.)
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

/// What releases after the installed one added: a program built against them loads, and finds what
/// it asks for. (docs/symbols.md has all of the newest one's.)
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
        ("IBVERBS_PRIVATE_33", &["verbs_register_driver_33"]),
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
        "IBVERBS_PRIVATE_33",
        "IBVERBS_PRIVATE_57",
        "IBVERBS_PRIVATE_59",
        "IBVERBS_PRIVATE_64",
    ] {
        let missing: Vec<_> = first.difference(&with(later)).copied().collect();
        assert!(missing.is_empty(), "{later} lacks {missing:?}");
    }
}

/// docs/symbols.md: every symbol of the newest release, what it answers, and what shows that.
mod table {
    use std::path::{Path, PathBuf};

    use super::*;

    /// A row: the cells between the bars, without the marks of code.
    type Row = Vec<String>;

    fn crates() -> PathBuf {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        own.parent().expect("the folder of crates").to_path_buf()
    }

    /// The rows under that heading.
    fn rows(heading: &str) -> Vec<Row> {
        let path = crates().join("../docs/symbols.md");
        let text = std::fs::read_to_string(path).expect("docs/symbols.md");
        let section = text
            .split("\n## ")
            .find(|section| section.starts_with(heading))
            .unwrap_or_else(|| panic!("no section {heading}"));
        let rows: Vec<Row> = section
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(|line| {
                let cells = line.trim_matches('|').split(" | ");
                cells.map(|cell| cell.trim().trim_matches('`').to_owned())
            })
            .map(Iterator::collect)
            .collect();
        assert!(rows.len() > 50, "{heading}: {} rows", rows.len());
        rows
    }

    /// `name@version`, answer and test of both libraries' public symbols.
    fn public() -> Vec<[String; 3]> {
        let rows = ["libibverbs", "librdmacm"].map(rows).concat();
        rows.into_iter()
            .map(|row| match <[String; 4]>::try_from(row) {
                Ok([name, version, answer, test]) => [format!("{name}@{version}"), answer, test],
                Err(row) => panic!("{row:?} has not four cells"),
            })
            .collect()
    }

    fn inline() -> Vec<[String; 3]> {
        let rows = rows("verbs.h").into_iter();
        rows.map(|row| <[String; 3]>::try_from(row).expect("three cells"))
            .collect()
    }

    /// The errno, or `nothing`; `None`: it works.
    fn refusal(answer: &str) -> Option<&str> {
        let kind = answer.split(':').next().unwrap_or_default();
        match kind {
            "works" | "default" => None,
            "nothing" => Some(kind),
            _ if kind.starts_with('E') => Some(kind),
            _ => panic!("{answer:?} is no answer"),
        }
    }

    /// Each once, exported as a function with that version; and nothing public is exported that is
    /// not in the table.
    #[test]
    fn has_every_public_symbol_and_no_other() {
        let ours = exported(common::library());
        let ours: BTreeSet<String> = ours
            .iter()
            .filter(|s| s.function && !s.version.is_empty() && !s.version.contains("PRIVATE"))
            .map(|s| format!("{}@{}", s.name, s.version))
            .collect();
        let listed = public();
        let names: BTreeSet<String> = listed.iter().map(|[name, ..]| name.clone()).collect();
        assert_eq!(names.len(), listed.len(), "a symbol is listed twice");
        let missing: Vec<_> = names.difference(&ours).collect();
        assert!(missing.is_empty(), "not exported: {missing:?}");
        let unlisted: Vec<_> = ours.difference(&names).collect();
        assert!(unlisted.is_empty(), "not in the table: {unlisted:?}");
    }

    #[test]
    fn has_the_private_half() {
        let ours = exported(common::library());
        let missing: Vec<_> = rows("The private half")
            .into_iter()
            .filter(|row| {
                !ours
                    .iter()
                    .any(|s| s.name == row[0] && s.version == "IBVERBS_PRIVATE_65")
            })
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    /// The test that a row names calls that symbol.
    #[test]
    fn names_tests_that_call_the_symbol() {
        for [name, _, test] in public().into_iter().chain(inline()) {
            let name = name.split('@').next().unwrap_or_default();
            let name = name.trim_start_matches('_');
            let path = crates().join(&test);
            let source = std::fs::read_to_string(&path)
                .unwrap_or_else(|e| panic!("{name}: {}: {e}", path.display()));
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let called = source
                .split(|c| !is_word(c))
                .any(|word| word.trim_start_matches('_') == name);
            assert!(called, "{test} has no {name}");
        }
    }

    /// What is refused is called, and refused so; what is called is in the table.
    #[test]
    fn says_what_is_refused_and_how() {
        if !common::headers_available() {
            return;
        }
        let expected: BTreeSet<String> = public()
            .into_iter()
            .chain(inline())
            .filter_map(|[name, answer, _]| Some(format!("{name} {}", refusal(&answer)?)))
            .collect();
        let told: BTreeSet<String> = common::run_c("symbols", &["-libverbs", "-lrdmacm", "-ldl"])
            .lines()
            .filter(|line| !line.ends_with(": ok") && !line.starts_with("rnic: "))
            .map(str::to_owned)
            .collect();
        let wrong: Vec<_> = expected.symmetric_difference(&told).collect();
        assert!(
            wrong.is_empty(),
            "the table and abi/tests/c/symbols.c disagree: {wrong:#?}"
        );
    }
}

/// What programs or libraries could bind to by accident: an unversioned name would match any
/// reference to it.
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

/// libc functions that the library interposes, unversioned on purpose, and those that the run-time
/// libraries of sanitizers look for.
const HOOKS: &[&str] = &[
    "__asan_default_options",
    "__tsan_default_suppressions",
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
    "dup",
    "dup2",
    "dup3",
    "fcntl",
    "fcntl64",
    "epoll_create",
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "poll",
    "__poll_chk",
    "ppoll",
    "__ppoll_chk",
    "select",
    "pselect",
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
