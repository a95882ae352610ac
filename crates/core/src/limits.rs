//! Every limit of the system, with the reason for its value.
//!
//! Input that exceeds a limit is refused with an error where it enters the system: at submission, at the publication of
//! a workflow, or in an agent's reply. So it cannot fail at a later stage.

use std::time::Duration;

/// Characters in a task id. The id is part of the idempotency key, and remote services limit the length of that key.
pub const TASK_ID_CHARS_MAX: usize = 128;

/// Characters in the name of a tenant. SQS accepts 128 in a message group id; each item of a task has room for these.
pub const TENANT_CHARS_MAX: usize = 64;

/// Characters in the name of a workflow, a step or an agent. The step names add to the size of the task's item.
pub const NAME_CHARS_MAX: usize = 40;

/// Characters in a command's id. A UUID has 36.
pub const COMMAND_ID_CHARS_MAX: usize = 36;

/// Characters in the name of a queue: SQS's limit.
pub const QUEUE_NAME_CHARS_MAX: usize = 80;

/// Characters in the version that an agent registers.
pub const AGENT_VERSION_CHARS_MAX: usize = 64;

/// Characters in the id of the stack that registered an agent. CloudFormation's ids have at most some 230.
pub const STACK_ID_CHARS_MAX: usize = 256;

/// The smallest and the largest rate of calls that an agent may register, in calls per second.
pub const CALL_RATE_MIN: f64 = 0.1;
/// See [`CALL_RATE_MIN`].
pub const CALL_RATE_MAX: f64 = 10_000.0;

/// How long the registration of a deleted agent is kept.
pub const DELETED_REGISTRATION_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// Commands in a task's record: the newest ones. Each command is also published as an event.
pub const COMMAND_RECORDS_MAX: usize = 20;

/// Characters in each of the fields `by` and `why` of a command.
pub const COMMAND_TEXT_CHARS_MAX: usize = 200;

/// Keys that may verify callback URLs at the same time: the newest, and those that signed URLs still in use.
pub const CALLBACK_KEYS_MAX: usize = 8;

/// Bytes of a key for callback URLs: as many as its signatures have.
pub const CALLBACK_KEY_BYTES_MIN: usize = 32;

/// Characters in the signed token of a callback URL. The longest valid one has some 400.
pub const SIGNED_CALLBACK_CHARS_MAX: usize = 512;

/// Webhooks of other services that a deployment accepts.
pub const WEBHOOKS_MAX: usize = 20;

/// Secrets that may verify a webhook at the same time: the newest, and those that are being replaced.
pub const WEBHOOK_SECRETS_MAX: usize = 4;

/// Bytes of a secret of a webhook. Services choose them; the shortest known ones have 20.
pub const WEBHOOK_SECRET_BYTES_MIN: usize = 16;
/// See [`WEBHOOK_SECRET_BYTES_MIN`].
pub const WEBHOOK_SECRET_BYTES_MAX: usize = 256;

/// Characters in the header with the signature of a webhook.
pub const WEBHOOK_SIGNATURE_CHARS_MAX: usize = 2_048;

/// Signatures in this header: a service signs with each of its secrets during a rotation.
pub const WEBHOOK_SIGNATURES_MAX: usize = 8;

/// How far the time in the signature of a webhook may be from now at most.
pub const WEBHOOK_TOLERANCE_MAX: Duration = Duration::from_secs(3_600);

/// Characters in SQS's id of a sender. The id of a role's session has at most 86: 21 of the role, a colon, 64 of the session.
pub const SENDER_ID_CHARS_MAX: usize = 128;

/// Tasks in one bulk command. Their ids fit in one record, and their results fit on one page of the console.
pub const BULK_TASKS_MAX: usize = 1_000;

/// How long the record of a bulk command is kept.
pub const BULK_RECORD_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// Steps in a workflow. Without `for_each`, the task's item stays far below DynamoDB's limit of 400 KB. With twenty
/// such steps it usually stays below 1 KB, which is the unit of DynamoDB's charge for a write. For workflows with
/// `for_each` see [`TASK_ITEM_BYTES_MAX`].
pub const STEPS_MAX: usize = 100;

/// Bytes in the item of a task. DynamoDB accepts 400 KB. The difference is a reserve: if a task exceeds this limit
/// although its definition was checked, there is still room to save it in Error.
pub const TASK_ITEM_BYTES_MAX: usize = 350_000;

/// Bytes of requests in one decision. The next decision makes the requests that do not fit. Each decision makes at
/// least one request. The limit bounds memory, because a scheduler holds up to 64 decisions at a time.
pub const DECISION_BYTES_MAX: usize = 1024 * 1024;

/// Items of one `for_each`. Items with equal records share one in the task's item. Each item has an output document.
pub const ITEMS_MAX: u32 = 10_000;

