//! The plans of the simulated services: they have the faults of real ones. They are slow, flaky, down for a while, refuse
//! permanently, or take effect and answer with an error or not at all.

use futures_util::FutureExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_agent::attempt::CallFault;
use steward_agent::response::CallResponse;
use steward_core::{
    limits,
    model::{attempt::Action, messages::StepRequest, names::AgentName},
};
use steward_runtime::{
    ports::{SharedRecordKey, SharedRecordKind, StateStore},
    trace,
};
use steward_test_world::{
    ledger::EffectLedger,
    service::{AfterDisconnect, Body, CallPlan, KeyMemory, Reply, ServiceHost},
};

use super::{
    deployment::{ScheduledEvent, SimulatedDeployment, SimulationState},
    fault_injector::FaultInjector,
    large_tasks, outputs,
    plan::{ServiceProfile, ServiceQuirks},
    random::{SeededRandom, is_chosen},
    task_record::describe,
    virtual_time::{HOUR, Millis, SECOND, since_start},
};

/// How long a client waits for a response.
const CLIENT_TIMEOUT: Millis = 100 * SECOND;

/// The remote service of an agent, as one instance of the agent reaches it.
#[derive(Debug, Clone)]
pub(super) struct SimulatedService {
    injector: FaultInjector,
    agent: AgentName,
}

/// What a service remembers of a call.
pub(super) struct CallMemo {
    plan: CallPlan,
    /// When the agent began the call. Its time to read a payload counts.
    asked_at: Millis,
    /// Whether the call may be a probe of the circuit breaker.
    may_probe: bool,
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
        let longest = state.oracle.call_within(request);
        let key_valid_for = state.oracle.key_valid_for(request);
        let caller_waits = profile.quirks.as_ref().map(|_| CLIENT_TIMEOUT);
        let plan = self.draw_with(profile, request, (now, longest), state);
        // A service that takes effect later breaks its contract.
        let commits_after = plan.commits_after.map(|after| after.min(longest));
        let skew = deployment.plan.timing.clock_skew.as_millis() as Millis;
        let key_memory =
            key_valid_for.map_or(plan.key_memory, |valid| forgotten_after(valid, skew));
        CallPlan { commits_after, caller_waits, longest, key_memory, ..plan }
    }

    fn draw_with(
        &self,
        profile: &ServiceProfile,
        request: &StepRequest,
        (now, longest): (Millis, Millis),
        state: &mut SimulationState,
    ) -> CallPlan {
        let SimulationState { random, ledger, faults_enabled, .. } = state;
        let is_unreachable = profile.unreachable.iter().any(|times| times.contains(&now));
        if *faults_enabled && is_unreachable {
            return CallPlan::without_effect(random.within(0..=50), Reply::NoConnection);
        }
        let conflicts = profile.quirks.as_ref().is_some_and(|quirks| quirks.conflicts);
        if conflicts && request.idempotent && ledger.is_in_progress(request, now) {
            return CallPlan::without_effect(random.within(0..=50), Reply::status(409));
        }
        let plan = profile.draw(request, *faults_enabled, now, random);
        let Some(quirks) = &profile.quirks else { return plan };
        let mut plan = quirks.recall(plan, request, ledger, now);
        let succeeds = plan.reply.is_plain_success();
        quirks.apply(&mut plan, request, longest, *faults_enabled, random);
        let account = ledger.account(&request.task_id, &request.step);
        let has_nothing_to_undo =
            account.is_none_or(|account| !account.has_remaining_effect_at(&self.agent));
        if request.action == Action::Undo
            && has_nothing_to_undo
            && succeeds
            && matches!(plan.reply, Reply::Http { status: 200, .. })
            && is_chosen(&request.idempotency_key, "not found", 0.5)
        {
            plan.reply = Reply::status(404);
        }
        plan
    }

    /// How many milliseconds too early a living caller disconnected. The agent may cut a call after the step's
    /// `call_within` and at its complete-by. A probe has less time.
    fn cut_early_by(&self, request: &StepRequest, memo: &CallMemo) -> Option<Millis> {
        let FaultInjector { deployment, .. } = &self.injector;
        let (now, skew) =
            (deployment.now(), deployment.plan.timing.clock_skew.as_millis() as Millis);
        let complete_by = since_start(request.complete_by).saturating_sub(skew);
        let least = (memo.asked_at + memo.plan.longest).min(complete_by);
        let excused = memo.may_probe || self.injector.has_crashed();
        // Times have whole milliseconds, so one millisecond is tolerated.
        (!excused && now + 1 < least).then(|| least - now)
    }
}

/// How long a service remembers a key that is valid for this time. A call at the last moment of this time is still repeated, and
/// the clock of its caller may be behind by the skew.
fn forgotten_after(valid: Millis, skew: Millis) -> KeyMemory {
    KeyMemory::ForgottenAfter(valid + skew + 1)
}

/// The body of a 200 that says that the service did not begin the call.
const THROTTLED_BODY: &str = r#"{ "error": "throttled", "seconds": 20 }"#;

