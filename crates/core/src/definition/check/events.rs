//! Checks of what concerns events of others: triggers, and waits for an event.

use super::{checker::Checker, templates::TemplateLocation};
use crate::{
    definition::{
        recovery::Recovery,
        step::StepDefinition,
        wait::{AwaitedEvent, EventPattern, EventWait, Wait, rule_pattern},
        workflow::Trigger,
    },
    expression::template::Template,
    limits,
    model::{events::EVENT_SOURCE, names::StepName},
};

impl Checker<'_> {
    pub(super) fn check_trigger(&mut self, trigger: &Trigger) {
        self.check_event_text("trigger.source", &trigger.source);
        self.check_event_text("trigger.detail_type", &trigger.detail_type);
        let tenant = trigger.tenant.iter().map(|template| ("tenant", template));
        for (key, template) in [("task_id", &trigger.task_id)].into_iter().chain(tenant.clone()) {
            if !template.source().is_string() {
                self.report(format!("trigger.{key}"), "must be a string");
            }
        }
        self.check_trigger_cycle(trigger);
        let templates = [("task_id", &trigger.task_id), ("input", &trigger.input)];
        for (key, template) in templates.into_iter().chain(tenant) {
            self.check_event_template(template, &format!("trigger.{key}"), "a trigger");
        }
    }

    /// Checks the source or the detail-type of an event.
    fn check_event_text(&mut self, at: &str, text: &str) {
        let max = limits::EVENT_TEXT_CHARS_MAX;
        if !(1..=max).contains(&text.chars().count()) {
            self.report(at, format!("must have from 1 to {max} characters"));
        }
    }

    /// Checks a template that is rendered with an event only. `what` is what it computes.
    fn check_event_template(&mut self, template: &Template, at: &str, what: &str) {
        self.check_syntax(template, at);
        for (inside, reads) in template.required_values_by_location() {
            let others = reads.names.iter().filter(|name| **name != "event").copied();
            for name in others.chain(reads.reads_steps().then_some("steps")) {
                let message = format!("`{name}`: {what} reads nothing but `event`");
                self.report(format!("{at}{inside}"), message);
            }
        }
    }

    /// Refuses a trigger on an event that its own tasks or submissions publish, because it would run in an endless
    /// loop.
    fn check_trigger_cycle(&mut self, trigger: &Trigger) {
        if trigger.source != EVENT_SOURCE {
            return;
        }
        if trigger.detail_type == "Submission Refused" {
            self.report("trigger", "a refused submission would publish the event that triggers it again, in an endless loop");
        }
        let mut chosen = self.workflow.lifecycle_events.iter();
        if let Some(kind) = chosen.find(|kind| kind.event_type() == trigger.detail_type) {
            let message = format!(
                "each task would publish the event that submits another task, in an endless loop: remove `{kind}` from `lifecycle_events`"
            );
            self.report("trigger", message);
        }
    }

    /// Checks the events that steps wait for against the limit of a rule.
    pub(super) fn check_awaited_events(&mut self) {
        let pattern = rule_pattern(self.workflow.awaited_patterns());
        let chars = pattern.map_or(0, |pattern| pattern.to_string().chars().count());
        let max = limits::EVENT_PATTERN_CHARS_MAX;
        if chars > max {
            let message = format!(
                "the events that steps wait for need a pattern of {chars} characters; the limit is {max}"
            );
            let hint = "use fewer or shorter sources and detail-types".to_owned();
            self.report_with_hint("steps", message, Some(hint));
        }
    }

    /// Checks the events of one wait. Each has another source or detail-type, so that one event has one key.
    fn check_event_patterns(&mut self, at: &str, event: &AwaitedEvent) {
        let max = limits::EVENTS_OF_WAIT_MAX;
        if event.or.len() >= max {
            self.report(format!("{at}.or"), format!("a step waits for at most {max} events"));
        }
        for (index, pattern) in event.patterns().enumerate() {
            let at = match index.checked_sub(1) {
                None => at.to_owned(),
                Some(other) => format!("{at}.or.{other}"),
            };
            self.check_event_pattern(&at, &pattern);
            let mut before = event.patterns().take(index);
            if before.any(|other| other.is_of(pattern.source, pattern.detail_type)) {
                let message =
                    "the step waits for an event with this source and detail-type already";
                self.report(at, message);
            }
        }
    }

    fn check_event_pattern(&mut self, at: &str, pattern: &EventPattern<'_>) {
        let EventPattern { source, detail_type, key } = pattern;
        self.check_event_text(&format!("{at}.source"), source);
        self.check_event_text(&format!("{at}.detail_type"), detail_type);
        self.check_event_template(key, &format!("{at}.key"), "the key of an event");
        if key.required_values().names.is_empty() && key.problems().is_empty() {
            let hint = Some("for example `${ event.detail.order_id }`".to_owned());
            self.report_with_hint(format!("{at}.key"), "does not use `event`", hint);
        }
    }

    /// Checks a wait for an event. It is never repeated, so its recovery policy is only a final action.
    pub(super) fn check_event_wait(
        &mut self,
        name: &StepName,
        step: &StepDefinition,
        wait: &EventWait,
    ) {
        let at = |key: &str| format!("steps.{name}.{key}");
        self.check_within(&at("wait.within"), wait.within, limits::STEP_WITHIN_MAX);
        self.check_event_patterns(&at("wait.event"), &wait.event);
        let names = step.for_each.iter().map(|_| "item").collect();
        let before_start = TemplateLocation::before_start(name, at("wait.event.equals"));
        let equals = &wait.event.equals;
        self.check_template(equals, &TemplateLocation { names, ..before_start });
        let same = |other: &&&StepName| {
            let other = self.workflow.steps.get(**other).and_then(|other| other.wait.as_ref());
            other.and_then(Wait::event).is_some_and(|other| {
                let is_shared = |of| wait.event.patterns().any(|own| own == of);
                other.event.equals == *equals && other.event.patterns().all(is_shared)
            })
        };
        if let Some(other) = self.before.get(name).and_then(|before| before.iter().find(same)) {
            let message = format!(
                "step `{other}` before it waits for the same event, so one event would complete both"
            );
            let hint = "use another `key` or `detail_type` for the second event".to_owned();
            self.report_with_hint(at("wait.event"), message, Some(hint));
        }
        if step.recovery != (Recovery { then: step.recovery.then, ..Recovery::default() }) {
            let message = "a wait for an event is never repeated: only `then` is allowed";
            self.report(at("recovery"), message);
        }
    }
}
