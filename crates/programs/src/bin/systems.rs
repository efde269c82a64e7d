//! `./test systems`: runs whole systems over rnic and over TCP, and writes docs/programs.md.
//!
//! ```text
//! systems [--repetitions N] [NAME...]
//! systems --list | --page
//! ```
//! `--page` writes the page anew, of the results that are there.
//!
//! `RNIC_BIN_DIR` has `rnic` and its library, `RNIC_SYSTEMS` what `crates/programs/systems/fetch`
//! fetched. The last line is "N passed, N failed, N skipped".

use rnic_programs::skip::skipped;
use rnic_programs::systems::results::{Outcome, Results, median};
use rnic_programs::systems::table::TABLE;
use rnic_programs::systems::trial::Machine;
use rnic_programs::systems::{document, page};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::{env, fs};

fn main() -> ExitCode {
    rnic_sys::signal::end_on_broken_pipe();
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("systems: {why}");
            ExitCode::from(2)
        }
    }
}

fn folder(variable: &str) -> Result<PathBuf, String> {
    let path = env::var_os(variable).ok_or_else(|| format!("{variable} is not set"))?;
    let path = PathBuf::from(path);
    path.canonicalize()
        .map_err(|error| format!("{variable}: {}: {error}", path.display()))
}

fn run() -> Result<bool, String> {
    let mut names = Vec::new();
    let mut repetitions = 3;
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--list" => {
                for system in TABLE {
                    println!("{}", system.key());
                }
                return Ok(true);
            }
            "--page" => {
                let results = Results::read().map_err(|error| error.to_string())?;
                let text = page::page(TABLE, &results);
                fs::write(document(), text).map_err(|error| error.to_string())?;
                return Ok(true);
            }
            "--repetitions" => {
                let count = words.next().and_then(|word| word.parse().ok());
                repetitions = count.filter(|count| *count > 0).ok_or("--repetitions N")?;
            }
            name if TABLE.iter().any(|system| system.key() == name) => names.push(word),
            other => return Err(format!("no system {other}; --list has them all")),
        }
    }
    let scratch = env::temp_dir().join(format!("rnic-systems-{}", std::process::id()));
    let machine = Machine {
        fetched: folder("RNIC_SYSTEMS")?,
        binaries: folder("RNIC_BIN_DIR")?,
        scratch: scratch.clone(),
        repetitions,
        when: when(),
    };
    let mut results = Results::read().map_err(|error| error.to_string())?;
    let (mut passed, mut failed, mut left_out) = (0, 0, 0);
    for system in TABLE {
        let key = system.key();
        if !names.is_empty() && !names.contains(&key) {
            continue;
        }
        fs::create_dir_all(&scratch).map_err(|error| error.to_string())?;
        match machine.measure(system) {
            Ok(outcome) => {
                match &outcome {
                    Outcome::Ran(measured) => {
                        passed += 1;
                        println!(
                            "{key}: {:.1} MB/s, TCP {:.1}, ratio {:.2}; one run moved {}",
                            median(measured.rdma.iter().copied()),
                            median(measured.tcp.iter().copied()),
                            measured.ratio(),
                            measured.moved
                        );
                    }
                    Outcome::Skipped(why) => {
                        left_out += 1;
                        skipped(&key, why);
                    }
                }
                results.set(&key, &outcome);
            }
            Err(why) => {
                failed += 1;
                println!("{key}: FAILED: {why}");
            }
        }
        let _ = fs::remove_dir_all(&scratch);
        // What is known is not lost with the next system.
        results.write().map_err(|error| error.to_string())?;
        fs::write(document(), page::page(TABLE, &results)).map_err(|error| error.to_string())?;
    }
    println!("{passed} passed, {failed} failed, {left_out} skipped");
    Ok(failed == 0)
}

/// When, where and what: what figures depend on.
fn when() -> String {
    let said = |program: &str, args: &[&str]| -> String {
        let output = Command::new(program).args(args).output();
        let text = output.map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&text).trim().to_owned()
    };
    let commit = said("git", &["rev-parse", "--short=8", "HEAD"]);
    let model = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model
        .lines()
        .find_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim()))
        .unwrap_or("unknown processor");
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown");
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{} of commit {commit}, {processors} x {model}, Linux {}, load average {load} before",
        said("date", &["-u", "+%Y-%m-%d"]),
        said("uname", &["-r"]),
    )
}
