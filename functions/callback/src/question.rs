//! A person answers a callback: the page that a browser gets for the URL, and the form that it sends back.
//!
//! ```text
//! GET  URL ──► a page with a form, and a token in it          nothing changes
//! POST URL ──► token missing, of another callback, too old: 403, the form again
//!          ├─► not confirmed, or an invalid answer: 400, the form again with what was entered
//!          └─► the answer is sent as that of a program
//! ```
//!
//! Programs that scan mails open links, and some send the forms that they find. So only a form from a page that was opened
//! in the last hour is accepted, and only with a tick that nothing sets by itself.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde_json::Value;
use steward_core::{
    definition::{plan::Plan, step::CallbackDefinition},
    engine::{
        awaited_callback::callback_from, callback_check::check_callback, documents::LoadedDocuments,
    },
    expression::uses::{PathKey, ValueKind, ValueUse},
    limits,
    model::{attempt::Action, messages::CallbackOutcome, names::CallbackToken, task::Task},
};
use steward_http::answer_form::AnswerForm;
use steward_runtime::ports::{Clock, Ports};

use crate::{
    answer::{failure, read_output},
    api::{ApiState, Body, PathToken, Refused, unreadable_body},
    keys::CallbackKeySource,
    page::{self, AnswerFields, QuestionPage},
    problem::{INVALID_ANSWER, TOO_LARGE, UNCONFIRMED_FORM},
};

/// The largest number of fields that are read of a form: those of the answer, and a few more.
const PAIRS_MAX: usize = limits::ANSWER_FIELDS_MAX + 10;

/// Whether the client wants a page rather than JSON. Programs that accept anything get what they always got.
pub(crate) fn prefers_html(headers: &HeaderMap) -> bool {
    let quality = |wanted: &str| {
        let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let ranges = values.flat_map(|value| value.split(','));
        let found = ranges.filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_wanted = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(wanted));
            let quality = parts.find_map(|part| part.strip_prefix("q="));
            is_wanted.then(|| quality.map_or(1.0, |quality| quality.parse().unwrap_or(0.0)))
        });
        found.fold(0.0_f32, f32::max)
    };
    quality("text/html") > quality("application/json")
}

/// Whether a browser sent a form, of whatever type. Programs send JSON, some of them under the type of a form, and with the `Accept`
/// of a browser.
pub(crate) fn is_form(headers: &HeaderMap, body: &[u8]) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    let is_json_type = kind.eq_ignore_ascii_case("application/json");
    let is_json = serde_json::from_slice::<IgnoredAny>(body).is_ok();
    !is_json_type && !is_json && prefers_html(headers)
}

/// Shows what a callback asks. Changes nothing.
pub(crate) async fn show<P: Ports, K: CallbackKeySource>(
    api: &ApiState<P, K>,
    token: PathToken,
) -> Response {
    let now = api.ports.clock().now();
    match Question::open(api, token, now).await {
        Ok(question) => question.page(api, &Entered::default(), None, now),
        Err(refused) => page::refusal(&refused),
    }
}

/// Sends the answer in a form. An answer that is not accepted gets the form again, with the reason.
pub(crate) async fn submit<P: Ports, K: CallbackKeySource>(
    api: &ApiState<P, K>,
    token: PathToken,
    body: Body,
) -> Response {
    let now = api.ports.clock().now();
    let question = match Question::open(api, token, now).await {
        Ok(question) => question,
        Err(refused) => return page::refusal(&refused),
    };
    let entered = match body {
        Ok(body) => Entered::read(&body),
        Err(rejection) => return page::refusal(&unreadable_body(&rejection)),
    };
    let outcome = question.outcome(api, &entered, now);
    match api.deliver(question.token.clone(), outcome, now).await {
        Ok(accepted) => page::accepted(&accepted),
        Err(Refused::Problem(problem, reason))
            if [INVALID_ANSWER, TOO_LARGE, UNCONFIRMED_FORM].contains(&problem) =>
        {
            question.page(api, &entered, Some((problem.status(), reason)), now)
        }
        Err(refused) => page::refusal(&refused),
    }
}

/// What a person entered, by the names of the fields.
#[derive(Default)]
struct Entered(BTreeMap<String, String>);

impl Entered {
    fn read(body: &[u8]) -> Self {
        Self(form_urlencoded::parse(body).into_owned().take(PAIRS_MAX).collect())
    }

    /// A value; empty if it is absent.
    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Whether the step is to fail.
    fn declines(&self) -> bool {
        self.get("outcome") == "fail"
    }
}

