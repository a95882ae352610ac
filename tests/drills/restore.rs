//! Restore drill: the tables are copied while tasks are in flight, the tasks go on, and then the older copy comes back, as
//! from a point-in-time restore. Services, clients and operators know what happened since; Steward does not.
//!
//! Afterwards no task may be stuck, no side effect may have happened twice at a service that honours idempotency keys, and
//! none may contradict the state of its task. What Steward cannot know is alerted.

use std::collections::BTreeSet;

use serde_json::Value;
use steward_core::model::task::ProcessState;
use steward_emulator::resources;

use super::{
    network::PendingMessage,
    scenario::TASKS,
    tables,
    world::{Moment, World},
};

/// How long a drill may take by its own clock.
const HOURS_MAX: i64 = 30;

/// Steps between the copies that are restored.
pub(super) const COPY_EVERY: usize = 150;

/// What happens to the messages in the queues.
#[derive(Debug, Clone, Copy)]
enum Queues {
    /// Those of scheduler, commands and agents are purged, as the procedure says. Submissions and events stay.
    Purged,
    /// The newest ones stay: the operator forgot to purge them, or the region failed over to empty tables.
    Kept,
    /// Those of the copy come back, as after a failover to a copy of the queues.
    Old,
}

/// The copies of a run, and its last moment, at which every task has ended.
pub(super) struct Course {
    pub(super) copies: Vec<Moment>,
    end: Moment,
    /// The events by then.
    alerts: BTreeSet<String>,
}

/// Runs the scenario to its end, with a copy each `copy_every` steps.
pub(super) async fn course(copy_every: usize) -> Course {
    let mut world = World::new().await;
    world.submit_missing().await;
    let mut copies = Vec::new();
    for n in 0.. {
        if n % copy_every == copy_every / 2 {
            copies.push(world.moment().await);
        }
        if world.has_ended().await {
            break;
        }
        world.step().await;
    }
    Course { copies, end: world.moment().await, alerts: alerts(&world) }
}

/// Tasks and reasons of all alerts.
fn alerts(world: &World) -> BTreeSet<String> {
    let alert = |event: &Value| {
        let name = event["metadata"]["event"].as_str()?;
        matches!(name, "task_in_error" | "undo_failed")
            .then(|| event["data"]["task_id"].as_str().unwrap_or_default().to_owned())
    };
    world.network.events().iter().filter_map(alert).collect()
}

/// Restores tasks and documents of these moments into the deployment as it is at `now`, and runs on.
async fn restore(tasks: &Moment, documents: &Moment, now: &Moment, queues: Queues) -> World {
    let mut world = World::at(now).await;
    for (table, moment) in [("steward-tasks", tasks), ("steward-documents", documents)] {
        tables::restore_table(&world.dynamodb, table, &moment.tables[table]).await;
    }
    let pending: Vec<PendingMessage> = match queues {
        Queues::Purged => {
            let stays = [resources::SUBMISSIONS_QUEUE, resources::EVENTS_QUEUE];
            let messages = now.messages.iter();
            messages.filter(|message| stays.contains(&&*message.queue)).cloned().collect()
        }
        Queues::Kept => now.messages.clone(),
        Queues::Old => tasks.messages.clone(),
    };
    world.network.set_pending(pending);
    // A restore takes a while.
    world.deployment.clock.advance_seconds(1_800);
    world.submit_missing().await;
    world.run_to_end(HOURS_MAX).await;
    world
}

/// What a restore may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// Tasks and documents of one second. A call that began later left no claim.
    SameSecond,
    /// No document is lost: every claim is there.
    NoDocument,
    /// Documents that the tasks mention may be missing.
    Documents,
}

/// What is wrong after a restore.
pub(super) async fn problems(world: &World, loss: Loss, lost: &[&str]) -> Vec<String> {
    let mut problems = world.problems.clone();
    // The service of the step `once` ignores idempotency keys. Only a claim prevents a second call.
    let may_repeat = |problem: &String| {
        let Some((id, rest)) = problem.split_once('/') else { return false };
        rest.starts_with("once/do took effect") && (loss != Loss::NoDocument || lost.contains(&id))
    };
    let wrong = world.wrong_effects().await;
    problems.extend(wrong.into_iter().filter(|problem| !may_repeat(problem)));
    let alerted = alerts(world);
    let states = world.states().await;
    for (id, course) in TASKS {
        let Some(state) = states.get(id) else {
            problems.push(format!("{id} is gone"));
            continue;
        };
        if *state == course.end() {
            continue;
        }
        // What cannot be known ends in Error, with an alert.
        if *state != ProcessState::Error {
            problems.push(format!("{id} is stuck or wrong: {state}"));
        } else if !alerted.contains(id) {
            problems.push(format!("{id} is in Error without an alert"));
        } else if lost.contains(&id) {
            // The event that its earlier life has consumed does not complete its wait again.
        } else if loss != Loss::Documents && !world.may_be_unknown(id).await {
            let error = world.error(id).await;
            problems.push(format!("{id} is in Error, although nothing is unknown: {error}"));
        }
    }
    problems
}

