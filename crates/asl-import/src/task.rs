//! `Task` and `Map`: the states that become steps with work.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    cel::{Cel, Precedence},
    error::ImportError,
    importer::{Importer, Point, input_path},
    jsonata, jsonpath,
    machine::{Machine, State, StateKind},
    names,
    recovery::{self, POLLS_S, STEP_MAX, duration},
    report::Level,
    resource::{self, AgentKind, Call, Completion, Job, ResultShape, Work},
    scope::{ContextParts, Item, Scope},
    source::child,
    symbol::{Symbol, Untranslatable},
};

/// How long an attempt may take if the state has no `TimeoutSeconds`: time for the queue, and for the longest call.
const DEFAULT_WITHIN: &str = "2m";

/// Seconds of the longest call of an agent.
const CALL_MAX_S: f64 = steward_core::limits::CALL_WITHIN_MAX.as_secs() as f64;

/// Items that an inline `Map` without `MaxConcurrency` runs at once (Step Functions).
const DEFAULT_CONCURRENCY: u64 = 40;

impl Importer<'_, '_> {
    pub(crate) fn task(&mut self, state: &State<'_>, point: &Point) -> Point {
        let mut scope = self.task_scope(state, point);
        // Only the request of a step knows when the step has started.
        let (place, start) = (["State", "EnteredTime"], Symbol::path("step.started_at"));
        let context = scope.context.with(&place.map(str::to_owned), start);
        let input = self.effective_input(state, &mut Scope { context, ..scope.clone() });
        if !state.is_jsonata {
            input_path(state, &mut scope);
        }
        let (mut name, mut shape) = self.task_step(state, point, &input, Map::new());
        if let Some(job) = resource::job(state.text("Resource").unwrap_or_default()) {
            name = self.job_end(state, point, (&input, &name), job);
            shape = job.shape;
        }
        let result = shape.of(Symbol::path(&format!("steps.{name}.output")));
        self.finish(state, point, scope, result, BTreeSet::from([name]))
    }

    /// Adds the step that polls the job which another step has started with these parameters.
    fn job_end(
        &mut self,
        state: &State<'_>,
        point: &Point,
        (parameters, start): (&Symbol, &str),
        job: &Job,
    ) -> String {
        let at = &state.pointer;
        let agent = self.agent("aws", &AgentKind::Aws(job.poll.to_owned()));
        let body = self.render(at, at, &job.poll_input(parameters, start));
        let is = format!("response.body.{}", job.state);
        let failed: Vec<_> = job.failed.iter().map(|state| format!("'{state}'")).collect();
        let limit = self.seconds(state, "TimeoutSeconds").or(self.timeout_s);
        let limit = duration(limit.unwrap_or(POLLS_S).min(STEP_MAX.as_secs_f64()));
        let mut keys = Map::new();
        keys.insert("agent".to_owned(), json!(agent));
        let path = job.path.map(|path| ("path", json!(path)));
        let request = [("aws", json!(job.poll)), ("body", body)].into_iter().chain(path);
        keys.insert("request".to_owned(), request.collect());
        let done = format!("{is} == '{}'", job.done);
        let (condition, fail) = match job.fails_if {
            Some(fails) => (format!("{done} && !{fails}"), format!("{done} && {fails}")),
            None => (done, format!("{is} in [{}]", failed.join(", "))),
        };
        let until = json!({
            "condition": format!("${{ {condition} }}"),
            "fail": format!("${{ {fail} }}"),
            "every": "30s",
        });
        keys.insert("until".to_owned(), until);
        keys.insert("recovery".to_owned(), json!({ "give_up_after": limit }));
        if let Some(result) = job.result {
            keys.insert("output".to_owned(), json!(format!("${{ response.body.{result} }}")));
        }
        let point = Point { after: BTreeSet::from([start.to_owned()]), ..point.clone() };
        let name = format!("{}_end", state.name);
        let name = self.add_step(state, &name, &point, keys, None);
        let message = format!(
            "step `{name}`: polls `{}` until the job has ended, for at most {limit}",
            job.poll
        );
        self.report(Level::Translated, at, at, message);
        // The handler runs in its place.
        if !state.list("Catch").is_empty()
            && let Some(step) = self.draft.steps.get_mut(&name)
        {
            let started = format!("!steps.{start}.failed");
            let when = step.keys.get("when").and_then(Value::as_str);
            let when = when.and_then(|when| when.strip_prefix("${ ")?.strip_suffix(" }"));
            let when = when.map_or(started.clone(), |when| format!("{started} && ({when})"));
            step.keys.insert("when".to_owned(), json!(format!("${{ {when} }}")));
        }
        for key in ["Retry", "Catch"] {
            if !state.list(key).is_empty() {
                let message = format!(
                    "it applies to the step `{start}`, which starts the job; a job that has failed fails the step `{name}`, and is not started again"
                );
                self.report(Level::Decision, &state.at(key), at, message);
            }
        }
        name
    }