/// The body of a 200 that says that the call failed. It may have taken effect.
const ERROR_BODY: &str = r#"{ "error": "internal" }"#;

/// An error status, which may ask for a pause.
fn failure(status: u16, random: &mut SeededRandom) -> Reply {
    match random.pick(0, &[1, 20]) {
        0 => Reply::status(status),
        seconds => Reply::status(status).retry_after(seconds),
    }
}

impl ServiceProfile {
    fn draw(
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
        let forgets =
            faults_enabled && self.quirks.as_ref().is_some_and(|quirks| quirks.forgets_refusals);
        let refuses = is_chosen(&request.idempotency_key, "refuse", refuse)
            && !(forgets && random.chance(0.5));
        let (effect, reply) = if refuses {
            (false, Some(Reply::status(422)))
        } else if faults_enabled && self.down.iter().any(|down| down.contains(&now)) {
            (false, random.chance(0.5).then(|| self.error(request, 503, random)))
        } else if faults_enabled && random.chance(self.throttle) {
            (false, Some(self.error(request, 429, random)))
        } else if faults_enabled && random.chance(self.fail) {
            (false, Some(self.error(request, 503, random)))
        } else if faults_enabled && random.chance(self.false_error) {
            (true, Some(self.error(request, 503, random)))
        } else if faults_enabled && random.chance(self.no_response) {
            (random.chance(0.5), None)
        } else {
            (true, Some(Reply::success(Body::Output)))
        };
        let ends_after = until_effect + until_end;
        let after_disconnect = match random.chance(0.5) {
            true => AfterDisconnect::Stops,
            false => AfterDisconnect::TakesEffect { share: random.skewed(1_000) as f64 / 1_000.0 },
        };
        CallPlan {
            commits_after: effect.then_some(until_effect),
            replies_after: reply.is_some().then_some(ends_after),
            after_disconnect,
            ..CallPlan::without_effect(ends_after, reply.unwrap_or(Reply::BrokenConnection))
        }
    }
}

impl ServiceProfile {
    /// An error with this status, or a 200 whose body says the same.
    fn error(&self, request: &StepRequest, status: u16, random: &mut SeededRandom) -> Reply {
        if request.responses.is_conditional(200) && random.chance(0.5) {
            return Reply::success(match status {
                429 => Body::NotBegun(THROTTLED_BODY.into()),
                _ => Body::Bytes(ERROR_BODY.into()),
            });
        }
        let reply = failure(status, random);
        match is_chosen(&request.idempotency_key, "long pause", self.long_pauses) {
            true => reply.retry_after(random.pick(HOUR, &[3 * HOUR, 30 * HOUR]) / SECOND),
            false => reply,
        }
    }
}

/// A success that is not JSON.
const PAGE: &str = "<html>";

impl ServiceQuirks {
    /// The output of a step whose success has another body than the service's own output.
    fn fixed_output(&self, request: &StepRequest) -> Option<Value> {
        let drawn = |what, share| is_chosen(&request.idempotency_key, what, share);
        if drawn("empty", self.empty) {
            return Some(Value::Null);
        }
        let is_page = drawn("not json", self.not_json) && request.action == Action::Do;
        is_page.then(|| json!({ "text": PAGE }))
    }

    /// Replaces a planned execution by the first one with the same idempotency key, if the service stores its answers. What
    /// happens on the network is not stored.
    fn recall(
        &self,
        plan: CallPlan,
        request: &StepRequest,
        ledger: &mut EffectLedger,
        now: Millis,
    ) -> CallPlan {
        let is_answer = plan.replies_after.is_some() && !plan.reply.is_throttled();
        let is_stored = is_chosen(&request.idempotency_key, "stored", self.stores_answers);
        if !request.idempotent || !is_answer || !is_stored {
            return plan;
        }
        let plan = CallPlan { key_memory: KeyMemory::ReplyStored, ..plan };
        CallPlan { key_memory: KeyMemory::Kept, ..ledger.recall_key(request, plan, now) }
    }

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
        if call_plan.reply.is_plain_success() && call_plan.replies_after.is_some() {
            // The content of the response does not change when a call is repeated.
            if drawn("redirect", self.redirect) {
                call_plan.reply = Reply::status(random.pick(302, &[301, 303, 307, 308]));
            } else if drawn("empty", self.empty) {
                call_plan.reply = Reply::success(Body::Bytes(Vec::new()));
            } else if drawn("not json", self.not_json) && request.action == Action::Do {
                call_plan.reply = Reply::success(Body::Bytes(PAGE.into()));
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
            call_plan.replies_after = call_plan.replies_after.map(|_| longest);
        }
        if random.chance(0.8) {
            call_plan.after_disconnect = AfterDisconnect::Continues;
        }
        if call_plan.replies_after.is_none() || !random.chance(self.disconnects) {
            return;
        }
        // A gateway between caller and service gives up, and the service does not notice.
        call_plan.after_disconnect = AfterDisconnect::Continues;
        call_plan.replies_after = Some(random.within(0..=call_plan.ends_after));
        call_plan.reply = match random.pick(0, &[504, 408]) {
            0 => Reply::BrokenConnection,
            status => failure(status, random),
        };
        if random.chance(0.1) {
            *call_plan = CallPlan::without_effect(random.within(0..=50), Reply::NoConnection);
        }
    }
}

