//! `steward workflow`: checks, publishes, lists, compares, draws and forecasts workflow definitions.

use std::{io::IsTerminal, path::PathBuf};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use miette::{GraphicalReportHandler, LabeledSpan, MietteDiagnostic, NamedSource, Report};
use steward_core::{definition::workflow::json_schema, model::names::WorkflowName};
use steward_definition_file::{DefinitionError, LocatedProblem, read_file};

use crate::client::DeploymentArgs;

mod diff;
pub(crate) mod forecast;
mod graph;
pub(crate) mod import;
mod publish;
mod stored;

/// Subcommands of `steward workflow`.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// Check definition files, and print all errors and warnings.
    Check(Box<CheckArgs>),
    /// Print the JSON Schema of definitions, for use in editors.
    Schema,
    /// Check definition files and publish them. A published version never changes.
    Publish {
        /// Definition files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        deployment: DeploymentArgs,
    },
    /// Forecast outcomes, durations and cost: runs tasks on a virtual clock, with failure rates that you give.
    Simulate(Box<forecast::ForecastArgs>),
    /// Unpublish a version, so that no new task uses it. Refused unless all its tasks are Processed or Undone.
    /// Scans the whole tasks table.
    Unpublish {
        /// The name of the workflow.
        name: WorkflowName,
        /// The version to unpublish.
        version: u32,
        #[command(flatten)]
        deployment: DeploymentArgs,
    },
    /// List workflows with their versions and triggers.
    List(stored::ListArgs),
    /// Print a stored definition.
    Show(stored::ShowArgs),
    /// Compare two definitions, and flag changes that are risky to publish. The exit code is 0 if no change is
    /// flagged.
    Diff(diff::DiffArgs),
    /// Draw a definition as a Mermaid flowchart or as SVG.
    Graph(graph::GraphArgs),
    /// Translate a state machine in Amazon States Language into a definition, with a report. The exit code is 0 if the
    /// import is complete, 3 if a person has to decide something, and 4 if a part cannot be translated.
    Import(import::ImportArgs),
}

/// Options of `steward workflow check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Definition files.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Also warn of agents that are not deployed or not registered. Without it, nothing is read but the files.
    #[arg(long = "deployment")]
    with_deployment: bool,
    #[command(flatten)]
    deployment: DeploymentArgs,
}

pub(crate) async fn run(command: WorkflowCommand) -> Result<()> {
    match command {
        WorkflowCommand::Check(args) => check(&args).await?,
        WorkflowCommand::Schema => outln!("{}", serde_json::to_string_pretty(&json_schema())?),
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
        WorkflowCommand::Import(args) => import::run(args)?,
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "a command's output")]
async fn check(args: &CheckArgs) -> Result<()> {
    let files = &args.files;
    // https://no-color.org: the variable counts if it is set and not empty.
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_fancy = std::io::stderr().is_terminal() && !no_color;
    let mut invalid = 0;
    for file in files {
        match read_file(file) {
            Ok(workflow) => {
                let (name, version, steps) =
                    (&workflow.name, workflow.version, workflow.steps.len());
                outln!("{}: {name} version {version}, {steps} steps: ok", file.display());
                for warning in workflow.lint() {
                    eprintln!("{}: {warning}", file.display());
                }
                if args.with_deployment {
                    publish::warn_of_agents(&workflow, &args.deployment).await;
                }
            }
            Err(error) => {
                invalid += 1;
                match error {
                    DefinitionError::Invalid { path, text, problems } if is_fancy => {
                        eprint!("{}", drawn(&path.display().to_string(), &text, problems));
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
    if invalid > 0 {
        bail!("{invalid} of {} files cannot be published", files.len());
    }
    Ok(())
}

/// Draws each problem with the lines of the file that it is about.
fn drawn(path: &str, text: &str, problems: Vec<LocatedProblem>) -> String {
    // Replaces control characters, which a terminal would execute. The byte offsets stay the same.
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
    for LocatedProblem { problem, location } in problems {
        let mut diagnostic = MietteDiagnostic::new(match problem.at.as_str() {
            "" => problem.message,
            at => format!("{at}: {}", problem.message),
        });
        if let Some(hint) = problem.hint {
            diagnostic = diagnostic.with_help(hint);
        }
        if let Some(location) = location {
            let end = location.bytes.end.min(text.len());
            let span = location.bytes.start.min(end)..end;
            diagnostic = diagnostic.with_label(LabeledSpan::underline(span));
        }
        let report = Report::new(diagnostic).with_source_code(source.clone());
        // Writing to a `String` does not fail.
        let _ = handler.render_report(&mut drawn, report.as_ref());
    }
    drawn
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_problem_is_drawn_with_its_line_and_hint_and_without_control_characters() {
        let text = "name: \u{fc}bung\nversion: 1\nsteps: {}\nstesp: 1 # \u{fc}\n";
        let Err(DefinitionError::Invalid { problems, .. }) =
            steward_definition_file::parse(Path::new("x.yaml"), text)
        else {
            panic!("the definition is accepted");
        };
        let drawn = drawn("x.yaml", &text.replace("# \u{fc}", "# \u{1b}["), problems);
        for part in ["unknown key `stesp`", "did you mean `steps`?", "x.yaml:4:1", "stesp: 1 # ?["]
        {
            assert!(drawn.contains(part), "{drawn}");
        }
        assert!(!drawn.contains("\u{1b}["), "{drawn}");
    }
}
