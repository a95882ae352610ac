//! Tests of a workflow: what is read, what runs, what is compared, what is written.

#![cfg(test)]

mod common;

use std::time::Instant;

use common::{Folder, ORDER, differences};
use steward_scripted_runs::workflow_test::{CaseOutcome, junit, run_tests, update};

const HEAD: &str = "input: { items: [tea], amount: 12 }\nservices:\n  reserve: { do: { body: { id: r-1 } } }\ncases:\n";

/// The text of a test file with this case. The first line of a case may lack its indentation.
fn tests_of(case: &str) -> String {
    format!("{HEAD}  {}", case.trim_start())
}

fn passes(case: &str) {
    let folder = Folder::new(ORDER, &tests_of(case));
    let found = differences(&folder.run());
    assert!(found.is_empty(), "{found:#?}");
}

fn fails(case: &str) -> Vec<String> {
    Folder::new(ORDER, &tests_of(case)).run_differences()
}

trait RunDifferences {
    fn run_differences(&self) -> Vec<String>;
}

impl RunDifferences for Folder {
    fn run_differences(&self) -> Vec<String> {
        differences(&self.run())
    }
}

#[test]
fn a_task_without_failures_makes_its_calls_in_order() {
    passes(
        "\
  - name: all is well
    task_id: order-1
    expect:
      state: Processed
      output: { reservation: r-1 }
      steps: { reserve: completed, mail: completed }
      calls:
        - { do: reserve, method: POST, path: /reservations, body: { order: order-1 } }
        - { do: charge, body: { amount: 12 } }
        - { do: mail }
      alerts: []
      notifications: [received, processed]
      took: { at_most: 2s }
",
    );
}

#[test]
fn a_refusal_undoes_in_reverse_order() {
    passes(
        "\
  - name: the mail is refused
    services:
      mail: { do: { status: 422, body: { why: no address } } }
    expect:
      state: Undone
      reason: 'step mail: HTTP 422'
      calls: [{ do: reserve }, { do: charge }, { do: mail }, { undo: charge }, { undo: reserve }]
      notifications: [received, undone]
",
    );
}

#[test]
fn the_nth_call_gets_the_nth_answer_and_the_last_one_is_repeated() {
    passes(
        "\
  - name: two failures, then silence until the attempts are used up
    services:
      charge:
        do: [{ status: 503, times: 2 }, { fault: silent }]
        undo: { status: 204 }
    expect:
      state: Undone
      calls:
        - { do: reserve }
        - { do: charge, times: 4 }
        - { undo: charge }
        - { undo: reserve }
      took: { at_least: 20s, at_most: 1m }
",
    );
}

#[test]
fn the_table_of_responses_is_that_of_the_agent() {
    for (status, state) in [(402, "Undone"), (302, "Undone"), (200, "Processed"), (599, "Undone")] {
        passes(&format!(
            "  - name: status\n    services: {{ mail: {{ do: {{ status: {status} }} }} }}\n    expect: {{ state: {state} }}\n"
        ));
    }
    let with_class = ORDER.replace(
        "request: { path: /mails }",
        "responses: { 402: completed }\n    request: { path: /mails }",
    );
    let case = "  - name: a\n    services: { mail: { do: { status: 402 } } }\n    expect: { state: Processed }\n";
    assert_eq!(Folder::new(&with_class, &tests_of(case)).run_differences(), Vec::<String>::new());
}

#[test]
fn an_output_is_selected_from_the_scripted_body_and_headers() {
    let selecting = ORDER.replace(
        "    undo: { request: { path: /releases } }",
        "    output: { id: '${ response.body.list[0].id }', tag: '${ response.headers.etag }' }\n    undo: { request: { path: /releases } }",
    );
    let case = "\
  - name: selected
    services:
      reserve: { do: { body: { list: [{ id: r-9 }] }, headers: { ETag: v7 } } }
    expect: { state: Processed, output: { reservation: r-9 } }
  - name: not there
    services:
      reserve: { do: { body: {} } }
    expect: { state: Undone, calls: [{ do: reserve }, { undo: reserve }] }
";
    let result = Folder::new(&selecting, &tests_of(case)).run();
    assert!(result.failed() == 0, "{result:#?}");
}

