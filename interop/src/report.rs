//! What came out.

use crate::lab::{End, Family, Way};
use serde_json::json;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Collects results: a line each while it goes on, `results.jsonl` and `table.md` in a folder, and
/// what failed in full.
#[derive(Debug)]
pub struct Report {
    folder: PathBuf,
    machine: File,
    began: Instant,
    /// In order: the case, and what came out in each way tried.
    cases: Cases,
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
pub fn words(way: Way) -> String {
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
        self.note(case, way, Cell { took, ok });
    }

    /// What came out of one case in one way.
    fn note(&mut self, case: &str, way: Way, cell: Cell) {
        if self.cases.last().is_none_or(|last| last.0 != case) {
            self.cases.push((case.to_owned(), Vec::new()));
        }
        let cells = &mut self.cases.last_mut().expect("just pushed").1;
        cells.push((way, cell));
    }

    /// Writes the table, and says how many passed. The last line is as that of cargo test.
    ///
    /// # Panics
    /// When the folder cannot be written.
    pub fn finish(self) -> ExitCode {
        let (table, passed, failed) = table(&self.cases);
        fs::write(self.folder.join("table.md"), &table).expect("the folder is writable");
        println!("\n{table}\nin {:.0} s", self.began.elapsed().as_secs_f64());
        verdict(passed, failed)
    }
}

/// What came out, by case.
type Cases = Vec<(String, Vec<(Way, Cell)>)>;

fn verdict(passed: u32, failed: u32) -> ExitCode {
    println!(
        "test result: {}. {passed} passed; {failed} failed",
        if failed == 0 { "ok" } else { "FAILED" }
    );
    ExitCode::from(u8::from(failed > 0))
}

/// The table, and how many passed and failed.
fn table(cases: &Cases) -> (String, u32, u32) {
    let mut table = String::from("| case |");
    for way in WAYS {
        table.push_str(&format!(" {} |", words(way)));
    }
    table.push_str("\n| --- | --- | --- | --- | --- |\n");
    let (mut passed, mut failed) = (0, 0);
    for (case, cells) in cases {
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
    (table, passed, failed)
}

/// Prints the table of several runs' `results.jsonl`, with the cases in this order.
///
/// # Panics
/// When they cannot be read.
pub fn merge(files: &[PathBuf], order: &[String]) -> ExitCode {
    let mut cases: Cases = order
        .iter()
        .map(|name| (name.clone(), Vec::new()))
        .collect();
    for file in files {
        let text = fs::read_to_string(file).expect("readable results");
        for line in text.lines() {
            let result: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
            let way = WAYS.into_iter().find(|way| {
                result["client"] == format!("{:?}", way.client)
                    && result["family"] == format!("{:?}", way.family)
            });
            let case = cases.iter_mut().find(|case| result["case"] == case.0);
            let cell = Cell {
                took: Duration::from_secs_f64(result["seconds"].as_f64().unwrap_or(0.0)),
                ok: result["ok"] == true,
            };
            case.expect("a case of ours")
                .1
                .push((way.expect("a way"), cell));
        }
    }
    cases.retain(|case| !case.1.is_empty());
    let (table, passed, failed) = table(&cases);
    println!("{table}");
    verdict(passed, failed)
}