    fn task_scope(&self, state: &State<'_>, point: &Point) -> Scope {
        let completion = resource::completion(state.text("Resource").unwrap_or_default());
        self.scope(state, point, completion == Completion::Token)
    }

    /// Adds the step of a task, with more keys if it is that of a `Map`. Returns its name and the shape of its result.
    fn task_step(
        &mut self,
        state: &State<'_>,
        point: &Point,
        input: &Symbol,
        mut keys: Map<String, Value>,
    ) -> (String, ResultShape) {
        let text = state.text("Resource").unwrap_or_default();
        let completion = resource::completion(text);
        let work = resource::work(text, input, &self.shared.options.region);
        if state.get("Credentials").is_some() {
            let message =
                "an agent has one role: give the agent a role that may call the other account";
            self.report(Level::Decision, &state.at("Credentials"), &state.pointer, message);
        }
        match work {
            Ok(Work::Call(call)) => self.call_step(state, point, *call, completion, keys),
            Ok(Work::Child { workflow, input, result, decisions, notes }) => {
                let input = self.render(&state.pointer, &state.pointer, &input);
                keys.insert("workflow".to_owned(), json!({ "name": workflow, "input": input }));
                self.child_keys(state, &mut keys);
                let name = self.add_step(state, state.name, point, keys, None);
                let message = format!("step `{name}`: a child task of the workflow `{workflow}`");
                self.messages(state, message, notes, decisions);
                (name, result)
            }
            Err(Untranslatable { original, reason, .. }) => {
                let work = json!({ "agent": "unknown", "request": { "path": "/" } });
                keys.extend(work.as_object().cloned().unwrap_or_default());
                let name = self.add_step(state, state.name, point, keys, None);
                let message = format!("`{original}`: {reason}");
                self.report(Level::Cannot, &state.at("Resource"), &state.pointer, message);
                (name, ResultShape::Output)
            }
        }
    }

    fn messages(
        &mut self,
        state: &State<'_>,
        translated: String,
        notes: Vec<String>,
        decisions: Vec<String>,
    ) {
        self.report(Level::Translated, &state.pointer, &state.pointer, translated);
        for note in notes {
            self.report(Level::Note, &state.pointer, &state.pointer, note);
        }
        for decision in decisions {
            self.report(Level::Decision, &state.pointer, &state.pointer, decision);
        }
    }

