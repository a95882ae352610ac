//! The page of a task, and its commands.

use axum::http::StatusCode;
use serde_json::json;
use steward_core::model::{command::CommandSource, task::ProcessState};
use steward_operator::mask::MASK_TEXT;
use tempfile::NamedTempFile;

use crate::{
    shop::{CARD, RECEIPT, Shop},
    test_console::PageResponse,
};

const TASK: &str = "/console/tasks/o-1";
const REASON: (&str, &str) = ("reason", "the bank is back");

/// The input in the form, with one text replaced.
fn edited(page: &PageResponse, from: &str, to: &str) -> String {
    let (_, input) = page.html.split_once("spellcheck=\"false\">\n").unwrap();
    let (input, _) = input.split_once("</textarea>").unwrap();
    let input = input.replace("&#34;", "\"");
    assert!(input.contains(from), "{input}");
    input.replacen(from, to, 1)
}

/// The target of the redirect after a form.
fn location(page: &PageResponse) -> &str {
    page.location.as_deref().unwrap_or_else(|| panic!("{}", page.text()))
}

/// Panics unless the form was rejected, and its text contains all of these.
#[track_caller]
fn assert_rejected(page: &PageResponse, parts: &[&str]) {
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", page.text());
    for part in parts {
        assert!(page.text().contains(part), "no `{part}` in: {}", page.text());
    }
}

#[tokio::test]
async fn the_page_of_a_task_in_error_shows_the_error_and_the_commands() {
    let shop = Shop::with_refused_charge("HTTP 402: <script>card</script>").await;
    let page = shop.get(TASK).await;
    page.assert_text(&[
        "✕ Error · order version 1",
        "Error: step charge: HTTP 402: &#60;script&#62;card&#60;/script&#62;",
        "An operator must resubmit, skip or complete the failed step, or undo the task.",
        "Resubmit… Skip… Complete… Undo…",
        "Cancel: the task is Error.",
        "completed",
        "failed",
        "charge 1 failed",
        MASK_TEXT,
        "0af7651916cd43dd8448eb211c80319c",
    ]);
    for part in [
        "class=\"timeline\"",
        "class=\"graph\"",
        "https://logs.example/?q=o-1",
        "https://trace.example/0af7651916cd43dd8448eb211c80319c?xray=1-0af76519-16cd43dd8448eb211c80319c",
        "hx-get=\"/console/tasks/o-1\"",
    ] {
        assert!(page.html.contains(part), "{part}: {}", page.html);
    }
    page.assert_absent(&["<script>card", "style=", "onclick"]);
}

#[tokio::test]
async fn the_failure_shows_what_the_service_said_without_masked_values() {
    let shop = Shop::with_refused_charge("HTTP 402").await;
    let page = shop.get(TASK).await;
    page.assert_text(&["step/charge/1/failure", "said no", "&#60;••••&#62;"]);
    // Only the document has it.
    assert_eq!(page.html.matches("said no").count(), 1, "{}", page.html);
}

#[tokio::test]
async fn the_timeline_shows_queue_time_and_call_time() {
    let shop = Shop::with_refused_charge("HTTP 402").await;
    let page = shop.get(TASK).await;
    let row = page.html.split("<tr>").find(|row| row.contains("<td>failed</td>")).unwrap();
    let durations = row.matches(" ms</td>").count() + row.matches(" s</td>").count();
    assert_eq!(durations, 3, "since submission, in the queue, of the call: {row}");
    assert!(page.html.contains("attempt 1 failed, queued 2"), "{}", page.html);
}

#[tokio::test]
async fn a_failed_step_is_resubmitted_and_the_page_shows_the_progress() {
    let shop = Shop::with_refused_charge("HTTP 402").await;
    let form = shop.get("/console/tasks/o-1/resubmit").await;
    form.assert_text(&[
        "The task goes from Error to Processing.",
        "Agent a gets a request for step charge (attempt 2).",
    ]);
    let sent = shop.post("/console/tasks/o-1/resubmit", &[REASON]).await;
    assert_eq!(sent.status, StatusCode::SEE_OTHER);
    assert!(location(&sent).starts_with("/console/tasks/o-1?sent="), "{sent:?}");
    shop.get(location(&sent)).await.assert_text(&["Sent. Waiting for the scheduler."]);
    shop.repair();
    shop.run_functions().await;
    shop.get(location(&sent)).await.assert_text(&[
        "Done: resubmit charge. Since then: charge: completed; ship: completed; the task: Processed.",
        "✓ Processed",
        "resubmit charge ada (verified by the console, AROACONSOLE:steward-console) the bank is back ✓ carried out",
        "The task has ended.",
    ]);
    let record = &shop.task("o-1").await.commands[0];
    assert_eq!((record.by.as_str(), record.why.as_str()), ("ada", "the bank is back"));
    assert_eq!(record.caller.via, CommandSource::Console);
}

