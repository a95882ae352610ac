//! Durations in the human-readable format of definitions: `90s`, `15m`, `1d 12h`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

use crate::limits;

/// The JSON Schema of a duration in definitions.
pub struct Text;

impl schemars::JsonSchema for Text {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let units = "ns|us|ms|s|secs?|m|mins?|h|hrs?|hours?|d|days?|w|weeks?|months?|y|years?";
        let one = format!("[0-9]{{1,9}}(\\.[0-9]{{1,9}})? ?({units})");
        schemars::json_schema!({
            "type": "string",
            "description": "A duration, such as `90s`, `15m` or `1d 12h`",
            "pattern": format!("^{one}( ?{one})*$"),
            "maxLength": limits::DURATION_CHARS_MAX,
        })
    }
}

pub(crate) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&humantime::format_duration(*duration))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("duration `{text}`: {error}"))
}

/// Serialisation of an optional duration.
pub(crate) mod optional {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, to),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| super::parse(&text)).transpose().map_err(serde::de::Error::custom)
    }
}
