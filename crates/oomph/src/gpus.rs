//! `oomph gpus`: the catalogue.

use std::process::ExitCode;

use anyhow::{Context, Result};
use oomph_gpu::Catalogue;
use oomph_report::{GpusReport, GpusSchema, render_gpu, render_gpus};

use crate::cli::{Format, GpusArgs};
use crate::output;
use crate::status;

/// Lists the catalogue, or shows what is known of one card.
///
/// # Errors
/// When stdout cannot be written.
pub fn run(args: &GpusArgs) -> Result<ExitCode> {
    let catalogue = Catalogue::builtin();
    let gpus = args.name.map_or_else(|| catalogue.iter().collect(), |gpu| vec![gpu]);
    let report = GpusReport { schema: GpusSchema, gpus };
    let text = match (args.format, args.name) {
        (Format::Json, _) => {
            let text = serde_json::to_string_pretty(&report).context("cannot write the catalogue as JSON")?;
            format!("{text}\n")
        }
        (Format::Text, Some(gpu)) => render_gpu(gpu, &catalogue.variants(gpu).collect::<Vec<_>>(), output::style()),
        (Format::Text, None) => render_gpus(&report, output::style()),
    };
    output::data(&text)?;
    Ok(ExitCode::from(status::DONE))
}
