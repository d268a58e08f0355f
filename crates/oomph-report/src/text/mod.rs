//! Renders answers for a terminal.

mod activity;
mod allowed;
mod attach;
mod bar;
mod batches;
mod cache;
mod calibrate;
mod compare;
mod doctor;
mod doubt;
mod dry_run;
mod explain;
mod explain_log;
mod explain_snapshot;
mod fix;
mod followed;
mod gpus;
mod page;
mod peak;
mod plan;
mod review;
mod site;
mod statics;
mod sweep;
mod tune;
mod watch;

use oomph_gpu::Kind;

pub use attach::render_attach;
pub use bar::share as bar_cells;
pub use cache::render_cache;
pub use calibrate::render_calibrate;
pub use compare::{render_check, render_diff};
pub use doctor::render_doctor;
pub use dry_run::render_dry_run;
pub use explain::render_explain;
pub use fix::render_fix;
pub use gpus::{render_gpu, render_gpus};
pub use page::{Style, shortened};
pub use plan::render_plan;
pub use review::{github_annotations, github_summary, junit, render_review, sarif};
pub use sweep::render_sweep;
pub use tune::render_tune;
pub use watch::{
    outlook_words, render_watch, time_words, watch_cost_words, watched_card_words, watched_moment_words,
    watched_reasons, watched_role_words,
};

/// A card in a sentence: by its identifier, or by its size where it was given one.
fn card(gpu: &str, capacity_bytes: Option<u64>) -> String {
    match capacity_bytes {
        Some(bytes) if gpu == crate::CUSTOM => format!("a card of {}", oomph_gpu::size::format(bytes)),
        _ => crate::clean(gpu).into_owned(),
    }
}

/// A word for the kinds that are not ordinary cards.
fn mark(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Consumer | Kind::Professional | Kind::Datacenter => None,
        Kind::Laptop => Some("laptop"),
        Kind::Mig => Some("MIG slice"),
        Kind::Jetson => Some("shares the host's memory"),
    }
}
