//! `steward workflow check`: finds the mistakes of definitions and of test files, for people, editors and CI.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use miette::{GraphicalReportHandler, LabeledSpan, MietteDiagnostic, NamedSource, Report};
use serde_json::json;
use steward_core::definition::{lint::Severity, problem::DefinitionProblem, workflow::Workflow};
use steward_definition_file::{DefinitionError, LocatedProblem, is_test_file, locate, read_file};
use steward_operator::aws_policy::{allows_any_resource, aws_policies};
use steward_scripted_runs::workflow_test::{TestFileError, read_tests};

use super::{check_formats, file_problem::FileProblem, publish};
use crate::client::DeploymentArgs;

/// Options of `steward workflow check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Definition files, and test files such as `order.test.yaml`.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The format of the output.
    #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
    format: CheckFormat,
    /// Also warn of agents that are not deployed or not registered. Without it, nothing is read but the files.
    #[arg(long = "deployment")]
    with_deployment: bool,
    #[command(flatten)]
    deployment: DeploymentArgs,
}

/// The formats of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CheckFormat {
    /// For people.
    Text,
    /// One JSON object.
    Json,
    /// Workflow commands of GitHub Actions, which annotate the lines of a pull request.
    Github,
    /// SARIF 2.1.0, for code scanning and editors.
    Sarif,
    /// The IAM policies that agents need for the `aws` actions of the definitions: a JSON object by agent.
    Policy,
}

/// What was found in one file.
struct CheckedFile {
    file: PathBuf,
    /// What a file without mistakes contains.
    summary: Option<String>,
    /// The text of the file, if it could be read.
    text: Option<String>,
    reports: Vec<FileProblem>,
    workflow: Option<Workflow>,
}

pub(super) async fn run(args: &CheckArgs) -> Result<()> {
    let checked: Vec<_> = args.files.iter().map(|file| check_file(file)).collect();
    let invalid = checked.iter().filter(|file| file.summary.is_none()).count();
    let reports = checked.iter().flat_map(|file| file.reports.clone()).collect::<Vec<_>>();
    match args.format {
        CheckFormat::Text => checked.iter().for_each(print_text),
        CheckFormat::Policy => print_policies(&checked),
        CheckFormat::Json => outln!("{}", check_formats::json(&reports, args.files.len())?),
        CheckFormat::Github => {
            reports.iter().for_each(|report| outln!("{}", check_formats::github(report)));
        }
        CheckFormat::Sarif => outln!("{}", check_formats::sarif(&reports)?),
    }
    if args.with_deployment {
        for workflow in checked.iter().filter_map(|file| file.workflow.as_ref()) {
            publish::warn_of_agents(workflow, &args.deployment).await;
        }
    }
    if invalid > 0 {
        bail!("{invalid} of {} files cannot be published", args.files.len());
    }
    Ok(())
}

fn check_file(file: &Path) -> CheckedFile {
    let mut checked = CheckedFile {
        file: file.to_owned(),
        summary: None,
        text: std::fs::read_to_string(file).ok(),
        reports: Vec::new(),
        workflow: None,
    };
    if is_test_file(file) {
        match read_tests(file) {
            Ok(tests) => checked.summary = Some(format!("tests of {}: ok", tests.workflow.name)),
            Err(TestFileError::Invalid(error)) => checked.add_error(error),
            Err(error @ TestFileError::NoWorkflow(_)) => checked.add_plain(error.to_string()),
        }
        return checked;
    }
    match read_file(file) {
        Ok(workflow) => {
            let (name, version, steps) = (&workflow.name, workflow.version, workflow.steps.len());
            checked.summary = Some(format!("{name} version {version}, {steps} steps: ok"));
            let text = checked.text.clone().unwrap_or_default();
            let findings = workflow.lint().into_iter();
            let (severities, problems): (Vec<_>, Vec<_>) =
                findings.map(|finding| (finding.severity, finding.problem)).unzip();
            let located = severities.into_iter().zip(locate(&text, problems));
            checked.reports.extend(located.map(|(severity, located)| FileProblem {
                file: file.to_owned(),
                severity,
                located,
            }));
            checked.workflow = Some(workflow);
        }
        Err(error) => checked.add_error(error),
    }
    checked
}

