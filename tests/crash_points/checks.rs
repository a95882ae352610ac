//! Checks of a run: with any fault it must end like the run without faults.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use super::{
    fault_injection::{AwsCall, FaultAt, FunctionRole, InjectedFault},
    scenario_run::RunResult,
    scenarios::Scenario,
};

/// How much longer an undo waits for a call of unknown outcome that may be in progress at its service: until the attempt's
/// complete-by, plus the clock skew, plus the longest call.
const CALL_IN_PROGRESS_WITHIN: Duration = Duration::from_secs(30 + 10 + 30);

/// The deployment's `pickup_within`, after which the supervisor repeats a lost wake or alert.
const PICKUP_WITHIN: Duration = Duration::from_secs(10);

type Tasks = BTreeMap<String, Value>;
type Ledgers = BTreeMap<String, Vec<(String, String)>>;

/// All differences between the run without faults and the expected ending of its scenario.
pub(super) fn check_baseline(scenario: &Scenario, run: &RunResult) -> Vec<String> {
    let ending = &scenario.ending;
    let mut problems = run.problems.clone();
    let mut expect = |holds: bool, what: String| {
        if !holds {
            problems.push(what);
        }
    };
    let mut effects: BTreeMap<_, _> =
        scenario.tasks.iter().map(|id| ((*id).to_owned(), ending.effects)).collect();
    effects.extend(scenario.children().map(|(id, child)| (id, child.effects)));
    let same = run.tasks.keys().eq(effects.keys());
    expect(same, format!("tasks: {:?}", run.tasks.keys()));
    for (id, task) in &run.tasks {
        expect(task["process_state"] == ending.state.to_string(), format!("{id} is {task:#}"));
        let expected = effects.get(id).copied().unwrap_or_default().iter();
        let expected: Vec<_> = expected.map(|effect| format!("{id}/{effect}")).collect();
        let ledger = run.ledgers.get(id).into_iter().flatten();
        let ledger: Vec<_> = ledger.map(|(key, _)| key.clone()).collect();
        expect(ledger == expected, format!("the ledger of {id} contains {ledger:?}"));
    }
    let mut expected: Vec<_> = scenario
        .tasks
        .iter()
        .flat_map(|id| ending.published.iter().map(move |what| format!("{id}: {what}")))
        .collect();
    expected.sort();
    let published: Vec<_> = run.published.keys().cloned().collect();
    expect(published == expected, format!("published {published:?}"));
    let seconds = Duration::from_secs(ending.seconds.unsigned_abs());
    expect(run.ended_after == seconds, format!("it took {:?}", run.ended_after));
    problems
}

/// All problems of a run with faults. It must end like the run without faults and at the same time, with the exception of
/// [`may_delay`].
pub(super) fn check(baseline: &RunResult, run: &RunResult, faults: &[FaultAt]) -> Vec<String> {
    let mut problems = check_start(baseline, run, faults);
    let mut expect = |holds: bool, what: String| {
        if !holds {
            problems.push(what);
        }
    };
    let repeats = repeated_requests(run, faults);
    let (mut tasks, mut ledgers) = (run.tasks.clone(), run.ledgers.clone());
    let tasks_differ = tasks != baseline.tasks;
    if repeats > 0 {
        remove_uncertainty(&baseline.tasks, &mut tasks, &mut ledgers);
    }
    let has_items = has_items(&baseline.tasks);
    let mut expected = baseline.ledgers.clone();
    if has_items {
        // Items are independent of each other: the undo of one may wait while that of another runs.
        for ledger in ledgers.values_mut().chain(expected.values_mut()) {
            ledger.sort();
        }
    }
    expect(tasks == baseline.tasks, format!("tasks: {:#?}", run.tasks));
    expect(ledgers == expected, format!("ledgers: {:#?}", run.ledgers));
    let is_complete = run.published.keys().eq(baseline.published.keys());
    expect(is_complete, format!("published: {:?}", run.published));

    let delays = faults.iter().filter(|at| may_delay(&run.calls, **at)).count();
    let mut allowed_delay = PICKUP_WITHIN * u32::try_from(delays).unwrap_or(u32::MAX);
    // The records of items do not show that an undo has waited.
    if tasks_differ || has_items {
        // Each fault may leave a call of unknown outcome, for which the next undo waits.
        allowed_delay += CALL_IN_PROGRESS_WITHIN * repeats;
    }
    let latest = baseline.ended_after + allowed_delay;
    expect(run.ended_after <= latest, format!("it ended after {:?}", run.ended_after));
    for (what, after) in &run.published {
        let in_time = baseline.published.get(what).is_none_or(|at| *after <= *at + allowed_delay);
        expect(in_time, format!("\"{what}\" was published after {after:?}"));
    }
    // The confirmation that an alert was sent may be lost. Then the supervisor sends the alert again.
    let faults = u32::try_from(faults.len()).unwrap_or(u32::MAX);
    let latest = baseline.settled_after + allowed_delay + PICKUP_WITHIN * faults;
    expect(run.settled_after <= latest, format!("it settled after {:?}", run.settled_after));
    problems
}

