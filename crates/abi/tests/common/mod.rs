//! What the tests of the shared library need: the library itself, a folder that names it as `rnic
//! run` does, a C compiler and the real libraries' headers.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

/// The names under which programs look for the two libraries.
pub const NAMES: [&str; 4] = [
    "libibverbs.so.1",
    "libibverbs.so",
    "librdmacm.so.1",
    "librdmacm.so",
];

/// `librnic_verbs.so`, built beside this test with the test's own profile. Cargo builds no cdylib
/// for tests by itself.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if let Some(sanitizer) = sanitizer() {
            return sanitizer.library.clone();
        }
        // `./test` builds it once, not each process of a test.
        if let Some(library) = std::env::var_os("RNIC_TEST_LIBRARY") {
            return library.into();
        }
        let exe = std::env::current_exe().expect("own path");
        // <target>/<profile folder>/deps/<test>
        let profile_dir = exe.ancestors().nth(2).expect("target folder").to_path_buf();
        let target_dir = profile_dir.parent().expect("target folder");
        let profile = match profile_dir.file_name().and_then(|n| n.to_str()) {
            Some("debug") => "test",
            Some(other) => other,
            None => panic!("no profile folder in {}", profile_dir.display()),
        };
        let status = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--lib",
                "--workspace",
                "--profile",
                profile,
            ])
            .arg("--target-dir")
            .arg(target_dir)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        assert!(status.success(), "cargo build of the library: {status}");
        let library = profile_dir.join("librnic_verbs.so");
        assert!(library.exists(), "{} was not built", library.display());
        library
    })
}

/// A scratch folder of this test process.
pub fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("scratch folder");
    dir
}

/// A folder with the library under all its names.
pub fn library_dir(name: &str) -> PathBuf {
    let dir = scratch(name);
    for link in NAMES {
        let link = dir.join(link);
        let _ = fs::remove_file(&link);
        symlink(library(), link).expect("symlink");
    }
    dir
}

/// A command that runs under the library, with the environment that `rnic run` makes.
///
/// Where that is possible it runs in a network namespace of its own: UDP port 4791 belongs to one
/// user at a time, and whatever else uses the device on this host is none of the test's business.
pub fn under_library(dir: &Path, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = if namespaces_work() {
        let mut command = Command::new("unshare");
        command.args([
            "-r",
            "-n",
            "sh",
            "-c",
            "ip link set lo up && exec env \"$@\"",
            "sh",
        ]);
        command.env("RNIC_RUNTIME_DIR", private(dir));
        command
    } else {
        eprintln!(
            "no network namespace of our own: the test fails if another user has UDP port 4791"
        );
        Command::new("env")
    };
    let mut preload = std::ffi::OsString::from("LD_PRELOAD=");
    preload.push(dir.join("libibverbs.so.1"));
    let mut path = std::ffi::OsString::from("LD_LIBRARY_PATH=");
    path.push(dir);
    command.args([path, preload]).arg(program);
    if let Some(sanitizer) = sanitizer() {
        let (variable, options) = sanitizer.options();
        command.env(variable, options);
    }
    command
}

fn private(dir: &Path) -> PathBuf {
    use std::os::unix::fs::DirBuilderExt;
    let runtime = dir.join("runtime");
    let made = fs::DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(&runtime);
    made.expect("runtime folder");
    runtime
}

/// Whether this user may make network namespaces and bring up an interface in one.
fn namespaces_work() -> bool {
    static WORK: OnceLock<bool> = OnceLock::new();
    *WORK.get_or_init(|| {
        Command::new("unshare")
            .args(["-r", "-n", "ip", "link", "set", "lo", "up"])
            .output()
            .is_ok_and(|output| output.status.success())
    })
}

/// The headers of libibverbs and librdmacm and gcc, or why the test cannot tell anything. Panics
/// unless the environment says that they may be missing.
pub fn headers_available() -> bool {
    let missing: Vec<&str> = [
        ("/usr/include/infiniband/verbs.h", "libibverbs-dev"),
        ("/usr/include/rdma/rdma_cma.h", "librdmacm-dev"),
        ("/usr/bin/gcc", "gcc"),
    ]
    .into_iter()
    .filter(|(path, _)| !Path::new(path).exists())
    .map(|(_, package)| package)
    .collect();
    allowed_missing(&missing, "RNIC_ALLOW_MISSING_HEADERS")
}

