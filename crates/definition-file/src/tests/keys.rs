//! Every key of the language: one definition uses all of them, and each test edits it into valid and invalid ones.

use super::*;

mod policies;
mod step_kinds;
mod steps;
mod workflow;

/// A valid definition that uses every key.
pub(super) const EVERYTHING: &str = "\
name: parcel
version: 3
description: All there is
input: { type: object, required: [amount] }
trigger: { source: shop, detail_type: Order Placed, task_id: '${ event.detail.id }', input: '${ event.detail }', tenant: '${ event.detail.shop }' }
complete_within: 4d
overdue: undo
retention: 30d
lifecycle_events: [submitted, step_failed, processed]
defaults:
  complete_within: 20s
  recovery: { attempts: 4, backoff: { first: 1s, rate: 1.5, max: 1m, jitter: false }, then: undo }
  undo: { complete_within: 1m, recovery: { attempts: 9 }, call_within: 20s, responses: { 404: completed } }
steps:
  reserve:
    description: One call
    agent: inventory
    when: ${ input.amount > 0 }
    idempotent: false
    point_of_no_return: true
    request: { method: PUT, path: '/reservations/${ task.id }', body: { items: '${ input.items }' } }
  pack:
    agent: [packing, packing-backup]
    after: [reserve]
    for_each: { items: '${ input.items }', at_once: 3 }
    recovery: { extended_wait: { wait: 15m, times: 2 }, give_up_after: 1d, key_valid_for: 1d }
    request: { path: /parcels, body: '${ item }', auth: { aws: { service: s3, region: eu-west-1 } } }
    undo:
      complete_within: 30s
      recovery: { attempts: 2 }
      request: { path: '/unpack/${ steps.pack.output.id }', body: '${ item }' }
  ask:
    agent: { choose: '${ input.office }-desk', of: [north-desk, south-desk] }
    after: [reserve]
    callback: { within: 3d, heartbeat: 1h, from: 'the office', answer: { type: object } }
    complete_within: 10s
    request: { path: /questions, body: '${ callback.token }', auth: aws, idempotency_key: { header: X-Key, form: uuid } }
  rest:
    after: [pack, ask]
    wait: 12h
  send:
    after: [rest]
    workflow: { name: delivery, version: 2, input: { parcels: '${ steps.pack.output }' } }
  look:
    agent: catalogue
    after: [send]
    request: { method: GET, path: /articles }
    read_only: true
    output: { id: '${ response.body.id }' }
    responses: { 403: [{ when: '${ response.body.late }', class: retry, did_not_run: true, after: 90s, until: 1800000000 }] }
  paid:
    after: [pack]
    wait: { event: { source: bank, detail_type: Paid, key: '${ event.detail.id }', equals: '${ task.id }' }, within: 1d }
    recovery: { then: undo }
  job:
    agent: reports
    after: [paid]
    request: { method: GET, path: '/jobs/${ env.table }' }
    until: { condition: '${ response.body.percent >= 100 }', every: 30s, fail: '${ response.body.has_failed }' }
    recovery: { give_up_after: 2h, then: continue }
  tell:
    agent: mail
    after: [job]
    when: ${ steps.job.failed && vars.dear }
    request: { path: /mails, body: '${ task.complete_by }' }
    no_undo_needed: a mail stays sent
  stop:
    after: [tell]
    fail: the job failed
  book:
    agent: hotel
    after: [tell]
    request: { path: /bookings }
    undo: { agent: desk, request: { path: /cancellations } }
    repeat: { first: '${ input.from }', until: '${ item.next == null }', at_most: 9 }
output: { sent: '${ steps.send.output }' }
mask: [/card/number, '/items/*/secret']
env: { table: orders, tries: 3, strict: false, account: null }
vars: { total: '${ input.price * input.count }', dear: '${ vars.total > 100 && env.strict }' }
labels: { customer: '${ input.customer.id }', dear: '${ vars.dear }', at: '${ task.submitted_at }', shop: '${ env.table }-1' }
warn_after: 1d
";

/// The errors in [`EVERYTHING`] after `from` is replaced by `to`.
fn errors_after(from: &str, to: &str) -> String {
    assert!(EVERYTHING.contains(from), "{from}");
    errors_in(&EVERYTHING.replacen(from, to, 1))
}

/// Checks cases of `(from, to, expected errors)`, and reports all that differ. A valid edit has no errors: `""`.
fn check(cases: &[(&str, &str, &str)]) {
    let differences: Vec<_> = cases
        .iter()
        .map(|(from, to, expected)| (to, errors_after(from, to), *expected))
        .filter(|(_, actual, expected)| actual != expected)
        .map(|(to, actual, expected)| format!("{to}\n  actual:   {actual}\n  expected: {expected}"))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn every_key_is_accepted() {
    assert_eq!(errors_in(EVERYTHING), "");
    let schema = steward_core::definition::workflow::json_schema();
    let mappings = schema["$defs"].as_object().unwrap().values().chain([&schema]);
    for keys in mappings.filter_map(|mapping| mapping["properties"].as_object()) {
        for key in keys.keys() {
            assert!(EVERYTHING.contains(&format!("{key}:")), "{key}");
        }
    }
}

#[test]
fn every_mapping_refuses_unknown_keys() {
    for (mapping, location) in [
        ("trigger: { ", "5:12: trigger"),
        ("defaults:\n  ", "11:3: defaults"),
        ("  recovery: { ", "12:15: defaults.recovery"),
        ("backoff: { ", "12:39: defaults.recovery.backoff"),
        ("  undo: { ", "13:11: defaults.undo"),
        ("  reserve:\n    ", "16:5: steps.reserve"),
        ("request: { ", "21:16: steps.reserve.request"),
        ("for_each: { ", "25:17: steps.pack.for_each"),
        ("extended_wait: { ", "26:34: steps.pack.recovery.extended_wait"),
        ("    undo:\n      ", "29:7: steps.pack.undo"),
        ("callback: { ", "35:17: steps.ask.callback"),
        ("workflow: { ", "43:17: steps.send.workflow"),
    ] {
        let separator = if mapping.ends_with("{ ") {
            ", ".to_owned()
        } else {
            format!("\n{}", " ".repeat(mapping.rsplit('\n').next().unwrap().len()))
        };
        let errors = errors_after(mapping, &format!("{mapping}colour: red{separator}"));
        assert!(errors.starts_with(&format!("{location}: unknown key `colour`")), "{errors}");
    }
    let errors = errors_in(&EVERYTHING.replacen("name:", "colour: red\nname:", 1));
    assert!(
        errors.starts_with("1:1: unknown key `colour`; there are `name`, `version`, "),
        "{errors}"
    );
}