    fn call_step(
        &mut self,
        state: &State<'_>,
        point: &Point,
        mut call: Call,
        completion: Completion,
        mut keys: Map<String, Value>,
    ) -> (String, ResultShape) {
        let job = resource::job(state.text("Resource").unwrap_or_default());
        let completion = if job.is_some() { Completion::Response } else { completion };
        if completion == Completion::Job {
            let input = call.body.take().unwrap_or_else(|| Symbol::object([]));
            call.body = Some(Symbol::object([
                ("parameters".to_owned(), input),
                ("callback_token".to_owned(), Symbol::path("callback.token")),
            ]));
        }
        let agent = self.agent(&call.agent, &call.kind);
        keys.insert("agent".to_owned(), json!(agent));
        let request = self.request(state, &call);
        keys.insert("request".to_owned(), request);
        if job.is_some() {
            keys.insert("complete_within".to_owned(), json!(DEFAULT_WITHIN));
        } else if completion == Completion::Response {
            self.deadline(state, &mut keys);
            if let Some(output) = call.output.take() {
                keys.insert("output".to_owned(), output);
            }
        } else {
            call.result = ResultShape::Output;
            self.callback(state, completion, &mut keys);
        }
        self.recovery(state, &call.kind, &mut keys);
        let kind = call.kind.clone();
        let key = |key: &str| keys.get("request")?.get(key)?.as_str();
        let called = match key("aws") {
            Some(action) => action.to_owned(),
            None => format!("{} {}", call.method, key("path").unwrap_or_default()),
        };
        let shape = call.result;
        let name = self.add_step(state, state.name, point, keys, Some(kind));
        let message = format!("step `{name}`: agent `{agent}`, {called}");
        self.messages(state, message, call.notes, call.decisions);
        (name, shape)
    }

    /// The `request` of a call.
    pub(crate) fn request(&mut self, state: &State<'_>, call: &Call) -> Value {
        let mut request = Map::new();
        if call.method != "POST" {
            request.insert("method".to_owned(), json!(call.method));
        }
        let at = &state.pointer;
        // A constant path may be a template already.
        let (key, called) = match (&call.kind, &call.path) {
            (AgentKind::Aws(action), _) => ("aws", json!(action)),
            (_, Symbol::Scalar(path)) => ("path", path.clone()),
            (_, path) => ("path", self.render(at, at, path)),
        };
        request.insert(key.to_owned(), called);
        if let (AgentKind::Aws(_), Symbol::Scalar(path)) = (&call.kind, &call.path)
            && path != "/"
        {
            request.insert("path".to_owned(), path.clone());
        }
        if let Some(body) = &call.body {
            let at = if state.is_jsonata { "Arguments" } else { "Parameters" };
            let at = if state.get(at).is_some() { state.at(at) } else { state.pointer.clone() };
            let body = self.render(&at, &state.pointer, body);
            request.insert("body".to_owned(), body);
        }
        Value::Object(request)
    }

    /// A number of seconds that is a constant.
    fn seconds(&mut self, state: &State<'_>, key: &str) -> Option<f64> {
        let path = format!("{key}Path");
        if state.get(&path).is_some() {
            let message = "deadlines are constants, so that `check` can compare them";
            self.report(Level::Decision, &state.at(&path), &state.pointer, message);
        }
        let value = state.get(key)?;
        let seconds = value.as_f64();
        if seconds.is_none() {
            let message = "deadlines are constants, so that `check` can compare them";
            self.report(Level::Decision, &state.at(key), &state.pointer, message);
        }
        seconds
    }

    fn deadline(&mut self, state: &State<'_>, keys: &mut Map<String, Value>) {
        let heartbeat = state.get("HeartbeatSeconds").or(state.get("HeartbeatSecondsPath"));
        if heartbeat.is_some() {
            let message =
                "only a step with a `callback` has heartbeats; the deadline of the attempt remains";
            self.report(Level::Decision, &state.at("HeartbeatSeconds"), &state.pointer, message);
        }
        match self.seconds(state, "TimeoutSeconds") {
            Some(seconds) => {
                keys.insert("complete_within".to_owned(), json!(duration(seconds)));
                let at = state.at("TimeoutSeconds");
                let message = format!("`complete_within: {}`", duration(seconds));
                self.report(Level::Translated, &at, &state.pointer, message);
                if seconds > CALL_MAX_S {
                    let message = format!(
                        "the agent cuts a call after {CALL_MAX_S}s; if the service may take longer, let the call start the work, \
                         and complete the step with a `callback`"
                    );
                    self.report(Level::Decision, &at, &state.pointer, message);
                }
            }
            None => {
                keys.insert("complete_within".to_owned(), json!(DEFAULT_WITHIN));
                self.report(
                    Level::Note,
                    &state.pointer,
                    &state.pointer,
                    format!(
                        "no `TimeoutSeconds`: an attempt has {DEFAULT_WITHIN}, and a call at most {CALL_MAX_S}s; a service that takes \
                         longer needs a `callback`"
                    ),
                );
            }
        }
    }