/// Whether nothing is missing; says so and fails, or with `variable` set to 1 only says so.
pub fn allowed_missing(missing: &[&str], variable: &str) -> bool {
    if missing.is_empty() {
        return true;
    }
    let packages = missing.join(" ");
    let what = format!(
        "not tested: these Debian packages are missing: {packages} (apt-get install {packages})"
    );
    assert!(
        std::env::var_os(variable).is_some_and(|v| v == "1"),
        "{what}; {variable}=1 skips this test"
    );
    rnic_skip::skipped("a test in C", &format!("not installed: {packages}"));
    false
}

/// Compiles a C program against the system's headers and, for linking, the system's libraries.
pub fn compile(dir: &Path, name: &str, source: &str, libraries: &[&str]) -> PathBuf {
    let (file, program) = (dir.join(format!("{name}.c")), dir.join(name));
    fs::write(&file, source).expect("source written");
    let gcc = |arguments: &[&std::ffi::OsStr]| {
        let output = Command::new("gcc")
            .args(["-std=gnu11", "-Wall", "-Werror", "-O1", "-g"])
            .args(arguments)
            .args(libraries)
            .output()
            .expect("gcc runs");
        assert!(output.status.success(), "gcc: {}", text(&output));
    };
    let (from, to) = (file.as_os_str(), program.as_os_str());
    let Some(sanitizer) = sanitizer() else {
        gcc(&[from, "-o".as_ref(), to]);
        return program;
    };
    // gcc's checks and rustc's are of one kind, and the runtime is rustc's: gcc must not add its
    // own. No races are sought in the program's own code: what it reads in memory that the device
    // writes is ordered by nothing but the bytes.
    let object = dir.join(format!("{name}.o"));
    let object = object.as_os_str();
    let checks = match sanitizer.kind.as_str() {
        "address" => "-fsanitize=address",
        _ => "-fno-sanitize=all",
    };
    let words = [checks, "-DSANITIZED=1", "-c", "-o"].map(std::ffi::OsStr::new);
    gcc(&[&words[..], &[object, from]].concat());
    let mut whole = std::ffi::OsString::from("-Wl,--export-dynamic,--whole-archive,");
    whole.push(&sanitizer.runtime);
    whole.push(",--no-whole-archive");
    let asked = sanitized_source("runtime.c");
    let rest = ["-pthread", "-ldl", "-lm", "-lrt"].map(std::ffi::OsStr::new);
    let program_of = [object, asked.as_os_str(), &whole, "-o".as_ref(), to];
    gcc(&[&program_of, &rest[..]].concat());
    program
}

fn sanitized_source(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    tests.join("sanitized").join(name)
}

/// With what the library was built that `RNIC_SANITIZED_LIBRARY` names: `./test sanitize` builds
/// it.
struct Sanitizer {
    /// As `-fsanitize=` has it: `address` or `thread`.
    kind: String,
    /// The archive of rustc's own runtime. It stands in the program, where the library finds it.
    runtime: PathBuf,
    library: PathBuf,
    /// What finds the names of functions for it.
    addr2line: PathBuf,
}

impl Sanitizer {
    /// What the runtime is told, beside what the caller of the tests says.
    fn options(&self) -> (String, String) {
        let variable = format!("{}SAN_OPTIONS", self.kind[..1].to_uppercase());
        let said = std::env::var(&variable).unwrap_or_default();
        let addr2line = self.addr2line.display();
        let mut options =
            format!("external_symbolizer_path={addr2line}:allocator_may_return_null=1");
        if self.kind == "thread" {
            // Programs fork while the engine's thread runs, and their children open the device
            // anew.
            options += ":die_after_fork=0";
        }
        (variable, format!("{options}:{said}"))
    }
}

