//! Forecasts of small workflows, and of the order workflow in `workflows/`.

mod ledger;

use std::time::Duration;

use serde_json::{Value, json};
use steward_core::definition::workflow::Workflow;

use super::{
    ForecastReport, ForecastSettings, StepOption, forecast, prices::TaskUsage,
    settings::ForecastError, step_options::OptionValue,
};

fn order() -> ForecastSettings {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workflows/order.yaml");
    let workflow = steward_definition_file::read_file(std::path::Path::new(file)).unwrap();
    ForecastSettings { runs: 50, ..ForecastSettings::new(workflow) }
}

fn workflow(name: &str, rest: Value) -> Workflow {
    let mut definition = json!({ "name": name, "version": 1 });
    definition.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    serde_json::from_value(definition).unwrap()
}

fn steps(steps: Value) -> ForecastSettings {
    ForecastSettings { runs: 50, ..ForecastSettings::new(workflow("w", json!({ "steps": steps }))) }
}

fn option<T: OptionValue>(text: &str) -> Vec<StepOption<T>> {
    vec![text.parse().unwrap()]
}

fn run(settings: ForecastSettings) -> ForecastReport {
    forecast(settings, &|| {}).unwrap()
}

fn error(settings: ForecastSettings) -> String {
    forecast(settings, &|| {}).unwrap_err().to_string()
}

fn count(report: &ForecastReport, state: &str) -> u64 {
    report.outcomes.iter().find(|outcome| outcome.state == state).map_or(0, |found| found.tasks)
}

fn step<'r>(report: &'r ForecastReport, name: &str) -> &'r super::StepSummary {
    report.steps.iter().find(|step| step.step == name).unwrap()
}

#[track_caller]
fn assert_usage(usage: &TaskUsage, writes: f64, reads: f64, requests: f64, invocations: f64) {
    let close = |one: f64, other: f64| (one - other).abs() < 1e-6;
    assert!(
        close(usage.write_units, writes)
            && close(usage.read_units, reads)
            && close(usage.sqs_requests, requests)
            && close(usage.invocations, invocations),
        "{usage:?}"
    );
}

/// The figures that `tests/cost.rs` counts for a task of one step on embedded DynamoDB and SQS, in full batches.
#[test]
fn a_task_of_one_step_has_the_usage_counted_by_dynamodb() {
    let body = json!({ "order": "${ task.id }", "input": "${ input }" });
    let one = json!({ "agent": "a", "request": { "path": "/x", "body": body } });
    let report = run(steps(json!({ "step_1": one })));
    assert_usage(&report.usage, 6.0, 2.0, 1.1, 0.4);
}

/// Each further step adds 1 write unit, 1 read unit, 0.6 requests and 0.2 invocations, as in `tests/cost.rs`. All documents
/// fit into the item of the task.
#[test]
fn the_order_has_the_usage_counted_by_dynamodb() {
    let report = run(order());
    assert_eq!(count(&report, "Processed"), 50);
    assert_usage(&report.usage, 8.0, 4.0, 2.3, 0.8);
    let dollars = report.dollars_per_million;
    assert!(dollars.total > 6.0 && dollars.total < 7.0, "{dollars:?}");
    assert!((dollars.dynamodb - 5.5).abs() < 1e-6, "{dollars:?}");
}

#[test]
fn without_faults_the_price_does_not_depend_on_the_seed() {
    let first = run(order());
    for seed in 1..6 {
        let other = run(ForecastSettings { seed, ..order() });
        let TaskUsage { write_units, read_units, sqs_requests, invocations, .. } = first.usage;
        assert_usage(&other.usage, write_units, read_units, sqs_requests, invocations);
        // The agents' time is random, and a small part of the price.
        let (one, two) = (first.dollars_per_million.total, other.dollars_per_million.total);
        assert!((one - two).abs() / one < 0.02, "{one} and {two}");
    }
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let settings = |seed| ForecastSettings {
        seed,
        fail: option("charge=20%"),
        flaky: option("*=20%"),
        silent: option("ship=10%"),
        ..order()
    };
    let json = |seed| serde_json::to_string(&run(settings(seed))).unwrap();
    assert_eq!(json(7), json(7));
    assert_ne!(json(7), json(8));
}

#[test]
fn a_step_that_always_fails_is_always_undone() {
    let report = run(ForecastSettings { fail: option("charge=100%"), ..order() });
    assert_eq!((count(&report, "Undone"), count(&report, "Processed")), (50, 0));
    assert_eq!((step(&report, "charge").failed, step(&report, "charge").retries), (50, 0));
    assert_eq!((step(&report, "reserve").undone, step(&report, "ship").started), (50, 0));
    assert_eq!((report.alerts, report.need_operator), (0, 0));
    assert_eq!(report.reasons[0].tasks, 50);
}