    fn callback(
        &mut self,
        state: &State<'_>,
        completion: Completion,
        keys: &mut Map<String, Value>,
    ) {
        let max = STEP_MAX.as_secs_f64();
        let timeout = self.seconds(state, "TimeoutSeconds");
        let within = timeout.or(self.timeout_s).unwrap_or(max).min(max);
        let mut callback = Map::new();
        callback.insert("within".to_owned(), json!(duration(within)));
        if let Some(heartbeat) = self.seconds(state, "HeartbeatSeconds") {
            callback.insert("heartbeat".to_owned(), json!(duration(heartbeat.min(within))));
        }
        keys.insert("callback".to_owned(), Value::Object(callback));
        match timeout {
            Some(seconds) if seconds > max => {
                let message = "a callback is awaited for at most 30 days";
                self.report(Level::Decision, &state.at("TimeoutSeconds"), &state.pointer, message);
            }
            Some(_) => {}
            None => {
                let within = duration(within);
                let is_open = completion == Completion::Token
                    && self.timeout_s.is_none()
                    && state.get("TimeoutSecondsPath").is_none()
                    && state.get("HeartbeatSeconds").is_none();
                let level = if is_open { Level::Decision } else { Level::Note };
                let message = format!(
                    "no `TimeoutSeconds`: the callback is awaited for {within}; set how long the task may wait for an answer"
                );
                self.report(level, &state.pointer, &state.pointer, message);
            }
        }
    }

    fn recovery(&mut self, state: &State<'_>, kind: &AgentKind, keys: &mut Map<String, Value>) {
        let recovery = recovery::recovery(state);
        let at = state.at("Retry");
        if recovery.retries_errors {
            if let AgentKind::Lambda(_) = kind {
                keys.insert("responses".to_owned(), json!({ "500": "retry" }));
                let message = "an error that the function throws is retried by the agent, with its own pauses, until the attempt's \
                               deadline; then `recovery` counts one attempt";
                self.report(Level::Note, &at, &state.pointer, message);
            } else {
                let message =
                    "a permanent failure, such as 400, is not retried; `responses` can change that";
                self.report(Level::Note, &at, &state.pointer, message);
            }
        }
        for (at, note) in recovery.notes {
            self.report(Level::Note, &at, &state.pointer, note);
        }
        for (at, decision) in recovery.decisions {
            self.report(Level::Decision, &at, &state.pointer, decision);
        }
        if state.get("Retry").is_some() {
            let attempts = recovery.keys.get("attempts").cloned().unwrap_or_default();
            let message = format!("`recovery` with {attempts} attempts");
            self.report(Level::Translated, &at, &state.pointer, message);
        }
        keys.insert("recovery".to_owned(), Value::Object(recovery.keys));
    }

    /// The keys of a step with a child task.
    fn child_keys(&mut self, state: &State<'_>, keys: &mut Map<String, Value>) {
        let max = STEP_MAX.as_secs_f64();
        let within = self.seconds(state, "TimeoutSeconds").unwrap_or(max).min(max);
        keys.insert("complete_within".to_owned(), json!(duration(within)));
        keys.insert("recovery".to_owned(), json!({ "attempts": 1 }));
        if !state.list("Retry").is_empty() {
            let message =
                "a child task that has failed is not started again; its steps have `recovery`";
            self.report(Level::Decision, &state.at("Retry"), &state.pointer, message);
        }
    }

