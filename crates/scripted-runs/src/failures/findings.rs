//! What the analysis finds: definitions that may leave side effects, or stop half-way.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use serde::Serialize;
use steward_core::{
    definition::{
        lint::Severity,
        recovery::FinalAction,
        step::{StepDefinition, StepWork},
        workflow::Workflow,
    },
    model::{attempt::Action, names::StepName},
};

use super::{
    cases::{FailureCase, NamedFault},
    fault::Fault,
    variants::Variant,
};

/// How many causes a finding lists.
const CAUSES_MAX: usize = 3;

/// The kinds of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// The task ends as Undone, and a side effect of this step remains. Nobody is alerted.
    Leftovers,
    /// The side effect of this step exists more than once if the service forgets idempotency keys.
    Repeated,
    /// The step has a side effect and no undo, and something can fail after it.
    NoUndo,
    /// After the point of no return, one failure stops the task half-way, in Error.
    HalfDone,
    /// A deadline is too short for its attempts and waits.
    ShortDeadline,
    /// The step ran in none of the variants.
    NeverRuns,
}

impl FindingKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Leftovers,
        Self::Repeated,
        Self::NoUndo,
        Self::HalfDone,
        Self::ShortDeadline,
        Self::NeverRuns,
    ];

    /// Its name, for options and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Leftovers => "leftovers",
            Self::Repeated => "repeated",
            Self::NoUndo => "no-undo",
            Self::HalfDone => "half-done",
            Self::ShortDeadline => "short-deadline",
            Self::NeverRuns => "never-runs",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FindingKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| format!("no such finding; the findings are {names}"))
    }
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// The key of the definition that it is about, such as `steps.charge`.
    pub at: String,
    /// What is wrong, and what to do.
    pub message: String,
}

/// All findings, in the order of their kinds. `children` are the workflows of child tasks.
pub(super) fn find(
    workflow: &Workflow,
    children: &[Workflow],
    variants: &[Variant],
    singles: &[FailureCase],
    pairs: &[FailureCase],
) -> Vec<Finding> {
    let mut found = leftovers(singles, pairs);
    found.extend(repeated(singles));
    found.extend(half_done(singles));
    found.extend(of_definition(workflow));
    found.extend(never_runs(workflow, variants));
    for child in children {
        let of_child = of_definition(child).into_iter().chain(never_called(child, variants));
        found.extend(of_child.map(|finding| {
            let at = format!("{}.{}", child.name, finding.at);
            Finding { at, ..finding }
        }));
    }
    found.sort_by_key(|finding| finding.kind);
    found
}

/// What a definition shows without a run.
fn of_definition(workflow: &Workflow) -> Vec<Finding> {
    let mut found = no_undo(workflow);
    found.extend(short_deadlines(workflow));
    found
}

/// Steps whose side effects remain in a task that is Undone.
fn leftovers(singles: &[FailureCase], pairs: &[FailureCase]) -> Vec<Finding> {
    let mut causes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for case in singles.iter().chain(pairs).filter(|case| case.leaves_effects_unnoticed()) {
        for step in &case.left_behind {
            let causes = causes.entry(without_item(step)).or_default();
            let cause = cause(case);
            if !causes.contains(&cause) {
                causes.push(cause);
            }
        }
    }
    let finding = |(step, causes): (String, Vec<String>)| Finding {
        kind: FindingKind::Leftovers,
        at: format!("steps.{step}"),
        message: format!(
            "its side effect remains although the task is Undone, if {}; give it an `undo`, or say why it needs none: `no_undo_needed`",
            listed(&causes)
        ),
    };
    causes.into_iter().map(finding).collect()
}

/// Steps that are repeated for longer than most services remember their idempotency keys.
fn repeated(singles: &[FailureCase]) -> Vec<Finding> {
    let forgotten = singles.iter().filter(|case| {
        let is_forgotten = |fault: &NamedFault| fault.fault == Fault::KeyForgotten;
        !case.more_than_once.is_empty() && case.faults.iter().any(is_forgotten)
    });
    let steps: BTreeSet<_> =
        forgotten.flat_map(|case| &case.faults).map(|fault| &fault.step).collect();
    let finding = |step: &String| {
        Finding {
        kind: FindingKind::Repeated,
        at: format!("steps.{step}"),
        message: "it may be called again a day after its first call: if the service has forgotten the idempotency key, its side \
            effect exists twice; set `recovery.key_valid_for` to a little less than the time for which the service keeps keys"
            .to_owned(),
    }
    };
    steps.into_iter().map(finding).collect()
}

/// The step of `ship[2]`.
fn without_item(step: &str) -> String {
    step.split('[').next().unwrap_or(step).to_owned()
}

/// A case, as the condition in a sentence.
fn cause(case: &FailureCase) -> String {
    let faults = case.faults.iter().map(|fault| match fault.action {
        Action::Do => format!("{} is {}", fault.step, fault.fault),
        Action::Undo => format!("the undo of {} is {}", fault.step, fault.fault),
    });
    faults.collect::<Vec<_>>().join(" and ")
}

fn listed(causes: &[String]) -> String {
    let more = causes.len().saturating_sub(CAUSES_MAX);
    let first: Vec<_> = causes.iter().take(CAUSES_MAX).cloned().collect();
    let more = match more {
        0 => String::new(),
        1 => "; or in one other case".to_owned(),
        more => format!("; or in {more} other cases"),
    };
    format!("{}{more}", first.join("; or if "))
}

