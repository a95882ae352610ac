//! A dry run of a command: makes the scheduler's decision without saving it and without sending its effects. The task may
//! change between the dry run and the scheduler's real decision.

use jiff::Timestamp;

use steward_core::{
    definition::{plan::Plan, step::StepWork},
    engine::{
        decision::{DecisionContext, Transition},
        documents::{LoadedDocuments, NeededDocuments},
        effect::Effect,
        event::Event,
        graph,
        transition::transition,
    },
    model::{
        attempt::Action,
        command::Command,
        document::Document,
        names::Part,
        step::{Progress, StepState},
        task::{ProcessState, Task},
        time::Timing,
    },
};

use crate::{capitalize, failure_reason::newest_reason, part_label};

/// The result of a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preview {
    /// The scheduler would refuse the command, for this reason.
    Refused(String),
    /// The scheduler would carry the command out, with these effects. Each is a sentence without its full stop, and
    /// contains no payload.
    Does(Vec<String>),
    /// It is not known whether the scheduler would carry the command out, for this reason. [`preview`] does not return it: its
    /// caller does, if it does not read all documents that the decision needs.
    Unknown(String),
}

/// Makes a dry run of `command` on `task`.
///
/// # Errors
/// The decision needs these documents too. Repeat the dry run with them.
pub fn preview(
    plan: &Plan,
    task: &Task,
    documents: &LoadedDocuments,
    command: &Command,
    now: Timestamp,
) -> Result<Preview, NeededDocuments> {
    let timing = Timing {
        pickup_within: std::time::Duration::ZERO,
        clock_skew: std::time::Duration::ZERO,
        retention: Timing::RETENTION,
    };
    let context = DecisionContext {
        now,
        actor: "preview",
        redelivered: false,
        lost_starts: None,
        timing,
        callback_urls: None,
    };
    let event = Event::CommandReceived(command.clone().for_dry_run());
    let decided = transition(plan, task, documents, &event, context)?;
    let Transition::Apply { task: next, effects, documents: written } = decided else {
        let reason = "the scheduler has already processed this command".to_owned();
        return Ok(Preview::Refused(reason));
    };
    let record = next.commands.last().filter(|record| record.id == command.command_id);
    Ok(match record.and_then(|record| record.refused.clone()) {
        Some(reason) => Preview::Refused(reason),
        None => {
            let changes =
                TaskChanges { plan, before: task, after: &next, documents: &written, now };
            Preview::Does(changes.sentences(&effects))
        }
    })
}

/// A task before and after a decision.
struct TaskChanges<'a> {
    plan: &'a Plan,
    before: &'a Task,
    after: &'a Task,
    /// The documents that the decision writes.
    documents: &'a [Document],
    now: Timestamp,
}

