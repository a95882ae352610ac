//! Signed webhooks of other services. A service that cannot be taught the signed URL of a callback signs the body of its own
//! request with a shared secret. A verified webhook becomes an event on the event bus.
//!
//! | scheme | header | signed text | used by |
//! | --- | --- | --- | --- |
//! | `timestamped` | `t=SECONDS,v1=HEX[,v1=HEX…]` | `SECONDS.BODY` | Stripe (`Stripe-Signature`), and others after it |
//! | `body` | `sha256=HEX` | `BODY` | GitHub (`X-Hub-Signature-256`), and others after it |
//!
//! Both are HMAC-SHA256, compared in constant time. Sources:
//! <https://docs.stripe.com/webhooks#verify-manually>,
//! <https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries>.
//!
//! Only the body is signed, so everything in the event comes from the configuration or from the body, and nothing from other
//! headers.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    definition::duration,
    limits,
    model::{events::EVENT_SOURCE, integers::check_integers, messages::mistake, time::later},
};

mod receipt;
#[cfg(test)]
mod tests;

pub use receipt::{WebhookClaim, WebhookReceipt};

/// The path of a webhook, before its name.
pub const WEBHOOKS_PATH: &str = "/webhooks/";

/// How far the time in a signature may be from now, unless the configuration says otherwise.
const TOLERANCE: Duration = Duration::from_secs(300);

/// The webhooks that a deployment accepts, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Webhooks(BTreeMap<String, Webhook>);

/// A webhook that a deployment accepts: how it is signed, and which event it becomes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// The header with the signature.
    header: String,
    /// What is signed.
    scheme: Scheme,
    /// How far the time in the signature may be from now. Only for `timestamped`.
    #[serde(default, with = "optional_duration")]
    tolerance: Option<Duration>,
    /// The source of the event.
    source: String,
    /// The detail-type of the event. Either this or `detail_type_from`.
    detail_type: Option<String>,
    /// Where the body has the detail-type of the event: a JSON pointer, such as `/type`.
    detail_type_from: Option<String>,
    /// Where the body has the id of the webhook: a JSON pointer. Without it, equal bodies are the same webhook.
    id_from: Option<String>,
}

/// What a signature covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scheme {
    /// The time and the body.
    Timestamped,
    /// The body.
    Body,
}

/// The secrets of the webhooks, by name of the webhook. All secrets of a webhook verify, so that one can be replaced.
#[derive(Clone, Default)]
pub struct WebhookSecrets(BTreeMap<String, Vec<Hmac<Sha256>>>);

/// Why a configuration of webhooks is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {reason}")]
pub struct InvalidWebhooks {
    at: String,
    reason: String,
}

/// Why a text does not contain the secrets of webhooks. The error contains no part of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the secrets of webhooks are not a JSON object with a list of 1 to {count} texts of {min} to {max} bytes for each webhook",
    count = limits::WEBHOOK_SECRETS_MAX,
    min = limits::WEBHOOK_SECRET_BYTES_MIN,
    max = limits::WEBHOOK_SECRET_BYTES_MAX
)]
pub struct InvalidWebhookSecrets;

/// Why the signature of a webhook is refused. Nothing of the request is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureRefusal {
    /// The header is missing, or occurs twice.
    #[error("the request does not have exactly one header `{0}`")]
    Missing(String),
    /// The header does not have the form of a signature.
    #[error("the header `{0}` does not contain a signature of the configured scheme")]
    Malformed(String),
    /// No secret gives any of its signatures.
    #[error("the signature belongs to another body or to another secret")]
    Wrong,
    /// The signature is right, but too old or too new.
    #[error("the signature was created more than {} s before or after now", .0.as_secs())]
    OutsideTolerance(Duration),
}

/// The event that a webhook becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookEvent {
    /// Its source.
    pub source: String,
    /// Its detail-type.
    pub detail_type: String,
    /// Its detail: the body, unchanged.
    pub detail: String,
    /// A hash of the id of the webhook. The same webhook has the same one whenever it is sent.
    pub id_hash: String,
}

