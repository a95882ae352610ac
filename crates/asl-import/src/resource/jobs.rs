//! Jobs of AWS APIs that a state waits for (`.sync`). One step starts the job, and a second one polls it. Facts: the API
//! references of Athena, AWS Batch, CodeBuild, ECS, AWS Glue and SageMaker, and what Step Functions returns for their `.sync` integrations.

use super::{
    call::ResultShape, integration::Completion, integration::integration, parameters::field,
};
use crate::symbol::Symbol;

/// A job that an operation starts.
#[derive(Debug)]
pub(crate) struct Job {
    /// The service and the action, as in a resource.
    starts: (&'static str, &'static str),
    /// The operation that says how the job is.
    pub(crate) poll: &'static str,
    /// The path of that operation, in a REST API.
    pub(crate) path: Option<&'static str>,
    /// The members of the input of that operation that are parameters of the start: their names there, and here.
    parameters: &'static [(&'static str, &'static str)],
    /// The member that identifies the job, with `[]` if it is a list, and the field of the response to the start that has it.
    id: Option<(&'static str, &'static str)>,
    /// The field of the response that says how the job is.
    pub(crate) state: &'static str,
    pub(crate) done: &'static str,
    pub(crate) failed: &'static [&'static str],
    /// When a job that is done has failed: an expression over `response`.
    pub(crate) fails_if: Option<&'static str>,
    /// The field of the response that is the result of the state. If absent, all of it.
    pub(crate) result: Option<&'static str>,
    /// What the result of the state is, given that field.
    pub(crate) shape: ResultShape,
}

const fn of_sagemaker(
    action: &'static str,
    poll: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    state: &'static str,
) -> Job {
    let failed = &["Failed", "Stopped"];
    Job { starts: ("sagemaker", action), poll, parameters, state, done: "Completed", failed, ..ANY }
}

const ANY: Job = Job {
    starts: ("", ""),
    poll: "",
    path: None,
    parameters: &[],
    id: None,
    state: "",
    done: "SUCCEEDED",
    failed: &[],
    fails_if: None,
    result: None,
    shape: ResultShape::Output,
};

const JOBS: [Job; 8] = [
    Job {
        starts: ("athena", "startQueryExecution"),
        poll: "athena:GetQueryExecution",
        id: Some(("QueryExecutionId", "QueryExecutionId")),
        state: "QueryExecution.Status.State",
        failed: &["FAILED", "CANCELLED"],
        ..ANY
    },
    Job {
        starts: ("batch", "submitJob"),
        poll: "batch:DescribeJobs",
        path: Some("/v1/describejobs"),
        id: Some(("jobs[]", "jobId")),
        state: "jobs[0].status",
        failed: &["FAILED"],
        result: Some("jobs[0]"),
        // What every answer has, and no times, which Step Functions writes in another way.
        shape: ResultShape::Members(&[
            "JobArn",
            "JobDefinition",
            "JobId",
            "JobName",
            "JobQueue",
            "Status",
        ]),
        ..ANY
    },
    Job {
        starts: ("codebuild", "startBuild"),
        poll: "codebuild:BatchGetBuilds",
        id: Some(("ids[]", "build.id")),
        state: "builds[0].buildStatus",
        failed: &["FAILED", "FAULT", "STOPPED", "TIMED_OUT"],
        result: Some("builds[0]"),
        shape: ResultShape::Build(&["Arn", "BuildNumber", "BuildStatus", "Id", "ProjectName"]),
        ..ANY
    },
    Job {
        starts: ("ecs", "runTask"),
        poll: "ecs:DescribeTasks",
        parameters: &[("Cluster", "cluster")],
        id: Some(("tasks[]", "tasks[0].taskArn")),
        state: "tasks[0].lastStatus",
        done: "STOPPED",
        fails_if: Some(
            "response.body.tasks[0].containers.exists(c, !has(c.exitCode) || c.exitCode != 0)",
        ),
        result: Some("tasks[0]"),
        shape: ResultShape::Members(&["ClusterArn", "LastStatus", "TaskArn", "TaskDefinitionArn"]),
        ..ANY
    },
    Job {
        starts: ("glue", "startJobRun"),
        poll: "glue:GetJobRun",
        parameters: &[("JobName", "JobName")],
        id: Some(("RunId", "JobRunId")),
        state: "JobRun.JobRunState",
        failed: &["FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED"],
        result: Some("JobRun"),
        ..ANY
    },
    of_sagemaker(
        "createProcessingJob",
        "sagemaker:DescribeProcessingJob",
        &[("ProcessingJobName", "ProcessingJobName")],
        "ProcessingJobStatus",
    ),
    of_sagemaker(
        "createTrainingJob",
        "sagemaker:DescribeTrainingJob",
        &[("TrainingJobName", "TrainingJobName")],
        "TrainingJobStatus",
    ),
    of_sagemaker(
        "createTransformJob",
        "sagemaker:DescribeTransformJob",
        &[("TransformJobName", "TransformJobName")],
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
        let given = self.parameters.iter().filter_map(|(there, here)| {
            let is_absent = matches!(parameters, Symbol::Object { open: None, .. });
            let value = field(parameters, there);
            let value = value.or_else(|| (!is_absent).then(|| parameters.field(there)))?;
            Some(((*here).to_owned(), value))
        });
        let id = self.id.iter().map(|(member, from)| {
            let id = Symbol::path(&format!("steps.{start}.output.{from}"));
            match member.strip_suffix("[]") {
                Some(member) => (member.to_owned(), Symbol::List(vec![id])),
                None => ((*member).to_owned(), id),
            }
        });
        Symbol::object(given.chain(id))
    }
}
