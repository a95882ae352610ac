//! The analysis of failures: what it runs, and what it finds in definitions with a planted mistake.

#![cfg(test)]

use std::{collections::BTreeSet, path::Path, sync::Mutex, time::Duration};

use steward_core::{definition::workflow::Workflow, model::attempt::Action};
use steward_definition_file::{parse, read_file};
use steward_forecast::cost::ForecastSettings;
use steward_scripted_runs::failures::{
    AnalysisError, AnalysisProgress, FailureCase, FailureReport, FailureRow, FailureSettings,
    Fault, FindingKind, analyse, rows,
};

/// Three steps in a line, each with an undo.
const ORDER: &str = "\
name: order
version: 1
complete_within: 5m
overdue: undo
defaults:
  complete_within: 10s
  recovery: { attempts: 2, then: undo }
  undo: { complete_within: 10s, recovery: { attempts: 2 } }
steps:
  reserve:
    agent: inventory
    request: { path: /reservations }
    undo: { request: { path: /releases } }
  charge:
    agent: payment
    after: [reserve]
    request: { path: /charges }
    undo: { request: { path: /refunds } }
  ship:
    agent: shipping
    after: [charge]
    request: { path: /shipments }
    undo: { request: { path: /cancellations } }
";

fn workflow(text: &str) -> Workflow {
    parse(Path::new("order.yaml"), text).unwrap_or_else(|error| panic!("{error}"))
}

fn settings(text: &str, pairs: bool) -> FailureSettings {
    FailureSettings { pairs, ..FailureSettings::new(ForecastSettings::new(workflow(text))) }
}

/// The analysis of single failures.
fn report(text: &str) -> FailureReport {
    analyse(settings(text, false), &|_| ()).unwrap()
}

fn kinds(report: &FailureReport) -> Vec<(FindingKind, &str)> {
    report.findings.iter().map(|finding| (finding.kind, finding.at.as_str())).collect()
}

fn single<'a>(report: &'a FailureReport, step: &str, fault: Fault) -> &'a FailureCase {
    let is_case =
        |case: &&FailureCase| case.faults[0].step == step && case.faults[0].fault == fault;
    report.singles.iter().find(is_case).unwrap_or_else(|| panic!("no case of {step}, {fault}"))
}

fn without(text: &str, part: &str) -> String {
    assert!(text.contains(part), "{part}");
    text.replace(part, "")
}

#[test]
fn a_workflow_whose_steps_can_all_be_undone_has_no_findings() {
    let report = analyse(settings(ORDER, true), &|_| ()).unwrap();
    assert_eq!(kinds(&report), []);
    // Three steps, each refused, unreachable, busy, with a key that is ignored or forgotten, and unknown, silent and with a stored
    // error, each of these with and without an effect.
    assert_eq!((report.variants, report.singles.len()), (1, 33));
    assert!(report.singles.iter().all(|case| case.left_behind.is_empty()), "{:#?}", report.singles);
    let is_undone = |case: &FailureCase| case.state == "Undone";
    let of_ignored_keys = |case: &FailureCase| case.faults[0].fault == Fault::KeyIgnored;
    assert!(report.singles.iter().all(|case| is_undone(case) != of_ignored_keys(case)));
    // A refused or silent undo leaves its effect, and an operator is told.
    let left: Vec<_> = report.pairs.iter().filter(|case| !case.left_behind.is_empty()).collect();
    assert!(!left.is_empty());
    for case in left {
        assert_eq!(
            (case.state.as_str(), case.alerts.contains(&"undo_failed")),
            ("Error", true),
            "{case:?}"
        );
        assert!(case.alerted_within_ms.is_some());
    }
    // Both failures of a pair occur, so a step after a failure is in no pair.
    let second =
        |case: &FailureCase| case.faults.iter().filter(|fault| fault.action == Action::Do).count();
    assert!(report.pairs.iter().all(|case| second(case) == 1), "{:#?}", report.pairs);
    assert_eq!(report.cases_cut, 0);
}

