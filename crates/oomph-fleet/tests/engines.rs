//! The same dataset in other engines, and in an object store. The other side runs in a Python environment of its own, which
//! uv makes; where that cannot be made, the tests say so and pass.

#[path = "../../oomph-explain/tests/recording/mod.rs"]
mod recording;

mod made;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use made::{BAD, collect, fleet, number, oomph_fleet, rows};
use oomph_fleet::query::USUAL;
use oomph_fleet::schema::TABLES;
use serde_json::Value;

/// The script that speaks for the other engines.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/engines.py");
/// What it needs.
const PACKAGES: [&str; 4] = ["duckdb==2.0.1", "pyarrow==26.0.1", "pytz==2026.6", "moto[server]==5.2.5"];

/// A Python with the packages.
fn python() -> Option<&'static Path> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    PYTHON
        .get_or_init(|| {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("engines");
            let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
            let uv = |words: &[&str]| Command::new("uv").args(words).output().is_ok_and(|out| out.status.success());
            let folder = folder.to_str()?;
            let made = python.is_file() || uv(&["venv", "--quiet", "--python", ">=3.11", folder]);
            let install = [&["pip", "install", "--quiet", "--python", python.to_str()?][..], &PACKAGES].concat();
            let ready = made && uv(&install);
            if !ready {
                eprintln!("skipped: uv cannot make a Python environment with {PACKAGES:?}");
            }
            ready.then_some(python)
        })
        .as_deref()
}

fn answer_of(python: &Path, words: &[&str]) -> Value {
    let out = Command::new(python).arg(SCRIPT).args(words).output().unwrap();
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn duckdb_and_pyarrow_read_what_datafusion_reads() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fleet(&folder.path().join("files"), 200);
    let dataset = &path("dataset");
    collect(&[&path("files")], dataset, &["--what-if"]);

    let theirs = answer_of(python, &["duckdb", dataset, concat!(env!("CARGO_MANIFEST_DIR"), "/queries")]);
    assert_eq!(theirs.as_object().unwrap().len(), USUAL.len());
    for usual in USUAL {
        let ours: Vec<Value> = rows(usual.name, dataset).into_iter().map(Value::from).collect();
        assert!(!ours.is_empty(), "{} has nothing to compare", usual.name);
        assert_eq!(Value::from(ours), theirs[usual.name], "{}", usual.name);
    }

    let theirs = answer_of(python, &["pyarrow", dataset]);
    for table in TABLES.iter().filter(|table| table.name != "events") {
        let of = &theirs[table.name];
        assert_eq!(of["rows"], number(&format!("SELECT count(*) FROM {}", table.name), dataset), "{}", table.name);
        let columns = of["columns"].as_array().unwrap();
        assert!(columns.iter().any(|name| name == "day"), "{}", table.name);
        assert!(table.columns.iter().all(|column| columns.iter().any(|name| name == column.name)), "{}", table.name);
    }
    assert_eq!(theirs["failures"]["requested"], number("SELECT sum(requested_bytes) FROM failures", dataset));
}

/// A server that speaks S3, while it lives.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_object_store_is_a_source_and_a_place_for_a_dataset() {
    let Some(python) = python() else { return };
    if !cfg!(feature = "s3") {
        eprintln!("skipped: this build has no object stores");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fleet(&folder.path().join("files"), 60);
    collect(&[&path("files")], &path("local"), &[]);

    let mut server = Command::new(python)
        .args([SCRIPT, "s3", &path("files")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut port = String::new();
    let out = server.stdout.take().unwrap();
    let _server = Server(server);
    BufReader::new(out).read_line(&mut port).unwrap();
    let endpoint = format!("http://127.0.0.1:{}", port.trim());
    let with_keys = |words: &[&str]| {
        let mut command = oomph_fleet(words);
        command.env("AWS_ENDPOINT_URL", &endpoint).env("AWS_REGION", "us-east-1");
        command.env("AWS_ACCESS_KEY_ID", "a").env("AWS_SECRET_ACCESS_KEY", "b");
        command
    };
    let answer = |words: &[&str]| -> Value {
        let out = with_keys(words).output().unwrap();
        assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    };
    let collecting =
        ["-q", "collect", "s3://jobs/november", "--into", "s3://fleet/oom", "--format", "json", "--batch-files", "15"];

    // Killed on the way, then to its end, then once more.
    let mut child = with_keys(&collecting).stdout(Stdio::null()).spawn().unwrap();
    thread::sleep(Duration::from_millis(700));
    child.kill().unwrap();
    child.wait().unwrap();
    let summary = answer(&collecting);
    assert!(summary["bad"].as_u64().unwrap() <= BAD, "{summary}");
    let again = answer(&collecting);
    assert_eq!(
        (again["files"].as_u64(), again["bad"].as_u64(), again["rows"].as_u64()),
        (Some(0), Some(0), Some(0)),
        "{again}"
    );

    // The day of a file without a time stamp is that of its upload, so that rows are compared without it.
    let sql = "SELECT id, site_line, requested_bytes, cause FROM failures ORDER BY id";
    let there = answer(&["query", sql, "s3://fleet/oom", "--format", "json"]);
    let here = rows(sql, &path("local"));
    assert_eq!(there["rows"].as_array().unwrap().len(), here.len());
    for (there, here) in there["rows"].as_array().unwrap().iter().zip(&here) {
        assert_eq!(
            [&there["id"], &there["site_line"], &there["requested_bytes"], &there["cause"]],
            here[..].iter().collect::<Vec<_>>()[..]
        );
    }
    let bad = answer(&["query", "SELECT count(*) AS n FROM bad_files", "s3://fleet/oom", "--format", "json"]);
    assert_eq!(bad["rows"][0]["n"], BAD);

    let out = with_keys(&["collect", "s3://no-such-bucket/x", "--into", &path("other")]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).starts_with("error: cannot collect s3://no-such-bucket/x"), "{out:?}");
    assert!(fs::metadata(path("other")).is_ok());
}
