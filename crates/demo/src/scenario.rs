//! A scenario is an example workflow with the input of its tasks, the services that it calls, and the side effects that
//! the services' ledgers must have in the end. The rest of the demo and of its audit does not depend on the workflow.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;
use steward_core::{definition::workflow::Workflow, model::task::ProcessState};

use crate::services::{DemoService, ServiceLedgers};

/// An example workflow with its test data. Tasks are numbered from 0, and all data of a task follows from its number.
pub trait Scenario: Send + Sync {
    /// The name of the workflow.
    fn name(&self) -> &'static str;

    /// The text of the definition file.
    fn definition(&self) -> &'static str;

    /// The noun for a task, in singular and plural: `order`, `orders`.
    fn nouns(&self) -> (&'static str, &'static str);

    /// The services that its steps call. The agent of each service has the same name.
    fn services(&self) -> &'static [DemoService];

    /// The service that `--chaos` takes down. A step in the middle of the workflow calls it.
    fn outage_service(&self) -> DemoService;

    /// The input of the task.
    fn input(&self, number: usize) -> Value;

    /// The number of active side effects of the service for a Processed task.
    fn expected_effects(&self, service: DemoService, number: usize) -> usize;

    /// Whether the workflow undoes the side effects of the service. A mail that was sent stays sent.
    fn is_undone(&self, _: DemoService) -> bool {
        true
    }

    /// The subject under which the service's ledger records the task.
    fn subject(&self, service: DemoService, number: usize) -> String;

    /// Further audit findings about the task, beyond the number of side effects. `end` is its final state.
    fn findings(&self, number: usize, end: ProcessState, ledgers: &ServiceLedgers) -> Vec<String>;

    /// What a passed audit proves, in one sentence for the report.
    fn audit_summary(&self) -> &'static str;

    /// The id of the task.
    fn task_id(&self, number: usize) -> String {
        let (noun, _) = self.nouns();
        format!("{noun}-{number:06}")
    }

    /// The parsed definition.
    ///
    /// # Errors
    /// The definition is invalid.
    fn workflow(&self) -> Result<Workflow> {
        let path = format!("workflows/{}.yaml", self.name());
        Ok(steward_definition_file::parse(Path::new(&path), self.definition())?)
    }
}