#[tokio::test]
async fn the_page_shows_that_the_scheduler_refused_a_command() {
    let shop = Shop::with_refused_charge("HTTP 402").await;
    let first = shop.post("/console/tasks/o-1/undo", &[REASON]).await;
    // Sent before the scheduler processes the first.
    let second = shop.post("/console/tasks/o-1/undo", &[REASON]).await;
    shop.run_functions().await;
    shop.get(location(&first))
        .await
        .assert_text(&["Done: undo. Since then: reserve: undone; the task: Undone."]);
    shop.get(location(&second)).await.assert_text(&["Refused: undo: the task is being undone."]);
}

#[tokio::test]
async fn a_form_shows_that_its_command_would_be_refused() {
    let shop = Shop::with_refused_charge("HTTP 402").await;
    shop.get("/console/tasks/o-1/resume").await.assert_text(&["the task is not paused"]);
    assert_rejected(
        &shop.post("/console/tasks/o-1/resume", &[REASON]).await,
        &["the task is not paused"],
    );
    // A reason is required.
    assert_rejected(
        &shop.post("/console/tasks/o-1/undo", &[("reason", " ")]).await,
        &["enter a reason"],
    );
    shop.run_functions().await;
    assert!(shop.task("o-1").await.commands.is_empty());
}

#[tokio::test]
async fn an_edit_of_the_input_keeps_masked_values() {
    let shop = Shop::with_refused_charge("HTTP 402").await;
    let form = shop.get("/console/tasks/o-1/resubmit").await;
    form.assert_text(&[MASK_TEXT, "Ann"]);
    shop.repair();
    let input = edited(&form, "\"amount\": 7", "\"amount\": 8");
    let fields = [REASON, ("input", input.as_str())];
    // A preview only.
    let check = [&fields[..], &[("check", "yes")]].concat();
    shop.post("/console/tasks/o-1/resubmit", &check)
        .await
        .assert_text(&["read the edited input", "8"]);
    shop.run_functions().await;
    assert_eq!(shop.task("o-1").await.process_state, ProcessState::Error);
    let sent = shop.post("/console/tasks/o-1/resubmit", &fields).await;
    shop.run_functions().await;
    shop.get(location(&sent)).await.assert_text(&["resubmit charge with edited input", "input/"]);
    let calls = shop.service.calls.lock().unwrap().clone();
    let charge = calls.iter().rfind(|call| call.path == "/charges").unwrap();
    assert_eq!(charge.body, Some(json!({ "card": CARD, "amount": 8 }).into()));
}

#[tokio::test]
async fn a_rejected_edit_keeps_the_entered_values() {
    let shop = Shop::with_refused_charge("HTTP 402").await;
    let form = shop.get("/console/tasks/o-1/resubmit").await;
    let name = format!("\"name\": \"{MASK_TEXT}\"");
    for (from, to, expected) in [
        (
            "\"amount\": 7",
            "\"amount\": 7000",
            "input.amount: it is greater than the maximum of 1000",
        ),
        ("\"amount\": 7", "\"amount\": 7,", "the input is not JSON: "),
        ("\"name\": \"Ann\"", name.as_str(), "/card/name: the edit would replace"),
        ("\"sku\": 1", "\"sku\": 2", "/items/0/secret: the edit would replace"),
        ("\"amount\": 7", "\"amount\": null", "cannot be set to null"),
    ] {
        let input = edited(&form, from, to);
        let page = shop.post("/console/tasks/o-1/resubmit", &[REASON, ("input", &input)]).await;
        assert_rejected(&page, &[expected]);
        assert_eq!(edited(&page, to, to), input, "the entered input is kept");
        assert!(page.html.contains("value=\"the bank is back\""), "{}", page.html);
    }
    shop.run_functions().await;
    assert!(shop.task("o-1").await.commands.is_empty());
}

