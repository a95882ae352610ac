//! Checks of a run that may end otherwise than the run without faults: with an outage, after which the task is long overdue, or
//! with a doubt. Only its side effects are checked, and whether operators were alerted.

use steward_core::{
    definition::{step::StepWork, workflow::Workflow},
    engine::invariants::ending::{PartEnding, TaskEnding},
    model::{names::StepName, task::ProcessState},
};

use super::{
    checks::check_start, fault_injection::FaultAt, scenario_run::RunResult, scenarios::Scenario,
};

/// All problems of such a run.
pub(super) fn check_side_effects(
    scenario: &Scenario,
    baseline: &RunResult,
    run: &RunResult,
    faults: &[FaultAt],
) -> Vec<String> {
    let mut problems = check_start(baseline, run, faults);
    for id in run.ledgers.keys().filter(|id| !run.tasks.contains_key(*id)) {
        problems.push(format!("{id} has side effects and was never recorded"));
    }
    for (id, task) in &run.tasks {
        let ended = EndedTask { scenario, run, id };
        match task["process_state"].as_str().unwrap_or_default() {
            "Processed" => problems.extend(ended.processed()),
            "Undone" => problems.extend(ended.undone()),
            "Error" => problems.extend(ended.alerted()),
            other => problems.push(format!("{id} is not in a final state: it is {other}")),
        }
    }
    if !problems.is_empty() {
        problems.push(format!(
            "tasks: {:#?}\nledgers: {:#?}\npublished: {:?}",
            run.tasks, run.ledgers, run.published
        ));
    }
    problems
}

/// A task that has ended.
struct EndedTask<'r> {
    scenario: &'r Scenario,
    run: &'r RunResult,
    id: &'r str,
}

impl EndedTask<'_> {
    /// Each step must have taken effect once, and nothing may be undone.
    fn processed(&self) -> Vec<String> {
        let id = self.id;
        let is_undone = self.keys(id).any(|key| key.ends_with("/undo"));
        let steps = self.workflow(id).steps.iter();
        let wrong = steps.filter_map(|(name, step)| {
            let effects = match step.work() {
                Some(StepWork::Child(_)) => {
                    let child = self.run.tasks.get(&format!("{id}:{name}"));
                    usize::from(child.is_some_and(|child| child["process_state"] == "Processed"))
                }
                Some(_) | None => {
                    let key = format!("{id}/{name}/do");
                    self.keys(id).filter(|known| **known == key).count()
                }
            };
            let (active, expected) = (if is_undone { 0 } else { effects }, Some(1));
            let name = format!("{id}/{name}");
            let part = PartEnding { name, effects, active, expected, ..PartEnding::default() };
            part.violation(ProcessState::Processed)
        });
        wrong.collect()
    }

    /// Each effect with an undo must be undone, of the task and of its child tasks.
    fn undone(&self) -> Vec<String> {
        let own = |id: &&String| **id == self.id || id.starts_with(&format!("{}:", self.id));
        let ledgers = self.run.ledgers.keys().filter(own);
        ledgers.flat_map(|id| self.effects_left(id)).collect()
    }

    fn effects_left(&self, id: &str) -> Vec<String> {
        let keys: Vec<_> = self.keys(id).collect();
        let mut problems = Vec::new();
        let first_undo = keys.iter().position(|key| key.ends_with("/undo")).unwrap_or(keys.len());
        for (position, key) in keys.iter().enumerate() {
            let Some(step) = key.strip_suffix("/do") else { continue };
            if position > first_undo {
                problems.push(format!("{key} took effect after an undo"));
            }
            let undo = format!("{step}/undo");
            let is_undone = keys.iter().skip(position).any(|later| **later == undo);
            let step: StepName = step.rsplit('/').next().unwrap_or_default().parse().unwrap();
            let (active, may_remain) =
                (usize::from(!is_undone), self.workflow(id).steps[&step].undo.is_none());
            let name = (*key).clone();
            let part = PartEnding { name, effects: 1, active, may_remain, ..PartEnding::default() };
            problems.extend(part.violation(ProcessState::Undone));
        }
        problems
    }

    /// An alert must have been sent for the Error.
    fn alerted(&self) -> Vec<String> {
        let id = self.id;
        let is_alert = |what: &str| self.run.published.contains_key(&format!("{id}: {what}"));
        let is_alerted = is_alert("task_in_error") || is_alert("undo_failed");
        let ending = TaskEnding { state: ProcessState::Error, is_alerted, parts: Vec::new() };
        ending.violations().into_iter().map(|finding| format!("{id}: {finding}")).collect()
    }

    /// The idempotency keys of the effects, in order.
    fn keys(&self, id: &str) -> impl Iterator<Item = &String> {
        self.run.ledgers.get(id).into_iter().flatten().map(|(key, _)| key)
    }

    fn workflow(&self, id: &str) -> &Workflow {
        let child = self.scenario.child.as_ref().filter(|child| id.ends_with(child.id));
        child.map_or(&self.scenario.workflow, |child| &child.workflow)
    }
}
