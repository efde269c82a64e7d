//! The variables that put the NIC into a program: what `rnic run` sets, and `rnic run --print-env`
//! prints.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::library::{self, Library};
use super::{Args, capture, faults, folders, interfaces};
use crate::platform::failure::{Failure, Result};

/// How `--print-env` prints them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// `export NAME='VALUE'`, for `eval` of a shell
    Sh,
    /// One object, NAME to VALUE
    Json,
    /// NAME=VALUE, for the file that $GITHUB_ENV names, and for env files of containers
    Github,
}

type Variables = Vec<(&'static str, OsString)>;

/// What a program needs to have the NIC.
pub struct Environment {
    pub variables: Variables,
    /// Has to be kept for as long as the variables are used.
    pub library: Library,
}

/// What the options ask for. Everything that can be refused is refused here; then an old capture is
/// emptied.
pub fn of(args: &Args) -> Result<Environment> {
    let faults = args
        .faults
        .as_deref()
        .map(|text| faults(text, args.seed))
        .transpose()?;
    let library = library::find()?;
    let folder = library::folder(&library)?;
    let xdp = args.xdp.as_deref().map(interfaces).transpose()?;
    // Last: what can be refused is, and an old capture is still there.
    let pcap = args.pcap.as_deref().map(capture::prepare).transpose()?;
    let mut variables = Vec::new();
    let preload = match folder {
        Some(folder) => {
            let preload = folder.join(library::PRELOAD);
            let path = prepend(folder.into_os_string(), "LD_LIBRARY_PATH");
            variables.push(("LD_LIBRARY_PATH", path));
            preload
        }
        None => library.path.clone(),
    };
    variables.push(("LD_PRELOAD", prepend(preload.into(), "LD_PRELOAD")));
    if let Some(shared) = folders::instead_of_tmp() {
        variables.push((rnic_settings::RUNTIME_DIR.name, shared.into()));
    }
    if let Some(faults) = faults {
        if !args.quiet {
            crate::remark!(
                "rnic: faults {faults} (packets take the network stack within this host, too)"
            );
        }
        variables.push((rnic_settings::FAULTS.name, faults.to_string().into()));
    }
    if let Some(xdp) = xdp {
        variables.push((rnic_settings::XDP.name, xdp.to_string().into()));
    }
    if let Some(pcap) = pcap {
        if !args.quiet {
            crate::remark!(
                "rnic: packets go to {0}, by the network stack within this host, too; `rnic dissect {0}` says what they mean",
                pcap.display()
            );
        }
        variables.push((rnic_settings::PCAP.name, pcap.into()));
    }
    if args.quiet {
        variables.push((rnic_settings::QUIET.name, "1".into()));
    }
    Ok(Environment { variables, library })
}

/// `first`, before what the variable has. Twice would be of no use: the environment may be that of
/// an earlier call.
fn prepend(first: OsString, variable: &str) -> OsString {
    let old = std::env::var_os(variable).filter(|old| !old.is_empty());
    joined(first, old)
}

fn joined(first: OsString, old: Option<OsString>) -> OsString {
    let Some(old) = old else { return first };
    let again = old.as_bytes().strip_prefix(first.as_bytes());
    if again.is_some_and(|rest| rest.is_empty() || rest[0] == b':') {
        return old;
    }
    let mut value = first;
    value.push(":");
    value.push(old);
    value
}

/// `--print-env`: for whoever starts programs without `rnic run`.
pub fn print(args: &Args, format: Format) -> Result<()> {
    let Environment {
        mut variables,
        library,
    } = of(args)?;
    if library.held.is_some() {
        return Err(
            Failure::new("the variables would name a library that is gone when rnic ends")
                .cause("no folder was found whose files can be mapped as code, so the library is in memory")
                .next("set RNIC_RUNTIME_DIR to a folder of yours on a file system without `noexec`"),
        );
    }
    if let Some(report) = &args.report {
        variables.push((rnic_settings::REPORT.name, report_file(report)?));
    }
    let wishes = args.wishes();
    for (name, wanted) in [
        (rnic_settings::STATS.name, wishes.stats),
        (rnic_settings::LINT.name, wishes.lint),
    ] {
        if wanted {
            variables.push((name, "1".into()));
        }
    }
    crate::say!("{}", text(&variables, format)?);
    Ok(())
}

/// Makes the file, if it is not there: processes append to it.
fn report_file(path: &Path) -> Result<OsString> {
    let unwritable = |error: std::io::Error| {
        Failure::new(format!("cannot write the report file {}", path.display()))
            .cause(error.to_string())
            .next("choose a file in a folder that you may write to: --report /tmp/rnic.report")
    };
    let absolute = std::path::absolute(path).map_err(unwritable)?;
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true);
    options.open(&absolute).map_err(unwritable)?;
    Ok(absolute.into_os_string())
}

fn text(variables: &Variables, format: Format) -> Result<String> {
    let mut lines = Vec::new();
    let mut object = serde_json::Map::new();
    for (name, value) in variables {
        let refused = |why: &str| {
            Failure::new(format!("{name} cannot be printed"))
                .cause(format!("its value, {}, {why}", value.display()))
                .next("choose another folder or file name")
        };
        let value = value.to_str().ok_or_else(|| refused("is no UTF-8"))?;
        match format {
            Format::Sh => lines.push(format!("export {name}='{}'", value.replace('\'', "'\\''"))),
            Format::Json => {
                object.insert((*name).to_owned(), value.into());
            }
            Format::Github if value.contains('\n') => return Err(refused("has a line break")),
            Format::Github => lines.push(format!("{name}={value}")),
        }
    }
    Ok(match format {
        Format::Json => serde_json::Value::Object(object).to_string(),
        _ => lines.join("\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An environment that has the NIC already is not made longer by each nested call.
    #[test]
    fn what_is_first_already_is_not_put_there_again() {
        let of = |old: Option<&str>| joined("/r/verbs".into(), old.map(OsString::from));
        assert_eq!(of(None), "/r/verbs");
        assert_eq!(of(Some("/r/verbs")), "/r/verbs");
        assert_eq!(of(Some("/r/verbs:/x")), "/r/verbs:/x");
        assert_eq!(of(Some("/x:/r/verbs")), "/r/verbs:/x:/r/verbs");
        assert_eq!(of(Some("/r/verbs2")), "/r/verbs:/r/verbs2");
    }

    /// Each format carries every value unchanged, or says that it cannot.
    #[test]
    fn values_survive_every_format() {
        let odd: Variables = vec![("A", "it's".into()), ("B", "x y".into())];
        assert_eq!(
            text(&odd, Format::Sh).unwrap(),
            "export A='it'\\''s'\nexport B='x y'"
        );
        assert_eq!(text(&odd, Format::Github).unwrap(), "A=it's\nB=x y");
        let json: serde_json::Value =
            serde_json::from_str(&text(&odd, Format::Json).unwrap()).unwrap();
        assert_eq!(json["A"], "it's");
        let broken: Variables = vec![("A", "x\ny".into())];
        let failure = text(&broken, Format::Github).unwrap_err().to_string();
        assert!(failure.contains("line break"), "{failure}");
        assert!(text(&broken, Format::Sh).is_ok());
    }
}
