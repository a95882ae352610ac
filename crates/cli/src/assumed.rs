//! What is assumed of a workflow's world by the commands that run its tasks on a virtual clock.

use std::{io::IsTerminal, path::PathBuf, str::FromStr, time::Duration};

use anyhow::{Context, Result};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use steward_definition_file::read_file;
use steward_forecast::cost::{self, BATCH_MAX, Json, Report, Said, Settings, Span};

/// The world in which nothing goes wrong. STEP is a step's name, WORKFLOW.STEP for one of another
/// workflow, or `*` for all.
#[derive(Debug, Args)]
pub(crate) struct Assumed {
    /// The definition.
    file: PathBuf,
    /// Definitions of the workflows that its steps run; one that is not given is taken as a call.
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// What chance begins with: the same seed gives the same report.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// What is submitted: a file, or JSON. Made up if absent.
    #[arg(long, value_name = "FILE|JSON")]
    input: Option<Input>,
    /// What a step returns; what each of its items does if it has items. Made up if absent.
    #[arg(long, value_name = "STEP=JSON")]
    output: Vec<Said<Json>>,
    /// How long a step's calls take on average; 100ms unless said.
    #[arg(long, value_name = "STEP=DURATION")]
    slow: Vec<Said<Span>>,
    /// How long the answer to a step with a callback takes on average; 1m, or a tenth of what it may
    /// take, unless said.
    #[arg(long, value_name = "STEP=DURATION")]
    answer: Vec<Said<Span>>,
    /// How many messages share a request and an invocation: ten under load, one if tasks are rare.
    #[arg(long, default_value_t = BATCH_MAX)]
    pub(crate) batch: u32,
    /// How long an agent's call may take before it is cut off, as the agent is deployed.
    #[arg(long, default_value = "100s", value_parser = humantime::parse_duration)]
    call_timeout: Duration,
}

/// JSON, or the file that it is in.
#[derive(Debug, Clone)]
pub(crate) struct Input(pub(crate) Value);

impl FromStr for Input {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let inline = text.trim_start().starts_with(['{', '[', '"']);
        let json = match serde_json::from_str(text) {
            Ok(value) => return Ok(Self(value)),
            Err(error) if inline => return Err(error).context("not JSON"),
            Err(_) => std::fs::read_to_string(text).context("neither JSON nor a file")?,
        };
        Ok(Self(serde_json::from_str(&json).context("the file is not JSON")?))
    }
}

impl Assumed {
    /// As a forecast of so many tasks takes it.
    pub(crate) fn settings(self, runs: u32) -> Result<Settings> {
        let with = self.with.iter().map(|file| read_file(file)).collect::<Result<_, _>>()?;
        Ok(Settings {
            with,
            runs,
            seed: self.seed,
            batch: self.batch,
            call_timeout: self.call_timeout,
            input: self.input.map(|input| input.0),
            output: self.output,
            slow: self.slow,
            answer: self.answer,
            ..Settings::new(read_file(&self.file)?)
        })
    }
}

/// Runs the tasks, and shows how far that is.
pub(crate) async fn forecast(settings: Settings) -> Result<Report> {
    let progress = progress_bar(settings.runs);
    let report = {
        let progress = progress.clone();
        // Each run has a runtime of its own, which cannot be started within this one.
        tokio::task::spawn_blocking(move || cost::forecast(settings, &|| progress.inc(1))).await?
    };
    progress.finish_and_clear();
    Ok(report?)
}

fn progress_bar(runs: u32) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} tasks, {per_sec}, {eta} left");
    ProgressBar::new(runs.into()).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_json_or_a_file() {
        let read = |text: &str| text.parse::<Input>().map(|input| input.0);
        assert_eq!(read(r#"{"a":1}"#).unwrap(), serde_json::json!({ "a": 1 }));
        assert_eq!(read("{").unwrap_err().to_string(), "not JSON");
        assert_eq!(read("no/such/file").unwrap_err().to_string(), "neither JSON nor a file");
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        assert_eq!(read(&path).unwrap_err().to_string(), "the file is not JSON");
        std::fs::write(&path, "[1]").unwrap();
        assert_eq!(read(&path).unwrap(), serde_json::json!([1]));
    }
}
