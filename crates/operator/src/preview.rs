//! What a command would do, told before it is sent: the decision itself, of which nothing is saved and
//! nothing carried out. By the time the scheduler decides, the task may have moved on.

use jiff::Timestamp;
use steward_core::definition::plan::Plan;

use crate::view::newest_reason;
use steward_core::{
    definition::step::Work,
    engine::{
        decision::{Context, Transition},
        documents::{Documents, Wanted},
        effect::Effect,
        event::Event,
        order,
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

/// What a command would come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preview {
    /// It would be refused, for this reason.
    Refused(String),
    /// It would do this, in words: each a sentence without its full stop. Never a value.
    Does(Vec<String>),
}

/// Tries `command` on `task`. `documents` are all of the task's, and gain those that do not exist.
#[must_use]
pub fn preview(
    workflow: &Plan,
    task: &Task,
    documents: &mut Documents,
    command: &Command,
    now: Timestamp,
) -> Preview {
    let timing = Timing {
        pickup_within: std::time::Duration::ZERO,
        clock_skew: std::time::Duration::ZERO,
        retention: Timing::RETENTION,
    };
    let context = Context { now, actor: "preview", redelivered: false, timing };
    let event = Event::Commanded(command.clone());
    let decided = loop {
        match transition(workflow, task, documents, &event, context) {
            Ok(decided) => break decided,
            Err(Wanted(keys)) => keys.into_iter().for_each(|key| documents.note_missing(key)),
        }
    };
    let Transition::Apply { task: next, effects, documents: made } = decided else {
        return Preview::Refused("it was decided on before".to_owned());
    };
    let record = next.commands.last().filter(|record| record.id == command.command_id);
    match record.and_then(|record| record.refused.clone()) {
        Some(reason) => Preview::Refused(reason),
        None => Preview::Does(
            Words { workflow, before: task, after: &next, documents: &made, now }.all(&effects),
        ),
    }
}

/// A task before and after.
struct Words<'a> {
    workflow: &'a Plan,
    before: &'a Task,
    after: &'a Task,
    /// What the decision puts down.
    documents: &'a [Document],
    now: Timestamp,
}

impl Words<'_> {
    fn all(&self, effects: &[Effect]) -> Vec<String> {
        let Self { before, after, .. } = self;
        let mut said = Vec::new();
        let moved = (before.process_state, after.process_state);
        if moved.0 != moved.1 {
            said.push(format!("The task goes from {} to {}", moved.0, moved.1));
        }
        match (before.paused_at, after.paused_at) {
            (None, Some(_)) => said.push(
                "Nothing starts until the task is resumed; an agent at work is waited for"
                    .to_owned(),
            ),
            (Some(_), None) if !after.process_state.is_final() => {
                said.push("The task goes on; the pause does not count".to_owned());
            }
            (Some(_) | None, _) => {}
        }
        if before.input != after.input {
            said.push(
                "The input changes, for what is tried again and for what starts from now on; what \
                 completed stays as it is"
                    .to_owned(),
            );
        }
        said.extend(after.actions().filter_map(|(part, action, now)| {
            let before = before.progress(&part, action);
            let changed = before.is_none_or(|before| before.state != now.state);
            if changed { self.of_part(&part, action, now) } else { None }
        }));
        if moved.1 == ProcessState::Undoing {
            said.extend(self.of_undo());
        }
        if after.complete_by > before.complete_by && !after.process_state.is_final() {
            said.push(format!("The task has until {:.0}", after.complete_by));
        }
        said.extend(effects.iter().filter_map(of_effect));
        if said.is_empty() {
            said.push("Nothing changes".to_owned());
        }
        said
    }

    fn of_part(&self, part: &Part, action: Action, now: &Progress) -> Option<String> {
        let name = match action {
            Action::Do => format!("step {part}"),
            Action::Undo => format!("the undo of step {part}"),
        };
        let definition = self.workflow.steps.get(&part.step);
        let work =
            definition.and_then(|step| step.action(action)).map(|definition| definition.work);
        Some(match &now.state {
            StepState::Running { attempt, .. } => match work {
                Some(Work::Call { agent, .. }) => {
                    format!("Agent {agent} is asked for {name}, attempt {attempt}")
                }
                Some(Work::Child(child)) => {
                    format!("A task of workflow {} is asked for {name}", child.name)
                }
                Some(Work::Wait(_)) | None => return None,
            },
            StepState::Each => format!("{} begins, item by item", capital(&name)),
            StepState::HandedOut { .. } => return None,
            StepState::Waiting { .. } => format!("{} waits for its turn", capital(&name)),
            StepState::Completed { attempt: 0 } => format!("{} is over", capital(&name)),
            StepState::Completed { .. } => {
                format!("{} counts as completed, with the output given", capital(&name))
            }
            StepState::Skipped { .. } => format!("{} is skipped", capital(&name)),
            StepState::Failed { .. } => match newest_reason(self.documents, part, action) {
                Some(error) => format!("{} fails: {error}", capital(&name)),
                None => format!("{} is given up", capital(&name)),
            },
        })
    }

    /// What is undone after the first undos, and what cannot be.
    fn of_undo(&self) -> Vec<String> {
        let Self { workflow, after, .. } = self;
        let names = |parts: Vec<Part>| {
            let names: Vec<_> = parts.iter().map(Part::to_string).collect();
            names.join(", ")
        };
        let mut later = order::outstanding(workflow, after);
        later.retain(|part| after.progress(part, Action::Undo).is_none());
        let stays = after.parts().filter(|(part, record)| {
            let step = workflow.steps.get(&part.step);
            let waits = step.is_some_and(|step| matches!(step.work(), Some(Work::Wait(_))));
            let has_none = step.is_some_and(|step| step.action(Action::Undo).is_none());
            has_none && !waits && matches!(record.run.state, StepState::Completed { .. })
        });
        let stays: Vec<_> = stays.map(|(part, _)| part).collect();
        let mut said = Vec::new();
        if !later.is_empty() {
            said.push(format!("In its turn is undone: {}", names(later)));
        }
        for (part, record) in after.parts() {
            if let Some(until) = record.run.in_progress(self.now).filter(|_| record.undo.is_none())
            {
                said.push(format!(
                    "A call of step {part} may still be in progress: its undo, and those of the steps \
                     before it, wait until {until:.0}"
                ));
            }
        }
        if !stays.is_empty() {
            said.push(format!("There is no undo for: {}; what was done stays", names(stays)));
        }
        said
    }
}

