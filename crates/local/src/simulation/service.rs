//! The remote services: slow, flaky, down for a while, refusing for good, or lying, which is to take
//! effect and answer with an error, or never. They recognise a repeated call by its idempotency key.

use std::{ops::RangeInclusive, time::Duration};

use serde_json::Value;
use steward_agent::{Fault, RemoteService};
use steward_core::{
    messages::{Action, StepRequest},
    names::AgentName,
    ports::Clock,
};

use super::{
    dice::Dice,
    plan::{Millis, SECOND, Temper},
    ports::Seam,
    world::Happening,
};

/// A logical agent's remote service, as one agent instance reaches it.
#[derive(Debug, Clone)]
pub(super) struct SimService {
    seam: Seam,
    agent: AgentName,
}

/// What a call will come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Done,
    Error,
    Refused,
    Never,
}

impl SimService {
    pub(super) fn new(seam: Seam, agent: AgentName) -> Self {
        Self { seam, agent }
    }

    /// Draws whether a call takes effect, how it is answered, and how long it takes until each.
    fn draw(&self, request: &StepRequest) -> (bool, Answer, Millis, Millis) {
        let world = &self.seam.world;
        let calm = Temper { latency_max: 50, ..Temper::default() };
        let temper = world.plan.services.get(&self.agent).unwrap_or(&calm);
        let now = world.now();
        let mut state = world.state();
        let storm = state.storm;
        let latency_max = if storm { temper.latency_max } else { 50 };
        let half: RangeInclusive<Millis> = 0..=latency_max / 2;
        let dice = &mut state.dice;
        let (until_effect, until_answer) = (dice.within(half.clone()), dice.within(half));
        let refuse = match request.action {
            Action::Do => temper.refuse,
            Action::Undo => temper.refuse_undo,
        };
        let (effect, answer) = if refused(&request.idempotency_key, refuse) {
            (false, Answer::Refused)
        } else if storm && temper.down.iter().any(|down| down.contains(&now)) {
            (false, dice.pick(Answer::Error, &[Answer::Never]))
        } else if storm && dice.chance(temper.fail) {
            (false, Answer::Error)
        } else if storm && dice.chance(temper.lie) {
            (true, Answer::Error)
        } else if storm && dice.chance(temper.hang) {
            (dice.chance(0.5), Answer::Never)
        } else {
            (true, Answer::Done)
        };
        (effect, answer, until_effect, until_answer)
    }
}

/// Whether a service refuses this key for good: the same whenever it is asked.
fn refused(key: &str, share: f64) -> bool {
    let seed = key.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    Dice::new(seed).chance(share)
}

impl RemoteService for SimService {
    async fn call(&self, request: &StepRequest, _: Option<&str>) -> Result<Value, Fault> {
        let world = &self.seam.world;
        let (effect, answer, until_effect, until_answer) = self.draw(request);
        let mut call = Call::begin(self, request, effect);
        tokio::time::sleep(Duration::from_millis(until_effect)).await;
        let output = call.take_effect();
        tokio::time::sleep(Duration::from_millis(until_answer)).await;
        if answer != Answer::Done {
            let key = &request.idempotency_key;
            let said = if effect { "took effect, and is answered" } else { "is answered" };
            world.fault(&format!("service-{}", self.agent), || format!("{key} {said}: {answer:?}"));
        }
        match answer {
            Answer::Done => Ok(output.unwrap_or_default()),
            Answer::Error => {
                let patience = world.state().dice.pick(None, &[Some(SECOND), Some(20 * SECOND)]);
                let retry_after = patience.map(Duration::from_millis);
                Err(Fault::Transient { reason: "503".to_owned(), retry_after, may_have_run: true })
            }
            Answer::Refused => {
                Err(Fault::Permanent { reason: "422".to_owned(), may_have_run: false })
            }
            Answer::Never => std::future::pending().await,
        }
    }
}

/// A call under way. Whoever drops it only stops listening: it may still take effect, until its
/// complete-by.
struct Call<'a> {
    service: &'a SimService,
    request: &'a StepRequest,
    number: u64,
    takes_effect: bool,
}

impl<'a> Call<'a> {
    fn begin(service: &'a SimService, request: &'a StepRequest, takes_effect: bool) -> Self {
        let world = &service.seam.world;
        let StepRequest { idempotency_key, attempt, .. } = request;
        world.note(service.seam.name(), || format!("calls {idempotency_key}, attempt {attempt}"));
        let time = world.time();
        let state = &mut *world.state();
        state.oracle.called(request, &state.ledger, time);
        let number = state.ledger.begin(request);
        Self { service, request, number, takes_effect }
    }

    fn take_effect(&mut self) -> Option<Value> {
        let takes_effect = std::mem::take(&mut self.takes_effect);
        takes_effect.then(|| self.service.seam.world.take_effect(self.request))
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let world = &self.service.seam.world;
        let mut state = world.state();
        state.ledger.end(self.request, self.number);
        if !self.takes_effect || state.dice.chance(0.5) {
            return;
        }
        let left = self.request.complete_by.duration_since(self.service.seam.now());
        let left = Millis::try_from(left.as_millis()).unwrap_or_default();
        let late = state.dice.skewed(left);
        drop(state);
        if late == 0 {
            world.take_effect(self.request);
        } else {
            let request = Box::new(self.request.clone());
            world.at(world.now() + late, Happening::LateEffect(request));
        }
    }
}

impl super::world::World {
    /// A call takes effect at its service.
    pub(super) fn take_effect(&self, request: &StepRequest) -> Value {
        let key = &request.idempotency_key;
        self.note(&format!("service-{}", request.agent), || format!("{key} takes effect"));
        let now = self.now();
        let answer = {
            let state = &mut *self.state();
            if !state.ledger.is_known(request) {
                state.oracle.takes_effect(request, &state.ledger, now);
            }
            state.ledger.take_effect(request, now)
        };
        self.hand_out(request);
        answer
    }
}