impl TaskChanges<'_> {
    fn sentences(&self, effects: &[Effect]) -> Vec<String> {
        let Self { before, after, .. } = self;
        let mut sentences = Vec::new();
        let moved = (before.process_state, after.process_state);
        if moved.0 != moved.1 {
            sentences.push(format!("The task goes from {} to {}", moved.0, moved.1));
        }
        match (before.paused_at, after.paused_at) {
            (None, Some(_)) => sentences.push(
                "Nothing starts until the task is resumed. Running attempts may complete"
                    .to_owned(),
            ),
            (Some(_), None) if !after.process_state.has_stopped() => {
                sentences.push(
                    "The task continues. Its deadline moves by the length of the pause".to_owned(),
                );
            }
            (Some(_) | None, _) => {}
        }
        if before.input_edit_id != after.input_edit_id {
            sentences.push(
                "Retried steps, and steps that start from now on, read the edited input. Completed steps \
                 stay as they are"
                    .to_owned(),
            );
        }
        sentences.extend(after.started_actions().filter_map(|(part, action, now)| {
            let before = before.progress(&part, action);
            let changed = before.is_none_or(|before| before.state != now.state);
            if changed { self.part_sentence(&part, action, now) } else { None }
        }));
        if moved.1 == ProcessState::Undoing {
            sentences.extend(self.undo_sentences());
        }
        if after.complete_by > before.complete_by && !after.process_state.has_stopped() {
            sentences.push(format!("The new deadline of the task is {:.0}", after.complete_by));
        }
        sentences.extend(effects.iter().filter_map(effect_sentence));
        if sentences.is_empty() {
            sentences.push("Nothing changes".to_owned());
        }
        sentences
    }

    /// What happens to a part; `None` if that is not worth a sentence.
    fn part_sentence(&self, part: &Part, action: Action, now: &Progress) -> Option<String> {
        let name = part_label(part, action);
        let definition = self.plan.steps.get(&part.step);
        let work =
            definition.and_then(|step| step.action(action)).map(|definition| definition.work);
        Some(match &now.state {
            StepState::Running { attempt, .. } => match work {
                Some(StepWork::Call { agents, .. }) => {
                    let agent = agents
                        .shown(self.after.record(part).and_then(|record| record.forward.agent));
                    format!("Agent {agent} gets a request for {name} (attempt {attempt})")
                }
                Some(StepWork::Child(child)) => {
                    format!("A task of workflow {} gets a request for {name}", child.name)
                }
                Some(StepWork::Event(wait)) => {
                    format!("{} waits for the event `{}`", capitalize(&name), wait.event.names())
                }
                Some(StepWork::Wait(_)) | None => return None,
            },
            StepState::RunningItems => format!("{} starts its items", capitalize(&name)),
            StepState::AwaitingCallback { .. } => return None,
            StepState::Waiting { .. } => format!("{} waits until it may start", capitalize(&name)),
            StepState::Completed { attempt: None } => format!("{} ends", capitalize(&name)),
            StepState::Completed { .. } => {
                format!("{} counts as completed, with the given output", capitalize(&name))
            }
            StepState::Skipped { .. } => format!("{} is skipped", capitalize(&name)),
            StepState::Failed { .. } => match newest_reason(self.documents, part, action) {
                Some(error) => format!("{} fails: {error}", capitalize(&name)),
                None => format!("{} fails without another attempt", capitalize(&name)),
            },
        })
    }

    /// Which steps are undone later, what their undos wait for, and which completed steps have no undo.
    fn undo_sentences(&self) -> Vec<String> {
        let Self { plan, after, .. } = self;
        let names = |parts: Vec<Part>| {
            let names: Vec<_> = parts.iter().map(Part::to_string).collect();
            names.join(", ")
        };
        let mut later = graph::outstanding(plan, after);
        later.retain(|part| after.progress(part, Action::Undo).is_none());
        let not_undone = after.started_parts().filter(|(part, record)| {
            let step = plan.steps.get(&part.step);
            let waits = step.is_some_and(|step| step.work().is_some_and(|work| work.is_wait()));
            let has_none = step.is_some_and(|step| step.action(Action::Undo).is_none());
            has_none && !waits && matches!(record.forward.state, StepState::Completed { .. })
        });
        let not_undone: Vec<_> = not_undone.map(|(part, _)| part).collect();
        let mut sentences = Vec::new();
        if !later.is_empty() {
            sentences.push(format!("Will then be undone: {}", names(later)));
        }
        for (part, record) in after.started_parts() {
            if let Some(until) =
                record.forward.in_progress(self.now).filter(|_| record.undo.is_none())
            {
                sentences.push(format!(
                    "A call of step {part} may still be in progress. Its undo, and the undos of earlier \
                     steps, wait until {until:.0}"
                ));
            }
        }
        if !not_undone.is_empty() {
            sentences.push(format!(
                "Will not be undone, because there is no undo: {}",
                names(not_undone)
            ));
        }
        sentences
    }
}

