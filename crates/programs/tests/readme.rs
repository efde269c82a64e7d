//! The commands of README.md and of the guides run, and print what the documents say, up to
//! numbers.

use rnic_docs::console::{self, Command};
use rnic_docs::{Document, Repository};
use rnic_programs::{Place, Process, Trial, User, skip};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

const TIME: Duration = Duration::from_secs(120);

/// perftest and ibv_rc_pingpong meet there.
const PORT: u16 = 18515;

/// Documents whose blocks are run, and how many commands at least show what they print.
const DOCUMENTS: [(&str, usize); 7] = [
    ("README.md", 6),
    ("docs/book/learn/demo.md", 1),
    ("docs/book/learn/send-receive.md", 3),
    ("docs/book/learn/write-read.md", 2),
    ("docs/book/learn/break-it.md", 5),
    ("docs/book/learn/packets.md", 1),
    ("docs/book/ci.md", 2),
];

/// Programs that the blocks start beside `rnic`.
const PROGRAMS: [&str; 6] = [
    "ib_send_lat",
    "ib_write_bw",
    "ibv_rc_pingpong",
    "ibv_devinfo",
    "make",
    "gcc",
];

/// Commands that prepare a machine: what they do is done here already, or is not for a test to do.
const PREPARING: [&str; 2] = ["sudo ", "cd examples/c && make"];

/// Whether the comment says that the next command needs this one to run.
fn is_server(command: &Command) -> bool {
    ["server", "terminal 1"]
        .iter()
        .any(|word| command.comment.contains(word))
}

/// Where the commands are typed: the programs of examples/c are built there, and the captures are
/// at their place.
struct Desk {
    place: Place,
    folder: PathBuf,
}

impl Desk {
    fn set_up(trial: &Trial) -> Option<Desk> {
        if !skip::have_programs(trial.name(), &PROGRAMS) {
            return None;
        }
        if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
            skip::skipped(trial.name(), "librdmacm-dev is not installed");
            return None;
        }
        let place = trial.loopback(User::Current)?;
        let root = root();
        let folder = trial.new_folder("desk", User::Current, 0o755);
        symlink(root.join("crates"), folder.join("crates")).expect("own folder");
        for entry in fs::read_dir(root.join("examples/c")).expect("the examples") {
            let entry = entry.expect("the examples");
            fs::copy(entry.path(), folder.join(entry.file_name())).expect("own folder");
        }
        let desk = Desk { place, folder };
        desk.start("make -B").wait(TIME).expect_success();
        Some(desk)
    }

    /// Starts a command as somebody types it, with `rnic` in the PATH.
    fn start(&self, typed: &str) -> Process {
        let rnic = self.place.rnic();
        let own = rnic.parent().expect("a folder").display();
        let path = format!("{own}:{}", std::env::var("PATH").unwrap_or_default());
        let mut command = self.place.command("sh");
        command.args(["-c", typed]).env("PATH", path);
        command.current_dir(&self.folder);
        Process::spawn(command)
    }

    /// Runs a block from its first command to its last: `Err` says which line of the document is
    /// not so.
    fn run(&self, block: &[Command]) -> Result<(), String> {
        let mut server: Option<(&Command, Process)> = None;
        for command in block {
            if PREPARING.iter().any(|s| command.typed.starts_with(s)) {
                continue;
            }
            let mut process = self.start(&command.typed);
            if is_server(command) {
                if command.typed.contains("./rdma_") {
                    let is_there = |said: &str| said.contains("listening").then_some(());
                    process.wait_for("it listens", TIME, is_there);
                } else {
                    process.wait_for_listener(PORT, TIME);
                }
                server = Some((command, process));
                continue;
            }
            check(command, process)?;
            if let Some((command, process)) = server.take() {
                check(command, process)?;
            }
        }
        assert!(server.is_none(), "a server without a client");
        Ok(())
    }
}

/// Waits for the end of a command, and compares what it printed.
fn check(command: &Command, process: Process) -> Result<(), String> {
    let finished = process.wait(TIME);
    let printed = format!("{}{}", finished.stdout, finished.stderr);
    // Of a program that is meant to fail the document shows the cause.
    let is_meant_to = command
        .printed
        .iter()
        .any(|line| line.starts_with("  cause:"));
    let line = command.line;
    if finished.ok() == is_meant_to {
        let what = finished.describe();
        return Err(format!("line {line}: it ended otherwise\n{what}"));
    }
    console::compare(&command.printed, &printed).map_err(|missing| {
        let what = finished.describe();
        format!("line {line}: not printed: {missing}\n{what}")
    })
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::canonicalize(root).expect("the repository")
}

