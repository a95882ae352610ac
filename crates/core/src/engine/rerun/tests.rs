use serde_json::{Value, json};

use super::*;
use crate::{
    engine::{
        effect::Effect,
        event::Event,
        graph::{PointOfNoReturn, point_of_no_return},
        tests::{TIMING, TaskDriver, at, completed, failed, new_command, reply},
    },
    model::{
        attempt::Action,
        messages::{ReplyOutcome, StepRequest},
        task::ProcessState,
    },
    submission::{
        accept,
        rerun::{check_kept, check_source},
    },
};

/// Three steps in a line, each with an undo. The last reads the output of the one before.
fn line(more: Value) -> Value {
    let call = |path: &str, body: &str| {
        json!({
            "agent": "shop", "request": { "path": path, "body": body },
            "undo": { "request": { "path": "/undo" } },
        })
    };
    let mut definition = json!({ "steps": {
        "reserve": call("/reserve", "${ input }"),
        "charge": call("/charge", ""),
        "ship": call("/ship", "${ steps.charge.output }"),
    } });
    definition["steps"]["charge"]["after"] = json!(["reserve"]);
    definition["steps"]["ship"]["after"] = json!(["charge"]);
    json_patch::merge(&mut definition, &more);
    definition
}

fn answer(driver: &mut TaskDriver, part: &str, outcome: ReplyOutcome) -> Vec<Effect> {
    driver.apply(&Event::ReplyReceived(reply(part, Action::Do, 1, outcome))).1
}

/// A task of [`line`] whose last step has failed.
fn stopped(more: Value) -> TaskDriver {
    let mut driver = TaskDriver::new(line(more), &json!({ "n": 1 }));
    driver.apply(&Event::Wake);
    answer(&mut driver, "reserve", completed(json!({ "id": 1 })));
    answer(&mut driver, "charge", completed(json!({ "paid": 2 })));
    answer(&mut driver, "ship", failed(false));
    assert_eq!(driver.task.process_state, ProcessState::Error);
    driver
}

fn rerun(from: Option<&str>) -> CommandAction {
    CommandAction::Rerun { id: None, from: from.map(|step| step.parse().unwrap()), version: None }
}

/// Carries the command out, and returns the task that it submits, with a driver of its own.
fn run_again(old: &mut TaskDriver, action: CommandAction) -> TaskDriver {
    let (_, effects) = old.apply(&new_command(action));
    let submitted = effects.into_iter().find_map(|effect| {
        let Effect::Submit(submission) = effect else { return None };
        Some(submission)
    });
    let submission = submitted.unwrap_or_else(|| panic!("{:?}", old.task.commands));
    let (task, separate) = accept(&submission, &old.plan, None, at(0), TIMING).unwrap();
    let stored = LoadedDocuments::from_iter(separate);
    let plan = old.plan.clone();
    TaskDriver { plan, task, stored, read: [].into(), now: 0, redelivered: false }
}

fn requests(effects: &[Effect]) -> Vec<&StepRequest> {
    let requests = effects.iter().filter_map(|effect| {
        let Effect::Request(request) = effect else { return None };
        Some(request)
    });
    requests.collect()
}

