//! What the earlier attempts to save one decision have written and found.

use steward_core::{
    engine::documents::LoadedDocuments,
    model::{attempt::AttemptId, document::Document, retention::DocumentRetention},
};

/// What the earlier attempts to save one decision have written and found.
#[derive(Default)]
pub(super) struct EarlierAttempts {
    /// Documents that were written. They are not written again.
    pub(super) stored: Vec<Document>,
    /// How long they are kept.
    pub(super) kept: Option<DocumentRetention>,
    /// To when the expiry of what the task refers to was extended.
    pub(super) extended: Option<DocumentRetention>,
    /// Documents that exist with other content than the decision's. The stored content counts.
    pub(super) found: LoadedDocuments,
    /// What a save would have started that lost a race, possibly to itself. `None` if no such race was lost.
    pub(super) lost_starts: Option<Vec<AttemptId>>,
}
