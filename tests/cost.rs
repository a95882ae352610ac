//! The AWS usage of a task: write units, read units, requests, invocations and events of each function, in steady load
//! with full batches. The figures are pinned, so that a change of the stored state is visible. They must equal the
//! forecast's figures, so that `steward cost` reports the same.

use serde_json::{Value, json};
use steward_core::{
    definition::workflow::Workflow,
    model::lifecycle::{LifecycleEventKind, LifecycleEventKinds},
};
use steward_forecast::cost::{
    ForecastReport, ForecastSettings, Json, StepOption, StepSelector, forecast, prices::TaskUsage,
};

use crate::support::sequential_workflow;

mod items;
mod usage;

use usage::{AwsUsage, ReplyBatching, RoundedUsage, TASKS, UsageByFunction, UsageScenario};

/// Step `a`, then `b` and `c` in parallel, then `d`, which reads the outputs of both.
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

fn sequence_of(steps: usize) -> UsageScenario {
    UsageScenario::new(sequential_workflow(steps))
}

/// The forecast for the same tasks.
async fn forecast_of(scenario: &UsageScenario) -> ForecastReport {
    let UsageScenario { workflow, input, output, .. } = scenario.clone();
    let everywhere = |value| vec![StepOption { at: StepSelector::All, value }];
    // The branches reply at different times, as in the measured batches: concurrent decisions would race.
    let is_branch = workflow.steps.contains_key("c");
    let settings = ForecastSettings {
        runs: TASKS as u32,
        input: Some(input),
        output: everywhere(Json(output)),
        slow: is_branch.then(|| "c=5s".parse().unwrap()).into_iter().collect(),
        ..ForecastSettings::new(workflow)
    };
    tokio::task::spawn_blocking(move || forecast(settings, &|| {})).await.unwrap().unwrap()
}

fn rounded(usage: &TaskUsage) -> RoundedUsage {
    let TaskUsage { write_units, read_units, sqs_requests, invocations, events, .. } = *usage;
    AwsUsage { write_units, read_units, sqs_requests, invocations, events }.rounded()
}

/// Measures a scenario, and asserts that the forecast has the same figures for each function.
async fn measured(scenario: UsageScenario) -> UsageByFunction {
    let costs = Box::pin(scenario.measure()).await;
    let report = Box::pin(forecast_of(&scenario)).await;
    let functions = report.ledger.functions.iter();
    let forecast: Vec<_> =
        functions.map(|entry| (entry.of.as_str(), rounded(&entry.usage))).collect();
    let measured = [
        ("submission", costs.submission.rounded()),
        ("scheduler", costs.scheduler.rounded()),
        ("agents", costs.agent.rounded()),
    ];
    assert_eq!(forecast, measured, "left: forecast, right: measured");
    costs
}

#[track_caller]
fn assert_costs(
    costs: UsageByFunction,
    submission: RoundedUsage,
    scheduler: RoundedUsage,
    agent: RoundedUsage,
) {
    let UsageByFunction { submission: one, scheduler: two, agent: three } = costs;
    assert_eq!([one, two, three].map(|cost| cost.rounded()), [submission, scheduler, agent]);
}

const NONE: RoundedUsage = [0.0; 5];

/// A value with a field of this name, of this many bytes as JSON.
fn document_of(bytes: usize, name: &str) -> Value {
    let text = |chars: usize| json!({ name: "1", "text": "x".repeat(chars) });
    text(bytes - text(0).to_string().len())
}

/// A sequence of steps whose input and outputs have this many bytes.
fn sequence_with_documents(steps: usize, bytes: usize) -> UsageScenario {
    let (input, output) = (document_of(bytes, "n"), document_of(bytes, "id"));
    UsageScenario { input, output, ..sequence_of(steps) }
}

