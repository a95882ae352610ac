//! Checks of templates: their syntax, and the names and outputs that their expressions read.

use super::checker::Checker;
use crate::{expression::template::Template, hint, limits, model::names::StepName};

/// The names that every expression of a step may use.
const NAMES_AVAILABLE_EVERYWHERE: [&str; 2] = ["input", "task"];

/// The location of a template, and the names that its expressions may use there.
pub(super) struct TemplateLocation<'p> {
    pub(super) at: String,
    /// The step of the template, if it belongs to one. The template may read only the outputs of its predecessors.
    pub(super) step: Option<&'p StepName>,
    /// Whether it may read the output of its own step. An undo may.
    pub(super) own: bool,
    /// The names that it may use beside [`NAMES_AVAILABLE_EVERYWHERE`] and `steps`.
    pub(super) names: Vec<&'static str>,
}

/// Where a name is available that is not available everywhere.
fn availability(name: &str) -> &'static str {
    match name {
        "vars" | "env" => "in templates that Steward renders, as `vars.NAME` and `env.NAME`",
        "item" | "item_index" => {
            "in a step with `for_each` or `repeat`, in its request, input and undo"
        }
        "step" => {
            "in the request of a step without items, in its undo and in the input of its child task"
        }
        "request" => "in the request of a step with an `agent`, or of its undo",
        "callback" => "in a step with `callback`, in its request",
        "response" => "in the `output` of a step with an `agent`",
        _ => "in a `trigger`, and in `wait.event.key`",
    }
}

impl<'p> TemplateLocation<'p> {
    /// The location of a template that is evaluated before the step starts.
    pub(super) fn before_start(step: &'p StepName, at: String) -> Self {
        Self { at, step: Some(step), own: false, names: Vec::new() }
    }
}

