//! `cargo run -p rnic-docs [DOCUMENT...]`: prints what is wrong with the documents of the current folder's repository.

use std::path::Path;
use std::process::ExitCode;

use rnic_docs::{Repository, check};

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let repository = match Repository::open(Path::new(".")) {
        Ok(repository) => repository,
        Err(error) => {
            eprintln!("rnic-docs: {error}");
            return ExitCode::from(2);
        }
    };
    let mut complaints = check(&repository);
    complaints.retain(|c| wanted.is_empty() || wanted.contains(&c.document));
    for complaint in &complaints {
        println!("{complaint}");
    }
    println!("{} complaints", complaints.len());
    ExitCode::from(u8::from(!complaints.is_empty()))
}