    pub(crate) fn map(&mut self, state: &State<'_>, point: &Point) -> Result<Point, ImportError> {
        let mut scope = self.scope(state, point, false);
        if !state.is_jsonata {
            input_path(state, &mut scope);
        }
        let key = if state.get("ItemProcessor").is_some() { "ItemProcessor" } else { "Iterator" };
        let Some(processor) = state.get(key) else {
            return Err(self.error(&state.pointer, "a `Map` needs an `ItemProcessor`"));
        };
        let keys = self.for_each(state, &scope);
        let pointer = state.at(key);
        let inner = Machine::read(processor, &pointer, state.is_jsonata)
            .map_err(|(at, message)| self.error(&at, &message))?;
        let single = inner.states.values().next().filter(|task| {
            inner.states.len() == 1 && task.kind == StateKind::Task && is_simple(task)
        });
        let item = Symbol::path("item");
        let (name, result) = match single {
            Some(task) => {
                let selected = self.selected(state, &scope, &item);
                self.single_task(task, point, selected, keys)
            }
            None => self.child_workflow(
                state,
                point,
                &scope,
                (processor, &pointer),
                inner.is_jsonata,
                keys,
            )?,
        };
        self.step_of.entry(state.pointer.clone()).or_insert_with(|| name.clone());
        Ok(self.finish(state, point, scope, result, BTreeSet::from([name])))
    }

    /// The keys `for_each` of a `Map`.
    fn for_each(&mut self, state: &State<'_>, scope: &Scope) -> Map<String, Value> {
        let at = &state.pointer;
        for key in ["ItemReader", "ItemBatcher", "ResultWriter"] {
            if state.get(key).is_some() {
                let message = "`for_each` takes a list from the input or from an output, of at most 10,000 items";
                self.report(Level::Cannot, &state.at(key), at, message);
            }
        }
        let tolerated = [
            "ToleratedFailurePercentage",
            "ToleratedFailureCount",
            "ToleratedFailurePercentagePath",
            "ToleratedFailureCountPath",
        ];
        for key in tolerated
            .into_iter()
            .filter(|key| state.get(key).is_some_and(|value| *value != json!(0)))
        {
            let message = "a step fails if one item fails; map the failures that are tolerable to `completed` with `responses`";
            self.report(Level::Decision, &state.at(key), at, message);
        }
        if !state.list("Retry").is_empty() {
            let message =
                "all items are tried again after a failure; `recovery` tries them again one by one";
            self.report(Level::Decision, &state.at("Retry"), at, message);
        }
        let items = match (state.get("Items"), state.text("ItemsPath")) {
            (Some(items), _) if state.is_jsonata => jsonata::payload(scope, items),
            (_, Some(path)) => jsonpath::path(scope, path),
            (_, None) => scope.data.clone(),
        };
        let key = if state.is_jsonata { "Items" } else { "ItemsPath" };
        let items_at = if state.get(key).is_some() { state.at(key) } else { at.clone() };
        let items = self.cel(&items_at, at, &items);
        let at_once = match state.get("MaxConcurrency").or(state.get("MaxConcurrencyPath")) {
            None => DEFAULT_CONCURRENCY,
            Some(value) => match value.as_u64() {
                Some(0) => DEFAULT_CONCURRENCY,
                Some(count) if count <= u64::from(steward_core::limits::ITEMS_AT_ONCE_MAX) => count,
                Some(_) => {
                    let message = "at most 100 items run at once";
                    self.report(Level::Note, &state.at("MaxConcurrency"), at, message);
                    100
                }
                None => {
                    let message = "`at_once` is a constant";
                    self.report(Level::Decision, &state.at("MaxConcurrency"), at, message);
                    DEFAULT_CONCURRENCY
                }
            },
        };
        let each = json!({ "items": format!("${{ {} }}", items.text), "at_once": at_once });
        [("for_each".to_owned(), each)].into_iter().collect()
    }

    /// The input of an item: `ItemSelector`, or the item.
    fn selected(&self, state: &State<'_>, scope: &Scope, item: &Symbol) -> Symbol {
        let selector = state.get("ItemSelector").or(state.get("Parameters"));
        let Some(selector) = selector else { return item.clone() };
        let context = ContextParts { item: Some(Item::of_step()), ..self.context.clone() };
        let scope = Scope { context: context.object(state.name, false), ..scope.clone() };
        match state.is_jsonata {
            true => jsonata::payload(&scope, selector),
            false => jsonpath::payload(&scope, selector),
        }
    }

