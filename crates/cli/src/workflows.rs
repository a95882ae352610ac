//! `steward workflow`: check, publish, compare and draw definitions.

use std::{io::IsTerminal, path::PathBuf};

use anyhow::{Result, bail};
use clap::Subcommand;
use miette::{GraphicalReportHandler, LabeledSpan, MietteDiagnostic, NamedSource, Report};
use steward_core::{definition::workflow::json_schema, model::names::WorkflowName};
use steward_definition_file::{DefinitionError, Found, read_file};

use crate::client::Deployment;

mod diff;
pub(crate) mod forecast;
mod graph;
mod publish;
mod stored;

/// What to do with definitions.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// Say everything that is wrong with definition files.
    Check {
        /// The files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Print the JSON Schema of definitions, for editors.
    Schema,
    /// Check definition files and publish them. A published version never changes.
    Publish {
        /// The files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        deployment: Deployment,
    },
    /// Run tasks on a virtual clock, with the odds that you give: how they end, and what they cost.
    Simulate(Box<forecast::ForecastArgs>),
    /// End the publication of a version: no new task takes it. Refused while tasks of it are not at
    /// rest. Reads the whole table of tasks.
    Unpublish {
        /// The workflow.
        name: WorkflowName,
        /// The version.
        version: u32,
        #[command(flatten)]
        deployment: Deployment,
    },
    /// List the workflows that are published: their versions and triggers.
    List(stored::ListArgs),
    /// Show a definition as it is stored.
    Show(stored::ShowArgs),
    /// Say what changed between two definitions, and what of it needs a look before publishing. The
    /// exit code is 0 if nothing does.
    Diff(diff::DiffArgs),
    /// Draw a definition, as a Mermaid flowchart or as SVG.
    Graph(graph::GraphArgs),
}

pub(crate) async fn run(command: WorkflowCommand) -> Result<()> {
    match command {
        WorkflowCommand::Check { files } => check(&files)?,
        WorkflowCommand::Schema => say!("{}", serde_json::to_string_pretty(&json_schema())?),
        WorkflowCommand::Publish { files, deployment } => {
            publish::publish(&files, &deployment).await?;
        }
        WorkflowCommand::Simulate(args) => forecast::run(*args).await?,
        WorkflowCommand::Unpublish { name, version, deployment } => {
            publish::unpublish(&name, version, &deployment).await?;
        }
        WorkflowCommand::List(args) => stored::list(args).await?,
        WorkflowCommand::Show(args) => stored::show(args).await?,
        WorkflowCommand::Diff(args) => diff::run(args).await?,
        WorkflowCommand::Graph(args) => graph::run(&args)?,
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "a command's output")]
fn check(files: &[PathBuf]) -> Result<()> {
    // As https://no-color.org has it: said, and not empty.
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|said| !said.is_empty());
    let is_fancy = std::io::stderr().is_terminal() && !no_color;
    let mut bad = 0;
    for file in files {
        match read_file(file) {
            Ok(workflow) => {
                let (name, version, steps) =
                    (&workflow.name, workflow.version, workflow.steps.len());
                say!("{}: {name} version {version}, {steps} steps: ok", file.display());
                for warning in workflow.lint() {
                    eprintln!("{}: {warning}", file.display());
                }
            }
            Err(error) => {
                bad += 1;
                match error {
                    DefinitionError::Invalid { path, text, found } if is_fancy => {
                        eprint!("{}", drawn(&path.display().to_string(), &text, found));
                    }
                    error @ (DefinitionError::Unreadable { .. }
                    | DefinitionError::TooLarge { .. }
                    | DefinitionError::Invalid { .. }) => {
                        eprintln!("{:#}", anyhow::Error::new(error));
                    }
                }
            }
        }
    }
    if bad > 0 {
        bail!("{bad} of {} files cannot be published", files.len());
    }
    Ok(())
}

/// Each mistake with its lines of the file.
fn drawn(path: &str, text: &str, found: Vec<Found>) -> String {
    // As long as it was, and nothing in it that a terminal would obey.
    let printable: String = text
        .chars()
        .flat_map(|c| match c.is_control() && c != '\n' && c != '\t' {
            true => std::iter::repeat_n('?', c.len_utf8()),
            false => std::iter::repeat_n(c, 1),
        })
        .collect();
    let source = NamedSource::new(path, printable);
    let handler = GraphicalReportHandler::new();
    let mut drawn = String::new();
    for Found { problem, place } in found {
        let mut diagnostic = MietteDiagnostic::new(match problem.at.as_str() {
            "" => problem.message,
            at => format!("{at}: {}", problem.message),
        });
        if let Some(hint) = problem.hint {
            diagnostic = diagnostic.with_help(hint);
        }
        if let Some(place) = place {
            let end = place.bytes.end.min(text.len());
            let span = place.bytes.start.min(end)..end;
            diagnostic = diagnostic.with_label(LabeledSpan::underline(span));
        }
        let report = Report::new(diagnostic).with_source_code(source.clone());
        // Writing to a text does not fail.
        let _ = handler.render_report(&mut drawn, report.as_ref());
    }
    drawn
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_mistake_is_drawn_in_its_lines_with_its_hint_and_obeyed_by_no_terminal() {
        let text = "name: \u{fc}bung\nversion: 1\nsteps: {}\nstesp: 1 # \u{fc}\n";
        let Err(DefinitionError::Invalid { found, .. }) =
            steward_definition_file::parse(Path::new("x.yaml"), text)
        else {
            panic!("it is read");
        };
        let drawn = drawn("x.yaml", &text.replace("# \u{fc}", "# \u{1b}["), found);
        for part in ["unknown key `stesp`", "did you mean `steps`?", "x.yaml:4:1", "stesp: 1 # ?["]
        {
            assert!(drawn.contains(part), "{drawn}");
        }
        assert!(!drawn.contains("\u{1b}["), "{drawn}");
    }
}
