//! Variants of the NIC against each other: each policy of the engine taken out, another build, or one
//! that `rnic top` looks at.
//!
//! In each repetition all variants of a row run one after the other, between two runs of the NIC as
//! it is. A variant's figure is taken as a ratio to those two, and the difference between the two
//! is the spread: what changes by less is no difference.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use rnic_settings::ablation::Policy;

use crate::Result;
use crate::contender::Program;
use crate::place::{End, Ends, Wire};
use crate::rows::{self, Contender, Role, Row};
use crate::setting::{Setting, Unit, Way};
use crate::stats::Summary;

/// What is compared with the NIC as it is.
#[derive(Clone, Debug)]
pub struct Variant {
    pub name: String,
    /// `RNIC_ABLATE`.
    out: Option<Policy>,
    /// The program `rnic` of another build.
    rnic: Option<PathBuf>,
    /// `rnic top` looks on, once a second.
    watched: bool,
}

impl Variant {
    /// Each of these policies taken out, all of them where none is named.
    pub fn ablations(names: &[String]) -> Result<Vec<Variant>> {
        let known = |name: &String| Policy::ALL.iter().any(|policy| policy.name() == name);
        if let Some(name) = names.iter().find(|name| !known(name)) {
            let all: Vec<&str> = Policy::ALL.iter().map(|policy| policy.name()).collect();
            return Err(format!("no policy `{name}`; there are {}", all.join(", ")).into());
        }
        let is_wanted =
            |policy: &&Policy| names.is_empty() || names.iter().any(|name| name == policy.name());
        let variant = |policy: &Policy| Variant {
            name: policy.name().to_owned(),
            out: Some(*policy),
            rnic: None,
            watched: false,
        };
        Ok(Policy::ALL.iter().filter(is_wanted).map(variant).collect())
    }

    /// The build in this folder.
    pub fn build(folder: PathBuf) -> Variant {
        Variant {
            name: folder.display().to_string(),
            out: None,
            rnic: Some(folder.join("rnic")),
            watched: false,
        }
    }

    /// This build, looked at.
    pub fn watched() -> Variant {
        Variant {
            name: "watched by rnic top".to_owned(),
            out: None,
            rnic: None,
            watched: true,
        }
    }
}

/// Rows in which a policy can pay: those of the documents that rnic has, and what they leave out.
pub fn rows() -> Vec<Row> {
    let udp = Way::Udp(Wire::Lo);
    let more = [
        (
            "atomic-lat",
            "ib_atomic_lat",
            "-n N=50000",
            Way::Host,
            Unit::Micros,
        ),
        (
            "uc-write-lat",
            "ib_write_lat",
            "-c UC -s 10 -n N=100000",
            Way::Host,
            Unit::Micros,
        ),
        (
            "ud-lat",
            "ib_send_lat",
            "-c UD -s 10 -n N=100000",
            Way::Host,
            Unit::Micros,
        ),
        (
            "write-rate-8",
            "ib_write_bw",
            "-s 8 -n N=3000000",
            Way::Host,
            Unit::Millions,
        ),
        (
            "read-rate-8",
            "ib_read_bw",
            "-s 8 -n N=2000000",
            Way::Host,
            Unit::Millions,
        ),
        (
            "uc-write-rate-8",
            "ib_write_bw",
            "-c UC -s 8 -n N=2000000",
            Way::Host,
            Unit::Millions,
        ),
        (
            "ud-rate-8",
            "ib_send_bw",
            "-c UD -s 8 -n N=1000000",
            Way::Host,
            Unit::Millions,
        ),
        (
            "write-4k",
            "ib_write_bw",
            "-s 4096 -n N=500000",
            Way::Host,
            Unit::Gigabytes,
        ),
        (
            "both-ways",
            "ib_send_bw",
            "-b -s 64 -n N=1000000",
            Way::Host,
            Unit::Millions,
        ),
        (
            "write-lat-udp",
            "ib_write_lat",
            "-s 10 -n N=50000",
            udp,
            Unit::Micros,
        ),
        (
            "read-lat-udp",
            "ib_read_lat",
            "-s 10 -n N=50000",
            udp,
            Unit::Micros,
        ),
        (
            "write-rate-8-udp",
            "ib_write_bw",
            "-s 8 -n N=1000000",
            udp,
            Unit::Millions,
        ),
        (
            "both-ways-udp",
            "ib_send_bw",
            "-b -s 64 -n N=500000",
            udp,
            Unit::Millions,
        ),
        (
            "depth-1-udp",
            "ib_send_bw",
            "-s 64 -t 1 -n N=50000",
            udp,
            Unit::Millions,
        ),
        (
            "read-bw-udp",
            "ib_read_bw",
            "-s 65536 -n N=20000",
            udp,
            Unit::Gigabytes,
        ),
        (
            "write-events",
            "ib_write_bw",
            "-e -s 4096 -n N=100000",
            Way::Host,
            Unit::Gigabytes,
        ),
    ];
    let more = more.map(|(name, program, args, way, unit)| Row {
        name: name.to_owned(),
        title: format!("{program} {args}"),
        contenders: vec![rows::perftest(program, args, way, unit)],
        aims: Vec::new(),
    });
    let is_plain = |row: &Row| matches!(row.name.as_str(), "asleep-lo" | "asleep-lo-busy");
    let asleep = rows::asleep::all().into_iter().filter(is_plain);
    let mut all: Vec<Row> = rows::all().into_iter().chain(more).chain(asleep).collect();
    for row in &mut all {
        let is_ours = |contender: &Contender| {
            contender.role == Role::Rnic && !matches!(contender.program, Program::Scale { .. })
        };
        row.contenders.retain(is_ours);
        row.aims.clear();
    }
    all.retain(|row| !row.contenders.is_empty());
    all
}

