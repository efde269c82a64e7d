//! What came out.

use crate::lab::{End, Family, Way};
use serde_json::json;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Collects results: a line each while it goes on, `results.jsonl` and `table.md` in a folder, and what failed in full.
#[derive(Debug)]
pub struct Report {
    folder: PathBuf,
    machine: File,
    began: Instant,
    /// In order: the case, and what came out in each way tried.
    cases: Vec<(String, Vec<(Way, Cell)>)>,
}

#[derive(Debug)]
struct Cell {
    took: Duration,
    ok: bool,
}

/// The columns.
const WAYS: [Way; 4] = [
    Way {
        client: End::Rnic,
        family: Family::V4,
    },
    Way {
        client: End::Linux,
        family: Family::V4,
    },
    Way {
        client: End::Rnic,
        family: Family::V6,
    },
    Way {
        client: End::Linux,
        family: Family::V6,
    },
];

/// Client to server.
fn words(way: Way) -> String {
    let family = match way.family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    };
    match way.client {
        End::Rnic => format!("rnic to Linux, {family}"),
        End::Linux => format!("Linux to rnic, {family}"),
    }
}

impl Report {
    /// Into `folder`, which is made.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn new(folder: &Path) -> Report {
        fs::create_dir_all(folder).expect("the job's folder is writable");
        Report {
            folder: folder.to_owned(),
            machine: File::create(folder.join("results.jsonl")).expect("the folder is writable"),
            began: Instant::now(),
            cases: Vec::new(),
        }
    }

    /// One case in one way; `why` it failed, if it did.
    ///
    /// # Panics
    /// When the folder cannot be written.
    pub fn add(&mut self, case: &str, way: Way, took: Duration, why: Option<String>) {
        let ok = why.is_none();
        let seconds = took.as_secs_f64();
        println!(
            "{} {case} [{}] {seconds:.1} s",
            if ok { "ok    " } else { "FAILED" },
            words(way)
        );
        if let Some(why) = &why {
            for line in why.lines() {
                println!("         {line}");
            }
        }
        let line = json!({
            "case": case,
            "client": format!("{:?}", way.client),
            "server": format!("{:?}", way.server()),
            "family": format!("{:?}", way.family),
            "ok": ok,
            "seconds": (seconds * 10.0).round() / 10.0,
            "why": why,
        });
        writeln!(self.machine, "{line}").expect("the folder is writable");
        if self.cases.last().is_none_or(|last| last.0 != case) {
            self.cases.push((case.to_owned(), Vec::new()));
        }
        let cells = &mut self.cases.last_mut().expect("just pushed").1;
        cells.push((way, Cell { took, ok }));
    }

    /// Writes the table, and says how many passed. The last line is as cargo's, so that `./test` can count.
    ///
    /// # Panics
    /// When the folder cannot be written.
    pub fn finish(self) -> ExitCode {
        let mut table = String::from("| case |");
        for way in WAYS {
            table.push_str(&format!(" {} |", words(way)));
        }
        table.push_str("\n| --- | --- | --- | --- | --- |\n");
        let (mut passed, mut failed) = (0, 0);
        for (case, cells) in &self.cases {
            table.push_str(&format!("| {case} |"));
            for way in WAYS {
                let cell = cells.iter().find(|cell| cell.0 == way).map(|cell| &cell.1);
                match cell {
                    None => table.push_str(" |"),
                    Some(cell) if cell.ok => {
                        passed += 1;
                        table.push_str(&format!(" ok, {:.1} s |", cell.took.as_secs_f64()));
                    }
                    Some(_) => {
                        failed += 1;
                        table.push_str(" **FAILED** |");
                    }
                }
            }
            table.push('\n');
        }
        fs::write(self.folder.join("table.md"), &table).expect("the folder is writable");
        println!("\n{table}\nin {:.0} s", self.began.elapsed().as_secs_f64());
        println!(
            "test result: {}. {passed} passed; {failed} failed",
            if failed == 0 { "ok" } else { "FAILED" }
        );
        ExitCode::from(u8::from(failed > 0))
    }
}
