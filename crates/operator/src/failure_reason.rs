//! Why the attempts at the parts of a task failed or wait. The documents of the task contain the reasons.

use steward_core::{
    limits,
    model::{
        attempt::{Action, AttemptId},
        document::{Document, DocumentKey},
        names::Part,
        task::Task,
    },
};

/// The reason why the newest attempt at a part failed or was deferred, shortened. `None` if no document of `documents` has
/// it.
#[must_use]
pub fn newest_reason(documents: &[Document], part: &Part, action: Action) -> Option<String> {
    let of_attempt = |document: &Document| match &document.key {
        // A deferred attempt may fail later: then the failure is newer than the deferral.
        DocumentKey::Failure(attempt) => Some((attempt.clone(), true)),
        DocumentKey::Deferral(attempt) => Some((attempt.clone(), false)),
        DocumentKey::Submission
        | DocumentKey::Input(_)
        | DocumentKey::Items { .. }
        | DocumentKey::Result(_)
        | DocumentKey::Output(_)
        | DocumentKey::OperatorOutput(..)
        | DocumentKey::Claim(_) => None,
    };
    let of_part = documents.iter().filter_map(|document| {
        let (attempt, failed) = of_attempt(document)?;
        let is_of_part = attempt.step == *part && attempt.action == action;
        is_of_part.then_some(((attempt.number, failed), document))
    });
    let (_, newest) = of_part.max_by_key(|(newness, _)| *newness)?;
    let reason = newest.body.get("reason")?.as_str()?;
    Some(limits::short_line(reason, limits::ERROR_CHARS_MAX))
}

/// The keys of the documents with the reasons why parts failed or wait, for at most `FAILURE_REASONS_READ_MAX` parts.
#[must_use]
pub fn failure_reason_keys(task: &Task) -> Vec<DocumentKey> {
    let failing = task.started_actions().filter(|(_, _, progress)| {
        let state = &progress.state;
        state.attempt_count() > 0 && (state.is_failed() || state.waiting_until().is_some())
    });
    let failing = failing.take(limits::FAILURE_REASONS_READ_MAX);
    let keys = failing.flat_map(|(step, action, progress)| {
        let attempt = AttemptId { step, action, number: progress.state.attempt_count() };
        [DocumentKey::Failure(attempt.clone()), DocumentKey::Deferral(attempt)]
    });
    keys.collect()
}