#[tokio::test]
async fn a_task_of_one_step_costs_six_write_units() {
    let one = measured(sequence_of(1)).await;
    assert_eq!(one.all().rounded(), [6.0, 2.0, 1.1, 0.4, 0.0]);
    assert_costs(
        one,
        // The task with its submission, and an item in the due index.
        [2.0, 0.0, 0.3, 0.1, 0.0],
        // The wake, and the reply: the save, and the move from the due index to the index of ended tasks.
        [4.0, 2.0, 0.5, 0.2, 0.0],
        [0.0, 0.0, 0.3, 0.1, 0.0],
    );
}

/// Targets for documents of 100 bytes: a step costs 1 write unit and 1 read unit; a task without its steps 5 write units.
#[tokio::test]
async fn an_order_of_three_steps_with_small_documents_costs_eight_write_units() {
    let one = measured(sequence_with_documents(1, 100)).await;
    let three = measured(sequence_with_documents(3, 100)).await;
    assert_eq!(three.all().rounded(), [8.0, 4.0, 2.3, 0.8, 0.0]);
    let each = one.per_additional_step(2, three);
    assert_costs(each, NONE, [1.0, 1.0, 0.3, 0.1, 0.0], [0.0, 0.0, 0.3, 0.1, 0.0]);
    let task = three.without_steps(3, each);
    assert_costs(task, [2.0, 0.0, 0.3, 0.1, 0.0], [3.0, 1.0, 0.2, 0.1, 0.0], NONE);
    assert_eq!(task.all().rounded(), [5.0, 1.0, 0.5, 0.2, 0.0]);
}

/// Documents of 100 bytes fit into the item of a task of three steps. A separate document costs a write unit, and a
/// read unit if a step reads it. A separate submission costs three.
#[tokio::test]
async fn documents_beyond_the_first_kilobyte_cost_a_write_unit_each() {
    let mut found = Vec::new();
    for steps in [1, 3, 4, 5, 10, 20] {
        let [written, read, ..] =
            measured(sequence_with_documents(steps, 100)).await.all().rounded();
        found.push((steps, written, read));
    }
    let expected = [(1, 6.0, 2.0), (3, 8.0, 4.0), (4, 10.0, 5.0), (5, 12.0, 6.0)];
    assert_eq!(found[..4], expected);
    assert_eq!(found[4..], [(10, 23.0, 11.0), (20, 44.0, 21.0)]);
}

/// Each label is one write unit of the submission. With labels, the submission reads the task first.
#[tokio::test]
async fn a_label_costs_a_write_unit() {
    for (labels, expected) in [
        (json!({}), [6.0, 2.0]),
        (json!({ "n": "${ input.n }" }), [7.0, 3.0]),
        (json!({ "n": "${ input.n }", "none": "${ input.none }" }), [7.0, 3.0]),
        (json!({ "n": "${ input.n }", "task": "${ task.id }" }), [8.0, 3.0]),
    ] {
        let mut definition = serde_json::to_value(sequential_workflow(1)).unwrap();
        definition["labels"] = labels;
        let workflow = serde_json::from_value(definition).unwrap();
        let costs = measured(UsageScenario::new(workflow)).await;
        let [written, read, requests, ..] = costs.all().rounded();
        assert_eq!(([written, read], requests), (expected, 1.1));
    }
}

/// A task of one step with an input or an output of this many bytes.
fn one_step_with(bytes: usize, is_input: bool) -> UsageScenario {
    let of = |is_long: bool, name| document_of(if is_long { bytes } else { 20 }, name);
    UsageScenario { input: of(is_input, "n"), output: of(!is_input, "id"), ..sequence_of(1) }
}