#[test]
fn both_possibilities_of_an_unknown_outcome_are_run() {
    let silent = without(ORDER, "    undo: { request: { path: /cancellations } }\n");
    let report = report(&silent);
    assert_eq!(single(&report, "ship", Fault::SilentTookEffect).left_behind, ["ship"]);
    assert_eq!(single(&report, "ship", Fault::SilentNoEffect).left_behind, Vec::<String>::new());
    assert_eq!(kinds(&report), [(FindingKind::Leftovers, "steps.ship")]);
}

#[test]
fn an_ignored_key_repeats_the_effect_and_idempotent_false_prevents_it() {
    let ignored = report(ORDER);
    let case = single(&ignored, "charge", Fault::KeyIgnored);
    assert_eq!(
        (case.state.as_str(), &case.more_than_once[..]),
        ("Processed", &["charge".to_owned()][..])
    );
    let rows = rows(&ignored.singles);
    let row =
        rows.iter().find(|row| row.fails == "charge" && row.how.contains("key ignored")).unwrap();
    assert_eq!(
        (row.left_behind.as_str(), row.alerted_within.as_str()),
        ("charge, more than once", "never")
    );
    // No definition prevents it but one that does not repeat the call.
    assert_eq!(kinds(&ignored), []);
    let once = ORDER.replace("    agent: payment\n", "    agent: payment\n    idempotent: false\n");
    let once = report(&once);
    let is_of_keys = |case: &&FailureCase| case.faults[0].fault.to_string().contains("key");
    let steps: BTreeSet<_> =
        once.singles.iter().filter(is_of_keys).map(|case| &case.faults[0].step[..]).collect();
    assert_eq!(steps, BTreeSet::from(["reserve", "ship"]));
}

/// A step waits for an open breaker without attempts, so an outage of a day is enough.
#[test]
fn a_step_that_is_repeated_after_the_service_forgot_its_key_is_found() {
    let long = ORDER.replace("complete_within: 5m", "complete_within: 9d");
    let found = report(&long);
    let case = single(&found, "charge", Fault::KeyForgotten);
    let charge = ["charge".to_owned()];
    assert_eq!((case.state.as_str(), &case.more_than_once[..]), ("Processed", &charge[..]));
    let all = ["steps.charge", "steps.reserve", "steps.ship"].map(|at| (FindingKind::Repeated, at));
    assert_eq!(kinds(&found), all);
    assert!(found.findings[0].message.contains("`recovery.key_valid_for`"), "{:?}", found.findings);
}

/// The service keeps the key for as long as the step relies on it: also for longer than a day.
#[test]
fn with_key_valid_for_a_forgotten_key_never_repeats_the_effect() {
    let long = ORDER.replace("complete_within: 5m", "complete_within: 60d");
    for valid in ["30m", "31d"] {
        let limit = format!("attempts: 2, key_valid_for: {valid}, then: undo");
        let found = report(&long.replacen("attempts: 2, then: undo", &limit, 1));
        for step in ["reserve", "charge", "ship"] {
            let case = single(&found, step, Fault::KeyForgotten);
            assert_eq!(
                (case.state.as_str(), &case.more_than_once),
                ("Undone", &Vec::new()),
                "{valid}"
            );
        }
        assert_eq!(kinds(&found), [], "{valid}");
    }
}

/// A task has time to be repeated after each provider forgot the key.
#[test]
fn the_steps_for_well_known_providers_are_analysed_and_repeat_no_effect() {
    let page = include_str!("../../../docs/providers.md");
    let mut repeated = Vec::new();
    for section in page.split("\n## ").skip(1) {
        let (name, rest) = section.split_once('\n').unwrap();
        let step = rest.split_once("```yaml\n").and_then(|(_, block)| block.split_once("```"));
        let step: String = step.unwrap().0.lines().map(|line| format!("    {line}\n")).collect();
        let text = format!("name: w\nversion: 1\ncomplete_within: 60d\nsteps:\n  call:\n{step}");
        let report = report(&text);
        assert!(report.singles.len() >= 5, "{name}");
        let is_repeated = |finding: &(FindingKind, &str)| finding.0 == FindingKind::Repeated;
        repeated.extend(kinds(&report).iter().any(is_repeated).then_some(name));
    }
    // They document no time.
    assert_eq!(repeated, ["PayPal", "Square"]);
}

