//! `steward workflow import`: translates a state machine in Amazon States Language into definitions.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use steward_asl_import::{Definition, Import, Level, Options, Status, import};

/// Bytes that are read of a file at most: one more than a state machine may have.
const READ_BYTES_MAX: u64 = steward_asl_import::BYTES_MAX as u64 + 1;

/// Options of `steward workflow import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The state machine in Amazon States Language, as JSON or YAML.
    file: PathBuf,
    /// The name of the workflow. The default is the name of the file.
    #[arg(long)]
    name: Option<String>,
    /// Write the definition to this file, and the definitions of child tasks next to it. Without it, they are printed, and
    /// the report goes to the standard error.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Overwrite existing files.
    #[arg(long)]
    force: bool,
    /// The value of a substitution of the deployment: `${NAME}` in the state machine becomes VALUE. Can be repeated.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = substitution)]
    substitutions: Vec<(String, String)>,
    /// The region in the URLs of AWS services.
    #[arg(long, default_value = "REGION")]
    region: String,
    /// Print definitions, agents and report as one JSON document.
    #[arg(long)]
    json: bool,
}

fn substitution(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) fn run(args: ImportArgs) -> Result<()> {
    let file = args.file.display().to_string();
    let name = args.name.unwrap_or_else(|| default_name(&args.file));
    let substitutions: BTreeMap<_, _> = args.substitutions.into_iter().collect();
    let options = Options { name, region: args.region, substitutions };
    let text = read(&args.file)?;
    let import = import(&text, &options).with_context(|| file.clone())?;
    if let Some(out) = &args.out {
        write(out, &import.definitions, args.force)?;
    }
    let status = import.report.status();
    if args.json {
        let document = json!({
            "status": status,
            "definitions": import.definitions,
            "agents": import.agents,
            "report": import.report.findings,
        });
        outln!("{}", serde_json::to_string_pretty(&document)?);
    } else {
        print(&file, &import, args.out.is_some());
    }
    match status {
        Status::Complete => Ok(()),
        Status::NeedsDecisions => Err(Unfinished::Decisions(summary(&import)).into()),
        Status::Incomplete => Err(Unfinished::Untranslatable(summary(&import)).into()),
    }
}

/// An import that a person has to finish.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfinished {
    /// Only decisions are open.
    #[error("{0}")]
    Decisions(String),
    /// A part cannot be translated.
    #[error("{0}")]
    Untranslatable(String),
}

impl Unfinished {
    /// The exit code of the command.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Decisions(_) => 3,
            Self::Untranslatable(_) => 4,
        }
    }
}

fn summary(import: &Import) -> String {
    let (decisions, cannot) =
        (import.report.count(Level::Decision), import.report.count(Level::Cannot));
    format!(
        "the import is not finished: {}, and {} that cannot be translated; `steward workflow check` refuses the definition at \
         each of them",
        counted(decisions, "decision"),
        counted(cannot, "part")
    )
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn default_name(file: &Path) -> String {
    let name =
        file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    name.split('.').next().unwrap_or_default().to_owned()
}

fn read(file: &Path) -> Result<String> {
    use std::io::Read as _;
    let context = || file.display().to_string();
    let mut text = String::new();
    let opened = std::fs::File::open(file).with_context(context)?;
    opened.take(READ_BYTES_MAX).read_to_string(&mut text).with_context(context)?;
    Ok(text)
}

/// Writes the definition to `out`, and the definitions of child tasks next to it. Writes nothing if one of the files exists.
fn write(out: &Path, definitions: &[Definition], force: bool) -> Result<()> {
    if out.is_dir() {
        bail!(
            "{} is a folder; --out names a file, such as {}",
            out.display(),
            out.join("order.yaml").display()
        );
    }
    let path = |(index, definition): (usize, &Definition)| match index {
        0 => out.to_owned(),
        _ => out.with_file_name(format!("{}.yaml", definition.name)),
    };
    let paths: Vec<_> = definitions.iter().enumerate().map(path).collect();
    if let Some(path) = paths.iter().find(|path| !force && path.exists()) {
        bail!("{} exists; use --force to overwrite it", path.display());
    }
    for (path, definition) in paths.iter().zip(definitions) {
        std::fs::write(path, &definition.yaml).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "a command's output")]
fn print(file: &str, import: &Import, is_written: bool) {
    if !is_written {
        for definition in &import.definitions {
            if import.definitions.len() > 1 {
                outln!("# {}.yaml", definition.name);
            }
            outln!("{}", definition.yaml.trim_end());
        }
    }
    for finding in &import.report.findings {
        eprintln!("{file}:{finding}");
    }
    for agent in &import.agents {
        eprintln!("agent `{}`: kind {}, {}", agent.name, agent.kind(), agent.targets());
    }
}
