//! The remote services, with the faults of real ones: slow, flaky, down for a while, refusing permanently, or taking
//! effect and answering with an error or not at all. They recognise a repeated call by its idempotency key.
//!
//! A call continues at its service, whether or not its caller still waits: it begins, may take effect, and ends.
//!
//! ```text
//! call ──► begins ─────────► takes effect ──────► ends        at most call_within after it began,
//!   │        │                                     │          if the service has quirks
//!   │        └─ repeated idempotency key: 409, or another execution without a new effect
//!   └────────── gateway timeout (504), broken connection, complete-by passes: the execution continues
//! ```

use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;
use steward_agent::attempt::{CallFault, RemoteService};
use steward_agent::response::CallResponse;
use steward_core::model::{attempt::Action, messages::StepRequest, names::AgentName};
use steward_runtime::{
    ports::{Ports, SharedRecordKey, SharedRecordKind, StateStore},
    trace,
};

use super::{
    deployment::{ScheduledEvent, SimulatedDeployment},
    fault_injector::FaultInjector,
    http::{self, ResponseBody, ServiceResponse},
    ledger::{self, ServiceCall},
    payload_values::Content,
    plan::{ServiceProfile, ServiceQuirks},
    random::{SeededRandom, is_chosen},
    task_record::describe,
    virtual_time::{Millis, SECOND, since_start},
};

/// How long a client waits for a response.
const CLIENT_TIMEOUT: Millis = 100 * SECOND;

/// The remote service of an agent, as one instance of the agent reaches it.
#[derive(Debug, Clone)]
pub(super) struct SimulatedService {
    injector: FaultInjector,
    agent: AgentName,
}

/// The planned execution of a call; times count from its start.
#[derive(Debug, Clone, Default)]
struct CallPlan {
    /// When the call takes effect, if it does.
    commits_after: Option<Millis>,
    ends_after: Millis,
    /// When its caller gets the response, if it does.
    responds_after: Option<Millis>,
    response: ServiceResponse,
    /// Whether the execution continues as planned when its caller disconnects.
    detached: bool,
}

impl SimulatedService {
    pub(super) fn new(injector: FaultInjector, agent: AgentName) -> Self {
        Self { injector, agent }
    }

    /// Draws the execution of a call.
    fn draw(&self, request: &StepRequest) -> CallPlan {
        let deployment = &self.injector.deployment;
        let no_faults = ServiceProfile { latency_max: 50, ..ServiceProfile::default() };
        let profile = deployment.plan.services.get(&self.agent).unwrap_or(&no_faults);
        let now = deployment.now();
        let state = &mut *deployment.state();
        let key = &request.idempotency_key;
        let is_unreachable = profile.unreachable.iter().any(|times| times.contains(&now));
        if state.faults_enabled && is_unreachable {
            let after = state.random.within(0..=50);
            return CallPlan::refused(after, ServiceResponse::NoConnection);
        }
        let conflicts = profile.quirks.as_ref().is_some_and(|quirks| quirks.conflicts);
        if conflicts && request.idempotent && state.ledger.is_in_progress(request, now) {
            let after = state.random.within(0..=50);
            return CallPlan::refused(after, ServiceResponse::Status(409));
        }
        let call_within = state.oracle.call_within(request);
        let mut call_plan =
            profile.draw_call_plan(request, state.faults_enabled, now, &mut state.random);
        if let Some(quirks) = &profile.quirks {
            quirks.apply(
                &mut call_plan,
                request,
                call_within,
                state.faults_enabled,
                &mut state.random,
            );
            let account = state.ledger.account(&request.task_id, &request.step);
            let has_nothing_to_undo =
                account.is_none_or(|account| !account.has_remaining_effect_at(&self.agent));
            if request.action == Action::Undo
                && has_nothing_to_undo
                && matches!(call_plan.response, ServiceResponse::Success(_))
                && is_chosen(key, "not found", 0.5)
            {
                call_plan.response = ServiceResponse::Status(404);
            }
        }
        // A service that takes effect later breaks its contract.
        call_plan.commits_after = call_plan.commits_after.map(|after| after.min(call_within));
        call_plan
    }
}

