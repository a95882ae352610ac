//! Rounds: what each gets, when they end, and how they are undone.

use serde_json::json;

use super::*;
use crate::{
    engine::{
        effect::Effect,
        event::Event,
        notify,
        tests::{self, TaskDriver, failed},
    },
    limits,
    model::{command::CommandAction, messages::ReplyOutcome, task::ProcessState},
};

/// A task, and the requests that it sent: the part, and the body.
struct Driven {
    driver: TaskDriver,
    sent: Vec<(String, Value)>,
}

impl Driven {
    fn new(repeat: Value) -> Self {
        Self::with_policy(repeat, "undo")
    }

    fn with_policy(repeat: Value, then: &str) -> Self {
        let request = json!({ "path": "/pages", "body": { "after": "${ item.next }", "n": "${ item_index }" } });
        let undo = json!({ "path": "/undo", "body": "${ steps.pages.output.next }" });
        let steps = json!({
            "pages": {
                "agent": "a", "repeat": repeat, "request": request, "undo": { "request": undo },
                "recovery": { "attempts": 1, "then": then },
            },
        });
        let definition = json!({ "steps": steps, "output": "${ steps.pages.output }" });
        let mut driven =
            Self { driver: TaskDriver::new(definition, &json!({ "from": 7 })), sent: Vec::new() };
        assert_eq!(driven.driver.plan.problems(), []);
        driven.apply(&Event::Wake);
        driven
    }

    fn listing(at_most: u32) -> Self {
        let first = json!({ "next": "${ input.from }" });
        Self::new(json!({ "first": first, "until": "${ item.next == null }", "at_most": at_most }))
    }

    fn apply(&mut self, event: &Event) {
        let (_, effects) = self.driver.apply(event);
        self.sent.extend(effects.into_iter().filter_map(|effect| {
            let Effect::Request(request) = effect else { return None };
            let of = format!("{} {}", request.action.name(), request.step);
            Some((of, request.body.unwrap().value()))
        }));
    }

    fn reply(&mut self, part: &str, action: Action, outcome: ReplyOutcome) {
        let of = part.parse::<Part>().unwrap();
        let attempt = self.driver.task.progress(&of, action).unwrap().state.attempt_count();
        self.apply(&Event::ReplyReceived(tests::reply(part, action, attempt, outcome)));
    }

    /// The next page is `next`.
    fn complete(&mut self, round: u32, next: Value) {
        let output = tests::completed(json!({ "next": next }));
        self.reply(&format!("pages[{round}]"), Action::Do, output);
    }

    fn sent(&self) -> Vec<&str> {
        self.sent.iter().map(|(of, _)| of.as_str()).collect()
    }

    fn last_body(&self) -> &Value {
        &self.sent.last().unwrap().1
    }

    fn state(&self) -> ProcessState {
        self.driver.task.process_state
    }

    fn result(&self) -> Value {
        let (key, task) = (notify::result_key(&self.driver.task), &self.driver.task);
        task.documents.body(&key).unwrap_or_else(|| self.driver.stored.get(&key).unwrap().clone())
    }

    fn command(&mut self, id: &str, action: CommandAction) {
        self.apply(&tests::command(id, action, 0));
        assert_eq!(self.driver.task.commands.last().unwrap().refused, None);
    }
}

#[test]
fn each_round_gets_the_output_of_the_one_before() {
    let mut driven = Driven::listing(9);
    assert_eq!(driven.last_body(), &json!({ "after": 7, "n": 0 }));
    driven.complete(0, json!(8));
    assert_eq!(driven.last_body(), &json!({ "after": 8, "n": 1 }));
    driven.complete(1, json!(9));
    assert_eq!(driven.last_body(), &json!({ "after": 9, "n": 2 }));
    driven.complete(2, Value::Null);
    assert_eq!(driven.sent(), ["do pages[0]", "do pages[1]", "do pages[2]"]);
    assert_eq!(driven.state(), ProcessState::Processed);
    assert_eq!(driven.result(), json!({ "next": null }), "the output of the last round");
}

