//! Runs of a workflow against scripted services, on a virtual clock.
//!
//! | module | contents |
//! | --- | --- |
//! | [`workflow_test`] | the tests that authors keep beside a workflow: format, runs, comparison, `--update`, JUnit |
//! | [`failures`] | the analysis of every way in which a step can fail |
//!
//! Both use the driver of the forecast ([`steward_forecast::cost::scripted`]): the real handlers of submission, scheduler,
//! agents and supervisor, and the agent's own reading of responses. Only the services are scripted.

pub mod failures;
mod parallel;
pub mod workflow_test;