impl CheckedFile {
    fn add_error(&mut self, error: DefinitionError) {
        match error {
            // The path differs from the checked file if a test file names an invalid definition.
            DefinitionError::Invalid { path, text, problems } => {
                self.text = Some(text);
                self.reports.extend(problems.into_iter().map(|located| FileProblem {
                    file: path.clone(),
                    severity: Severity::Error,
                    located,
                }));
            }
            error @ (DefinitionError::Unreadable { .. } | DefinitionError::TooLarge { .. }) => {
                self.add_plain(format!("{:#}", anyhow::Error::new(error)));
            }
        }
    }

    /// Adds a problem of the file as a whole.
    fn add_plain(&mut self, message: String) {
        let problem = DefinitionProblem { at: String::new(), message, hint: None };
        let located = LocatedProblem { problem, location: None };
        self.reports.push(FileProblem {
            file: self.file.clone(),
            severity: Severity::Error,
            located,
        });
    }
}

fn print_text(checked: &CheckedFile) {
    if let Some(summary) = &checked.summary {
        outln!("{}: {summary}", checked.file.display());
    }
    print_problems(checked);
}

#[expect(clippy::print_stderr, reason = "a command's output")]
fn print_policies(checked: &[CheckedFile]) {
    checked.iter().for_each(print_problems);
    let policies = aws_policies(checked.iter().filter_map(|file| file.workflow.as_ref()));
    outln!("{:#}", json!(policies));
    if policies.values().any(allows_any_resource) {
        eprintln!(
            "note: `*` stands for resources that the definition does not name: name them, unless the actions have none"
        );
    }
}

#[expect(clippy::print_stderr, reason = "a command's output")]
fn print_problems(checked: &CheckedFile) {
    // https://no-color.org: the variable counts if it is set and not empty.
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_fancy = std::io::stderr().is_terminal() && !no_color;
    let mut printable = None;
    for FileProblem { file, severity, located } in &checked.reports {
        let LocatedProblem { problem, location } = located;
        match (severity, location, &checked.text) {
            (Severity::Warning, ..) => eprintln!("{}: warning: {problem}", file.display()),
            (Severity::Note, ..) => eprintln!("{}: note: {problem}", file.display()),
            (Severity::Error, Some(_), Some(text)) if is_fancy => {
                let text = printable.get_or_insert_with(|| Arc::new(printable_text(text)));
                eprint!("{}", drawn(&file.display().to_string(), text, located.clone()));
            }
            (Severity::Error, Some(location), _) => {
                let (line, column) = (location.line, location.column);
                eprintln!("{}:{line}:{column}: {problem}", file.display());
            }
            // The message of a file as a whole names the file.
            (Severity::Error, None, _)
                if problem.at.is_empty() && located.problem.hint.is_none() =>
            {
                eprintln!("{problem}");
            }
            (Severity::Error, None, _) => eprintln!("{}: {problem}", file.display()),
        }
    }
}

/// Replaces control characters, which a terminal would execute. The byte offsets stay the same.
fn printable_text(text: &str) -> String {
    let chars = text.chars().flat_map(|c| match c.is_control() && c != '\n' && c != '\t' {
        true => std::iter::repeat_n('?', c.len_utf8()),
        false => std::iter::repeat_n(c, 1),
    });
    chars.collect()
}

/// Draws a problem with the lines of the [printable](printable_text) file that it is about.
fn drawn(path: &str, text: &Arc<String>, problem: LocatedProblem) -> String {
    let LocatedProblem { problem, location } = problem;
    let mut drawn = String::new();
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
    let report = Report::new(diagnostic).with_source_code(NamedSource::new(path, Arc::clone(text)));
    // Writing to a `String` does not fail.
    let _ = GraphicalReportHandler::new().render_report(&mut drawn, report.as_ref());
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_drawn_with_its_line_and_hint_and_without_control_characters() {
        let text = "name: \u{fc}bung\nversion: 1\nsteps: {}\nstesp: 1 # \u{fc}\n";
        let Err(DefinitionError::Invalid { problems, .. }) =
            steward_definition_file::parse(Path::new("x.yaml"), text)
        else {
            panic!("the definition is accepted");
        };
        let shown = Arc::new(printable_text(&text.replace("# \u{fc}", "# \u{1b}[")));
        let drawn: String =
            problems.into_iter().map(|problem| drawn("x.yaml", &shown, problem)).collect();
        for part in ["unknown key `stesp`", "did you mean `steps`?", "x.yaml:4:1", "stesp: 1 # ?["]
        {
            assert!(drawn.contains(part), "{drawn}");
        }
        assert!(!drawn.contains("\u{1b}["), "{drawn}");
    }
}