impl ServiceHost for SimulatedService {
    type Memo = CallMemo;

    async fn receive(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
    ) -> Result<(CallPlan, CallMemo), CallFault> {
        let deployment = &self.injector.deployment;
        let asked_at = deployment.now();
        let received = self.injector.open_payload(request).await?;
        let plan = self.draw(request);
        let may_probe = deployment.is_breaker_tripped(&self.agent);
        let traceparent = trace::of_call(request, traceparent);
        let time = deployment.time();
        {
            let state = &mut *deployment.state();
            state.oracle.check_traceparent(request, &traceparent);
            state.oracle.check_rate(request, time);
            if plan.reply != Reply::NoConnection {
                state.oracle.check_call(request, &state.ledger, time);
                state.oracle.check_document(request, received.as_ref(), &state.ledger);
            }
        }
        let StepRequest { idempotency_key, attempt, .. } = request;
        deployment
            .note(self.injector.name(), || format!("calls {idempotency_key}, attempt {attempt}"));
        Ok((plan.clone(), CallMemo { plan, asked_at, may_probe }))
    }

    fn with_ledger<T>(&self, act: impl FnOnce(&mut EffectLedger) -> T) -> T {
        act(&mut self.injector.deployment.state().ledger)
    }

    fn now(&self) -> Millis {
        self.injector.deployment.now()
    }

    fn time(&self) -> Timestamp {
        self.injector.deployment.time()
    }

    fn commit(&self, number: u64) -> Option<Value> {
        self.injector.deployment.commit(number)
    }

    fn commit_later(&self, number: u64, at: Millis) {
        self.injector.deployment.schedule(at, ScheduledEvent::CommitCall(number));
    }

    fn disconnected(&self, request: &StepRequest, memo: &CallMemo, is_over: bool) {
        let Some(early) = self.cut_early_by(request, memo).filter(|_| !is_over) else { return };
        let of = describe(&request.task_id, &request.step, request.action);
        let finding = format!("{of}: its call was cut {early} ms too early");
        self.injector.deployment.state().oracle.add_finding(finding);
    }

    async fn replied(
        &self,
        request: &StepRequest,
        CallMemo { plan, .. }: &CallMemo,
        answer: Result<CallResponse, CallFault>,
    ) -> Result<CallResponse, CallFault> {
        let deployment = &self.injector.deployment;
        if !plan.reply.is_plain_success() || answer.is_err() {
            let key = &request.idempotency_key;
            let effect =
                if plan.commits_after.is_some() { "takes effect" } else { "has no effect" };
            deployment.fault(&format!("service-{}", self.agent), || {
                format!("{key} {effect}; response: {}", plan.reply)
            });
        }
        let profile = deployment.plan.services.get(&self.agent);
        let reason_chars = profile.map_or(0, |profile| profile.reason_chars);
        let answer = answer.map_err(|fault| with_long_reason(fault, reason_chars))?;
        let body = self.injector.store_response(request, answer.body?).await?;
        Ok(CallResponse { body: Ok(body), ..answer })
    }
}

/// The fault with a longer reason: other agents than the HTTP agent may say more, in any language.
fn with_long_reason(fault: CallFault, chars: usize) -> CallFault {
    match fault {
        CallFault::Permanent { reason, may_have_run, detail } => {
            let reason = format!("{reason}{}", large_tasks::words(chars));
            let reason = limits::short_line(&reason, limits::REASON_CHARS_MAX);
            CallFault::Permanent { reason, may_have_run, detail }
        }
        other @ (CallFault::Transient { .. }
        | CallFault::Redirected { .. }
        | CallFault::Conflict { .. }
        | CallFault::TimedOut { .. }) => other,
    }
}

impl SimulatedDeployment {
    /// Whether the circuit breaker of an agent is not closed, so that a call may be its probe.
    fn is_breaker_tripped(&self, agent: &AgentName) -> bool {
        let key = SharedRecordKey { kind: SharedRecordKind::Breaker, name: agent.to_string() };
        let shared = self.memory.store.shared_record(&key).now_or_never();
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
            let (request, _) = state.ledger.commit(number)?;
            let profile = self.plan.services.get(&request.agent);
            let quirks = profile.and_then(|profile| profile.quirks.as_ref());
            let fixed = quirks.and_then(|quirks| quirks.fixed_output(&request));
            let is_repeat = state.ledger.is_repeat(&request);
            if !is_repeat {
                state.oracle.check_effect(&request, &state.ledger, now);
            }
            let payloads = self.plan.payloads.as_ref().filter(|_| !is_repeat && fixed.is_none());
            let output = payloads.and_then(|plan| state.payload_response(plan, &request, now));
            let usual = || outputs::output(&request.idempotency_key, now);
            let output = fixed.or(output).unwrap_or_else(usual);
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
