//! Jobs of AWS APIs that a state waits for (`.sync`). One step starts the job, and a second one polls it. Facts: the API
//! references of Athena, AWS Glue and SageMaker, and what Step Functions returns for their `.sync` integrations.

use super::{integration::Completion, integration::integration, parameters::field};
use crate::symbol::Symbol;

/// A job that an operation starts.
#[derive(Debug)]
pub(crate) struct Job {
    /// The service and the action, as in a resource.
    starts: (&'static str, &'static str),
    /// The operation that says how the job is.
    pub(crate) poll: &'static str,
    /// The members of the input of that operation that are parameters of the start.
    parameters: &'static [&'static str],
    /// The member that identifies the job, and the field of the response to the start that has it.
    id: Option<(&'static str, &'static str)>,
    /// The field of the response that says how the job is.
    pub(crate) state: &'static str,
    pub(crate) done: &'static str,
    pub(crate) failed: &'static [&'static str],
    /// The field of the response that is the result of the state. If absent, all of it.
    pub(crate) result: Option<&'static str>,
}

const fn of_sagemaker(
    action: &'static str,
    poll: &'static str,
    parameters: &'static [&'static str],
    state: &'static str,
) -> Job {
    Job {
        starts: ("sagemaker", action),
        poll,
        parameters,
        id: None,
        state,
        done: "Completed",
        failed: &["Failed", "Stopped"],
        result: None,
    }
}

const JOBS: [Job; 5] = [
    Job {
        starts: ("athena", "startQueryExecution"),
        poll: "athena:GetQueryExecution",
        parameters: &[],
        id: Some(("QueryExecutionId", "QueryExecutionId")),
        state: "QueryExecution.Status.State",
        done: "SUCCEEDED",
        failed: &["FAILED", "CANCELLED"],
        result: None,
    },
    Job {
        starts: ("glue", "startJobRun"),
        poll: "glue:GetJobRun",
        parameters: &["JobName"],
        id: Some(("RunId", "JobRunId")),
        state: "JobRun.JobRunState",
        done: "SUCCEEDED",
        failed: &["FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED"],
        result: Some("JobRun"),
    },
    of_sagemaker(
        "createProcessingJob",
        "sagemaker:DescribeProcessingJob",
        &["ProcessingJobName"],
        "ProcessingJobStatus",
    ),
    of_sagemaker(
        "createTrainingJob",
        "sagemaker:DescribeTrainingJob",
        &["TrainingJobName"],
        "TrainingJobStatus",
    ),
    of_sagemaker(
        "createTransformJob",
        "sagemaker:DescribeTransformJob",
        &["TransformJobName"],
        "TransformJobStatus",
    ),
];

/// The job that a state with this resource waits for.
pub(crate) fn job(resource: &str) -> Option<&'static Job> {
    let (service, action, completion) = integration(resource)?;
    JOBS.iter().find(|job| completion == Completion::Job && job.starts == (service, action))
}

impl Job {
    /// The input of the poll, given the parameters of the start and the step that made it.
    pub(crate) fn poll_input(&self, parameters: &Symbol, start: &str) -> Symbol {
        let given = self.parameters.iter().map(|name| {
            let value = field(parameters, name).unwrap_or_else(|| parameters.field(name));
            ((*name).to_owned(), value)
        });
        let id = self.id.iter().map(|(member, from)| {
            ((*member).to_owned(), Symbol::path(&format!("steps.{start}.output.{from}")))
        });
        Symbol::object(given.chain(id))
    }
}