    /// A `Map` of one task: the step itself has `for_each`. Returns its name and the result of the `Map`.
    fn single_task(
        &mut self,
        task: &State<'_>,
        point: &Point,
        item: Symbol,
        keys: Map<String, Value>,
    ) -> (String, Symbol) {
        let inner = Point { data: item, ..point.clone() };
        let outer = self.context.item.replace(Item::of_step());
        let mut scope = self.task_scope(task, &inner);
        let input = self.effective_input(task, &mut scope);
        let (name, shape) = self.task_step(task, &inner, &input, keys);
        let output = format!("steps.{name}.output");
        let each =
            self.finish(task, &inner, scope, shape.of(Symbol::path("each")), BTreeSet::new());
        self.context.item = outer;
        let result = match each.data.cel() {
            Ok(each) if each.is_text("each") => Symbol::path(&output),
            Ok(each) => {
                let list = Cel::member(output).within(Precedence::Member);
                Cel::member(format!("{list}.map(each, {})", each.text)).into()
            }
            Err(why) => Symbol::Unknown(why),
        };
        (name, result)
    }

    /// A `Map` of several states: a child task for each item.
    fn child_workflow(
        &mut self,
        state: &State<'_>,
        point: &Point,
        scope: &Scope,
        (processor, pointer): (&Value, &str),
        is_jsonata: bool,
        mut keys: Map<String, Value>,
    ) -> Result<(String, Symbol), ImportError> {
        let name = format!("{}-{}", self.draft.name, state.name);
        let workflow = names::unique(&name, "-", &mut self.shared.workflow_names);
        let text = processor.to_string();
        let used: Vec<_> = point
            .variables
            .iter()
            .filter(|(name, _)| text.contains(&format!("${name}")))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let item = self.selected(state, scope, &Symbol::path("item"));
        let input = Symbol::path("input");
        let (sent, data, variables) = match used.is_empty() {
            true => (item, input.clone(), vec![]),
            false => {
                let of_child = input.field("variables");
                let names = used.iter().map(|(name, _)| (name.clone(), of_child.field(name)));
                let names = names.collect::<Vec<_>>();
                let variables = Symbol::object(used);
                let sent = Symbol::object([
                    ("item".to_owned(), item),
                    ("variables".to_owned(), variables),
                ]);
                (sent, input.field("item"), names)
            }
        };
        let has_selector = state.get("ItemSelector").or(state.get("Parameters")).is_some();
        let item = (!has_selector).then(|| Item::of_child(data.clone()));
        let start = Point {
            condition: crate::condition::Condition::Always,
            after: BTreeSet::new(),
            data,
            variables: variables.into_iter().collect(),
        };
        let context = ContextParts { input: None, item };
        let draft = Importer::new(&mut *self.shared, workflow.clone(), context)
            .definition(processor, pointer, is_jsonata, start)?;
        self.shared.children.push(draft);
        let sent = self.render(&child(&state.pointer, "ItemSelector"), &state.pointer, &sent);
        keys.insert("workflow".to_owned(), json!({ "name": workflow, "input": sent }));
        keys.insert("complete_within".to_owned(), json!(duration(STEP_MAX.as_secs_f64())));
        keys.insert("recovery".to_owned(), json!({ "attempts": 1 }));
        let step = self.add_step(state, state.name, point, keys, None);
        let message =
            format!("step `{step}`: a child task of the workflow `{workflow}` for each item");
        self.report(Level::Translated, &state.pointer, &state.pointer, message);
        let output = Symbol::path(&format!("steps.{step}.output"));
        Ok((step, output))
    }
}

/// Whether the result of the task does not depend on its input beyond its request, so that `for_each` of one step can say it.
fn is_simple(task: &State<'_>) -> bool {
    let whole = task.get("ResultPath").is_none_or(|path| path == "$");
    let reads_input =
        |key: &str| task.get(key).is_some_and(|value| value.to_string().contains("$states.input"));
    let is_job = resource::job(task.text("Resource").unwrap_or_default()).is_some();
    !is_job
        && whole
        && !reads_input("Output")
        && task.get("Assign").is_none()
        && task.list("Catch").is_empty()
}
