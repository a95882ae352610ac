//! What must hold at the end of a run with an outage. The task is long overdue by then, so the run does not end as the
//! uncut one: only its side effects are judged, and whether people learned of what needs them.

use steward_core::{
    definition::{step::Work, workflow::Workflow},
    model::names::StepName,
};

use super::{judge::judge_start, scenarios::Scenario, wire::CutAt, world::Run};

/// Everything that is wrong with a run with an outage.
pub(super) fn judge_effects(
    scenario: &Scenario,
    uncut: &Run,
    run: &Run,
    cuts: &[CutAt],
) -> Vec<String> {
    let mut wrong = judge_start(uncut, run, cuts);
    for id in run.ledgers.keys().filter(|id| !run.tasks.contains_key(*id)) {
        wrong.push(format!("{id} has effects and was never recorded"));
    }
    for (id, task) in &run.tasks {
        let judged = Judged { scenario, run, id };
        match task["process_state"].as_str().unwrap_or_default() {
            "Processed" => wrong.extend(judged.processed()),
            "Undone" => wrong.extend(judged.undone()),
            "Error" => wrong.extend(judged.alerted()),
            other => wrong.push(format!("{id} did not end: it is {other}")),
        }
    }
    if !wrong.is_empty() {
        wrong.push(format!(
            "tasks: {:#?}\nledgers: {:#?}\ntold: {:?}",
            run.tasks, run.ledgers, run.told
        ));
    }
    wrong
}

/// A task that has ended.
struct Judged<'r> {
    scenario: &'r Scenario,
    run: &'r Run,
    id: &'r str,
}

impl Judged<'_> {
    /// Every step took effect once, and nothing was undone.
    fn processed(&self) -> Vec<String> {
        let id = self.id;
        let mut wrong = Vec::new();
        for (name, step) in &self.workflow(id).steps {
            let is_done = match step.work() {
                Some(Work::Child(_)) => {
                    let child = self.run.tasks.get(&format!("{id}:{name}"));
                    child.is_some_and(|child| child["process_state"] == "Processed")
                }
                Some(_) | None => {
                    let key = format!("{id}/{name}/do");
                    self.keys(id).filter(|known| **known == key).count() == 1
                }
            };
            if !is_done {
                wrong.push(format!("{id} is Processed, and its step {name} was not done once"));
            }
        }
        if self.keys(id).any(|key| key.ends_with("/undo")) {
            wrong.push(format!("{id} is Processed, and a step was undone"));
        }
        wrong
    }

    /// No effect with an undo is left, of the task or of its child tasks.
    fn undone(&self) -> Vec<String> {
        let own = |id: &&String| **id == self.id || id.starts_with(&format!("{}:", self.id));
        let ledgers = self.run.ledgers.keys().filter(own);
        ledgers.flat_map(|id| self.left(id)).collect()
    }

    fn left(&self, id: &str) -> Vec<String> {
        let keys: Vec<_> = self.keys(id).collect();
        let mut wrong = Vec::new();
        let first_undo = keys.iter().position(|key| key.ends_with("/undo")).unwrap_or(keys.len());
        for (place, key) in keys.iter().enumerate() {
            let Some(step) = key.strip_suffix("/do") else { continue };
            if place > first_undo {
                wrong.push(format!("{key} took effect after an undo"));
            }
            let undo = format!("{step}/undo");
            let is_undone = keys.iter().skip(place).any(|later| **later == undo);
            let step: StepName = step.rsplit('/').next().unwrap_or_default().parse().unwrap();
            if self.workflow(id).steps[&step].undo.is_some() && !is_undone {
                wrong.push(format!("{} is Undone, and {key} was not undone", self.id));
            }
        }
        wrong
    }

    /// An operator was told of the Error.
    fn alerted(&self) -> Vec<String> {
        let id = self.id;
        let is_alert = |what: &str| self.run.told.contains_key(&format!("{id}: {what}"));
        let alerted = is_alert("task_in_error") || is_alert("undo_failed");
        if alerted { Vec::new() } else { vec![format!("{id} is in Error without an alert")] }
    }

    /// The keys of what took effect, in order.
    fn keys(&self, id: &str) -> impl Iterator<Item = &String> {
        self.run.ledgers.get(id).into_iter().flatten().map(|(key, _)| key)
    }

    fn workflow(&self, id: &str) -> &Workflow {
        let child = self.scenario.child.as_ref().filter(|child| id.ends_with(child.id));
        child.map_or(&self.scenario.workflow, |child| &child.workflow)
    }
}