/// Each task of a test is submitted at the start of 2026, whatever day it is.
#[test]
fn a_service_that_names_a_time_is_called_after_it_on_the_virtual_clock() {
    let until = "    request: { path: /charges, body: { amount: '${ input.amount }' } }\n";
    let judged = format!(
        "{until}    responses: {{ 503: [{{ when: '${{ true }}', class: retry, until: '${{ int(response.headers.reset) }}' }}] }}\n"
    );
    let workflow = ORDER.replace(until, &judged);
    for answer in [
        "status: 429, headers: { Retry-After: 'Thu, 01 Jan 2026 00:10:00 GMT' }",
        "status: 503, headers: { Reset: '1767226200' }",
    ] {
        let case = format!(
            "- name: a\n    services: {{ charge: {{ do: [{{ {answer} }}, {{ body: {{}} }}] }} }}\n    \
             expect: {{ state: Processed, took: {{ at_least: 9m 55s, at_most: 11m }} }}\n"
        );
        let result = Folder::new(&workflow, &tests_of(&case)).run();
        assert!(result.failed() == 0, "{result:#?}");
    }
}

#[test]
fn operators_step_in_at_their_time() {
    passes(
        "\
  - name: an undo that is refused is completed by hand after an hour
    services:
      mail: { do: { status: 422 } }
      charge: { undo: { status: 422 } }
    commands:
      - { at: 1h, command: complete, step: charge, by: ann, why: refunded }
    expect:
      state: Undone
      alerts: [undo_failed]
      notifications: [received, error, undone]
      took: { at_least: 1h, at_most: 1h 1m }
",
    );
}

#[test]
fn a_test_can_stop_before_the_task_ends() {
    passes(
        "\
  - name: still in progress
    services: { charge: { do: { fault: silent } } }
    until: 5s
    expect: { state: Processing, steps: { reserve: completed, charge: running } }
",
    );
}

const APPROVAL: &str = "\
name: order
version: 1
complete_within: 10d
steps:
  ask:
    agent: desk
    complete_within: 5d
    callback: { within: 3d, heartbeat: 1d }
    recovery: { attempts: 1, then: alert }
    request: { path: /questions, body: { answer_to: '${ callback.url }' } }
  paid:
    after: [ask]
    wait: { event: { source: bank, detail_type: Paid, key: '${ event.detail.order }', equals: '${ task.id }' }, within: 2d }
  parts:
    after: [paid]
    for_each: { items: '${ input.parts }', at_once: 1 }
    agent: stock
    request: { path: '/parts/${ item }' }
  pack:
    after: [parts]
    workflow: { name: packing }
";

#[test]
fn callbacks_events_items_and_child_tasks_are_scripted() {
    let tests = "\
input: { parts: [a, b] }
cases:
  - name: all that a step can wait for
    task_id: o-7
    services:
      ask: { callback: [{ after: 20h, heartbeat: true }, { after: 40h, completed: { ok: true } }] }
      parts: { items: { 1: { do: [{ status: 503 }, { status: 200 }] } } }
      pack: { child: { after: 2h, output: { box: 7 } } }
    events:
      - { at: 1h, source: bank, detail_type: Paid, detail: { order: other } }
      - { at: 60h, source: bank, detail_type: Paid, detail: { order: o-7 } }
    expect:
      state: Processed
      calls: [{ do: ask }, { do: 'parts[0]', path: /parts/a }, { do: 'parts[1]', times: 2 }]
      took: { at_least: 62h, at_most: 63h }
  - name: no heartbeat arrives
    services: { ask: { callback: [{ after: 40h, completed: null }] } }
    expect: { state: Error, alerts: [task_in_error] }
  - name: an operator approves, and the child fails
    services: { pack: { child: { ends: undone } } }
    commands: [{ at: 1h, command: approve, answer: { ok: true } }]
    events: [{ at: 2h, source: bank, detail_type: Paid, detail: { order: test } }]
    expect: { state: Error }
";
    let result = Folder::new(APPROVAL, tests).run();
    assert!(result.failed() == 0, "{result:#?}");
}

