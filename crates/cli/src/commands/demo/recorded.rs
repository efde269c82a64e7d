//! `rnic demo --html`: the demo is done by a process that captures itself, and the page is made of
//! its packets and of what it said.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::commands::dissect::{self, Lesson, Operation};
use crate::commands::run::folders;
use crate::platform::failure::{Failure, Result};
use crate::text::gid::Choice;

/// Files that go with this.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // Of this process alone: nobody misses it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The process that is captured: `rnic part recorded`.
pub fn record(file: &Path, gid: &Choice) -> Result<()> {
    let operations = super::lead(gid, false)?;
    let text = serde_json::to_vec(&operations).map_err(|e| Failure::new(e.to_string()))?;
    Ok(fs::write(file, text)?)
}

/// Does the demo, and writes the page.
pub fn page(page: &Path, gid: &Choice) -> Result<()> {
    dissect::may_be_page(page, "rnic demo --html demo.html")?;
    // Before the demo says how well all went.
    let fresh = !page.exists();
    dissect::can_write_page(page)?;
    make(page, gid).inspect_err(|_| {
        if fresh {
            // It is empty, and nobody's.
            let _ = fs::remove_file(page);
        }
    })
}

fn make(page: &Path, gid: &Choice) -> Result<()> {
    let folder = folders::runtime()?.join(format!("demo-{}", std::process::id()));
    // Left by a process of this number that was killed.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder)?;
    let scratch = Scratch(folder);
    let (capture, said) = (scratch.0.join("demo.pcap"), scratch.0.join("said.json"));
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["part", "recorded"])
        .arg(&said)
        .args(gid.to_args())
        .env(rnic_settings::PCAP.name, &capture)
        .stdin(Stdio::null());
    rnic_sys::child::die_with_parent(&mut command);
    let status = command.status()?;
    if !status.success() {
        return Err(Failure::new(format!("no page: the demo failed ({status})"))
            .cause("it has said why above"));
    }
    let operations: Vec<Operation> = serde_json::from_slice(&fs::read(&said)?)
        .map_err(|error| Failure::new(error.to_string()).during("reading what the demo said"))?;
    dissect::write_lesson(&capture, page, &Lesson::new(operations))?;
    crate::say!("\nThe page: {}", page.display());
    Ok(())
}
