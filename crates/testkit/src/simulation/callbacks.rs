//! Those who answer later: who was handed a token says something in time, at once, twice, late or
//! never, with or without heartbeats.

use steward_core::model::{
    attempt::Action,
    json_text::JsonText,
    messages::{Answer, CallbackAnswer, SchedulerMessage, StepRequest},
    names::CallbackToken,
};

use super::{
    blueprint::{CallbackPlan, WorkPlan},
    dice::Dice,
    ledger,
    plan::Millis,
    world::{Happening, World},
};

impl World {
    /// Somebody was handed a token by a call that took effect.
    pub(super) fn hand_out(&self, request: &StepRequest) {
        let body = request.body.as_ref().map(JsonText::value);
        let token = body.as_ref().and_then(|body| body.get("token")?.as_str());
        let token = token.and_then(|token| token.parse::<CallbackToken>().ok());
        let Some(token) = token.filter(|_| request.action == Action::Do) else { return };
        let now = self.now();
        let answers = {
            let state = &mut *self.state();
            let graph = state.oracle.graph(&request.task_id);
            let step = graph.and_then(|graph| graph.step(&request.step.step));
            let Some(WorkPlan::Call { callback: Some(callback), .. }) = step.map(|step| &step.work)
            else {
                return;
            };
            let callback = *callback;
            if !state.ledger.tokens.insert((token.clone(), request.attempt)) {
                return;
            }
            answers(callback, &token, now, &mut state.dice)
        };
        for (at, answer) in answers {
            let token = token.clone();
            self.at(now + at, Happening::Answer(CallbackAnswer { token, answer }));
        }
    }

    /// An answer sets out.
    pub(super) fn answer(&self, said: &CallbackAnswer) {
        self.note("somebody", || format!("answers {}: {:?}", said.token, said.answer));
        {
            let state = &mut *self.state();
            match &said.answer {
                Answer::Completed { output } => {
                    state.ledger.say(&said.token, output);
                    state.oracle.answers(&said.token);
                }
                Answer::Failed { .. } => state.oracle.answers(&said.token),
                Answer::Heartbeat => {}
            }
        }
        self.tell_scheduler(&SchedulerMessage::Callback(said.clone()));
    }
}

/// What is said to a token, and when.
fn answers(
    callback: CallbackPlan,
    token: &CallbackToken,
    now: Millis,
    dice: &mut Dice,
) -> Vec<(Millis, Answer)> {
    let CallbackPlan { within, heartbeat } = callback;
    let draws = dice.within(0..=9);
    let (in_time, late) = (dice.skewed(within), within + dice.skewed(within));
    let mut times = match draws {
        // As quick as the call itself.
        0 => vec![0],
        // Twice, and not always the same.
        1 => vec![in_time, in_time + dice.skewed(within)],
        2 => vec![late],
        3 => Vec::new(),
        _ => vec![in_time],
    };
    times.sort_unstable();
    let completed = |at: Millis| {
        let output = ledger::output(&format!("{token}/{at}"), now + at);
        Answer::Completed { output }
    };
    let failed = || Answer::Failed { reason: "declined".to_owned() };
    let end = times.first().copied().unwrap_or(dice.skewed(2 * within));
    let mut said: Vec<_> = times
        .into_iter()
        .map(|at| (at, if dice.chance(0.1) { failed() } else { completed(at) }))
        .collect();
    // Whoever sends heartbeats may forget one, or stop.
    let every = heartbeat.unwrap_or(within) / 2;
    let stops = if dice.chance(0.2) { dice.skewed(end) } else { end };
    let beats = (1..).map(|n| n * every.max(1)).take_while(|at| *at < stops).take(20);
    if heartbeat.is_some() && draws != 9 {
        said.extend(beats.map(|at| (at, Answer::Heartbeat)));
    }
    said
}