/// Items of one `for_each` that run at once. Each of them may have a record of its own in the task's item.
pub const ITEMS_AT_ONCE_MAX: u32 = 100;

/// Bytes of the list of a `for_each`, as JSON, up to which it is evaluated again for each item. A longer list is stored
/// in slices, because evaluating it may read large documents.
pub const ITEMS_INLINE_BYTES: usize = 2_000;

/// Bytes of memory, as [`estimated_memory_bytes`] counts them, of the outputs of the items of one step that an expression
/// may read as `steps.NAME.output`. A scheduler has 256 MB. Bytes of JSON would be no bound, because small objects take
/// sixty times as much memory. Ten thousand small objects take five megabytes.
pub const ITEM_OUTPUTS_MEMORY_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Agents of a step that are tried in order.
pub const AGENTS_IN_ORDER_MAX: usize = 5;

/// The longest wait of a step after the last of its agents refused it: an agent before may be available earlier.
pub const AGENTS_PAUSE_MAX: Duration = Duration::from_mins(5);

/// Agents of a step from which an expression chooses.
pub const AGENTS_TO_CHOOSE_MAX: usize = 20;

/// How deep child tasks may nest.
pub const CHILD_DEPTH_MAX: u32 = 5;

/// Characters in an event's source, and in its detail-type (EventBridge).
pub const EVENT_TEXT_CHARS_MAX: usize = 256;

/// Characters of the event pattern of a rule (EventBridge).
pub const EVENT_PATTERN_CHARS_MAX: usize = 2_048;

/// Characters of the value by which an event finds the step that waits for it.
pub const CORRELATION_KEY_CHARS_MAX: usize = 256;

/// The minimum retention of a task after its end.
pub const RETENTION_MIN: Duration = Duration::from_secs(3600);

/// The maximum retention of a task after its end.
pub const RETENTION_MAX: Duration = Duration::from_secs(3660 * 24 * 3600);

/// Attempts at one step.
pub const ATTEMPTS_MAX: u32 = 100;

/// Masked places of a workflow.
pub const MASKS_MAX: usize = 100;

/// Characters in the JSON pointer of one masked place.
pub const MASK_CHARS_MAX: usize = 200;

/// Bytes of a document as compact JSON, such as the submission or the output of one step.
pub const DOCUMENT_BYTES_MAX: usize = 128 * 1024;

/// Bytes of a service's response from which the `output` of a step selects. The agent holds the response in memory,
/// which takes up to sixty times as much.
pub const RESPONSE_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a payload in the bucket. The object is streamed, so no function holds it in memory; the time of a call limits it.
pub const PAYLOAD_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Bytes of the key of a payload: the limit of S3. The longest place of a task and the name of an object in it fit.
pub const PAYLOAD_KEY_BYTES_MAX: usize = 1_024;

/// Characters of the media type of a payload.
pub const CONTENT_TYPE_CHARS_MAX: usize = 128;

/// References to payloads in one submission. Submission copies each object.
pub const SUBMITTED_PAYLOADS_MAX: usize = 16;

/// How long after its upload a payload can be submitted. The bucket deletes uploads later than that.
pub const UPLOAD_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// How long the URL of an upload is valid.
pub const UPLOAD_URL_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// The age from which the payload of a task that does not exist is deleted. Submission stores the payloads of a task shortly
/// before it records the task.
pub const ORPHANED_PAYLOAD_AGE: Duration = Duration::from_secs(2 * 24 * 3600);

/// Bytes of the `output` of a step as compact JSON. Each request contains it.
pub const OUTPUT_TEMPLATE_BYTES_MAX: usize = 16 * 1024;

/// Bytes in one message body. A request may contain several documents. The limit is below 256 KiB, because the
/// message attributes need room too. 256 KiB was the limit of SQS until August 2025 (since then 1 MiB), and is still the
/// limit for messages that EventBridge sends to a queue.
pub const MESSAGE_BYTES_MAX: usize = 250 * 1024;

/// Steps in one alert. With this limit, ten alerts fit into one request to EventBridge.
pub const ALERT_STEPS_MAX: usize = 100;

/// Events about failed steps and items that one decision publishes. Only the undo of a task can fail more at once: it gives up
/// the items that wait.
pub const FAILED_PART_EVENTS_MAX: usize = 100;

/// Bytes of a workflow's definition.
pub const DEFINITION_BYTES_MAX: usize = 256 * 1024;

/// Problems of a definition that its check looks for: more would only delay the author, who corrects the first ones first.
pub const PROBLEMS_MAX: usize = 200;

/// Subschemas of a JSON Schema.
pub const SUBSCHEMAS_MAX: usize = 8_000;

/// How deep subschemas nest that are checked against one value. Each level takes stack for each level of the input.
pub const SCHEMA_DEPTH_MAX: usize = 32;

