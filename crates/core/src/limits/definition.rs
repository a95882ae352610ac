//! Limits of a workflow definition, checked at its publication.

use std::time::Duration;

/// Bytes of a workflow's definition.
pub const DEFINITION_BYTES_MAX: usize = 256 * 1024;

/// Problems of a definition that its check looks for: more would only delay the author, who corrects the first ones first.
pub const PROBLEMS_MAX: usize = 200;

/// Steps in a workflow. Without `for_each`, the task's item stays far below DynamoDB's limit of 400 KB. With twenty
/// such steps it usually stays below 1 KB, which is the unit of DynamoDB's charge for a write. For workflows with
/// `for_each` see [`TASK_ITEM_BYTES_MAX`](super::TASK_ITEM_BYTES_MAX).
pub const STEPS_MAX: usize = 100;

/// Items of one `for_each` that run at once. Each of them may have a record of its own in the task's item.
pub const ITEMS_AT_ONCE_MAX: u32 = 100;

/// Agents of a step that are tried in order.
pub const AGENTS_IN_ORDER_MAX: usize = 5;

/// Agents of a step from which an expression chooses.
pub const AGENTS_TO_CHOOSE_MAX: usize = 20;

/// Characters of the reason why a step needs no undo.
pub const NO_UNDO_CHARS_MAX: usize = 200;

/// Named values of a definition: `vars`, and as many constants in `env`.
pub const NAMED_VALUES_MAX: usize = 100;

/// Bytes of a text in `env`.
pub const ENV_TEXT_BYTES_MAX: usize = 16 * 1024;

/// How deep child tasks may nest.
pub const CHILD_DEPTH_MAX: u32 = 5;

/// Attempts at one step.
pub const ATTEMPTS_MAX: u32 = 100;

/// Extended waits of one step.
pub const EXTENDED_WAITS_MAX: u32 = 1_000;

/// The maximum pause between attempts, and the maximum extended wait.
pub const WAIT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The minimum ratio of each pause between attempts to the previous one: pauses do not shrink.
pub const BACKOFF_RATE_MIN: f64 = 1.0;

/// The maximum ratio of each pause between attempts to the previous one.
pub const BACKOFF_RATE_MAX: f64 = 10.0;

/// The minimum `complete_within` of a step. The queues alone may take this long.
pub const STEP_WITHIN_MIN: Duration = Duration::from_millis(100);

/// The maximum `complete_within` of a step.
pub const STEP_WITHIN_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The maximum duration of one call to a remote service. Lambda stops the agent's function after 120 seconds. The
/// difference leaves time to read the request, to retry briefly and to reply. A service that needs longer uses a
/// callback.
pub const CALL_WITHIN_MAX: Duration = Duration::from_secs(100);

/// The maximum `complete_within` of a task. The documents are kept for the retention time after that.
pub const TASK_WITHIN_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// The minimum retention of a task after its end.
pub const RETENTION_MIN: Duration = Duration::from_secs(3600);

/// The maximum retention of a task after its end.
pub const RETENTION_MAX: Duration = Duration::from_secs(3660 * 24 * 3600);

/// Characters in a duration such as `1d 12h`.
pub const DURATION_CHARS_MAX: usize = 60;

/// HTTP statuses in `responses` of one step. Each request of the step contains the whole table.
pub const RESPONSES_MAX: usize = 50;

/// Characters of the name of a header that has the idempotency key.
pub const KEY_HEADER_CHARS_MAX: usize = 64;

/// Bytes of `responses` of one step as compact JSON.
pub const RESPONSES_BYTES_MAX: usize = 16 * 1024;

/// Bytes of the `output` of a step as compact JSON. Each request contains it.
pub const OUTPUT_TEMPLATE_BYTES_MAX: usize = 16 * 1024;

/// Masked places of a workflow.
pub const MASKS_MAX: usize = 100;

/// Characters in the JSON pointer of one masked place.
pub const MASK_CHARS_MAX: usize = 200;
