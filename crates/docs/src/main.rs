//! `cargo run -p rnic-docs [DOCUMENT...]` prints what is wrong with the documents of the current
//! folder's repository, or with those that are named. `cargo run -p rnic-docs -- --wrap
//! DOCUMENT...` wraps their lines.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use rnic_docs::wrap::wrap;
use rnic_docs::{Repository, check};

fn main() -> ExitCode {
    rnic_sys::signal::end_on_broken_pipe();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match words.split_first() {
        Some((first, documents)) if first == "--wrap" => wrap_all(documents).map(|()| true),
        _ => complain(&words),
    };
    match result {
        Ok(is_good) => ExitCode::from(u8::from(!is_good)),
        Err(error) => {
            eprintln!("rnic-docs: {error}");
            ExitCode::from(2)
        }
    }
}

/// Prints what is wrong, and returns whether nothing is.
fn complain(wanted: &[String]) -> io::Result<bool> {
    let repository = Repository::open(Path::new("."))?;
    let mut complaints = check(&repository);
    complaints.retain(|c| wanted.is_empty() || wanted.contains(&c.document));
    for complaint in &complaints {
        println!("{complaint}");
    }
    println!("{} complaints", complaints.len());
    Ok(complaints.is_empty())
}

fn wrap_all(documents: &[String]) -> io::Result<()> {
    for document in documents {
        let text = fs::read_to_string(document)?;
        let wrapped = wrap(&text);
        if wrapped != text {
            fs::write(document, wrapped)?;
        }
    }
    Ok(())
}
