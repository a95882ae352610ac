//! Assumptions about a workflow's services, for the commands that run its tasks on a virtual clock.

use std::{io::IsTerminal, path::PathBuf, str::FromStr, time::Duration};

use anyhow::{Context, Result};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use steward_definition_file::read_file;
use steward_forecast::cost::{
    self, BATCH_MAX, DurationValue, ForecastReport, ForecastSettings, Json, StepOption,
};

/// Assumptions about the tasks of a workflow and what its services return. STEP is a step's name, WORKFLOW.STEP for a step of another
/// workflow, or `*` for all steps.
#[derive(Debug, Args)]
pub(crate) struct AssumptionArgs {
    /// The workflow definition.
    file: PathBuf,
    /// The definition of a child workflow; a child workflow without one counts as a call. Repeatable.
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// The task's input, as a file or JSON. Generated if absent.
    #[arg(long, value_name = "FILE|JSON")]
    input: Option<JsonOrFile>,
    /// The output of a step, or of each item of a step with `for_each`. Generated if absent.
    #[arg(long, value_name = "STEP=JSON")]
    output: Vec<StepOption<Json>>,
    /// How many rounds a step with `repeat` takes.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How many messages share an SQS request and an invocation: ten under load, one if tasks are rare.
    #[arg(long, default_value_t = BATCH_MAX)]
    pub(crate) batch: u32,
    /// The call timeout with which the agents are deployed.
    #[arg(long, default_value = "100s", value_parser = humantime::parse_duration)]
    call_timeout: Duration,
}

/// Assumptions about what differs from task to task.
#[derive(Debug, Args)]
pub(crate) struct RandomArgs {
    /// The random seed: the same seed gives the same report.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The average duration of the calls of a step at its service. 100ms by default.
    #[arg(long, value_name = "STEP=DURATION")]
    slow: Vec<StepOption<DurationValue>>,
    /// The average time until a step's callback arrives. By default 1m, or a tenth of `callback.within` if that is
    /// shorter.
    #[arg(long, value_name = "STEP=DURATION")]
    answer: Vec<StepOption<DurationValue>>,
}

impl RandomArgs {
    /// The settings with these times.
    pub(crate) fn with(self, settings: ForecastSettings) -> ForecastSettings {
        let Self { seed, slow, answer } = self;
        ForecastSettings { seed, slow, answer, ..settings }
    }
}

/// JSON, given directly or as the name of a file.
#[derive(Debug, Clone)]
pub(crate) struct JsonOrFile(pub(crate) Value);

impl FromStr for JsonOrFile {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let inline = text.trim_start().starts_with(['{', '[', '"']);
        let json = match serde_json::from_str(text) {
            Ok(value) => return Ok(Self(value)),
            Err(error) if inline => return Err(error).context("invalid JSON"),
            Err(_) => std::fs::read_to_string(text).context("neither JSON nor a readable file")?,
        };
        Ok(Self(serde_json::from_str(&json).context("the file does not contain JSON")?))
    }
}

impl AssumptionArgs {
    /// The settings of a forecast that runs this many tasks.
    pub(crate) fn settings(self, runs: u32) -> Result<ForecastSettings> {
        let read = |file| anyhow::Ok(read_file(file)?.with_sample_env().with_rounds(self.rounds));
        let with = self.with.iter().map(|file| read(file));
        let with = with.collect::<Result<_>>()?;
        Ok(ForecastSettings {
            with,
            runs,
            batch: self.batch,
            call_timeout: self.call_timeout,
            input: self.input.map(|input| input.0),
            output: self.output,
            ..ForecastSettings::new(read(&self.file)?)
        })
    }
}

/// Runs the forecast, and shows a progress bar.
pub(crate) async fn forecast(settings: ForecastSettings) -> Result<ForecastReport> {
    let progress = progress_bar(settings.runs);
    let report = {
        let progress = progress.clone();
        // Each run creates its own tokio runtime, which is not possible inside this one.
        tokio::task::spawn_blocking(move || cost::forecast(settings, &|| progress.inc(1))).await?
    };
    progress.finish_and_clear();
    Ok(report?)
}

/// A bar that counts tasks, if a person sees it. Its length is unknown if `runs` is 0.
pub(crate) fn progress_bar(runs: u32) -> ProgressBar {
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
        let read = |text: &str| text.parse::<JsonOrFile>().map(|input| input.0);
        assert_eq!(read(r#"{"a":1}"#).unwrap(), serde_json::json!({ "a": 1 }));
        assert_eq!(read("{").unwrap_err().to_string(), "invalid JSON");
        assert_eq!(
            read("no/such/file").unwrap_err().to_string(),
            "neither JSON nor a readable file"
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        assert_eq!(read(&path).unwrap_err().to_string(), "the file does not contain JSON");
        std::fs::write(&path, "[1]").unwrap();
        assert_eq!(read(&path).unwrap(), serde_json::json!([1]));
    }
}