/// A notification or alert that the decision sends; `None` for every other effect.
fn effect_sentence(effect: &Effect) -> Option<String> {
    match effect {
        Effect::Notification { .. } => Some("The client is notified".to_owned()),
        Effect::ChildEnded(ended) => Some(format!("The parent task {} is notified", ended.task_id)),
        Effect::Publish(event) => event.alerted_end().map(|_| "An alert is sent".to_owned()),
        Effect::Submit(submission) if submission.rerun.is_some() => {
            Some(format!("Task {} is submitted", submission.task_id))
        }
        Effect::Request(_)
        | Effect::Submit(_)
        | Effect::AwaitEvent(_)
        | Effect::ParentRequest(_)
        | Effect::Reply(_)
        | Effect::Wake { .. }
        | Effect::Reject { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use steward_core::{
        model::{
            attempt::AttemptTimes,
            command::CommandAction,
            messages::{ReplyOutcome, StepReply},
        },
        submission::{accept, parse},
    };

    /// A task in Error whose `reserve` completed and whose `charge` failed; with its workflow and its documents.
    fn stopped() -> (Plan, Task, LoadedDocuments) {
        let call = |path: &str| json!({ "agent": "shop", "request": { "path": path } });
        let mut reserve = call("/reservations");
        reserve["undo"] = json!({ "request": { "path": "/releases" } });
        let mut charge = call("/charges");
        charge["after"] = json!(["reserve"]);
        charge["request"]["body"] = json!("${ steps.reserve.output }");
        charge["idempotent"] = json!(false);
        let mut ship = call("/parcels");
        ship["after"] = json!(["charge"]);
        let plan: Plan = serde_json::from_value(json!({
            "name": "order", "version": 1, "complete_within": "10m",
            "input": { "properties": { "amount": { "type": "integer" } } },
            "steps": { "reserve": reserve, "charge": charge, "ship": ship },
        }))
        .unwrap();
        let text =
            r#"{ "task_id": "t", "workflow": "order", "input": { "amount": 1 }, "reply_to": "q" }"#;
        let zero = std::time::Duration::ZERO;
        let timing = Timing { pickup_within: zero, clock_skew: zero, retention: Timing::RETENTION };
        let now = Timestamp::UNIX_EPOCH;
        let (mut task, submitted) =
            accept(&parse(text).unwrap(), &plan, None, now, timing).unwrap();
        let mut documents = LoadedDocuments::from_iter(submitted);
        let failed = ReplyOutcome::Failed {
            reason: "HTTP 402".to_owned(),
            may_have_run: true,
            call_in_doubt: false,
            detail: None,
        };
        let completed =
            ReplyOutcome::Completed { output: json!({ "secret": 1 }), may_continue: false };
        let reply = |step: &str, outcome| {
            Event::ReplyReceived(StepReply {
                task_id: "t".parse().unwrap(),
                step: step.parse().unwrap(),
                action: Action::Do,
                attempt: 1,
                outcome,
                incarnation: task.incarnation,
                times: AttemptTimes::default(),
                agent: None,
            })
        };
        let alert_sent = Event::AlertPublished { ended_at: now };
        for event in [Event::Wake, reply("reserve", completed), reply("charge", failed), alert_sent]
        {
            let context = DecisionContext {
                now,
                actor: "test",
                redelivered: false,
                lost_starts: None,
                timing,
                callback_urls: None,
            };
            match transition(&plan, &task, &documents, &event, context).unwrap() {
                Transition::Apply { task: next, documents: written, .. } => {
                    task = *next;
                    documents
                        .extend(written.into_iter().map(|document| (document.key, document.body)));
                }
                other @ (Transition::Ignore { .. } | Transition::Illegal(_)) => panic!("{other:?}"),
            }
        }
        (plan, task, documents)
    }

    fn command(action: CommandAction) -> Command {
        Command {
            command_id: "c-1".parse().unwrap(),
            task_id: "t".parse().unwrap(),
            by: "ann".to_owned(),
            why: "a test".to_owned(),
            action,
            issued_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn preview_of(action: CommandAction) -> Preview {
        preview_at(60, action)
    }

    /// The preview so many seconds after the submission. The call of the failed attempt may be in progress until second 120.
    fn preview_at(seconds: i64, action: CommandAction) -> Preview {
        let (plan, task, documents) = stopped();
        let now = Timestamp::from_second(seconds).unwrap();
        preview(&plan, &task, &documents, &command(action), now).unwrap()
    }

    fn does(sentences: &[&str]) -> Preview {
        Preview::Does(sentences.iter().map(|sentence| (*sentence).to_owned()).collect())
    }

    fn resubmit(input: Option<Value>, did_not_run: bool) -> CommandAction {
        CommandAction::Resubmit { step: None, input, did_not_run }
    }

    #[test]
    fn a_resubmit_says_what_is_retried() {
        assert_eq!(
            preview_at(180, resubmit(Some(json!({ "amount": 2 })), true)),
            does(&[
                "The task goes from Error to Processing",
                "Retried steps, and steps that start from now on, read the edited input. Completed steps \
                 stay as they are",
                "Agent shop gets a request for step charge (attempt 2)",
                "The new deadline of the task is 1970-01-01T00:13:00Z",
            ])
        );
    }

    #[test]
    fn a_command_that_would_be_refused_has_a_reason() {
        let Preview::Refused(reason) = preview_of(resubmit(None, false)) else { panic!() };
        assert!(reason.contains("may have taken effect"), "{reason}");
        let Preview::Refused(reason) = preview_of(resubmit(None, true)) else { panic!() };
        assert!(reason.contains("may be in progress until 1970-01-01T00:02:00Z"), "{reason}");
        let edited = preview_at(180, resubmit(Some(json!({ "amount": "x" })), true));
        let Preview::Refused(reason) = edited else { panic!() };
        assert_eq!(reason, "input.amount: it is not of type \"integer\"");
        assert_eq!(
            preview_of(CommandAction::Resume),
            Preview::Refused("the task is not paused".to_owned())
        );
        assert_eq!(
            preview_of(CommandAction::Cancel),
            Preview::Refused("the task is Error".to_owned())
        );
    }

    #[test]
    fn an_undo_says_what_is_undone_and_what_it_waits_for() {
        assert_eq!(
            preview_of(CommandAction::Undo),
            does(&[
                "The task goes from Error to Undoing",
                "Will then be undone: reserve",
                "A call of step charge may still be in progress. Its undo, and the undos of earlier steps, wait until 1970-01-01T00:02:00Z",
                "The new deadline of the task is 1970-01-01T00:12:00Z",
            ])
        );
    }

    #[test]
    fn a_skip_says_which_step_starts_next() {
        let skip = CommandAction::Skip { step: None, did_not_run: false };
        assert_eq!(
            preview_of(skip),
            does(&[
                "The task goes from Error to Processing",
                "Step charge is skipped",
                "Agent shop gets a request for step ship (attempt 1)",
                "The new deadline of the task is 1970-01-01T00:11:00Z",
            ])
        );
        let output = json!({ "secret": 2 });
        let complete = CommandAction::Complete { step: Some("charge".parse().unwrap()), output };
        let Preview::Does(sentences) = preview_of(complete) else { panic!() };
        assert_eq!(sentences[1], "Step charge counts as completed, with the given output");
    }

    #[test]
    fn a_decision_that_needs_another_document_says_which() {
        let (plan, mut task, _) = stopped();
        task.documents = Default::default();
        let now = Timestamp::from_second(180).unwrap();
        let action = command(resubmit(Some(json!({ "amount": 2 })), true));
        let needed = preview(&plan, &task, &LoadedDocuments::new(), &action, now).unwrap_err();
        let keys = ["submission", "step/reserve/1/output"].map(|key| key.parse().unwrap());
        assert_eq!(needed, NeededDocuments(keys.into()));
    }

    #[test]
    fn a_command_that_was_processed_is_not_previewed_again() {
        let (plan, mut task, documents) = stopped();
        let command = command(resubmit(None, true));
        let now = Timestamp::from_second(180).unwrap();
        let of = |task: &Task| preview(&plan, task, &documents, &command, now).unwrap();
        assert!(matches!(of(&task), Preview::Does(_)));
        let record = steward_core::model::command::CommandRecord {
            id: command.command_id.clone(),
            command: String::new(),
            by: String::new(),
            caller: command.clone().for_dry_run().caller,
            why: String::new(),
            at: now,
            refused: None,
            submitted: None,
        };
        task.commands.push(record);
        let again = of(&task);
        assert_eq!(
            again,
            Preview::Refused("the scheduler has already processed this command".to_owned())
        );
    }
}
