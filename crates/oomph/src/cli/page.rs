//! The options that most commands share to write their answer as an HTML page.

use std::path::PathBuf;

use clap::Args;

/// A command's answer as an HTML page; most commands take these.
#[derive(Debug, Default, Args)]
pub struct PageArgs {
    /// Write the answer to FILE as an HTML page, with charts of the recording
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Leave folders and lines of source out of the page
    #[arg(long, requires = "html")]
    pub private: bool,
}
