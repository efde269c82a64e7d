//! Every figure of bench/results, each beside its floor and its peers in the same run; `bench/run`
//! starts it.
//!
//! A row is one promise. In each repetition all contenders of a row run one after the other, so
//! that a change of the machine's state hits all of them, and ratios are taken within a repetition.
#![forbid(unsafe_code)]

mod asleep;
mod charts;
mod contender;
mod document;
mod floor;
mod machine;
mod pair;
mod parts;
mod place;
mod processors;
mod results;
mod rows;
mod setting;
mod stats;
mod tables;
mod variants;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::{Parser, Subcommand};

use contender::Program;
use machine::{Machine, State, Usage};
use place::Places;
use results::{Results, RowResult, Sample, Series};
use rows::{Contender, Row};
use setting::Setting;
use stats::Summary;
use variants::Variant;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

/// Every figure beside its floor and its peers, in one run.
#[derive(Debug, Parser)]
#[command(
    name = "bench/run",
    after_help = "\
Examples:
  bench/run                                all rows; updates bench/results, bench/charts and bench/results.json
  bench/run --quick --only send-lat        one row, in seconds
  bench/run --render bench/results.json    the documents again, from figures that were kept
  bench/run --asleep                       programs that sleep, each beside itself over TCP
  bench/run --asleep --quick --only valkey   some of them, by name or by its beginning
  bench/run --parts                        what decoding, the ICRC, the transport, memory checks ... cost, by criterion

Take an idle machine. Environment: RNIC_BIN_DIR, the folder of rnic and librnic_verbs.so."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Sub>,
    /// Two short repetitions
    #[arg(long)]
    quick: bool,
    /// Only these rows; the first word of a name means all that begin with it
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Programs that sleep, instead of the rows
    #[arg(long, conflicts_with_all = ["parts", "render"])]
    asleep: bool,
    /// Show the rows
    #[arg(long)]
    list: bool,
    /// Write the figures to this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Repetitions
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: Option<u32>,
    /// Update the documents although not everything was measured
    #[arg(long)]
    update: bool,
    /// Measure nothing; write the documents from this file
    #[arg(long, value_name = "FILE")]
    render: Option<PathBuf>,
    /// Measure what the parts cost by criterion instead of the rows; with --update the table goes
    /// to bench/results/parts.md
    #[arg(long, conflicts_with_all = ["quick", "only", "list", "json", "repetitions", "render"])]
    parts: bool,
    /// Measure what each policy of the engine pays, all or these: it is taken out, and runs beside
    /// the NIC as it is. With --update the table goes to bench/results/ablation.md
    #[arg(long, value_name = "POLICY", value_delimiter = ',', num_args = 0.., conflicts_with_all = ["asleep", "parts", "render", "json"])]
    ablate: Option<Vec<String>>,
    /// Measure another build, whose rnic and librnic_verbs.so are in this folder, beside this one
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["ablate", "asleep", "parts", "render", "json", "update"])]
    against: Option<PathBuf>,
    /// Measure what it costs that `rnic top` looks at the processes, once a second
    #[arg(long, conflicts_with_all = ["ablate", "against", "asleep", "parts", "render", "json", "update"])]
    watched: bool,
}

#[derive(Debug, Subcommand)]
enum Sub {
    /// One of the two processes of a floor
    #[command(hide = true)]
    Floor(floor::Args),
}

fn main() -> ExitCode {
    rnic_sys::signal::end_on_broken_pipe();
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The checkout: the program is built from it and for it.
fn checkout() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

fn run(cli: Cli) -> Result<()> {
    if let Some(Sub::Floor(args)) = cli.command {
        return floor::main(args);
    }
    if let Some(file) = &cli.render {
        let results: Results = serde_json::from_slice(&std::fs::read(file)?)?;
        print!("{}", document::plain(&results));
        return publish(&results, Set::of(&results));
    }
    if cli.parts {
        return parts(cli.update);
    }
    let set = if cli.asleep { Set::Asleep } else { Set::Rows };
    let compared = match (&cli.ablate, &cli.against) {
        (Some(names), _) => Some(Variant::ablations(names)?),
        (None, Some(folder)) => Some(vec![Variant::build(std::path::absolute(folder)?)]),
        (None, None) => cli.watched.then(|| vec![Variant::watched()]),
    };
    let mut chosen = match compared {
        Some(_) => variants::rows(),
        None => set.rows(),
    };
    let is_named = |row: &Row, name: &str| {
        let rest = row.name.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || (rest.starts_with('-') && set == Set::Asleep))
    };
    for name in &cli.only {
        if !chosen.iter().any(|row| is_named(row, name)) {
            return Err(format!("no row `{name}`; --list shows them").into());
        }
    }
    chosen.retain(|row| cli.only.is_empty() || cli.only.iter().any(|name| is_named(row, name)));
    if cli.list {
        for row in &chosen {
            println!("{:<24} {}", row.name, row.title);
        }
        return Ok(());
    }
    let effort = if cli.quick { 0.2 } else { 1.0 };
    if let Some(compared) = compared {
        return compare(&cli, &chosen, &compared, effort);
    }
    let repetitions = cli.repetitions.unwrap_or(match (cli.quick, set) {
        (true, _) => 2,
        (false, Set::Rows) => 5,
        (false, Set::Asleep) => 3,
    });
    let results = measure(&chosen, repetitions, effort)?;
    print!("{}", document::plain(&results));
    if let Some(file) = &cli.json {
        std::fs::write(file, serde_json::to_string_pretty(&results)?)?;
    }
    let whole = cli.only.is_empty() && !cli.quick;
    if whole || cli.update {
        let kept = checkout().join(set.kept());
        std::fs::write(kept, set.json(&results)? + "\n")?;
        publish(&results, set)?;
    }
    Ok(())
}

