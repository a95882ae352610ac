//! The payloads of a submission: which it may name, and how the task stores them.

use std::borrow::Cow;

use super::refusal::{SubmissionRefusal, attribute_text, too_large};
use crate::{
    limits,
    model::{
        json_text::to_json_text,
        messages::{ParentStep, Submission},
        payload::{
            FoundReference, PayloadPlace, PayloadReference, claimed, find_references, has_reference,
        },
        rerun::RerunSource,
    },
};

/// The payloads to which the input of a submission, and the outputs that it keeps, refer, in the order of the text.
///
/// # Errors
/// A reference is malformed, or there are too many, or it is of an object that the sender may not use: a client may submit what it
/// has uploaded, a parent task what belongs to it, and a rerun what belongs to the task that it repeats.
pub fn submitted_payloads(
    submission: &Submission,
) -> Result<Vec<FoundReference>, SubmissionRefusal> {
    let refused = |pointer: &str, reason: String| SubmissionRefusal::InvalidPayload {
        pointer: attribute_text(pointer, POINTER_CHARS_MAX),
        reason,
    };
    let kept = submission.rerun.iter().flat_map(|rerun| rerun.kept.values());
    let mut found = Vec::new();
    for value in std::iter::once(&submission.input).chain(kept) {
        let references = find_references(value);
        found.extend(references.map_err(|(pointer, error)| refused(&pointer, error.to_string()))?);
    }
    if found.len() > limits::SUBMITTED_PAYLOADS_MAX {
        let max = limits::SUBMITTED_PAYLOADS_MAX;
        return Err(refused("", format!("{} payloads; the limit is {max}", found.len())));
    }
    let place = submission.parent.as_ref().map(ParentStep::place);
    let place = place.or_else(|| submission.rerun.as_ref().map(RerunSource::place));
    for FoundReference { pointer, reference } in &found {
        let PayloadReference { key, .. } = reference;
        if !key.is_upload() && !place.as_ref().is_some_and(|place| place.contains(key)) {
            let reason =
                "the key is not that of an upload; upload the payload again with `POST /payloads`";
            return Err(refused(pointer, reason.to_owned()));
        }
    }
    Ok(found)
}

/// Characters of the JSON pointer in a refusal. It consists of keys of the input.
const POINTER_CHARS_MAX: usize = 200;

/// The submission as the task stores it: its references name the task's copies of the payloads. Without references
/// it is the same.
#[must_use]
pub fn claimed_submission<'a>(
    submission: &'a Submission,
    place: &PayloadPlace,
) -> Cow<'a, Submission> {
    let mut kept = submission.rerun.iter().flat_map(|rerun| rerun.kept.values());
    if !has_reference(&submission.input) && !kept.any(has_reference) {
        return Cow::Borrowed(submission);
    }
    let mut owned = submission.clone();
    let kept = owned.rerun.iter_mut().flat_map(|rerun| rerun.kept.values_mut());
    for value in std::iter::once(&mut owned.input).chain(kept) {
        *value = claimed(value, place);
    }
    Cow::Owned(owned)
}

/// Checks the size of the submission as the task stores it: the keys of the copies are longer than those of the uploads, and a
/// number may have more digits, such as `1e15`.
///
/// # Errors
/// The submission is too large.
pub fn check_stored_size(
    submission: &Submission,
    place: &PayloadPlace,
) -> Result<(), SubmissionRefusal> {
    let bytes = to_json_text(&*claimed_submission(submission, place)).len();
    if bytes > limits::DOCUMENT_BYTES_MAX { Err(too_large(bytes)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{model::payload::PAYLOAD_MARKER, submission::parse};

    const SHA: &str = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";

    fn reference(key: &str) -> Value {
        json!({ PAYLOAD_MARKER: { "version": 1, "key": key, "bytes": 3, "sha256": SHA, "content_type": "text/plain" } })
    }

    fn submission(input: Value, parent: Option<Value>) -> Submission {
        let mut submission = json!({ "task_id": "t", "workflow": "w", "input": input });
        if let Some(parent) = parent {
            submission["parent"] = parent;
        }
        parse(&submission.to_string()).unwrap()
    }

    fn refusal(input: Value, parent: Option<Value>) -> Option<String> {
        let refusal = submitted_payloads(&submission(input, parent)).err()?;
        assert!(!refusal.to_string().contains("s3cret"), "{refusal}");
        Some(refusal.to_string())
    }

    #[test]
    fn a_client_submits_uploads_and_a_parent_what_belongs_to_it() {
        let parent = json!({ "task_id": "p", "step": "s", "depth": 1, "incarnation": 37 });
        let own = reference("tasks/p@000000011/output/a/do/1");
        let of_child = reference("tasks/p@000000011/p:c@000000012/output/a/do/1");
        let foreign = reference("tasks/q@000000011/output/a/do/1");
        let upload = reference("uploads/1");
        assert_eq!(refusal(json!({ "doc": [upload, { "n": 1 }] }), None), None);
        for input in [&upload, &own, &of_child] {
            assert_eq!(refusal(input.clone(), Some(parent.clone())), None);
        }
        let not_uploaded = |input, parent| refusal(input, parent).unwrap();
        for (input, parent) in [(own, None), (foreign.clone(), None), (foreign, Some(parent))] {
            let refusal = not_uploaded(json!({ "doc": input }), parent);
            assert!(
                refusal.starts_with("input/doc: the key is not that of an upload"),
                "{refusal}"
            );
        }
    }

    #[test]
    fn a_malformed_reference_and_too_many_are_refused() {
        let malformed = refusal(json!({ "doc": { "$payload": "s3cret" } }), None).unwrap();
        assert!(malformed.starts_with("input/doc: not a reference to a payload: "), "{malformed}");
        let many = vec![reference("uploads/1"); limits::SUBMITTED_PAYLOADS_MAX + 1];
        assert_eq!(refusal(json!(many), None).unwrap(), "input: 17 payloads; the limit is 16");
    }

    #[test]
    fn a_submission_that_is_too_large_with_the_keys_of_the_copies_is_refused() {
        let id = "t".parse().unwrap();
        let place = PayloadPlace::of_task(&id, "000000001".parse().unwrap());
        let fits = submission(json!([reference("uploads/1")]), None);
        assert_eq!(check_stored_size(&fits, &place), Ok(()));
        let spare = limits::DOCUMENT_BYTES_MAX - to_json_text(&fits).len() - 10;
        let large = submission(json!([reference("uploads/1"), "x".repeat(spare)]), None);
        assert!(matches!(check_stored_size(&large, &place), Err(SubmissionRefusal::TooLarge(_))));
    }
}
