//! What must hold at the end of a run, whatever was cut.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use super::{
    scenarios::Scenario,
    wire::{Call, Cut, CutAt, Role},
    world::Run,
};

/// How much longer an undo waits for a call of unknown outcome that may be in progress at its service: the attempt's
/// complete-by, the skew of clocks and the longest call.
const CALL_IN_PROGRESS_WITHIN: Duration = Duration::from_secs(30 + 10 + 30);

/// The deployment's `pickup_within`: after it the supervisor makes a lost wake or alert good.
const PICKUP_WITHIN: Duration = Duration::from_secs(10);

type Tasks = BTreeMap<String, Value>;
type Ledgers = BTreeMap<String, Vec<(String, String)>>;

/// Everything that is wrong with a run without cuts: it does not end as its scenario says.
pub(super) fn judge_uncut(scenario: &Scenario, run: &Run) -> Vec<String> {
    let ending = &scenario.ending;
    let mut wrong = run.wrong.clone();
    let mut expect = |holds: bool, what: String| {
        if !holds {
            wrong.push(what);
        }
    };
    let mut effects: BTreeMap<_, _> =
        scenario.tasks.iter().map(|id| ((*id).to_owned(), ending.effects)).collect();
    effects.extend(scenario.children().map(|(id, child)| (id, child.effects)));
    let same = run.tasks.keys().eq(effects.keys());
    expect(same, format!("tasks: {:?}", run.tasks.keys()));
    for (id, task) in &run.tasks {
        expect(task["process_state"] == ending.state.to_string(), format!("{id} is {task:#}"));
        let wanted = effects.get(id).copied().unwrap_or_default().iter();
        let wanted: Vec<_> = wanted.map(|effect| format!("{id}/{effect}")).collect();
        let ledger = run.ledgers.get(id).into_iter().flatten();
        let ledger: Vec<_> = ledger.map(|(key, _)| key.clone()).collect();
        expect(ledger == wanted, format!("the ledger of {id} says {ledger:?}"));
    }
    let mut wanted: Vec<_> = scenario
        .tasks
        .iter()
        .flat_map(|id| ending.told.iter().map(move |what| format!("{id}: {what}")))
        .collect();
    wanted.sort();
    let told: Vec<_> = run.told.keys().cloned().collect();
    expect(told == wanted, format!("told {told:?}"));
    let seconds = Duration::from_secs(ending.seconds.unsigned_abs());
    expect(run.ended_after == seconds, format!("it took {:?}", run.ended_after));
    wrong
}

/// Everything that is wrong with a run with cuts: it must end as the uncut one did, and in the same
/// time, unless [`may_wait`] excuses it.
pub(super) fn judge(uncut: &Run, run: &Run, cuts: &[CutAt]) -> Vec<String> {
    let mut wrong = judge_start(uncut, run, cuts);
    let mut expect = |holds: bool, what: String| {
        if !holds {
            wrong.push(what);
        }
    };
    let agents =
        cuts.iter().any(|at| run.calls.get(at.call).is_some_and(|c| c.role == Role::Agent));
    let (mut tasks, mut ledgers) = (run.tasks.clone(), run.ledgers.clone());
    let tasks_differ = tasks != uncut.tasks;
    if agents {
        leave_out_doubts(&uncut.tasks, &mut tasks, &mut ledgers);
    }
    expect(tasks == uncut.tasks, format!("tasks: {:#?}", run.tasks));
    expect(ledgers == uncut.ledgers, format!("ledgers: {:#?}", run.ledgers));
    let told = |run: &Run| run.told.keys().cloned().collect::<Vec<_>>();
    expect(told(run) == told(uncut), format!("told: {:?}", run.told));

    let waits = cuts.iter().filter(|at| may_wait(&run.calls, **at)).count();
    let mut excused = PICKUP_WITHIN * u32::try_from(waits).unwrap_or(u32::MAX);
    if agents && tasks_differ {
        excused += CALL_IN_PROGRESS_WITHIN;
    }
    let latest = uncut.ended_after + excused;
    expect(run.ended_after <= latest, format!("it ended after {:?}", run.ended_after));
    for (what, after) in &run.told {
        let in_time = uncut.told.get(what).is_none_or(|at| *after <= *at + excused);
        expect(in_time, format!("\"{what}\" was told after {after:?}"));
    }
    // The record that an alert is out may be lost: then the supervisor alerts again.
    let cuts = u32::try_from(cuts.len()).unwrap_or(u32::MAX);
    let latest = uncut.settled_after + excused + PICKUP_WITHIN * cuts;
    expect(run.settled_after <= latest, format!("it settled after {:?}", run.settled_after));
    wrong
}