/// A row's figure by one variant, beside the NIC as it is: how much worse, 1 is alike.
#[derive(Debug)]
struct Cell {
    worse: Vec<f64>,
}

/// Runs all, and says how each variant did: a table in markdown.
pub fn measure(
    setting: &mut Setting,
    chosen: &[Row],
    variants: &[Variant],
    repetitions: u32,
    tell: impl Fn(&str),
) -> String {
    let own = setting.places.rnic.clone();
    let mut text = String::from("| row | control | spread |");
    for variant in variants {
        _ = write!(text, " {} |", variant.name);
    }
    text.push_str("\n| --- | ---: | ---: |");
    text.push_str(&" ---: |".repeat(variants.len()));
    text.push('\n');
    for row in chosen {
        for contender in &row.contenders {
            let mut once = |variant: Option<&Variant>| {
                setting.ablated = variant.and_then(|variant| variant.out).map(Policy::name);
                let other = variant.and_then(|variant| variant.rnic.clone());
                setting.places.rnic = other.unwrap_or_else(|| own.clone());
                let watched = variant.is_some_and(|variant| variant.watched);
                let watchers = watched.then(|| Watchers::start(setting));
                let found = figure(contender, setting);
                drop(watchers);
                found
            };
            let mut cells: Vec<Cell> = variants.iter().map(|_| Cell { worse: vec![] }).collect();
            let (mut controls, mut spreads, mut unit) = (vec![], vec![], None);
            for repetition in 0..repetitions {
                tell(&format!("{}/{repetitions} {}", repetition + 1, row.name));
                let before = once(None);
                // Whoever runs first is not always the same.
                let first = repetition as usize % variants.len().max(1);
                let order = (first..variants.len()).chain(0..first);
                let found: Vec<_> = order.map(|at| (at, once(Some(&variants[at])))).collect();
                let (Ok((kind, before)), Ok((_, after))) = (before, once(None)) else {
                    tell("");
                    eprintln!("bench: {}: the control failed", row.name);
                    continue;
                };
                let control = (before + after) / 2.0;
                let worse = |value: f64| match kind.less_is_better() {
                    true => value / control,
                    false => control / value,
                };
                for (at, value) in found {
                    match value {
                        Ok((_, value)) => cells[at].worse.push(worse(value)),
                        Err(why) => {
                            tell("");
                            eprintln!("bench: {}, {}: {why}", row.name, variants[at].name);
                        }
                    }
                }
                controls.push(control);
                spreads.push((before - after).abs() / control);
                unit = Some(kind);
            }
            let (Some(unit), Some(control)) = (unit, Summary::of(controls)) else {
                continue;
            };
            let spread = Summary::of(spreads).map_or(0.0, |summary| summary.max);
            let name = match row.contenders.len() {
                1 => row.name.clone(),
                _ => format!("{}, {}", row.name, contender.name),
            };
            _ = write!(
                text,
                "| {name} | {} | {:.0}% |",
                unit.show(control.median),
                100.0 * spread
            );
            for cell in &cells {
                text.push_str(&cell.show(spread));
            }
            text.push('\n');
        }
    }
    setting.places.rnic = own;
    text
}

