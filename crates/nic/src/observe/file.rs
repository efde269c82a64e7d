//! The file of the report.

use std::io::{Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix_futex_sync::Mutex;

use super::settings;

/// Only threads that hold the report's state use it, as far as it matters: a child that was forked
/// finds it free.
static FILE: Mutex<rnic_sys::KeptFile> = Mutex::new(rnic_sys::KeptFile::new());

/// Appends lines, each with its end, and gives the position behind them. `None`: that could not be
/// done, which is no reason to disturb the program.
pub(super) fn append(lines: &str) -> Option<u64> {
    let settings = settings()?;
    let bytes = lines.as_bytes();
    let kept = || FILE.try_lock()?.append(&settings.file, bytes).ok();
    // A kernel or a sandbox without the call, or no number to spare.
    let opened = || append_once(&settings.file, bytes);
    rnic_sys::uncancelled(|| {
        // No limit that is the program's may end it here.
        rnic_sys::signal::without_file_size_signal(|| kept().or_else(opened))
    })
}

/// Opens a file, and appends to it: the position behind that.
fn append_once(file: &Path, bytes: &[u8]) -> Option<u64> {
    let mut file = std::fs::OpenOptions::new().append(true).open(file).ok()?;
    file.write_all(bytes).ok()?;
    // The position is behind what was appended.
    file.stream_position().ok()
}

/// Appends lines to another file, as far as that can be done.
pub(super) fn append_to(file: &Path, lines: &str) {
    rnic_sys::uncancelled(|| {
        rnic_sys::signal::without_file_size_signal(|| append_once(file, lines.as_bytes()))
    });
}

/// Writes over what is there.
pub(super) fn overwrite(text: &str, at: u64) {
    let Some(settings) = settings() else {
        return;
    };
    let bytes = text.as_bytes();
    let kept = || FILE.try_lock()?.write_at(&settings.file, bytes, at).ok();
    let opened = || {
        let file = std::fs::OpenOptions::new().write(true).open(&settings.file);
        file.and_then(|file| file.write_all_at(bytes, at)).ok()
    };
    rnic_sys::uncancelled(|| rnic_sys::signal::without_file_size_signal(|| kept().or_else(opened)));
}

/// The last device was closed: the program has all its descriptors for itself.
pub(crate) fn closed() {
    let close = || FILE.try_lock().map(|mut file| file.close());
    rnic_sys::uncancelled(close);
}
