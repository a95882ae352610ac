//! An imitation of a provider, by its documented rules for repeated calls.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use axum::http::HeaderMap;
use serde_json::{Value, json};

/// How a provider treats calls with an idempotency key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Where it reads the key. A provider that reads none carries out every call.
    pub(super) key: Option<KeyPlace>,
    /// The longest key that it accepts.
    pub(super) chars_max: usize,
    /// How long it keeps a key. Absent if it does not say.
    pub(super) keeps_keys: Option<Duration>,
    /// Whether it stores its first answer also if that is an error.
    pub(super) stores_errors: bool,
    /// The status and the body of its answer to another body under a known key. Absent: the stored answer.
    pub(super) other_body: Option<(u16, &'static str)>,
}

/// Where a provider reads the idempotency key.
#[derive(Debug, Clone, Copy)]
pub(super) enum KeyPlace {
    /// In this header.
    Header(&'static str),
    /// In this field of the body.
    Field(&'static str),
}

/// What happens to a call. Without an event, a call takes effect and is answered.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// The call takes effect, and its answer is lost.
    Lost,
    /// The same, and no call reaches the provider until it has forgotten the key.
    LostBeforeOutage,
    /// The call fails inside the provider, without an effect.
    Fails,
    /// The key has been used before, with another body.
    KeyIsUsed,
    /// The provider answers this before it looks at the key.
    Answers(Answer),
}

/// A response.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    /// The status.
    pub(super) status: u16,
    /// The headers.
    pub(super) headers: Vec<(&'static str, String)>,
    /// The body.
    pub(super) body: Value,
}

impl Answer {
    /// A response with this body, a JSON text.
    pub(super) fn new(status: u16, body: &str) -> Self {
        Self { status, headers: Vec::new(), body: serde_json::from_str(body).unwrap() }
    }

    /// The same response with a header.
    pub(super) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }
}

/// What a provider stores under a key.
struct Stored {
    answer: Answer,
    body: Value,
    at: Instant,
}

/// A provider, what happens to its first calls, and what it did.
pub(super) struct Provider {
    rules: Rules,
    events: Vec<Event>,
    stored: BTreeMap<String, Stored>,
    down_until: Option<Instant>,
    /// The calls that it got.
    pub(super) calls: usize,
    /// The calls that took effect.
    pub(super) effects: usize,
}

impl Provider {
    /// A provider with these rules. The first event happens to the first call, and so on.
    pub(super) fn new(rules: Rules, events: Vec<Event>) -> Self {
        Self { rules, events, stored: BTreeMap::new(), down_until: None, calls: 0, effects: 0 }
    }

    /// The answer to a call. `None` if it is lost.
    pub(super) fn call(&mut self, headers: &HeaderMap, body: &Value) -> Option<Answer> {
        let event = self.events.get(self.calls).cloned();
        self.calls += 1;
        if self.down_until.is_some_and(|until| Instant::now() < until) {
            return Some(Answer::new(503, r#"{ "message": "down" }"#));
        }
        if let Some(Event::Answers(answer)) = event {
            return Some(answer);
        }
        let key = self.rules.key.and_then(|place| place.read(headers, body));
        if key.as_ref().is_some_and(|key| key.len() > self.rules.chars_max) {
            return Some(Answer::new(400, r#"{ "message": "the idempotency key is too long" }"#));
        }
        if matches!(event, Some(Event::KeyIsUsed)) {
            self.store(key.as_deref(), &Value::Null, &done());
        }
        if let Some(answer) = key.as_deref().and_then(|key| self.recall(key, body)) {
            return Some(answer);
        }
        self.carry_out(event, key.as_deref(), body)
    }

    /// The answer to a repeated call, if the key is known.
    fn recall(&self, key: &str, body: &Value) -> Option<Answer> {
        let known = self.stored.get(key)?;
        if self.rules.keeps_keys.is_some_and(|time| known.at.elapsed() >= time) {
            return None;
        }
        let other = self.rules.other_body.filter(|_| known.body != *body);
        Some(other.map_or_else(|| known.answer.clone(), |(status, text)| Answer::new(status, text)))
    }

    fn carry_out(
        &mut self,
        event: Option<Event>,
        key: Option<&str>,
        body: &Value,
    ) -> Option<Answer> {
        if matches!(event, Some(Event::Fails)) {
            let error = Answer::new(500, r#"{ "message": "a defect" }"#);
            if self.rules.stores_errors {
                self.store(key, body, &error);
            }
            return Some(error);
        }
        self.effects += 1;
        self.store(key, body, &done());
        match event {
            Some(Event::Lost) => None,
            Some(Event::LostBeforeOutage) => {
                self.down_until = self.rules.keeps_keys.map(|time| Instant::now() + time);
                None
            }
            Some(Event::Fails | Event::KeyIsUsed | Event::Answers(_)) | None => Some(done()),
        }
    }

    fn store(&mut self, key: Option<&str>, body: &Value, answer: &Answer) {
        let stored = || Stored { answer: answer.clone(), body: body.clone(), at: Instant::now() };
        self.stored.extend(key.map(|key| (key.to_owned(), stored())));
    }
}

impl KeyPlace {
    fn read(self, headers: &HeaderMap, body: &Value) -> Option<String> {
        match self {
            Self::Header(name) => Some(headers.get(name)?.to_str().unwrap().to_owned()),
            Self::Field(name) => Some(body.get(name)?.as_str()?.to_owned()),
        }
    }
}

/// The answer to a call that took effect.
fn done() -> Answer {
    Answer { status: 200, headers: Vec::new(), body: json!({ "data": { "id": 1 } }) }
}
