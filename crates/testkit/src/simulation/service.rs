//! The remote services, as awkward as real ones: slow, flaky, down for a while, refusing for good, or
//! lying, which is to take effect and answer with an error, or never. They recognise a repeated call by
//! its idempotency key.
//!
//! A call is a process of its service: it begins, may take effect, and ends, also when its caller no
//! longer waits.
//!
//! ```text
//! call ──► begins ─────────► takes effect ──────► ends        at most call_within after it began,
//!   │        │                                     │          if the service is awkward
//!   │        └─ same key again: 409, or the same process once more
//!   └────────── gateway gives up (504), connection breaks, complete-by passes: the process goes on
//! ```

use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;
use steward_agent::attempt::{Fault, RemoteService};
use steward_core::model::{attempt::Action, messages::StepRequest, names::AgentName};
use steward_runtime::{
    ports::{Ports, SharedKey, SharedKind, StateStore},
    trace,
};

use super::{
    dice::Dice,
    http::{self, Body, Response},
    ledger::{self, Process},
    oracle::describe,
    plan::{Awkward, Millis, SECOND, Temper, since_start},
    ports::Seam,
    world::{Happening, World},
};

/// What a client waits for one response: what takes longer is a broken connection to it.
const CLIENT_TIMEOUT: Millis = 100 * SECOND;

/// A logical agent's remote service, as one agent instance reaches it.
#[derive(Debug, Clone)]
pub(super) struct SimService {
    seam: Seam,
    agent: AgentName,
}

/// What a call will come to; times count from its beginning.
#[derive(Debug, Clone, Default)]
struct Course {
    /// When it takes effect, if it does.
    commits_after: Option<Millis>,
    ends_after: Millis,
    /// When its caller gets the response, if ever.
    responds_after: Option<Millis>,
    response: Response,
    /// Whether the process goes on as planned when its caller hangs up.
    detached: bool,
}

impl SimService {
    pub(super) fn new(seam: Seam, agent: AgentName) -> Self {
        Self { seam, agent }
    }

    /// Draws what a call comes to.
    fn draw(&self, request: &StepRequest) -> Course {
        let world = &self.seam.world;
        let calm = Temper { latency_max: 50, ..Temper::default() };
        let temper = world.plan.services.get(&self.agent).unwrap_or(&calm);
        let now = world.now();
        let state = &mut *world.state();
        let key = &request.idempotency_key;
        let conflicts = temper.awkward.as_ref().is_some_and(|awkward| awkward.conflicts);
        if conflicts && request.idempotent && state.ledger.is_in_progress(key, now) {
            let after = state.dice.within(0..=50);
            return Course::refused(after, Response::Status(409));
        }
        let call_within = state.oracle.call_within(request);
        let mut course = temper.course(request, state.storm, now, &mut state.dice);
        if let Some(awkward) = &temper.awkward {
            awkward.bend(&mut course, request, call_within, state.storm, &mut state.dice);
            let account = state.ledger.account(&request.task_id, &request.step);
            let finds_nothing = account.is_none_or(|account| !account.stands());
            if request.action == Action::Undo
                && finds_nothing
                && matches!(course.response, Response::Success(_))
                && is_drawn(key, "not found", 0.5)
            {
                course.response = Response::Status(404);
            }
        }
        // A service that takes longer breaks its contract.
        course.commits_after = course.commits_after.map(|after| after.min(call_within));
        course
    }
}

impl Course {
    /// A response at once, and nothing else.
    fn refused(after: Millis, response: Response) -> Self {
        let responds_after = Some(after);
        Self { ends_after: after, responds_after, response, ..Self::default() }
    }
}

impl Temper {
    fn course(&self, request: &StepRequest, storm: bool, now: Millis, dice: &mut Dice) -> Course {
        let latency_max = if storm { self.latency_max } else { 50 };
        let half = 0..=latency_max / 2;
        let (until_effect, until_end) = (dice.within(half.clone()), dice.within(half));
        let refuse = match request.action {
            Action::Do => self.refuse,
            Action::Undo => self.refuse_undo,
        };
        let error = Response::Status(503);
        let (effect, response) = if is_drawn(&request.idempotency_key, "refuse", refuse) {
            (false, Some(Response::Status(422)))
        } else if storm && self.down.iter().any(|down| down.contains(&now)) {
            (false, dice.pick(Some(error), &[None]))
        } else if storm && dice.chance(self.fail) {
            (false, Some(error))
        } else if storm && dice.chance(self.lie) {
            (true, Some(error))
        } else if storm && dice.chance(self.hang) {
            (dice.chance(0.5), None)
        } else {
            (true, Some(Response::Success(Body::Output)))
        };
        let ends_after = until_effect + until_end;
        Course {
            commits_after: effect.then_some(until_effect),
            ends_after,
            responds_after: response.is_some().then_some(ends_after),
            response: response.unwrap_or_default(),
            detached: false,
        }
    }
}

