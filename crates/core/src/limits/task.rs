//! Limits of a task: of its item in the state store, of its documents and retention, and of one decision about it.

use std::time::Duration;

/// Bytes in the item of a task. DynamoDB accepts 400 KB. The difference is a reserve: if a task exceeds this limit
/// although its definition was checked, there is still room to save it in Error.
pub const TASK_ITEM_BYTES_MAX: usize = 350_000;

/// Bytes of a task's item up to which documents are stored in it. DynamoDB charges one write unit for the first
/// kilobyte of an item, however full it is.
pub const INLINE_DOCUMENTS_BYTES_MAX: usize = 1_024;

/// Labels of a task. Each is one write unit.
pub const LABELS_MAX: usize = 10;

/// Bytes of the value of a label. The item of the task has it, and the key of the label in the index.
pub const LABEL_BYTES_MAX: usize = 100;

/// Items of one `for_each`. Items with equal records share one in the task's item. Each item has an output document.
pub const ITEMS_MAX: u32 = 10_000;

/// Rounds of a step with `repeat`. One more part says that they were too few.
pub const ROUNDS_MAX: u32 = ITEMS_MAX - 1;

/// Bytes of the list of a `for_each`, as JSON, up to which it is evaluated again for each item. A longer list is stored
/// in slices, because evaluating it may read large documents.
pub const ITEMS_INLINE_BYTES: usize = 2_000;

/// Bytes of memory, as [`estimated_memory_bytes`](super::estimated_memory_bytes) counts them, of the outputs of the items
/// of one step that an expression may read as `steps.NAME.output`. A scheduler has 256 MB. Bytes of JSON would be no bound,
/// because small objects take sixty times as much memory. Ten thousand small objects take five megabytes.
pub const ITEM_OUTPUTS_MEMORY_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Idempotency keys that a part keeps beside the one in use. An edit of the input that would add one more is refused.
pub const EARLIER_KEYS_MAX: usize = 20;

/// Commands in a task's record: the newest ones. Each command is also published as an event.
pub const COMMAND_RECORDS_MAX: usize = 20;

/// Characters of the error in a task's item, and of a step's error in lists. The failure document of the attempt has
/// the complete reason.
pub const ERROR_CHARS_MAX: usize = 120;

/// Parts of one task for which a status query of a client reads the reason of the failure or the wait.
pub const FAILURE_REASONS_READ_MAX: usize = 50;

/// How much longer the documents of a task are kept than the task, and child tasks than their parent. So a reader of a
/// task always finds its documents, and a parent always finds its children.
pub const RETENTION_MARGIN: Duration = Duration::from_secs(24 * 3600);

/// How long after its complete-by a task may begin its undo without an extension of the retention of its documents.
pub const LATE_UNDO_MARGIN: Duration = Duration::from_secs(3600);

/// The maximum time between two checks of a paused task by the supervisor.
pub const PAUSED_CHECK_INTERVAL: Duration = Duration::from_secs(3600);

/// Bytes of requests in one decision. The next decision makes the requests that do not fit. Each decision makes at
/// least one request. The limit bounds memory, because a scheduler holds up to 64 decisions at a time.
pub const DECISION_BYTES_MAX: usize = 1024 * 1024;

/// How often a change of a circuit breaker is retried after save conflicts. Also how often a decision may find
/// documents that an earlier try has written, in addition to one for each event.
pub const SAVE_CONFLICTS_MAX: u32 = 20;

/// The maximum pause after the second save conflict in a row for one task. Each further conflict makes it four times as
/// long, so a hundred writers are spread out after a few tries. There is no pause after the first conflict, because most
/// conflicts have only two writers.
pub const SAVE_CONFLICT_PAUSE_FIRST: Duration = Duration::from_millis(50);

/// The maximum pause after a save conflict.
pub const SAVE_CONFLICT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long one decision is retried after save conflicts. After that, the message goes back to its queue, which
/// redelivers it after the visibility timeout (180 s). A hundred concurrent writers of one task need about three seconds;
/// the function may run for 30 s.
pub const SAVE_CONFLICT_RETRY_WITHIN: Duration = Duration::from_secs(12);
