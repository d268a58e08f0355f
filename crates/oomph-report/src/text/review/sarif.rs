//! Writes a review as SARIF 2.1.0, which code scanning reads.

use serde_json::{Value, json};

use super::message;
use crate::review::Review;

/// What each limit means, by its name.
const RULES: [(&str, &str); 6] = [
    ("fits", "The program runs on the card without running out of memory"),
    ("max-growth", "The program does not need much more memory than before"),
    ("max-peak", "The reserved memory stays below a limit"),
    ("max-allocated", "The allocated memory stays below a limit"),
    ("no-leak", "Memory does not grow with every step"),
    ("no-oom", "No allocation fails"),
];

/// A result for each limit that was not kept. `path` gives a file as the repository names it.
#[must_use]
pub fn sarif(review: &Review, path: impl Fn(&str) -> String) -> Value {
    let rules: Vec<Value> =
        RULES.iter().map(|(id, text)| json!({"id": id, "shortDescription": {"text": text}})).collect();
    let results: Vec<Value> = review
        .runs
        .iter()
        .filter_map(|run| {
            let first = run.violations.first()?;
            let mut result = json!({"ruleId": first.limit, "level": "error", "message": {"text": message(run)}});
            if let Some(place) = &run.place {
                result["locations"] = json!([{"physicalLocation": {
                    "artifactLocation": {"uri": path(&place.file)},
                    "region": {"startLine": place.line},
                }}]);
            }
            Some(result)
        })
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "oomph", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
            "results": results,
        }],
    })
}
