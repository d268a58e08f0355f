//! What the command line says, word for word: the transcripts in `tests/cmd`.
//!
//! `TRYCMD=overwrite cargo test -p oomph --test cli` writes them anew.

// Elsewhere than on Linux a dry run ends before it looks at its program.
#![cfg(target_os = "linux")]

#[test]
fn transcripts() -> std::io::Result<()> {
    let cache = tempfile::tempdir()?;
    trycmd::TestCases::new()
        .case("tests/cmd/*.trycmd")
        .env("OOMPH_CACHE_DIR", cache.path().to_string_lossy())
        .env("LC_ALL", "C.UTF-8")
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100")
        .run();
    Ok(())
}

#[test]
fn a_reader_that_goes_away_is_no_error() -> std::io::Result<()> {
    use std::process::{Command, Stdio};
    let mut child =
        Command::new(env!("CARGO_BIN_EXE_oomph")).arg("gpus").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    drop(child.stdout.take());
    let output = child.wait_with_output()?;
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    Ok(())
}
