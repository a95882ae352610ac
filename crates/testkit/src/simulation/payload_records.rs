//! What the oracle records about payloads: the place of each task, to which objects its documents refer, to whom each content
//! belongs, and which references are forged. [`payload_checks`](super::payload_checks) checks it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use steward_core::{
    limits,
    model::{
        names::{Incarnation, Part, TaskId},
        payload::{PayloadKey, PayloadReference},
        task::Task,
    },
};
use steward_test_world::MemoryPayloads;

use super::{
    payload_plan::DocumentNumbers,
    payload_values::{Content, Reference, marked_values, references},
    task_record::TaskIncarnation,
    virtual_time::{MINUTE, Millis},
};

/// A submission has at most this many references.
const REFERENCES_MAX: usize = 16;

/// How long an upload can be submitted.
const UPLOAD_LIFETIME: Millis = limits::UPLOAD_LIFETIME.as_millis() as Millis;

/// Everything that the oracle knows about payloads.
#[derive(Debug)]
pub(super) struct PayloadRecords {
    bucket: MemoryPayloads,
    /// The numbers of contents that are created during the run.
    pub(super) numbers: DocumentNumbers,
    /// The prefix of the keys of each task's objects.
    places: BTreeMap<TaskIncarnation, String>,
    /// The objects to which the documents of each task refer.
    pub(super) references: BTreeMap<TaskIncarnation, BTreeMap<String, Content>>,
    /// The clients' tasks to which a content belongs, by its digest. It belongs to their child tasks, too.
    owners: BTreeMap<String, BTreeSet<String>>,
    forged: BTreeSet<Reference>,
    forged_digests: BTreeSet<String>,
    pub(super) forged_inputs: Vec<Value>,
    pub(super) uploaded_at: BTreeMap<String, Millis>,
    /// The outputs that child tasks reported, by the part of the parent.
    child_outputs: BTreeMap<(TaskId, Part), Vec<Value>>,
    /// The submissions that were refused as they had to be.
    pub(super) refused: BTreeSet<String>,
    /// The tasks that were refused because their uploads had expired.
    pub(super) refused_as_expired: BTreeSet<TaskId>,
    /// How many payloads services received.
    pub(super) sent: u64,
    /// How many responses were stored.
    pub(super) stored: u64,
}

impl PayloadRecords {
    pub(super) fn new(bucket: MemoryPayloads) -> Self {
        Self {
            bucket,
            numbers: DocumentNumbers::of_run(),
            places: BTreeMap::new(),
            references: BTreeMap::new(),
            owners: BTreeMap::new(),
            forged: BTreeSet::new(),
            forged_digests: BTreeSet::new(),
            forged_inputs: Vec::new(),
            uploaded_at: BTreeMap::new(),
            child_outputs: BTreeMap::new(),
            refused: BTreeSet::new(),
            refused_as_expired: BTreeSet::new(),
            sent: 0,
            stored: 0,
        }
    }

    /// The content of an object; `None` if it does not exist.
    pub(super) fn object(&self, key: &str) -> Option<Content> {
        let found = self.bucket.content(&PayloadKey::try_from(key.to_owned()).ok()?)?;
        Some(content(&found))
    }

    /// The keys of all objects of tasks.
    pub(super) fn task_keys(&self) -> Vec<String> {
        let keys = self.bucket.keys().into_iter().map(String::from);
        keys.filter(|key| key.starts_with("tasks/")).collect()
    }

    /// Stores an upload, unless it exists. A client does that.
    pub(super) fn upload(&mut self, reference: &Reference, now: Millis) {
        if let Some(stored) = stored(reference) {
            let _: PayloadReference = self.bucket.put_new(&stored);
            self.uploaded_at.entry(reference.key.clone()).or_insert(now);
        }
    }

    /// Records the place of a new task. That of a child task begins with the place of its parent.
    pub(super) fn observe_task(&mut self, task: &Task) {
        let of_parent = match &task.parent {
            Some(parent) => self.place(&parent.task_id, parent.incarnation).map(str::to_owned),
            None => Some("tasks/".to_owned()),
        };
        let Some(mut place) = of_parent else { return };
        place.push_str(&format!("{}@{}/", task.task_id, task.incarnation));
        self.places.insert((task.task_id.clone(), task.incarnation), place);
    }

    /// The prefix of the keys of a task's objects.
    pub(super) fn place(&self, id: &TaskId, incarnation: Incarnation) -> Option<&str> {
        self.places.get(&(id.clone(), incarnation)).map(String::as_str)
    }

    /// The place of a recorded task.
    pub(super) fn place_of(&self, task: &Task) -> Option<&str> {
        self.place(&task.task_id, task.incarnation)
    }

    /// Records that a content belongs to the task with this place.
    pub(super) fn observe_owner(&mut self, content: &Content, place: &str) {
        let owners = self.owners.entry(content.sha256.clone()).or_default();
        owners.insert(root(place).to_owned());
    }

    /// Whether a content belongs to the client's task with this place, or to the one of the child task with it.
    pub(super) fn is_owner(&self, place: &str, content: &Content) -> bool {
        self.owners.get(&content.sha256).is_some_and(|owners| owners.contains(root(place)))
    }