impl Cell {
    /// Bold where it is worse, or in italics where it is better, by more than the spread: in all
    /// repetitions, and by 3% at least.
    fn show(&self, spread: f64) -> String {
        let Some(summary) = Summary::of(self.worse.iter().copied()) else {
            return " failed |".to_owned();
        };
        let percent = format!("{:+.0}%", 100.0 * (summary.median - 1.0));
        let margin = spread.max(0.03);
        if summary.min > 1.0 + margin {
            format!(" **{percent}** |")
        } else if summary.max < 1.0 - margin {
            format!(" *{percent}* |")
        } else {
            format!(" {percent} |")
        }
    }
}

/// `rnic top` at each end of each place.
struct Watchers(Vec<Child>);

impl Watchers {
    fn start(setting: &Setting) -> Watchers {
        let places = &setting.places;
        let wires = [Wire::Lo, Wire::Veth, Wire::Ethernet];
        let ends = wires.iter().filter_map(|wire| places.ends(*wire).ok());
        let top = |end: &End| {
            let mut command = end.command(&places.rnic);
            command.args(["top", "--json"]).stdout(Stdio::null());
            command.spawn().ok()
        };
        // On lo both ends are one.
        let one = |(n, ends): (usize, &Ends)| match n {
            0 => vec![top(&ends.0)],
            _ => vec![top(&ends.0), top(&ends.1)],
        };
        let all = ends.enumerate().flat_map(one);
        Watchers(all.flatten().collect())
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        for top in &mut self.0 {
            let _ = top.kill();
            let _ = top.wait();
        }
    }
}

/// The figure that counts.
fn figure(contender: &Contender, setting: &Setting) -> std::result::Result<(Unit, f64), String> {
    if let Some(why) = contender.program.missing(setting) {
        return Err(why);
    }
    let figures = contender
        .program
        .run(setting)
        .map_err(|error| error.to_string())?;
    let first = figures.into_iter().next();
    first
        .map(|(_, unit, value)| (unit, value))
        .ok_or_else(|| "no figure".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_chosen_by_name() {
        let all = Variant::ablations(&[]).unwrap();
        assert_eq!(all.len(), Policy::ALL.len());
        let one = Variant::ablations(&["doorbell".to_owned()]).unwrap();
        assert_eq!(one[0].out, Some(Policy::Doorbell));
        assert!(Variant::ablations(&["late".to_owned()]).is_err());
    }

    #[test]
    fn only_what_is_beyond_the_spread_is_marked() {
        let show = |worse: &[f64], spread| {
            Cell {
                worse: worse.to_vec(),
            }
            .show(spread)
        };
        assert_eq!(show(&[1.2, 1.3, 1.25], 0.1), " **+25%** |");
        assert_eq!(show(&[1.2, 1.3, 1.05], 0.1), " +20% |");
        assert_eq!(show(&[0.8, 0.7, 0.75], 0.1), " *-25%* |");
        assert_eq!(show(&[1.02, 1.02, 1.02], 0.0), " +2% |");
        assert_eq!(show(&[], 0.0), " failed |");
    }

    #[test]
    fn rows_are_rnics_own() {
        let all = rows();
        assert!(all.len() > 30);
        let ours = |row: &Row| row.contenders.iter().all(|c| c.role == Role::Rnic);
        assert!(all.iter().all(ours));
    }
}