#[tokio::test]
async fn an_edit_from_an_outdated_form_is_refused() {
    let shop = Shop::with_refused_charge("HTTP 402").await;
    let form = shop.get("/console/tasks/o-1/resubmit").await;
    for (amount, is_sent) in [("\"amount\": 8", true), ("\"amount\": 9", false)] {
        let input = edited(&form, "\"amount\": 7", amount);
        let page = shop.post("/console/tasks/o-1/resubmit", &[REASON, ("input", &input)]).await;
        if !is_sent {
            assert_rejected(&page, &["someone else has edited the input"]);
        }
        shop.run_functions().await;
    }
    assert_eq!(shop.task("o-1").await.commands.len(), 1);
}

#[tokio::test]
async fn a_step_that_may_have_run_is_retried_only_after_confirmation() {
    let shop = Shop::with_unknown_outcome_of_charge("the connection broke").await;
    let fields = [REASON, ("did_not_run", "yes")];
    let early = shop.post("/console/tasks/o-1/resubmit", &fields).await;
    assert_rejected(&early, &["a call of step charge may be in progress until"]);
    shop.end_calls_in_progress("o-1").await;
    let form = shop.get("/console/tasks/o-1/resubmit").await;
    form.assert_text(&[
        "may have taken effect: check the service",
        "Agent a gets a request for step charge (attempt 2).",
    ]);
    assert!(form.html.contains("name=\"did_not_run\" value=\"yes\" required"), "{}", form.html);
    let page = shop.post("/console/tasks/o-1/resubmit", &[REASON]).await;
    assert_rejected(&page, &["may have taken effect"]);
    assert_eq!(
        shop.post("/console/tasks/o-1/resubmit", &fields).await.status,
        StatusCode::SEE_OTHER
    );
}

