//! Runs every check that needs no test: format, lints, layers, counts, words, links and schemas.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::{counts, layers, links, schemas, words};

/// The program that is a workspace of its own.
const FLEET: &str = "crates/oomph-fleet/Cargo.toml";

/// Runs them all, the fast ones first, and says at the end which failed.
///
/// # Errors
/// When one fails.
pub fn run(fast: bool) -> Result<()> {
    type Check<'a> = (&'a str, Box<dyn Fn() -> Result<()>>);
    let mut checks: Vec<Check<'_>> = vec![
        ("layers", Box::new(|| layers::run(&layers::Request { quiet: true, ..layers::Request::default() }))),
        ("counts", Box::new(counts::run)),
        ("words", Box::new(|| words::run(words::Request { list: false, write: false }))),
        ("links", Box::new(links::run)),
        ("schemas", Box::new(|| schemas::run(true))),
        ("format", Box::new(|| cargo(&["fmt", "--check"]))),
        ("format of oomph-fleet", Box::new(|| cargo(&["fmt", "--check", "--manifest-path", FLEET]))),
    ];
    if !fast {
        checks.push(("lints", Box::new(|| cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))));
    }
    let mut failed = Vec::new();
    for (name, check) in checks {
        let begun = Instant::now();
        let result = check();
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        println!("{name}: {verdict} ({:.1} s)", begun.elapsed().as_secs_f64());
        if let Err(error) = result {
            eprintln!("{error:#}");
            failed.push(name);
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Runs cargo in the repository.
fn cargo(arguments: &[&str]) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(arguments)
        .current_dir(root)
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("cargo {} ended with {status}", arguments.join(" "));
    }
    Ok(())
}
