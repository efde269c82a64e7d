//! Runs in which nobody has called the library.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::Report;
use super::story::Story;

/// What is said of a run without a call of the library. It may be that it has nothing to do with
/// RDMA, so nothing here is called the cause; of one that succeeded it is one line.
pub fn tell(report: &Report, program: &str, status: ExitStatus) -> Option<Story> {
    // Ended from outside: somebody knows why.
    let stopped = matches!(
        status.signal(),
        Some(libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGPIPE | libc::SIGKILL)
    );
    if !report.processes.is_empty() || stopped {
        return None;
    }
    if status.success() {
        return Some(Story {
            what: format!(
                "{program} has ended, and no process of this run has called rnic's library: no verb was called"
            ),
            ..Story::default()
        });
    }
    Some(Story {
        what: format!(
            "{program} {}; no process of this run has called rnic's library, or could say that it did",
            report.ending(status)
        ),
        next: [
            "if a launcher started the program: some drop LD_PRELOAD and LD_LIBRARY_PATH (env -i, sudo, batch systems); let it \
             start `rnic run -- PROGRAM` instead",
            "if it opens libibverbs by its full path: let it open \"libibverbs.so.1\"",
            "if it started a static or setuid program: rnic cannot get into such ones",
            "if it became another user before it called the library (setuid(2)): it could not write that down; let that user \
             start `rnic run`",
        ]
        .map(str::to_owned)
        .into(),
        ..Story::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: only a run in which nobody called the library is told so: in one line if it has
    /// succeeded, and with what to do if it has failed.
    #[test]
    fn only_where_nobody_called() {
        let failed = ExitStatus::from_raw(3 << 8);
        let mut report = Report::default();
        let told = tell(&report, "prog", failed).expect("a story");
        assert!(told.what.contains("exit status 3; no process of this run"));
        assert!(told.cause.is_none());
        // A process that gave up root's rights cannot write into root's report.
        assert!(told.what.ends_with("or could say that it did"));
        assert!(told.next.iter().any(|next| next.contains("setuid(2)")));
        let went = tell(&report, "prog", ExitStatus::from_raw(0)).expect("a story");
        assert!(went.what.contains("no verb was called"));
        assert_eq!(went.to_string().lines().count(), 1);
        assert!(tell(&report, "prog", ExitStatus::from_raw(libc::SIGINT)).is_none());
        report.processes.push(super::super::Process {
            id: 1,
            pid: 2,
            program: "prog".to_owned(),
            opened: false,
        });
        assert!(tell(&report, "prog", failed).is_none());
        assert!(tell(&report, "prog", ExitStatus::from_raw(0)).is_none());
    }
}
