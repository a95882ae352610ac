//! What the structure of a test file cannot say: names of steps, and keys that contradict each other.

use std::collections::BTreeSet;

use reqwest::header::{HeaderName, HeaderValue};
use steward_core::{
    definition::{
        problem::DefinitionProblem,
        step::{StepDefinition, StepWork},
    },
    hint,
    model::{attempt::Action, names::TaskId},
};

use super::{
    file::{Answer, Answers, CallbackAnswer, ExpectedCall, ServiceScript, TestCase},
    script::command_action,
    workflow_tests::{WorkflowTests, definition},
};

/// All problems of a test file whose structure is valid.
pub(super) fn problems(tests: &WorkflowTests) -> Vec<DefinitionProblem> {
    let mut checker = Checker { tests, found: Vec::new() };
    for (label, script) in &tests.file.content.services {
        checker.service(&format!("services.{label}"), label, script);
    }
    let mut names = BTreeSet::new();
    for (n, case) in tests.cases().iter().enumerate() {
        let at = format!("cases.{n}");
        if !names.insert(case.name.as_str()) {
            checker.report(format!("{at}.name"), "another case has this name");
        }
        checker.case(&at, case);
    }
    checker.found
}

struct Checker<'a> {
    tests: &'a WorkflowTests,
    found: Vec<DefinitionProblem>,
}

