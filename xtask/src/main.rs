//! Maintainers' tools.
//!
//! `cargo run -p xtask -- api --include DIR... --libs DIR...` writes `crates/oomph-vgpu/api` from the headers and
//! libraries of NVIDIA's PyPI packages: each `--include DIR` is one unpacked set of packages (such as a
//! `site-packages/nvidia`), oldest CUDA first.
//! `cargo run -p xtask -- calibrate` compares what `oomph plan` says with the readings of `calibration/*.csv`, prints the
//! errors by family and writes the widths of its intervals.
//! `cargo xtask dist` makes the Python wheel, the tarball, the Debian package and their checksums.
//! `cargo run -p xtask -- frameworks` writes `docs/frameworks.md` from `frameworks.csv` and `static.csv` in `acceptance/readings`.
//! `cargo xtask schemas` writes `schemas/*.json` and `python/oomph/_protocol.py` from `oomph-protocol`.
//! `cargo xtask check` runs the checks that need no test: format, lints, layers, counts, words, links, schemas.
//! `cargo xtask test` runs the short tier of the tests, `cargo xtask test --all` everything, `--ci` most of it.
//! `cargo xtask counts` counts `unsafe`, statics and long functions, and fails where there are more than are allowed.
//! `cargo xtask layers` draws the modules of each crate and fails on a cycle.
//! `cargo xtask links` checks the links between pages, and that the book has every page.
//! `cargo xtask words` finds words of the old voice; `xtask/data/words.toml` has better ones.
//! `cargo run -p xtask -- spread FILE...` holds the intervals of dry runs against replays that did not set them.
//! `cargo run -p xtask -- exports --vgpu FILE --site-packages DIR` says which names a program would miss.

mod api;
mod calibrate;
mod check;
mod counts;
mod dist;
mod elf;
mod exports;
mod frameworks;
mod header;
mod layers;
mod library;
mod links;
mod preprocess;
mod rules;
mod schemas;
mod spread;
#[path = "../../crates/oomph-vgpu/build/table.rs"]
mod table;
mod test_tiers;
#[cfg(test)]
mod tests;
mod tokens;
mod versions;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use test_tiers::Tier;

#[derive(Debug, Parser)]
#[command(about = "Maintainers' tools")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the virtual GPU's tables from headers and libraries.
    Api {
        /// Folders with unpacked packages whose headers to read, oldest CUDA first.
        #[arg(long, required = true, num_args = 1..)]
        include: Vec<PathBuf>,
        /// Folders with shared objects whose exported names to add.
        #[arg(long, num_args = 1..)]
        libs: Vec<PathBuf>,
        /// The folder of the tables; an empty one shows what the rules alone would say.
        #[arg(long)]
        tables: Option<PathBuf>,
        /// Change nothing, and fail if the tables would change.
        #[arg(long)]
        check: bool,
        /// Let the rules decide again which parameters are written, even where the tables say it.
        #[arg(long)]
        rewrite_parameters: bool,
    },
    /// Compare plans with readings, and write the widths of their intervals.
    Calibrate {
        /// Change nothing, and fail if the widths would change.
        #[arg(long)]
        check: bool,
        /// Print every reading too.
        #[arg(long)]
        rows: bool,
        /// Print the errors on published measurements (a CSV file) instead, by family.
        #[arg(long, value_name = "FILE")]
        measured: Option<PathBuf>,
    },
    /// Write the page of what has run on the virtual GPU, from readings.
    Frameworks {
        /// Change nothing, and fail if the page would change.
        #[arg(long)]
        check: bool,
    },
    /// Write the JSON Schemas of documents and the Python module of the protocol.
    Schemas {
        /// Change nothing, and fail if a file would change.
        #[arg(long)]
        check: bool,
    },
    /// Say how often the interval of a dry run holds in replays that did not set it.
    Spread {
        /// Recordings that `oomph dry-run --snapshot FILE` wrote.
        #[arg(required = true)]
        recordings: Vec<PathBuf>,
        /// Let cuDNN take other algorithms than were recorded, as where its own version could not be asked.
        #[arg(long)]
        workspaces: bool,
        /// Write the rows to this file as well.
        #[arg(long, value_name = "FILE")]
        csv: Option<PathBuf>,
    },
    /// Make what is handed out: the Python wheel, a tarball, a Debian package and their checksums.
    Dist {
        /// The platform to build for.
        #[arg(long, value_enum, default_value_t = dist::Platform::X86)]
        platform: dist::Platform,
        /// The folder to write to [default: target/packages].
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
    },
    /// Run the checks that need no test: format, lints, layers, counts, words, links, schemas.
    Check {
        /// Leave out the lints, which compile the workspace.
        #[arg(long)]
        fast: bool,
    },
    /// Run the tests of the workspace and add them up: a short tier that covers every crate and capability, or more.
    Test {
        /// What CI runs: all but the programs that CI has no time for, oomph-fleet and other platforms.
        #[arg(long, conflicts_with = "all")]
        ci: bool,
        /// Everything: all programs of the acceptance tests, the Python package, oomph-fleet with its lints, other platforms.
        #[arg(long)]
        all: bool,
    },
    /// Check the links between pages, and that the book has every page.
    Links,
    /// Count `unsafe`, statics of the virtual GPU and long functions, and fail where there are more than are allowed.
    Counts,
    /// Draw the modules of each crate, and fail on a cycle (xtask/data/layers.toml lists those that are left).
    Layers {
        /// Draw this crate only, with every level.
        #[arg(long = "crate", value_name = "NAME")]
        only: Option<String>,
        /// Draw nothing.
        #[arg(long)]
        quiet: bool,
        /// Take arrows that are gone out of the list.
        #[arg(long)]
        write: bool,
    },
    /// Find words of the old voice (xtask/data/words.toml).
    Words {
        /// Print every use, also those that are left for now.
        #[arg(long)]
        list: bool,
        /// Lower the counts in words-left.toml to what is there.
        #[arg(long)]
        write: bool,
    },
    /// Name what programs import and the virtual GPU does not export.
    Exports {
        /// The built library.
        #[arg(long)]
        vgpu: PathBuf,
        /// Folders of installed Python packages.
        #[arg(long, required = true, num_args = 1..)]
        site_packages: Vec<PathBuf>,
    },
}

fn main() -> ExitCode {
    let tables = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/oomph-vgpu/api");
    let result = match Arguments::parse().command {
        Command::Api { include, libs, tables: other, check, rewrite_parameters } => {
            let api = other.unwrap_or(tables);
            api::run(&api::Request { include, libs, api, check, rewrite_parameters })
        }
        Command::Calibrate { check, rows, measured } => calibrate::run(check, rows, measured.as_deref()),
        Command::Frameworks { check } => frameworks::run(check),
        Command::Schemas { check } => schemas::run(check),
        Command::Spread { recordings, workspaces, csv } => spread::measure(&recordings, workspaces, csv.as_deref()),
        Command::Dist { platform, out } => dist::run(platform, out.as_deref()),
        Command::Check { fast } => check::run(fast),
        Command::Test { ci: true, .. } => test_tiers::run(Tier::Ci),
        Command::Test { all: true, .. } => test_tiers::run(Tier::All),
        Command::Test { .. } => test_tiers::run(Tier::Short),
        Command::Links => links::run(),
        Command::Counts => counts::run(),
        Command::Layers { only, quiet, write } => layers::run(&layers::Request { only, quiet, write }),
        Command::Words { list, write } => words::run(words::Request { list, write }),
        Command::Exports { vgpu, site_packages } => exports::run(&vgpu, &site_packages, &tables),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