#[test]
fn an_error_that_the_service_stores_ends_the_step_and_not_the_day() {
    let report = report(ORDER);
    for fault in [Fault::ErrorStoredTookEffect, Fault::ErrorStoredNoEffect] {
        let case = single(&report, "charge", fault);
        assert_eq!((case.state.as_str(), &case.left_behind), ("Undone", &Vec::new()));
        assert!(case.took_ms.unwrap() < 60_000, "{case:?}");
    }
}

#[test]
fn a_step_without_an_undo_before_one_that_can_fail_is_found() {
    let report = report(&without(ORDER, "    undo: { request: { path: /refunds } }\n"));
    let case = single(&report, "ship", Fault::Refused);
    assert_eq!((case.state.as_str(), &case.left_behind), ("Undone", &vec!["charge".to_owned()]));
    assert_eq!(case.alerted_within_ms, None);
    assert_eq!(
        kinds(&report),
        [(FindingKind::Leftovers, "steps.charge"), (FindingKind::NoUndo, "steps.charge")]
    );
    assert!(
        report.findings[0].message.contains("charge is unknown, took effect"),
        "{:?}",
        report.findings
    );
}

#[test]
fn a_read_only_step_needs_no_undo() {
    let removed = without(ORDER, "    undo: { request: { path: /refunds } }\n");
    let marked =
        removed.replace("    agent: payment\n", "    agent: payment\n    read_only: true\n");
    assert_eq!(kinds(&report(&marked)), []);
    let get = removed.replace("{ path: /charges }", "{ method: GET, path: /charges }");
    assert_eq!(kinds(&report(&get)), []);
    let get_with_effect =
        get.replace("    agent: payment\n", "    agent: payment\n    read_only: false\n");
    assert!(!kinds(&report(&get_with_effect)).is_empty());
}

#[test]
fn a_point_of_no_return_before_a_step_that_can_fail_is_found() {
    let early =
        ORDER.replace("    agent: payment\n", "    agent: payment\n    point_of_no_return: true\n");
    let report = report(&early);
    let case = single(&report, "ship", Fault::Refused);
    assert_eq!((case.state.as_str(), &case.not_done), ("Error", &vec!["ship".to_owned()]));
    assert!(
        kinds(&report).contains(&(FindingKind::HalfDone, "steps.ship")),
        "{:?}",
        report.findings
    );
    let late = ORDER
        .replace("    agent: shipping\n", "    agent: shipping\n    point_of_no_return: true\n");
    assert!(!kinds(&self::report(&late)).iter().any(|(kind, _)| *kind == FindingKind::HalfDone));
    // It is not known whether it has run, so nothing is undone, and the next step does not start.
    let case = single(&report, "charge", Fault::SilentTookEffect);
    assert_eq!((case.state.as_str(), &case.not_done), ("Error", &vec!["ship".to_owned()]));
    assert!(kinds(&report).contains(&(FindingKind::HalfDone, "steps.charge")));
}

#[test]
fn two_steps_side_by_side_fail_in_one_pair() {
    let beside = ORDER.replace("    after: [charge]\n", "    after: [reserve]\n");
    let report = analyse(settings(&beside, true), &|_| ()).unwrap();
    let of = |case: &FailureCase| {
        case.faults.iter().map(|fault| (fault.step.clone(), fault.action)).collect::<Vec<_>>()
    };
    let both = vec![("charge".to_owned(), Action::Do), ("ship".to_owned(), Action::Do)];
    assert!(report.pairs.iter().any(|case| of(case) == both), "{:#?}", report.pairs);
}