impl Webhooks {
    /// The webhooks that have no secret, so that no signature of theirs is right.
    pub fn without_secret(&self, secrets: &WebhookSecrets) -> Vec<&str> {
        let names = self.0.keys().map(String::as_str);
        names.filter(|name| !secrets.0.contains_key(*name)).collect()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The webhook with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Webhook> {
        self.0.get(name)
    }

    /// The names of all.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl FromStr for Webhooks {
    type Err = InvalidWebhooks;

    /// Reads the configuration from a JSON object of webhooks by name. An empty text has none.
    fn from_str(text: &str) -> Result<Self, InvalidWebhooks> {
        let invalid = |at: &str, reason: String| InvalidWebhooks { at: at.to_owned(), reason };
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let webhooks: BTreeMap<String, Webhook> =
            serde_json::from_str(text).map_err(|error| invalid("webhooks", mistake(&error)))?;
        if webhooks.len() > limits::WEBHOOKS_MAX {
            let reason = format!("more than {} webhooks", limits::WEBHOOKS_MAX);
            return Err(invalid("webhooks", reason));
        }
        for (name, webhook) in &webhooks {
            check_name(name).map_err(|reason| invalid("webhooks", reason))?;
            webhook.check().map_err(|reason| invalid(&format!("webhook `{name}`"), reason))?;
        }
        Ok(Self(webhooks))
    }
}

impl Webhook {
    /// The header with the signature.
    #[must_use]
    pub fn header(&self) -> &str {
        &self.header
    }

    /// Verifies a webhook. `signatures` are the values of its header, and `body` is its body as it was received.
    ///
    /// # Errors
    /// The signature is missing, malformed, wrong, or too old.
    pub fn verify(
        &self,
        secrets: &WebhookSecrets,
        name: &str,
        signatures: &[&str],
        body: &[u8],
        now: Timestamp,
    ) -> Result<(), SignatureRefusal> {
        let [signature] = signatures else {
            return Err(SignatureRefusal::Missing(self.header.clone()));
        };
        let signature = Signature::parse(self.scheme, signature)
            .ok_or_else(|| SignatureRefusal::Malformed(self.header.clone()))?;
        let keys = secrets.0.get(name).map(Vec::as_slice).unwrap_or_default();
        let is_signed = keys.iter().any(|key| {
            let mac = key.clone().chain_update(&signature.prefix).chain_update(body);
            // Compares in constant time.
            signature.macs.iter().any(|signed| mac.clone().verify_slice(signed).is_ok())
        });
        if !is_signed {
            return Err(SignatureRefusal::Wrong);
        }
        let tolerance = self.tolerance.unwrap_or(TOLERANCE);
        match signature.at {
            Some(at) if at < later(now, tolerance) && now < later(at, tolerance) => Ok(()),
            Some(_) => Err(SignatureRefusal::OutsideTolerance(tolerance)),
            None => Ok(()),
        }
    }

    /// The event that a verified webhook becomes.
    ///
    /// # Errors
    /// What is wrong with the body, without any value of it.
    pub fn event(&self, body: &[u8]) -> Result<WebhookEvent, String> {
        let text = str::from_utf8(body).map_err(|_| "the body is not UTF-8".to_owned())?;
        let content: Value = serde_json::from_str(text)
            .map_err(|error| format!("the body is not JSON: {}", mistake(&error)))?;
        if !content.is_object() {
            return Err("the body is not a JSON object".to_owned());
        }
        check_integers(text).map_err(|error| format!("the body has {error}"))?;
        if limits::nests_too_deep(&content) {
            return Err(format!("the body nests deeper than {} levels", limits::JSON_DEPTH_MAX));
        }
        let detail_type = match (&self.detail_type, &self.detail_type_from) {
            (Some(fixed), _) => fixed.clone(),
            (None, Some(pointer)) => text_at(&content, pointer)?,
            (None, None) => return Err("no detail-type is configured".to_owned()),
        };
        let id = self.id_from.as_ref().map(|pointer| text_at(&content, pointer)).transpose()?;
        let id_hash = match id {
            Some(id) => hash(&[b"id", id.as_bytes()]),
            None => hash(&[b"body", body]),
        };
        let (source, detail) = (self.source.clone(), text.to_owned());
        Ok(WebhookEvent { source, detail_type, detail, id_hash })
    }

