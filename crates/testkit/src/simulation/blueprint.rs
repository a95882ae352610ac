//! The simulation's model of a random workflow. Both the published definition and the oracle's expectations are
//! derived from it, so neither depends on the other.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use steward_core::{
    definition::plan::Plan,
    model::{
        lifecycle::LifecycleEventKind,
        names::{StepName, WorkflowName},
        time::later,
    },
};

use super::{
    agents_plan::AgentsPlan,
    event_wait::EventWaitPlan,
    virtual_time::{EPOCH_S, Millis, millis},
};

/// A random workflow.
#[derive(Debug, Clone)]
pub(super) struct Blueprint {
    pub(super) name: WorkflowName,
    pub(super) complete_within: Millis,
    pub(super) overdue: &'static str,
    /// The retention in hours, if the definition sets it.
    pub(super) retention_h: Option<u64>,
    /// The `defaults` of the definition.
    pub(super) defaults: Option<Value>,
    pub(super) steps: BTreeMap<StepName, StepPlan>,
    pub(super) output: OutputPlan,
    /// The lifecycle events that its tasks publish.
    pub(super) lifecycle_events: BTreeSet<LifecycleEventKind>,
}

/// The output of the workflow.
#[derive(Debug, Clone)]
pub(super) enum OutputPlan {
    Nothing,
    /// The outputs of these steps, by name.
    Of(Vec<StepName>),
    /// The output of this step.
    One(StepName),
    /// An expression that has no value.
    Broken,
}

/// A random step.
#[derive(Debug, Clone)]
pub(super) struct StepPlan {
    pub(super) after: Vec<StepName>,
    pub(super) when: Option<WhenPlan>,
    pub(super) each: Option<ForEachPlan>,
    pub(super) work: WorkPlan,
    /// The steps whose outputs are in its request.
    pub(super) reads: Vec<StepName>,
    /// The document in its request, or in the input of its child task.
    pub(super) document: Option<DocumentPlan>,
    pub(super) complete_within: Option<&'static str>,
    pub(super) recovery: Option<Value>,
    pub(super) undo: Option<UndoPlan>,
    pub(super) point_of_no_return: bool,
    /// Whether it and its undo judge a 200 by its body.
    pub(super) judges_body: bool,
}

impl StepPlan {
    /// Whether the task goes on without the step if it fails.
    pub(super) fn is_passed_over(&self) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| recovery["then"] == "continue")
    }
}

/// A document that a step passes on. It may be a payload, or contain some.
#[derive(Debug, Clone)]
pub(super) struct DocumentPlan {
    pub(super) source: DocumentSource,
    /// Whether it is the whole body of the request, so that an agent sends the payload itself.
    pub(super) is_whole: bool,
}

/// Where a document comes from.
#[derive(Debug, Clone)]
pub(super) enum DocumentSource {
    Input,
    /// The output of this step.
    Output(StepName),
}

/// The kind of a step.
#[derive(Debug, Clone)]
pub(super) enum WorkPlan {
    Call { agents: AgentsPlan, idempotent: bool, callback: Option<CallbackPlan> },
    Wait(WaitPlan),
    Event(EventWaitPlan),
    Child(&'static str),
}

/// The callback of a step, in virtual milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallbackPlan {
    pub(super) within: Millis,
    pub(super) heartbeat: Option<Millis>,
}

/// The duration or end of a wait.
#[derive(Debug, Clone, Copy)]
pub(super) enum WaitPlan {
    For(Millis),
    /// Until this time after the start of the run.
    Until(Millis),
    /// A duration that the input contains as text, in milliseconds.
    Input,
    /// An expression whose value is neither a time nor a duration.
    Broken,
}

/// The `when` of a step.
#[derive(Debug, Clone)]
pub(super) enum WhenPlan {
    Always(bool),
    AmountBelow(u64),
    /// The field `roll` in the output of this step is below the limit.
    RollBelow(StepName, u64),
    NotBoolean,
}

/// The `for_each` of a step.
#[derive(Debug, Clone)]
pub(super) struct ForEachPlan {
    pub(super) items: ItemsPlan,
    pub(super) at_once: usize,
}

/// The source of the items.
#[derive(Debug, Clone)]
pub(super) enum ItemsPlan {
    Literal(Vec<u64>),
    Input,
    /// The field `items` in the output of this step.
    Output(StepName),
    NotAList,
    /// So many rounds, instead of items. Each gets the output of the one before, and the first one null.
    Rounds(u32),
}

/// The undo of a step.
#[derive(Debug, Clone)]
pub(super) struct UndoPlan {
    pub(super) complete_within: Option<&'static str>,
    pub(super) recovery: Option<Value>,
    /// Whether its request contains the output of the step. A failed step has no output.
    pub(super) reads_own: bool,
}

