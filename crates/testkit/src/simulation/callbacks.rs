//! Callbacks. The holder of a token answers in time, immediately, twice, late or never, with or without heartbeats.

use steward_core::model::{
    attempt::Action,
    json_text::JsonText,
    messages::{CallbackMessage, CallbackOutcome, SchedulerMessage, StepRequest},
    names::CallbackToken,
};

use super::{
    blueprint::{CallbackPlan, WorkPlan},
    deployment::{ScheduledEvent, SimulatedDeployment},
    outputs,
    random::SeededRandom,
    virtual_time::Millis,
};

impl SimulatedDeployment {
    /// Schedules the answers of the holder of a token, after the call that carried the token took effect.
    pub(super) fn issue_token(&self, request: &StepRequest) {
        let body = request.body.as_ref().map(JsonText::value);
        let token = body.as_ref().and_then(|body| body.get("token")?.as_str());
        let token = token.and_then(|token| token.parse::<CallbackToken>().ok());
        let Some(token) = token.filter(|_| request.action == Action::Do) else { return };
        let now = self.now();
        let answers = {
            let state = &mut *self.state();
            let model = state.oracle.model(&request.task_id);
            let step = model.and_then(|model| model.step(&request.step.step));
            let Some(WorkPlan::Call { callback: Some(callback), .. }) = step.map(|step| &step.work)
            else {
                return;
            };
            let callback = *callback;
            if !state.ledger.tokens.insert((token.clone(), request.attempt)) {
                return;
            }
            answers(callback, &token, now, &mut state.random)
        };
        for (at, outcome) in answers {
            let token = token.clone();
            self.schedule(
                now + at,
                ScheduledEvent::AnswerCallback(CallbackMessage { token, outcome }),
            );
        }
    }

    /// Sends the answer to a callback.
    pub(super) fn answer(&self, answer: &CallbackMessage) {
        self.note("callback", || format!("answers {}: {:?}", answer.token, answer.outcome));
        {
            let state = &mut *self.state();
            match &answer.outcome {
                CallbackOutcome::Completed { output } => {
                    state.ledger.record_callback_output(&answer.token, output);
                    state.oracle.observe_callback_answer(&answer.token);
                }
                CallbackOutcome::Failed { .. } => {
                    state.oracle.observe_callback_answer(&answer.token)
                }
                CallbackOutcome::Heartbeat => {}
            }
        }
        self.send_to_scheduler(&SchedulerMessage::Callback(answer.clone()));
    }
}

/// The answers to a token, each with its delay.
fn answers(
    callback: CallbackPlan,
    token: &CallbackToken,
    now: Millis,
    random: &mut SeededRandom,
) -> Vec<(Millis, CallbackOutcome)> {
    let CallbackPlan { within, heartbeat } = callback;
    let draws = random.within(0..=9);
    let (in_time, late) = (random.skewed(within), within + random.skewed(within));
    let mut times = match draws {
        // As soon as the call takes effect.
        0 => vec![0],
        // Twice; the second answer may differ.
        1 => vec![in_time, in_time + random.skewed(within)],
        2 => vec![late],
        3 => Vec::new(),
        _ => vec![in_time],
    };
    times.sort_unstable();
    let completed = |at: Millis| {
        let output = outputs::output(&format!("{token}/{at}"), now + at);
        CallbackOutcome::Completed { output }
    };
    let failed = || CallbackOutcome::Failed { reason: "declined".to_owned() };
    let end = times.first().copied().unwrap_or(random.skewed(2 * within));
    let mut schedule: Vec<_> = times
        .into_iter()
        .map(|at| (at, if random.chance(0.1) { failed() } else { completed(at) }))
        .collect();
    // The sender may skip a heartbeat, or stop.
    let every = heartbeat.unwrap_or(within) / 2;
    let stops = if random.chance(0.2) { random.skewed(end) } else { end };
    let beats = (1..).map(|n| n * every.max(1)).take_while(|at| *at < stops).take(20);
    if heartbeat.is_some() && draws != 9 {
        schedule.extend(beats.map(|at| (at, CallbackOutcome::Heartbeat)));
    }
    schedule
}
