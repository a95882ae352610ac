//! What a task costs, counted: write and read units, requests, invocations and events of each function,
//! in steady load with full batches. Pinned, so that a change in the shape of the state shows; and held
//! against the forecast's counts, so that `steward cost` says the same.

use serde_json::{Value, json};
use steward_core::definition::workflow::Workflow;
use steward_forecast::cost::{At, Json, Report, Said, Settings, forecast, prices::Usage};

use crate::support::line;

mod ledger;

use ledger::{Answers, Case, Cost, Costs, Figures, TASKS};

/// `a`, then `b` and `c` side by side, then `d`, which reads what both returned.
fn diamond() -> Workflow {
    let step = |after: &[&str], body: Value| json!({ "agent": "a", "after": after, "request": { "path": "/x", "body": body } });
    let reads = |step: &str| json!({ "before": format!("${{ steps.{step}.output.id }}") });
    let joined = json!({ "b": "${ steps.b.output.id }", "c": "${ steps.c.output.id }" });
    let steps = json!({
        "a": step(&[], json!("${ input }")),
        "b": step(&["a"], reads("a")),
        "c": step(&["a"], reads("a")),
        "d": step(&["b", "c"], joined),
    });
    serde_json::from_value(json!({ "name": "diamond", "version": 1, "steps": steps })).unwrap()
}

fn in_a_line(steps: usize) -> Case {
    Case::new(line(steps))
}

/// What the forecast counts of the same tasks.
async fn forecast_of(case: &Case) -> Report {
    let Case { workflow, input, output, .. } = case.clone();
    let everywhere = |value| vec![Said { at: At::All, value }];
    // Branches answer well apart, as in the ledger's batches: decisions that meet would race.
    let is_branch = workflow.steps.contains_key("c");
    let settings = Settings {
        runs: TASKS as u32,
        input: Some(input),
        output: everywhere(Json(output)),
        slow: is_branch.then(|| "c=5s".parse().unwrap()).into_iter().collect(),
        ..Settings::new(workflow)
    };
    tokio::task::spawn_blocking(move || forecast(settings, &|| {})).await.unwrap().unwrap()
}

fn figures(usage: &Usage) -> Figures {
    let Usage { write_units, read_units, sqs_requests, invocations, events, .. } = *usage;
    Cost { write_units, read_units, sqs_requests, invocations, events }.figures()
}

/// Counts a case, and says that the forecast counts the same, function by function.
async fn counted(case: Case) -> Costs {
    let costs = Box::pin(case.counted()).await;
    let report = Box::pin(forecast_of(&case)).await;
    let functions = report.ledger.functions.iter();
    let forecast: Vec<_> =
        functions.map(|entry| (entry.of.as_str(), figures(&entry.usage))).collect();
    let own = [
        ("submission", costs.submission.figures()),
        ("scheduler", costs.scheduler.figures()),
        ("agents", costs.agent.figures()),
    ];
    assert_eq!(forecast, own, "the forecast, and what was counted");
    costs
}

#[track_caller]
fn assert_costs(costs: Costs, submission: Figures, scheduler: Figures, agent: Figures) {
    let Costs { submission: one, scheduler: two, agent: three } = costs;
    assert_eq!([one, two, three].map(|cost| cost.figures()), [submission, scheduler, agent]);
}

const NONE: Figures = [0.0; 5];

#[tokio::test]
async fn a_task_of_one_step_costs_ten_write_units() {
    let one = counted(in_a_line(1)).await;
    assert_eq!(one.all().figures(), [10.0, 3.0, 1.1, 0.4, 0.0]);
    assert_costs(
        one,
        // The document and the task in one transaction, and an entry in the due index.
        [5.0, 0.0, 0.3, 0.1, 0.0],
        // The wake, and the answer: its document, the save, and the entry leaves the due index for that
        // of ended tasks.
        [5.0, 3.0, 0.5, 0.2, 0.0],
        [0.0, 0.0, 0.3, 0.1, 0.0],
    );
}