impl StepPlan {
    /// A step that calls this agent, after these steps. It has no undo.
    pub(super) fn call(agent: &'static str, after: Vec<StepName>) -> Self {
        Self {
            after,
            when: None,
            each: None,
            work: WorkPlan::Call {
                agents: AgentsPlan::One(agent),
                idempotent: true,
                callback: None,
            },
            reads: Vec::new(),
            document: None,
            complete_within: None,
            recovery: None,
            undo: None,
            point_of_no_return: false,
            judges_body: false,
        }
    }
}

impl Blueprint {
    /// A workflow without an output, which alerts when it is overdue.
    pub(super) fn of(
        name: WorkflowName,
        complete_within: Millis,
        steps: BTreeMap<StepName, StepPlan>,
    ) -> Self {
        Self {
            name,
            complete_within,
            overdue: "alert",
            retention_h: None,
            defaults: None,
            steps,
            output: OutputPlan::Nothing,
            lifecycle_events: BTreeSet::new(),
        }
    }

    /// The definition as JSON, as a user would write it.
    pub(super) fn definition(&self) -> Value {
        let steps: Map<_, _> = self
            .steps
            .iter()
            .map(|(name, step)| (name.to_string(), step.definition(name)))
            .collect();
        let mut workflow = json!({
            "name": self.name,
            "version": 1,
            "complete_within": millis(self.complete_within),
            "overdue": self.overdue,
            "steps": steps,
        });
        let retention = self.retention_h.map(|hours| json!(format!("{hours}h")));
        let more = [
            ("retention", retention),
            ("defaults", self.defaults.clone()),
            ("output", self.output.definition()),
            ("lifecycle_events", Some(json!(self.lifecycle_events))),
        ];
        put(&mut workflow, more);
        workflow
    }

    /// The parsed and compiled definition.
    pub(super) fn workflow(&self) -> Result<Plan> {
        Ok(serde_json::from_value(self.definition())?)
    }
}

impl OutputPlan {
    fn definition(&self) -> Option<Value> {
        match self {
            Self::Nothing => None,
            Self::Of(steps) => {
                Some(json!({ "steps": outputs(steps), "amount": "${ input.amount }" }))
            }
            Self::One(step) => Some(output(step)),
            Self::Broken => Some(json!({ "none": "${ input.nowhere.near }" })),
        }
    }
}

impl StepPlan {
    fn definition(&self, name: &StepName) -> Value {
        let mut step = json!({ "after": self.after });
        let each = self
            .each
            .as_ref()
            .map(|each| json!({ "items": each.items.expression(), "at_once": each.at_once }));
        let rounds = self.rounds();
        let repeat = rounds.map(|count| {
            json!({ "until": format!("${{ item_index == {} }}", count - 1), "at_most": count })
        });
        put(
            &mut step,
            [
                ("when", self.when.as_ref().map(WhenPlan::expression)),
                ("for_each", each.filter(|_| rounds.is_none())),
                ("repeat", repeat),
                ("complete_within", self.complete_within.map(Into::into)),
                ("recovery", self.recovery.clone()),
                ("point_of_no_return", self.point_of_no_return.then_some(Value::Bool(true))),
                ("responses", self.judges_body.then(|| json!({ "200": response_cases() }))),
                ("undo", self.undo_definition(name)),
            ],
        );
        put(&mut step, self.work_definition(name));
        step
    }