/// A callback, with its task and definition.
struct Question {
    token: CallbackToken,
    task: Task,
    plan: Option<Arc<Plan>>,
}

impl Question {
    async fn open<P: Ports, K: CallbackKeySource>(
        api: &ApiState<P, K>,
        token: PathToken,
        now: Timestamp,
    ) -> Result<Self, Refused> {
        let token = api.verified(token, now).await?;
        let task = api.task(&token).await?;
        let plan = api.plan(&task).await?;
        Ok(Self { token, task, plan })
    }

    fn callback(&self) -> Option<&CallbackDefinition> {
        self.plan.as_deref()?.find(&self.token.step.step)?.callback()
    }

    fn schema(&self) -> Option<&Value> {
        self.callback()?.answer.as_ref().map(|schema| schema.source())
    }

    fn fields<'a>(&self, entered: &'a Entered) -> AnswerFields<'a> {
        let Some(schema) = self.schema() else {
            return AnswerFields::Anything(entered.get("output"));
        };
        AnswerForm::new(schema, &entered.0)
            .map_or_else(|| AnswerFields::Json(entered.get("output")), AnswerFields::Form)
    }

    /// The outcome that a form asks for.
    fn outcome<P: Ports, K: CallbackKeySource>(
        &self,
        api: &ApiState<P, K>,
        entered: &Entered,
        now: Timestamp,
    ) -> Result<CallbackOutcome, Refused> {
        let keys = api.keys.urls().current();
        keys.keys().verify_form(entered.get("form_token"), &self.token, now).map_err(
            |refusal| {
                let reason = format!("{refusal}; check what you entered, and send it again");
                Refused::Problem(UNCONFIRMED_FORM, reason)
            },
        )?;
        let outcome = if entered.get("sure") != "yes" {
            Err("tick the box above the button".to_owned())
        } else if entered.declines() {
            failure(entered.get("reason")).map_err(|_| "enter a reason".to_owned())
        } else {
            match self.fields(entered) {
                AnswerFields::Form(form) => {
                    form.answer().map(|output| CallbackOutcome::Completed { output })
                }
                AnswerFields::Json(text) | AnswerFields::Anything(text) => {
                    read_output(text.as_bytes())
                }
            }
        };
        outcome.map_err(|reason| Refused::Problem(INVALID_ANSWER, reason))
    }

    /// The page with the form, if the step awaits an answer. `problem` is why the form was refused.
    fn page<P: Ports, K: CallbackKeySource>(
        &self,
        api: &ApiState<P, K>,
        entered: &Entered,
        problem: Option<(StatusCode, String)>,
        now: Timestamp,
    ) -> Response {
        let Self { token, task, .. } = self;
        if let Err(refusal) = check_callback(task, token, now) {
            return page::refusal(&(&refusal).into());
        }
        let (status, problem) = problem.unzip();
        let said = |key: &str, chars_max| {
            let text = self.schema().and_then(|schema| schema.get(key)).and_then(Value::as_str);
            text.map(|text| limits::short_line(text, chars_max))
        };
        let question = QuestionPage {
            title: said("title", limits::ANSWER_LABEL_CHARS_MAX)
                .unwrap_or_else(|| "Your answer is needed".to_owned()),
            text: said("description", limits::ANSWER_HELP_CHARS_MAX).unwrap_or_default(),
            workflow: &task.workflow,
            token,
            from: self.from(),
            until: self.until(),
            answer: self.fields(entered),
            form_token: api.keys.urls().current().keys().sign_form(token, now),
            problem,
            declined: entered.declines(),
            reason: entered.get("reason"),
        };
        page::respond(status.unwrap_or(StatusCode::OK), &question)
    }

    /// The deadline of the answer or of the next heartbeat, if the call of the step has ended.
    fn until(&self) -> Option<Timestamp> {
        let state = &self.task.progress(&self.token.step, Action::Do)?.state;
        state.awaiting_callback().and(state.reply_due_by())
    }

    /// Who is to answer, unless that reads the task's data: whoever has the URL may not read it, nor why it cannot be read.
    fn from(&self) -> Option<String> {
        let from = self.callback()?.from.as_ref()?;
        let reads_data = |of: &ValueUse| {
            let root = of.path.first();
            !matches!(root, Some(PathKey::Field(root)) if ["task", "env"].contains(&root.as_str()))
        };
        if from.value_uses(ValueKind::Text).iter().any(reads_data) {
            return None;
        }
        let without_data = Task { documents: Default::default(), ..self.task.clone() };
        let plan = self.plan.as_deref()?;
        callback_from(plan, &without_data, &LoadedDocuments::new(), &self.token.step).ok()?
    }
}
