//! The list of awaited callbacks, and the forms that answer them.

use axum::http::StatusCode;
use serde_json::json;
use steward_core::model::task::ProcessState;
use steward_operator::mask::MASK_TEXT;

use crate::shop::{CARD, Shop};

const APPROVE: &str = "/console/tasks/c-1/approve";

/// A shop with a task whose step awaits a person. Who that is contains a masked value.
async fn awaiting_approval() -> Shop {
    let shop = Shop::open().await;
    let schema = json!({
        "type": "object", "required": ["limit"], "additionalProperties": false,
        "properties": {
            "limit": { "type": "integer", "title": "Credit limit", "maximum": 500 },
            "insured": { "type": "boolean" },
        },
    });
    let step = json!({
        "agent": "a", "request": { "path": "/ask", "body": "${ callback.token }" },
        "callback": { "within": "1d", "from": "<b>owner</b> of ${ input.card.number }", "answer": schema },
        "recovery": { "then": "undo" }, "undo": { "request": { "path": "/forget" } },
    });
    let workflow = json!({
        "name": "credit", "version": 1, "complete_within": "3d", "mask": ["/card/number"],
        "steps": { "approve": step },
        "output": "${ steps.approve.output }",
    });
    shop.console.publish(workflow).await;
    shop.submit("c-1", "credit", &json!({ "card": { "number": CARD } })).await;
    shop
}

fn fields<'a>(limit: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let form = [("command_id", "c-7"), ("step", "approve"), ("answer.limit", limit)];
    form.into_iter().chain(more.iter().copied()).collect()
}

#[tokio::test]
async fn awaited_callbacks_are_listed_without_masked_values() {
    let shop = awaiting_approval().await;
    let page = shop.console.get("/console/callbacks").await;
    let owner = format!("&#60;b&#62;owner&#60;/b&#62; of {MASK_TEXT}");
    page.assert_text(&["c-1", "approve", "credit", &owner, "Approve… Reject…"]);
    assert!(!page.html.contains(CARD));
    let read_only = shop.console.read_only().get("/console/callbacks").await;
    assert!(!read_only.text().contains("Approve"), "{}", read_only.text());
    let found = shop.console.get("/console/tasks?state=awaiting%20callback").await;
    found.assert_text(&["c-1"]);
}

#[tokio::test]
async fn an_approval_has_a_field_for_each_property_and_obeys_the_schema() {
    let shop = awaiting_approval().await;
    let form = shop.console.get(&format!("{APPROVE}?step=approve")).await;
    form.assert_text(&["Credit limit", "insured"]);
    assert!(!form.text().contains("Not possible"), "{}", form.text());
    for (limit, problem) in [
        ("", "Credit limit is missing"),
        ("5e", "Credit limit is not a number"),
        ("501", "answer.limit: it is greater than the maximum of 500"),
        ("1.5", "answer.limit: it is not of type"),
    ] {
        let refused = shop.console.post(APPROVE, &fields(limit, &[("reason", "known")])).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(refused.text().contains(problem), "no `{problem}` in {}", refused.text());
        assert!(refused.html.contains(&format!("value=\"{limit}\"")), "what was entered is kept");
    }
    let sent = shop.console.post(APPROVE, &fields("500", &[("reason", "known")])).await;
    assert_eq!(sent.location.as_deref(), Some("/console/tasks/c-1?sent=c-7"));
    shop.run_functions().await;
    let task = shop.task("c-1").await;
    assert_eq!(task.process_state, ProcessState::Processed);
    assert_eq!((task.commands[0].by.as_str(), task.commands[0].why.as_str()), ("ada", "known"));
    let page = shop.console.get("/console/tasks/c-1").await;
    page.assert_text(&["approve approve by ada", "known"]);
    let again = shop.console.get("/console/callbacks").await;
    again.assert_text(&["No task awaits a callback"]);
}

#[tokio::test]
async fn a_rejection_undoes_the_task_with_the_reason() {
    let shop = awaiting_approval().await;
    let form = |step| [("command_id", "c-8"), ("step", step), ("reason", "too much")];
    let refused = shop.console.post("/console/tasks/c-1/reject", &form("")).await;
    assert!(refused.text().contains("choose the step"), "{}", refused.text());
    let sent = shop.console.post("/console/tasks/c-1/reject", &form("approve")).await;
    assert_eq!(sent.location.as_deref(), Some("/console/tasks/c-1?sent=c-8"));
    shop.run_functions().await;
    let task = shop.task("c-1").await;
    assert!(task.undo_reason.unwrap().contains("rejected by ada: too much"));
}
