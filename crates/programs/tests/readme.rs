//! The commands of README.md run, and print what it says, up to numbers.

use rnic_docs::console::{self, Command};
use rnic_docs::{Document, Repository};
use rnic_programs::{Place, Process, Trial, User, skip};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(120);

/// perftest and ibv_rc_pingpong meet there.
const PORT: u16 = 18515;

/// Programs that the blocks start beside `rnic`.
const PROGRAMS: [&str; 3] = ["ib_send_lat", "ib_write_bw", "ibv_rc_pingpong"];

/// A comment that begins so says that the next command needs this one to run.
fn is_server(command: &Command) -> bool {
    ["server", "terminal 1"]
        .iter()
        .any(|word| command.comment.starts_with(word))
}

/// Starts a command as somebody types it, with `rnic` in the PATH and the captures of the repository at their place.
fn start(place: &Place, folder: &Path, typed: &str) -> Process {
    let rnic = place.rnic();
    let own = rnic.parent().expect("a folder").display();
    let path = format!("{own}:{}", std::env::var("PATH").unwrap_or_default());
    let mut command = place.command("sh");
    command
        .args(["-c", typed])
        .env("PATH", path)
        .current_dir(folder);
    Process::spawn(command)
}

/// Runs a block from its first command to its last: `Err` says which line of the document is not so.
fn run(place: &Place, folder: &Path, block: &[Command]) -> Result<(), String> {
    let mut server: Option<(&Command, Process)> = None;
    let check = |command: &Command, process: Process| {
        let finished = process.wait(TIME);
        let printed = format!("{}{}", finished.stdout, finished.stderr);
        // Of a program that is meant to fail the document shows what rnic says.
        let is_meant_to = command
            .printed
            .iter()
            .any(|line| line.starts_with("rnic: "));
        if finished.ok() == is_meant_to {
            return Err(format!(
                "line {}: it ended otherwise\n{}",
                command.line,
                finished.describe()
            ));
        }
        console::compare(&command.printed, &printed).map_err(|line| {
            let line = format!("line {}: not printed: {line}", command.line);
            format!("{line}\n{}", finished.describe())
        })
    };
    for command in block {
        let mut process = start(place, folder, &command.typed);
        if is_server(command) {
            process.wait_for_listener(PORT, TIME);
            server = Some((command, process));
            continue;
        }
        check(command, process)?;
        if let Some((command, process)) = server.take() {
            check(command, process)?;
        }
    }
    Ok(())
}

/// The blocks of a text that is the README of this repository.
fn blocks(text: &str) -> Vec<Vec<Command>> {
    console::blocks(&Document::parse("README.md", text))
}

fn place(trial: &Trial) -> Option<Place> {
    if !skip::have_programs("the commands of README.md", &PROGRAMS) {
        return None;
    }
    let place = trial.loopback(User::Current)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = fs::canonicalize(root).expect("the repository");
    let link = trial.folder().join("crates");
    symlink(root.join("crates"), link).expect("a link");
    Some(place)
}

/// Somebody who types what README.md shows sees what it shows.
#[test]
fn the_commands_of_the_readme() {
    let trial = Trial::start("the_commands_of_the_readme");
    let Some(place) = place(&trial) else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let repository = Repository::open(&root).expect("the repository");
    let text = repository.read("README.md").expect("README.md");
    let blocks = blocks(&text);
    assert!(blocks.len() >= 5, "{} blocks", blocks.len());
    let compared = blocks.iter().flatten().filter(|c| !c.printed.is_empty());
    assert!(compared.count() >= 6, "blocks show what is printed");
    for block in &blocks {
        if let Err(why) = run(&place, trial.folder(), block) {
            panic!("README.md, {why}");
        }
    }
}

/// A document that shows what a program does not print, or a command that fails, is told.
#[test]
fn a_wrong_readme() {
    let trial = Trial::start("a_wrong_readme");
    let Some(place) = place(&trial) else { return };
    let result = |text: &str| run(&place, trial.folder(), &blocks(text)[0]);
    let good = "```console\n$ rnic explain 12\nwork completion status 12: ...\n```\n";
    assert_eq!(result(good), Ok(()));
    let wrong = result(&good.replace("work completion", "a word"));
    assert!(wrong.is_err_and(|why| why.starts_with("line 2: not printed")));
    let wrong = result("```console\n$ rnic explain nothing-at-all\n```\n");
    assert!(wrong.is_err_and(|why| why.starts_with("line 2: it ended otherwise")));
    let wrong = "```console\n$ rnic run -- ib_send_lat   # server\n$ rnic run -- ib_send_lat 127.0.0.1\nno such line\n```\n";
    assert!(result(wrong).is_err_and(|why| why.starts_with("line 3: not printed")));
}
