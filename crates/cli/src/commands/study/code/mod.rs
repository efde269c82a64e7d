//! The lines of code that set a parameter, out of files that are compiled.

#[cfg(test)]
#[allow(dead_code, reason = "it is read, and has to compile; nobody calls it")]
mod verbs;

use serde::Serialize;

const C: &str = include_str!("verbs.c");
const RUST: &str = include_str!("verbs.rs");

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lines {
    pub c: String,
    pub rust: String,
}

/// Those of a question.
pub fn lines(id: &str) -> Lines {
    Lines {
        c: section(C, id),
        rust: section(RUST, id),
    }
}

/// What is between `// study: ID` and `// end`, without what all its lines are indented by.
fn section(file: &str, id: &str) -> String {
    let start = format!("// study: {id}");
    let lines = file.lines().skip_while(|line| line.trim() != start).skip(1);
    let lines: Vec<&str> = lines.take_while(|line| line.trim() != "// end").collect();
    let blank = |line: &&str| !line.trim().is_empty();
    let indented = |line: &str| line.len() - line.trim_start().len();
    let least = lines.iter().copied().filter(blank).map(indented).min();
    let cut = |line: &&str| {
        line.get(least.unwrap_or(0)..)
            .unwrap_or_default()
            .replace('\t', "    ")
    };
    lines.iter().map(cut).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::questions;
    use super::*;

    /// A learner copies these lines: those of each question are there, in both languages.
    #[test]
    fn each_question_has_lines() {
        for question in questions::all() {
            let Lines { c, rust } = lines(question.id);
            for text in [&c, &rust] {
                assert!(!text.trim().is_empty(), "{}", question.id);
                assert!(!text.contains("study:") && !text.contains('\t'), "{text}");
                assert!(text.lines().all(|line| line.len() <= 80), "{text}");
            }
        }
        assert_eq!(
            section("a\n\t// study: x\n\tb;\n\t\tc;\n\t// end\nd", "x"),
            "b;\n    c;"
        );
    }

    /// The lines of C are C, by the headers of libibverbs. (Those of Rust are part of this test
    /// program.)
    #[test]
    fn the_lines_of_c_compile() {
        let name = "the_lines_of_c_compile";
        if !std::path::Path::new("/usr/include/infiniband/verbs.h").exists() {
            return rnic_skip::skipped(name, "libibverbs-dev is not installed");
        }
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/commands/study/code/verbs.c"
        );
        let output = Command::new("cc")
            .args([
                "-std=gnu11",
                "-fsyntax-only",
                "-Wall",
                "-Wextra",
                "-Werror",
                file,
            ])
            .output();
        let Ok(output) = output else {
            return rnic_skip::skipped(name, "cc is not installed");
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}
