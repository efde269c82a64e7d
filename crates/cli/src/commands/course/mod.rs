//! `rnic course`: ten programs that are broken. The learner mends them, and each is checked by what
//! it does on the software NIC.
//!
//! * [`exercises`]: what they are; the programs and checks are in `c`.
//! * [`folder`]: the learner's files.
//! * [`build`], [`check`]: how one is judged.

mod build;
mod check;
mod exercises;
mod folder;

use std::path::PathBuf;
use std::time::Duration;

use check::Verdict;
use exercises::Exercise;
use folder::Folder;

use crate::platform::failure::{Failure, Result};
use crate::platform::out;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rnic course                the exercises, and which are done
  rnic course 1              begin with the first one; later: check it
  rnic course 1 --hint       a hint; again: the next one
  rnic course 1 --solution   the solution, once it is done or all hints were given
  rnic course 1 --start      begin anew; what you had is kept under another name

An exercise is a C program that is broken, and a README.md with the goal. They are written into the folder rnic-course, \
where your progress is kept as well. Mend the program with any editor. `rnic course N` builds it together with a check, \
runs it on the software NIC, and says what is right, what is not, and why. You need a C compiler and the headers of \
rdma-core (Debian: gcc, libibverbs-dev, librdmacm-dev), and no RDMA hardware.

Exit status: 0 if the exercise is right, or was written; 1 if something is not right; 2 for arguments that are wrong.")]
pub struct Args {
    /// An exercise, 1 to 10 [default: list them]
    #[arg(value_name = "N", value_parser = clap::value_parser!(u8).range(1..=10))]
    number: Option<u8>,
    /// Write the broken program again
    #[arg(long, requires = "number", conflicts_with_all = ["hint", "solution"])]
    start: bool,
    /// Give one more hint
    #[arg(long, requires = "number", conflicts_with = "solution")]
    hint: bool,
    /// Print a solution
    #[arg(long, requires = "number")]
    solution: bool,
    /// Where the exercises are [default: rnic-course, or this folder if it is one]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// How long a program may run
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    patience: u64,
}

pub fn main(args: Args) -> Result<()> {
    let folder = Folder::new(args.folder);
    let Some(number) = args.number else {
        list(&folder);
        return Ok(());
    };
    let found = exercises::ALL.get(usize::from(number).wrapping_sub(1));
    let exercise = found.ok_or_else(|| Failure::new("there are ten exercises").status(2))?;
    if args.hint {
        hint(&folder, exercise)
    } else if args.solution {
        solution(&folder, exercise)
    } else if args.start || !folder.has(exercise) {
        start(&folder, exercise)
    } else {
        judge(&folder, exercise, Duration::from_secs(args.patience))
    }
}

/// The width of what people read.
fn width() -> usize {
    out::columns().map_or(out::WIDTH, |columns| columns.min(out::WIDTH))
}

fn say(first: &str, rest: &str, text: &str) {
    crate::say!("{}", out::paragraph(width(), first, rest, text));
}

fn list(folder: &Folder) {
    say(
        "",
        "",
        "Ten programs that use RDMA, and are broken. Mend them, from the first verb to one-sided programs.",
    );
    crate::say!();
    let mut next = None;
    let mut changed = false;
    for exercise in &exercises::ALL {
        let reached = folder.reached(exercise);
        let state = match (reached.done, folder.has(exercise)) {
            (true, true) if reached.changed => "done *",
            (true, _) => "done",
            (false, true) => "begun",
            (false, false) => "open",
        };
        if !reached.done {
            next = next.or(Some(exercise));
        }
        changed |= state == "done *";
        crate::say!("  {:>2}  {state:<6} {}", exercise.number, exercise.title);
    }
    crate::say!();
    if changed {
        say(
            "",
            "",
            "* The program was changed since its check passed: `rnic course N` checks it again.",
        );
        crate::say!();
    }
    match next {
        Some(exercise) => {
            let what = match folder.has(exercise) {
                true => format!("checks {}", folder.program(exercise).display()),
                false => format!(
                    "writes the program and its goal into {}",
                    folder.path().display()
                ),
            };
            say(
                "Next: ",
                "      ",
                &format!("rnic course {}   {what}", exercise.number),
            );
        }
        None => say(
            "",
            "",
            "All are done. Next: `rnic explain words`, `man ibv_post_send`, and your own program.",
        ),
    }
}

