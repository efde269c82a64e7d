//! What the program prints goes where it is read.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// Promise: a reader that has enough (`| head`) is no panic; the program ends as those in C do.
#[test]
fn a_pipe_that_nobody_reads_ends_it_quietly() {
    const SIGPIPE: i32 = 13;
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_rnic-fabric"))
        .args(["seed", "1", "--print"])
        .stdout(writer)
        .output()
        .expect("the program starts");
    assert_eq!(output.status.signal(), Some(SIGPIPE), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