    fn work_definition(&self, name: &StepName) -> [(&'static str, Option<Value>); 6] {
        let mut keys = [
            ("agent", None),
            ("request", None),
            ("callback", None),
            ("idempotent", None),
            ("wait", None),
            ("workflow", None),
        ];
        let mut set = |key: &str, value: Value| {
            keys.iter_mut().filter(|(name, _)| *name == key).for_each(|(_, slot)| {
                *slot = Some(value.clone());
            });
        };
        match &self.work {
            WorkPlan::Call { agents, idempotent, callback } => {
                let mut body = self.body();
                if let Some(callback) = callback {
                    set("callback", callback.definition());
                    put(&mut body, [("token", Some(json!("${ callback.token }")))]);
                }
                if !idempotent {
                    set("idempotent", json!(false));
                }
                set("agent", agents.definition());
                set("request", json!({ "path": "/do", "body": body }));
            }
            WorkPlan::Wait(wait) => set("wait", json!(wait.text())),
            WorkPlan::Event(wait) => set("wait", wait.definition(name, self.each.is_some())),
            WorkPlan::Child(child) => {
                set("workflow", json!({ "name": child, "input": self.child_input() }))
            }
        }
        keys
    }

    fn body(&self) -> Value {
        if let Some(document) = self.document.as_ref().filter(|document| document.is_whole) {
            return document.source.expression();
        }
        let mut body = json!({
            "task": "${ task.id }", "amount": "${ input.amount }", "before": outputs(&self.reads),
        });
        put(&mut body, [("item", self.item()), ("document", self.document_expression())]);
        body
    }

    fn document_expression(&self) -> Option<Value> {
        self.document.as_ref().map(|document| document.source.expression())
    }

    fn item(&self) -> Option<Value> {
        self.each.as_ref().map(|_| json!("${ item }"))
    }

    /// How many rounds it has, if it is repeated.
    pub(super) fn rounds(&self) -> Option<u32> {
        match self.each.as_ref()?.items {
            ItemsPlan::Rounds(count) => Some(count),
            ItemsPlan::Literal(_)
            | ItemsPlan::Input
            | ItemsPlan::Output(_)
            | ItemsPlan::NotAList => None,
        }
    }

    fn child_input(&self) -> Value {
        let mut input = json!({
            "amount": self.item().filter(|_| self.rounds().is_none()).unwrap_or_else(|| json!("${ input.amount }")),
            "items": [7, 8],
            "wait": "${ input.wait }",
            "before": outputs(&self.reads),
        });
        put(&mut input, [("document", self.document_expression())]);
        input
    }

    fn undo_definition(&self, name: &StepName) -> Option<Value> {
        let undo = self.undo.as_ref()?;
        let mut definition = json!({});
        put(
            &mut definition,
            [
                ("complete_within", undo.complete_within.map(Into::into)),
                ("recovery", undo.recovery.clone()),
            ],
        );
        if matches!(self.work, WorkPlan::Call { .. }) {
            let mut body = json!({ "task": "${ task.id }", "amount": "${ input.amount }" });
            let own = undo.reads_own.then(|| json!(format!("${{ steps.{name}.output }}")));
            put(&mut body, [("item", self.item()), ("own", own)]);
            let request = json!({ "path": "/undo", "body": body });
            // 404: there is nothing to undo.
            let mut responses = json!({ "404": "completed" });
            put(&mut responses, [("200", self.judges_body.then(response_cases))]);
            put(&mut definition, [("request", Some(request)), ("responses", Some(responses))]);
        }
        Some(definition)
    }
}

impl DocumentSource {
    fn expression(&self) -> Value {
        match self {
            Self::Input => json!("${ input.document }"),
            Self::Output(step) => output(step),
        }
    }
}

impl WorkPlan {
    /// The name of the kind, for counts.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Call { callback: None, .. } => "call",
            Self::Call { callback: Some(_), .. } => "callback",
            Self::Wait(_) => "wait",
            Self::Event(_) => "event",
            Self::Child(_) => "workflow",
        }
    }
}

impl CallbackPlan {
    fn definition(self) -> Value {
        let mut callback = json!({ "within": millis(self.within) });
        put(&mut callback, [("heartbeat", self.heartbeat.map(|every| json!(millis(every))))]);
        callback
    }
}

impl WaitPlan {
    fn text(self) -> String {
        match self {
            Self::For(time) => millis(time),
            Self::Until(time) => {
                let epoch = Timestamp::from_second(EPOCH_S).unwrap_or_default();
                later(epoch, std::time::Duration::from_millis(time)).to_string()
            }
            Self::Input => "${ input.wait }".to_owned(),
            Self::Broken => "${ task.id }".to_owned(),
        }
    }
}

impl WhenPlan {
    fn expression(&self) -> Value {
        json!(match self {
            Self::Always(should_run) => format!("${{ {should_run} }}"),
            Self::AmountBelow(limit) => format!("${{ input.amount < {limit} }}"),
            Self::RollBelow(step, limit) => format!("${{ steps.{step}.output.roll < {limit} }}"),
            Self::NotBoolean => "${ input.amount }".to_owned(),
        })
    }
}

impl ItemsPlan {
    fn expression(&self) -> Value {
        json!(match self {
            Self::Literal(items) => format!("${{ {items:?} }}"),
            Self::Input => "${ input.items }".to_owned(),
            Self::Output(step) => format!("${{ steps.{step}.output.items }}"),
            Self::NotAList | Self::Rounds(_) => "${ input.amount }".to_owned(),
        })
    }
}

/// The cases of a 200 for a service that answers errors with it. Every other body is a success.
fn response_cases() -> Value {
    json!([
        {
            "when": "${ response.body.error == 'throttled' }",
            "class": "retry",
            "did_not_run": true,
            "after": "${ response.body.seconds }",
        },
        { "when": "${ response.body.error == 'internal' }", "class": "retry" },
    ])
}

fn outputs(steps: &[StepName]) -> Value {
    Value::Object(steps.iter().map(|step| (step.to_string(), output(step))).collect())
}

fn output(step: &StepName) -> Value {
    json!(format!("${{ steps.{step}.output }}"))
}

/// Adds the keys that have a value to an object.
fn put<const N: usize>(object: &mut Value, keys: [(&str, Option<Value>); N]) {
    let Some(fields) = object.as_object_mut() else { return };
    for (key, value) in keys {
        fields.extend(value.map(|value| (key.to_owned(), value)));
    }
}