impl Awkward {
    /// Makes a call as awkward as those of real services are.
    fn bend(
        &self,
        course: &mut Course,
        request: &StepRequest,
        call_within: Millis,
        storm: bool,
        dice: &mut Dice,
    ) {
        let drawn = |what, share| is_drawn(&request.idempotency_key, what, share);
        if matches!(course.response, Response::Success(_)) && course.responds_after.is_some() {
            // What is in the response does not change when a call is repeated.
            if drawn("redirect", self.redirect) {
                course.response = Response::Status(dice.pick(302, &[301, 303, 307, 308]));
            } else if drawn("empty", self.empty) {
                course.response = Response::Success(Body::Empty);
            } else if drawn("not json", self.not_json) && request.action == Action::Do {
                course.response = Response::Success(Body::NotJson);
            }
        }
        if !storm {
            return;
        }
        if dice.chance(self.slow) {
            // Now and then as long as a call may take, to the millisecond.
            let longest = if dice.chance(0.3) { call_within } else { dice.within(0..=call_within) };
            let late = if dice.chance(0.3) { longest } else { dice.within(0..=longest) };
            course.commits_after = course.commits_after.map(|_| late);
            course.ends_after = longest;
            course.responds_after = course.responds_after.map(|_| longest);
        }
        course.detached = dice.chance(0.8);
        if course.responds_after.is_none() || !dice.chance(self.gives_up) {
            return;
        }
        // Somebody between the two gives up, and the service does not know.
        course.detached = true;
        course.responds_after = Some(dice.within(0..=course.ends_after));
        course.response =
            dice.pick(Response::Broken, &[Response::Status(504), Response::Status(408)]);
        if dice.chance(0.1) {
            *course = Course::refused(dice.within(0..=50), Response::NoConnection);
        }
    }
}

/// Whether a service does this with a key for good: the same whenever it is asked.
fn is_drawn(key: &str, what: &str, share: f64) -> bool {
    let bytes = key.bytes().chain(what.bytes());
    let seed = bytes.fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    Dice::new(seed).chance(share)
}

impl RemoteService for SimService {
    async fn call(&self, request: &StepRequest, traceparent: Option<&str>) -> Result<Value, Fault> {
        let world = &self.seam.world;
        let course = self.draw(request);
        let traceparent = trace::of_call(request, traceparent);
        world.state().oracle.traced(request, &traceparent);
        if course.response == Response::NoConnection {
            world.fault(&format!("service-{}", self.agent), || "is not reached".to_owned());
            return http::answer(course.response, &request.responses, None, None, 0);
        }
        let (commits_after, response) = (course.commits_after, course.response);
        let responds_after = course.responds_after;
        let mut call = Call::begin(self, request, course);
        let effect_first =
            commits_after.filter(|after| responds_after.is_none_or(|by| *after <= by));
        let mut waited = 0;
        if let Some(after) = effect_first.filter(|after| *after <= CLIENT_TIMEOUT) {
            tokio::time::sleep(Duration::from_millis(after)).await;
            call.output = world.commit(call.number);
            waited = after;
        }
        let until = responds_after.unwrap_or(Millis::MAX).min(CLIENT_TIMEOUT);
        let in_time = responds_after.is_some_and(|after| after <= CLIENT_TIMEOUT);
        // Without awkward services nobody's client has a timeout.
        let rest = if call.has_timeout || in_time { Some(until) } else { responds_after };
        match rest {
            Some(until) => {
                tokio::time::sleep(Duration::from_millis(until.saturating_sub(waited))).await;
            }
            None => std::future::pending().await,
        }
        call.is_over = true;
        let response = if in_time || !call.has_timeout { response } else { Response::TimedOut };
        if response != Response::Success(Body::Output) {
            let key = &request.idempotency_key;
            let does = if commits_after.is_some() { "takes effect" } else { "does nothing" };
            world.fault(&format!("service-{}", self.agent), || {
                format!("{key} {does}, and is answered: {response}")
            });
        }
        let temper = world.plan.services.get(&self.agent);
        let reason_chars = temper.map_or(0, |temper| temper.reason_chars);
        let patience = world.state().dice.pick(None, &[Some(SECOND), Some(20 * SECOND)]);
        let patience = patience.map(Duration::from_millis);
        http::answer(response, &request.responses, call.output.take(), patience, reason_chars)
    }
}

