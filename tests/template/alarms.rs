//! The alarms of `infra/operations.yaml`: their metrics exist, `docs/operations/alarms.md` has a section and the same numbers for
//! each, and together they detect every failure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use steward_aws::queues;

use super::{agent_template, agents_of_users, all, operations, properties, template};

const PAGE: &str = include_str!("../../docs/operations/alarms.md");
const METRICS: &str = include_str!("../../crates/runtime/src/metrics.rs");

/// The header of the page's table of alarms. *Minutes* are those with data that an alarm needs.
const ALARMS: &str =
    "| alarm | name of the CloudWatch alarm, after `STACK-` | fires when | minutes | urgency |";

/// The name of an alarm without that of the stack, as in the page.
fn name_of(alarm: &Value) -> &str {
    alarm["AlarmName"].as_str().unwrap().strip_prefix("${Steward}-").unwrap()
}

/// The alarms by name.
fn alarms(operations: &Value) -> BTreeMap<&str, &Value> {
    let alarms = all(operations, "AWS::CloudWatch::Alarm");
    alarms.map(|(_, alarm)| (name_of(alarm), alarm)).collect()
}

/// The rows of the page's table with this header, without their marks.
fn rows(header: &str) -> Vec<Vec<String>> {
    let (_, table) = PAGE.split_once(header).unwrap_or_else(|| panic!("no table {header}"));
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// The text in the first backticks of a cell.
fn code(cell: &str) -> &str {
    cell.split('`').nth(1).unwrap_or_else(|| panic!("no code in {cell}"))
}

#[test]
fn every_alarm_uses_a_recorded_metric_and_links_to_its_instructions() {
    let operations = operations();
    for (name, alarm) in alarms(&operations) {
        let metric = alarm["MetricName"].as_str().unwrap();
        if alarm["Namespace"] == "Steward" {
            assert!(METRICS.contains(&format!("= \"{metric}\";")), "{name}: {metric}");
            let deployment = json!({ "Name": "deployment", "Value": "Steward" });
            assert_eq!(alarm["Dimensions"][0], deployment, "{name}");
        }
        let description = alarm["AlarmDescription"].as_str().unwrap();
        let (_, section) = description.split_once("docs/operations/alarms.md#alarm-").unwrap();
        assert_eq!(section, name, "the section has the alarm's name");
        let heading = format!("\n### Alarm: {}\n", section.replace('-', " "));
        assert!(PAGE.contains(&heading), "{name}: {heading}");
        assert_eq!(alarm["AlarmActions"], json!(["Topic"]), "{name}");
    }
    assert_eq!(
        all(&agent_template(), "AWS::CloudWatch::Alarm").count(),
        0,
        "see FailedInvocations"
    );
}

#[test]
fn the_page_has_a_row_and_a_section_for_each_alarm_and_no_others() {
    let operations = operations();
    let expected: BTreeSet<_> = alarms(&operations).into_keys().map(str::to_owned).collect();
    let sections = PAGE.lines().filter_map(|line| line.strip_prefix("### Alarm: "));
    assert_eq!(sections.map(|name| name.replace(' ', "-")).collect::<BTreeSet<_>>(), expected);
    let rows = rows(ALARMS);
    let names: Vec<_> = rows.iter().map(|row| code(&row[1]).to_owned()).collect();
    assert_eq!(names.len(), expected.len());
    assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected);
    for row in rows {
        let (link, name) = (&row[0], code(&row[1]));
        assert_eq!(*link, format!("[{}](#alarm-{name})", name.replace('-', " ")));
    }
}

/// An alarm on a counter returns to OK some minutes after the event. If it sent that, a pager would close the incident while the
/// task, the dead letter or the open breaker still waits for a person.
#[test]
fn only_problems_that_end_by_themselves_send_ok() {
    let operations = operations();
    let alarms = alarms(&operations);
    let sends_ok = alarms.iter().filter(|(_, alarm)| !alarm["OKActions"].is_null());
    let sends_ok: BTreeSet<_> = sends_ok.map(|(name, _)| name.replace('-', " ")).collect();
    let (_, section) = PAGE.split_once("### Which alarms return to OK\n").unwrap();
    let (sentence, _) = section.split_once("**").unwrap();
    let documented: BTreeSet<_> =
        sentence.split('*').skip(1).step_by(2).map(|name| name.replace('\n', " ")).collect();
    assert_eq!(sends_ok, documented);
    for name in ["tasks in error", "breaker opened", "dead letters", "function errors"] {
        assert!(!sends_ok.contains(name), "{name}");
    }
}

