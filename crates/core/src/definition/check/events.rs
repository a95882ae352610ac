//! Checks of what concerns events of others: triggers, and waits for an event.

use super::{checker::Checker, templates::TemplateLocation};
use crate::{
    definition::{
        recovery::Recovery,
        step::StepDefinition,
        wait::{AwaitedEvent, EventWait, Wait},
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

    /// Checks a wait for an event. It is never repeated, so its recovery policy is only a final action.
    pub(super) fn check_event_wait(
        &mut self,
        name: &StepName,
        step: &StepDefinition,
        wait: &EventWait,
    ) {
        let at = |key: &str| format!("steps.{name}.{key}");
        self.check_within(&at("wait.within"), wait.within, limits::STEP_WITHIN_MAX);
        let AwaitedEvent { source, detail_type, key, equals } = &wait.event;
        self.check_event_text(&at("wait.event.source"), source);
        self.check_event_text(&at("wait.event.detail_type"), detail_type);
        self.check_event_template(key, &at("wait.event.key"), "the key of an event");
        if key.required_values().names.is_empty() && key.problems().is_empty() {
            let hint = Some("for example `${ event.detail.order_id }`".to_owned());
            self.report_with_hint(at("wait.event.key"), "does not use `event`", hint);
        }
        let names = step.for_each.iter().map(|_| "item").collect();
        let before_start = TemplateLocation::before_start(name, at("wait.event.equals"));
        self.check_template(equals, &TemplateLocation { names, ..before_start });
        let same = |other: &&&StepName| {
            let other = self.workflow.steps.get(**other).and_then(|other| other.wait.as_ref());
            other.and_then(Wait::event).is_some_and(|other| other.event == wait.event)
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
