//! Two tiers: `cargo test` runs one program or two for each capability; `OOMPH_TESTS=all` runs every one
//! (`cargo xtask test --all`). A test that is named runs in either.

use std::collections::BTreeSet;

use libtest_mimic::Trial;

/// Set to `all`, it asks for every test.
const VARIABLE: &str = "OOMPH_TESTS";

/// The short tier, by capability.
const SHORT: &[&str] = &[
    // A dry run: its verdict, its figures, its signals.
    "streams-pass-through",
    "failure-passes-through",
    "ctrl-c-leaves-nothing",
    "example-fits-at-4",
    "example-dies-at-16",
    "unknown-card",
    "missing-program",
    "python-without-torch",
    "torch-2.15::mlp",
    "torch-2.15::lstm",
    // What it may not harm.
    "example-writes-nothing",
    "harm::nothing-is-sent",
    "harm::forked-children-have-no-card",
    // The allocator's model against PyTorch's own.
    "allocator-native-torch-2.15",
    // The explanation of messages and recordings.
    "explain::cause::does_not_fit",
    "explain::cause::leak_losses",
    "explain::messages::torch-2.15",
    "explain::owners::mlp",
    "explain::what-if::mlp",
    "device-log::is-explained",
    // Remedies: found, written, run.
    "fix::what_fits_is_left_alone",
    "fix::leaking_losses",
    "patches::running-loss",
    "leaks::two_holders",
    "tune::nothing_fits",
    "needs::recovered",
    "server::mlp.py",
    "doubt::forecast",
    // More than one card.
    "distributed::cards-of-one-process",
    // Estimates against dry runs.
    "plan::a_folder_with_adapters_is_verified",
    // Running programs.
    "guarded::another-failure-is-not-retried",
    "watching::once-equals-the-books",
    "attaching::a-training-program-is-seen-as-it-is",
    "library::a-watched-program",
    // Many runs, and other programs that ask.
    "sweeping::cells-equal-dry-runs",
    "agents::a_client_drives_each_tool",
    "review::the_hook_is_a_command",
    // The documentation, where it starts no program or a single one.
    "docs::the-table-is-in-use",
    "docs::plan",
    "docs::explain",
    "docs::view",
    "docs::install",
    "docs::servers",
    "docs::how-to/add-a-model",
];

/// Marks what is not in the tier that was asked for as ignored, so that the totals count it.
pub fn of_this_run(trials: Vec<Trial>) -> Vec<Trial> {
    if std::env::var_os(VARIABLE).is_some_and(|tier| tier == "all") {
        return trials;
    }
    let mut missing: BTreeSet<&str> = SHORT.iter().copied().collect();
    let trials = trials.into_iter().map(|trial| {
        if missing.remove(trial.name()) {
            return trial;
        }
        trial.with_ignored_flag(true)
    });
    let trials = trials.collect();
    assert!(missing.is_empty(), "the short tier names tests that there are not: {missing:?}");
    trials
}
