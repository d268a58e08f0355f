//! What the real oomph prints as JSON is what the published schemas say, by a validator that is not ours.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs oomph with a cache of its own, and compares what it prints with the schema that it names.
fn is_as_published(arguments: &[&str]) {
    let cache = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_oomph"))
        .args(arguments)
        .args(["--format", "json"])
        .env("OOMPH_CACHE", cache.path())
        .output()
        .expect("oomph starts");
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {said}"));
    let name = report["schema"].as_str().expect("a report has a schema").replace('/', "-");
    let file = root().join(format!("schemas/reports/{name}.json"));
    let schema = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let schema: Value = serde_json::from_str(&schema).expect("a schema is JSON");
    // An unknown field would pass a schema that leaves room for later ones; here each field must be declared.
    let schema = oomph_protocol::published::strict(schema);
    let validator = jsonschema::validator_for(&schema).expect("the schema is one");
    let wrong: Vec<String> =
        validator.iter_errors(&report).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(wrong.is_empty(), "{arguments:?} is not {}:\n{}", file.display(), wrong.join("\n"));
}

#[test]
fn reports_are_what_their_schemas_say() {
    is_as_published(&["gpus"]);
    is_as_published(&["gpus", "rtx-4090"]);
    is_as_published(&["doctor"]);
    is_as_published(&["cache", "list"]);
}

#[test]
fn explanations_are_what_their_schema_says() {
    let logs = root().join("crates/oomph/tests/cmd/explain.in");
    let mut tried = 0;
    for log in std::fs::read_dir(logs).expect("the folder of logs") {
        let log = log.expect("an entry").path();
        is_as_published(&["explain", log.to_str().expect("a name in UTF-8")]);
        tried += 1;
    }
    assert!(tried > 5, "{tried} logs were tried");
}
