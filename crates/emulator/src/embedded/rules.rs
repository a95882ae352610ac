//! EventBridge's rules in the process: `CreateEventBus`, `PutRule`, `PutTargets`, `RemoveTargets`, `DeleteRule`,
//! `ListRules` and `ListTargetsByRule`. [Patterns](super::event_pattern) have some of EventBridge's matchers; targets are queues.
//! Other targets are refused, so that no test passes because a rule was silently ignored.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    account::{ACCOUNT, REGION},
    event_pattern::EventPattern,
    response::ServiceResponse,
};

/// The most targets of a rule; AWS's limit.
const TARGETS_MAX: usize = 5;

/// The most rules of a bus; AWS's default quota.
const RULES_MAX: usize = 300;

/// The rules of all buses, by bus name and rule name.
#[derive(Debug, Default)]
pub(super) struct Rules(BTreeMap<(String, String), Rule>);

#[derive(Debug)]
struct Rule {
    /// The event pattern as text, as it was given.
    pattern_text: String,
    pattern: EventPattern,
    is_enabled: bool,
    /// The targets by id.
    targets: BTreeMap<String, RuleTarget>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CreateEventBusRequest {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PutRuleRequest {
    name: String,
    event_bus_name: Option<String>,
    event_pattern: String,
    state: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RuleRequest {
    #[serde(alias = "Rule")]
    name: String,
    event_bus_name: Option<String>,
    #[serde(default)]
    targets: Vec<RuleTarget>,
    #[serde(default)]
    ids: Vec<String>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct RuleTarget {
    id: String,
    /// The ARN of a queue.
    arn: String,
    /// Stored and listed, but not used: a delivery fails here only if the queue does not exist.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    dead_letter_config: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListRulesRequest {
    name_prefix: Option<String>,
    event_bus_name: Option<String>,
}

type RuleResult = Result<Value, ServiceResponse>;

impl Rules {
    /// Responds to a request; `None` if the operation is not about rules.
    pub(super) fn respond(&mut self, operation: &str, body: &Bytes) -> Option<ServiceResponse> {
        let result = match operation {
            // Any bus name is accepted, so there is nothing to create.
            "CreateEventBus" => request(body).map(|CreateEventBusRequest { name }| {
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
        Some(result.map_or_else(|error| error, |body| ServiceResponse::ok(body.to_string())))
    }

    /// The URLs of the queues to which an event, with this envelope, is delivered.
    pub(super) fn targets(&self, bus: &str, event: &Value) -> Vec<String> {
        let matching = self.0.iter().filter(|((rule_bus, _), rule)| {
            rule_bus == bus && rule.is_enabled && rule.pattern.matches(event)
        });
        let targets = matching.flat_map(|(_, rule)| rule.targets.values());
        // The queues are looked up by the last part of their URL.
        targets
            .filter_map(|target| target.arn.rsplit(':').next())
            .map(|name| format!("http://sqs/{ACCOUNT}/{name}"))
            .collect()
    }

    fn put_rule(&mut self, request: PutRuleRequest) -> RuleResult {
        let pattern = EventPattern::parse(&request.event_pattern).map_err(|error| {
            let message = format!(
                "Event pattern is not valid, or not supported by the embedded AWS. Reason: {error}"
            );
            ServiceResponse::client_error(400, "InvalidEventPatternException", &message)
        })?;
        let is_enabled = request.state.as_deref() != Some("DISABLED");
        let bus = bus(request.event_bus_name);
        let arn = arn(&bus, &request.name);
        let is_new = !self.0.contains_key(&(bus.clone(), request.name.clone()));
        if is_new && self.0.keys().filter(|(rule_bus, _)| *rule_bus == bus).count() >= RULES_MAX {
            let message = "The requested resource exceeds the maximum number allowed.";
            return Err(ServiceResponse::client_error(400, "LimitExceededException", message));
        }
        let key = (bus, request.name);
        let targets = self.0.remove(&key).map(|rule| rule.targets).unwrap_or_default();
        let pattern_text = request.event_pattern;
        self.0.insert(key, Rule { pattern_text, pattern, is_enabled, targets });
        Ok(json!({ "RuleArn": arn }))
    }

    fn delete_rule(&mut self, request: &RuleRequest) -> RuleResult {
        let key = (bus(request.event_bus_name.clone()), request.name.clone());
        if self.0.get(&key).is_some_and(|rule| !rule.targets.is_empty()) {
            let message = "Rule can't be deleted since it has targets.";
            return Err(ServiceResponse::client_error(400, "ValidationException", message));
        }
        self.0.remove(&key);
        Ok(json!({}))
    }

    fn put_targets(&mut self, request: RuleRequest) -> RuleResult {
        let rule = self.rule(&request)?;
        for target in request.targets {
            if !target.arn.starts_with("arn:aws:sqs:") {
                let message =
                    format!("The embedded AWS supports only queues as targets: {}", target.arn);
                return Err(ServiceResponse::client_error(400, "ValidationException", &message));
            }
            rule.targets.insert(target.id.clone(), target);
        }
        if rule.targets.len() > TARGETS_MAX {
            let message = "The requested resource exceeds the maximum number allowed.";
            return Err(ServiceResponse::client_error(400, "LimitExceededException", message));
        }
        Ok(json!({ "FailedEntryCount": 0, "FailedEntries": [] }))
    }

    fn remove_targets(&mut self, request: &RuleRequest) -> RuleResult {
        let rule = self.rule(request)?;
        rule.targets.retain(|id, _| !request.ids.contains(id));
        Ok(json!({ "FailedEntryCount": 0, "FailedEntries": [] }))
    }

    fn list_rules(&self, request: &ListRulesRequest) -> Value {
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
                    "EventPattern": rule.pattern_text, "State": state,
                })
            })
            .collect();
        json!({ "Rules": rules })
    }

    fn rule(&mut self, request: &RuleRequest) -> Result<&mut Rule, ServiceResponse> {
        let bus = bus(request.event_bus_name.clone());
        let message = format!("Rule {} does not exist on EventBus {bus}.", request.name);
        self.0.get_mut(&(bus, request.name.clone())).ok_or_else(|| {
            ServiceResponse::client_error(400, "ResourceNotFoundException", &message)
        })
    }
}

fn request<T: DeserializeOwned>(body: &Bytes) -> Result<T, ServiceResponse> {
    serde_json::from_slice(body).map_err(|error| {
        ServiceResponse::client_error(400, "SerializationException", &error.to_string())
    })
}

/// The name of a bus that is given by its name or by its ARN, which ends in `event-bus/<name>`.
pub(super) fn bus(name_or_arn: Option<String>) -> String {
    let given = name_or_arn.unwrap_or_else(|| "default".to_owned());
    given.rsplit('/').next().unwrap_or(&given).to_owned()
}

fn arn(bus: &str, rule: &str) -> String {
    format!("arn:aws:events:{REGION}:{ACCOUNT}:rule/{bus}/{rule}")
}
