//! `oomph mcp` and `--brief`: an agent of the official SDK drives each tool, cancels a call, and gets an error that
//! says what is wrong.

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::again::tried;
use crate::binary;
use crate::run::{TORCH_2_15, Torch, python_with};

/// The official SDK of the Model Context Protocol for Python.
const SDK: Torch = Torch { name: "mcp", requirements: include_str!("../../requirements/mcp.txt") };

/// The most bytes of a short answer.
const BRIEF_BYTES: usize = 2048;

/// All trials.
pub fn trials() -> Vec<Trial> {
    vec![tried("agents::a_client_drives_each_tool", || {
        a_client_drives_each_tool().map_err(|error| Failed::from(format!("{error:#}")))
    })]
}

fn a_client_drives_each_tool() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mark = format!("{}", std::process::id());
    let output = std::process::Command::new(python_with(SDK)?)
        .arg(binary::programs().join("mcp_client.py"))
        .arg(binary::oomph())
        .args(TORCH_2_15.requirements.lines())
        .current_dir(folder.path())
        .env("OOMPH_ACCEPTANCE_MCP", &mark)
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .context("the client cannot be started")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let answers: Value =
        serde_json::from_slice(&output.stdout).with_context(|| format!("the client failed:\n{said}"))?;

    for name in ["dry_run", "fix", "tune", "plan", "explain"] {
        let answer = &answers[name];
        let document = &answer["document"];
        ensure!(answer["error"] == false && document["schema"] == "oomph.brief/1", "{name}: {answer}");
        ensure!(document.to_string().len() <= BRIEF_BYTES, "{name} is long: {document}");
        let schema = &answers["tools"][name]["output"];
        let known = schema["properties"].as_object().with_context(|| format!("{name} has no output schema"))?;
        let given = document.as_object().context("a document is an object")?;
        ensure!(
            given.keys().all(|key| known.contains_key(key)),
            "{name} has a field that its schema has not: {document}"
        );
        let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
        ensure!(required.iter().all(|key| given.contains_key(key.as_str().unwrap_or_default())), "{name}: {document}");
    }
    let document = |name: &str| &answers[name]["document"];
    let dry_run = document("dry_run");
    ensure!(dry_run["verdict"] == "oom" && dry_run["place"]["line"].as_u64().is_some(), "{dry_run}");
    ensure!(dry_run["needs_bytes"].as_u64() > dry_run["limit_bytes"].as_u64(), "{dry_run}");
    let progress = answers["progress"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rises = progress.windows(2).all(|pair| pair[0][0].as_f64() < pair[1][0].as_f64());
    ensure!(!progress.is_empty() && rises, "progress: {progress:?}");
    let fix = document("fix");
    let works = fix["fixes"][0]["patch"].is_string() || fix["fixes"][0]["command"].is_string();
    ensure!(fix["verdict"] == "fixed" && fix["fixes"][0]["verified"] == true && works, "{fix}");
    ensure!(document("tune")["values"]["width"].as_u64().is_some(), "{}", document("tune"));
    ensure!(document("plan")["verdict"] == "no", "{}", document("plan"));
    let place = &document("explain")["place"];
    ensure!(place["file"] == "train.py" && place["line"] == 9, "{}", document("explain"));
    ensure!(document("gpus")["gpus"][0]["id"] == "rtx-4090", "{}", document("gpus"));

    // What the program says of its own failure comes with the answer.
    let text = answers["failed"]["text"].to_string();
    ensure!(document("failed")["verdict"] == "failed" && text.contains("no-such-file.py"), "{}", answers["failed"]);
    let card = &answers["no_such_card"];
    ensure!(card["error"] == true && card["text"].to_string().contains("rtx-9999"), "{card}");
    for (name, field) in [("wrong_type", "command"), ("missing", "files"), ("unknown", "in_place")] {
        let error = &answers[name];
        ensure!(error["code"] == -32602 && error["data"]["field"] == field, "{name}: {error}");
        ensure!(error["message"].as_str().is_some_and(|text| text.contains(field)), "{name}: {error}");
    }

    let cancelled = &answers["cancelled"];
    let count = |name: &str| cancelled[name].as_array().map_or(0, Vec::len);
    ensure!(count("during") >= count("before") + 2, "the program did not run: {cancelled}");
    ensure!(count("left") == count("before"), "processes are left: {cancelled}");
    ensure!(cancelled["seconds"].as_f64().is_some_and(|seconds| seconds < 20.0), "{cancelled}");
    ensure!(document("after")["gpus"][0]["id"] == "l4", "the server did not go on: {}", answers["after"]);
    ensure!(answers["left_at_the_end"] == Value::Array(vec![]), "{}", answers["left_at_the_end"]);
    Ok(())
}