/// How many tasks end as in an undisturbed run. Where documents may be missing, an Error is allowed, but must not be the rule.
pub(super) async fn undisturbed(world: &World) -> usize {
    let states = world.states().await;
    TASKS.iter().filter(|(id, course)| states.get(*id) == Some(&course.end())).count()
}

/// What happens to the queues after the restore of the `n`th copy: each run takes seconds.
fn queues_of(n: usize) -> &'static [Queues] {
    match n % 3 {
        0 => &[Queues::Purged],
        1 => &[Queues::Purged, Queues::Old],
        _ => &[Queues::Purged, Queues::Kept],
    }
}

#[tokio::test(start_paused = true)]
async fn a_restore_to_an_earlier_second_repeats_no_effect_and_strands_no_task() {
    let course = course(COPY_EVERY).await;
    assert!(course.copies.len() >= 3, "{} copies", course.copies.len());
    assert!(!course.alerts.is_empty());
    let mut found = Vec::new();
    for (n, copy) in course.copies.iter().enumerate() {
        for queues in queues_of(n) {
            let world = restore(copy, copy, &course.end, *queues).await;
            let problems = problems(&world, Loss::SameSecond, &[]).await;
            found.extend(
                problems.iter().map(|problem| format!("copy {n}, queues {queues:?}: {problem}")),
            );
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test(start_paused = true)]
async fn with_the_newest_documents_no_step_is_called_twice_that_must_not_be() {
    let course = course(COPY_EVERY).await;
    let mut found = Vec::new();
    let lost = ["plain-1", "large-1"];
    for (n, copy) in course.copies.iter().enumerate() {
        let mut tasks = copy.clone();
        // As if these had been submitted after the copy.
        if let Some(items) = tasks.tables.get_mut("steward-tasks").filter(|_| n == 1) {
            items.retain(|item| !lost.iter().any(|id| item["task_id"] == **id));
        }
        let world = restore(&tasks, &course.end, &course.end, Queues::Purged).await;
        let problems = problems(&world, Loss::NoDocument, &lost).await;
        found.extend(problems.iter().map(|problem| format!("copy {n}: {problem}")));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test(start_paused = true)]
async fn missing_documents_are_alerted() {
    let course = course(COPY_EVERY).await;
    let (mut found, mut ends, mut errors) = (Vec::new(), 0, Vec::new());
    for (n, pair) in course.copies.windows(2).enumerate() {
        let [documents, tasks] = pair else { continue };
        let world = restore(tasks, documents, &course.end, Queues::Purged).await;
        let problems = problems(&world, Loss::Documents, &[]).await;
        found.extend(problems.iter().map(|problem| format!("copy {n}: {problem}")));
        ends += undisturbed(&world).await;
        for (id, _) in TASKS {
            errors.push(world.error(id).await);
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    let tasks = TASKS.len() * (course.copies.len() - 1);
    assert!(ends > tasks / 2, "{ends} of {tasks} end as in an undisturbed run");
    let names_document =
        |error: &String| error.contains("document") && error.contains("is missing");
    assert!(errors.iter().any(names_document), "{errors:?}");
}

#[tokio::test(start_paused = true)]
async fn missing_tasks_are_copied_beside_the_newer_ones() {
    let course = course(COPY_EVERY).await;
    // Their child tasks have ids that begin with theirs.
    let is_missing = |item: &Value| {
        let id = item["task_id"].as_str().unwrap();
        ["plain-1", "undone-1", "by-hand-1", "large-1"]
            .iter()
            .any(|missing| id.starts_with(missing))
    };
    let mut found = Vec::new();
    for (n, copy) in course.copies.iter().enumerate() {
        // As `steward restore` does without `--overwrite`: what the deployment has stays.
        let mut restored = course.end.clone();
        for (table, items) in &mut restored.tables {
            if table == "steward-tasks" || table == "steward-documents" {
                items.retain(|item| !is_missing(item));
                items.extend(copy.tables[table].iter().filter(|item| is_missing(item)).cloned());
            }
        }
        for (documents, loss) in [(&restored, Loss::SameSecond), (&course.end, Loss::NoDocument)] {
            let world = restore(&restored, documents, &course.end, Queues::Purged).await;
            let problems = problems(&world, loss, &[]).await;
            found.extend(problems.iter().map(|problem| format!("copy {n}, {loss:?}: {problem}")));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
