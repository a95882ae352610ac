//! One task: what its page says, and what can be done there.

use std::{
    io,
    sync::{Arc, Mutex},
};

use axum::http::StatusCode;
use serde_json::json;
use steward_core::{definition::mask::MASKED, model::task::ProcessState};

use crate::{
    shop::{CARD, RECEIPT, Shop},
    world::Page,
};

const TASK: &str = "/console/tasks/o-1";
const WHY: (&str, &str) = ("reason", "the bank is back");

/// The input as the form shows it, with one text replaced.
fn edited(page: &Page, from: &str, to: &str) -> String {
    let (_, input) = page.html.split_once("spellcheck=\"false\">\n").unwrap();
    let (input, _) = input.split_once("</textarea>").unwrap();
    let input = input.replace("&#34;", "\"");
    assert!(input.contains(from), "{input}");
    input.replacen(from, to, 1)
}

/// Where a form led.
fn location(page: &Page) -> &str {
    page.location.as_deref().unwrap_or_else(|| panic!("{}", page.text()))
}

/// Panics unless the form is shown again, and says all of these.
#[track_caller]
fn asks_again(page: &Page, parts: &[&str]) {
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", page.text());
    for part in parts {
        assert!(page.text().contains(part), "no `{part}` in: {}", page.text());
    }
}