fn blocks(path: &str, text: &str) -> Vec<Vec<Command>> {
    console::blocks(&Document::parse(path, text))
}

/// Somebody who types what README.md and the guides show sees what they show.
#[test]
fn the_commands_of_the_documents() {
    let trial = Trial::start_beside_others("the_commands_of_the_documents");
    let Some(desk) = Desk::set_up(&trial) else {
        return;
    };
    let repository = Repository::open(&root()).expect("the repository");
    for (path, least) in DOCUMENTS {
        let text = repository.read(path).expect(path);
        let blocks = blocks(path, &text);
        let compared = blocks.iter().flatten().filter(|c| !c.printed.is_empty());
        let compared = compared.count();
        assert!(compared >= least, "{path}: {compared} show what is printed");
        for block in &blocks {
            if let Err(why) = desk.run(block) {
                panic!("{path}, {why}");
            }
        }
    }
}

/// The pictures of the documents are those that `tools/picture` draws of today's program and
/// tables.
#[test]
fn the_pictures_of_the_documents() {
    let trial = Trial::start_beside_others("the_pictures_of_the_documents");
    if !skip::have_programs(trial.name(), &["python3"]) {
        return;
    }
    let place = trial.here();
    let drawn = trial.new_folder("pictures", User::Current, 0o755);
    let mut command = place.command(root().join("tools/picture"));
    command.arg(&drawn).env("RNIC", place.rnic());
    Process::spawn(command).wait(TIME).expect_success();
    let kept = root().join("docs/pictures");
    for entry in fs::read_dir(&kept).expect("the pictures").flatten() {
        let name = entry.file_name();
        let read = |folder: &Path| fs::read_to_string(folder.join(&name)).unwrap_or_default();
        let is_same = read(&kept) == read(&drawn);
        assert!(is_same, "{name:?} is old: run tools/picture");
    }
}

/// The site can be made of today's documents and program: each command has a page, and each link of
/// each page leads somewhere.
#[test]
fn the_sources_of_the_site() {
    let trial = Trial::start_beside_others("the_sources_of_the_site");
    if !skip::have_programs(trial.name(), &["python3"]) {
        return;
    }
    let place = trial.here();
    let target = trial.new_folder("site", User::Current, 0o755);
    let mut command = place.command(root().join("tools/site"));
    let binaries = place.rnic();
    command.arg("--sources").env("CARGO_TARGET_DIR", &target);
    command.env("RNIC_BIN_DIR", binaries.parent().expect("a folder"));
    Process::spawn(command).wait(TIME).expect_success();
    let site = target.join("site-source/src");
    for name in [
        "run", "explain", "dissect", "devices", "demo", "bench", "verify",
    ] {
        let page = site.join(format!("reference/rnic-{name}.md"));
        let page = fs::read_to_string(page).unwrap_or_default();
        assert!(page.contains(&format!("Usage: rnic {name}")), "{name}");
    }
    let pages = Repository::open(&site).expect("the site");
    assert!(pages.documents().count() > 40);
    for path in pages.documents() {
        let page = Document::parse(path, &pages.read(path).expect("a page"));
        let broken = rnic_docs::rules::links(&page, &pages);
        assert!(broken.is_empty(), "{broken:?}");
    }
}

/// A document that shows what a program does not print, or a command that fails, is told.
#[test]
fn a_wrong_document() {
    let trial = Trial::start_beside_others("a_wrong_document");
    let Some(desk) = Desk::set_up(&trial) else {
        return;
    };
    let result = |text: &str| desk.run(&blocks("x.md", text)[0]);
    let good = "```console\n$ rnic explain 12\nwork completion status 12: ...\n```\n";
    assert_eq!(result(good), Ok(()));
    let wrong = result(&good.replace("work completion", "a word"));
    assert!(wrong.is_err_and(|why| why.starts_with("line 2: not printed")));
    let wrong = result("```console\n$ rnic explain nothing-at-all\n```\n");
    assert!(wrong.is_err_and(|why| why.starts_with("line 2: it ended otherwise")));
    let wrong = "```console\n$ rnic run -- ib_send_lat   # server\n$ rnic run -- ib_send_lat 127.0.0.1\nno such line\n```\n";
    assert!(result(wrong).is_err_and(|why| why.starts_with("line 3: not printed")));
}
