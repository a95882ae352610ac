//! Invalid submissions of each kind.

use serde_json::{Value, json};
use steward_core::limits;

pub(super) fn order_submission(id: &str) -> Value {
    json!({ "task_id": id, "workflow": "order", "input": { "items": ["x"], "amount": 20 } })
}

pub(super) fn with_field(mut submission: Value, key: &str, value: Value) -> Value {
    submission[key] = value;
    submission
}

pub(super) fn nested_arrays(levels: usize) -> Value {
    (0..levels).fold(json!(1), |value, _| json!([value]))
}

/// A submission that must be rejected.
pub(super) struct InvalidSubmission {
    pub(super) text: String,
    /// The task id in the alert.
    pub(super) id: Option<&'static str>,
    pub(super) reason: String,
    /// Whether the client gets a notification.
    pub(super) is_notified: bool,
}

pub(super) fn invalid(
    text: impl ToString,
    id: impl Into<Option<&'static str>>,
    reason: &str,
    is_notified: bool,
) -> InvalidSubmission {
    InvalidSubmission {
        text: text.to_string(),
        id: id.into(),
        reason: reason.to_owned(),
        is_notified,
    }
}

/// One invalid submission of each kind. The task `taken` must already exist, with other content.
pub(super) fn invalid_submissions(
    client_queue: &str,
    unlisted_queue: &str,
) -> Vec<InvalidSubmission> {
    let mut all = malformed_submissions(client_queue, unlisted_queue);
    all.extend(unacceptable_submissions(client_queue, unlisted_queue));
    all
}

/// Texts that are not submissions.
fn malformed_submissions(client_queue: &str, unlisted_queue: &str) -> Vec<InvalidSubmission> {
    let to_client = |submission: Value| with_field(submission, "reply_to", json!(client_queue));
    let id_rule =
        "a letter or digit, then letters, digits, `-`, `_`, `.` and `:`, at most 128 characters";
    let mut no_id = to_client(order_submission("x"));
    no_id.as_object_mut().unwrap().shift_remove("task_id");
    let slash = to_client(order_submission("shop/7")).to_string();
    let slash_at = slash.find("shop/7").unwrap() + "shop/7".len() + 1;
    let unknown_key = to_client(with_field(order_submission("unknown-key"), "inputs", json!({})));
    let unknown_key_at = unknown_key.to_string().find("\"inputs\"").unwrap() + "\"inputs\"".len();
    let half = with_field(json!({ "task_id": "half" }), "reply_to", json!(unlisted_queue));
    let keys = "`task_id`, `workflow`, `version`, `input`, `tenant`, `reply_to`, \
                `parent`, `undo`, `attempt`, `has_begun`, `keep`, `rerun`";
    let tenant = to_client(with_field(order_submission("bad-tenant"), "tenant", json!("a b")));
    let tenant_at = tenant.to_string().find("\"a b\"").unwrap() + "\"a b\"".len();
    vec![
        invalid(
            r#"{"task_id":"broken","#,
            None,
            "not a submission: EOF while parsing a value at line 1 column 20",
            false,
        ),
        invalid("4111 1111 1111 1111", None, "not a submission: not a JSON object", false),
        invalid(
            &no_id,
            None,
            &format!(
                "not a submission: missing field `task_id` at line 1 column {}",
                no_id.to_string().len()
            ),
            true,
        ),
        invalid(
            &slash,
            "shop/7",
            &format!(
                "not a submission: task id `shop/7` is not valid: {id_rule} at line 1 column {slash_at}"
            ),
            true,
        ),
        invalid(
            &unknown_key,
            "unknown-key",
            &format!(
                "not a submission: unknown field `inputs`, expected one of {keys} at line 1 column {unknown_key_at}"
            ),
            true,
        ),
        invalid(
            &tenant,
            "bad-tenant",
            &format!(
                "not a submission: tenant `a b` is not valid: letters, digits, `.`, `_` and `-`, at most 64 characters at line 1 column {tenant_at}"
            ),
            true,
        ),
        invalid(
            &half,
            "half",
            &format!(
                "not a submission: missing field `workflow` at line 1 column {}",
                half.to_string().len()
            ),
            false,
        ),
    ]
}

/// Well-formed submissions that can never succeed.
fn unacceptable_submissions(client_queue: &str, unlisted_queue: &str) -> Vec<InvalidSubmission> {
    let to_client = |submission: Value| with_field(submission, "reply_to", json!(client_queue));
    let large = to_client(with_field(
        order_submission("large"),
        "input",
        json!("x".repeat(limits::DOCUMENT_BYTES_MAX)),
    ));
    let large_bytes = large.to_string().len();
    // `1e15` is stored as `1000000000000000.0`.
    let numbers = |amount: Value| {
        with_field(to_client(order_submission("numbers")), "input", json!({ "amount": amount }))
    };
    let stored_bytes = numbers(json!(vec![1e15; 7_000])).to_string().len();
    let written =
        numbers(json!([])).to_string().replace("[]", &format!("[{}]", ["1e15"; 7_000].join(",")));
    vec![
        invalid(
            to_client(with_field(order_submission("unknown-workflow"), "workflow", json!("ordr"))),
            "unknown-workflow",
            "there is no workflow `ordr`",
            true,
        ),
        invalid(
            to_client(with_field(order_submission("unknown-version"), "version", json!(9))),
            "unknown-version",
            "there is no workflow `order version 9`",
            true,
        ),
        invalid(
            large,
            "large",
            &format!("a submission of {large_bytes} bytes; the limit is 131072"),
            true,
        ),
        invalid(
            written,
            "numbers",
            &format!("a submission of {stored_bytes} bytes; the limit is 131072"),
            true,
        ),
        invalid(
            to_client(with_field(
                order_submission("deep"),
                "input",
                nested_arrays(limits::JSON_DEPTH_MAX + 1),
            )),
            "deep",
            "the input nests deeper than 32 levels",
            true,
        ),
        invalid(
            with_field(order_submission("not-allowed"), "reply_to", json!(unlisted_queue)),
            "not-allowed",
            "reply_to is not on the list of allowed reply queues",
            false,
        ),
        invalid(
            to_client(with_field(order_submission("wrong"), "workflow", json!("strict"))),
            "wrong",
            "input.amount: it is greater than the maximum of 10",
            true,
        ),
        invalid(
            to_client(with_field(order_submission("taken"), "input", json!({ "amount": 21 }))),
            "taken",
            "task `taken` exists already, with other content",
            true,
        ),
    ]
}