/// Three failures in half an hour: also those of one message that always crashes its function, which SQS delivers again after
/// the visibility timeout.
#[test]
fn a_single_failed_invocation_raises_no_alarm_and_a_message_that_always_crashes_does() {
    let operations = operations();
    let alarm = alarms(&operations)["function-errors"];
    let number = |name: &str| alarm[name].as_u64().unwrap();
    assert!(number("DatapointsToAlarm") > 2, "two can be chance");
    let visibility = queues::AGENT.visibility_seconds.max(queues::SCHEDULER.visibility_seconds);
    let needed = (number("DatapointsToAlarm") - 1) * u64::from(visibility) + number("Period");
    assert!(number("EvaluationPeriods") * number("Period") >= needed, "{needed} s");
}

/// So *tasks in error* fires for an undo that failed, too.
#[test]
fn a_failed_undo_is_counted_as_a_task_in_error() {
    let (_, saved) = METRICS.split_once("pub fn saved(").unwrap();
    let (_, error) = saved.split_once("counter!(TASKS_ENDED, ").unwrap();
    let (with_it, _) = error.split_once("\n    }\n").unwrap();
    assert!(with_it.contains("counter!(UNDOS_FAILED)"), "{with_it}");
    assert_eq!(METRICS.matches("counter!(UNDOS_FAILED)").count(), 1);
}

/// Each failure that the alarms of earlier releases detected one by one, and what they named it: queues, functions and tables
/// had alarms of their own. The second column is the alarm that detects it now.
const EARLIER_ALARMS: [(&str, &str); 17] = [
    ("tasks-in-error", "tasks-in-error"),
    ("undo-failed", "tasks-in-error"),
    ("breaker-opened", "breaker-opened"),
    ("supervisor-silent", "supervisor-silent"),
    ("messages-failed", "messages-failed"),
    ("QUEUE-queue-age", "queue-age"),
    ("QUEUE-queue-age of a queue that nothing reads", "queue-unread"),
    ("agent-NAME-queue-age", "queue-age"),
    ("QUEUE-dead-letters", "dead-letters"),
    ("agent-NAME-dead-letters", "dead-letters"),
    ("FUNCTION-errors", "function-errors"),
    ("agent-NAME-errors", "function-errors"),
    ("FUNCTION-throttles", "function-throttles"),
    ("FUNCTION-recursive-invocations-dropped", "recursive-invocations-dropped"),
    ("TABLE-reads-throttled, TABLE-writes-throttled", "tables-throttled"),
    ("index-INDEX-reads-throttled, index-INDEX-writes-throttled", "tables-throttled"),
    ("callbacks-forged", "callbacks-forged"),
];

#[test]
fn every_failure_that_was_detected_is_detected_in_the_documented_time() {
    let operations = operations();
    let alarms = alarms(&operations);
    for (earlier, now) in EARLIER_ALARMS {
        assert!(alarms.contains_key(now), "{earlier} was detected, and there is no {now}");
    }
    let rows = rows(ALARMS);
    let documented: BTreeSet<_> = rows.iter().map(|row| code(&row[1])).collect();
    assert_eq!(documented, alarms.keys().copied().collect());
    for row in &rows {
        let alarm = alarms[code(&row[1])];
        assert_eq!(alarm["Period"], 60, "{row:?}");
        let minutes = alarm["DatapointsToAlarm"].as_u64();
        let minutes = minutes.or_else(|| alarm["EvaluationPeriods"].as_u64()).unwrap();
        assert_eq!(row[3], minutes.to_string(), "{row:?}");
        assert!(minutes <= 5, "{row:?}");
    }
}

