//! The cost of an idle month, `steward_forecast::cost::idle_month`, has the counts of the templates, and
//! `docs/operations/cost.md` has its figures.

use serde_json::Value;
use steward_forecast::cost::{
    idle_month::{ALARMS, IdleMonth, POLLERS, POLLERS_WITHOUT_MAXIMUM, QUEUES, TICKS},
    prices::Prices,
};

use super::{agent_template, all, operations, template};

/// The section of the page.
fn section() -> &'static str {
    let page = include_str!("../../docs/operations/cost.md");
    page.split_once("\n## An idle month\n").unwrap().1
}

/// Types of resources that cost nothing while nothing happens, or whose requests are counted here.
const FREE: [&str; 19] = [
    "AWS::DynamoDB::Table",
    "AWS::Events::EventBus",
    "AWS::IAM::Role",
    "AWS::Lambda::Permission",
    "AWS::Lambda::Url",
    "AWS::Logs::LogGroup",
    "AWS::Logs::MetricFilter",
    "AWS::S3::Bucket",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::Subscription",
    "AWS::SNS::Topic",
    "AWS::SNS::TopicPolicy",
    "AWS::SQS::Queue",
    "AWS::SQS::QueuePolicy",
    "AWS::Serverless::Application",
    "AWS::Serverless::Function",
    "Custom::StewardAgent",
    "AWS::CloudWatch::Alarm",
    "AWS::Lambda::EventInvokeConfig",
];

/// Conditions that are false by default. Others are not: what depends on `TlsOnly` is in a default deployment.
const FALSE_BY_DEFAULT: [&str; 3] = ["HasCallbacks", "HasDashboard", "HasWebhooks"];

/// The pollers of the queues that the functions of a template read.
fn pollers(template: &Value) -> u32 {
    let functions = all(template, "AWS::Serverless::Function");
    let events =
        functions.flat_map(|(_, function)| function["Events"].as_object().into_iter().flatten());
    let sources = events.filter(|(_, event)| event["Type"] == "SQS");
    let pollers = sources.map(|(_, event)| {
        let has_maximum = event["Properties"]["ScalingConfig"].is_object();
        if has_maximum { POLLERS } else { POLLERS_WITHOUT_MAXIMUM }
    });
    pollers.sum()
}

/// The queues with a dead-letter queue. The supervisor counts the messages of both.
fn counted_queues(template: &Value) -> u32 {
    let queues = all(template, "AWS::SQS::Queue");
    queues.filter(|(_, queue)| !queue["RedrivePolicy"].is_null()).map(|_| 1).sum()
}

#[test]
fn the_idle_month_has_the_pollers_queues_and_alarms_of_the_templates() {
    let (template, agent, operations) = (template(), agent_template(), operations());
    assert_eq!(pollers(&template), QUEUES * POLLERS + POLLERS_WITHOUT_MAXIMUM);
    assert_eq!(pollers(&agent), POLLERS);
    assert_eq!((counted_queues(&template), counted_queues(&agent)), (QUEUES, 1));
    assert_eq!(
        60 / template["Parameters"]["SweepEvery"]["Default"].as_u64().unwrap() - 1,
        u64::from(TICKS)
    );
    let alarms = operations["Resources"].as_object().unwrap().values().filter(|resource| {
        resource["Type"] == "AWS::CloudWatch::Alarm" && resource["Condition"].is_null()
    });
    // An alarm with metric math costs as much for each of its metrics.
    let metrics = alarms.map(|alarm| u32::from(alarm["Properties"]["MetricName"].is_string()));
    assert_eq!(metrics.clone().filter(|metrics| *metrics == 1).count(), metrics.clone().count());
    assert_eq!(metrics.sum::<u32>(), ALARMS);
}

/// Any other resource of a default deployment would cost something that the figures lack.
#[test]
fn nothing_else_in_the_templates_costs_while_idle() {
    for template in [template(), agent_template(), operations()] {
        for (name, resource) in template["Resources"].as_object().unwrap() {
            let kind = resource["Type"].as_str().unwrap();
            let condition = resource["Condition"].as_str();
            let is_optional = condition.is_some_and(|name| FALSE_BY_DEFAULT.contains(&name));
            let is_free = FREE.contains(&kind) || is_optional;
            assert!(is_free, "{name}: what does {kind} cost in an idle month?");
        }
    }
}

#[test]
fn the_page_has_the_figures_of_the_idle_month() {
    let prices = Prices::listed().unwrap();
    let [one, eight] = [1, 8].map(|agents| IdleMonth::of(&prices, agents));
    let row = |what: &str, of_one: f64, of_eight: f64| {
        let cells = format!("| {of_one:.2} | {of_eight:.2} |");
        let bold = format!("| **{of_one:.2}** | **{of_eight:.2}** |");
        let row = section().lines().find(|line| line.starts_with(&format!("| {what} |")));
        let row = row.unwrap_or_else(|| panic!("no row {what}"));
        assert!(row.ends_with(&cells) || row.ends_with(&bold), "{row}: not {cells}");
    };
    for (part, of_eight) in one.parts.iter().zip(&eight.parts) {
        row(part.what, part.dollars, of_eight.dollars);
    }
    row("all", one.dollars, eight.dollars);
}