#[test]
fn a_quarter_of_failures_undoes_a_quarter_of_the_tasks() {
    let report = run(ForecastSettings { runs: 400, fail: option("charge=25%"), ..order() });
    let undone = count(&report, "Undone");
    assert!((80..=120).contains(&undone), "{undone}");
    assert_eq!(count(&report, "Processed") + undone, 400);
}

#[test]
fn an_undo_that_fails_needs_an_operator() {
    let settings = ForecastSettings {
        fail: option("charge=100%"),
        fail_undo: option("reserve=100%"),
        ..order()
    };
    let report = run(settings);
    assert_eq!(count(&report, "Error"), 50);
    assert_eq!((report.alerts, report.need_operator), (50, 50));
    assert_eq!(step(&report, "reserve").undo_failed, 50);
    assert!(report.usage.events >= 1.0);
}

#[test]
fn an_unanswered_attempt_is_repeated_after_its_complete_by() {
    let report = run(ForecastSettings { runs: 200, silent: option("charge=30%"), ..order() });
    let charge = step(&report, "charge");
    assert!(charge.attempts > 230 && charge.retries > 30, "{charge:?}");
    // The complete-by passes, and the supervisor sweeps every ten seconds.
    let processed = &report.outcomes[0];
    assert!(processed.max_ms > 10_000 && processed.p50_ms < 1_000, "{processed:?}");
}

#[test]
fn flaky_calls_are_repeated_within_an_attempt() {
    let report = run(ForecastSettings { runs: 200, flaky: option("charge=20%"), ..order() });
    let charge = step(&report, "charge");
    assert_eq!(count(&report, "Processed"), 200);
    assert!(charge.retries > 25 && charge.attempts == 200, "{charge:?}");
}

#[test]
fn the_median_duration_follows_from_the_latencies() {
    let report = run(ForecastSettings { runs: 400, slow: option("*=2s"), ..order() });
    // Three calls of two seconds on average.
    let p50 = report.outcomes[0].p50_ms;
    assert!((5_000..7_000).contains(&p50), "{p50}");
}

#[test]
fn a_call_that_times_out_is_repeated() {
    let call_timeout = Duration::from_secs(1);
    let report = run(ForecastSettings { slow: option("ship=3s"), call_timeout, ..order() });
    assert!(step(&report, "ship").retries > 50, "{:?}", step(&report, "ship"));
}

#[test]
fn tasks_wait_for_a_service_that_is_down() {
    let report = run(ForecastSettings { down: option("reserve=3m"), ..order() });
    assert_eq!(count(&report, "Processed"), 50);
    assert!(report.outcomes[0].p50_ms > 180_000, "{:?}", report.outcomes);
}

#[test]
fn a_callback_is_answered_after_the_given_time() {
    let request = json!({ "path": "/ask", "body": { "token": "${ callback.token }" } });
    let callback = json!({ "within": "2d", "heartbeat": "1h" });
    let approve = json!({ "approve": { "agent": "a", "request": request, "callback": callback } });
    let report = run(ForecastSettings { answer: option("approve=5h"), ..steps(approve.clone()) });
    assert_eq!(count(&report, "Processed"), 50);
    let hour = 3_600_000;
    let p50 = report.outcomes[0].p50_ms;
    assert!((4 * hour..6 * hour).contains(&p50), "{p50}");
    let silent = run(ForecastSettings { silent: option("approve=100%"), ..steps(approve.clone()) });
    assert_eq!(count(&silent, "Error"), 50);
    assert_eq!(
        error(ForecastSettings { answer: option("approve=30d"), ..steps(approve) }),
        "--answer approve: this takes 1440 heartbeats; the maximum is 1000"
    );
}

#[test]
fn inputs_and_outputs_are_generated_from_the_expressions() {
    let call = |body: Value| json!({ "path": "/x", "body": body });
    let report = run(steps(json!({
        "look": { "agent": "a", "request": call(json!("${ input.order.lines }")) },
        "gift": { "agent": "a", "after": ["look"], "when": "${ steps.look.output.is_gift }",
                  "request": call(json!("${ input.note + '!' }")) },
        "pack": { "agent": "a", "after": ["look"], "for_each": { "items": "${ input.lines }" },
                  "request": call(json!("${ item.sku }")) },
        "rest": { "after": ["pack"], "wait": "${ input.pause }" },
        "big": { "agent": "a", "after": ["rest"], "when": "${ input.amount > 50 }",
                 "request": call(json!("${ steps.pack.output[0].weight * 2 }")) },
    })));
    assert_eq!(count(&report, "Processed"), 50, "{:?}", report.reasons);
    let gift = step(&report, "gift");
    assert!(gift.skipped > 10 && gift.started > 10, "{gift:?}");
    assert_eq!((step(&report, "pack").started, step(&report, "big").started), (150, 50));
    assert!(report.outcomes[0].p50_ms > 60_000);
}