/// Steps with a side effect and no undo, before or beside one that can fail.
fn no_undo(workflow: &Workflow) -> Vec<Finding> {
    let ancestors = workflow.ancestors();
    let is_before = |one: &StepName, other: &StepName| {
        ancestors.get(other).is_some_and(|before| before.contains(one))
    };
    let past_return = |name: &StepName| {
        workflow.steps.iter().any(|(other, step)| {
            step.point_of_no_return && (other == name || is_before(other, name))
        })
    };
    let without = workflow.steps.iter().filter(|(name, step)| {
        step.needs_undo() && step.action(Action::Undo).is_none() && !past_return(name)
    });
    let findings = without.filter_map(|(name, _)| {
        let later = workflow.steps.iter().filter(|(other, step)| {
            *other != name && !is_before(other, name) && can_fail(step) && !past_return_before(workflow, other)
        });
        let later: Vec<_> = later.map(|(other, _)| format!("`{other}`")).collect();
        (!later.is_empty()).then(|| Finding {
            kind: FindingKind::NoUndo,
            at: format!("steps.{name}"),
            message: format!(
                "it has a side effect and no `undo`, and {} can fail after it: then nothing can undo it; give it an `undo`, move it to the end, or say why it needs none: `no_undo_needed`",
                later.join(", ")
            ),
        })
    });
    findings.collect()
}

/// Whether a step starts only after the point of no return.
fn past_return_before(workflow: &Workflow, name: &StepName) -> bool {
    let ancestors = workflow.ancestors();
    let before = ancestors.get(name);
    workflow.steps.iter().any(|(other, step)| {
        step.point_of_no_return && before.is_some_and(|before| before.contains(other))
    })
}

fn can_fail(step: &StepDefinition) -> bool {
    let ends_task = step.recovery.then != FinalAction::Continue;
    match step.work() {
        Some(StepWork::Call { .. } | StepWork::Child(_) | StepWork::Event(_)) => ends_task,
        Some(StepWork::Wait(_)) | None => step.fail.is_some() && ends_task,
    }
}

/// Single failures after the point of no return that stop the task.
fn half_done(singles: &[FailureCase]) -> Vec<Finding> {
    let mut causes: BTreeMap<String, (Vec<String>, Vec<String>)> = BTreeMap::new();
    for case in singles.iter().filter(|case| !case.not_done.is_empty()) {
        let Some(fault) = case.faults.first() else { continue };
        let (causes, open) = causes.entry(fault.step.clone()).or_default();
        let cause = fault.fault.to_string();
        if !causes.contains(&cause) {
            causes.push(cause);
        }
        open.extend(
            case.not_done.iter().filter(|step| !open.contains(step)).cloned().collect::<Vec<_>>(),
        );
    }
    let finding = |(step, (causes, open)): (String, (Vec<String>, Vec<String>))| Finding {
        kind: FindingKind::HalfDone,
        at: format!("steps.{step}"),
        message: format!(
            "the task can no longer be undone, and stops in Error without {}, if the step is {}; let it retry for longer (`recovery.extended_wait`), or move the point of no return",
            open.join(", "),
            causes.join(", ")
        ),
    };
    causes.into_iter().map(finding).collect()
}

/// Deadlines that do not fit together, as `steward workflow check` finds them.
fn short_deadlines(workflow: &Workflow) -> Vec<Finding> {
    let is_deadline =
        |at: &str| ["recovery", "complete_within"].iter().any(|key| at.ends_with(key));
    let warnings = workflow.lint().into_iter().filter(|finding| {
        finding.severity == Severity::Warning && is_deadline(&finding.problem.at)
    });
    let findings = warnings.map(|finding| {
        let hint = finding.problem.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
        Finding {
            kind: FindingKind::ShortDeadline,
            at: finding.problem.at,
            message: format!("{}{hint}", finding.problem.message),
        }
    });
    findings.collect()
}

fn never_runs(workflow: &Workflow, variants: &[Variant]) -> Vec<Finding> {
    let skipped = workflow
        .steps
        .iter()
        // A failure branch runs in the cases with that failure.
        .filter(|(_, step)| step.when.as_ref().is_none_or(|when| !when.reads_failures()))
        .map(|(name, _)| name)
        .filter(|name| variants.iter().all(|variant| variant.skipped.contains(name.as_str())));
    skipped.map(never_ran).collect()
}

/// Steps of a child task that none of its runs called, although others were called.
fn never_called(child: &Workflow, variants: &[Variant]) -> Vec<Finding> {
    let called: BTreeSet<_> = variants
        .iter()
        .flat_map(|variant| variant.called.keys())
        .filter(|site| site.workflow == child.name)
        .map(|site| &site.step)
        .collect();
    if called.is_empty() {
        return Vec::new();
    }
    let calls = child.steps.iter().filter(|(_, step)| can_fail(step)).map(|(name, _)| name);
    calls.filter(|name| !called.contains(name)).map(never_ran).collect()
}

fn never_ran(name: &StepName) -> Finding {
    Finding {
        kind: FindingKind::NeverRuns,
        at: format!("steps.{name}"),
        message: "its `when` is false for all values that were tried; give values for which it is true (--input, --output)"
            .to_owned(),
    }
}
