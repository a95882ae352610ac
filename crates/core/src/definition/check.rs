//! Validation of a definition beyond its syntax. Each problem names the key that has it.

mod checker;
mod events;
mod request;
mod templates;

use std::{collections::BTreeSet, time::Duration};

use checker::Checker;
use templates::TemplateLocation;

use crate::{
    definition::{
        problem::DefinitionProblem,
        recovery::Recovery,
        repeat::Repeat,
        schema::PayloadSchema,
        step::{CallbackDefinition, ForEach, StepDefinition, StepWork, wait_until},
        step_agents::StepAgents,
        until::Until,
        wait::Wait,
        workflow::Workflow,
    },
    expression::template::Template,
    limits,
    model::{
        attempt::Action,
        names::StepName,
        responses::{ResponseCase, ResponseOverrides, StatusMeaning},
    },
};

impl Workflow {
    /// Returns the problems of this definition beyond its syntax. Empty if the definition is valid. A definition with too many steps
    /// has only this problem, and of others there are at most [`PROBLEMS_MAX`](limits::PROBLEMS_MAX) and one more.
    #[must_use]
    pub fn problems(&self) -> Vec<DefinitionProblem> {
        let (steps, max) = (self.steps.len(), limits::STEPS_MAX);
        if steps > max {
            // The other checks compare steps with each other.
            let message = format!("{steps} steps; the limit is {max}");
            return vec![DefinitionProblem { at: "steps".to_owned(), message, hint: None }];
        }
        let mut checker = Checker::new(self);
        checker.check();
        checker.found.sort();
        checker.found.dedup();
        checker.found
    }

    /// Returns a cycle of steps, such as `a → b → a`, if there is one.
    fn cycle(&self) -> Option<String> {
        let ancestors = self.ancestors();
        let in_cycle = |name: &StepName| ancestors.get(name).is_some_and(|set| set.contains(name));
        let start = self.steps.keys().find(|name| in_cycle(name))?;
        let mut path = vec![start];
        let mut at = start;
        // Go back from `start` through predecessors that have `start` among their own predecessors, until `start` is
        // reached.
        while path.len() <= self.steps.len() {
            let step = self.steps.get(at)?;
            at = step.after.iter().find(|other| {
                *other == start
                    || (!path.contains(other)
                        && ancestors.get(other).is_some_and(|before| before.contains(start)))
            })?;
            path.push(at);
            if at == start {
                break;
            }
        }
        path.reverse();
        Some(path.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" → "))
    }
}