/// Targets for a step: at most 2 write units, 3 read units, 0.7 requests, 0.25 invocations; for a task
/// beside its steps: 8 write units.
#[tokio::test]
async fn each_step_up_to_the_twentieth_costs_the_same() {
    let (one, five) = (counted(in_a_line(1)).await, counted(in_a_line(5)).await);
    let twenty = counted(in_a_line(20)).await;
    for each in [one.each_of(4, five), five.each_of(15, twenty)] {
        assert_costs(each, NONE, [2.0, 2.0, 0.3, 0.1, 0.0], [0.0, 0.0, 0.3, 0.1, 0.0]);
    }
    let each = one.each_of(4, five);
    assert_eq!(each.all().figures(), [2.0, 2.0, 0.6, 0.2, 0.0]);
    for (steps, costs) in [(1, one), (20, twenty)] {
        let task = costs.beside(steps, each);
        assert_costs(task, [5.0, 0.0, 0.3, 0.1, 0.0], [3.0, 1.0, 0.2, 0.1, 0.0], NONE);
        assert_eq!(task.all().figures(), [8.0, 1.0, 0.5, 0.2, 0.0]);
    }
}

/// The item grows with each step that has begun, and a save costs a write unit for each KB of it: one
/// for twenty steps, 1.7 on average for the eighty after them.
#[tokio::test]
async fn saves_cost_more_beyond_twenty_steps_because_the_item_grows() {
    let (twenty, hundred) = (counted(in_a_line(20)).await, counted(in_a_line(100)).await);
    let each = twenty.each_of(80, hundred);
    assert_eq!(each.all().figures(), [2.713, 2.0, 0.6, 0.2, 0.0]);
}

/// But for what is read: there is nothing to begin after the first branch, so nothing is read for it.
#[tokio::test]
async fn a_diamond_costs_as_many_writes_as_a_sequence_of_as_many_steps() {
    let (diamond, line) = (counted(Case::new(diamond())).await, counted(in_a_line(4)).await);
    assert_eq!(diamond.all().figures(), [16.0, 7.0, 2.9, 1.0, 0.0]);
    assert_eq!(line.all().figures(), [16.0, 9.0, 2.9, 1.0, 0.0]);
}

/// Answers to one task that come in one batch are one decision: one load, one save, and what one of them
/// says need not be read for the other. Half as many tasks are in that batch, and so are their requests.
#[tokio::test]
async fn branches_that_reply_in_the_same_batch_share_a_save() {
    let apart = Case::new(diamond());
    let together = Case { answers: Answers::Together, ..apart.clone() };
    let saved = apart.counted().await.all() - together.counted().await.all();
    assert_eq!(saved.figures(), [1.0, 2.0, -0.1, 0.0, 0.0]);
}

#[tokio::test]
async fn lifecycle_events_cost_one_event_for_each_task() {
    let told = Workflow { lifecycle_events: true, ..line(1) };
    let (told, quiet) = (counted(Case::new(told)).await, counted(in_a_line(1)).await);
    let more = told.all() - quiet.all();
    assert_eq!(more.figures(), [0.0, 0.0, 0.0, 0.0, 1.0]);
}

/// Documents of 3 KB: the submission twice for its transaction, each output once; reads of up to 4 KB
/// cost no more.
#[tokio::test]
async fn larger_documents_cost_a_write_unit_for_each_kilobyte() {
    let large = |name: &str| json!({ name: "1", "text": "x".repeat(2_700) });
    let case = Case { input: large("n"), output: large("id"), ..in_a_line(5) };
    let more = counted(case).await.all() - counted(in_a_line(5)).await.all();
    assert_eq!(more.figures(), [2.0 * 2.0 + 5.0 * 2.0, 0.0, 0.0, 0.0, 0.0]);
}