impl CallPlan {
    /// A response without any execution.
    fn refused(after: Millis, response: ServiceResponse) -> Self {
        let responds_after = Some(after);
        Self { ends_after: after, responds_after, response, ..Self::default() }
    }
}

impl ServiceProfile {
    fn draw_call_plan(
        &self,
        request: &StepRequest,
        faults_enabled: bool,
        now: Millis,
        random: &mut SeededRandom,
    ) -> CallPlan {
        let latency_max = if faults_enabled { self.latency_max } else { 50 };
        let half = 0..=latency_max / 2;
        let (until_effect, until_end) = (random.within(half.clone()), random.within(half));
        let refuse = match request.action {
            Action::Do => self.refuse,
            Action::Undo => self.refuse_undo,
        };
        let error = ServiceResponse::Status(503);
        let (effect, response) = if is_chosen(&request.idempotency_key, "refuse", refuse) {
            (false, Some(ServiceResponse::Status(422)))
        } else if faults_enabled && self.down.iter().any(|down| down.contains(&now)) {
            (false, random.pick(Some(error), &[None]))
        } else if faults_enabled && random.chance(self.fail) {
            (false, Some(error))
        } else if faults_enabled && random.chance(self.false_error) {
            (true, Some(error))
        } else if faults_enabled && random.chance(self.no_response) {
            (random.chance(0.5), None)
        } else {
            (true, Some(ServiceResponse::Success(ResponseBody::Output)))
        };
        let ends_after = until_effect + until_end;
        CallPlan {
            commits_after: effect.then_some(until_effect),
            ends_after,
            responds_after: response.is_some().then_some(ends_after),
            response: response.unwrap_or_default(),
            detached: false,
        }
    }
}

impl ServiceQuirks {
    /// Applies the quirks to a planned execution.
    fn apply(
        &self,
        call_plan: &mut CallPlan,
        request: &StepRequest,
        call_within: Millis,
        faults_enabled: bool,
        random: &mut SeededRandom,
    ) {
        let drawn = |what, share| is_chosen(&request.idempotency_key, what, share);
        if matches!(call_plan.response, ServiceResponse::Success(_))
            && call_plan.responds_after.is_some()
        {
            // The content of the response does not change when a call is repeated.
            if drawn("redirect", self.redirect) {
                call_plan.response =
                    ServiceResponse::Status(random.pick(302, &[301, 303, 307, 308]));
            } else if drawn("empty", self.empty) {
                call_plan.response = ServiceResponse::Success(ResponseBody::Empty);
            } else if drawn("not json", self.not_json) && request.action == Action::Do {
                call_plan.response = ServiceResponse::Success(ResponseBody::NotJson);
            }
        }
        if !faults_enabled {
            return;
        }
        if random.chance(self.slow) {
            // Sometimes exactly as long as a call may take.
            let longest =
                if random.chance(0.3) { call_within } else { random.within(0..=call_within) };
            let late = if random.chance(0.3) { longest } else { random.within(0..=longest) };
            call_plan.commits_after = call_plan.commits_after.map(|_| late);
            call_plan.ends_after = longest;
            call_plan.responds_after = call_plan.responds_after.map(|_| longest);
        }
        call_plan.detached = random.chance(0.8);
        if call_plan.responds_after.is_none() || !random.chance(self.disconnects) {
            return;
        }
        // A gateway between caller and service gives up, and the service does not notice.
        call_plan.detached = true;
        call_plan.responds_after = Some(random.within(0..=call_plan.ends_after));
        call_plan.response = random.pick(
            ServiceResponse::Broken,
            &[ServiceResponse::Status(504), ServiceResponse::Status(408)],
        );
        if random.chance(0.1) {
            *call_plan = CallPlan::refused(random.within(0..=50), ServiceResponse::NoConnection);
        }
    }
}