/// Up to the largest document that fits, no save makes the item exceed its kilobyte. One byte more is a separate document:
/// an input makes the submission a transaction, which costs twice, and an output costs a write unit. Beside a large input, the
/// small output does not fit.
#[tokio::test]
async fn a_byte_beyond_the_first_kilobyte_costs_a_separate_document() {
    let (in_item, output_apart, input_apart) = ([2.0, 4.0], [2.0, 5.0], [5.0, 4.0]);
    for (is_input, inline, apart) in
        [(true, vec![in_item, output_apart], input_apart), (false, vec![in_item], output_apart)]
    {
        let is_inline = async |bytes| {
            let costs = Box::pin(one_step_with(bytes, is_input).measure()).await;
            let found = [costs.submission, costs.scheduler].map(|cost| cost.rounded()[0]);
            assert!(inline.contains(&found) || found == apart, "{bytes} bytes cost {found:?}");
            found != apart
        };
        let (mut largest, mut too_large) = (20, 1_024);
        while largest + 1 < too_large {
            let middle = usize::midpoint(largest, too_large);
            if is_inline(middle).await { largest = middle } else { too_large = middle }
        }
        assert!(largest > 300, "the item has room for more than {largest} bytes");
        for below in 1..10 {
            assert!(is_inline(largest - below).await, "{below} bytes below the limit");
        }
    }
}

/// The item grows with each step that has begun, and a save costs a write unit for each KB: one for up to twenty steps,
/// 1.7 on average for the next eighty. Each document is separate.
#[tokio::test]
async fn saves_cost_more_beyond_twenty_steps_because_the_item_grows() {
    let twenty = measured(sequence_with_documents(20, 100)).await;
    let hundred = measured(sequence_with_documents(100, 100)).await;
    let each = twenty.per_additional_step(80, hundred);
    assert_eq!(each.all().rounded(), [2.763, 2.25, 0.6, 0.2, 0.0]);
}

/// The diamond has fewer reads: the reply of the first branch starts no step.
#[tokio::test]
async fn a_diamond_costs_as_many_writes_as_a_sequence_of_as_many_steps() {
    let (diamond, sequence) =
        (measured(UsageScenario::new(diamond())).await, measured(sequence_of(4)).await);
    assert_eq!(diamond.all().rounded(), [9.0, 5.0, 2.9, 1.0, 0.0]);
    assert_eq!(sequence.all().rounded(), [9.0, 5.0, 2.9, 1.0, 0.0]);
}

/// Replies for one task in the same batch are one decision: one load and one save. Such a batch has half as many tasks, and half as many of their requests.
#[tokio::test]
async fn branches_that_reply_in_the_same_batch_share_a_save() {
    let separate = UsageScenario::new(diamond());
    let shared = UsageScenario { replies: ReplyBatching::SameBatch, ..separate.clone() };
    let saved = separate.measure().await.all() - shared.measure().await.all();
    assert_eq!(saved.rounded(), [1.0, 1.0, -0.1, 0.0, 0.0]);
}

#[tokio::test]
async fn each_lifecycle_event_is_one_event_and_nothing_else() {
    let ends: LifecycleEventKinds = LifecycleEventKind::ENDS.into_iter().collect();
    let all: LifecycleEventKinds = LifecycleEventKind::ALL.into_iter().collect();
    for (steps, lifecycle_events, events) in [(1, ends, 1.0), (1, all.clone(), 3.0), (3, all, 5.0)]
    {
        let with_events = Workflow { lifecycle_events, ..sequential_workflow(steps) };
        let (with, without) =
            (measured(UsageScenario::new(with_events)).await, measured(sequence_of(steps)).await);
        let more = with.all() - without.all();
        assert_eq!(more.rounded(), [0.0, 0.0, 0.0, 0.0, events]);
    }
}

/// Documents that do not fit into the item: the submission costs twice because of its transaction, each output once.
/// Reads of up to 4 KB cost the same.
#[tokio::test]
async fn larger_documents_cost_a_write_unit_for_each_kilobyte() {
    let one_kilobyte = measured(sequence_with_documents(5, 1_000)).await;
    assert_eq!(one_kilobyte.all().rounded(), [25.0, 11.0, 3.5, 1.2, 0.0]);
    let three_kilobytes = measured(sequence_with_documents(5, 2_700)).await;
    let more = three_kilobytes.all() - one_kilobyte.all();
    assert_eq!(more.rounded(), [2.0 + 5.0, 0.0, 0.0, 0.0, 0.0]);
}
