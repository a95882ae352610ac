//! Slices of a list, and the engine's reads of them.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::{
    engine::{
        effect::Effect,
        event::Event,
        tests::{self, TaskDriver, failed},
    },
    model::{
        attempt::Action, command::CommandAction, messages::ReplyOutcome, names::Part,
        task::ProcessState,
    },
};

fn items(count: u32, bytes: usize) -> Vec<Value> {
    (0..count).map(|n| json!({ "n": n, "pad": "x".repeat(bytes) })).collect()
}

#[test]
fn a_short_list_has_no_slices() {
    assert_eq!(slices_of(&items(10, 100)), None);
    assert_eq!(slices_of(&[]), None);
    assert!(slices_of(&items(10, 200)).is_some());
}

#[test]
fn every_item_is_in_its_slice() {
    let list = items(1_000, 87);
    let slices = slices_of(&list).unwrap();
    let version = ItemListVersion::Started(slices.fingerprint);
    let step = "ship".parse().unwrap();
    let documents = slice_documents(&step, &version, slices, &list, Timestamp::UNIX_EPOCH).unwrap();
    let len = slices.len.get() as usize;
    assert_eq!(documents.len(), list.len().div_ceil(len));
    for (index, item) in list.iter().enumerate() {
        assert_eq!(documents[index / len].body[index % len], *item);
    }
    assert!(documents.iter().all(|document| document.body.to_string().len() <= 3_600));
    let last = documents.last().unwrap().key.to_string();
    assert_eq!(last, format!("items/ship/{:08x}/{}", slices.fingerprint, documents.len() - 1));
}

#[test]
fn an_item_that_fits_no_document_is_an_error() {
    let list = items(2, limits::DOCUMENT_BYTES_MAX);
    let slices = slices_of(&list).unwrap();
    assert_eq!(slices.len.get(), 1);
    let version = ItemListVersion::Edited("c-1".parse().unwrap());
    let step = "ship".parse().unwrap();
    let documents = slice_documents(&step, &version, slices, &list, Timestamp::UNIX_EPOCH);
    assert_eq!(documents.unwrap_err(), "item 0 has more than 131072 bytes");
}

#[test]
fn one_large_item_does_not_lead_to_thousands_of_slices() {
    let mut list = items(10_000, 10);
    list[7_777] = json!("x".repeat(100_000));
    let slices = slices_of(&list).unwrap();
    assert_eq!(slices.len.get(), 10);
    let version = ItemListVersion::Started(slices.fingerprint);
    let step = "ship".parse().unwrap();
    let documents =
        |list: &[Value]| slice_documents(&step, &version, slices, list, Timestamp::UNIX_EPOCH);
    assert_eq!(documents(&list).unwrap().len(), 1_000);
    list[7_778] = list[7_777].clone();
    let refused = documents(&list).unwrap_err();
    assert_eq!(refused, "the 10 items from item 7770 on have more than 131072 bytes");
}

#[test]
fn lists_with_different_items_have_different_slices() {
    let (mut list, slices) = (items(100, 87), slices_of(&items(100, 87)));
    list[7]["n"] = json!(0);
    assert_ne!(slices_of(&list), slices);
}

/// A task, and what its decisions read and send.
struct Driven {
    driver: TaskDriver,
    /// The last value of `body.item`, or of `body`, in the requests to a part or its undo.
    sent: Vec<(String, Value)>,
}

impl Driven {
    fn new(steps: &Value, input: &Value) -> Self {
        let definition = json!({ "steps": steps, "output": "${ steps.ship.output.size() }" });
        Self { driver: TaskDriver::new(definition, input), sent: Vec::new() }
    }

    fn apply(&mut self, event: &Event) {
        for effect in self.driver.apply(event).1 {
            if let Effect::Request(request) = effect {
                let body = request.body.unwrap().value();
                let item = body.get("item").unwrap_or(&body).clone();
                self.sent.push((format!("{} {}", request.action.name(), request.step), item));
            }
        }
    }

    /// The keys of the documents that the last decision read.
    fn read(&self) -> BTreeSet<String> {
        self.driver.read.iter().map(ToString::to_string).collect()
    }

    fn reply(&mut self, part: &str, outcome: ReplyOutcome) {
        let (of, task) = (part.parse::<Part>().unwrap(), &self.driver.task);
        let is_undone = task.progress(&of, Action::Undo).is_some();
        let action = if is_undone { Action::Undo } else { Action::Do };
        let attempt = task.progress(&of, action).unwrap().state.attempt_count();
        self.apply(&Event::ReplyReceived(tests::reply(part, action, attempt, outcome)));
    }

