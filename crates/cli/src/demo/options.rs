//! The options of `steward demo`.

use std::{net::SocketAddr, time::Duration};

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser as _},
};
use steward_demo::example_workflow::ExampleWorkflow;

use crate::endpoint::EndpointArgs;

/// Options of `steward demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The example workflow to run.
    #[arg(long, default_value = "order", value_parser = example_workflows())]
    pub(super) workflow: ExampleWorkflow,
    /// How many tasks to submit.
    #[arg(long, default_value_t = 1_000)]
    pub(super) tasks: usize,
    /// Submit tasks for this time at a steady rate instead, with tables and queues in temporary files. Fails if memory,
    /// files or latency grow from the second quarter of the run to the last.
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration, conflicts_with_all = ["tasks", "stay", "aws_endpoint"])]
    pub(super) run_for: Option<Duration>,
    /// How many tasks to submit per second.
    #[arg(long, default_value_t = 5, requires = "run_for", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) rate: u32,
    /// The seed that decides which calls get which faults.
    #[arg(long, default_value_t = 42)]
    pub(super) seed: u64,
    /// How many tasks run at the same time.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) in_flight: u32,
    /// Also kill instances of submission, scheduler, agents and supervisor during the run, take one
    /// service down for a while, and inject more permanent refusals, also of undos.
    #[arg(long)]
    pub(super) chaos: bool,
    /// The address of the console, the AWS-compatible endpoint and `POST /tasks`.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(super) listen: SocketAddr,
    #[command(flatten)]
    pub(super) aws: EndpointArgs,
    /// Keep running until Ctrl-C after all tasks have ended, with healthy services, so that tasks in Error can
    /// be repaired in the console.
    #[arg(long)]
    pub(super) stay: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub(super) json: bool,
}

fn example_workflows() -> impl clap::builder::TypedValueParser<Value = ExampleWorkflow> {
    let names = ExampleWorkflow::ALL.map(|shipped| shipped.scenario().name());
    PossibleValuesParser::new(names)
        .try_map(|name| ExampleWorkflow::from_name(&name).ok_or("no such workflow"))
}