impl RemoteService for SimulatedService {
    async fn call(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
    ) -> Result<CallResponse, CallFault> {
        let deployment = &self.injector.deployment;
        let asked_at = deployment.now();
        let received = self.injector.open_payload(request).await?;
        let call_plan = self.draw(request);
        let traceparent = trace::of_call(request, traceparent);
        let now = deployment.time();
        {
            let oracle = &mut deployment.state().oracle;
            oracle.check_traceparent(request, &traceparent);
            oracle.check_rate(request, now);
        }
        if call_plan.response == ServiceResponse::NoConnection {
            deployment.fault(&format!("service-{}", self.agent), || "is not reached".to_owned());
            return http::answer(call_plan.response, &request.responses, None, None, 0);
        }
        let (commits_after, response) = (call_plan.commits_after, call_plan.response);
        let responds_after = call_plan.responds_after;
        let mut call = AwaitedCall::begin(self, request, (asked_at, received.as_ref()), call_plan);
        let effect_first =
            commits_after.filter(|after| responds_after.is_none_or(|by| *after <= by));
        let mut waited = 0;
        if let Some(after) = effect_first.filter(|after| *after <= CLIENT_TIMEOUT) {
            tokio::time::sleep(Duration::from_millis(after)).await;
            call.output = deployment.commit(call.number);
            waited = after;
        }
        let until = responds_after.unwrap_or(Millis::MAX).min(CLIENT_TIMEOUT);
        let in_time = responds_after.is_some_and(|after| after <= CLIENT_TIMEOUT);
        // Clients have a timeout only in runs whose services have quirks.
        let rest = if call.has_timeout || in_time { Some(until) } else { responds_after };
        match rest {
            Some(until) => {
                tokio::time::sleep(Duration::from_millis(until.saturating_sub(waited))).await;
            }
            None => std::future::pending().await,
        }
        call.is_over = true;
        let response =
            if in_time || !call.has_timeout { response } else { ServiceResponse::TimedOut };
        if response != ServiceResponse::Success(ResponseBody::Output) {
            let key = &request.idempotency_key;
            let effect = if commits_after.is_some() { "takes effect" } else { "has no effect" };
            deployment.fault(&format!("service-{}", self.agent), || {
                format!("{key} {effect}; response: {response}")
            });
        }
        let profile = deployment.plan.services.get(&self.agent);
        let reason_chars = profile.map_or(0, |profile| profile.reason_chars);
        let retry_after = deployment.state().random.pick(None, &[Some(SECOND), Some(20 * SECOND)]);
        let retry_after = retry_after.map(Duration::from_millis);
        let output = call.output.take();
        let answer = http::answer(response, &request.responses, output, retry_after, reason_chars)?;
        let body = self.injector.store_response(request, answer.body).await?;
        Ok(CallResponse { body, ..answer })
    }
}

/// A call that its caller waits for. Dropping it disconnects the caller: the service may continue.
struct AwaitedCall<'a> {
    service: &'a SimulatedService,
    request: &'a StepRequest,
    number: u64,
    /// When the agent began the call. Its time to read a payload counts.
    asked_at: Millis,
    has_timeout: bool,
    /// Whether the call may be a probe of the circuit breaker.
    may_probe: bool,
    /// Whether its caller has the response.
    is_over: bool,
    /// The output of the service, once the call has taken effect.
    output: Option<Value>,
}

impl<'a> AwaitedCall<'a> {
    /// `received` is the payload that the service gets in place of the body. The agent began to read it at `asked_at`.
    fn begin(
        service: &'a SimulatedService,
        request: &'a StepRequest,
        (asked_at, received): (Millis, Option<&Content>),
        call_plan: CallPlan,
    ) -> Self {
        let deployment = &service.injector.deployment;
        let StepRequest { idempotency_key, attempt, .. } = request;
        deployment.note(service.injector.name(), || {
            format!("calls {idempotency_key}, attempt {attempt}")
        });
        let (time, now) = (deployment.time(), deployment.now());
        let profile = deployment.plan.services.get(&service.agent);
        let has_timeout = profile.is_some_and(|profile| profile.quirks.is_some());
        let may_probe = deployment.is_breaker_tripped(&service.agent);
        let state = &mut *deployment.state();
        state.oracle.check_call(request, &state.ledger, time);
        state.oracle.check_document(request, received, &state.ledger);
        let service_call = ServiceCall {
            request: Box::new(request.clone()),
            began_at: now,
            commits_at: call_plan.commits_after.map(|after| now + after),
            ends_at: now + call_plan.ends_after,
            detached: call_plan.detached,
        };
        let number = state.ledger.begin_call(service_call);
        Self {
            service,
            request,
            number,
            asked_at,
            has_timeout,
            may_probe,
            is_over: false,
            output: None,
        }
    }

