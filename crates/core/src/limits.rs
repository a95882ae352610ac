//! A limit on everything, in one place, each with the reason for its size.
//!
//! Going over a limit is a clear error where the thing comes in (submission, publication, an agent's
//! reply), never a surprise later.

use std::time::Duration;

/// Characters in a task id. It is part of the idempotency key, which remote services limit.
pub const TASK_ID_CHARS_MAX: usize = 128;

/// Characters in the name of a workflow, a step or an agent. Step names count in the task's item.
pub const NAME_CHARS_MAX: usize = 40;

/// Characters in a command's id: a UUID has 36.
pub const COMMAND_ID_CHARS_MAX: usize = 36;

/// Commands kept on a task's record, the newest; each was also an event.
pub const COMMANDS_KEPT_MAX: usize = 20;

/// Characters of who asked for a command, and of why.
pub const COMMAND_TEXT_CHARS_MAX: usize = 200;

/// Tasks in one run over many: their ids fit in a record, and all of them in a page.
pub const BULK_TASKS_MAX: usize = 1_000;

/// How long the record of such a run is kept.
pub const BULK_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Steps in a workflow. The task's item stays under DynamoDB's 400 KB by far, and under 1 KB for
/// twenty steps, which is what a save is charged for.
pub const STEPS_MAX: usize = 100;

/// Bytes that the item of a task may need, at its largest; DynamoDB takes 400 KB. What is between is a
/// reserve, in which a task that has grown too large nonetheless is saved in Error.
pub const TASK_ITEM_BYTES_MAX: usize = 350_000;

/// Bytes of requests that one decision makes; what does not fit begins with the next. One request is
/// always made. A scheduler has up to 64 decisions in memory at once.
pub const DECISION_BYTES_MAX: usize = 1024 * 1024;

/// Items of one `for_each`. Each has a record in the task's item, and a document that those after it
/// read.
pub const ITEMS_MAX: u32 = 100;

/// How deep workflows may run workflows.
pub const CHILD_DEPTH_MAX: u32 = 5;

/// Characters in an event's source, and in its detail-type (EventBridge).
pub const EVENT_TEXT_CHARS_MAX: usize = 256;

/// The shortest time that a task is kept after its end...
pub const RETENTION_MIN: Duration = Duration::from_secs(3600);

/// ...and the longest.
pub const RETENTION_MAX: Duration = Duration::from_secs(3660 * 24 * 3600);

/// Attempts at one step.
pub const ATTEMPTS_MAX: u32 = 100;

/// Places that a workflow masks.
pub const MASKS_MAX: usize = 100;

/// Characters in one of them.
pub const MASK_CHARS_MAX: usize = 200;

/// Bytes of a document: what was submitted, or what one step returned, as compact JSON.
pub const DOCUMENT_BYTES_MAX: usize = 128 * 1024;

/// Bytes of one message body. A request may join several documents. Less than 256 KiB, the limit of SQS until August
/// 2025 (1 MiB since) and of what EventBridge sends to a queue; the attributes need some of it.
pub const MESSAGE_BYTES_MAX: usize = 250 * 1024;

/// Steps that one alert names, so that ten alerts fit into one request to EventBridge.
pub const ALERT_STEPS_MAX: usize = 100;

/// Bytes of a workflow's definition.
pub const DEFINITION_BYTES_MAX: usize = 256 * 1024;

/// Characters in one `${ }` expression.
pub const EXPRESSION_CHARS_MAX: usize = 1_000;

/// How deep brackets may nest in one expression. People write four or five; each takes stack, and
/// without a limit a long row of them ends the process.
pub const EXPRESSION_DEPTH_MAX: usize = 16;

/// Stack for parsing and evaluating one expression: twice what the longest and deepest takes in a
/// debug build. It is reserved only where a thread has less, and costs what is touched of it.
pub const EXPRESSION_STACK_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of the pattern of `matches` once it is compiled: some thirty character classes. It is
/// compiled anew for each text.
pub const PATTERN_BYTES_MAX: usize = 64 * 1024;

/// Steps that the expressions of one template may take together, as estimated before each is
/// evaluated. All of them
/// take about half a second in a debug build.
pub const RENDER_STEPS_MAX: u64 = 2_000_000;

/// Bytes that the expressions of one template may give together. What is rendered goes into one
/// message or one document, which are smaller; this keeps memory small until that is said.
pub const RENDERED_BYTES_MAX: usize = 1024 * 1024;

/// How deep JSON may nest, in documents and in request templates.
pub const JSON_DEPTH_MAX: usize = 32;

/// Characters of the error kept with a task, and of a step's error in lists. The whole reason is in the
/// failure document of the attempt.
pub const ERROR_CHARS_MAX: usize = 120;

/// Parts of one task whose reasons for a failure or a wait are read when a client asks for its status.
pub const REASONS_READ_MAX: usize = 50;

/// Characters of a failure's reason, as an agent reports it.
pub const REASON_CHARS_MAX: usize = 2_000;