#[tokio::test]
async fn a_step_is_completed_by_hand_and_the_next_can_be_skipped() {
    let shop = Shop::with_refused_charge("HTTP 402").await;
    shop.get("/console/tasks/o-1/complete?step=charge")
        .await
        .assert_text(&["Step charge counts as completed, with the given output.", "attempt 1"]);
    let wrong = shop
        .post("/console/tasks/o-1/complete", &[REASON, ("step", "charge"), ("output", "{")])
        .await;
    assert_rejected(&wrong, &["the output is not JSON"]);
    let output = ("output", "{\"id\":\"c-7\"}");
    let sent =
        shop.post("/console/tasks/o-1/complete", &[REASON, ("step", "charge"), output]).await;
    shop.fail("/parcels", "no van", false);
    shop.run_functions().await;
    shop.get(location(&sent)).await.assert_text(&[
        "Done: complete charge. Since then:",
        "ship: failed",
        "c-7",
    ]);
    let skip = shop.get("/console/tasks/o-1/skip?step=ship").await;
    skip.assert_text(&["Step ship is skipped.", "The task goes from Error to Processed."]);
    let invalid = shop.get("/console/tasks/o-1/skip?step=%3Cb%3E").await;
    assert_eq!(invalid.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn submitting_a_form_twice_creates_one_command() {
    let shop = Shop::with_refused_charge("HTTP 402").await;
    let fields = [REASON, ("command_id", "c-1")];
    for _ in 0..2 {
        let sent = shop.post("/console/tasks/o-1/undo", &fields).await;
        assert_eq!(location(&sent), "/console/tasks/o-1?sent=c-1");
        shop.run_functions().await;
    }
    assert_eq!(shop.task("o-1").await.commands.len(), 1);
}

#[tokio::test]
async fn unknown_tasks_and_commands_return_404() {
    let shop = Shop::with_refused_charge("HTTP 402").await;
    for address in ["/console/tasks/o-2", "/console/tasks/%3Cb%3E", "/console/tasks/o-1/explode"] {
        let page = shop.get(address).await;
        assert_eq!(page.status, StatusCode::NOT_FOUND, "{address}");
        page.assert_absent(&["<b>"]);
    }
}

#[tokio::test]
async fn a_selected_document_is_shown_alone_and_masked() {
    let shop = Shop::with_refused_charge("HTTP 402").await;
    let page = shop.get("/console/tasks/o-1?document=step%2Freserve%2F1%2Foutput").await;
    page.assert_text(&["reserve-1", MASK_TEXT]);
    page.assert_absent(&["\"Ann\"", "hx-get"]);
}

#[tokio::test]
async fn logs_contain_no_masked_or_entered_values() {
    // With a single subscriber, `tracing` disables a callsite for all threads if a thread without a subscriber reaches it
    // first, as another test may do.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    let log = NamedTempFile::new().unwrap();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_env_filter("info,steward_console=trace,steward_runtime=trace")
        .with_writer(log.reopen().unwrap())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let shop = Shop::with_refused_charge("HTTP 402").await;
    let form = shop.get("/console/tasks/o-1/resubmit").await;
    let input = edited(&form, "\"amount\": 7", "\"amount\": 7, \"note\": \"typed-9c1\"");
    shop.post("/console/tasks/o-1/resubmit", &[REASON, ("input", &input)]).await;
    shop.run_functions().await;
    shop.get(TASK).await;
    let log = std::fs::read_to_string(log.path()).unwrap();
    assert!(log.contains("command sent"), "{log}");
    for hidden in [CARD, RECEIPT, "typed-9c1"] {
        assert!(!log.contains(hidden), "{hidden} in: {log}");
    }
}

/// Of a step with many items, the page reads the documents of a few. A dry run reads what it needs beside them.
#[tokio::test]
async fn the_page_of_a_task_with_many_items_shows_those_that_need_attention() {
    let shop = Shop::open().await;
    let items: Vec<_> = (0..250).map(|n| format!("parcel-{n:03}")).collect();
    shop.console
        .publish(json!({
            "name": "batch", "version": 1, "mask": ["/receipt", "/card", "/text"], "steps": { "ship": {
                "agent": "a", "for_each": { "items": "${ input.parcels }", "at_once": 50 },
                "recovery": { "then": "alert" }, "request": { "path": "/${ item }" },
            } },
        }))
        .await;
    shop.fail("/parcel-240", "HTTP 402", false);
    shop.submit("o-1", "batch", &json!({ "parcels": items })).await;
    let page = shop.get(TASK).await;
    page.assert_text(&["step ship[240]: HTTP 402", "50 of 250 started items of ship are shown"]);
    let shown =
        |page: &PageResponse, item: u32| page.html.contains(&format!("step/ship[{item}]/1/"));
    for (item, is_shown) in [(0, true), (48, true), (49, false), (150, false), (240, true)] {
        assert_eq!(shown(&page, item), is_shown, "{item}");
    }
    let page = shop.get(&format!("{TASK}?part=ship%5B150%5D")).await;
    assert!(shown(&page, 150) && !shown(&page, 151));
    let page = shop.get(&format!("{TASK}?document=step%2Fship%5B151%5D%2F1%2Foutput")).await;
    assert!(page.text().contains("ship[151]-1"), "{}", page.text());

    let form = shop.get(&format!("{TASK}/resubmit")).await;
    form.assert_text(&["Agent a gets a request for step ship[240] (attempt 2)"]);
    assert!(form.html.contains("<option>ship[240]</option>"), "{}", form.html);
    shop.repair();
    let fields = [("step", "ship[240]"), REASON];
    let page = shop.post(&format!("{TASK}/resubmit"), &fields).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.text());
    shop.run_functions().await;
    assert_eq!(shop.task("o-1").await.process_state, ProcessState::Processed);
}

/// The request of the failed step reads the outputs of all items.
#[tokio::test]
async fn a_command_whose_dry_run_reads_too_many_documents_may_be_sent_with_unknown_effects() {
    let shop = Shop::open().await;
    let items: Vec<_> = (0..600).collect();
    shop.console
        .publish(json!({
            "name": "batch", "version": 1, "mask": ["/receipt", "/card", "/text"], "steps": {
                "ship": {
                    "agent": "a", "for_each": { "items": "${ input.parcels }", "at_once": 100 },
                    "request": { "path": "/ship" },
                },
                "sum": {
                    "agent": "a", "after": ["ship"], "recovery": { "then": "alert" },
                    "request": { "path": "/sum", "body": "${ steps.ship.output.size() }" },
                },
            },
        }))
        .await;
    shop.fail("/sum", "HTTP 402", false);
    shop.submit("o-1", "batch", &json!({ "parcels": items })).await;
    let unknown = "The effects are not known: the decision reads";
    shop.get(TASK).await.assert_text(&["step sum: HTTP 402", unknown]);
    let form = shop.get(&format!("{TASK}/resubmit")).await;
    form.assert_text(&[unknown]);
    assert!(!form.text().contains("Not possible"), "{}", form.text());
    assert!(!form.html.contains("<option>sum</option>"), "it is not known whether it is accepted");
    shop.repair();
    let page = shop.post(&format!("{TASK}/resubmit"), &[REASON]).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.text());
    shop.run_functions().await;
    assert_eq!(shop.task("o-1").await.process_state, ProcessState::Processed);
}
