//! The result types of oomph's commands, which are the JSON contract, and how they look in a terminal.
//!
//! A name that a program gives cannot steer the reader's terminal:
//!
//! ```
//! assert_eq!(oomph_report::clean("model\u{1b}[2J.py"), r"model\u{1b}[2J.py");
//! ```
//!
//! Design constraints:
//! - One document per command, named and versioned by its `schema` field. Within a version, fields keep their names,
//!   their meaning and their order; new fields may be added, and a reader must ignore those that it does not know.
//! - Every size is in bytes and says what it is: *allocated* (live tensors), *reserved* (what the framework's allocator
//!   took from the card) or *process* (everything the process took, which is what `nvidia-smi` shows).
//! - A figure that is not known is `null`, never 0.
//! - Text fits one screen, says the verdict first, and never says anything by colour alone. Strings that come from the
//!   program (file names, messages) are neutralised on their way to a terminal; in JSON they are as they were.
#![forbid(unsafe_code)]

pub mod activity;
mod attach;
mod batches;
mod brief;
mod cache;
mod calibrate;
mod clean;
mod compare;
mod device;
mod doctor;
mod doubt;
mod dry_run;
mod explain;
mod fix;
mod followed;
mod gpus;
mod oom;
mod owner_names;
mod plan;
#[cfg(feature = "schema")]
pub mod published;
pub mod review;
mod site;
mod sweep;
mod sweep_picture;
mod text;
mod tune;
mod watch;
mod worst;
mod writes;

pub use attach::{AttachReport, AttachSchema, AttachedDevice, AttachedProcess, Recorded, WayIn};
pub use batches::{BatchPeak, BatchRange, Batches};
pub use brief::{BRIEF_BYTES, Brief, BriefFix, BriefPlace, BriefSchema, InBrief};
pub use cache::{CacheEntry, CacheKind, CacheReport, CacheSchema};
pub use calibrate::{CalibrateReport, CalibrateSchema, CardCorrection, CardReadings, ProgramReading};
pub use clean::{clean, clean_json};
pub use compare::{CheckReport, CheckSchema, DiffReport, DiffSchema};
pub use device::{
    Allowed, CUSTOM, CapacityKnown, DeviceReport, ModelledTerm, Peak, Pool, PoolScale, RanOn, SmallestCapacity,
    UNBOUNDED, Whose,
};
pub use doctor::{Check, CheckState, DoctorReport, DoctorSchema};
pub use doubt::{End, Fault, GIVE_IT_WORK, HostShortage, MissingCard, UnknownSize, Unsure, Waiting};
pub use dry_run::{CardThatHolds, CompiledProgram, DryRunReport, DryRunSchema, NextStep};
pub use explain::{ExplainKind, ExplainReport, ExplainSchema};
pub use fix::{
    Apply, Attempt, Baseline, Compared, Comparison, Dropped, FixReport, FixRow, FixSchema, FixVerdict, Floor, Foretold,
    KERNELS_UNKNOWN, ResultChange, TimeRatio,
};
pub use followed::{FollowedLoop, Growth, Holder, PhasePeak, Unreached};
pub use gpus::{GpusReport, GpusSchema};
pub use oom::{Instead, Oom};
pub use oomph_protocol::{LoopKind, Moment, Phase, Stopped, Verdict};
pub use plan::{
    Fits, PlanReport, PlanSchema, PlannedCard, PlannedDevice, PlannedLimits, PlannedOwner, PlannedRemedy, PlannedTable,
    PlannedTerm, Verified,
};
pub use site::Site;
pub use sweep::{Largest, Pending, SweepAxis, SweepCell, SweepReport, SweepSchema};
pub use sweep_picture::{picture_axis, sweep_picture};
pub use text::{
    Style, bar_cells, github_annotations, github_summary, junit, outlook_words, render_attach, render_cache,
    render_calibrate, render_check, render_diff, render_doctor, render_dry_run, render_explain, render_fix, render_gpu,
    render_gpus, render_plan, render_review, render_sweep, render_tune, render_watch, sarif, shortened, time_words,
    watch_cost_words, watched_card_words, watched_moment_words, watched_reasons, watched_role_words,
};
pub use tune::{TriedValue, TuneReport, TuneRow, TuneSchema, TuneVerdict};
pub use watch::{
    MpsRole, Trend, WatchCost, WatchReport, WatchSchema, WatchedFramework, WatchedGpu, WatchedOutlook, WatchedProcess,
};
pub use worst::WorstCard;
pub use writes::{WriteFloor, Writes, WrittenFile};