/// A call that its caller waits for. Whoever drops it only stops listening: the service may go on.
struct Call<'a> {
    service: &'a SimService,
    request: &'a StepRequest,
    number: u64,
    began_at: Millis,
    has_timeout: bool,
    /// Whether the breaker lets the call find out if the service is back.
    may_probe: bool,
    /// Whether it came to its end, as its caller sees it.
    is_over: bool,
    /// What the service returns, once it has taken effect.
    output: Option<Value>,
}

impl<'a> Call<'a> {
    fn begin(service: &'a SimService, request: &'a StepRequest, course: Course) -> Self {
        let world = &service.seam.world;
        let StepRequest { idempotency_key, attempt, .. } = request;
        world.note(service.seam.name(), || format!("calls {idempotency_key}, attempt {attempt}"));
        let (time, now) = (world.time(), world.now());
        let temper = world.plan.services.get(&service.agent);
        let has_timeout = temper.is_some_and(|temper| temper.awkward.is_some());
        let may_probe = world.has_breaker_turned(&service.agent);
        let state = &mut *world.state();
        state.oracle.called(request, &state.ledger, time);
        let process = Process {
            request: Box::new(request.clone()),
            began_at: now,
            commits_at: course.commits_after.map(|after| now + after),
            ends_at: now + course.ends_after,
            detached: course.detached,
        };
        let number = state.ledger.begin(process);
        let (began_at, is_over) = (now, false);
        Self { service, request, number, began_at, has_timeout, may_probe, is_over, output: None }
    }

    /// How long before its time its caller hung up, if it did and lives. The agent may cut a call after
    /// the step's `call_within` and at its complete-by. A call that probes has less time.
    fn is_cut_early(&self, call_within: Millis) -> Option<Millis> {
        let Seam { world, .. } = &self.service.seam;
        let (now, skew) = (world.now(), world.plan.timing.clock_skew.as_millis() as Millis);
        let complete_by = since_start(self.request.complete_by).saturating_sub(skew);
        let least = (self.began_at + call_within).min(complete_by);
        let excused = self.is_over || self.may_probe || self.service.seam.is_dead();
        // Times are in whole milliseconds.
        (!excused && now + 1 < least).then(|| least - now)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let world = &self.service.seam.world;
        let now = world.now();
        let mut state = world.state();
        let state = &mut *state;
        let call_within = state.oracle.call_within(self.request);
        state.ledger.end(self.request, self.number);
        if let Some(early) = self.is_cut_early(call_within) {
            let StepRequest { task_id, step, action, .. } = self.request;
            let of = describe(task_id, step, *action);
            state.oracle.find(format!("{of}: its call was cut {early} ms before its time"));
        }
        let Some(process) = state.ledger.process_mut(self.number) else { return };
        let Some(commits_at) = process.commits_at else { return };
        let at = if process.detached {
            commits_at
        } else if state.dice.chance(0.5) {
            // The service sees that its caller hung up, and stops.
            (process.commits_at, process.ends_at) = (None, now);
            return;
        } else {
            let left = (process.began_at + call_within).saturating_sub(now);
            let at = now + state.dice.skewed(left);
            (process.commits_at, process.ends_at) = (Some(at), at);
            at
        };
        state.put_on_agenda(at.max(now), Happening::Commit(self.number));
        world.changed.notify_one();
    }
}

impl World {
    /// Whether the breaker of an agent is not closed, so that a call may be its probe.
    fn has_breaker_turned(&self, agent: &AgentName) -> bool {
        let key = SharedKey { kind: SharedKind::Breaker, name: agent.to_string() };
        let shared = self.memory.store().shared(&key).now_or_never();
        let breaker = shared.and_then(Result::ok).flatten();
        breaker.is_some_and(|shared| {
            let state = shared.body.pointer("/state/is").and_then(Value::as_str);
            state.is_some_and(|state| state != "closed")
        })
    }

    /// A call takes effect at its service, unless it has; answers what the service returns.
    pub(super) fn commit(&self, number: u64) -> Option<Value> {
        let now = self.now();
        let (request, answer) = {
            let state = &mut *self.state();
            let request = state.ledger.commit(number)?;
            let temper = self.plan.services.get(&request.agent);
            let empty = temper
                .and_then(|temper| temper.awkward.as_ref())
                .is_some_and(|awkward| is_drawn(&request.idempotency_key, "empty", awkward.empty));
            let output =
                if empty { Value::Null } else { ledger::output(&request.idempotency_key, now) };
            if !state.ledger.is_known(&request) {
                state.oracle.takes_effect(&request, &state.ledger, now);
            }
            let answer = state.ledger.take_effect(&request, output, now);
            (request, answer)
        };
        let key = &request.idempotency_key;
        self.note(&format!("service-{}", request.agent), || format!("{key} takes effect"));
        self.hand_out(&request);
        Some(answer)
    }
}
