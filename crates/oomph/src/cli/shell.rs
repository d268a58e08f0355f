//! Shell completions and manual pages, generated from the definition of the command line.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// What `oomph completions` takes.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell to write them for
    #[arg(value_enum)]
    pub shell: Shell,
}

/// What `oomph man` takes.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The folder to write the pages to
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}