impl Checker<'_> {
    /// Checks `env` and `vars`. What a variable reads is checked where it is used.
    pub(super) fn check_named_values(&mut self) {
        let workflow = self.workflow;
        let max = limits::NAMED_VALUES_MAX;
        for (key, count) in [("env", workflow.env.len()), ("vars", workflow.vars.len())] {
            if count > max {
                self.report(key, format!("{count} names; the limit is {max}"));
            }
        }
        for (name, value) in &workflow.env {
            let is_too_large = value.is_u64() && !value.is_i64();
            let is_too_long =
                value.as_str().is_some_and(|text| text.len() > limits::ENV_TEXT_BYTES_MAX);
            let problem = match value.is_array() || value.is_object() {
                true => "must be a text, a number, `true`, `false` or null".to_owned(),
                false if is_too_large => "must fit into 64 bits; write it as a text".to_owned(),
                false if is_too_long => {
                    format!("the limit is {} bytes", limits::ENV_TEXT_BYTES_MAX)
                }
                false => continue,
            };
            self.report(format!("env.{name}"), problem);
        }
        for (name, template) in &workflow.vars {
            let at = format!("vars.{name}");
            self.check_syntax(template, &at);
            if template.problems().is_empty() && !template.is_expression() {
                let hint = Some("for example `${ input.price * input.count }`".to_owned());
                self.report_with_hint(at, "must consist of exactly one expression", hint);
            }
        }
    }

    /// Checks `labels`. They are computed before the first step.
    pub(super) fn check_labels(&mut self) {
        let (count, max) = (self.workflow.labels.len(), limits::LABELS_MAX);
        if count > max {
            self.report("labels", format!("{count} labels; the limit is {max}"));
        }
        for (name, template) in &self.workflow.labels {
            let at = format!("labels.{name}");
            let source = template.source();
            if source.is_array() || source.is_object() || source.is_null() {
                let hint = Some("for example `${ input.customer.id }`".to_owned());
                self.report_with_hint(&at, "must be a text, a number or a boolean", hint);
            }
            self.check_syntax(template, &at);
            let reads = template.required_values();
            let available = |name: &&str| NAMES_AVAILABLE_EVERYWHERE.contains(name);
            let others = reads.names.iter().copied().filter(|name| !available(name));
            for name in others.chain(reads.reads_steps().then_some("steps")) {
                let message = format!(
                    "`{name}` is not available here: the labels are computed at submission"
                );
                self.report(&at, message);
            }
        }
    }

    pub(super) fn check_expression(
        &mut self,
        template: &Template,
        location: &TemplateLocation<'_>,
    ) {
        if template.problems().is_empty() && !template.is_expression() {
            let example = match location.at.rsplit('.').next() {
                Some("when") => "input.amount > 0",
                Some("until") => "item.next == null",
                Some(_) | None => "input.items",
            };
            let hint = Some(format!("for example `${{ {example} }}`"));
            self.report_with_hint(
                location.at.clone(),
                "must consist of exactly one expression",
                hint,
            );
        }
        self.check_template(template, location);
    }

    pub(super) fn check_template(&mut self, template: &Template, location: &TemplateLocation<'_>) {
        self.check_syntax(template, &location.at);
        for (inside, reads) in template.required_values_by_location() {
            let at = format!("{}{inside}", location.at);
            for name in &reads.names {
                if NAMES_AVAILABLE_EVERYWHERE.contains(name) || location.names.contains(name) {
                    continue;
                }
                let only = availability(name);
                self.report(&at, format!("`{name}` is available only {only}"));
            }
            let fields = [("output", &reads.steps), ("failed", &reads.failed)];
            for (field, steps) in fields {
                steps.iter().for_each(|read| self.check_read(read, field, &at, location));
            }
        }
    }

    /// Checks the `output` of a step. The agent evaluates it, and knows only the response.
    pub(super) fn check_output(&mut self, output: &Template, at: &str) {
        self.check_of_response(output, at);
        let bytes = output.source().to_string().len();
        let max = limits::OUTPUT_TEMPLATE_BYTES_MAX;
        if bytes > max {
            self.report(at, format!("{bytes} bytes of JSON; the limit is {max}"));
        }
        if output.required_values().names.is_empty() && output.problems().is_empty() {
            let hint = Some("for example `${ response.body.id }`".to_owned());
            self.report_with_hint(at, "does not use `response`", hint);
        }
    }

    /// Checks a template that may read only the response.
    pub(super) fn check_of_response(&mut self, template: &Template, at: &str) {
        self.check_syntax(template, at);
        for (inside, reads) in template.required_values_by_location() {
            let others = reads.names.iter().copied().filter(|name| *name != "response");
            for name in others.chain(reads.reads_steps().then_some("steps")) {
                let message = format!("`{name}` is not available here: only `response` is");
                self.report(format!("{at}{inside}"), message);
            }
        }
    }

    fn check_read(
        &mut self,
        read: &StepName,
        field: &str,
        at: &str,
        location: &TemplateLocation<'_>,
    ) {
        if !self.workflow.steps.contains_key(read) {
            let message = format!("`steps.{read}.{field}`: there is no step `{read}`");
            return self.report_with_hint(at, message, self.similar_step(read));
        }
        let Some(step) = location.step else { return };
        let before = self.before.get(step);
        // If a predecessor does not exist, the missing step may be a predecessor of the correct one.
        if before.is_some_and(|all| all.iter().any(|name| !self.workflow.steps.contains_key(*name)))
        {
            return;
        }
        let comes_before = before.is_some_and(|before| before.contains(read));
        if !(comes_before || location.own && read == step) {
            let message = match read == step {
                true => format!("`steps.{read}.{field}`: there is none before the step has ended"),
                false => {
                    format!("`steps.{read}.{field}`: step `{read}` does not come before this one")
                }
            };
            let hint = (read != step).then(|| format!("add `{read}` to `after`"));
            self.report_with_hint(at, message, hint);
        }
    }

    /// Checks what does not depend on the place of a template: its syntax, and the fields that it reads.
    pub(super) fn check_syntax(&mut self, template: &Template, at: &str) {
        for (inside, problem) in template.problems() {
            self.report_with_hint(format!("{at}{inside}"), problem.to_string(), problem.hint());
        }
        for (inside, (name, known), field) in template.unknown_fields() {
            let list: Vec<_> = known.iter().map(|field| format!("`{field}`")).collect();
            let message = format!("`{name}` has no `{field}`, only {}", list.join(", "));
            let meant = hint::closest_match(&field, known.iter().copied());
            let hint = meant.map(|meant| format!("did you mean `{meant}`?"));
            self.report_with_hint(format!("{at}{inside}"), message, hint);
        }
    }
}