/// Bytes of the texts of all patterns of a JSON Schema.
pub const SCHEMA_PATTERNS_TEXT_BYTES_MAX: usize = 16 * 1024;

/// Bytes of the finite automata of all patterns of a JSON Schema. Within this limit the matcher never has to simulate a
/// pattern, which takes time proportional to its size for each character.
pub const SCHEMA_PATTERNS_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Steps to validate an input: a rule of a subschema for a value, or 16 bytes of text.
pub const SCHEMA_STEPS_MAX: usize = 4_000_000;

/// Stack for the validation of one input: twice the measured need of the deepest input and schema in a debug build. It is
/// allocated only if the current thread has less stack left.
pub const SCHEMA_STACK_BYTES: usize = 16 * 1024 * 1024;

/// Characters in one `${ }` expression.
pub const EXPRESSION_CHARS_MAX: usize = 1_000;

/// How deep brackets may nest in one expression. Handwritten expressions have four or five levels. Each level takes
/// stack space, so without a limit a deeply nested expression would overflow the stack and end the process.
pub const EXPRESSION_DEPTH_MAX: usize = 16;

/// Stack for parsing and evaluating one expression: twice the measured need of the longest and deepest expression in a
/// debug build. It is allocated only if the current thread has less stack left. Only the touched pages use memory.
pub const EXPRESSION_STACK_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of a compiled pattern of `matches`: room for about thirty character classes. The interpreter compiles the
/// pattern again for each text.
pub const PATTERN_BYTES_MAX: usize = 64 * 1024;

/// Evaluation steps of all expressions of one template, as estimated before each evaluation. This many steps take
/// about half a second in a debug build.
pub const RENDER_STEPS_MAX: u64 = 2_000_000;

/// Bytes in the results of all expressions of one template. A rendered template becomes one message or one document,
/// and these have smaller limits. This limit bounds memory until they are checked.
pub const RENDERED_BYTES_MAX: usize = 1024 * 1024;

/// How deep JSON may nest, in documents and in request templates.
pub const JSON_DEPTH_MAX: usize = 32;

/// Bytes of a task's item up to which documents are stored in it. DynamoDB charges one write unit for the first
/// kilobyte of an item, however full it is.
pub const INLINE_DOCUMENTS_BYTES_MAX: usize = 1_024;

/// Characters of the error in a task's item, and of a step's error in lists. The failure document of the attempt has
/// the complete reason.
pub const ERROR_CHARS_MAX: usize = 120;

/// Stray effects that a part keeps, so that the redelivery of a reply that reports one stops the task only once.
pub const STRAY_EFFECTS_MAX: usize = 5;

/// Parts of one task for which a status query of a client reads the reason of the failure or the wait.
pub const FAILURE_REASONS_READ_MAX: usize = 50;

/// Characters of the reason that an agent reports for a failure.
pub const REASON_CHARS_MAX: usize = 2_000;

/// Bytes of a service's error body that are kept for operators.
pub const ERROR_DETAIL_BYTES_MAX: usize = 4 * 1024;

/// The same in a deferral, in bytes: a step may be deferred any number of times.
pub const DEFERRAL_DETAIL_BYTES_MAX: usize = 512;

/// Characters in a `traceparent`. Version 00 of the W3C format has 55; later versions may be longer.
pub const TRACEPARENT_CHARS_MAX: usize = 128;

/// The maximum `complete_within` of a step.
pub const STEP_WITHIN_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The maximum duration of one call to a remote service. Lambda stops the agent's function after 120 seconds. The
/// difference leaves time to read the request, to retry briefly and to reply. A service that needs longer uses a
/// callback.
pub const CALL_WITHIN_MAX: Duration = Duration::from_secs(100);

/// HTTP statuses in `responses` of one step. Each request of the step contains the whole table.
pub const RESPONSES_MAX: usize = 50;

/// How much longer the documents of a task are kept than the task, and child tasks than their parent. So a reader of a
/// task always finds its documents, and a parent always finds its children.
pub const RETENTION_MARGIN: Duration = Duration::from_secs(24 * 3600);

/// How long after its complete-by a task may begin its undo without an extension of the retention of its documents.
pub const LATE_UNDO_MARGIN: Duration = Duration::from_secs(3600);

/// The maximum `complete_within` of a task. The documents are kept for the retention time after that.
pub const TASK_WITHIN_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// The maximum pause between attempts, and the maximum extended wait.
pub const WAIT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// Extended waits of one step.
pub const EXTENDED_WAITS_MAX: u32 = 1_000;

/// The maximum delay of an SQS message. The supervisor wakes tasks that wait longer.
pub const QUEUE_DELAY_MAX: Duration = Duration::from_secs(900);