#[test]
fn kept_steps_are_not_called_and_later_steps_read_their_outputs() {
    let mut old = stopped(json!({}));
    let mut new = run_again(&mut old, rerun(Some("ship")));
    assert_eq!(new.task.task_id.as_str(), "t-rerun-1");
    assert_eq!(new.task.rerun.as_ref().unwrap().of.as_str(), "t");
    assert_eq!(old.task.reruns().map(TaskId::as_str).collect::<Vec<_>>(), ["t-rerun-1"]);
    assert!(!old.task.is_unresolved(), "whoever runs it again has settled its Error");

    let (_, effects) = new.apply(&Event::Wake);
    let sent = requests(&effects);
    let [ship] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(ship.step.to_string(), "ship");
    assert_eq!(ship.body.as_ref().unwrap().as_str(), r#"{"paid":2}"#);
    assert_eq!(ship.idempotency_key, "t-rerun-1/ship/do");
    answer(&mut new, "ship", completed(json!(3)));
    assert_eq!(new.task.process_state, ProcessState::Processed);
}

#[test]
fn the_undo_of_a_rerun_leaves_the_kept_effects_to_the_old_task() {
    let mut old = stopped(json!({}));
    let mut new = run_again(&mut old, rerun(Some("ship")));
    new.apply(&Event::Wake);
    answer(&mut new, "ship", completed(json!(3)));
    let (_, effects) = new.apply(&new_command(CommandAction::Undo));
    let steps: Vec<_> = requests(&effects).iter().map(|request| request.step.to_string()).collect();
    assert_eq!(steps, ["ship"]);
    new.apply(&Event::ReplyReceived(reply("ship", Action::Undo, 1, completed(Value::Null))));
    assert_eq!(new.task.process_state, ProcessState::Undone, "nothing else is left to undo");

    let (_, effects) = old.apply(&new_command(CommandAction::Undo));
    assert_eq!(requests(&effects)[0].step.to_string(), "charge", "the old task undoes its own");
}

#[test]
fn a_kept_point_of_no_return_is_passed() {
    let more = json!({ "steps": { "charge": { "point_of_no_return": true, "undo": null } } });
    let mut old = stopped(more);
    let mut new = run_again(&mut old, rerun(Some("ship")));
    new.apply(&Event::Wake);
    let passed = PointOfNoReturn::Passed("charge".parse().unwrap());
    assert_eq!(point_of_no_return(&new.plan, &new.task), passed);
    let refused = new.command("undo", CommandAction::Undo);
    assert_eq!(refused.unwrap(), "the task is past its point of no return, step charge");
}

#[test]
fn a_rerun_of_a_rerun_keeps_what_it_kept() {
    let mut old = stopped(json!({}));
    let mut first = run_again(&mut old, rerun(Some("ship")));
    first.apply(&Event::Wake);
    answer(&mut first, "ship", failed(false));
    let submission =
        rerun_submission(&first.plan, &first.task, &first.stored, &rerun(Some("ship")), at(1));
    let submission = submission.unwrap().unwrap();
    assert_eq!(submission.task_id.as_str(), "t-rerun-2");
    let kept = json!(submission.rerun.unwrap().kept);
    assert_eq!(kept, json!({ "reserve": { "id": 1 }, "charge": { "paid": 2 } }));
}

#[test]
fn a_step_with_items_is_kept_with_the_list_of_its_outputs() {
    let more =
        json!({ "steps": { "charge": { "for_each": { "items": "${ [1, 2] }" }, "undo": null } } });
    let mut old = TaskDriver::new(line(more), &json!({}));
    old.apply(&Event::Wake);
    answer(&mut old, "reserve", completed(json!(0)));
    answer(&mut old, "charge[0]", completed(json!("a")));
    answer(&mut old, "charge[1]", completed(json!("b")));
    answer(&mut old, "ship", failed(false));
    let mut new = run_again(&mut old, rerun(Some("ship")));
    let (_, effects) = new.apply(&Event::Wake);
    let sent = requests(&effects);
    assert_eq!(sent[0].body.as_ref().unwrap().as_str(), r#"["a","b"]"#);
}

#[test]
fn a_rerun_uses_the_newest_input() {
    let mut driver = TaskDriver::new(line(json!({})), &json!({ "n": 1 }));
    driver.apply(&Event::Wake);
    answer(&mut driver, "reserve", failed(false));
    let edit =
        CommandAction::Resubmit { step: None, input: Some(json!({ "n": 2 })), did_not_run: false };
    assert_eq!(driver.command("edit", edit), None);
    driver.apply(&Event::ReplyReceived(reply("reserve", Action::Do, 2, failed(false))));
    let mut new = run_again(&mut driver, rerun(None));
    let (_, effects) = new.apply(&Event::Wake);
    assert_eq!(requests(&effects)[0].body.as_ref().unwrap().as_str(), r#"{"n":2}"#);
    assert!(new.task.rerun.unwrap().kept.is_empty());
}

#[test]
fn outputs_that_are_too_large_together_are_not_kept() {
    let mut driver = TaskDriver::new(line(json!({})), &json!({}));
    driver.apply(&Event::Wake);
    let large = || completed(json!("x".repeat(100_000)));
    answer(&mut driver, "reserve", large());
    answer(&mut driver, "charge", large());
    answer(&mut driver, "ship", failed(false));
    let refused = driver.command("again", rerun(Some("ship"))).unwrap();
    assert!(refused.starts_with("a submission with the kept outputs of 200"), "{refused}");
    assert_eq!(driver.command("whole", rerun(None)), None);
}

#[test]
fn a_task_in_error_whose_other_branch_goes_on_is_not_run_again() {
    let more =
        json!({ "steps": { "ship": { "after": ["reserve"], "request": { "body": null } } } });
    let mut driver = TaskDriver::new(line(more), &json!({}));
    driver.apply(&Event::Wake);
    answer(&mut driver, "reserve", completed(json!(0)));
    answer(&mut driver, "charge", failed(false));
    let refused = driver.command("early", rerun(Some("charge"))).unwrap();
    assert!(refused.contains("what has started goes on"), "{refused}");
    answer(&mut driver, "ship", completed(json!(0)));
    assert_eq!(driver.command("late", rerun(Some("charge"))), None);
}

#[test]
fn a_document_that_is_missing_refuses_a_rerun_by_its_name() {
    let old = stopped(json!({}));
    let mut documents = old.stored.clone();
    let mut task = old.task.clone();
    task.documents = Default::default();
    let action = rerun(Some("ship"));
    let needed = rerun_submission(&old.plan, &task, &documents, &action, at(0)).unwrap_err();
    let names: Vec<_> = needed.0.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["submission", "step/charge/1/output", "step/reserve/1/output"]);
    needed.0.into_iter().for_each(|key| documents.mark_absent(key));
    let refused = rerun_submission(&old.plan, &task, &documents, &action, at(0)).unwrap();
    let reason = refused.unwrap_err();
    assert!(reason.contains("output` is missing: it has expired or was deleted"), "{reason}");
}

#[test]
fn a_version_that_differs_in_a_kept_step_is_refused() {
    let plan = |more: Value| -> Plan {
        let mut definition = line(more);
        definition["name"] = json!("w");
        definition["version"] = json!(2);
        serde_json::from_value(definition).unwrap()
    };
    let mut old = stopped(json!({}));
    let submission =
        rerun_submission(&old.plan, &old.task, &old.stored, &rerun(Some("ship")), at(0));
    let source = submission.unwrap().unwrap().rerun.unwrap();
    old.plan = plan(json!({}));
    let refusal = |target: Value| {
        let refused = check_kept(&source, Some(&old.plan), &plan(target)).err();
        refused.map(|refusal| refusal.to_string()).unwrap_or_default()
    };
    assert_eq!(refusal(json!({ "steps": { "ship": { "agent": "other" } } })), "");
    assert_eq!(
        refusal(json!({ "steps": { "charge": { "agent": "other" } } })),
        "step charge of task t is not kept: version 2 does it in another way"
    );
    let without = json!({ "steps": { "charge": { "after": [] }, "reserve": null } });
    let reason = "step reserve of task t is not kept: version 2 has no such step";
    assert_eq!(refusal(without), reason);
    let before = json!({ "agent": "shop", "request": { "path": "/check" } });
    assert_eq!(
        refusal(json!({ "steps": { "check": before, "reserve": { "after": ["check"] } } })),
        "step charge of task t is not kept: in version 2 it comes after check, which is to run"
    );
}

#[test]
fn a_submission_that_no_command_of_the_old_task_has_sent_is_refused() {
    let mut old = stopped(json!({}));
    let action = rerun(Some("ship"));
    let forged = rerun_submission(&old.plan, &old.task, &old.stored, &action, at(1));
    let forged = forged.unwrap().unwrap();
    let check = |submission: &Submission, old: Option<&Task>| {
        check_source(submission, submission.rerun.as_ref().unwrap(), old).is_ok()
    };
    assert!(!check(&forged, Some(&old.task)), "nobody has sent the command");
    assert!(!check(&forged, None));
    run_again(&mut old, action);
    assert!(check(&forged, Some(&old.task)));
    let other = Submission { tenant: "acme".parse().ok(), ..forged };
    assert!(!check(&other, Some(&old.task)), "the tenant is that of the old task");
}