/// Rows that are measured and published together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    Rows,
    Asleep,
}

impl Set {
    fn rows(self) -> Vec<Row> {
        match self {
            Set::Rows => rows::all(),
            Set::Asleep => rows::asleep::all(),
        }
    }

    /// Where its figures are kept.
    fn kept(self) -> &'static str {
        match self {
            Set::Rows => "bench/results.json",
            Set::Asleep => "bench/asleep.json",
        }
    }

    /// A line where there are many rows.
    fn json(self, results: &Results) -> Result<String> {
        Ok(match self {
            Set::Rows => serde_json::to_string_pretty(results)?,
            Set::Asleep => serde_json::to_string(results)?,
        })
    }

    /// The one that a row is of.
    fn of(results: &Results) -> Set {
        let rows = rows::asleep::all();
        let known = |name: &str| rows.iter().any(|row| row.name == name);
        match results.rows.iter().any(|row| known(&row.name)) {
            true => Set::Asleep,
            false => Set::Rows,
        }
    }
}

fn publish(results: &Results, set: Set) -> Result<()> {
    if set == Set::Asleep {
        charts::write_asleep(results, &checkout().join("bench/charts"))?;
        let path = checkout().join("bench/results/asleep.md");
        document::update(&path, document::ROWS, &document::asleep(results))?;
        eprintln!("bench: bench/results/asleep.md and bench/charts are written");
        return Ok(());
    }
    let charts = charts::write(results, &checkout().join("bench/charts"))?;
    let text = document::markdown(results, &charts, "../charts");
    document::update(
        &checkout().join("bench/results/rows.md"),
        document::ROWS,
        &text,
    )?;
    eprintln!("bench: bench/results/rows.md and bench/charts are written");
    Ok(())
}

/// Variants beside the NIC as it is.
fn compare(cli: &Cli, chosen: &[Row], compared: &[Variant], effort: f64) -> Result<()> {
    let machine = Machine::look();
    let mut run = Run {
        setting: setting(effort)?,
        round_trips: vec![],
        began: Instant::now(),
    };
    let began = run.began;
    let repetitions = cli.repetitions.unwrap_or(if cli.quick { 3 } else { 5 });
    let table = variants::measure(&mut run.setting, chosen, compared, repetitions, |what| {
        progress(began, what);
    });
    progress(began, "");
    let text = format!(
        "{}; {repetitions} repetitions. How much worse than the NIC as it is; the spread is that of the NIC beside itself.\n\n{table}",
        taken_on(&machine),
    );
    print!("{text}");
    if cli.update {
        let path = checkout().join("bench/results/ablation.md");
        document::update(&path, document::ROWS, &text)?;
    }
    Ok(())
}

/// The machine, the commit and the time of a measurement.
fn taken_on(machine: &Machine) -> String {
    format!(
        "{} x {}, Linux {}; commit {}, {}; load average before {:.1}",
        machine.cpus,
        machine.model,
        machine.kernel,
        commit(),
        now(),
        machine.load_average,
    )
}

fn parts(update: bool) -> Result<()> {
    let program = std::env::current_exe()?;
    let folder = program.parent().ok_or("no folder of programs")?;
    let table = parts::measure(checkout(), &folder.join("parts"))?;
    print!("{table}");
    if update {
        let machine = Machine::look();
        let text = format!("{}.\n\n{table}", taken_on(&machine));
        document::update(
            &checkout().join("bench/results/parts.md"),
            document::PARTS,
            &text,
        )?;
    }
    Ok(())
}

fn said_by(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .current_dir(checkout())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".into(),
    }
}

fn now() -> String {
    said_by("date", &["-u", "+%Y-%m-%d %H:%M UTC"])
}

/// The checkout's, and whether what is measured differs from it.
fn commit() -> String {
    let mut commit = said_by("git", &["rev-parse", "--short", "HEAD"]);
    let changes = ["status", "--porcelain", "--untracked-files=no", "crates"];
    if !matches!(said_by("git", &changes).as_str(), "" | "unknown") {
        commit.push_str(" with changes");
    }
    commit
}

