//! The plan of runs with payloads: which steps get a document, how often services answer with large or with forged responses,
//! and which forged references clients submit.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use steward_core::model::names::StepName;

use super::{
    blueprint::{Blueprint, DocumentPlan, DocumentSource, OutputPlan, StepPlan, WorkPlan},
    payload_values::{Content, Reference},
    random::SeededRandom,
    virtual_time::{HOUR, MINUTE, Millis},
};

/// The share of runs with payloads.
const RUNS_SHARE: f64 = 0.25;

/// The first number of a content that does not exist before the run.
const FIRST_NUMBER: u64 = 1_000_000;

/// The payloads of a run.
#[derive(Debug, Clone)]
pub(super) struct PayloadPlan {
    /// The share of calls with a response that is too large for a message.
    pub(super) large_responses: f64,
    /// The share of calls whose response is, or contains, a forged reference.
    pub(super) forged_responses: f64,
    /// The forged references that clients submit.
    pub(super) forged_submissions: Vec<ForgedSubmission>,
    /// The longest time between two runs of a supervisor that look for objects to delete.
    pub(super) sweep_every: Millis,
    /// The share of copies after which such a run begins at once.
    pub(super) sweep_after_claim: f64,
}

/// A client submits the input of a task with a reference that it may not use.
#[derive(Debug, Clone)]
pub(super) struct ForgedSubmission {
    pub(super) at: Millis,
    /// The index of the task in the plan.
    pub(super) task: usize,
    pub(super) kind: Forgery,
    /// Whether it has the id of that task.
    pub(super) has_its_id: bool,
}

/// What is wrong with a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forgery {
    /// It is of an object of another task.
    Foreign,
    /// There is no such object.
    Missing,
    OtherSize,
    OtherDigest,
    Malformed,
    /// Its upload is too old. Only of a client.
    Expired,
}

impl PayloadPlan {
    /// Draws the payloads of a run, and prepares its workflows. Has its own random generator, so that the rest of the plan stays
    /// the same.
    pub(super) fn of(
        seed: u64,
        blueprints: &mut [Blueprint],
        faults_until: Millis,
    ) -> Option<Self> {
        let random = &mut SeededRandom::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xb0d7);
        if !random.chance(RUNS_SHARE) {
            return None;
        }
        blueprints.iter_mut().for_each(|blueprint| pass_documents(blueprint, random));
        let kinds = [
            Forgery::Missing,
            Forgery::OtherSize,
            Forgery::OtherDigest,
            Forgery::Malformed,
            Forgery::Expired,
        ];
        let forged_submissions = (0..random.within(0..=4)).map(|_| ForgedSubmission {
            at: random.skewed(faults_until + MINUTE),
            task: random.within(0..=7) as usize,
            kind: if random.chance(0.5) {
                Forgery::Foreign
            } else {
                random.pick(Forgery::Missing, &kinds)
            },
            has_its_id: random.chance(0.3),
        });
        Some(Self {
            forged_submissions: forged_submissions.collect(),
            large_responses: random.pick(0.2, &[0.5, 0.8]),
            forged_responses: random.pick(0.0, &[0.05, 0.15]),
            sweep_every: random.pick(10 * MINUTE, &[HOUR, 6 * HOUR]),
            sweep_after_claim: random.pick(0.0, &[0.1, 0.5]),
        })
    }
}

/// Lets steps pass documents on: the one of the input, or the output of a step before.
fn pass_documents(blueprint: &mut Blueprint, random: &mut SeededRandom) {
    let returning: BTreeSet<StepName> = blueprint
        .steps
        .iter()
        .filter(|(_, step)| matches!(step.work, WorkPlan::Call { .. } | WorkPlan::Child(_)))
        .map(|(name, _)| name.clone())
        .collect();
    for step in blueprint.steps.values_mut() {
        let before: Vec<_> = step.after.iter().filter(|name| returning.contains(*name)).collect();
        let output = random.index(before.len()).and_then(|index| before.get(index));
        let source = match output.filter(|_| random.chance(0.6)) {
            Some(output) => DocumentSource::Output((*output).clone()),
            None => DocumentSource::Input,
        };
        let may_be_whole =
            step.each.is_none() && matches!(step.work, WorkPlan::Call { callback: None, .. });
        let is_whole = may_be_whole && random.chance(0.6);
        let is_child = matches!(step.work, WorkPlan::Child(_));
        let passes = is_child || matches!(step.work, WorkPlan::Call { .. }) && random.chance(0.9);
        if passes {
            step.document = Some(DocumentPlan { source, is_whole });
        }
        if passes && is_whole {
            step.reads.clear();
        }
    }
    let last = blueprint.steps.keys().next_back().filter(|name| returning.contains(*name));
    if let Some(last) = last.cloned().filter(|_| random.chance(0.5)) {
        blueprint.output = OutputPlan::One(last);
    }
}

impl StepPlan {
    /// The steps whose outputs are in the request, or in the input of the child task.
    pub(super) fn sources(&self) -> impl Iterator<Item = &StepName> {
        let document = match self.document.as_ref().map(|document| &document.source) {
            Some(DocumentSource::Output(step)) => Some(step),
            Some(DocumentSource::Input) | None => None,
        };
        self.reads.iter().chain(document)
    }
}

/// The documents in the inputs of clients. Their uploads are numbered.
#[derive(Debug, Default)]
pub(super) struct DocumentNumbers {
    last: u64,
    /// The reference of the task before, which may be submitted again.
    before: Option<Value>,
}

impl DocumentNumbers {
    /// Numbers for documents that are created during the run.
    pub(super) fn of_run() -> Self {
        Self { last: FIRST_NUMBER, before: None }
    }

    /// A new content.
    pub(super) fn content(&mut self) -> Content {
        self.last += 1;
        Content::numbered(self.last)
    }

    /// A new upload.
    pub(super) fn upload(&mut self) -> Reference {
        let content = self.content();
        Reference { key: upload_key(self.last), content }
    }

    /// The document of an input: one upload, several within a value, the upload of another task, or none.
    pub(super) fn document(&mut self, random: &mut SeededRandom) -> Value {
        let document = match random.within(0..=9) {
            0 | 1 => json!({ "pages": [] }),
            2..=4 => {
                let count = random.within(1..=3);
                let pages: Vec<_> = (0..count).map(|_| self.upload().to_value()).collect();
                json!({ "pages": pages, "title": "scan" })
            }
            5 => self.before.clone().unwrap_or_else(|| self.upload().to_value()),
            _ => self.upload().to_value(),
        };
        self.before = Some(document.clone());
        document
    }
}

/// The key of the upload with this number.
pub(super) fn upload_key(number: u64) -> String {
    format!("uploads/{number:032x}")
}