    /// Records a reference with which somebody tries to read what is not theirs, or does not exist.
    pub(super) fn observe_forgery(&mut self, reference: Reference) {
        let object = self.object(&reference.key);
        if object.is_some_and(|object| object.sha256 != reference.content.sha256) {
            self.forged_digests.insert(reference.content.sha256.clone());
        }
        self.forged.insert(reference);
    }

    /// What is wrong with a reference in a document of the task with this place. A forged reference is only data.
    pub(super) fn wrong(&self, place: &str, reference: &Reference) -> Option<String> {
        let Reference { key, content } = reference;
        let wrong = match self.object(key) {
            _ if !key.starts_with(place) => "belongs to another task",
            None => "does not exist",
            Some(object) if !self.is_same_content(&object, content) => "has another content",
            Some(object) if !self.is_owner(place, &object) => "has the content of another task",
            Some(_) => return None,
        };
        (!self.forged.contains(reference)).then(|| format!("refers to {key}, which {wrong}"))
    }

    fn is_same_content(&self, object: &Content, named: &Content) -> bool {
        let is_digest_forged = self.forged_digests.contains(&named.sha256);
        let Content { bytes, sha256, content_type } = object;
        (bytes, content_type) == (&named.bytes, &named.content_type)
            && (*sha256 == named.sha256 || is_digest_forged)
    }

    /// Records the references in a value of a task, and returns what is wrong with them.
    pub(super) fn observe_references(&mut self, task: &Task, value: &Value) -> Vec<String> {
        let mut found = Vec::new();
        for reference in references(value) {
            let Some(place) = self.place_of(task).map(str::to_owned) else { continue };
            found.extend(self.wrong(&place, &reference));
            let object = self.object(&reference.key).filter(|_| reference.key.starts_with(&place));
            if let Some(object) =
                object.filter(|object| self.is_same_content(object, &reference.content))
            {
                let of_task = (task.task_id.clone(), task.incarnation);
                self.references.entry(of_task).or_default().insert(reference.key, object);
            }
        }
        found
    }

    /// Records an output that a child task reported.
    pub(super) fn observe_child_output(&mut self, id: &TaskId, part: &Part, output: &Value) {
        let outputs = self.child_outputs.entry((id.clone(), part.clone())).or_default();
        outputs.push(output.clone());
    }

    /// The outputs that the child tasks of a step reported.
    pub(super) fn child_outputs(&self, id: &TaskId, step: &str) -> impl Iterator<Item = &Value> {
        let own = self
            .child_outputs
            .iter()
            .filter(move |((of, part), _)| of == id && part.step.as_str() == step);
        own.flat_map(|(_, outputs)| outputs)
    }

    /// Whether the task with this place may pass a value on to a child task.
    pub(super) fn may_pass_on(&self, place: &str, value: &Value) -> bool {
        let marked = marked_values(value);
        marked.len() <= REFERENCES_MAX && marked.iter().all(|value| self.is_usable(place, value))
    }

    /// Whether a value with the key of references can be used by the task with this place.
    pub(super) fn is_usable(&self, place: &str, value: &Value) -> bool {
        // A large response is stored at its task.
        if Content::of_response(value).is_some() {
            return true;
        }
        Reference::of(value).is_some_and(|Reference { key, content }| {
            let object = self.object(&key).filter(|_| key.starts_with(place));
            object.is_some_and(|object| object.bytes == content.bytes)
        })
    }

    /// Records a refusal that is right: of a forged input, or of one whose uploads have expired.
    pub(super) fn observe_refusal(&mut self, submission: &str, now: Millis, skew: Millis) {
        let value: Value = serde_json::from_str(submission).unwrap_or_default();
        let input = value.get("input").unwrap_or(&Value::Null);
        let expired = references(input).iter().any(|reference| {
            let at = self.uploaded_at.get(&reference.key);
            at.is_some_and(|at| at + UPLOAD_LIFETIME <= now + skew + MINUTE)
        });
        let is_forged = self.forged_inputs.contains(input);
        if expired || is_forged {
            self.refused.insert(submission.to_owned());
        }
        let id = value.get("task_id").and_then(Value::as_str).and_then(|id| id.parse().ok());
        self.refused_as_expired.extend(id.filter(|_| expired && !is_forged));
    }
}

/// The client's task of a place, as in its keys.
fn root(place: &str) -> &str {
    place.split('/').nth(1).unwrap_or_default()
}

/// The tasks of a place: the client's task first.
pub(super) fn levels(place: &str) -> Vec<TaskIncarnation> {
    let levels = place.trim_end_matches('/').split('/').skip(1);
    let level = |level: &str| {
        let (id, incarnation) = level.split_once('@')?;
        Some((id.parse().ok()?, incarnation.parse().ok()?))
    };
    levels.filter_map(level).collect()
}

/// The content of a stored object.
pub(super) fn content(reference: &PayloadReference) -> Content {
    let PayloadReference { bytes, sha256, content_type, .. } = reference;
    let (sha256, content_type) = (sha256.to_string(), content_type.to_string());
    Content { bytes: *bytes, sha256, content_type }
}

/// The reference as the bucket has it.
pub(super) fn stored(reference: &Reference) -> Option<PayloadReference> {
    let Reference { key, content: Content { bytes, sha256, content_type } } = reference;
    let (key, sha256) = (key.clone().try_into().ok()?, sha256.parse().ok()?);
    Some(PayloadReference::new(key, *bytes, sha256, content_type.parse().ok()?))
}
