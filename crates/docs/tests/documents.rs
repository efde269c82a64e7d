//! The documents of this repository keep to the rules of CONTRIBUTING.md.

use std::path::Path;

use rnic_docs::{Repository, check};

/// No document has a broken link, a file that is gone, a sentence that nobody can read, or whatever
/// else the rules forbid.
#[test]
fn documents_keep_to_the_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let repository = Repository::open(&root).expect("the repository");
    assert!(repository.documents().count() > 15);
    let complaints = check(&repository);
    let text: Vec<String> = complaints.iter().map(ToString::to_string).collect();
    assert!(complaints.is_empty(), "\n{}", text.join("\n"));
}