/// The filter counts what Lambda's metric `Errors` counts, for all functions in one metric.
#[test]
fn the_failed_invocations_of_every_function_and_agent_are_counted() {
    let operations = operations();
    let alarm = alarms(&operations)["function-errors"];
    let metric = [&alarm["Namespace"], &alarm["MetricName"]];
    let (template, agent) = (template(), agent_template());
    let logs = ["Submission", "SubmissionHttp", "Callback", "Scheduler", "Supervisor"];
    let expected: BTreeSet<_> = logs.map(|function| format!("{function}Logs")).into();
    let agents_of_users = agents_of_users();
    let agents = agents_of_users.iter().map(|(_, agent)| (agent, "Steward"));
    let mut counted = BTreeSet::new();
    for (template, stack) in
        [(&template, "AWS::StackName"), (&agent, "Steward")].into_iter().chain(agents)
    {
        assert!(all(template, "AWS::Logs::MetricFilter").count() > 0);
        for (name, filter) in all(template, "AWS::Logs::MetricFilter") {
            let to = &filter["MetricTransformations"][0];
            let namespace = to["MetricNamespace"].as_str().unwrap().replace(stack, "Steward");
            assert_eq!([&json!(namespace), &to["MetricName"]], metric, "{name}");
            assert_eq!(to["MetricValue"], "1", "{name}");
            let pattern = r#"{ ($.type = "platform.report") && ($.record.status != "success") }"#;
            assert_eq!(filter["FilterPattern"], pattern, "{name}");
            counted.insert(filter["LogGroupName"].as_str().unwrap().to_owned());
        }
        // Without JSON, Lambda writes lines that the filter does not understand.
        for (name, function) in all(template, "AWS::Serverless::Function") {
            assert_eq!(function["LoggingConfig"]["LogFormat"], "JSON", "{name}");
            assert!(function["LoggingConfig"]["SystemLogLevel"].is_null(), "{name}");
        }
    }
    assert!(counted.remove("AgentLogs"));
    assert!(counted.remove("Logs"));
    assert_eq!(counted, expected);
}

/// What an alarm calls late in the page is what the functions count.
#[test]
fn the_page_has_the_waits_that_are_too_long() {
    use steward_runtime::ports::Queue;
    let agent = Queue::Agent("a".parse().unwrap());
    for (name, queues) in [
        ("commands, events, agents", &[Queue::Commands, Queue::Events, agent][..]),
        ("submissions", &[Queue::Submissions]),
        ("scheduler", &[Queue::Scheduler]),
    ] {
        for queue in queues {
            let minutes = queues::late_after(queue).as_secs() / 60;
            assert!(PAGE.contains(&format!("\n  | {name} | {minutes} minutes |")), "{queue:?}");
        }
    }
}

#[test]
fn the_supervisor_may_count_the_messages_of_all_queues() {
    let template = template();
    let policy = &properties(&template, "SupervisorRole")["Policies"][0]["PolicyDocument"];
    let statements = policy["Statement"].as_array().unwrap().iter();
    let may = statements.filter(|statement| {
        let action = &statement["Action"];
        *action == "sqs:GetQueueAttributes"
            || action.as_array().is_some_and(|all| all.contains(&json!("sqs:GetQueueAttributes")))
    });
    let resources: BTreeSet<_> = may
        .flat_map(|statement| statement["Resource"].as_array().cloned().into_iter().flatten())
        .map(|resource| resource.as_str().unwrap().to_owned())
        .collect();
    let queues =
        all(&template, "AWS::SQS::Queue").filter(|(_, queue)| !queue["RedrivePolicy"].is_null());
    for (name, queue) in queues {
        let dead_letters = queue["RedrivePolicy"]["deadLetterTargetArn"].as_str().unwrap();
        assert!(resources.contains(&format!("{name}.Arn")), "{name}");
        assert!(resources.contains(dead_letters), "{dead_letters}");
    }
    for suffix in ["requests", "dead-letters"] {
        let of_agents = format!(":${{AWS::StackName}}-agent-*-{suffix}");
        assert!(resources.iter().any(|resource| resource.ends_with(&of_agents)), "{suffix}");
    }
}

#[test]
fn the_dashboard_is_an_option_and_shows_tables_and_indexes() {
    let (operations, template) = (operations(), template());
    assert_eq!(operations["Resources"]["Dashboard"]["Condition"], "HasDashboard");
    assert_eq!(operations["Parameters"]["CreateDashboard"]["Default"], "false");
    assert_eq!(template["Parameters"]["Dashboard"]["Default"], "false");
    let body = properties(&operations, "Dashboard")["DashboardBody"].as_str().unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    let widgets = body["widgets"].as_array().unwrap().iter();
    let metrics = widgets.flat_map(|widget| widget["properties"]["metrics"].as_array().unwrap());
    let metrics: Vec<_> = metrics.collect();
    for metric in metrics.iter().filter(|metric| metric[0] == "Steward") {
        let name = metric[1].as_str().unwrap();
        assert!(METRICS.contains(&format!("= \"{name}\";")), "{metric}");
    }
    let indexes = properties(&template, "TasksTable")["GlobalSecondaryIndexes"].as_array().unwrap();
    for index in indexes {
        for units in ["ConsumedReadCapacityUnits", "ConsumedWriteCapacityUnits"] {
            let shown = json!([
                "AWS/DynamoDB",
                units,
                "TableName",
                "${TasksTable}",
                "GlobalSecondaryIndexName",
                index["IndexName"],
            ]);
            assert!(metrics.contains(&&shown), "{shown}");
        }
    }
}
