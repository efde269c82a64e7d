//! Small programs in C that sleep in epoll_wait.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use super::{Over, P99, PROCESSOR, after, ends, milliseconds, programs};
use crate::pair;
use crate::place::{End, Ends};
use crate::setting::{Figure, Setting, Unit, needs};
use crate::{Result, stats};

/// More round trips than there can be in the time.
const COUNT: &str = "2000000";

const VERBS_H: &str = "/usr/include/infiniband/verbs.h";

/// Whether programs can be compiled that use verbs.
pub fn c_compiler() -> Result<()> {
    needs("gcc", "gcc")?;
    match Path::new(VERBS_H).exists() {
        true => Ok(()),
        false => Err(format!("{VERBS_H} (apt-get install libibverbs-dev)").into()),
    }
}

/// crates/programs/c/NAME.c, compiled once in a run.
pub fn compiled(setting: &Setting, compiler: &str, name: &'static str) -> Result<PathBuf> {
    static DONE: Mutex<Option<HashMap<&str, std::result::Result<(), String>>>> = Mutex::new(None);
    let program = setting.places.folder().join(name);
    let compile = || {
        let output = Command::new(compiler)
            .args(["-std=gnu11", "-O2", "-o"])
            .arg(&program)
            .arg(setting.c_programs.join(name).with_extension("c"))
            .args(["-libverbs", "-lpthread"])
            .output()
            .map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    };
    let mut done = DONE.lock().map_err(|_| "a thread panicked")?;
    let done = done.get_or_insert_default().entry(name);
    done.or_insert_with(compile).clone()?;
    Ok(program)
}

/// Pairs of processes in a repetition: where the scheduler puts two of them holds for their life,
/// and changes everything.
const PAIRS: usize = 3;

/// Round trips.
pub fn ping_pong(setting: &Setting, what: &str, how: &str, over: Over) -> Result<Vec<Figure>> {
    let program = compiled(setting, "gcc", "asleep")?;
    let Ends(server, client) = ends(setting, over)?;
    let time = milliseconds(setting, 200);
    let command = |end: &End, role: &str| {
        let mut command = over.command(setting, end);
        command.arg(&program);
        command.args([what, how, "64", COUNT, &time, role, end.addr]);
        command
    };
    let words = ["median ", "99% ", "processor time "];
    let mut found = words.map(|_| Vec::new());
    for _ in 0..PAIRS {
        let text = pair::connected(command(server, "follow"), command(client, "lead"))?;
        for (values, words) in found.iter_mut().zip(words) {
            values.push(after(&text, words)?);
        }
    }
    let [median, p99, processor] = found.map(stats::median);
    Ok(vec![
        (String::new(), Unit::Micros, median),
        (P99.into(), Unit::Micros, p99),
        // A round trip is two messages. Microseconds for one are seconds for a million.
        (PROCESSOR.into(), Unit::Seconds, processor / 2.0),
    ])
}

/// A program that starts the processes it needs.
fn alone(setting: &Setting, name: &'static str, args: &[&str], over: Over) -> Result<String> {
    let program = compiled(setting, "gcc", name)?;
    let Ends(end, _) = ends(setting, over)?;
    let mut command = over.command(setting, end);
    command.arg(&program).args(args);
    programs::say(command)
}

/// Round trips of many connections at once.
pub fn loops(setting: &Setting, count: u32, one: bool, over: Over) -> Result<Vec<Figure>> {
    let what = if over.is_rdma() { "rc" } else { "tcp" };
    let (count, time) = (count.to_string(), milliseconds(setting, 1000));
    let mut args = vec![what, &count, "0", "100000", &time];
    args.extend(one.then_some("together"));
    let text = alone(setting, "loops", &args, over)?;
    let [median, p99, processor] =
        ["median ", "99% ", "processor time "].map(|words| after(&text, words));
    Ok(vec![
        (String::new(), Unit::Micros, median?),
        (P99.into(), Unit::Micros, p99?),
        (PROCESSOR.into(), Unit::Seconds, processor? / 2.0),
    ])
}

pub fn idle(setting: &Setting, count: u32, over: Over) -> Result<Vec<Figure>> {
    let what = if over.is_rdma() { "rc" } else { "tcp" };
    let time = milliseconds(setting, 1000);
    let text = alone(setting, "idle", &[what, &count.to_string(), &time], over)?;
    let value = after(&text, "connections, ")?;
    Ok(vec![(String::new(), Unit::Percent, value)])
}

pub fn mixed(setting: &Setting, has_busy: bool, over: Over) -> Result<Vec<Figure>> {
    let what = match (has_busy, over.is_rdma()) {
        (false, _) => "none",
        (true, false) => "tcp",
        (true, true) => "rc",
    };
    let time = milliseconds(setting, 800);
    let text = alone(setting, "mixed", &[what, &time], over)?;
    let (trips, timer) = text.split_once(';').ok_or("mixed.c says something else")?;
    Ok(vec![
        (String::new(), Unit::Micros, after(trips, "median ")?),
        (P99.into(), Unit::Micros, after(trips, "99% ")?),
        (
            "timer late".into(),
            Unit::Micros,
            after(timer, "late median ")?,
        ),
        (
            "timer late, 99%".into(),
            Unit::Micros,
            after(timer, "99% ")?,
        ),
        (
            "answers beside".into(),
            Unit::Thousands,
            after(timer, "us; ")? / 1e3,
        ),
    ])
}