#[tokio::test]
async fn a_task_in_error_says_what_happened_and_why_and_what_comes_next() {
    let shop = Shop::stopped("HTTP 402: <script>card</script>", false).await;
    let page = shop.get(TASK).await;
    page.says(&[
        "✕ Error · order version 1",
        "Error: step charge: HTTP 402: &#60;script&#62;card&#60;/script&#62;",
        "Nothing by itself. Resubmit, skip or complete what failed, or undo the task.",
        "Resubmit… Skip… Complete… Undo…",
        "Cancel: the task is Error.",
        "completed",
        "failed",
        "charge 1 failed",
        MASKED,
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
    page.has_no(&["<script>card", "style=", "onclick"]);
}

#[tokio::test]
async fn the_timeline_says_how_long_an_attempt_was_queued_and_called() {
    let shop = Shop::stopped("HTTP 402", false).await;
    let page = shop.get(TASK).await;
    let row = page.html.split("<tr>").find(|row| row.contains("<td>failed</td>")).unwrap();
    let lengths = row.matches(" ms</td>").count() + row.matches(" s</td>").count();
    assert_eq!(lengths, 3, "since its submission, in the queue, and of the call: {row}");
    assert!(page.html.contains("attempt 1 failed, queued 2"), "{}", page.html);
}

#[tokio::test]
async fn a_failed_step_is_resubmitted_and_whether_it_helped_is_said() {
    let shop = Shop::stopped("HTTP 402", false).await;
    let form = shop.get("/console/tasks/o-1/resubmit").await;
    form.says(&[
        "The task goes from Error to Processing.",
        "Agent a is asked for step charge, attempt 2.",
    ]);
    let sent = shop.post("/console/tasks/o-1/resubmit", &[WHY]).await;
    assert_eq!(sent.status, StatusCode::SEE_OTHER);
    assert!(location(&sent).starts_with("/console/tasks/o-1?sent="), "{sent:?}");
    shop.get(location(&sent)).await.says(&["Sent; waiting for the scheduler."]);
    shop.mends();
    shop.turn().await;
    shop.get(location(&sent)).await.says(&[
        "Done: resubmit charge. Since then charge: completed; ship: completed; the task: Processed.",
        "✓ Processed",
        "resubmit charge ada the bank is back ✓ done",
        "Nothing: the task has ended.",
    ]);
    let record = &shop.task("o-1").await.commands[0];
    assert_eq!((record.by.as_str(), record.why.as_str()), ("ada", "the bank is back"));
}

#[tokio::test]
async fn a_command_that_the_scheduler_refuses_says_so_on_the_task() {
    let shop = Shop::stopped("HTTP 402", false).await;
    let first = shop.post("/console/tasks/o-1/undo", &[WHY]).await;
    // Before the scheduler has heard of the first.
    let second = shop.post("/console/tasks/o-1/undo", &[WHY]).await;
    shop.turn().await;
    shop.get(location(&first))
        .await
        .says(&["Done: undo. Since then reserve: undone; the task: Undone."]);
    shop.get(location(&second)).await.says(&["Refused: undo: the task is being undone."]);
}

#[tokio::test]
async fn what_would_be_refused_is_said_before_it_is_sent() {
    let shop = Shop::stopped("HTTP 402", false).await;
    shop.get("/console/tasks/o-1/resume").await.says(&["the task is not paused"]);
    asks_again(&shop.post("/console/tasks/o-1/resume", &[WHY]).await, &["the task is not paused"]);
    // Why is for the record, and so it is asked.
    asks_again(&shop.post("/console/tasks/o-1/undo", &[("reason", " ")]).await, &["say why"]);
    shop.turn().await;
    assert!(shop.task("o-1").await.commands.is_empty());
}

#[tokio::test]
async fn an_edit_of_the_input_leaves_what_is_hidden_alone() {
    let shop = Shop::stopped("HTTP 402", false).await;
    let form = shop.get("/console/tasks/o-1/resubmit").await;
    form.says(&[MASKED, "Ann"]);
    shop.mends();
    let input = edited(&form, "\"amount\": 7", "\"amount\": 8");
    let fields = [WHY, ("input", input.as_str())];
    // Only to see what it would do.
    let check = [&fields[..], &[("check", "yes")]].concat();
    shop.post("/console/tasks/o-1/resubmit", &check).await.says(&["The input changes", "8"]);
    shop.turn().await;
    assert_eq!(shop.task("o-1").await.process_state, ProcessState::Error);
    let sent = shop.post("/console/tasks/o-1/resubmit", &fields).await;
    shop.turn().await;
    shop.get(location(&sent)).await.says(&["resubmit charge with edited input", "input/"]);
    let calls = shop.service.calls.lock().unwrap().clone();
    let charge = calls.iter().rfind(|call| call.path == "/charges").unwrap();
    assert_eq!(charge.body, Some(json!({ "card": CARD, "amount": 8 }).into()));
}

#[tokio::test]
async fn an_edit_that_cannot_be_is_shown_again_as_it_was_typed() {
    let shop = Shop::stopped("HTTP 402", false).await;
    let form = shop.get("/console/tasks/o-1/resubmit").await;
    let name = format!("\"name\": \"{MASKED}\"");
    for (from, to, said) in [
        (
            "\"amount\": 7",
            "\"amount\": 7000",
            "input.amount: it is greater than the maximum of 1000",
        ),
        ("\"amount\": 7", "\"amount\": 7,", "the input is not JSON: "),
        ("\"name\": \"Ann\"", name.as_str(), "/card/name: the edit would put"),
        ("\"sku\": 1", "\"sku\": 2", "/items/0/secret: the edit would put"),
        ("\"amount\": 7", "\"amount\": null", "cannot be set to null"),
    ] {
        let input = edited(&form, from, to);
        let page = shop.post("/console/tasks/o-1/resubmit", &[WHY, ("input", &input)]).await;
        asks_again(&page, &[said]);
        assert_eq!(edited(&page, to, to), input, "what was typed is kept");
        assert!(page.html.contains("value=\"the bank is back\""), "{}", page.html);
    }
    shop.turn().await;
    assert!(shop.task("o-1").await.commands.is_empty());
}

#[tokio::test]
async fn two_who_edit_the_input_at_once_do_not_undo_each_others_edit() {
    let shop = Shop::stopped("HTTP 402", false).await;
    let form = shop.get("/console/tasks/o-1/resubmit").await;
    for (amount, is_sent) in [("\"amount\": 8", true), ("\"amount\": 9", false)] {
        let input = edited(&form, "\"amount\": 7", amount);
        let page = shop.post("/console/tasks/o-1/resubmit", &[WHY, ("input", &input)]).await;
        if !is_sent {
            asks_again(&page, &["someone else has edited the input"]);
        }
        shop.turn().await;
    }
    assert_eq!(shop.task("o-1").await.commands.len(), 1);
}

#[tokio::test]
async fn what_may_have_taken_effect_is_tried_again_only_by_who_has_looked() {
    let shop = Shop::stopped("the connection broke", true).await;
    let fields = [WHY, ("did_not_run", "yes")];
    let early = shop.post("/console/tasks/o-1/resubmit", &fields).await;
    asks_again(&early, &["a call of step charge may be in progress until"]);
    shop.calls_are_over("o-1").await;
    let form = shop.get("/console/tasks/o-1/resubmit").await;
    form.says(&["may have taken effect: find out", "Agent a is asked for step charge, attempt 2."]);
    assert!(form.html.contains("name=\"did_not_run\" value=\"yes\" required"), "{}", form.html);
    let page = shop.post("/console/tasks/o-1/resubmit", &[WHY]).await;
    asks_again(&page, &["may have taken effect"]);
    assert_eq!(
        shop.post("/console/tasks/o-1/resubmit", &fields).await.status,
        StatusCode::SEE_OTHER
    );
}

#[tokio::test]
async fn a_step_is_settled_by_hand() {
    let shop = Shop::stopped("HTTP 402", false).await;
    shop.get("/console/tasks/o-1/complete?step=charge")
        .await
        .says(&["Step charge counts as completed, with the output given.", "attempt 1"]);
    let wrong =
        shop.post("/console/tasks/o-1/complete", &[WHY, ("step", "charge"), ("output", "{")]).await;
    asks_again(&wrong, &["the output is not JSON"]);
    let output = ("output", "{\"id\":\"c-7\"}");
    let sent = shop.post("/console/tasks/o-1/complete", &[WHY, ("step", "charge"), output]).await;
    shop.refuses("/parcels", "no van", false);
    shop.turn().await;
    shop.get(location(&sent)).await.says(&[
        "Done: complete charge. Since then",
        "ship: failed",
        "c-7",
    ]);
    let skip = shop.get("/console/tasks/o-1/skip?step=ship").await;
    skip.says(&["Step ship is skipped.", "The task goes from Error to Processed."]);
    let nonsense = shop.get("/console/tasks/o-1/skip?step=%3Cb%3E").await;
    assert_eq!(nonsense.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_form_that_is_sent_twice_is_one_command() {
    let shop = Shop::stopped("HTTP 402", false).await;
    let fields = [WHY, ("command_id", "c-1")];
    for _ in 0..2 {
        let sent = shop.post("/console/tasks/o-1/undo", &fields).await;
        assert_eq!(location(&sent), "/console/tasks/o-1?sent=c-1");
        shop.turn().await;
    }
    assert_eq!(shop.task("o-1").await.commands.len(), 1);
}

#[tokio::test]
async fn what_there_is_not_is_said() {
    let shop = Shop::stopped("HTTP 402", false).await;
    for address in ["/console/tasks/o-2", "/console/tasks/%3Cb%3E", "/console/tasks/o-1/explode"] {
        let page = shop.get(address).await;
        assert_eq!(page.status, StatusCode::NOT_FOUND, "{address}");
        page.has_no(&["<b>"]);
    }
}

#[tokio::test]
async fn one_document_is_shown_whole() {
    let shop = Shop::stopped("HTTP 402", false).await;
    let page = shop.get("/console/tasks/o-1?document=step%2Freserve%2F1%2Foutput").await;
    page.says(&["reserve-1", MASKED]);
    page.has_no(&["\"Ann\"", "hx-get"]);
}

/// A log as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn nothing_that_is_hidden_or_typed_reaches_a_log() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_env_filter("info,steward_console=trace,steward_runtime=trace")
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let shop = Shop::stopped("HTTP 402", false).await;
    let form = shop.get("/console/tasks/o-1/resubmit").await;
    let input = edited(&form, "\"amount\": 7", "\"amount\": 7, \"note\": \"typed-9c1\"");
    shop.post("/console/tasks/o-1/resubmit", &[WHY, ("input", &input)]).await;
    shop.turn().await;
    shop.get(TASK).await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("command sent"), "{log}");
    for hidden in [CARD, RECEIPT, "typed-9c1"] {
        assert!(!log.contains(hidden), "{hidden} in: {log}");
    }
}
