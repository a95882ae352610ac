//! Workflow definitions: the file format, validation, and the compiled plan.

pub mod check;
pub mod duration;
pub mod lint;
pub mod mask;
pub mod plan;
pub mod problem;
pub mod recovery;
pub mod repeat;
pub mod schema;
pub mod size;
pub mod step;
pub mod step_agents;
pub mod until;
pub mod wait;
pub mod workflow;