fn start(folder: &Folder, exercise: &Exercise) -> Result<()> {
    let kept = folder.write(exercise)?;
    if let Some(kept) = kept {
        crate::say!("Your program is kept as {}.\n", kept.display());
    }
    crate::say!("{}", exercise.readme.trim_end());
    crate::say!();
    crate::say!("The program:  {}", folder.program(exercise).display());
    crate::say!("This text:    {}", folder.readme(exercise).display());
    Ok(())
}

fn hint(folder: &Folder, exercise: &Exercise) -> Result<()> {
    let hints = exercise.hints();
    if !folder.has(exercise) {
        return Err(not_begun(exercise));
    }
    let reached = folder.reached(exercise);
    let given = (reached.hints + 1).min(hints.len());
    folder.keep_hints(exercise, given)?;
    for (n, text) in hints.iter().take(given).enumerate() {
        say(&format!("Hint {} of {}: ", n + 1, hints.len()), "  ", text);
    }
    if given == hints.len() {
        crate::say!(
            "That was the last one: rnic course {} --solution",
            exercise.number
        );
    }
    Ok(())
}

fn not_begun(exercise: &Exercise) -> Failure {
    let number = exercise.number;
    Failure::new(format!("exercise {number} is not begun")).next(format!(
        "`rnic course {number}` writes the program and its goal"
    ))
}

fn solution(folder: &Folder, exercise: &Exercise) -> Result<()> {
    let reached = folder.reached(exercise);
    let left = exercise.hints().len().saturating_sub(reached.hints);
    if !reached.done && left > 0 {
        let (number, hints) = (exercise.number, crate::text::count(left as u64, "hint"));
        return Err(Failure::new(format!(
            "exercise {number} is not done, and {hints} are left"
        ))
        .next(format!("`rnic course {number} --hint`")));
    }
    crate::say!("{}", exercise.solution.trim_end());
    Ok(())
}

fn judge(folder: &Folder, exercise: &Exercise, patience: Duration) -> Result<()> {
    let built = build::build(exercise, &folder.program(exercise))?;
    if !built.warnings.is_empty() {
        crate::say!("{}", built.warnings.trim_end());
    }
    let verdict = check::check(exercise, &built, patience)?;
    print(exercise, &verdict);
    if !verdict.passed() {
        let number = exercise.number;
        return Err(
            Failure::new(format!("exercise {number} is not right yet")).next(format!(
                "mend {}; `rnic course {number} --hint` gives a hint",
                folder.program(exercise).display()
            )),
        );
    }
    folder.keep_done(exercise)?;
    crate::say!();
    crate::say!("Exercise {} is done.", exercise.number);
    let next = exercises::ALL
        .iter()
        .find(|other| !folder.reached(other).done);
    match next {
        Some(next) => crate::say!("Next: rnic course {}   {}", next.number, next.title),
        None => crate::say!("That was the last one."),
    }
    Ok(())
}

fn print(exercise: &Exercise, verdict: &Verdict) {
    let said = verdict.said.trim_end();
    if !said.is_empty() {
        crate::say!("{said}");
    }
    say(
        "",
        "  ",
        &format!("Exercise {}: {}", exercise.number, exercise.title),
    );
    for text in &verdict.right {
        say("  right:  ", "          ", text);
    }
    for text in &verdict.wrong {
        say("  wrong:  ", "          ", text);
    }
    let mut before = "";
    for (label, text) in &verdict.why {
        let shown = match *label == before {
            true => String::new(),
            false => format!("{label}:"),
        };
        say(&format!("  {shown:<8}"), "          ", text);
        before = label;
    }
}