/// How many faults let a scheduler send a request again, or an agent receive it again.
fn repeated_requests(run: &RunResult, faults: &[FaultAt]) -> u32 {
    let repeats = |at: &&FaultAt| {
        let role = run.calls.get(at.call).map(|call| call.role);
        matches!(role, Some(FunctionRole::Agent | FunctionRole::Scheduler))
    };
    u32::try_from(faults.iter().filter(repeats).count()).unwrap_or(u32::MAX)
}

/// Whether two faults had a request delivered three times, and left a doubt that the run without faults does not have: the refusal
/// of one delivery says nothing about those that died (rule R16 of the contract for agents). Such a task may take another way.
pub(super) fn leaves_a_doubt(baseline: &RunResult, run: &RunResult, faults: &[FaultAt]) -> bool {
    let is_new =
        |certain: &Value, progress: &Value| certain["m"].is_null() && progress["m"] == true;
    let steps = run.tasks.iter().flat_map(|(id, task)| {
        let steps = task["steps"].as_object().into_iter().flatten();
        steps.map(move |(step, record)| (&baseline.tasks[id]["steps"][step], record))
    });
    let mut doubts = steps
        .filter(|(certain, record)| is_new(certain, record) || is_new(&certain["x"], &record["x"]));
    repeated_requests(run, faults) > 1 && doubts.next().is_some()
}

fn has_items(tasks: &Tasks) -> bool {
    let steps = tasks.values().filter_map(|task| task["steps"].as_object());
    steps.flat_map(|steps| steps.values()).any(|record| !record["p"].is_null())
}

/// The problems that the run itself reports, and whether it equals the run without faults up to its first fault.
pub(super) fn check_start(
    baseline: &RunResult,
    run: &RunResult,
    faults: &[FaultAt],
) -> Vec<String> {
    let mut problems = run.problems.clone();
    let mut expect = |holds: bool, what: String| {
        if !holds {
            problems.push(what);
        }
    };
    let all_injected = faults.iter().all(|at| at.call < run.calls.len());
    expect(all_injected, "a fault was not injected".to_owned());
    let before = faults.iter().map(|at| at.call + 1).min().unwrap_or_default();
    let repeats = run.calls.iter().zip(&baseline.calls).take(before).all(|(a, b)| a == b);
    let differs =
        run.calls.iter().zip(&baseline.calls).position(|(a, b)| a != b).unwrap_or_default();
    let calls = (run.calls.get(differs), baseline.calls.get(differs));
    expect(
        repeats,
        format!("it does not start like the run without faults: call {differs} is {calls:?}"),
    );
    problems
}

/// Removes differences that a repeated request may cause: an agent does not know the outcome of the other delivery. If
/// its call fails, it reports that the step may have run, so the step is undone with the others.
fn remove_uncertainty(baseline: &Tasks, tasks: &mut Tasks, ledgers: &mut Ledgers) {
    for (id, task) in tasks {
        for (step, record) in task["steps"].as_object_mut().unwrap() {
            let certain = &baseline[id]["steps"][step];
            let record = record.as_object_mut().unwrap();
            if let Some(undo) = record.get_mut("x").and_then(Value::as_object_mut) {
                for field in ["m", "w"] {
                    if certain["x"][field].is_null() {
                        undo.remove(field);
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

/// Whether a fault may delay its task until the next due time. Only a fault in a supervisor may, because no message
/// repeats a sweep. After the supervisor's save, the task is due only when the unsent wake or alert would have been handled.
/// Before the save, the due time is unchanged, and the next sweep finds the task at once.
fn may_delay(calls: &[AwsCall], FaultAt { call, fault }: FaultAt) -> bool {
    let Some(at) = calls.get(call) else { return false };
    let mut before = calls.iter().take(call).filter(|c| c.invocation == at.invocation);
    let saved_before = before.any(|call| call.is_save);
    at.role == FunctionRole::Supervisor
        && match fault {
            InjectedFault::DieBefore
            | InjectedFault::HangBefore
            | InjectedFault::FailBefore
            | InjectedFault::Throttle
            | InjectedFault::ThrottlePart
            | InjectedFault::ThrottleLong => saved_before,
            InjectedFault::DieAfter
            | InjectedFault::HangAfter
            | InjectedFault::KillAll
            | InjectedFault::Outage => saved_before || at.is_save,
            InjectedFault::FailAfter => at.is_save,
            InjectedFault::RepeatAfter => false,
        }
}

/// Describes a fault, with its call counted by role: `DieAfter at call 3 of Scheduler: ...`.
pub(super) fn name(calls: &[AwsCall], FaultAt { call, fault }: FaultAt) -> String {
    let Some(at) = calls.get(call) else { return format!("{fault:?} at a call that was not made") };
    let number = calls.iter().take(call + 1).filter(|c| c.role == at.role).count();
    format!("{fault:?} at call {number} of {:?}: {at}", at.role)
}

/// The number of calls of each role.
pub(super) fn count(calls: &[AwsCall]) -> BTreeMap<FunctionRole, usize> {
    let mut counts = BTreeMap::new();
    for call in calls {
        *counts.entry(call.role).or_default() += 1;
    }
    counts
}