#[test]
fn an_expression_may_read_the_key_of_its_request() {
    // An index out of range, unless the key has the form that the request asks for.
    let body = "${ [1][request.idempotency_key.size() == 36 ? 0 : 1] }";
    let key = |form: &str| json!({ "path": "/${ request.idempotency_key }", "body": body, "idempotency_key": { "form": form } });
    let call =
        json!({ "agent": "a", "request": key("hash36"), "undo": { "request": key("uuid") } });
    assert_eq!(count(&run(steps(json!({ "call": call }))), "Processed"), 50);
}

#[test]
fn a_text_of_the_schema_is_one_that_the_functions_of_the_workflow_can_read() {
    let text = json!({ "type": "string" });
    let input = json!({ "type": "object", "required": ["price", "prices", "note", "paid"], "properties": {
        "price": text, "prices": { "type": "array", "items": text }, "note": text, "paid": text } });
    let body = json!({
        "price": "${ decimal.add(input.price, '1') }",
        "sum": "${ decimal.sum(input.prices) }",
        "note": "${ json.decode(input.note) }",
        "answer": "${ json.decode(steps.ask.output.answer) }",
        "paid": "${ time.parse(input.paid, '%d.%m.%Y', 'UTC') }",
    });
    let ask = json!({ "agent": "a", "request": { "path": "/x" } });
    let steps = json!({ "ask": ask, "call": { "agent": "a", "after": ["ask"], "request": { "path": "/x", "body": body } } });
    let settings = ForecastSettings::new(workflow("w", json!({ "input": input, "steps": steps })));
    assert_eq!(count(&run(ForecastSettings { runs: 5, ..settings }), "Processed"), 5);
}

#[test]
fn the_input_matches_the_schema() {
    let input = json!({ "type": "object", "required": ["amount", "tier"], "properties": {
        "amount": { "type": "integer", "maximum": 9 }, "tier": { "enum": ["gold"] } } });
    let request = json!({ "path": "/x", "body": "${ input.amount }" });
    let steps = json!({ "a": { "agent": "a", "request": request } });
    let settings = ForecastSettings::new(workflow("w", json!({ "input": input, "steps": steps })));
    assert_eq!(count(&run(ForecastSettings { runs: 5, ..settings.clone() }), "Processed"), 5);
    let wrong =
        ForecastSettings { input: Some(json!({ "amount": 10, "tier": "gold" })), ..settings };
    let found = error(wrong);
    assert!(found.starts_with("the input of workflow `w`: input.amount: "), "{found}");
}

fn parent() -> Workflow {
    let deliver = json!({ "workflow": { "name": "delivery", "input": { "to": "${ input.to }" } } });
    let request = json!({ "path": "/bill", "body": "${ steps.deliver.output.km }" });
    let bill = json!({ "agent": "a", "after": ["deliver"], "request": request });
    workflow("parent", json!({ "steps": { "deliver": deliver, "bill": bill } }))
}

#[test]
fn a_child_workflow_is_run_if_it_is_given_and_counts_as_a_call_if_not() {
    let outside = run(ForecastSettings {
        runs: 50,
        slow: option("deliver=1h"),
        ..ForecastSettings::new(parent())
    });
    assert_eq!(count(&outside, "Processed"), 50, "{:?}", outside.reasons);
    assert!(outside.outcomes[0].p50_ms > 2_400_000, "{:?}", outside.outcomes);
    let failing = run(ForecastSettings {
        runs: 20,
        fail: option("deliver=100%"),
        ..ForecastSettings::new(parent())
    });
    assert_eq!(count(&failing, "Processed"), 0);

    let fly = json!({ "agent": "drone", "request": { "path": "/fly", "body": "${ input.to }" } });
    let delivery = workflow(
        "delivery",
        json!({ "steps": { "fly": fly }, "output": { "km": "${ steps.fly.output.km }" } }),
    );
    let inside = |settings| ForecastSettings { with: vec![delivery.clone()], runs: 20, ..settings };
    let report = run(inside(ForecastSettings::new(parent())));
    assert_eq!(count(&report, "Processed"), 20, "{:?}", report.reasons);
    assert_eq!(step(&report, "delivery.fly").started, 20);
    let call = run(ForecastSettings { runs: 20, ..ForecastSettings::new(parent()) });
    assert!(report.usage.write_units > call.usage.write_units + 5.0, "{:?}", report.usage);
    let failing =
        ForecastSettings { fail: option("delivery.fly=100%"), ..ForecastSettings::new(parent()) };
    assert_eq!(count(&run(inside(failing)), "Processed"), 0);
    let wrong = ForecastSettings { fail: option("deliver=1%"), ..ForecastSettings::new(parent()) };
    assert_eq!(
        error(inside(wrong)),
        "--fail deliver: the workflow of this step is given: apply the option to one of its steps, as delivery.STEP"
    );
}