/// The programs run under this sanitizer.
pub fn sanitizer_is(kind: &str) -> bool {
    sanitizer().is_some_and(|sanitizer| sanitizer.kind == kind)
}

/// Programs that fork while another of their threads frees memory.
const FORKS_BESIDE_THREADS: &[&str] = &["forks"];

/// What a program needs of the sanitizer beside what all do, if it runs under one.
fn adapt_sanitizer(name: &str, command: &mut Command) {
    let Some(sanitizer) = sanitizer() else {
        return;
    };
    let (variable, mut options) = sanitizer.options();
    if LEAVES_OBJECTS.contains(&name) {
        options += ":detect_leaks=0";
    }
    // AddressSanitizer does not take the lock of its quarantine before a fork: a child in which
    // another thread had it would wait for it for ever.
    if sanitizer.kind == "address" && FORKS_BESIDE_THREADS.contains(&name) {
        options += ":quarantine_size_mb=0:thread_local_quarantine_size_kb=0";
    }
    command.env(variable, options);
}

fn sanitizer() -> Option<&'static Sanitizer> {
    static SANITIZER: OnceLock<Option<Sanitizer>> = OnceLock::new();
    let sanitizer = SANITIZER.get_or_init(|| {
        let library = std::env::var_os("RNIC_SANITIZED_LIBRARY")?.into();
        let kind = std::env::var("RNIC_SANITIZER").expect("the sanitizer's name");
        let runtime = std::env::var_os("RNIC_SANITIZER_RUNTIME").expect("its runtime");
        let addr2line = scratch("symbols").join("addr2line");
        let made = Command::new("gcc")
            .args(["-static", "-O1", "-o"])
            .arg(&addr2line)
            .arg(sanitized_source("addr2line.c"))
            .status();
        assert!(made.is_ok_and(|status| status.success()), "gcc -static");
        Some(Sanitizer {
            addr2line,
            kind,
            runtime: runtime.into(),
            library,
        })
    });
    sanitizer.as_ref()
}

/// Both output streams of a finished command.
pub fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Runs to the end, or fails after a time that no working program needs.
pub fn output(mut command: Command) -> Output {
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;
    let child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // Sanitizers make all of it several times slower.
    let patience = if sanitizer().is_some() { 500 } else { 120 };
    // The whole group: a child of its own would keep our pipes open.
    let group = -(child.id() as libc::pid_t);
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        let waited = is_over.recv_timeout(Duration::from_secs(patience));
        let hangs = waited == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        if hangs {
            // SAFETY: takes no pointer; the group is of our own making. Its leader is waited for
            // when its pipes are closed, which nobody of the group does before this.
            unsafe { libc::kill(group, libc::SIGKILL) };
        }
        hangs
    });
    // A program that says much is read meanwhile.
    let output = child.wait_with_output().expect("output");
    drop(over);
    let hangs = watch.join().expect("it waits");
    assert!(!hangs, "{command:?} hangs: {}", text(&output));
    output
}

/// Programs that close a device, or end, with objects left: as with hardware, these stay where the
/// program has pointers to.
const LEAVES_OBJECTS: [&str; 2] = ["import", "order"];

/// Compiles `tests/c/NAME.c` and runs it under the library; what it printed.
pub fn run_c(name: &str, linked: &[&str]) -> String {
    run_c_with(name, linked, &[])
}

/// The same with more in its environment.
pub fn run_c_with(name: &str, linked: &[&str], environment: &[(&str, &str)]) -> String {
    let dir = library_dir(name);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let source = fs::read_to_string(sources.join(format!("{name}.c"))).expect("source");
    let include = format!("-I{}", sources.display());
    let flags = [&[include.as_str(), "-pthread"], linked].concat();
    let program = compile(&dir, name, &source, &flags);
    let mut command = under_library(&dir, program);
    command.envs(environment.iter().copied());
    adapt_sanitizer(name, &mut command);
    let output = output(command);
    let text = text(&output);
    assert!(output.status.success(), "{name}: {}\n{text}", output.status);
    assert!(text.contains(&format!("{name}: ok")), "{text}");
    text
}