    fn complete(&mut self, part: &str, output: Value) {
        self.reply(part, tests::completed(output));
    }

    fn fail(&mut self, part: &str) {
        self.reply(part, failed(false));
    }

    /// Carries out a command. Returns why it was refused.
    fn command(&mut self, id: &str, action: CommandAction) -> Option<String> {
        self.apply(&tests::command(id, action, 0));
        self.driver.task.commands.last().unwrap().refused.clone()
    }

    fn edit(&mut self, id: &str, part: &str, list: &[Value]) -> Option<String> {
        let (step, input) = (Some(part.parse().unwrap()), Some(json!({ "list": list })));
        self.command(id, CommandAction::Resubmit { step, input, did_not_run: true })
    }

    /// The last item in a request for a part or its undo.
    fn sent(&self, to: &str) -> &Value {
        &self.sent.iter().rev().find(|(of, _)| of == to).unwrap_or_else(|| panic!("no {to}")).1
    }
}

/// One step with the items of `input.list`, and an undo.
fn ship(at_once: u32, then: &str) -> Value {
    let request = json!({ "path": "/", "body": { "item": "${ item }" } });
    json!({ "ship": {
        "agent": "a", "for_each": { "items": "${ input.list }", "at_once": at_once },
        "recovery": { "attempts": 1, "then": then }, "request": request, "undo": { "request": request },
    } })
}

fn slices(driven: &Driven) -> ListSlices {
    driven.driver.task.steps["ship"].items.as_ref().unwrap().slices().unwrap()
}

#[test]
fn the_start_and_the_undo_of_an_item_read_one_slice() {
    let list = items(12, 1_000);
    let mut driven = Driven::new(&ship(2, "undo"), &json!({ "list": list }));
    driven.apply(&Event::Wake);
    let fingerprint = format!("{:08x}", slices(&driven).fingerprint);
    assert_eq!(slices(&driven).len.get(), 3);
    let slice = |number: usize| BTreeSet::from([format!("items/ship/{fingerprint}/{number}")]);
    for (index, item) in list.iter().enumerate().take(10) {
        assert_eq!(driven.sent(&format!("do ship[{index}]")), item);
        driven.complete(&format!("ship[{index}]"), json!(index));
        assert_eq!(driven.read(), slice(index.div_ceil(3)), "{index}");
    }
    driven.fail("ship[10]");
    assert_eq!(driven.driver.task.process_state, ProcessState::Undoing);
    assert_eq!(driven.read(), slice(0));
    driven.fail("ship[11]");
    for (index, item) in list.iter().enumerate().take(10) {
        assert_eq!(driven.sent(&format!("undo ship[{index}]")), item);
        driven.complete(&format!("ship[{index}]"), Value::Null);
    }
    assert_eq!(driven.driver.task.process_state, ProcessState::Undone);
}

#[test]
fn an_edited_item_reads_the_slice_of_its_edit() {
    let mut list = items(9, 1_000);
    let mut driven = Driven::new(&ship(3, "alert"), &json!({ "list": list }));
    driven.apply(&Event::Wake);
    driven.complete("ship[0]", json!(0));
    driven.fail("ship[1]");
    list[1] = json!({ "n": "first edit" });
    assert_eq!(driven.edit("c-1", "ship[1]", &list), None);
    assert_eq!(driven.sent("do ship[1]"), &list[1]);
    driven.complete("ship[2]", json!(2));
    driven.fail("ship[1]");
    // An edit that was refused changes nothing, although it may have left documents.
    let mut refused = list.clone();
    (refused[0], refused[4]) = (json!(0), json!(4));
    assert!(driven.edit("c-2", "ship[1]", &refused).unwrap().contains("ship[0] is completed"));
    (list[1], list[5]) = (json!({ "n": "second edit" }), json!({ "n": "second edit" }));
    assert_eq!(driven.edit("c-3", "ship[1]", &list), None);
    for (index, item) in list.iter().enumerate().skip(1) {
        if index != 2 {
            assert_eq!(driven.sent(&format!("do ship[{index}]")), item);
            driven.complete(&format!("ship[{index}]"), json!(index));
        }
    }
    assert_eq!(driven.driver.task.process_state, ProcessState::Processed);
    // Each item is undone with the list that it was done with.
    assert_eq!(driven.command("c-4", CommandAction::Undo), None);
    for (index, item) in list.iter().enumerate() {
        assert_eq!(driven.sent(&format!("undo ship[{index}]")), item);
        driven.complete(&format!("ship[{index}]"), Value::Null);
    }
}

