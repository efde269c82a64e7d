//! The settings, for people: the help that all commands share, and what is in force.

use rnic_settings::{RUNTIME_DIR, SHARDS, Variable};
use serde::Serialize;

/// Where what a variable means begins, in columns.
const MEANING: usize = 23;

/// Names and meanings, a column each and a line for each.
pub fn help(variables: &[&Variable]) -> String {
    let line = |variable: &&Variable| {
        let meaning = variable.meaning.join(" ");
        format!("  {:<1$}{meaning}", variable.name, MEANING - 2)
    };
    let lines: Vec<String> = variables.iter().map(line).collect();
    lines.join("\n")
}

/// A setting as programs of this environment have it.
#[derive(Debug, Serialize)]
pub struct Setting {
    variable: &'static str,
    value: String,
    /// The environment says it; otherwise it is the default.
    is_set: bool,
    /// Why the device cannot be opened with it.
    problem: Option<String>,
}

/// All of them.
pub fn in_force() -> Vec<Setting> {
    let one = |variable: &&'static Variable| {
        let now = variable.in_force();
        Setting {
            variable: variable.name,
            value: match (variable.name, &*now.value) {
                (name, "auto") if name == SHARDS.name => {
                    let asleep = rnic_nic::shards_asleep_by_default();
                    let polling = rnic_nic::shards_by_default();
                    format!("auto: {polling}, and {asleep} where threads sleep")
                }
                (name, _) if name == RUNTIME_DIR.name && !now.is_set => {
                    format!("/tmp/rnic-{}", rnic_sys::effective_uid())
                }
                _ => now.value,
            },
            is_set: now.is_set,
            problem: now.problem,
        }
    };
    rnic_settings::ALL.iter().map(one).collect()
}

/// A line for each; a star marks those that the environment has set.
pub fn table(settings: &[Setting]) -> Vec<String> {
    let mut lines = vec![
        String::new(),
        "Settings in force (* from the environment):".to_owned(),
    ];
    let width = settings.iter().map(|s| s.variable.len()).max().unwrap_or(0);
    for setting in settings {
        let mark = if setting.is_set { '*' } else { ' ' };
        let problem = setting.problem.iter().map(|why| format!("  wrong: {why}"));
        let problem: String = problem.collect();
        lines.push(format!(
            "{mark} {:<width$}  {}{problem}",
            setting.variable, setting.value
        ));
    }
    lines
}
