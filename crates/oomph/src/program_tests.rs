//! Tests of how a program's options are interpreted.

use clap::Parser;
use oomph_gpu::nvml::InstalledMemory;

use super::*;
use crate::cli::{Cli, Command};
use crate::syntax::refused;

fn parsed(words: &[&str]) -> Result<ProgramArgs, clap::Error> {
    let words = ["oomph", "dry-run"].iter().chain(words);
    match Cli::try_parse_from(words)?.command {
        Command::DryRun(args) => Ok(args.program),
        other => panic!("not a dry run: {other:?}"),
    }
}

fn typed(words: &[&str]) -> ProgramArgs {
    parsed(words).expect("the words are a command line")
}

fn planned(words: &[&str]) -> Result<Program> {
    Program::on(typed(words), || Ok(vec![]))
}

fn labels(plan: &Program) -> Vec<&str> {
    plan.cards.iter().map(|card| card.label.as_str()).collect()
}

#[test]
fn the_program_begins_at_the_first_word_that_is_no_option() {
    let with_dashes = typed(&["--gpu", "4090", "--", "python", "train.py", "--gpu", "0"]);
    assert_eq!(with_dashes.command, ["python", "train.py", "--gpu", "0"]);
    let without = typed(&["--gpu", "4090", "python", "train.py", "--gpu", "0", "--", "x"]);
    assert_eq!(without.command, ["python", "train.py", "--gpu", "0", "--", "x"]);
    assert!(Cli::try_parse_from(["oomph", "dry-run", "--gpuu", "4090", "--", "python"]).is_err());
    assert!(Cli::try_parse_from(["oomph", "dry-run", "--gpu", "4090"]).is_err());
}

#[test]
fn cards_are_named_counted_and_listed() {
    let plan = planned(&["--gpu", "RTX 4090:2,l4", "--gpu", "3060", "--", "x"]).expect("these cards are known");
    assert_eq!(labels(&plan), ["rtx-4090", "rtx-4090", "l4", "rtx-3060"]);
    assert!(plan.cards.iter().all(|card| !card.unbounded && card.capacity_bytes().is_some()));
    for many in ["l4:17", "l4:9999999", "l4:8,t4:9"] {
        assert!(planned(&["--gpu", many, "--", "x"]).is_err(), "{many:?}");
    }
}

#[test]
fn an_unknown_card_is_answered_with_its_neighbours() {
    let error = parsed(&["--gpu", "rtx-3061", "--", "x"]).expect_err("there is no such card");
    let hinted = refused(&error).expect("the error has a hint");
    assert!(format!("{hinted:?}").contains("rtx-3060"), "{hinted:?}");
}

#[test]
fn vram_takes_the_place_of_the_card_s_own() {
    let plan = planned(&["--gpu", "4090", "--vram", "8GiB", "--", "x"]).expect("a plan");
    assert_eq!(plan.cards[0].capacity_bytes(), Some(8 << 30));
    assert_eq!(plan.cards[0].description(0).capacity_bytes, 8 << 30);
    // What has another size is not called by the card's name.
    assert_eq!(labels(&plan), ["custom"]);
    let plan = planned(&["--vram", "512MiB", "--", "x"]).expect("a plan");
    assert_eq!((labels(&plan), plan.cards[0].capacity_bytes()), (vec!["custom"], Some(512 << 20)));
    for wrong in ["0", "", "8 apples", "1e99GiB", "9999TiB"] {
        assert!(parsed(&["--vram", wrong, "--", "x"]).is_err(), "{wrong:?}");
    }
}

#[test]
fn without_a_name_the_installed_cards_are_taken_and_else_there_is_no_limit() {
    let plan = planned(&["--", "x"]).expect("a plan");
    assert_eq!(labels(&plan), [oomph_report::UNBOUNDED]);
    assert_eq!(plan.cards[0].capacity_bytes(), None);
    assert!(plan.cards[0].description(0).is_unbounded());

    let found = |name: &str| InstalledGpu {
        index: 0,
        name: name.into(),
        uuid: None,
        compute_capability: None,
        memory: Ok(InstalledMemory { total_bytes: 24564 << 20, used_bytes: 0, free_bytes: 0 }),
    };
    let installed = || Ok(vec![found("NVIDIA GeForce RTX 4090"), found("A card from the future")]);
    let plan = Program::on(typed(&["--", "x"]), installed).expect("a plan");
    assert_eq!(labels(&plan), ["rtx-4090"]);
    // A driver that is broken is no reason not to run on a virtual card.
    let plan = Program::on(typed(&["--", "x"]), || anyhow::bail!("no driver")).expect("a plan");
    assert_eq!(labels(&plan), [oomph_report::UNBOUNDED]);
}

#[test]
fn the_end_of_a_run() {
    let stop = |words: &[&str]| planned(&[words, &["--", "x"]].concat()).map(|plan| plan.stop);
    assert_eq!(stop(&[]).ok(), Some(Stop { mode: StopMode::PeakStable, steps: 3, budget_seconds: None }));
    assert_eq!(stop(&["--steps", "7"]).ok(), Some(Stop { mode: StopMode::Steps, steps: 7, budget_seconds: None }));
    assert_eq!(stop(&["--until-exit"]).ok().map(|stop| stop.mode), Some(StopMode::Exit));
    let budget = stop(&["--budget", "1h"]).ok().and_then(|stop| stop.budget_seconds);
    assert_eq!(budget, Some(3600));
    assert!(parsed(&["--steps", "1", "--until-exit", "--", "x"]).is_err());
}

#[test]
fn a_command_line_can_be_pasted_into_a_shell() {
    let plan = planned(&[
        "--gpu",
        "4090:2",
        "--vram",
        "8GiB",
        "--with",
        "torch>=2",
        "--steps",
        "4",
        "--timeout",
        "10m",
        "--values",
        "off",
        "--",
        "python",
        "it's here.py",
        "--name=a b",
        "",
    ])
    .expect("a plan");
    assert_eq!(plan.as_many_of("h100"), ["--gpu", "h100:2"]);
    assert_eq!(plan.card_options, ["--gpu", "4090:2", "--vram", "8GiB"]);
    assert_eq!(plan.with_cards(3), ["--gpu", "rtx-4090:3", "--vram", "8GiB"]);
    assert_eq!(
        plan.dry_run(&plan.as_many_of("h100")),
        "oomph dry-run --gpu h100:2 --with 'torch>=2' --steps 4 --timeout 600s --values off -- python \
         'it'\\''s here.py' '--name=a b' ''"
    );
}
