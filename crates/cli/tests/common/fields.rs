//! The names of fields in documents for machines, and those that docs/json.md has.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

/// All names of all objects in a document.
pub fn of(document: &Value) -> BTreeSet<String> {
    match document {
        Value::Object(fields) => {
            let inner = fields.values().flat_map(of);
            fields.keys().cloned().chain(inner).collect()
        }
        Value::Array(list) => list.iter().flat_map(of).collect(),
        _ => BTreeSet::new(),
    }
}

/// The names in the first columns of a section's tables.
pub fn documented(section: &str) -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let text = std::fs::read_to_string(file).expect("docs/json.md");
    let heading = format!("\n## {section}\n");
    let (_, rest) = text.split_once(&heading).expect("the section");
    let rows = rest.split("\n## ").next().unwrap_or_default().lines();
    let cells = rows.filter_map(|row| row.strip_prefix("| `")?.split(" | ").next());
    // Of what is between backquotes every second is outside.
    let names = cells.flat_map(|cell| cell.split('`').step_by(2));
    names.map(str::to_owned).collect()
}
