//! Three tiers: `cargo test` runs one program or two for each capability; `OOMPH_TESTS=ci` leaves out what CI has no
//! time for (`cargo xtask test --ci`); `OOMPH_TESTS=all` runs every one (`cargo xtask test --all`). A test that is named runs in
//! each.

use std::collections::BTreeSet;

use libtest_mimic::Trial;

/// Set to `all`, it asks for every test; set to `ci`, for those that are not [`LEFT_OUT_OF_CI`].
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

/// What CI has no time for, which is to end within 45 minutes on two cores. Most of it shows with another program, model or
/// version of PyTorch what a test of CI shows already; the rest is slow. Run `cargo xtask test --all` after a change to what it
/// shows.
const LEFT_OUT_OF_CI: &[&str] = &[
    // An environment of its own, which takes minutes and gigabytes to make.
    "torch-2.6::mlp",
    "torch-2.6::convnet",
    "torch-2.6::trainer-gpt2-batch-4",
    "torch-2.6::trainer-gpt2-batch-16",
    "torch-2.6::amp-gradscaler",
    "torch-2.6::lstm",
    "torch-2.6::linear-algebra",
    "torch-2.6::undrawn-weights",
    "allocator-native-torch-2.6",
    "allocator-expandable-torch-2.6",
    "allocator-roundup-torch-2.6",
    "allocator-max-split-torch-2.6",
    "allocator-collection-torch-2.6",
    "explain::messages::torch-2.6",
    "numba::a-list-on-the-card-is-counted-to-its-end",
    "numba::a-list-on-the-card-has-fixes",
    // What another program shows.
    "checkpoint-survives",
    "vram-sets-the-capacity",
    "longest-batch-is-measured",
    "torch-2.15::convnet",
    "torch-2.15::trainer-gpt2-batch-4",
    "torch-2.15::llama-7b",
    "torch-2.15::resnet50-amp",
    "torch-2.15::resnet50-channels-last",
    "torch-2.15::convnext-fp32",
    "torch-2.15::convnext-amp",
    "torch-2.15::convnext-channels-last",
    "torch-2.15::sd15-1024",
    "torch-2.15::sdxl-512",
    "torch-2.15::sdxl-1024",
    "torch-2.15::flux",
    "torch-2.15::gru-ctc-native",
    "torch-2.15::compile-reduce-overhead",
    "torch-2.15::vqgan-clip-380",
    "torch-2.15::vqgan-clip-512",
    "torch-2.15::vqgan-clip-900",
    "allocator-roundup-torch-2.15",
    "allocator-max-split-torch-2.15",
    "allocator-collection-torch-2.15",
    "explain::cause::single_allocation",
    "explain::cause::leak_outputs",
    "explain::cause::kept_results",
    "explain::cause::kept_by_exception",
    "explain::cause::earlier_model",
    "explain::cause::lazy_optimizer",
    "explain::cause::other_stream",
    "explain::cause::other_pool",
    "explain::cause::recorded_too_late",
    "tune::a_name_without_a_place",
    "server::lstm.py",
    "server::trainer_gpt2.py",
    "server::dataloader_workers.py",
    "fix::price_of_checkpointing",
    "fix::convnet",
    "fix::in_place",
    "fix::evaluation_results",
    "fix::vae_slicing_before_offload",
    "fix::arguments_in_a_file",
    "calls::heat-naive",
    "calls::heat-lean",
    "calls::relax-careless",
    "calls::relax-careful",
    "explain::what-if::convnet",
    "explain::what-if::lstm",
    "explain::what-if::amp",
    "explain::what-if::resnet50",
    "explain::what-if::trainer",
    "explain::what-if::qlora",
    "explain::what-if::generate",
    "explain::what-if::growing-lengths",
    "explain::what-if::leak",
    "explain::what-if::bert-evaluation",
    "doubt::checks",
    "needs::growing-lengths",
    "explain::owners::convnet",
    "explain::owners::amp",
    "explain::owners::lstm",
    "explain::owners::resnet",
    "explain::owners::gpt2",
    "explain::owners::qlora",
    "explain::owners::unet",
    "explain::owners::generate",
    "device-log::ends-with-a-refusal",
    "distributed::tensor-parallel-rests-on-a-share",
    "distributed::zero-rests-on-a-share",
    "distributed::pipeline-stages-differ",
    "distributed::some-ranks-are-as-all-fsdp2",
    "distributed::some-ranks-are-as-all-ddp",
    "distributed::some-ranks-are-as-all-pipeline",
    "distributed::messages-of-absent-ranks",
    "distributed::llama-70b-on-64-cards",
    "plan::full_training_is_verified",
    "serving::llama-cpp-half-on-the-card",
    "serving::llama-cpp-library-of-a-binary",
    "answers::cifar-eval-graph",
    "answers::hook-features",
    "answers::tbptt-no-detach",
    "answers::feature-cache",
    "answers::unfreeze-epoch3",
    "answers::progressive-resize",
    "answers::replay-buffer",
    "answers::retrieval-similarity",
    "answers::curriculum-length",
    "patches::validation-graph",
    "patches::hook-features",
    "patches::teacher-graph",
    "patches::image-text-pairs",
    "patches::self-history",
    "patches::own-trainer",
    "patches::validation-behind-training",
    "patches::settings-file",
    "leaks::class_history",
    "leaks::closure_log",
    "leaks::memory_bank",
    "guarded::trainer_longest_batch",
    "guarded::accelerate_script",
    "guarded::a-larger-batch-is-announced-before-it-comes",
    "watching::a-leak-is-dated",
    "sweeping::a-killed-sweep-goes-on",
    "sweeping::tasks-give-the-same-table",
    "docs::attach",
    "docs::calibrate",
    "docs::dry-run",
    "docs::fix",
    "docs::guarded-runs",
    "docs::sweeps",
    "docs::watch",
];

/// Marks what is not in the tier that was asked for as ignored, so that the totals count it.
pub fn of_this_run(trials: Vec<Trial>) -> Vec<Trial> {
    let tier = std::env::var(VARIABLE).unwrap_or_default();
    // What is named here is in this tier, or is all that is not in it.
    let (named, run_what_is_named) = match tier.as_str() {
        "all" => return trials,
        "ci" => (LEFT_OUT_OF_CI, false),
        _ => (SHORT, true),
    };
    let mut missing: BTreeSet<&str> = named.iter().copied().collect();
    let trials = trials.into_iter().map(|trial| {
        let runs = missing.remove(trial.name()) == run_what_is_named;
        if runs { trial } else { trial.with_ignored_flag(true) }
    });
    let trials = trials.collect();
    assert!(missing.is_empty(), "a tier names tests that there are not: {missing:?}");
    trials
}
