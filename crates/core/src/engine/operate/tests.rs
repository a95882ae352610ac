use super::*;
use crate::{
    definition::plan::Plan,
    engine::{
        decision::{DecisionContext, Transition},
        documents::LoadedDocuments,
        event::Event,
        transition::transition,
    },
    model::{
        attempt::{Action, AttemptTimes},
        messages::{ReplyOutcome, StepReply},
        time::Timing,
    },
    submission::{accept, parse},
};
use serde_json::json;
use std::time::Duration;

/// Applies the decision on an event to the task and its documents.
fn apply_event(plan: &Plan, task: &mut Task, documents: &mut LoadedDocuments, event: &Event) {
    let timing = Timing {
        pickup_within: Duration::ZERO,
        clock_skew: Duration::ZERO,
        retention: Timing::RETENTION,
    };
    let now = jiff::Timestamp::UNIX_EPOCH;
    let context = DecisionContext {
        now,
        actor: "test",
        redelivered: false,
        lost_starts: None,
        timing,
        callback_urls: None,
    };
    match transition(plan, task, documents, event, context).unwrap() {
        Transition::Apply { task: next, documents: new, .. } => {
            *task = *next;
            documents.extend(new.into_iter().map(|document| (document.key, document.body)));
        }
        ignored @ (Transition::Ignore { .. } | Transition::Illegal(_)) => panic!("{ignored:?}"),
    }
}