    /// How many milliseconds too early a living caller disconnected. The agent may cut a call after the step's
    /// `call_within` and at its complete-by. A probe has less time.
    fn cut_early_by(&self, call_within: Millis) -> Option<Millis> {
        let FaultInjector { deployment, .. } = &self.service.injector;
        let (now, skew) =
            (deployment.now(), deployment.plan.timing.clock_skew.as_millis() as Millis);
        let complete_by = since_start(self.request.complete_by).saturating_sub(skew);
        let least = (self.asked_at + call_within).min(complete_by);
        let excused = self.is_over || self.may_probe || self.service.injector.has_crashed();
        // Times have whole milliseconds, so one millisecond is tolerated.
        (!excused && now + 1 < least).then(|| least - now)
    }
}

impl Drop for AwaitedCall<'_> {
    fn drop(&mut self) {
        let deployment = &self.service.injector.deployment;
        let now = deployment.now();
        let mut state = deployment.state();
        let state = &mut *state;
        let call_within = state.oracle.call_within(self.request);
        state.ledger.end_call(self.request, self.number);
        if let Some(early) = self.cut_early_by(call_within) {
            let StepRequest { task_id, step, action, .. } = self.request;
            let of = describe(task_id, step, *action);
            state.oracle.add_finding(format!("{of}: its call was cut {early} ms too early"));
        }
        let Some(service_call) = state.ledger.service_call_mut(self.number) else { return };
        let Some(commits_at) = service_call.commits_at else { return };
        let at = if service_call.detached {
            commits_at
        } else if state.random.chance(0.5) {
            // The service notices that its caller disconnected, and stops.
            (service_call.commits_at, service_call.ends_at) = (None, now);
            return;
        } else {
            let left = (service_call.began_at + call_within).saturating_sub(now);
            let at = now + state.random.skewed(left);
            (service_call.commits_at, service_call.ends_at) = (Some(at), at);
            at
        };
        state.insert_event(at.max(now), ScheduledEvent::CommitCall(self.number));
        deployment.changed.notify_one();
    }
}

impl SimulatedDeployment {
    /// Whether the circuit breaker of an agent is not closed, so that a call may be its probe.
    fn is_breaker_tripped(&self, agent: &AgentName) -> bool {
        let key = SharedRecordKey { kind: SharedRecordKind::Breaker, name: agent.to_string() };
        let shared = self.memory.store().shared_record(&key).now_or_never();
        let breaker = shared.and_then(Result::ok).flatten();
        breaker.is_some_and(|shared| {
            let state = shared.body.pointer("/state/is").and_then(Value::as_str);
            state.is_some_and(|state| state != "closed")
        })
    }

    /// Lets a call take effect at its service, unless it already has. Returns the answer of the service.
    pub(super) fn commit(&self, number: u64) -> Option<Value> {
        let now = self.now();
        let (request, answer) = {
            let state = &mut *self.state();
            let request = state.ledger.commit(number)?;
            let profile = self.plan.services.get(&request.agent);
            let empty = profile
                .and_then(|profile| profile.quirks.as_ref())
                .is_some_and(|quirks| is_chosen(&request.idempotency_key, "empty", quirks.empty));
            let is_repeat = state.ledger.is_repeat(&request);
            if !is_repeat {
                state.oracle.check_effect(&request, &state.ledger, now);
            }
            let payloads = self.plan.payloads.as_ref().filter(|_| !is_repeat && !empty);
            let output = payloads.and_then(|plan| state.payload_response(plan, &request, now));
            let usual = || ledger::output(&request.idempotency_key, now);
            let output = if empty { Value::Null } else { output.unwrap_or_else(usual) };
            let answer = state.ledger.take_effect(&request, output, now);
            let answer = state.response_of(&request, answer, is_repeat);
            (request, answer)
        };
        let key = &request.idempotency_key;
        self.note(&format!("service-{}", request.agent), || format!("{key} takes effect"));
        self.issue_token(&request);
        Some(answer)
    }
}