    fn check(&self) -> Result<(), String> {
        let max = limits::EVENT_TEXT_CHARS_MAX;
        let is_text = |text: &str| (1..=max).contains(&text.chars().count());
        let token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !is_text(&self.header) || !self.header.bytes().all(token) {
            return Err("`header` is not the name of a header".to_owned());
        }
        if !is_text(&self.source) || !self.detail_type.as_deref().is_none_or(is_text) {
            return Err(format!("`source` and `detail_type` have from 1 to {max} characters"));
        }
        if self.source == EVENT_SOURCE || self.source.starts_with("aws.") {
            return Err(format!(
                "`source` must not be `{EVENT_SOURCE}`, whose events are alerts, and must not begin with `aws.`"
            ));
        }
        if self.detail_type.is_some() == self.detail_type_from.is_some() {
            return Err("give either `detail_type` or `detail_type_from`".to_owned());
        }
        let mut pointers = self.detail_type_from.iter().chain(&self.id_from);
        if !pointers.all(|pointer| is_text(pointer) && pointer.starts_with('/')) {
            return Err(
                "`detail_type_from` and `id_from` are JSON pointers, such as `/id`".to_owned()
            );
        }
        let longest = limits::WEBHOOK_TOLERANCE_MAX;
        match (self.scheme, self.tolerance) {
            (Scheme::Body, Some(_)) => {
                Err("`tolerance` is only for the scheme `timestamped`".to_owned())
            }
            (Scheme::Timestamped, Some(tolerance))
                if tolerance.is_zero() || tolerance > longest =>
            {
                Err(format!("`tolerance` must be more than 0s and at most {}s", longest.as_secs()))
            }
            (Scheme::Timestamped | Scheme::Body, _) => Ok(()),
        }
    }
}

/// A signature as the header has it.
struct Signature {
    /// When it was created.
    at: Option<Timestamp>,
    /// What is signed before the body.
    prefix: String,
    /// Any of these may be right.
    macs: Vec<Vec<u8>>,
}

impl Signature {
    fn parse(scheme: Scheme, text: &str) -> Option<Self> {
        if text.len() > limits::WEBHOOK_SIGNATURE_CHARS_MAX {
            return None;
        }
        match scheme {
            Scheme::Body => {
                let mac = unhex(text.strip_prefix("sha256=")?)?;
                Some(Self { at: None, prefix: String::new(), macs: vec![mac] })
            }
            Scheme::Timestamped => {
                let fields = text.split(',').map(|field| field.trim().split_once('='));
                let fields: Vec<_> = fields.collect::<Option<_>>()?;
                let of = |name: &'static str| {
                    fields.iter().filter(move |(key, _)| *key == name).map(|(_, value)| *value)
                };
                let mut times = of("t");
                let (Some(time), None) = (times.next(), times.next()) else { return None };
                let seconds: i64 = time.parse().ok()?;
                let macs: Vec<_> = of("v1").filter_map(unhex).collect();
                let at = Timestamp::from_second(seconds).ok()?;
                let is_valid = (1..=limits::WEBHOOK_SIGNATURES_MAX).contains(&macs.len());
                is_valid.then(|| Self { at: Some(at), prefix: format!("{time}."), macs })
            }
        }
    }
}

impl FromStr for WebhookSecrets {
    type Err = InvalidWebhookSecrets;

    /// Reads the secrets from a JSON object such as `{ "payments": ["…"] }`.
    fn from_str(text: &str) -> Result<Self, InvalidWebhookSecrets> {
        let secrets: BTreeMap<String, Vec<String>> =
            serde_json::from_str(text).map_err(|_| InvalidWebhookSecrets)?;
        let (min, max) = (limits::WEBHOOK_SECRET_BYTES_MIN, limits::WEBHOOK_SECRET_BYTES_MAX);
        let keys_of = |secrets: Vec<String>| {
            let is_valid = (1..=limits::WEBHOOK_SECRETS_MAX).contains(&secrets.len())
                && secrets.iter().all(|secret| (min..=max).contains(&secret.len()));
            let keys = secrets.iter().map(|secret| Hmac::new_from_slice(secret.as_bytes()));
            keys.collect::<Result<Vec<_>, _>>().ok().filter(|_| is_valid)
        };
        let all = secrets.into_iter().map(|(name, secrets)| Some((name, keys_of(secrets)?)));
        all.collect::<Option<_>>().map(Self).ok_or(InvalidWebhookSecrets)
    }
}

/// The secrets are not printed.
impl fmt::Debug for WebhookSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WebhookSecrets").field(&self.0.keys().collect::<Vec<_>>()).finish()
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let max = limits::NAME_CHARS_MAX;
    let is_valid = (1..=max).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let rule =
        || format!("`{name}` is no name of a webhook: a-z, 0-9 and `-`, at most {max} characters");
    is_valid.then_some(()).ok_or_else(rule)
}

/// The text or the integer at a place of the body.
fn text_at(content: &Value, pointer: &str) -> Result<String, String> {
    let text = match content.pointer(pointer) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) if !number.is_f64() => Some(number.to_string()),
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_),
        )
        | None => None,
    };
    let max = limits::EVENT_TEXT_CHARS_MAX;
    text.filter(|text| (1..=max).contains(&text.chars().count())).ok_or_else(|| {
        format!("the body has no text of 1 to {max} characters and no integer at `{pointer}`")
    })
}

fn hash(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of an HMAC-SHA256 in hexadecimal digits.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<_>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == 64)?;
    let byte = |pair: &[u32]| match pair {
        [high, low] => u8::try_from(high * 16 + low).ok(),
        _ => None,
    };
    digits.chunks(2).map(byte).collect()
}

/// A duration as text, or none.
mod optional_duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer};

    use super::duration;

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        #[derive(Deserialize)]
        struct Text(#[serde(with = "duration")] Duration);
        Ok(Option::<Text>::deserialize(from)?.map(|Text(duration)| duration))
    }
}