#[test]
fn edits_that_together_exceed_the_document_limit_are_refused() {
    let plan: Plan = serde_json::from_value(json!({
        "name": "w", "version": 1,
        "steps": { "a": { "agent": "a", "request": { "path": "/a" } } },
    }))
    .unwrap();
    let submission = parse(r#"{ "task_id": "t", "workflow": "w", "input": {} }"#).unwrap();
    let timing = Timing {
        pickup_within: Duration::ZERO,
        clock_skew: Duration::ZERO,
        retention: Timing::RETENTION,
    };
    let now = jiff::Timestamp::UNIX_EPOCH;
    let (mut task, document) = accept(&submission, &plan, None, now, timing);
    let mut documents = LoadedDocuments::from_iter(document);
    apply_event(&plan, &mut task, &mut documents, &Event::Wake);
    for (attempt, edit) in [(1, "first"), (2, "second")] {
        let outcome = ReplyOutcome::Failed {
            reason: "no".to_owned(),
            may_have_run: false,
            call_in_doubt: false,
            detail: None,
        };
        let (task_id, step) = (task.task_id.clone(), "a".parse().unwrap());
        let reply = StepReply {
            task_id,
            step,
            action: Action::Do,
            attempt,
            outcome,
            incarnation: task.incarnation,
            times: AttemptTimes::default(),
            agent: None,
        };
        apply_event(&plan, &mut task, &mut documents, &Event::ReplyReceived(reply));
        let patch = json!({ edit: "x".repeat(limits::DOCUMENT_BYTES_MAX * 2 / 3) });
        let action = CommandAction::Resubmit { step: None, input: Some(patch), did_not_run: false };
        let (command_id, task_id) = (edit.parse().unwrap(), task.task_id.clone());
        let (by, why) = ("ann".to_owned(), "a test".to_owned());
        let command = Command { command_id, task_id, by, why, action, issued_at: now };
        apply_event(
            &plan,
            &mut task,
            &mut documents,
            &Event::CommandReceived(command.received_from("AIDAANN".parse().unwrap())),
        );
    }
    let refused: Vec<_> = task.commands.iter().map(|record| record.refused.as_deref()).collect();
    let reason = "an edited input of 174786 bytes; the limit is 131072";
    assert_eq!(refused, [None, Some(reason)]);
    assert_eq!(task.input_edit_id, Some("first".parse().unwrap()));
    assert_eq!(task.process_state, ProcessState::Error);
}

#[test]
fn an_old_command_whose_record_was_dropped_is_not_executed_again() {
    let plan: Plan = serde_json::from_value(json!({
        "name": "w", "version": 1,
        "steps": { "a": { "agent": "a", "request": { "path": "/a" } } },
    }))
    .unwrap();
    let submission = parse(r#"{ "task_id": "t", "workflow": "w" }"#).unwrap();
    let timing = Timing {
        pickup_within: Duration::ZERO,
        clock_skew: Duration::ZERO,
        retention: Timing::RETENTION,
    };
    let at = |second| Timestamp::from_second(second).unwrap();
    let (mut task, document) = accept(&submission, &plan, None, at(0), timing);
    let mut documents = LoadedDocuments::from_iter(document);
    let mut command = |id: String, action, issued_at: i64, now: i64| {
        let (by, why) = ("ann".to_owned(), "a test".to_owned());
        let (command_id, task_id) = (id.parse().unwrap(), task.task_id.clone());
        let issued_at = at(issued_at);
        let command = Command { command_id, task_id, by, why, action, issued_at };
        let event = Event::CommandReceived(command.received_from("AIDAANN".parse().unwrap()));
        let context = DecisionContext {
            now: at(now),
            actor: "test",
            redelivered: false,
            lost_starts: None,
            timing,
            callback_urls: None,
        };
        let decided = transition(&plan, &task, &documents, &event, context).unwrap();
        let Transition::Apply { task: next, documents: new, .. } = decided else { panic!() };
        documents.extend(new.into_iter().map(|document| (document.key, document.body)));
        task = *next;
        (task.paused_at.is_some(), task.commands.last().unwrap().refused.clone())
    };
    assert_eq!(command("first".to_owned(), CommandAction::Pause, 1, 2), (true, None));
    for n in 0..20 {
        let action = if n % 2 == 0 { CommandAction::Resume } else { CommandAction::Pause };
        let refused = command(format!("c-{n}"), action, 10 + n, 11 + n).1;
        assert_eq!(refused, None, "a new command is executed");
    }
    assert_eq!(command("newest".to_owned(), CommandAction::Resume, 40, 41), (false, None));
    let (paused, refused) = command("first".to_owned(), CommandAction::Pause, 1, 50);
    assert!(!paused, "the first command was executed again");
    assert!(refused.unwrap().contains("may have been executed"));
}

#[test]
fn an_edit_that_violates_the_schema_is_refused() {
    let plan: Plan = serde_json::from_value(json!({
        "name": "w", "version": 1, "input": { "required": ["n"], "properties": { "n": { "type": "integer" } } },
        "steps": { "a": { "agent": "a", "request": { "path": "/a" } } },
    }))
    .unwrap();
    let submission = parse(r#"{ "task_id": "t", "workflow": "w", "input": { "n": 1 } }"#).unwrap();
    let timing = Timing {
        pickup_within: Duration::ZERO,
        clock_skew: Duration::ZERO,
        retention: Timing::RETENTION,
    };
    let now = jiff::Timestamp::UNIX_EPOCH;
    let (mut task, document) = accept(&submission, &plan, None, now, timing);
    let mut documents = LoadedDocuments::from_iter(document);
    apply_event(&plan, &mut task, &mut documents, &Event::Wake);
    let outcome = ReplyOutcome::Failed {
        reason: "no".to_owned(),
        may_have_run: false,
        call_in_doubt: false,
        detail: None,
    };
    let (task_id, step) = (task.task_id.clone(), "a".parse().unwrap());
    let reply = StepReply {
        task_id,
        step,
        action: Action::Do,
        attempt: 1,
        outcome,
        incarnation: task.incarnation,
        times: AttemptTimes::default(),
        agent: None,
    };
    apply_event(&plan, &mut task, &mut documents, &Event::ReplyReceived(reply));
    let input = Some(json!({ "n": "secret" }));
    let action = CommandAction::Resubmit { step: None, input, did_not_run: false };
    let (command_id, task_id) = ("edit".parse().unwrap(), task.task_id.clone());
    let (by, why) = ("ann".to_owned(), "a test".to_owned());
    let command = Command { command_id, task_id, by, why, action, issued_at: now };
    apply_event(
        &plan,
        &mut task,
        &mut documents,
        &Event::CommandReceived(command.received_from("AIDAANN".parse().unwrap())),
    );
    let refused = task.commands[0].refused.as_deref();
    assert_eq!(refused, Some("input.n: it is not of type \"integer\""));
    assert_eq!(task.process_state, ProcessState::Error);
}
