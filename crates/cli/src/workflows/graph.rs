//! `steward workflow graph`: draws a definition.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use steward_definition_file::read_file;
use steward_operator::graph;

/// Options of `steward workflow graph`.
#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// The definition file.
    file: PathBuf,
    /// The format.
    #[arg(long, value_enum, default_value_t = Format::Mermaid)]
    format: Format,
    /// The file to write; standard output by default.
    #[arg(long, short)]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// A Mermaid flowchart, which GitHub, GitLab and many editors render.
    Mermaid,
    /// An SVG image.
    Svg,
}

/// Draws a valid definition.
pub(super) fn run(args: &GraphArgs) -> Result<()> {
    let workflow = read_file(&args.file)?;
    let text = match args.format {
        Format::Mermaid => graph::mermaid(&workflow),
        Format::Svg => graph::svg(&workflow),
    };
    match &args.output {
        Some(path) => std::fs::write(path, text).with_context(|| path.display().to_string())?,
        None => outln!("{}", text.trim_end()),
    }
    Ok(())
}
