//! A step that polls: it calls its service until the response says that something has happened.
//!
//! ```text
//! until: { condition: "${ response.body.state == 'done' }", every: 30s, fail: "${ response.body.state == 'failed' }" }
//! ```
//!
//! It is a short form of [cases](crate::model::responses::ResponseCase) of the statuses of success. A poll that is not the last
//! one is a deferral: it costs no attempt, and `recovery.give_up_after` limits all of them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    definition::duration,
    expression::template::Template,
    model::responses::{ResponseCase, ResponseClass, ResponseOverrides, StatusMeaning},
};

/// The statuses of a response that says whether it has happened.
const STATUSES: [u16; 3] = [200, 201, 202];

/// The time that an attempt needs with its way through the queue.
const SHORTEST_ATTEMPT: Duration = Duration::from_secs(10);

/// When a step that polls ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Until {
    /// The step completes with the first response for which this expression over `response` is true.
    #[schemars(with = "String")]
    pub condition: Template,
    /// The pause between two calls.
    #[serde(with = "duration")]
    #[schemars(with = "duration::Text")]
    pub every: Duration,
    /// The step fails with the first response for which this expression over `response` is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub fail: Option<Template>,
    /// The meaning of responses, with that of the step.
    #[serde(skip)]
    responses: ResponseOverrides,
}

impl Until {
    /// Adds the cases of the poll to the responses of its step.
    pub(super) fn compile(&mut self, of_step: &ResponseOverrides) {
        let case = |when: Option<&Template>, class| ResponseCase {
            when: when.cloned(),
            class,
            did_not_run: false,
            after: None,
            until: None,
        };
        let pause = Value::String(humantime::format_duration(self.every).to_string());
        let again = ResponseCase {
            did_not_run: true,
            after: Some(Template::parse(pause)),
            ..case(None, ResponseClass::Retry)
        };
        let fail = self.fail.as_ref().map(|fail| case(Some(fail), ResponseClass::Failed));
        let done = case(Some(&self.condition), ResponseClass::Completed);
        let cases: Vec<_> = fail.into_iter().chain([done, again]).collect();
        let meaning = StatusMeaning::Cases(cases);
        self.responses = of_step.clone().with(STATUSES.map(|status| (status, meaning.clone())));
    }

    /// The longest attempt. With more time than the pause, the agent would wait for the next poll, instead of the step.
    pub(super) fn longest_attempt(&self) -> Duration {
        self.every.max(SHORTEST_ATTEMPT)
    }

    /// The meaning of responses.
    pub(super) fn responses(&self) -> &ResponseOverrides {
        &self.responses
    }

    /// The statuses that it gives a meaning to, of those that the step has one for.
    pub(super) fn defined_twice(of_step: &ResponseOverrides) -> impl Iterator<Item = u16> {
        STATUSES.into_iter().filter(|status| of_step.contains(*status))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::{
        definition::workflow::Workflow,
        model::{attempt::Action, responses::ClassifiedResponse},
    };

    #[test]
    fn a_poll_goes_on_until_its_condition_or_its_failure() {
        let workflow = Workflow::read(json!({
            "name": "w", "version": 1, "steps": { "job": {
                "agent": "a", "request": { "method": "GET", "path": "/jobs/1" },
                "undo": { "request": { "path": "/cancel" } },
                "responses": { "404": "retry" }, "recovery": { "give_up_after": "2h" },
                "until": {
                    "condition": "${ response.body.state == 'done' }", "every": "30s",
                    "fail": "${ response.body.state == 'failed' }",
                },
            } },
        }));
        let workflow = workflow.unwrap();
        assert_eq!(workflow.problems(), []);
        let job = workflow.steps.values().next().unwrap().action(Action::Do).unwrap();
        assert_eq!(job.complete_within, Duration::from_secs(30));
        let undo = workflow.steps.values().next().unwrap().action(Action::Undo);
        assert_eq!(undo.map(|undo| undo.complete_within), Some(Duration::from_secs(60)));
        let meaning = |status: u16, body: Value| {
            let response = json!({ "status": status, "headers": {}, "body": body });
            let meaning = job.responses.meaning(status, &response, Timestamp::UNIX_EPOCH);
            (meaning.class, meaning.pause)
        };
        let again =
            (ClassifiedResponse::Retry { may_have_run: false }, Some(Duration::from_secs(30)));
        assert_eq!(meaning(200, json!({ "state": "running" })), again);
        assert_eq!(meaning(202, Value::Null), again);
        assert_eq!(meaning(200, json!({ "state": "done" })).0, ClassifiedResponse::Completed);
        assert_eq!(meaning(200, json!({ "state": "failed" })).0, ClassifiedResponse::Failed);
    }
}
