//! The table *Function sizes* of `docs/operations/capacity.md` has the numbers and the sums of the templates' `Mappings`.

use serde_json::Value;
use steward_forecast::cost::idle_month::POLLERS_WITHOUT_MAXIMUM;

use super::{agent_template, all, template};

const PAGE: &str = include_str!("../../docs/operations/capacity.md");

const SIZES: [&str; 3] = ["small", "medium", "large"];

/// The agents of the page's sums.
const AGENTS: u64 = 8;

/// The concurrency that `Mappings` gives to a kind of functions, by size.
fn at_once(template: &Value, name: &str) -> [u64; 3] {
    SIZES.map(|size| template["Mappings"]["Concurrency"][size][name].as_u64().unwrap())
}

/// The concurrency of all event sources of a template, by size. Those without a maximum run as many as they have pollers.
fn sum(template: &Value) -> [u64; 3] {
    let functions = all(template, "AWS::Serverless::Function");
    let events =
        functions.flat_map(|(_, function)| function["Events"].as_object().into_iter().flatten());
    let sources = events.filter(|(_, event)| event["Type"] == "SQS");
    let mut sums = [0; 3];
    for (name, source) in sources {
        let maximum = &source["Properties"]["ScalingConfig"]["MaximumConcurrency"];
        let limits = match maximum[2].as_str() {
            Some(limit) => at_once(template, limit),
            None => [u64::from(POLLERS_WITHOUT_MAXIMUM); 3],
        };
        assert!(limits.iter().all(|limit| *limit > 0), "{name}");
        sums = std::array::from_fn(|size| sums[size] + limits[size]);
    }
    sums
}

/// A number as the page writes it: `1,132`.
fn written(number: u64) -> String {
    let (thousands, rest) = (number / 1_000, number % 1_000);
    if thousands == 0 { rest.to_string() } else { format!("{thousands},{rest:03}") }
}

/// Asserts that the page has a row that begins with this cell, and has these for the sizes.
fn assert_row(what: &str, cells: [String; 3]) {
    let row = format!("| {what} | {} |", cells.join(" | "));
    assert!(PAGE.lines().any(|line| line == row), "the page does not have {row}");
}

#[test]
fn the_page_has_the_sizes_of_the_templates_and_their_sums() {
    let (steward, agent) = (template(), agent_template());
    // Ten messages per invocation of 0.1 s, or of 0.5 s for an agent; a task of three steps is four messages.
    assert_row(
        "submission: instances; submissions a second",
        at_once(&steward, "Submission").map(|n| format!("{n}; {}", written(n * 100))),
    );
    assert_row("events", at_once(&steward, "Events").map(written));
    let scheduler = at_once(&steward, "Scheduler");
    assert_row(
        "scheduler: instances; messages a second; tasks of three steps",
        scheduler.map(|n| format!("{n}; {}; {}", written(n * 100), written(n * 25))),
    );
    assert_row("scheduler, commands", at_once(&steward, "Commands").map(written));
    assert_row("supervisor's ticks", [u64::from(POLLERS_WITHOUT_MAXIMUM); 3].map(written));
    assert_row(
        "an agent: instances; calls a second",
        at_once(&agent, "Agent").map(|n| format!("{n}; {}", written(n * 20))),
    );
    assert_row("calls in flight to one service", at_once(&agent, "Calls").map(written));
    let (own, one) = (sum(&steward), sum(&agent));
    let all = std::array::from_fn(|size| {
        let agents = AGENTS * one[size];
        format!("{} + {} = {}", own[size], agents, written(own[size] + agents))
    });
    assert_row("all, with eight agents", all);
    // And the supervisor's schedule.
    let [smallest, ..] = own;
    let with_one = format!("{smallest} + {} + 1 = {} at once", one[0], smallest + one[0] + 1);
    assert!(PAGE.replace('\n', " ").contains(&with_one), "{with_one}");
}
