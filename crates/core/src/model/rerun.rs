//! The link between a task that has ended and the new task that repeats it, in the new task.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::{
    names::{Incarnation, StepName, TaskId},
    payload::PayloadPlace,
};

/// In the submission of a new task: the task that it repeats, and what it keeps of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RerunSource {
    /// The task that has ended.
    pub task_id: TaskId,
    /// Its incarnation, which is part of the keys of its payloads.
    pub incarnation: Incarnation,
    /// The version of the workflow that it ran.
    pub version: u32,
    /// The outputs of the kept steps. The new task does not run these steps.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kept: BTreeMap<StepName, Value>,
}

impl RerunSource {
    /// The place of the payloads of the task that has ended. It is no child task.
    #[must_use]
    pub fn place(&self) -> PayloadPlace {
        PayloadPlace::of_task(&self.task_id, self.incarnation)
    }
}

/// In the record of the new task: the task that it repeats. The outputs of the kept steps are in its submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rerun {
    /// The task that it repeats.
    pub of: TaskId,
    /// The steps that it does not run. Their effects belong to the task that it repeats, so it does not undo them.
    #[serde(rename = "k", default, skip_serializing_if = "BTreeSet::is_empty")]
    pub kept: BTreeSet<StepName>,
}

impl From<&RerunSource> for Rerun {
    fn from(source: &RerunSource) -> Self {
        Self { of: source.task_id.clone(), kept: source.kept.keys().cloned().collect() }
    }
}