/// The maximum time between two checks of a paused task by the supervisor.
pub const PAUSED_CHECK_INTERVAL: Duration = Duration::from_secs(3600);

/// The minimum ratio of each pause between attempts to the previous one: pauses do not shrink.
pub const BACKOFF_RATE_MIN: f64 = 1.0;

/// The maximum ratio of each pause between attempts to the previous one.
pub const BACKOFF_RATE_MAX: f64 = 10.0;

/// Characters in a duration such as `1d 12h`.
pub const DURATION_CHARS_MAX: usize = 60;

/// The minimum `complete_within` of a step. The queues alone may take this long.
pub const STEP_WITHIN_MIN: Duration = Duration::from_millis(100);

/// The maximum time for which a circuit breaker stays open before the next probe.
pub const BREAKER_OPEN_MAX: Duration = Duration::from_secs(300);

/// State changes of one circuit breaker that wait to be published. More than one waits only while the event bus is
/// down.
pub const BREAKER_UNPUBLISHED_MAX: usize = 20;

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

/// The beginning of a text as one line of at most `chars_max` characters, with U+FFFD in place of what a terminal would execute.
/// A shortened text ends in an ellipsis.
#[must_use]
pub fn short_line(text: &str, chars_max: usize) -> String {
    let shown = |c: char| match c {
        c if c.is_whitespace() => ' ',
        c if is_terminal_control(c) => '\u{fffd}',
        c => c,
    };
    let mut line: String = text.chars().map(shown).collect();
    if line.chars().count() > chars_max {
        line = line.chars().take(chars_max.saturating_sub(1)).collect();
        line.push('…');
    }
    line
}

/// Whether a terminal would execute the character, or reorder the text by it.
#[must_use]
pub fn is_terminal_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Shortens `text` to at most `bytes_max` bytes. A shortened text ends in an ellipsis.
#[must_use]
pub fn truncate_bytes(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let end = text.floor_char_boundary(bytes_max.saturating_sub('…'.len_utf8()));
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Estimates the bytes of memory that a value takes.
#[must_use]
pub fn estimated_memory_bytes(value: &serde_json::Value) -> usize {
    size_of::<serde_json::Value>() + estimated_heap_bytes(value)
}

fn estimated_heap_bytes(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(estimated_memory_bytes).sum(),
        Value::Object(fields) => {
            let inside =
                fields.iter().map(|(name, value)| name.len() + estimated_heap_bytes(value));
            field_slots(fields.len()) * FIELD_SLOT_BYTES + inside.sum::<usize>()
        }
    }
}

/// Bytes of a slot in the hash table of an object: name, value and hash for seven of eight slots, and the slot itself.
const FIELD_SLOT_BYTES: usize = 100;

/// The slots of the hash table of an object. The number is a power of two of which at most seven eighths are used.
fn field_slots(fields: usize) -> usize {
    match fields {
        0 => 0,
        1..=3 => 4,
        _ => fields.saturating_mul(8).div_ceil(7).next_power_of_two(),
    }
}

/// Whether `value` nests deeper than [`JSON_DEPTH_MAX`].
#[must_use]
pub fn nests_too_deep(value: &serde_json::Value) -> bool {
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
    use serde_json::{Value, json};

    #[test]
    fn long_text_is_cut_with_an_ellipsis() {
        assert_eq!(short_line("abc", 3), "abc");
        assert_eq!(short_line("abcd", 3), "ab…");
        assert_eq!(
            short_line("no\r\n\u{1b}[2Jmoney\u{202e}\u{9b}\t!", 20),
            "no  \u{fffd}[2Jmoney\u{fffd}\u{fffd} !"
        );
    }

    /// The measured bytes are those that a counting allocator saw while a list of many such values was cloned.
    #[test]
    fn the_estimated_memory_is_close_to_the_measured_memory() {
        let six = json!({ "id": "p-1234", "a": 1, "b": 2, "c": "xx", "d": null, "e": true });
        let sixty = Value::from_iter((0..60).map(|n| (format!("k{n:03}"), n)));
        for (value, measured) in [
            (json!(1), 72),
            (json!({}), 72),
            (json!([1]), 144),
            (json!({ "a": 1 }), 437),
            (json!({ "id": "p-1234" }), 444),
            (six, 903),
            (sixty, 13_128),
            (json!("x".repeat(100)), 172),
        ] {
            let estimated = estimated_memory_bytes(&value);
            assert!(estimated.abs_diff(measured) * 10 <= measured, "{estimated} for {value}");
        }
    }

    #[test]
    fn depth_counts_nested_containers() {
        let nested = |levels| (0..levels).fold(json!(1), |value, _| json!([value]));
        assert!(!nests_too_deep(&nested(JSON_DEPTH_MAX)));
        assert!(nests_too_deep(&nested(JSON_DEPTH_MAX + 1)));
    }
}