/// Where programs are, and how long they run.
fn setting(effort: f64) -> Result<Setting> {
    let binaries = match std::env::var_os("RNIC_BIN_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => std::env::current_exe()?
            .parent()
            .ok_or("no folder of programs")?
            .to_owned(),
    };
    Ok(Setting {
        places: Places::new(&binaries)?,
        cpus: processors::pair(),
        effort,
        c_programs: checkout().join("crates/programs/c"),
        programs: asleep::programs_folder(&binaries),
        ablated: None,
    })
}

fn measure(chosen: &[Row], repetitions: u32, effort: f64) -> Result<Results> {
    let machine = Machine::look();
    let setting = setting(effort)?;
    let mut notes = setting.places.notes.clone();
    let mut missing: Vec<String> = chosen
        .iter()
        .flat_map(|row| &row.contenders)
        .filter_map(|contender| contender.program.missing(&setting))
        .collect();
    missing.sort();
    missing.dedup();
    notes.extend(missing.into_iter().map(|why| format!("Left out: {why}.")));
    if effort < 1.0 {
        notes.push("Short runs (--quick).".into());
    }
    for note in &notes {
        eprintln!("bench: {note}");
    }
    let mut run = Run {
        setting,
        round_trips: vec![],
        began: Instant::now(),
    };
    let mut rows: Vec<RowResult> = chosen
        .iter()
        .map(|row| RowResult {
            name: row.name.clone(),
            title: row.title.clone(),
            series: Vec::new(),
            verdicts: Vec::new(),
        })
        .collect();
    for repetition in 0..repetitions {
        for (row, result) in chosen.iter().zip(&mut rows) {
            let progress = format!("{}/{repetitions} {}", repetition + 1, row.name);
            for contender in &row.contenders {
                run.tell(&format!("{progress}: {}", contender.name));
                run.once(contender, repetition, &mut result.series);
            }
        }
    }
    run.tell("");
    for (row, result) in chosen.iter().zip(&mut rows) {
        for series in &mut result.series {
            series.summary = Summary::of(series.samples.iter().map(|sample| sample.value));
        }
        result.judge(row);
    }
    Ok(Results {
        machine,
        commit: commit(),
        date: now(),
        repetitions,
        notes,
        core_round_trips_ns: run.round_trips,
        rows,
    })
}

/// On a terminal: how far it is.
fn progress(began: Instant, what: &str) {
    if std::io::stderr().is_terminal() {
        let seconds = began.elapsed().as_secs();
        eprint!("\r\x1b[K");
        if !what.is_empty() {
            eprint!("{seconds} s  {what}");
        }
    }
}

struct Run {
    setting: Setting,
    round_trips: Vec<f64>,
    began: Instant,
}

impl Run {
    fn tell(&self, what: &str) {
        progress(self.began, what);
    }

    fn once(&mut self, contender: &Contender, repetition: u32, all: &mut Vec<Series>) {
        let before = machine::core_round_trip();
        let usage = Usage::now();
        let outcome = match contender.program.missing(&self.setting) {
            Some(why) => Err(why),
            None => (contender.program.run(&self.setting)).map_err(|error| error.to_string()),
        };
        let (others, stolen) = usage.others_since();
        let after = machine::core_round_trip();
        self.round_trips.extend(before);
        self.round_trips.extend(after);
        match outcome {
            Ok(figures) => {
                for (figure, unit, value) in figures {
                    series_of(all, contender, figure, unit)
                        .samples
                        .push(Sample {
                            value,
                            repetition,
                            state: State::of(before, after),
                            others,
                            stolen,
                        });
                }
            }
            Err(why) => {
                if contender.program.missing(&self.setting).is_none() {
                    self.tell("");
                    eprintln!("bench: {}: {why}", contender.name);
                }
                let unit = unit_of(&contender.program);
                series_of(all, contender, String::new(), unit).missing = Some(why);
            }
        }
    }
}

/// That of this name, made if there is none yet.
fn series_of<'a>(
    all: &'a mut Vec<Series>,
    contender: &Contender,
    figure: String,
    unit: setting::Unit,
) -> &'a mut Series {
    let same = |s: &Series| s.contender == contender.name && s.figure == figure;
    let at = all.iter().position(same).unwrap_or_else(|| {
        all.push(Series {
            contender: contender.name.clone(),
            role: contender.role,
            figure: figure.clone(),
            unit,
            samples: Vec::new(),
            summary: None,
            missing: None,
        });
        all.len() - 1
    });
    &mut all[at]
}

/// Of the figure that counts, where none was taken.
fn unit_of(program: &Program) -> setting::Unit {
    use setting::Unit;
    match program {
        Program::Perftest { unit, .. } | Program::Ucx { unit, .. } => *unit,
        Program::FourPairs { .. } => Unit::Gigabytes,
        Program::Floor { kind, .. } => contender::unit_of_floor(*kind),
        Program::Sleeper(sleeper) => sleeper.unit(),
        Program::Scale { .. } | Program::Beside { .. } | Program::Libfabric { .. } => Unit::Micros,
    }
}
