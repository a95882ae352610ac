use super::*;
use serde_json::{Value, json};

fn workflow(steps: Value) -> Result<Workflow, String> {
    serde_json::from_value(json!({ "name": "w", "version": 1, "steps": steps }))
        .map_err(|error| error.to_string())
}

fn problems(steps: Value) -> Vec<String> {
    workflow(steps).unwrap().problems().iter().map(ToString::to_string).collect()
}

fn step(after: &[&str]) -> Value {
    json!({ "agent": "a", "after": after, "request": { "path": "/" } })
}

#[test]
fn a_diamond_has_no_problems() {
    let steps = json!({
        "a": step(&[]), "b": step(&["a"]), "c": step(&["a"]), "d": step(&["b", "c"]),
    });
    assert_eq!(problems(steps), Vec::<String>::new());
}

#[test]
fn a_cycle_is_reported_with_its_steps() {
    let steps = json!({
        "z": step(&[]), "a": step(&["c", "z"]), "b": step(&["a"]), "c": step(&["b"]),
    });
    assert_eq!(problems(steps), ["steps: these steps wait for each other: a → b → c → a"]);
    let alone = json!({ "a": step(&["a"]) });
    assert_eq!(problems(alone), ["steps: these steps wait for each other: a → a"]);
}

#[test]
fn unknown_and_repeated_predecessors_are_reported() {
    let steps = json!({ "a": step(&[]), "b": step(&["x"]), "c": step(&["a", "a"]) });
    assert_eq!(
        problems(steps),
        [
            "steps.b.after.0: there is no step `x`; there are `a`, `b` and `c`",
            "steps.c.after.1: `a` is listed twice",
        ]
    );
}

#[test]
fn a_step_reads_only_what_comes_before_it() {
    let mut later = step(&[]);
    later["request"]["body"] = json!("${ steps.b.output }");
    let steps = json!({ "a": later, "b": step(&["a"]) });
    assert_eq!(
        problems(steps),
        [
            "steps.a.request.body: `steps.b.output`: step `b` does not come before this one; add `b` to `after`"
        ]
    );
}

#[test]
fn sizes_and_times_have_limits() {
    let mut slow = step(&[]);
    slow["complete_within"] = json!("31d");
    slow["recovery"] = json!({ "attempts": 0 });
    assert_eq!(
        problems(json!({ "a": slow })),
        [
            "steps.a.complete_within: must be from 100ms to 30d",
            "steps.a.recovery.attempts: must be from 1 to 100",
        ]
    );
    assert_eq!(problems(json!({})), ["steps: a workflow needs at least one step"]);
}

#[test]
fn a_trigger_on_events_of_its_own_tasks_is_refused() {
    for (detail_type, lifecycle_events, problem) in [
        (
            "Submission Refused",
            json!([]),
            Some(
                "a refused submission would publish the event that triggers it again, in an endless loop",
            ),
        ),
        (
            "steward.step.failed",
            json!(["submitted", "step_failed"]),
            Some(
                "each task would publish the event that submits another task, in an endless loop: remove `step_failed` from `lifecycle_events`",
            ),
        ),
        (
            "steward.task.undone",
            json!(["undone"]),
            Some(
                "each task would publish the event that submits another task, in an endless loop: remove `undone` from `lifecycle_events`",
            ),
        ),
        ("steward.step.failed", json!(["undone"]), None),
        ("Task In Error", json!(["error"]), None),
    ] {
        let workflow: Workflow = serde_json::from_value(json!({
            "name": "w", "version": 1, "lifecycle_events": lifecycle_events,
            "trigger": { "source": "steward", "detail_type": detail_type },
            "steps": { "a": step(&[]) },
        }))
        .unwrap();
        let found: Vec<_> = workflow.problems().iter().map(ToString::to_string).collect();
        let expected: Vec<_> =
            problem.iter().map(|message| format!("trigger: {message}")).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn an_unknown_key_is_refused() {
    let mut wrong = step(&[]);
    wrong["atempts"] = json!(3);
    let error = workflow(json!({ "a": wrong })).unwrap_err();
    assert!(error.starts_with("unknown field `atempts`, expected one of"), "{error}");
}

#[test]
fn the_default_time_limit_of_a_call_does_not_apply_to_child_tasks() {
    let workflow: Workflow = serde_json::from_value(json!({
        "name": "w", "version": 1, "defaults": {
            "complete_within": "5s", "recovery": { "attempts": 7 }, "undo": { "complete_within": "6s" },
        },
        "steps": {
            "call": step(&[]), "task": { "workflow": { "name": "x" } }, "pause": { "wait": "1m" },
        },
    }))
    .unwrap();
    assert_eq!(workflow.problems(), []);
    let within = |name: &str, action| workflow.steps[name].action(action).unwrap().complete_within;
    assert_eq!(within("call", Action::Do), Duration::from_secs(5));
    assert_eq!(within("task", Action::Do), Duration::from_secs(86_400));
    assert_eq!(within("task", Action::Undo), Duration::from_secs(86_400));
    assert_eq!(workflow.steps["task"].recovery.attempts.0, 7);
}

#[test]
fn durations_are_human_readable() {
    let mut quick = step(&[]);
    quick["complete_within"] = json!("1m 30s");
    let workflow = workflow(json!({ "a": quick })).unwrap();
    assert_eq!(workflow.shortest_deadline(), Duration::from_secs(90));
    assert_eq!(workflow.complete_within, Duration::from_secs(86_400));
}

/// An agent of its own may speak an older contract, as it evaluates no `output`.
#[test]
fn the_agent_of_an_undo_needs_no_contract_that_only_the_step_needs() {
    let request = json!({ "path": "/" });
    let undo = json!({ "agent": "refund", "request": request });
    let paid =
        json!({ "agent": "pay", "request": request, "output": "${ response.body }", "undo": undo });
    let shipped = json!({ "agent": "ship", "request": request, "undo": { "request": request } });
    let workflow = workflow(json!({ "a": paid, "b": shipped })).unwrap();
    let agents = workflow.agents();
    let agents: Vec<_> = agents.iter().map(|(agent, needed)| (agent.as_str(), *needed)).collect();
    assert_eq!(agents, [("pay", 2), ("refund", 1), ("ship", 1)]);
}