/// Who else hears of it.
fn of_effect(effect: &Effect) -> Option<String> {
    match effect {
        Effect::Notice { .. } => Some("The client is told".to_owned()),
        Effect::ChildEnded(ended) => {
            Some(format!("Task {}, for which this one runs, is told", ended.task_id))
        }
        Effect::Publish(event) => event.is_task_alert().then(|| "An alert is sent".to_owned()),
        Effect::Request(_)
        | Effect::Submit(_)
        | Effect::Ask(_)
        | Effect::Reply(_)
        | Effect::Wake { .. }
        | Effect::Reject { .. } => None,
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use steward_core::{
        model::{
            attempt::AttemptTimes,
            command::Order,
            messages::{Outcome, StepReply},
        },
        submission::{accept, parse},
    };

    /// A task of which `reserve` completed and `charge` failed, its workflow and its documents.
    fn stopped() -> (Plan, Task, Documents) {
        let call = |path: &str| json!({ "agent": "shop", "request": { "path": path } });
        let mut reserve = call("/reservations");
        reserve["undo"] = json!({ "request": { "path": "/releases" } });
        let mut charge = call("/charges");
        charge["after"] = json!(["reserve"]);
        charge["request"]["body"] = json!("${ steps.reserve.output }");
        charge["idempotent"] = json!(false);
        let mut ship = call("/parcels");
        ship["after"] = json!(["charge"]);
        let workflow: Plan = serde_json::from_value(json!({
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
        let (mut task, submitted) = accept(&parse(text).unwrap(), &workflow, None, now, timing);
        let mut documents = Documents::from([(submitted.key, submitted.body)]);
        let failed = Outcome::Failed { reason: "HTTP 402".to_owned(), may_have_run: true };
        let completed = Outcome::Completed { output: json!({ "secret": 1 }), may_continue: false };
        let reply = |step: &str, outcome| {
            Event::Replied(StepReply {
                task_id: "t".parse().unwrap(),
                step: step.parse().unwrap(),
                action: Action::Do,
                attempt: 1,
                outcome,
                incarnation: None,
                times: AttemptTimes::default(),
            })
        };
        for event in [Event::Wake, reply("reserve", completed), reply("charge", failed)] {
            let context = Context { now, actor: "test", redelivered: false, timing };
            match transition(&workflow, &task, &documents, &event, context).unwrap() {
                Transition::Apply { task: next, documents: made, .. } => {
                    task = *next;
                    documents.extend(made.into_iter().map(|made| (made.key, made.body)));
                }
                other @ (Transition::Ignore { .. } | Transition::Illegal(_)) => panic!("{other:?}"),
            }
        }
        (workflow, task, documents)
    }

    fn command(order: Order) -> Command {
        Command {
            command_id: "c-1".parse().unwrap(),
            task_id: "t".parse().unwrap(),
            by: "ann".to_owned(),
            why: "a test".to_owned(),
            order,
            issued_at: None,
        }
    }

    fn of(order: Order) -> Preview {
        of_at(60, order)
    }

    /// The call of the failed attempt may be in progress for two minutes.
    fn of_at(seconds: i64, order: Order) -> Preview {
        let (workflow, task, mut documents) = stopped();
        let now = Timestamp::from_second(seconds).unwrap();
        preview(&workflow, &task, &mut documents, &command(order), now)
    }

    fn does(said: &[&str]) -> Preview {
        Preview::Does(said.iter().map(|said| (*said).to_owned()).collect())
    }

    fn resubmit(input: Option<Value>, did_not_run: bool) -> Order {
        Order::Resubmit { step: None, input, did_not_run }
    }

    #[test]
    fn what_would_be_tried_again_is_said() {
        assert_eq!(
            of_at(180, resubmit(Some(json!({ "amount": 2 })), true)),
            does(&[
                "The task goes from Error to Processing",
                "The input changes, for what is tried again and for what starts from now on; what \
                 completed stays as it is",
                "Agent shop is asked for step charge, attempt 2",
                "The task has until 1970-01-01T00:13:00Z",
            ])
        );
    }

    #[test]
    fn what_would_be_refused_is_said_with_the_reason() {
        let Preview::Refused(reason) = of(resubmit(None, false)) else { panic!() };
        assert!(reason.contains("may have taken effect"), "{reason}");
        let Preview::Refused(reason) = of(resubmit(None, true)) else { panic!() };
        assert!(reason.contains("may be in progress until 1970-01-01T00:02:00Z"), "{reason}");
        let edited = of_at(180, resubmit(Some(json!({ "amount": "x" })), true));
        let Preview::Refused(reason) = edited else { panic!() };
        assert_eq!(reason, "input.amount: it is not of type \"integer\"");
        assert_eq!(of(Order::Resume), Preview::Refused("the task is not paused".to_owned()));
        assert_eq!(of(Order::Cancel), Preview::Refused("the task is Error".to_owned()));
    }

    #[test]
    fn what_would_be_undone_is_said_and_what_has_no_undo() {
        assert_eq!(
            of(Order::Undo),
            does(&[
                "The task goes from Error to Undoing",
                "In its turn is undone: reserve",
                "A call of step charge may still be in progress: its undo, and those of the steps before it, wait until 1970-01-01T00:02:00Z",
                "The task has until 1970-01-01T00:12:00Z",
            ])
        );
    }

    #[test]
    fn going_on_without_a_step_is_said_with_what_comes_after() {
        let skip = Order::Skip { step: None, did_not_run: false };
        assert_eq!(
            of(skip),
            does(&[
                "The task goes from Error to Processing",
                "Step charge is skipped",
                "Agent shop is asked for step ship, attempt 1",
                "The task has until 1970-01-01T00:11:00Z",
            ])
        );
        let output = json!({ "secret": 2 });
        let complete = Order::Complete { step: Some("charge".parse().unwrap()), output };
        let Preview::Does(said) = of(complete) else { panic!() };
        assert_eq!(said[1], "Step charge counts as completed, with the output given");
    }

    #[test]
    fn a_command_that_was_decided_on_is_not_tried_again() {
        let (workflow, mut task, mut documents) = stopped();
        let command = command(resubmit(None, true));
        let now = Timestamp::from_second(180).unwrap();
        let of = |task: &Task, documents: &mut Documents| {
            preview(&workflow, task, documents, &command, now)
        };
        assert!(matches!(of(&task, &mut documents), Preview::Does(_)));
        let record = steward_core::model::command::CommandRecord {
            id: command.command_id.clone(),
            command: String::new(),
            by: String::new(),
            why: String::new(),
            at: now,
            refused: None,
        };
        task.commands.push(record);
        let again = of(&task, &mut documents);
        assert_eq!(again, Preview::Refused("it was decided on before".to_owned()));
    }
}
