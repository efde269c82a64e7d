//! Many runs in one test.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs every case; all that fail are in the message, not only the first.
///
/// # Panics
/// When a case did.
pub fn each<T>(cases: &[T], name: impl Fn(&T) -> &str, run: impl Fn(&T)) {
    let mut failures = Vec::new();
    for case in cases {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(case))) {
            let message = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            failures.push(format!("{}: {}", name(case), message.unwrap_or_default()));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} failed:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}