impl Checker<'_> {
    fn report(&mut self, at: impl Into<String>, message: impl Into<String>) {
        let (at, message) = (at.into(), message.into());
        self.found.push(DefinitionProblem { at, message, hint: None });
    }

    fn case(&mut self, at: &str, case: &TestCase) {
        if case.task_id.as_ref().is_some_and(|id| id.parse::<TaskId>().is_err()) {
            self.report(format!("{at}.task_id"), "not a valid id of a task");
        }
        for (label, script) in &case.services {
            self.service(&format!("{at}.services.{label}"), label, script);
        }
        for (n, command) in case.commands.iter().enumerate() {
            if let Err(reason) = command_action(command) {
                self.report(format!("{at}.commands.{n}"), reason);
            }
            if let Some(step) = &command.step {
                self.known_step(&format!("{at}.commands.{n}.step"), step);
            }
        }
        let Some(expect) = &case.expect else { return };
        for label in expect.steps.keys() {
            self.known_step(&format!("{at}.expect.steps.{label}"), label);
        }
        for (n, call) in expect.calls.iter().flatten().enumerate() {
            self.expected_call(&format!("{at}.expect.calls.{n}"), call, true);
        }
    }

    /// Reports a name that no step has. Returns the step otherwise.
    fn known_step(&mut self, at: &str, label: &str) -> Option<StepDefinition> {
        let step = self.tests.step(label);
        if step.is_none() {
            let known = self.tests.labels();
            let hint = hint::suggestion(label, known.iter().map(String::as_str));
            let message = format!("there is no step `{label}`");
            self.found.push(DefinitionProblem { at: at.to_owned(), message, hint });
        }
        definition(step?).cloned()
    }

    fn service(&mut self, at: &str, label: &str, script: &ServiceScript) {
        let Some(step) = self.known_step(at, label) else { return };
        let is_call = matches!(step.work(), Some(StepWork::Call { .. }));
        let child = match step.work() {
            Some(StepWork::Child(child)) => Some(&child.name),
            Some(StepWork::Call { .. } | StepWork::Wait(_) | StepWork::Event(_)) | None => None,
        };
        let has_undo = step.action(Action::Undo).is_some();
        let misplaced = [
            ("do", script.run.is_some() && !is_call, "only a step with an `agent` makes calls"),
            (
                "undo",
                script.undo.is_some() && !(is_call && has_undo),
                "the step has no `undo` that makes calls",
            ),
            (
                "items",
                !script.items.is_empty() && step.items_at_once().is_none(),
                "the step has no `for_each` and no `repeat`",
            ),
            (
                "agents",
                !script.agents.is_empty() && !is_call,
                "only a step with an `agent` makes calls",
            ),
            (
                "callback",
                !script.callback.is_empty() && step.callback.is_none(),
                "the step has no `callback`",
            ),
            ("child", script.child.is_some() && child.is_none(), "the step runs no `workflow`"),
            (
                "child",
                script.child.is_some() && child.is_some_and(|child| self.tests.is_given(child)),
                "the definition of the child is in `with`, so its own services decide how it ends",
            ),
        ];
        for (key, _, message) in misplaced.into_iter().filter(|(_, is_misplaced, _)| *is_misplaced)
        {
            self.report(format!("{at}.{key}"), message);
        }
        self.answers(&format!("{at}.do"), script.run.as_ref());
        self.answers(&format!("{at}.undo"), script.undo.as_ref());
        self.callbacks(at, &script.callback);
        for (name, answers) in &script.agents {
            if !step.agents().any(|agent| agent.as_str() == name) {
                self.report(
                    format!("{at}.agents.{name}"),
                    format!("the step has no agent `{name}`"),
                );
            }
            self.answers(&format!("{at}.agents.{name}"), Some(answers));
        }
        for (index, item) in &script.items {
            let at = format!("{at}.items.{index}");
            if index.parse::<u32>().is_err() {
                self.report(&at, "not the index of an item, a number from 0");
            }
            self.answers(&format!("{at}.do"), item.run.as_ref());
            self.answers(&format!("{at}.undo"), item.undo.as_ref());
            self.callbacks(&at, &item.callback);
        }
    }

    fn answers(&mut self, at: &str, answers: Option<&Answers>) {
        match answers {
            None => {}
            Some(Answers::One(answer)) => self.answer(at, answer),
            Some(Answers::Many(answers)) => {
                if answers.is_empty() {
                    self.report(at, "an empty list of answers; remove the key, or add an answer");
                }
                for (n, answer) in answers.iter().enumerate() {
                    self.answer(&format!("{at}.{n}"), answer);
                }
            }
        }
    }

    fn answer(&mut self, at: &str, answer: &Answer) {
        let Answer { status, body, text, headers, fault, .. } = answer;
        let has_response =
            status.is_some() || body.is_some() || text.is_some() || !headers.is_empty();
        if fault.is_some() && has_response {
            self.report(
                format!("{at}.fault"),
                "a call without a response has no status, body and headers",
            );
        }
        if body.is_some() && text.is_some() {
            self.report(format!("{at}.text"), "an answer has one body: remove `body` or `text`");
        }
        for (name, value) in headers {
            let is_valid =
                HeaderName::try_from(name).is_ok() && HeaderValue::try_from(value).is_ok();
            if !is_valid {
                self.report(format!("{at}.headers.{name}"), "not a valid HTTP header");
            }
        }
    }

    fn callbacks(&mut self, at: &str, callbacks: &[CallbackAnswer]) {
        for (n, callback) in callbacks.iter().enumerate() {
            let CallbackAnswer { completed, failed, heartbeat, .. } = callback;
            let count = [completed.is_some(), failed.is_some(), *heartbeat];
            if count.iter().filter(|is_present| **is_present).count() != 1 {
                let message = "needs exactly one of `completed`, `failed` and `heartbeat`";
                self.report(format!("{at}.callback.{n}"), message);
            }
        }
    }

    fn expected_call(&mut self, at: &str, call: &ExpectedCall, may_nest: bool) {
        let ExpectedCall { run, undo, any_order, .. } = call;
        let count = [run.is_some(), undo.is_some(), any_order.is_some()];
        if count.iter().filter(|is_present| **is_present).count() != 1 {
            return self.report(at, "needs exactly one of `do`, `undo` and `any_order`");
        }
        for (key, step) in [("do", run), ("undo", undo)] {
            let Some(step) = step else { continue };
            self.known_step(&format!("{at}.{key}"), step);
        }
        if any_order.is_some() && !may_nest {
            self.report(format!("{at}.any_order"), "cannot be nested");
        }
        for (n, call) in any_order.iter().flatten().enumerate() {
            self.expected_call(&format!("{at}.any_order.{n}"), call, false);
        }
    }
}
