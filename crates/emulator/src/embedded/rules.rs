//! EventBridge's rules in the process: `CreateEventBus`, `PutRule`, `PutTargets`, `RemoveTargets`, `DeleteRule`,
//! `ListRules` and `ListTargetsByRule`, for rules whose patterns name exact sources and detail-types,
//! and whose targets are queues.
//!
//! What the real one would take and this one does not know (other keys of a pattern, other matchers,
//! other targets) is refused, so that no test passes for want of a rule.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::answer::Answer;
use super::{ACCOUNT, REGION};

/// Targets of one rule; AWS's limit.
const TARGETS_MAX: usize = 5;

/// Rules of one bus, unless the account's quota was raised.
const RULES_MAX: usize = 300;

/// The rules of all buses, by bus and name.
#[derive(Debug, Default)]
pub(super) struct Rules(BTreeMap<(String, String), Rule>);

#[derive(Debug)]
struct Rule {
    /// As it was given.
    pattern: String,
    matches: Pattern,
    is_enabled: bool,
    /// By their ids.
    targets: BTreeMap<String, Target>,
}

/// Exact texts; a key that is absent matches any.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pattern {
    source: Option<Vec<String>>,
    #[serde(rename = "detail-type")]
    detail_type: Option<Vec<String>>,
}