/// Characters in a `traceparent`. W3C's first version has 55; later ones may be longer.
pub const TRACEPARENT_CHARS_MAX: usize = 128;

/// The longest time a step may be given.
pub const STEP_WITHIN_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The longest that one call of an agent may take at its service. The agent's function is stopped after
/// 120 seconds; what is left is for reading the request, a short retry and the reply. A service that
/// needs longer answers by callback.
pub const CALL_WITHIN_MAX: Duration = Duration::from_secs(100);

/// Statuses in the table of `responses` of one step. The table travels in each of the step's requests.
pub const RESPONSES_MAX: usize = 50;

/// How much longer than a task its documents are kept, and how much longer than a task that runs others
/// for its steps those others are: no reader of the first finds the second gone.
pub const KEPT_MARGIN: Duration = Duration::from_secs(24 * 3600);

/// How late a task may turn round and be undone: until then its documents need not be kept for longer.
pub const TURN_WITHIN: Duration = Duration::from_secs(3600);

/// The longest time a task may be given. Documents outlive it by the retention time.
pub const TASK_WITHIN_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// The longest pause between attempts, and the longest extended wait.
pub const WAIT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// How many extended waits a step may have.
pub const EXTENDED_WAITS_MAX: u32 = 1_000;

/// The longest that a queue can hold a message back (SQS). What waits longer is woken by the
/// supervisor.
pub const QUEUE_DELAY_MAX: Duration = Duration::from_secs(900);

/// How often the supervisor looks at a paused task, at least.
pub const PAUSED_LOOK_WITHIN: Duration = Duration::from_secs(3600);

/// How much longer each pause between attempts may be than the one before: not shorter...
pub const BACKOFF_RATE_MIN: f64 = 1.0;

/// ...and no more than this many times as long.
pub const BACKOFF_RATE_MAX: f64 = 10.0;

/// Characters of a duration, as `1d 12h`.
pub const DURATION_CHARS_MAX: usize = 60;

/// The shortest time a step may be given: below it, queues alone would use it up.
pub const WITHIN_MIN: Duration = Duration::from_millis(100);

/// The longest that a circuit breaker stays open before it is probed again.
pub const BREAKER_OPEN_MAX: Duration = Duration::from_secs(300);

/// Turns of one circuit breaker that wait to be told; they pile up only while the bus is down.
pub const BREAKER_UNTOLD_MAX: usize = 20;

/// How many times a change of a circuit breaker is tried again after a lost race, and how many times a
/// decision may meet documents that an earlier try has written, beyond one for each event.
pub const CONFLICTS_MAX: u32 = 20;

/// The longest pause after the second lost race in a row for one task. With each further one it is four
/// times as long, so that a hundred writers are spread after few tries. The first lost race is followed by no
/// pause: most races have two writers.
pub const CONFLICT_PAUSE_FIRST: Duration = Duration::from_millis(50);

/// The longest pause after a lost race.
pub const CONFLICT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long one decision is taken again after lost races before the message is given back to its queue,
/// where it stays for the visibility timeout (180 s). A hundred writers of one task need about three
/// seconds; the function has 30 s.
pub const CONFLICTS_WITHIN: Duration = Duration::from_secs(12);

/// Shortens `text` to at most `chars_max` characters, marking the cut with an ellipsis.
#[must_use]
pub fn shorten(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(chars_max.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Shortens `text` to at most `bytes_max` bytes, marking the cut with an ellipsis.
#[must_use]
pub fn shorten_bytes(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let end = text.floor_char_boundary(bytes_max.saturating_sub('…'.len_utf8()));
        text.truncate(end);
        text.push('…');
    }
    text
}

/// About how many bytes a value takes in memory.
#[must_use]
pub fn bytes_in_memory(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    let inside = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes_in_memory).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| name.len() + 64 + bytes_in_memory(value)).sum()
        }
    };
    size_of::<Value>() + inside
}

/// Whether `value` nests deeper than [`JSON_DEPTH_MAX`].
#[must_use]
pub fn too_deep(value: &serde_json::Value) -> bool {
    fn deeper_than(value: &serde_json::Value, levels: usize) -> bool {
        match value {
            serde_json::Value::Array(items) => {
                levels == 0 || items.iter().any(|item| deeper_than(item, levels - 1))
            }
            serde_json::Value::Object(fields) => {
                levels == 0 || fields.values().any(|field| deeper_than(field, levels - 1))
            }
            serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Number(_)
            | serde_json::Value::String(_) => false,
        }
    }
    deeper_than(value, JSON_DEPTH_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_long_text_is_cut_with_an_ellipsis() {
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten("abcd", 3), "ab…");
    }

    #[test]
    fn depth_counts_containers() {
        let nested = |levels| (0..levels).fold(json!(1), |value, _| json!([value]));
        assert!(!too_deep(&nested(JSON_DEPTH_MAX)));
        assert!(too_deep(&nested(JSON_DEPTH_MAX + 1)));
    }
}