impl Checker<'_> {
    fn check(&mut self) {
        let workflow = self.workflow;
        if workflow.version == 0 {
            self.report("version", "versions count from 1");
        }
        self.check_within("complete_within", workflow.complete_within, limits::TASK_WITHIN_MAX);
        if workflow.warn_after.is_some_and(|after| after.is_zero()) {
            self.report("warn_after", "must be more than 0s");
        }
        if let Some(retention) = workflow.retention {
            let (min, max) = (limits::RETENTION_MIN, limits::RETENTION_MAX);
            if !(min..=max).contains(&retention) {
                let days = max.as_secs() / (24 * 3600);
                self.report("retention", format!("must be from 1h to {days}d"));
            }
        }
        if let Some(problem) = workflow.input.as_ref().and_then(|input| input.problem()) {
            self.report("input", format!("not a JSON Schema: {problem}"));
        }
        let places = workflow.mask.pointers().count();
        if places > limits::MASKS_MAX {
            self.report("mask", format!("{places} pointers; the limit is {}", limits::MASKS_MAX));
        }
        for (n, message) in workflow.mask.problems() {
            self.report(format!("mask.{n}"), message);
        }
        if let Some(trigger) = &workflow.trigger {
            self.check_trigger(trigger);
        }
        self.check_named_values();
        self.check_labels();
        self.check_defaults();
        if workflow.steps.is_empty() {
            self.report("steps", "a workflow needs at least one step");
        }
        if let Some(problem) = workflow.largest_task().problem() {
            let hint = "lower `at_once`: each item in progress needs room for its record and that of its \
                        undo; or move some of these steps into a child task, with a step of kind `workflow`";
            self.report_with_hint("steps", problem, Some(hint.to_owned()));
        }
        self.check_awaited_events();
        for (name, step) in &workflow.steps {
            self.check_step(name, step);
        }
        if let Some(cycle) = workflow.cycle() {
            self.report("steps", format!("these steps wait for each other: {cycle}"));
        }
        if let Some(output) = &workflow.output {
            let location =
                TemplateLocation { at: "output".into(), step: None, own: false, names: vec![] };
            self.check_template(output, &location);
        }
    }

    fn check_defaults(&mut self) {
        let Some(defaults) = &self.workflow.defaults else { return };
        let undo = defaults.undo.as_ref();
        let both = [
            ("", defaults.complete_within, &defaults.recovery, Action::Do),
            (
                "undo.",
                undo.and_then(|undo| undo.complete_within),
                undo.map_or(&None, |undo| &undo.recovery),
                Action::Undo,
            ),
        ];
        for (of, within, recovery, action) in both {
            if let Some(within) = within {
                let at = format!("defaults.{of}complete_within");
                self.check_within(&at, within, limits::STEP_WITHIN_MAX);
            }
            if let Some(recovery) = recovery {
                self.check_recovery(&format!("defaults.{of}recovery"), recovery, action);
            }
        }
        self.check_call_within("defaults.call_within", defaults.call_within);
        self.check_responses("defaults.responses", &defaults.responses);
        if let Some(undo) = undo {
            self.check_call_within("defaults.undo.call_within", undo.call_within);
            self.check_responses("defaults.undo.responses", &undo.responses);
        }
    }

    fn check_step(&mut self, name: &StepName, step: &StepDefinition) {
        let at = |key: &str| format!("steps.{name}.{key}");
        self.check_after(name, step);
        self.check_kind(name, step);
        if let Some(when) = &step.when {
            self.check_expression(when, &TemplateLocation::before_start(name, at("when")));
        }
        if let Some(ForEach { items, at_once }) = &step.for_each {
            self.check_expression(
                items,
                &TemplateLocation::before_start(name, at("for_each.items")),
            );
            let max = limits::ITEMS_AT_ONCE_MAX;
            if !(1..=max).contains(at_once) {
                self.report(at("for_each.at_once"), format!("must be from 1 to {max}"));
            }
        }
        if let Some(repeat) = &step.repeat {
            self.check_repeat(name, step, repeat);
        }
        if let Some(callback) = &step.callback {
            self.check_callback(name, step, callback);
        }
        if let Some(output) = &step.output {
            self.check_output(output, &at("output"));
            if step.callback.is_some() {
                self.report(
                    at("output"),
                    "the output of a step with a `callback` is that of the callback",
                );
            }
        }
        if let Some(until) = &step.until {
            self.check_until(name, step, until);
        }
        if let Some(reason) = &step.fail {
            self.check_fail(name, step, reason);
        }
        for action in [Action::Do, Action::Undo] {
            self.check_action(name, step, action);
        }
        if let Some(reason) = &step.no_undo_needed {
            let max = limits::NO_UNDO_CHARS_MAX;
            if !(1..=max).contains(&reason.chars().count()) {
                self.report(at("no_undo_needed"), format!("must have from 1 to {max} characters"));
            }
            if step.undo.is_some() {
                let hint = Some("remove one of them".to_owned());
                self.report_with_hint(at("no_undo_needed"), "the step has an undo", hint);
            }
        }
        if step.read_only == Some(true) && step.undo.is_some() {
            let hint = Some("remove one of them".to_owned());
            let message = "a step without a side effect has nothing to undo";
            self.report_with_hint(at("read_only"), message, hint);
        }
        if !step.idempotent && step.recovery.extended_wait.is_some() {
            self.report(at("recovery"), "a step that is not idempotent is never retried automatically, so it has no `extended_wait`");
        }
    }

    fn check_after(&mut self, name: &StepName, step: &StepDefinition) {
        let mut seen = BTreeSet::new();
        for (n, other) in step.after.iter().enumerate() {
            let at = format!("steps.{name}.after.{n}");
            if !self.workflow.steps.contains_key(other) {
                self.report_with_hint(
                    &at,
                    format!("there is no step `{other}`"),
                    self.similar_step(other),
                );
            }
            if !seen.insert(other) {
                self.report(&at, format!("`{other}` is listed twice"));
            }
        }
    }

    /// Checks that a step is of exactly one kind, and has only keys of that kind.
    fn check_kind(&mut self, name: &StepName, step: &StepDefinition) {
        let at = |key: &str| format!("steps.{name}.{key}");
        let kinds = [
            ("agent", step.agent.is_some()),
            (wait_kind(step), step.wait.is_some()),
            ("workflow", step.workflow.is_some()),
            ("fail", step.fail.is_some()),
        ];
        let present: Vec<_> =
            kinds.iter().filter(|(_, is_present)| *is_present).map(|(kind, _)| *kind).collect();
        let kind = match present.as_slice() {
            [kind] => *kind,
            [] => {
                let hint =
                    Some("it needs an `agent`, a `wait`, a `workflow` or a `fail`".to_owned());
                return self.report_with_hint(
                    format!("steps.{name}"),
                    "the step has no work",
                    hint,
                );
            }
            several => {
                let several = several.join("` and `");
                let hint = Some("split it into several steps".to_owned());
                let message = format!("a step cannot have `{several}` together");
                return self.report_with_hint(format!("steps.{name}"), message, hint);
            }
        };
        if kind == "agent" && step.request.is_none() {
            self.report(format!("steps.{name}"), "an `agent` needs a `request`");
        }
        let undo_request = step.undo.as_ref().map(|undo| undo.request.is_some());
        if kind == "agent" && undo_request == Some(false) {
            self.report(at("undo"), "the undo of a step with an `agent` needs a `request`");
        }
        let undo_agent = step.undo.as_ref().and_then(|undo| undo.agent.as_ref());
        if undo_agent.is_some_and(|agent| !matches!(agent, StepAgents::One(_))) {
            self.report(at("undo.agent"), "must be one name");
        }
        if undo_agent.is_some() && step.agent.as_ref().is_some_and(StepAgents::falls_back) {
            let message = "not with a list of agents: effects at two of them would have one idempotency key at this one";
            self.report(at("undo.agent"), message);
        }
        for (key, message) in step.agent.iter().flat_map(StepAgents::list_problems) {
            self.report(at(&format!("agent{key}")), message);
        }
        let calls = ["agent"].as_slice();
        let both = ["agent", "workflow"].as_slice();
        let fallible = ["agent", "workflow", EVENT_WAIT].as_slice();
        let with_policy = ["agent", "workflow", EVENT_WAIT, "fail"].as_slice();
        let waits = ["wait", EVENT_WAIT, "fail"].contains(&kind);
        let keys = [
            ("request", step.request.is_some(), calls),
            ("callback", step.callback.is_some(), calls),
            ("idempotent", !step.idempotent, calls),
            ("read_only", step.read_only.is_some(), calls),
            ("no_undo_needed", step.no_undo_needed.is_some(), calls),
            ("until", step.until.is_some(), calls),
            ("undo.agent", undo_has_agent(step) && !waits, calls),
            ("undo.request", undo_request == Some(true) && !waits, calls),
            ("for_each", step.for_each.is_some(), fallible),
            ("repeat", step.repeat.is_some(), both),
            ("call_within", step.call_within.is_some(), calls),
            ("responses", !step.responses.is_empty(), calls),
            ("output", step.output.is_some(), calls),
            ("undo.call_within", undo_has_call_within(step) && !waits, calls),
            ("undo.responses", undo_has_responses(step) && !waits, calls),
            ("complete_within", step.complete_within.is_some(), both),
            ("recovery", step.recovery != Recovery::default(), with_policy),
            ("point_of_no_return", step.point_of_no_return, both),
            ("undo", step.undo.is_some(), both),
        ];
        for (key, _, with) in
            keys.iter().filter(|(_, is_present, with)| *is_present && !with.contains(&kind))
        {
            let with = with.join("` or `");
            self.report(at(key), format!("allowed only with `{with}`, not with `{kind}`"));
        }
    }

    fn check_repeat(&mut self, name: &StepName, step: &StepDefinition, repeat: &Repeat) {
        let at = |key: &str| format!("steps.{name}.repeat.{key}");
        if let Some(first) = &repeat.first {
            self.check_template(first, &TemplateLocation::before_start(name, at("first")));
        }
        let until = TemplateLocation::before_start(name, at("until"));
        let until = TemplateLocation { names: item_names(step), ..until };
        self.check_expression(&repeat.until, &until);
        let max = limits::ROUNDS_MAX;
        if !(1..=max).contains(&repeat.at_most) {
            self.report(at("at_most"), format!("must be from 1 to {max}"));
        }
        if step.for_each.is_some() {
            let hint = "repeat a child workflow for each item".to_owned();
            let at = format!("steps.{name}.repeat");
            self.report_with_hint(at, "not together with `for_each`", Some(hint));
        }
    }

    /// Checks a step that polls.
    fn check_until(&mut self, name: &StepName, step: &StepDefinition, until: &Until) {
        let at = |key: &str| format!("steps.{name}.{key}");
        let conditions = [("condition", Some(&until.condition)), ("fail", until.fail.as_ref())];
        for (key, template) in conditions {
            let Some(template) = template else { continue };
            let at = at(&format!("until.{key}"));
            self.check_of_response(template, &at);
            if !template.is_expression() && template.problems().is_empty() {
                self.report(at, "must consist of exactly one expression");
            }
        }
        self.check_within(&at("until.every"), until.every, limits::WAIT_MAX);
        match step.recovery.give_up_after {
            None => {
                let hint = Some("for example `give_up_after: 2h`".to_owned());
                self.report_with_hint(at("recovery"), "polls need an end: `give_up_after`", hint);
            }
            Some(limit) if limit <= until.every => {
                let message = "must be longer than `until.every`, for a second poll";
                self.report(at("recovery.give_up_after"), message);
            }
            Some(_) => {}
        }
        if step.agent.as_ref().is_some_and(StepAgents::falls_back) {
            self.report(
                at("until"),
                "asks one agent: the next one of a list would not know the job",
            );
        }
        if step.callback.is_some() {
            self.report(at("until"), "a step with a `callback` is completed by it");
        }
        for status in Until::defined_twice(&step.responses) {
            self.report(at(&format!("responses.{status}")), "`until` gives it a meaning");
        }
    }

    /// Checks a step that only fails. It is never repeated, so its recovery policy is only a final action.
    fn check_fail(&mut self, name: &StepName, step: &StepDefinition, reason: &Template) {
        let text = reason.as_literal().and_then(|reason| reason.as_str());
        let max = limits::REASON_CHARS_MAX;
        if text.is_none_or(|text| !(1..=max).contains(&text.chars().count())) {
            let message = format!(
                "must be a text without expressions, from 1 to {max} characters: logs show it"
            );
            self.report(format!("steps.{name}.fail"), message);
        }
        if step.recovery != (Recovery { then: step.recovery.then, ..Recovery::default() }) {
            let message = "a step that only fails is never repeated: only `then` is allowed";
            self.report(format!("steps.{name}.recovery"), message);
        }
    }

    fn check_callback(
        &mut self,
        name: &StepName,
        step: &StepDefinition,
        callback: &CallbackDefinition,
    ) {
        let at = |key: &str| format!("steps.{name}.callback.{key}");
        let CallbackDefinition { within, heartbeat, from, answer } = callback;
        self.check_within(&at("within"), *within, limits::STEP_WITHIN_MAX);
        if let Some(heartbeat) = heartbeat {
            self.check_within(&at("heartbeat"), *heartbeat, *within);
        }
        if let Some(from) = from {
            let location = TemplateLocation {
                names: item_names(step),
                ..TemplateLocation::before_start(name, at("from"))
            };
            self.check_template(from, &location);
        }
        if let Some(problem) = answer.as_ref().and_then(PayloadSchema::problem) {
            self.report(at("answer"), format!("not a JSON Schema: {problem}"));
        }
        let Some(request) = &step.request else { return };
        if !request
            .templates()
            .any(|template| template.required_values().names.contains("callback"))
        {
            let message = "no callback could arrive: the request does not contain the token";
            let hint =
                Some("put `${ callback.token }` or `${ callback.url }` into `request`".to_owned());
            self.report_with_hint(format!("steps.{name}.callback"), message, hint);
        }
    }

    fn check_action(&mut self, name: &StepName, step: &StepDefinition, action: Action) {
        let Some(definition) = step.action(action) else { return };
        let at = |key: &str| match action {
            Action::Do => format!("steps.{name}.{key}"),
            Action::Undo => format!("steps.{name}.undo.{key}"),
        };
        if let StepWork::Event(wait) = definition.work {
            return self.check_event_wait(name, step, wait);
        }
        let within = definition.complete_within;
        self.check_within(&at("complete_within"), within, limits::STEP_WITHIN_MAX);
        self.check_recovery(&at("recovery"), definition.recovery, action);
        let call_within = match action {
            Action::Do => step.call_within,
            Action::Undo => step.undo.as_ref().and_then(|undo| undo.call_within),
        };
        self.check_call_within(&at("call_within"), call_within);
        // Those of a poll are checked as `until`.
        let responses = match action {
            Action::Do => &step.responses,
            Action::Undo => definition.responses,
        };
        self.check_responses(&at("responses"), responses);
        let mut names = item_names(step);
        names.extend((action == Action::Do && step.callback.is_some()).then_some("callback"));
        names.extend(definition.work.is_call().then_some("request"));
        names.extend(step.items_at_once().is_none().then_some("step"));
        let own = action == Action::Undo;
        let location = |key: &str| TemplateLocation {
            at: at(key),
            step: Some(name),
            own,
            names: names.clone(),
        };
        match definition.work {
            StepWork::Call { request, agents, .. } => {
                if let Some(choice) = agents.choice().filter(|_| action == Action::Do) {
                    let mut location = location("agent.choose");
                    location.names.retain(|name| !["callback", "request", "step"].contains(name));
                    self.check_template(&choice.choose, &location);
                }
                self.check_request(request, location);
            }
            StepWork::Child(child) if action == Action::Do => {
                if child.version == Some(0) {
                    self.report(at("workflow.version"), "versions count from 1");
                }
                if let Some(input) = &child.input {
                    self.check_template(input, &location("workflow.input"));
                }
            }
            StepWork::Child(_) | StepWork::Event(_) => {}
            StepWork::Wait(_) if step.fail.is_some() => {}
            StepWork::Wait(wait) => {
                self.check_template(wait, &location("wait"));
                let until = wait.as_literal().map(|wait| wait_until(wait, jiff::Timestamp::MAX));
                if let Some(Err(invalid)) = until {
                    self.report(at("wait"), invalid.to_string());
                }
            }
        }
    }

    fn check_within(&mut self, at: &str, given: Duration, max: Duration) {
        if given < limits::STEP_WITHIN_MIN || given > max {
            let (least, day) = (limits::STEP_WITHIN_MIN.as_millis(), 24 * 3600);
            let max = match max.as_secs() {
                secs if secs % day == 0 => format!("{}d", secs / day),
                _ => humantime::format_duration(max).to_string(),
            };
            let message = format!("must be from {least}ms to {max}");
            if !self.is_of_defaults(at, &message) {
                self.report(at, message);
            }
        }
    }

    /// Checks the time limit of a call: an agent cannot wait longer than its maximum.
    fn check_call_within(&mut self, at: &str, given: Option<Duration>) {
        let (min, max) = (limits::STEP_WITHIN_MIN, limits::CALL_WITHIN_MAX);
        let Some(given) = given.filter(|given| !(min..=max).contains(given)) else { return };
        let message = format!("must be from {}ms to {}s", min.as_millis(), max.as_secs());
        if self.is_of_defaults(at, &message) {
            return;
        }
        let hint = "an agent cannot wait longer for a call: let the call only start the work, and let \
                    the service complete the step with a `callback`";
        self.report_with_hint(at, message, (given > max).then(|| hint.to_owned()));
    }

    fn check_responses(&mut self, at: &str, responses: &ResponseOverrides) {
        let (count, max) = (responses.iter().count(), limits::RESPONSES_MAX);
        let bytes = serde_json::to_string(responses).map_or(0, |json| json.len());
        if count > max {
            self.report_once(at, format!("{count} statuses; the limit is {max}"));
        } else if bytes > limits::RESPONSES_BYTES_MAX {
            let max = limits::RESPONSES_BYTES_MAX;
            self.report_once(at, format!("{bytes} bytes of JSON; the limit is {max}"));
        }
        for (status, meaning) in responses.iter() {
            let StatusMeaning::Cases(cases) = meaning else { continue };
            for (index, case) in cases.iter().enumerate() {
                let at = format!("{at}.{status}.{index}");
                self.check_case(&at, case, index + 1 == cases.len());
            }
        }
    }

    fn check_case(&mut self, at: &str, case: &ResponseCase, is_last: bool) {
        for (key, template) in case.templates() {
            self.check_of_response(template, &format!("{at}.{key}"));
        }
        for (key, message) in case.invalid_literals() {
            self.report_once(&format!("{at}.{key}"), message.to_owned());
        }
        for key in case.keys_without_effect() {
            let message = "has a meaning only with the class `retry`".to_owned();
            self.report_once(&format!("{at}.{key}"), message);
        }
        if case.when.is_none() && !is_last {
            let message = "matches each response, so the cases after it never do".to_owned();
            self.report_once(at, message);
        }
    }

    /// Reports a problem, unless it is reported for the defaults.
    fn report_once(&mut self, at: &str, message: String) {
        if !self.is_of_defaults(at, &message) {
            self.report(at, message);
        }
    }

    fn check_recovery(&mut self, at: &str, recovery: &Recovery, action: Action) {
        for (key, message) in recovery.problems(action) {
            let at = format!("{at}.{key}");
            if !self.is_of_defaults(&at, &message) {
                self.report(at, message);
            }
        }
    }
}

/// The kind of a step that waits for an event, in messages.
const EVENT_WAIT: &str = "wait.event";

fn wait_kind(step: &StepDefinition) -> &'static str {
    match &step.wait {
        Some(Wait::Event(_)) => EVENT_WAIT,
        Some(Wait::Until(_)) | None => "wait",
    }
}

/// The names that only the expressions of a step with items may use.
fn item_names(step: &StepDefinition) -> Vec<&'static str> {
    step.items_at_once().iter().flat_map(|_| ["item", "item_index"]).collect()
}

fn undo_has_agent(step: &StepDefinition) -> bool {
    step.undo.as_ref().is_some_and(|undo| undo.agent.is_some())
}

fn undo_has_call_within(step: &StepDefinition) -> bool {
    step.undo.as_ref().is_some_and(|undo| undo.call_within.is_some())
}

fn undo_has_responses(step: &StepDefinition) -> bool {
    step.undo.as_ref().is_some_and(|undo| !undo.responses.is_empty())
}
