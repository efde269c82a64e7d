//! `rnic pages`: the manual pages and shell completions, made of the parser itself, so that they
//! cannot differ from it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::platform::failure::{Failure, Result};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to write: man/ and completions/ are made in it
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Writes them for the whole command line.
pub fn main(args: Args, line: Command) -> Result<()> {
    write_all(&args.folder, line).map_err(|error| {
        Failure::new(format!("cannot write to {}", args.folder.display()))
            .cause(error.to_string())
            .next("name a folder that you may write to")
    })
}

fn write_all(folder: &Path, line: Command) -> io::Result<()> {
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    std::fs::create_dir_all(&man)?;
    std::fs::create_dir_all(&completions)?;
    let mut whole = line.clone().disable_help_subcommand(true);
    whole.build();
    manual(&whole, &man)?;
    // With the `help` command, which the program has.
    let mut whole = visible(line);
    for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut whole, "rnic", &completions)?;
    }
    Ok(())
}

/// Without the hidden commands, which no shell is to offer.
fn visible(whole: Command) -> Command {
    let shown: Vec<Command> = whole
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .cloned()
        .collect();
    let bare = Command::new("rnic")
        .version(env!("CARGO_PKG_VERSION"))
        .args(whole.get_arguments());
    bare.subcommands(shown)
}

/// The page of a command, and those of its commands.
fn manual(command: &Command, folder: &Path) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        manual(inner, folder)?;
    }
    let version = concat!("rnic ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone())
        .source(version)
        .manual("User Commands");
    let mut file = std::fs::File::create(folder.join(man.get_filename()))?;
    man.render_title(&mut file)?;
    man.render_name_section(&mut file)?;
    man.render_synopsis_section(&mut file)?;
    man.render_description_section(&mut file)?;
    man.render_options_section(&mut file)?;
    if command.get_subcommands().any(|c| !c.is_hide_set()) {
        man.render_subcommands_section(&mut file)?;
    }
    if let Some(help) = command.get_after_help() {
        rest_of_help(&help.to_string()).to_writer(&mut file)?;
    }
    file.flush()
}

/// What stands behind the options in the help: tables keep their lines under a heading of their
/// own, prose is filled.
fn rest_of_help(help: &str) -> Roff {
    let mut page = Roff::new();
    let mut in_notes = false;
    for block in help.split("\n\n") {
        let mut lines = block.lines();
        let first = lines.next().unwrap_or_default();
        let table: Vec<&str> = lines.collect();
        let is_table = !table.is_empty() && table.iter().all(|line| line.starts_with(' '));
        match first.strip_suffix(':') {
            Some(heading) if is_table => {
                let heading = heading.replace('`', "").to_uppercase();
                page.control("SH", [heading.as_str()]);
                page.control("nf", []);
                for line in table {
                    page.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
                }
                page.control("fi", []);
                in_notes = false;
            }
            _ => {
                match in_notes {
                    true => page.control("PP", []),
                    false => page.control("SH", ["NOTES"]),
                };
                for line in block.lines() {
                    page.text([roman(line)]);
                }
                in_notes = true;
            }
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Promise: a package that ships what `rnic pages` wrote documents every command and option
    /// that the program has.
    #[test]
    fn every_command_and_option_has_its_place() {
        let folder = std::env::temp_dir().join(format!("rnic-pages-{}", std::process::id()));
        write_all(&folder, crate::Cli::command()).expect("a folder of ours");
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect(name);
        let mut whole = crate::Cli::command();
        whole.build();
        let (main, bash) = (read("man/rnic.1"), read("completions/rnic.bash"));
        let mut options = 0;
        for command in whole.get_subcommands().filter(|c| c.get_name() != "help") {
            let name = command.get_name();
            let page = folder.join(format!("man/rnic-{name}.1"));
            if command.is_hide_set() {
                assert!(!page.exists(), "{name} is hidden");
                assert!(!bash.contains(&format!("rnic,{name})")), "{name} is hidden");
                continue;
            }
            assert!(main.contains(&format!("rnic\\-{name}(1)")), "{name}");
            assert!(bash.contains(&format!("rnic,{name})")), "{name}");
            let page = std::fs::read_to_string(page).expect(name);
            for long in command.get_arguments().filter_map(|a| a.get_long()) {
                let shown = format!("\\-\\-{}", long.replace('-', "\\-"));
                assert!(page.contains(&shown), "--{long} of {name}");
                assert!(bash.contains(&format!("--{long}")), "--{long} of {name}");
                options += 1;
            }
        }
        assert!(options > 30, "{options} options");
        std::fs::remove_dir_all(&folder).expect("ours");
    }

    /// Promise: the tables of the help keep their columns in the manual, and its prose is not cut
    /// into lines.
    #[test]
    fn tables_keep_their_lines() {
        let page = rest_of_help("Examples:\n  a  b\n  c  d\n\nProse that is\nlong.\n\nMore.");
        let page = page.render();
        let tables = ".SH EXAMPLES\n.nf\na  b\nc  d\n.fi\n";
        assert!(page.contains(tables), "{page}");
        assert!(
            page.contains(".SH NOTES\nProse that is\nlong.\n.PP\nMore."),
            "{page}"
        );
    }
}
