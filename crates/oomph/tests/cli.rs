//! What the command line says, word for word: the transcripts in `tests/cmd`.
//!
//! `TRYCMD=overwrite cargo test -p oomph --test cli` writes them again.

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

/// The same at the width of an ordinary terminal, away from any hub.
#[test]
fn transcripts_at_80_columns() {
    trycmd::TestCases::new()
        .case("tests/cmd80/*.trycmd")
        .env("LC_ALL", "C.UTF-8")
        .env("NO_COLOR", "1")
        .env("COLUMNS", "80")
        .env("HF_HUB_OFFLINE", "1")
        .env("HF_HUB_CACHE", "no-such-folder")
        .run();
}

/// Not a transcript, because a rehearsal that runs at the same time has a card to watch.
#[test]
fn watching_a_machine_without_a_gpu_says_what_to_do() -> std::io::Result<()> {
    use std::process::Command;
    for options in [&["--once"][..], &["--timeout", "1s"], &["--until", "free>1GiB", "--timeout", "1s"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_oomph")).arg("watch").args(options).output()?;
        if output.status.code() != Some(2) {
            // There is a card after all.
            continue;
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = stderr.lines().collect();
        assert_eq!(lines.len(), 2, "{stderr}");
        assert_eq!(lines[0], "error: this machine has no NVIDIA GPU to watch, and no rehearsal is running");
        assert!(lines[1].starts_with("hint: rehearse a run on a virtual one"), "{stderr}");
        assert!(output.stdout.is_empty());
    }
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

#[test]
fn an_explanation_fits_one_screen() -> std::io::Result<()> {
    use std::process::Command;
    for entry in std::fs::read_dir("tests/cmd/explain.in")? {
        let log = entry?.path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_oomph"));
        let output = command.arg("explain").arg(&log).env("COLUMNS", "80").env("LC_ALL", "C.UTF-8").output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!text.is_empty() && text.lines().count() <= 40, "{}:\n{text}", log.display());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{}:\n{text}", log.display());
    }
    Ok(())
}

#[test]
fn a_recording_that_nobody_left_is_reported() -> std::io::Result<()> {
    use std::process::Command;
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_oomph"));
    command.args(["dry-run", "--quiet", "--gpu", "rtx-3060", "--snapshot", "none.pickle", "--", "true"]);
    let output = command.current_dir(folder.path()).env("OOMPH_CACHE_DIR", folder.path()).output()?;
    assert!(String::from_utf8_lossy(&output.stdout).contains("no recording was written"), "{output:?}");
    assert!(!folder.path().join("none.pickle").exists());
    Ok(())
}

#[test]
fn a_short_answer_is_one_short_line() -> std::io::Result<()> {
    use std::process::Command;
    let mut answers = Vec::new();
    for entry in std::fs::read_dir("tests/cmd/explain.in")? {
        answers.push(vec!["explain".into(), entry?.path().display().to_string()]);
    }
    for task in ["inference", "qlora", "full", "serve"] {
        answers.push(["plan", "llama-3-8b", "--task", task, "--gpu", "rtx-3060"].map(str::to_owned).to_vec());
    }
    for words in answers {
        let output = Command::new(env!("CARGO_BIN_EXE_oomph")).args(&words).arg("--brief").output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.len() <= 2048 && text.lines().count() == 1, "{words:?}: {output:?}");
        assert!(text.starts_with(r#"{"schema":"oomph.brief/1","of":"oomph."#), "{words:?}: {text}");
    }
    Ok(())
}

#[test]
fn the_doctor_says_what_to_do() -> std::io::Result<()> {
    use std::process::Command;
    let folder = tempfile::tempdir()?;
    let doctor = |format: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oomph"));
        command.args(["doctor", "--python", "/no/such/python", "--format", format]).env("COLUMNS", "80");
        command.env("OOMPH_CACHE_DIR", folder.path()).output()
    };
    let output = doctor("json")?;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    for part in ["oomph.doctor/1", r#""works": false"#, r#""id": "python""#, r#""state": "broken""#, r#""id": "files""#]
    {
        assert!(text.contains(part), "no {part}: {text}");
    }
    let output = doctor("text")?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("oomph 0.1.0: one thing does not work\n"), "{text}");
    assert!(text.contains("python, broken: no program /no/such/python\n    why: "), "{text}");
    assert!(
        text.contains("\n    try: install Python") && text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    Ok(())
}

#[test]
fn the_cache_is_shown_and_cleaned() -> std::io::Result<()> {
    use std::process::Command;
    let folder = tempfile::tempdir()?;
    let oomph = |words: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_oomph")).args(words).env("OOMPH_CACHE_DIR", folder.path()).output()
    };
    let run = oomph(&["dry-run", "--quiet", "--vram", "8GiB", "--", "true"])?;
    assert!(run.status.success(), "{run:?}");
    let listed = oomph(&["cache", "list"])?;
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(text.contains("just now") && text.contains("virtual GPU"), "{text}");
    // It was used a moment ago.
    let kept = oomph(&["cache", "clean"])?;
    assert!(String::from_utf8_lossy(&kept.stdout).starts_with("nothing to remove"), "{kept:?}");
    let cleaned = oomph(&["cache", "clean", "--all"])?;
    assert!(String::from_utf8_lossy(&cleaned.stdout).starts_with("removed "), "{cleaned:?}");
    assert!(std::fs::read_dir(folder.path().join("runtime"))?.next().is_none());
    Ok(())
}