impl Pattern {
    fn matches(&self, source: &str, detail_type: &str) -> bool {
        let names = |texts: &Option<Vec<String>>, text: &str| {
            texts.as_ref().is_none_or(|texts| texts.iter().any(|wanted| wanted == text))
        };
        names(&self.source, source) && names(&self.detail_type, detail_type)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NewBus {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PutRule {
    name: String,
    event_bus_name: Option<String>,
    event_pattern: String,
    state: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct OfRule {
    #[serde(alias = "Rule")]
    name: String,
    event_bus_name: Option<String>,
    #[serde(default)]
    targets: Vec<Target>,
    #[serde(default)]
    ids: Vec<String>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Target {
    id: String,
    /// A queue's.
    arn: String,
    /// Kept and listed; a delivery fails here only if the queue is not there.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    dead_letter_config: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListRules {
    name_prefix: Option<String>,
    event_bus_name: Option<String>,
}

type Answered = Result<Value, Answer>;

impl Rules {
    /// Answers a request, if it is about rules.
    pub(super) fn answer(&mut self, operation: &str, body: &Bytes) -> Option<Answer> {
        let answered = match operation {
            // A bus is there as soon as it is named.
            "CreateEventBus" => request(body).map(|NewBus { name }| {
                json!({ "EventBusArn": format!("arn:aws:events:{REGION}:{ACCOUNT}:event-bus/{name}") })
            }),
            "PutRule" => request(body).and_then(|request| self.put_rule(request)),
            "DeleteRule" => request(body).and_then(|request| self.delete_rule(&request)),
            "PutTargets" => request(body).and_then(|request| self.put_targets(request)),
            "RemoveTargets" => request(body).and_then(|request| self.remove_targets(&request)),
            "ListTargetsByRule" => request(body).and_then(|request| {
                let targets = &self.rule(&request)?.targets;
                Ok(json!({ "Targets": targets.values().collect::<Vec<_>>() }))
            }),
            "ListRules" => request(body).map(|request| self.list_rules(&request)),
            _ => return None,
        };
        Some(answered.map_or_else(|refused| refused, |answer| Answer::ok(answer.to_string())))
    }

    /// The queues, by URL, that get an event.
    pub(super) fn targets(&self, bus: &str, source: &str, detail_type: &str) -> Vec<String> {
        let matching = self.0.iter().filter(|((of, _), rule)| {
            of == bus && rule.is_enabled && rule.matches.matches(source, detail_type)
        });
        let targets = matching.flat_map(|(_, rule)| rule.targets.values());
        // The queues go by the last part of their URL.
        targets
            .filter_map(|target| target.arn.rsplit(':').next())
            .map(|name| format!("http://sqs/{ACCOUNT}/{name}"))
            .collect()
    }

    fn put_rule(&mut self, request: PutRule) -> Answered {
        let matches = serde_json::from_str(&request.event_pattern).map_err(|error| {
            let message = format!("Event pattern is not valid, or not known here. Reason: {error}");
            Answer::refused(400, "InvalidEventPatternException", &message)
        })?;
        let is_enabled = request.state.as_deref() != Some("DISABLED");
        let bus = bus(request.event_bus_name);
        let arn = arn(&bus, &request.name);
        let targets = BTreeMap::new();
        let is_new = !self.0.contains_key(&(bus.clone(), request.name.clone()));
        if is_new && self.0.keys().filter(|(of, _)| *of == bus).count() >= RULES_MAX {
            let message = "The requested resource exceeds the maximum number allowed.";
            return Err(Answer::refused(400, "LimitExceededException", message));
        }
        let rule = self.0.entry((bus, request.name)).or_insert_with(|| Rule {
            pattern: String::new(),
            matches: Pattern { source: None, detail_type: None },
            is_enabled,
            targets,
        });
        (rule.pattern, rule.matches, rule.is_enabled) =
            (request.event_pattern, matches, is_enabled);
        Ok(json!({ "RuleArn": arn }))
    }

    fn delete_rule(&mut self, request: &OfRule) -> Answered {
        let key = (bus(request.event_bus_name.clone()), request.name.clone());
        if self.0.get(&key).is_some_and(|rule| !rule.targets.is_empty()) {
            let message = "Rule can't be deleted since it has targets.";
            return Err(Answer::refused(400, "ValidationException", message));
        }
        self.0.remove(&key);
        Ok(json!({}))
    }

    fn put_targets(&mut self, request: OfRule) -> Answered {
        let rule = self.rule(&request)?;
        for target in request.targets {
            if !target.arn.starts_with("arn:aws:sqs:") {
                let message =
                    format!("The embedded AWS knows no targets but queues: {}", target.arn);
                return Err(Answer::refused(400, "ValidationException", &message));
            }
            rule.targets.insert(target.id.clone(), target);
        }
        if rule.targets.len() > TARGETS_MAX {
            let message = "The requested resource exceeds the maximum number allowed.";
            return Err(Answer::refused(400, "LimitExceededException", message));
        }
        Ok(json!({ "FailedEntryCount": 0, "FailedEntries": [] }))
    }

    fn remove_targets(&mut self, request: &OfRule) -> Answered {
        let rule = self.rule(request)?;
        rule.targets.retain(|id, _| !request.ids.contains(id));
        Ok(json!({ "FailedEntryCount": 0, "FailedEntries": [] }))
    }

    fn list_rules(&self, request: &ListRules) -> Value {
        let (wanted, prefix) =
            (bus(request.event_bus_name.clone()), request.name_prefix.as_deref());
        let listed = self.0.iter().filter(|((bus, name), _)| {
            *bus == wanted && name.starts_with(prefix.unwrap_or_default())
        });
        let rules: Vec<_> = listed
            .map(|((bus, name), rule)| {
                let state = if rule.is_enabled { "ENABLED" } else { "DISABLED" };
                json!({
                    "Name": name, "Arn": arn(bus, name), "EventBusName": bus,
                    "EventPattern": rule.pattern, "State": state,
                })
            })
            .collect();
        json!({ "Rules": rules })
    }

    fn rule(&mut self, request: &OfRule) -> Result<&mut Rule, Answer> {
        let bus = bus(request.event_bus_name.clone());
        let message = format!("Rule {} does not exist on EventBus {bus}.", request.name);
        self.0
            .get_mut(&(bus, request.name.clone()))
            .ok_or_else(|| Answer::refused(400, "ResourceNotFoundException", &message))
    }
}

fn request<T: DeserializeOwned>(body: &Bytes) -> Result<T, Answer> {
    serde_json::from_slice(body)
        .map_err(|error| Answer::refused(400, "SerializationException", &error.to_string()))
}

/// A bus by its name: it may be given by its ARN, which ends in `event-bus/<name>`.
pub(super) fn bus(name_or_arn: Option<String>) -> String {
    let given = name_or_arn.unwrap_or_else(|| "default".to_owned());
    given.rsplit('/').next().unwrap_or(&given).to_owned()
}

fn arn(bus: &str, rule: &str) -> String {
    format!("arn:aws:events:{REGION}:{ACCOUNT}:rule/{bus}/{rule}")
}
