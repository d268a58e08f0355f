//! `oomph cache`: lists the cache, and removes what is not in use.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use oomph_launch::{CacheDir, Cached, CachedKind};
use oomph_report::{CacheEntry, CacheKind, CacheReport, CacheSchema, clean_json, render_cache};

use crate::cli::{CacheArgs, CacheCommand, Format};
use crate::output;
use crate::status;

/// Shows or cleans the cache.
///
/// # Errors
/// When the cache cannot be used.
pub fn run(args: &CacheArgs) -> Result<ExitCode> {
    let cache = CacheDir::locate()?;
    let (format, removed) = match &args.command {
        CacheCommand::List { format } => (*format, None),
        CacheCommand::Clean(clean) => {
            let unused_for = if clean.all { Duration::ZERO } else { clean.older_than };
            (clean.format, Some(cache.clean(unused_for).iter().map(entry).collect()))
        }
    };
    let report = CacheReport {
        schema: CacheSchema,
        folder: cache.path().display().to_string(),
        entries: cache.contents().iter().map(entry).collect(),
        removed,
    };
    output::data(&match format {
        Format::Text => render_cache(&report, output::style()),
        Format::Json => {
            let document = serde_json::to_string_pretty(&report).context("cannot write the cache as JSON")?;
            clean_json(&document).into_owned() + "\n"
        }
    })?;
    Ok(ExitCode::from(status::DONE))
}

fn entry(cached: &Cached) -> CacheEntry {
    CacheEntry {
        kind: match cached.kind {
            CachedKind::Environment => CacheKind::Environment,
            CachedKind::VirtualGpu => CacheKind::VirtualGpu,
            CachedKind::CompiledKernels => CacheKind::CompiledKernels,
        },
        path: cached.path.display().to_string(),
        bytes: cached.bytes,
        unused_seconds: cached.last_used.and_then(|time| time.elapsed().ok()).map(|age| age.as_secs()),
        in_use: cached.in_use,
        whole: cached.whole,
        requirements: cached.requirements.clone(),
        packages: cached.packages,
        python: cached.python.clone(),
    }
}