#[test]
fn a_child_whose_definition_is_given_runs_with_its_own_services() {
    let parent = "name: order\nversion: 1\nsteps:\n  pack:\n    workflow: { name: packing }\n    recovery: { then: undo }\n";
    let child = "name: packing\nversion: 1\nsteps:\n  box:\n    agent: boxes\n    recovery: { then: undo }\n    request: { path: /boxes }\n";
    let tests = "\
with: [packing.yaml]
cases:
  - name: the child fails
    services: { packing.box: { do: { status: 422 } } }
    expect: { state: Undone, calls: [{ do: packing.box, path: /boxes }] }
";
    let folder = Folder::new(parent, tests);
    folder.add("packing.yaml", child);
    assert_eq!(folder.run_differences(), Vec::<String>::new());
}

#[test]
fn differences_name_what_was_expected_and_what_was_seen() {
    let found = fails(
        "\
  - name: wrong in every way
    services: { mail: { do: { status: 422 } } }
    expect:
      state: Processed
      reason: timeout
      steps: { mail: completed }
      output: { reservation: r-1 }
      calls: [{ do: reserve }, { do: charge, body: { amount: 13 } }, { do: mail }]
      alerts: [task_in_error]
      notifications: [received, processed]
      took: { at_least: 1h }
",
    );
    let text = found.join("\n");
    for part in [
        "state: expected Processed, got Undone: step mail: HTTP 422",
        "reason: expected to contain `timeout`",
        "steps: mail: expected completed, got failed",
        "output: output: expected {\"reservation\":\"r-1\"}, got null",
        "calls: - do charge",
        "calls: + do charge: POST /charges   (body.amount: expected 13, got 12)",
        "calls: + undo charge: POST /refunds",
        "alerts: expected [\"task_in_error\"], got []",
        "notifications: expected [\"received\",\"processed\"], got [\"received\",\"undone\"]",
        "took: expected at least 1h",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

/// Planted: the definition undoes in the wrong order, or not at all.
#[test]
fn a_definition_without_an_undo_fails_its_test() {
    let case = "  - name: refused\n    services: { mail: { do: { status: 422 } } }\n    expect: { state: Undone, calls: [{ do: reserve }, { do: charge }, { do: mail }, { undo: charge }, { undo: reserve }] }\n";
    let tests = format!("{HEAD}{case}");
    assert_eq!(Folder::new(ORDER, &tests).run_differences(), Vec::<String>::new());
    let without = ORDER.replace("    undo: { request: { path: /refunds } }\n", "");
    let found = Folder::new(&without, &tests).run_differences().join("\n");
    assert!(
        found.contains("there is no step") || found.contains("calls: - undo charge"),
        "{found}"
    );
    let parallel = ORDER.replace("    after: [reserve]\n", "");
    let found = Folder::new(&parallel, &tests).run_differences();
    assert!(!found.is_empty());
}

#[test]
fn calls_of_parallel_branches_may_come_in_any_order() {
    let parallel = ORDER
        .replace("    after: [reserve]\n", "")
        .replace("after: [charge]", "after: [reserve, charge]");
    let case =
        |calls: &str| format!("{HEAD}  - name: parallel\n    expect: {{ calls: [{calls}] }}\n");
    let any = case("{ any_order: [{ do: charge }, { do: reserve }] }, { do: mail }");
    assert_eq!(Folder::new(&parallel, &any).run_differences(), Vec::<String>::new());
    let missing = case("{ any_order: [{ do: charge }, { do: charge }] }, { do: mail }");
    assert!(!Folder::new(&parallel, &missing).run_differences().is_empty());
}

#[test]
fn mistakes_have_a_line_a_column_and_a_hint() {
    let tests = "\
servces: {}
cases:
  - name: a
    services:
      chargee: { do: { status: 99 } }
      mail: { undo: { status: 200 }, do: [{ fault: silent, body: 1 }] }
    commands: [{ at: 5, command: skipp }]
    expect: { state: Done, calls: [{ path: /x }] }
";
    let folder = Folder::new(ORDER, tests);
    let structure = folder.problems();
    for part in [
        "1:1: unknown key `servces`; did you mean `services`?",
        "5:32: cases.0.services.chargee.do.status: must be from 100 to 599",
        "7:22: cases.0.commands.0.at: must be a string, not a number; a duration needs a unit",
        "did you mean `skip`?",
        "8:22: cases.0.expect.state: must be one of `Pending`, ",
    ] {
        assert!(structure.contains(part), "{part}\n{structure}");
    }
    assert!(!structure.contains("missing key"), "{structure}");
    folder.write(
        &tests
            .replace("servces: {}\n", "")
            .replace("status: 99", "status: 402")
            .replace("at: 5", "at: 5s")
            .replace("skipp", "skip")
            .replace("Done", "Undone"),
    );
    let names = folder.problems();
    for part in [
        "4:7: cases.0.services.chargee: there is no step `chargee`; did you mean `charge`?",
        "cases.0.services.mail.undo: the step has no `undo` that makes calls",
        "cases.0.services.mail.do.0.fault: a call without a response has no status, body and headers",
        "cases.0.expect.calls.0: needs exactly one of `do`, `undo` and `any_order`",
    ] {
        assert!(names.contains(part), "{part}\n{names}");
    }
}

#[test]
fn update_writes_what_was_seen_and_keeps_comments() {
    let tests = format!(
        "# The file's comment.\n{HEAD}\
  # The first case.
  - name: nothing is expected
    services: {{ mail: {{ do: {{ status: 422 }} }} }}   # no address

  # The second case.
  - name: wrong
    expect:
      # The state, after all.
      state: Undone
      calls:
        - do: reserve
        - do: mail
      alerts: []
  - name: right
    expect: {{ state: Processed }}
"
    );
    let folder = Folder::new(ORDER, &tests);
    let (parsed, result) = (folder.tests(), folder.run());
    let written = update(&parsed, &result);
    assert_eq!(written.changed, ["nothing is expected", "wrong"]);
    assert_eq!(written.skipped, Vec::<String>::new());
    for comment in [
        "# The file's comment.",
        "# The first case.",
        "# no address",
        "# The second case.",
        "# The state, after all.",
    ] {
        assert!(written.text.contains(comment), "{comment}\n{}", written.text);
    }
    folder.write(&written.text);
    let again = folder.run();
    assert!(again.failed() == 0, "{}\n{again:#?}", written.text);
    assert_eq!(update(&folder.tests(), &again).text, written.text);
}

#[test]
fn results_are_written_as_junit() {
    let tests = format!(
        "{HEAD}  - name: a < b\n    expect: {{ state: Undone }}\n  - name: fine\n    expect: {{ state: Processed }}\n"
    );
    let xml = junit(&[Folder::new(ORDER, &tests).run()]).unwrap();
    for part in [
        "<testsuites",
        "tests=\"2\" skipped=\"0\" failures=\"1\" errors=\"0\"",
        "name=\"a &lt; b\"",
        "expected Undone, got Processed",
    ] {
        assert!(xml.contains(part), "{part}\n{xml}");
    }
}

#[test]
fn the_same_case_has_the_same_timeline_each_time() {
    let tests = format!(
        "{HEAD}  - name: jitter\n    services: {{ charge: {{ do: [{{ status: 503, times: 9 }}, {{ status: 200 }}] }} }}\n    expect: {{}}\n"
    );
    let folder = Folder::new(ORDER, &tests);
    let timelines: Vec<_> = (0..3).map(|_| folder.run().cases[0].timeline.clone()).collect();
    assert_eq!(timelines[0], timelines[1]);
    assert_eq!(timelines[0], timelines[2]);
    assert!(timelines[0].len() > 10, "{timelines:#?}");
}

#[test]
fn a_case_without_an_expectation_does_not_pass() {
    let result = Folder::new(ORDER, &format!("{HEAD}  - name: nothing\n")).run();
    assert_eq!(result.cases[0].outcome, CaseOutcome::NothingExpected);
    assert_eq!(result.failed(), 1);
}

/// Prints how many cases run in a second: `cargo test -p steward-scripted-runs cases_per_second -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn cases_per_second() {
    let case = |n: usize| {
        format!(
            "  - name: case {n}\n    services: {{ mail: {{ do: {{ status: 422 }} }} }}\n    expect: {{ state: Undone }}\n"
        )
    };
    let tests: String = (0..1_000).map(case).collect();
    let folder = Folder::new(ORDER, &format!("{HEAD}{tests}"));
    let tests = folder.tests();
    let started = Instant::now();
    assert_eq!(run_tests(&tests).failed(), 0);
    println!("{:.0} cases a second", 1_000.0 / started.elapsed().as_secs_f64());
}