/// What the run reports itself, and whether it is the uncut run up to its first cut.
pub(super) fn judge_start(uncut: &Run, run: &Run, cuts: &[CutAt]) -> Vec<String> {
    let mut wrong = run.wrong.clone();
    let mut expect = |holds: bool, what: String| {
        if !holds {
            wrong.push(what);
        }
    };
    let struck = cuts.iter().all(|at| at.call < run.calls.len());
    expect(struck, "a cut did not strike".to_owned());
    let before = cuts.iter().map(|at| at.call + 1).min().unwrap_or_default();
    let repeats = run.calls.iter().zip(&uncut.calls).take(before).all(|(a, b)| a == b);
    let differs = run.calls.iter().zip(&uncut.calls).position(|(a, b)| a != b).unwrap_or_default();
    let calls = (run.calls.get(differs), uncut.calls.get(differs));
    expect(repeats, format!("it does not begin as the uncut run: call {differs} is {calls:?}"));
    wrong
}

/// An agent whose request comes again does not know what the one before it did, and says so when it
/// fails: then the step may have run, and is undone with the others. Leaves that out.
fn leave_out_doubts(uncut: &Tasks, tasks: &mut Tasks, ledgers: &mut Ledgers) {
    for (id, task) in tasks {
        for (step, record) in task["steps"].as_object_mut().unwrap() {
            let certain = &uncut[id]["steps"][step];
            let record = record.as_object_mut().unwrap();
            if let Some(undo) = record.get_mut("x").and_then(Value::as_object_mut) {
                for doubt in ["m", "w"] {
                    if certain["x"][doubt].is_null() {
                        undo.remove(doubt);
                    }
                }
            }
            if certain["w"].is_null() {
                record.remove("w");
            }
            if certain["m"].is_null() && record.remove("m").is_some() && certain["x"].is_null() {
                record.remove("x");
                let undo = format!("{id}/{step}/undo");
                if let Some(ledger) = ledgers.get_mut(id) {
                    ledger.retain(|(key, _)| *key != undo);
                }
            }
        }
    }
}

/// Whether a cut may make its task wait for the next due time. Only a supervisor's may: no message
/// brings a sweep again, and once it has saved what it decided, the task is due only when the wake,
/// or the alert, that it did not send has had time to be acted on. Before the save the task is due
/// as it was, and the next run finds it at once.
fn may_wait(calls: &[Call], CutAt { call, cut }: CutAt) -> bool {
    let Some(at) = calls.get(call) else { return false };
    let mut before = calls.iter().take(call).filter(|c| c.invocation == at.invocation);
    let saved_before = before.any(|call| call.is_save);
    at.role == Role::Supervisor
        && match cut {
            Cut::DieBefore
            | Cut::FailBefore
            | Cut::Throttle
            | Cut::ThrottlePart
            | Cut::ThrottleLong => saved_before,
            Cut::DieAfter | Cut::KillAll | Cut::Outage => saved_before || at.is_save,
            Cut::FailAfter => at.is_save,
            Cut::RepeatAfter => false,
        }
}

/// A cut in words, its call counted by role: `DieAfter at call 3 of Scheduler: ...`.
pub(super) fn name(calls: &[Call], CutAt { call, cut }: CutAt) -> String {
    let Some(at) = calls.get(call) else { return format!("{cut:?} at a call that never came") };
    let number = calls.iter().take(call + 1).filter(|c| c.role == at.role).count();
    format!("{cut:?} at call {number} of {:?}: {at}", at.role)
}

/// How many calls each role makes.
pub(super) fn count(calls: &[Call]) -> BTreeMap<Role, usize> {
    let mut counts = BTreeMap::new();
    for call in calls {
        *counts.entry(call.role).or_default() += 1;
    }
    counts
}