#[test]
fn an_edit_of_a_list_whose_slices_would_be_too_large_is_refused() {
    let mut list = items(50, 10);
    let mut steps = ship(1, "alert");
    steps["ship"]["for_each"]["items"] = json!("${ input.list + input.list }");
    let mut driven = Driven::new(&steps, &json!({ "list": list }));
    driven.apply(&Event::Wake);
    driven.fail("ship[0]");
    assert_eq!(slices(&driven).len.get(), 125);
    list[7] = json!("x".repeat(limits::DOCUMENT_BYTES_MAX / 2));
    let refused = driven.edit("c-1", "ship[0]", &list).unwrap();
    assert_eq!(refused, "step ship: the 100 items from item 0 on have more than 131072 bytes");
}

#[test]
fn a_step_may_have_ten_thousand_items_and_no_more() {
    let list = |count: u32| Value::from_iter(0..count);
    let mut driven = Driven::new(&ship(100, "alert"), &json!({ "list": list(limits::ITEMS_MAX) }));
    driven.apply(&Event::Wake);
    let items = driven.driver.task.steps["ship"].items.as_ref().unwrap();
    assert_eq!((items.count(), items.started()), (10_000, 100));
    for next in 100..400 {
        driven.complete(&format!("ship[{}]", next - 100), Value::Null);
        assert_eq!(driven.sent(&format!("do ship[{next}]")), &json!(next));
    }
    let mut driven =
        Driven::new(&ship(100, "alert"), &json!({ "list": list(limits::ITEMS_MAX + 1) }));
    driven.apply(&Event::Wake);
    let error = driven.driver.task.error.as_deref();
    assert_eq!(error, Some("step ship: 10001 items; the limit is 10000"));
}

#[test]
fn outputs_that_need_too_much_memory_fail_before_they_are_read() {
    let largest = || Value::from("x".repeat(limits::DOCUMENT_BYTES_MAX - 2));
    let count = 127;
    let fill = |items_count: u32| {
        let mut driven =
            Driven::new(&ship(100, "alert"), &json!({ "list": items(items_count, 1) }));
        driven.apply(&Event::Wake);
        (0..count).for_each(|index| driven.complete(&format!("ship[{index}]"), largest()));
        driven
    };
    let mut driven = fill(count + 1);
    // An output of an operator counts too.
    driven.fail("ship[127]");
    let step = Some("ship[127]".parse().unwrap());
    let output = largest();
    assert_eq!(driven.command("c-1", CommandAction::Complete { step, output }), None);
    assert_eq!(driven.driver.task.process_state, ProcessState::Error);
    assert!(driven.read().is_empty(), "{:?}", driven.read());
    let reason = "output: the outputs of the items of step ship need 17 MB of memory; \
                  an expression can read 16 MB";
    assert_eq!(driven.driver.task.error.as_deref(), Some(reason));
    // One output less.
    let driven = fill(count);
    assert_eq!(driven.driver.task.process_state, ProcessState::Processed);
    assert_eq!(driven.read().len(), 126, "the last output is of this decision");
}

/// 320 KB of JSON that take 18 MB of memory.
#[test]
fn small_objects_count_with_the_memory_that_they_take() {
    let small = Value::from_iter((0..10_000).map(|_| json!({ "a": 1 })));
    let ended = |count: u32| {
        let mut driven = Driven::new(&ship(100, "alert"), &json!({ "list": items(count, 1) }));
        driven.apply(&Event::Wake);
        (0..count).for_each(|index| driven.complete(&format!("ship[{index}]"), small.clone()));
        driven.driver.task.process_state
    };
    assert_eq!((ended(3), ended(4)), (ProcessState::Processed, ProcessState::Error));
}

#[test]
fn an_expression_can_read_the_ids_of_ten_thousand_items() {
    let list = Value::from_iter(0..limits::ITEMS_MAX);
    let mut driven = Driven::new(&ship(100, "alert"), &json!({ "list": list }));
    driven.apply(&Event::Wake);
    for index in 0..limits::ITEMS_MAX {
        driven.complete(&format!("ship[{index}]"), json!({ "id": "p-1234" }));
    }
    assert_eq!(
        driven.driver.task.process_state,
        ProcessState::Processed,
        "{:?}",
        driven.driver.task.error
    );
}