#[test]
fn an_option_that_does_not_apply_to_its_step_is_an_error() {
    assert_eq!(
        error(ForecastSettings { fail: option("chrage=5%"), ..order() }),
        "--fail chrage: this step does not exist; the steps are reserve, charge, ship; did you mean `charge`?"
    );
    let unlike = error(ForecastSettings { slow: option("zzz=5s"), ..order() });
    assert_eq!(unlike, "--slow zzz: this step does not exist; the steps are reserve, charge, ship");
    assert_eq!(
        error(ForecastSettings { answer: option("ship=5s"), ..order() }),
        "--answer ship: this step has no callback"
    );
    let wait = steps(json!({ "rest": { "wait": "5m" } }));
    assert_eq!(
        error(ForecastSettings { flaky: option("rest=5%"), ..wait.clone() }),
        "--flaky rest: this step calls no service"
    );
    assert_eq!(
        error(ForecastSettings { fail: option("rest=5%"), ..wait }),
        "--fail rest: this step is a wait"
    );
    let bare = steps(json!({ "a": { "agent": "a", "request": { "path": "/" } } }));
    assert_eq!(
        error(ForecastSettings { fail_undo: option("a=5%"), ..bare }),
        "--fail-undo a: this step has no undo"
    );
    assert_eq!(error(ForecastSettings { runs: 0, ..order() }), "--runs: must be from 1 to 100000");
    assert_eq!(error(ForecastSettings { batch: 11, ..order() }), "--batch: must be from 1 to 10");
    let twice = ForecastSettings { with: vec![order().workflow], ..order() };
    assert_eq!(error(twice), "--with: workflow `order` is given twice");
}

#[test]
fn an_option_that_cannot_be_parsed_is_an_error() {
    let share = |text: &str| text.parse::<StepOption<super::Share>>().unwrap_err().to_string();
    assert_eq!(share("charge"), "write STEP=5%, or *=5% for all steps");
    for bad in ["charge=101%", "charge=-1%", "charge=0.5", "charge=x%"] {
        let value = bad.trim_start_matches("charge=");
        let message =
            format!("`{value}` is not a share: write a percentage from 0% to 100%, such as 5%");
        assert_eq!(share(bad), message);
    }
    let span = "ship=2".parse::<StepOption<super::DurationValue>>().unwrap_err().to_string();
    assert_eq!(
        span,
        "`2` is not a duration: write a duration of at most 366d, such as 100ms, 2s, 10m or 1h"
    );
    let json = "ship={".parse::<StepOption<super::Json>>().unwrap_err().to_string();
    assert!(json.starts_with("not JSON: EOF"), "{json}");
}

#[test]
fn a_value_of_the_wrong_kind_is_an_error_with_its_location() {
    let ship = json!({ "agent": "a", "after": ["look"], "when": "${ steps.look.output.n > input.m }",
                       "request": { "path": "/x" } });
    let look = json!({ "agent": "a", "request": { "path": "/x" } });
    let settings = steps(json!({ "look": look, "ship": ship }));
    assert_eq!(count(&run(settings.clone()), "Processed"), 50);
    let wrong = ForecastSettings { output: option(r#"look={"n":"secret"}"#), ..settings.clone() };
    let found = error(wrong);
    assert!(found.starts_with("w: steps.ship.when: expression `steps.look.output.n > input.m`: "));
    assert!(found.ends_with("; use --output look=JSON or --input JSON"), "{found}");
    assert!(!found.contains("secret"), "{found}");
    let when = json!({ "agent": "a", "when": "${ input.a }", "request": { "path": "/x" } });
    let settings = steps(json!({ "a": when }));
    let wrong = ForecastSettings { input: Some(json!({ "a": "yes" })), ..settings };
    assert_eq!(
        error(wrong),
        "w: steps.a.when: expression `${ input.a }`: `when` must be true or false; use --input JSON"
    );
}

#[test]
fn batches_of_one_message_cost_more() {
    let report = run(ForecastSettings { batch: 1, ..order() });
    assert_usage(&report.usage, 8.0, 4.0, 23.0, 8.0);
    let error: ForecastError =
        forecast(ForecastSettings { batch: 0, ..order() }, &|| {}).unwrap_err();
    assert!(matches!(error, ForecastError::OutOfLimits { option: "batch", .. }));
}