#[test]
fn without_a_first_value_the_first_round_gets_null() {
    let until = "${ item_index == 1 }";
    let mut driven = Driven::new(json!({ "first": null, "until": until, "at_most": 2 }));
    // `null` has no field, so the request cannot be rendered.
    assert_eq!((driven.state(), driven.sent().len()), (ProcessState::Undoing, 0));
    driven.apply(&Event::Wake);
    assert_eq!(driven.state(), ProcessState::Undone);
}

/// The item of a task with ten thousand rounds is as small as that of one with ten.
#[test]
fn rounds_with_equal_records_share_one() {
    let mut driven = Driven::listing(limits::ROUNDS_MAX);
    let mut bytes = |rounds: std::ops::Range<u32>| {
        rounds.for_each(|round| driven.complete(round, json!(round)));
        serde_json::to_string(&driven.driver.task.steps).unwrap().len()
    };
    let (of_ten, of_thousands) = (bytes(0..10), bytes(10..5_000));
    assert!(of_thousands < of_ten + 20, "{of_ten} {of_thousands}");
}

#[test]
fn rounds_are_undone_one_by_one_from_the_last() {
    let mut driven = Driven::listing(9);
    (0..3).for_each(|round| driven.complete(round, json!(round)));
    driven.reply("pages[3]", Action::Do, failed(false));
    let completed = || tests::completed(Value::Null);
    for round in [2, 1, 0] {
        let of = format!("pages[{round}]");
        assert_eq!(driven.sent.last().unwrap(), &(format!("undo {of}"), json!(round)));
        driven.reply(&of, Action::Undo, completed());
    }
    assert_eq!(driven.state(), ProcessState::Undone);
}

#[test]
fn too_few_rounds_fail_the_step_and_an_operator_may_add_one() {
    let mut driven = Driven::listing(2);
    driven.complete(0, json!(1));
    driven.complete(1, json!(2));
    let task = &driven.driver.task;
    assert_eq!(task.process_state, ProcessState::Undoing);
    let reason = "step pages[2]: `repeat.until` is not true after 2 rounds";
    assert_eq!(task.undo_reason.as_deref(), Some(reason));

    let mut driven = Driven::new(json!({
        "first": { "next": 1 }, "until": "${ item.next }", "at_most": 5,
    }));
    driven.complete(0, json!(1));
    let reason = "step pages[1]: `repeat.until` evaluates to a number, not to a boolean";
    assert_eq!(driven.driver.task.undo_reason.as_deref(), Some(reason));
}

#[test]
fn a_round_that_is_skipped_is_the_last_one() {
    let repeat = json!({ "first": { "next": 1 }, "until": "${ item.next == null }", "at_most": 9 });
    let mut driven = Driven::with_policy(repeat, "alert");
    driven.complete(0, json!(1));
    driven.reply("pages[1]", Action::Do, failed(false));
    assert_eq!(driven.state(), ProcessState::Error);
    let step = Some("pages[1]".parse().unwrap());
    driven.command("c-1", CommandAction::Skip { step, did_not_run: true });
    assert_eq!((driven.state(), driven.result()), (ProcessState::Processed, Value::Null));
}

/// The part that says that there are too few rounds is the last one that a list has room for.
#[test]
fn a_list_that_is_full_stops_the_task_and_stays_readable() {
    let repeat = json!({
        "first": { "next": 1 }, "until": "${ item.next == null }", "at_most": limits::ROUNDS_MAX,
    });
    let mut driven = Driven::with_policy(repeat, "alert");
    (0..limits::ROUNDS_MAX).for_each(|round| driven.complete(round, json!(1)));
    assert_eq!(driven.state(), ProcessState::Error);
    let step = Some(format!("pages[{}]", limits::ROUNDS_MAX).parse().unwrap());
    driven.command("c-1", CommandAction::Resubmit { step, input: None, did_not_run: true });
    driven.complete(limits::ROUNDS_MAX, json!(1));
    let error = driven.driver.task.error.as_deref();
    assert_eq!(error, Some("step pages: no room for another round"));
    let stored = serde_json::to_value(&driven.driver.task).unwrap();
    assert_eq!(
        serde_json::from_value::<crate::model::task::Task>(stored).unwrap(),
        driven.driver.task
    );
}