#[test]
fn a_deadline_that_is_too_short_is_found() {
    let short = ORDER.replace("complete_within: 5m", "complete_within: 15s");
    let found = report(&short);
    assert!(
        kinds(&found).iter().any(|(kind, _)| *kind == FindingKind::ShortDeadline),
        "{:?}",
        found.findings
    );
}

#[test]
fn a_step_that_never_runs_is_found_and_other_branches_are_variants() {
    let never =
        ORDER.replace("    agent: shipping\n", "    agent: shipping\n    when: ${ 1 > 2 }\n");
    let found = report(&never);
    assert!(
        kinds(&found).contains(&(FindingKind::NeverRuns, "steps.ship")),
        "{:?}",
        found.findings
    );
    let branch = ORDER
        .replace("    agent: shipping\n", "    agent: shipping\n    when: ${ input.express }\n");
    let found = report(&branch);
    assert_eq!((found.variants, found.variants_cut, kinds(&found)), (2, 0, vec![]));
    let limited = FailureSettings { variants_max: 1, ..settings(&branch, false) };
    let found = analyse(limited, &|_| ()).unwrap();
    assert_eq!((found.variants, found.variants_cut), (1, 1));
}

#[test]
fn the_definitions_of_child_tasks_are_examined_too() {
    let shop = "\
name: shop
version: 1
complete_within: 1h
overdue: undo
steps:
  sell: { workflow: { name: order, input: \"${ input }\" } }
";
    let child = without(ORDER, "    undo: { request: { path: /refunds } }\n")
        .replace("    agent: shipping\n", "    agent: shipping\n    when: ${ 1 > 2 }\n");
    let forecast =
        ForecastSettings { with: vec![workflow(&child)], ..ForecastSettings::new(workflow(shop)) };
    let settings = FailureSettings { pairs: false, ..FailureSettings::new(forecast) };
    let found = analyse(settings, &|_| ()).unwrap();
    for expected in
        [(FindingKind::NoUndo, "order.steps.charge"), (FindingKind::NeverRuns, "order.steps.ship")]
    {
        assert!(kinds(&found).contains(&expected), "{expected:?}: {:?}", found.findings);
    }
}

#[test]
fn an_undo_that_reads_the_output_of_its_step_is_no_short_deadline() {
    let reads = ORDER.replace("/refunds }", "/refunds, body: \"${ steps.charge.output }\" }");
    assert!(reads != ORDER && !workflow(&reads).lint().is_empty());
    let found = report(&reads);
    let is_short = |(kind, _): &(FindingKind, &str)| *kind == FindingKind::ShortDeadline;
    assert!(!kinds(&found).iter().any(is_short), "{:?}", found.findings);
}

#[test]
fn the_time_until_an_alert_is_an_upper_bound() {
    let alert =
        ORDER.replace("then: undo }", "then: alert }").replace("overdue: undo", "overdue: alert");
    let report = report(&alert);
    // Two attempts of ten seconds with a pause of one second, twice the clock skew each: no jitter makes them shorter.
    let silent = single(&report, "charge", Fault::SilentTookEffect);
    let within = silent.alerted_within_ms.unwrap();
    assert_eq!(silent.state, "Error");
    assert!((21_000..60_000).contains(&within), "{within}");
    assert!(single(&report, "charge", Fault::Refused).alerted_within_ms.unwrap() < 2_000);
    // The service asks for a longer pause than the task has.
    assert!(single(&report, "charge", Fault::Busy).alerted_within_ms.unwrap() < 2_000);
}

#[test]
fn the_time_until_an_alert_includes_the_waits_for_the_supervisor() {
    let paid = "  paid:
    wait: { event: { source: bank, detail_type: Paid, key: '${ event.detail.id }', equals: '${ task.id }' }, within: 4m }
    recovery: { then: alert }
";
    let alerted_within = |sweep_every| {
        let settings = FailureSettings {
            sweep_every: Duration::from_secs(sweep_every),
            ..settings(&format!("{ORDER}{paid}"), false)
        };
        let report = analyse(settings, &|_| ()).unwrap();
        single(&report, "paid", Fault::NoEvent).alerted_within_ms.unwrap()
    };
    let often = alerted_within(10);
    assert!((240_000..270_000).contains(&often), "{often}");
    // Two runs of the supervisor, each up to fifty seconds later.
    assert_eq!(alerted_within(60) - often, 100_000);
}

#[test]
fn the_time_limit_of_a_step_ends_an_outage() {
    let long = ORDER.replace("complete_within: 5m", "complete_within: 6h");
    let limited = long.replace("attempts: 2, then", "attempts: 2, give_up_after: 20m, then");
    let minutes = |text: &str| {
        let report = report(text);
        [Fault::Unreachable, Fault::Busy].map(|fault| {
            let case = single(&report, "charge", fault);
            assert_eq!((case.state.as_str(), case.left_behind.len()), ("Undone", 0), "{case:?}");
            case.took_ms.unwrap() / 60_000
        })
    };
    let [unreachable, busy] = minutes(&long);
    assert!(unreachable > 5 * 60 && busy > 5 * 60, "{unreachable} and {busy} minutes");
    let [unreachable, busy] = minutes(&limited);
    assert!((10..=20).contains(&unreachable), "{unreachable} minutes");
    assert_eq!(busy, 0, "it asks for a longer pause");
}

#[test]
fn waits_callbacks_items_and_children_fail_in_their_own_ways() {
    let text = "\
name: order
version: 1
complete_within: 1h
overdue: undo
defaults: { recovery: { attempts: 1, then: undo } }
steps:
  ask:
    agent: desk
    callback: { within: 10m }
    request: { path: /asks, body: '${ callback.token }' }
    undo: { request: { path: /forget } }
  paid:
    after: [ask]
    wait: { event: { source: bank, detail_type: Paid, key: '${ event.detail.id }', equals: '${ task.id }' }, within: 10m }
  parts:
    after: [paid]
    agent: stock
    for_each: { items: '${ input.parts }', at_once: 1 }
    request: { path: /parts, body: '${ item }' }
    undo: { request: { path: /returns } }
  pack:
    after: [parts]
    complete_within: 10m
    workflow: { name: packing }
  last:
    after: [pack]
    agent: mail
    read_only: true
    request: { path: /mails }
";
    let report = report(text);
    let left: Vec<_> = report.singles.iter().filter(|case| !case.left_behind.is_empty()).collect();
    assert!(left.iter().all(|case| case.state == "Error"), "{left:#?}");
    assert_eq!(single(&report, "ask", Fault::CallbackFailed).state, "Undone");
    assert_eq!(
        single(&report, "ask", Fault::NoCallbackTookEffect).left_behind,
        Vec::<String>::new()
    );
    assert_eq!(single(&report, "paid", Fault::NoEvent).state, "Undone");
    assert_eq!(single(&report, "parts", Fault::Refused).state, "Undone");
    assert_eq!(single(&report, "pack", Fault::ChildUndone).state, "Undone");
    assert_eq!(single(&report, "last", Fault::Refused).left_behind, Vec::<String>::new());
    let items = without(text, "    undo: { request: { path: /returns } }\n");
    let found = self::report(&items);
    assert_eq!(single(&found, "parts", Fault::Refused).left_behind, ["parts[0]"]);
}

#[test]
fn the_number_of_cases_is_limited_and_what_was_cut_is_counted() {
    let settings = FailureSettings {
        cases_max: Some(30),
        ..FailureSettings::new(ForecastSettings::new(workflow(ORDER)))
    };
    let report = analyse(settings, &|_| ()).unwrap();
    assert_eq!(report.singles.len(), 23);
    assert!(report.pairs.len() <= 7, "{}", report.pairs.len());
    assert!(report.cases_cut > 0);
    assert_eq!(report.not_run.values().sum::<usize>(), report.cases_cut);
    assert!(report.not_run.contains_key("ship + undo of charge"), "{:?}", report.not_run);
    let singles = FailureSettings {
        pairs: false,
        ..FailureSettings::new(ForecastSettings::new(workflow(ORDER)))
    };
    assert_eq!(analyse(singles, &|_| ()).unwrap().pairs, []);
}

/// A hundred steps, each after all before it.
fn connected() -> String {
    let step = |n: usize| {
        let after: Vec<_> = (0..n).map(|before| format!("s{before}")).collect();
        let after = after.join(", ");
        let undo = "undo: { request: { path: /undo } }";
        format!("  s{n}: {{ agent: a, after: [{after}], request: {{ path: /do }}, {undo} }}\n")
    };
    let steps: String = (0..100).map(step).collect();
    format!("name: large\nversion: 1\ncomplete_within: 1h\noverdue: undo\nsteps:\n{steps}")
}

#[test]
fn a_large_workflow_is_sampled_and_its_cases_are_counted_before_they_are_run() {
    let progress = Mutex::new(Vec::new());
    // Two cases: the test is about the choice, and a run of a hundred steps takes a while.
    let settings = FailureSettings { cases_max: Some(2), ..settings(&connected(), true) };
    let report = analyse(settings, &|step| progress.lock().unwrap().push(step)).unwrap();
    let progress = progress.into_inner().unwrap();
    let first = AnalysisProgress::Planned { failures: 1, found: 1_100, run: 2 };
    assert_eq!(progress[..3], [first, AnalysisProgress::Ran, AnalysisProgress::Ran]);
    assert!(
        matches!(progress[3], AnalysisProgress::Planned { failures: 2, found: 1.., run: 0 }),
        "{progress:?}"
    );
    assert_eq!((report.singles.len(), report.seed), (2, 0));
    let singles = |(places, _): &(&String, &usize)| !places.contains('+');
    let left_out: usize = report.not_run.iter().filter(singles).map(|(_, count)| count).sum();
    assert_eq!(left_out, 1_098);
}

#[test]
fn a_workflow_that_needs_other_values_is_refused_with_the_option_to_give() {
    let other = ORDER.replace("{ path: /charges }", "{ path: '/charges/${ input.amounts[7] }' }");
    let settings = FailureSettings::new(ForecastSettings::new(workflow(&other)));
    let error = analyse(settings, &|_| ()).unwrap_err();
    assert!(matches!(error, AnalysisError::Run(_)), "{error}");
    assert!(error.to_string().contains("--input"), "{error}");
}

#[test]
fn rows_merge_failures_with_the_same_consequences() {
    let report = report(ORDER);
    let rows = rows(&report.singles);
    assert!(rows.len() < report.singles.len(), "{rows:#?}");
    assert_eq!((rows[0].fails.as_str(), rows[0].left_behind.as_str()), ("reserve", "nothing"));
    let of_ignored_keys = |row: &&FailureRow| row.how.contains("key ignored");
    let undone: Vec<_> = rows.iter().filter(|row| !of_ignored_keys(row)).collect();
    assert!(undone.iter().all(|row| row.ends == "Undone" && row.alerted_within == "not needed"));
    // Whether the call took effect makes no difference, because the undo covers both.
    assert!(rows.iter().any(|row| row.how.contains("unknown")), "{rows:#?}");
    assert!(rows.iter().all(|row| !row.how.contains("took effect")), "{rows:#?}");
}

#[test]
fn the_shipped_workflows_leave_nothing_behind_unnoticed() {
    let workflows = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workflows");
    for name in ["order.yaml", "drone-delivery.yaml"] {
        let workflow = read_file(&workflows.join(name)).unwrap();
        let settings = FailureSettings::new(ForecastSettings::new(workflow));
        let report = analyse(settings, &|_| ()).unwrap();
        assert_eq!(report.findings, [], "{name}");
        assert_eq!((report.cases_cut, report.variants_cut), (0, 0), "{name}");
    }
}
