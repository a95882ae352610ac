//! `steward workflow graph`: a definition as a picture.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use steward_definition_file::read_file;
use steward_operator::graph;

/// What to draw, and how.
#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// The definition file.
    file: PathBuf,
    /// How.
    #[arg(long, value_enum, default_value_t = Format::Mermaid)]
    format: Format,
    /// Where to write it; to the standard output unless said.
    #[arg(long, short)]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Text that GitHub, GitLab and many editors draw.
    Mermaid,
    /// A picture of its own.
    Svg,
}

/// Draws a definition that can run.
pub(super) fn run(args: &GraphArgs) -> Result<()> {
    let workflow = read_file(&args.file)?;
    let text = match args.format {
        Format::Mermaid => graph::mermaid(&workflow),
        Format::Svg => graph::svg(&workflow),
    };
    match &args.output {
        Some(path) => std::fs::write(path, text).with_context(|| path.display().to_string())?,
        None => say!("{}", text.trim_end()),
    }
    Ok(())
}
