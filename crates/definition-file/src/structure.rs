//! The structure of a definition against the JSON Schema of the language: every unknown or missing
//! key, wrong type, name, number and duration, in the words of YAML's users.
//!
//! So that what is wrong elsewhere is found in the same run, each mistake is mended on the way as far
//! as that can be guessed: a misspelt key is taken for the one that was meant, what is missing or
//! wrong is replaced by something harmless. A definition that was mended is never used; it is only
//! read for further problems.

use std::sync::LazyLock;
use steward_core::definition::workflow::json_schema;

use jsonschema::{
    ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind as Kind},
    paths::LocationSegment,
};
use serde_json::{Value, json};
use steward_core::{definition::problem::Problem, hint, limits};

use super::{Found, outline::Outline};

/// Mending uncovers what is inside a misspelt key; no more rounds than keys that nest.
const ROUNDS_MAX: usize = 8;

/// Of a text that is quoted in a message.
const QUOTED_CHARS_MAX: usize = 60;

static SCHEMA: LazyLock<Value> = LazyLock::new(json_schema);

/// Nothing only if the schema itself were broken, which a test rules out.
static VALIDATOR: LazyLock<Option<Validator>> =
    LazyLock::new(|| jsonschema::validator_for(&SCHEMA).ok());

/// What is wrong with a definition's structure, and where it was mended.
#[derive(Default)]
pub(super) struct Structure {
    pub(super) found: Vec<Found>,
    mended: Vec<String>,
}

/// One mistake: the place in the definition, what is said, and what would mend it.
struct Mistake {
    at: Vec<String>,
    said: Said,
    mend: Mend,
}

struct Said {
    message: String,
    hint: Option<String>,
}

enum Mend {
    /// The key is not known, perhaps for lack of a letter.
    Key { name: String, meant: Option<String> },
    /// The key is missing.
    Missing(String),
    /// The value is no good.
    Value,
}

/// Finds all that is wrong with the structure of `definition`, and mends it.
pub(super) fn check(definition: &mut Value, outline: &mut Outline) -> Structure {
    let mut structure = Structure::default();
    let Some(validator) = VALIDATOR.as_ref() else { return structure };
    for _ in 0..ROUNDS_MAX {
        let mut mistakes = Vec::new();
        for error in validator.iter_errors(definition) {
            explain(&error, &mut mistakes);
        }
        if mistakes.is_empty() {
            break;
        }
        // From the end, so that the places of the others stay what they are.
        for mistake in mistakes.into_iter().rev() {
            structure.take(mistake, definition, outline);
        }
    }
    structure
}

impl Structure {
    fn take(&mut self, mistake: Mistake, definition: &mut Value, outline: &mut Outline) {
        let Mistake { at, said, mend } = mistake;
        let path = at.join(".");
        let place = match &mend {
            Mend::Key { name, .. } => outline.key(&at, name).or_else(|| outline.place(&path)),
            Mend::Missing(_) | Mend::Value => outline.place(&path),
        };
        let follows = self.mended.iter().any(|mended| is_within(&path, mended));
        if !follows {
            let problem = Problem { at: path.clone(), message: said.message, hint: said.hint };
            self.found.push(Found { problem, place });
        }
        match mend {
            Mend::Key { name, meant } => {
                let Some(Value::Object(keys)) = get_mut(definition, &at) else { return };
                let Some(value) = keys.shift_remove(&name) else { return };
                match meant.filter(|meant| !keys.contains_key(meant)) {
                    Some(meant) => {
                        outline.rename(&at, &name, &meant);
                        keys.insert(meant, value);
                    }
                    None => self.mended.push(join(&path, &name)),
                }
            }
            Mend::Missing(key) => {
                let Some(Value::Object(keys)) = get_mut(definition, &at) else { return };
                if !keys.contains_key(&key) {
                    self.mended.push(join(&path, &key));
                    keys.insert(key.clone(), stand_in(&key).unwrap_or_default());
                }
            }
            Mend::Value => {
                self.mended.push(path);
                replace(definition, &at, outline);
            }
        }
    }

    /// Whether a problem is only the consequence of a mistake that has been told.
    pub(super) fn explains(&self, problem: &Problem) -> bool {
        self.mended.iter().any(|mended| {
            let parent = mended.rsplit_once('.').map_or("", |(parent, _)| parent);
            let of_request = problem.at.strip_suffix(".callback");
            is_within(&problem.at, mended)
                || problem.at == parent
                || of_request.is_some_and(|step| is_within(mended, &join(step, "request")))
        })
    }
}

fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn get_mut<'v>(value: &'v mut Value, at: &[String]) -> Option<&'v mut Value> {
    at.iter().try_fold(value, |here, key| match here {
        Value::Object(keys) => keys.get_mut(key),
        Value::Array(items) => items.get_mut(key.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// Puts something harmless in the place of a value that is no good, or nothing.
fn replace(definition: &mut Value, at: &[String], outline: &mut Outline) {
    let Some((key, parents)) = at.split_last() else { return };
    let is_step = matches!(parents, [steps] if steps == "steps");
    match get_mut(definition, parents) {
        Some(Value::Object(keys))
            if key == "after" && keys.get(key).is_some_and(Value::is_string) =>
        {
            let alone = keys.get(key).cloned();
            keys.insert(key.clone(), alone.into_iter().collect());
        }
        Some(Value::Object(keys)) => {
            match if is_step { stand_in_step() } else { stand_in(key) } {
                Some(value) => keys.insert(key.clone(), value),
                None => keys.shift_remove(key),
            };
        }
        Some(Value::Array(items)) => {
            if let Ok(index) = key.parse::<usize>()
                && index < items.len()
            {
                items.remove(index);
                outline.remove_item(parents, index);
            }
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => {}
    }
}

fn stand_in_step() -> Option<Value> {
    Some(json!({ "agent": "x", "request": { "path": "/" } }))
}

/// What a required key, or one that says what a step does, may be in a definition that is only read on.
fn stand_in(key: &str) -> Option<Value> {
    Some(match key {
        "name" | "agent" | "source" | "detail_type" => json!("x"),
        "version" => json!(1),
        "steps" => json!({ "x": stand_in_step() }),
        "path" => json!("/"),
        "request" => json!({ "path": "/" }),
        "within" => json!("30d"),
        "wait" => json!("1m"),
        "items" => json!("${ input }"),
        "for_each" => json!({ "items": "${ input }" }),
        "callback" => json!({ "within": "30d" }),
        "workflow" => json!({ "name": "x" }),
        _ => return None,
    })
}

/// Says what the validator found, one mistake for each thing to change.
fn explain(error: &ValidationError<'_>, mistakes: &mut Vec<Mistake>) {
    let at = segments(error);
    let mut say = |message: String, hint: Option<String>, mend: Mend| {
        mistakes.push(Mistake { at: at.clone(), said: Said { message, hint }, mend });
    };
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign, non-exhaustive enum")]
    match error.kind() {
        Kind::AdditionalProperties { unexpected } => {
            for name in unexpected {
                let (message, hint, meant) = unknown_key(error, &at, name);
                say(message, hint, Mend::Key { name: name.clone(), meant });
            }
        }
        Kind::Required { property } => {
            let key = property.as_str().unwrap_or_default().to_owned();
            say(format!("missing key `{key}`"), None, Mend::Missing(key));
        }
        // What may be absent is one thing or null: the error is about that thing.
        Kind::AnyOf { context } => {
            let is_other_type = |errors: &&Vec<ValidationError<'static>>| {
                errors.iter().any(|error| is_null_wanted(error.kind()))
            };
            for error in context.iter().filter(|errors| !is_other_type(errors)).flatten() {
                explain(error, mistakes);
            }
        }
        _ => {
            let (message, hint) = wrong_value(error, at.last().map_or("", String::as_str));
            say(message, hint, Mend::Value);
        }
    }
}

fn is_null_wanted(kind: &Kind) -> bool {
    matches!(kind, Kind::Type { kind: TypeKind::Single(jsonschema::JsonType::Null) })
}

fn segments(error: &ValidationError<'_>) -> Vec<String> {
    let path = error.instance_path().iter().map(|segment| match segment {
        LocationSegment::Property(key) => key.to_string(),
        LocationSegment::Index(index) => index.to_string(),
    });
    path.collect()
}

/// The schema that has the keyword that failed.
fn schema_of(error: &ValidationError<'_>) -> &'static Value {
    let path = error.schema_path().to_string();
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    SCHEMA.pointer(parent).unwrap_or(&Value::Null)
}

fn unknown_key(
    error: &ValidationError<'_>,
    at: &[String],
    name: &str,
) -> (String, Option<String>, Option<String>) {
    let quoted = quote(name);
    if matches!(at, [steps] if steps == "steps") {
        let rule = SCHEMA.pointer("/$defs/StepName").unwrap_or(&Value::Null);
        let (message, hint) = wrong_text(rule, &json!(name));
        return (message, hint, None);
    }
    let known = schema_of(error).get("properties").and_then(Value::as_object);
    let known: Vec<_> =
        known.into_iter().flat_map(|keys| keys.keys().map(String::as_str)).collect();
    let meant = hint::similar(name, known.clone()).map(str::to_owned);
    (format!("unknown key {quoted}"), hint::instead_of(name, known), meant)
}

fn quote(text: &str) -> String {
    let shown: String = limits::shorten(text, QUOTED_CHARS_MAX).escape_debug().collect();
    format!("`{shown}`")
}

fn wrong_value(error: &ValidationError<'_>, key: &str) -> (String, Option<String>) {
    let (schema, given) = (schema_of(error), error.instance().as_ref());
    let limit = |name: &str| schema.get(name).map(ToString::to_string).unwrap_or_default();
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign, non-exhaustive enum")]
    match error.kind() {
        Kind::Type { kind } => wrong_type(kind, given, key),
        Kind::Pattern { .. } => wrong_text(schema, given),
        Kind::Enum { options } => one_of(options.as_array().into_iter().flatten(), given),
        Kind::OneOfNotValid { .. } => {
            let options = schema.get("oneOf").and_then(Value::as_array).into_iter().flatten();
            one_of(options.filter_map(|option| option.get("const")), given)
        }
        Kind::Minimum { .. } | Kind::Maximum { .. } => {
            let most = schema.get("maximum").and_then(Value::as_f64);
            match most == Some(f64::from(u32::MAX)) {
                true if matches!(error.kind(), Kind::Minimum { .. }) => {
                    (format!("must be at least {}", limit("minimum")), None)
                }
                true => (format!("must be at most {}", limit("maximum")), None),
                false => {
                    let [min, max] = ["minimum", "maximum"].map(limit);
                    (format!("must be from {} to {}", whole(&min), whole(&max)), None)
                }
            }
        }
        Kind::MinLength { .. } | Kind::MaxLength { .. } => {
            let least = schema.get("minLength").and_then(Value::as_u64).unwrap_or(0);
            (format!("must have from {least} to {} characters", limit("maxLength")), None)
        }
        // Nothing else is in the schema; and this text has no value in it.
        _ => (error.masked_with("it").to_string(), None),
    }
}

/// `10.0` as people write it.
fn whole(number: &str) -> &str {
    number.strip_suffix(".0").unwrap_or(number)
}

fn wrong_type(kind: &TypeKind, given: &Value, key: &str) -> (String, Option<String>) {
    let is = |json: jsonschema::JsonType| match kind {
        TypeKind::Single(one) => *one == json,
        TypeKind::Multiple(several) => several.contains(json),
    };
    let wanted = [
        (jsonschema::JsonType::Object, "keys with values"),
        (jsonschema::JsonType::Array, "a list"),
        (jsonschema::JsonType::Integer, "a whole number"),
        (jsonschema::JsonType::Number, "a number"),
        (jsonschema::JsonType::String, "a text"),
        (jsonschema::JsonType::Boolean, "`true` or `false`"),
    ];
    let wanted: Vec<_> =
        wanted.iter().filter(|(json, _)| is(*json)).map(|(_, text)| *text).collect();
    let given = match given {
        Value::Null => "nothing",
        Value::Bool(_) => "`true` or `false`",
        Value::Number(number) if number.is_f64() && !is(jsonschema::JsonType::Number) => {
            "a fraction"
        }
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "keys with values",
    };
    let hint = match (is(jsonschema::JsonType::Array), key, given) {
        (true, ..) => Some("write it as `[a, b]`".to_owned()),
        (
            false,
            "complete_within" | "within" | "heartbeat" | "retention" | "first" | "max" | "wait",
            "a number",
        ) => Some("a duration has a unit, as `90s` or `15m`".to_owned()),
        (false, ..) => None,
    };
    (format!("must be {}, not {given}", wanted.join(" or ")), hint)
}

/// A name, or a duration.
fn wrong_text(schema: &Value, given: &Value) -> (String, Option<String>) {
    let text = given.as_str().unwrap_or_default();
    let rule = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    if SCHEMA.pointer("/$defs/Duration/pattern") == schema.get("pattern") {
        let units = "write a number and its unit, as `90s`, `15m`, `2h`, `1d 12h`".to_owned();
        return (format!("{} is not a duration", quote(text)), Some(units));
    }
    let mended = text.to_lowercase().replace([' ', '-'], "_");
    let pattern = schema.get("pattern").and_then(Value::as_str).unwrap_or_default();
    let fits = jsonschema::validator_for(&json!({ "pattern": pattern }))
        .is_ok_and(|validator| validator.is_valid(&json!(mended)));
    let hint = (fits && mended.len() <= limits::NAME_CHARS_MAX)
        .then(|| format!("did you mean {}?", quote(&mended)));
    (format!("{} is not a valid name: {rule}", quote(text)), hint)
}

fn one_of<'v>(options: impl Iterator<Item = &'v Value>, given: &Value) -> (String, Option<String>) {
    let options: Vec<_> = options.filter_map(Value::as_str).collect();
    let text = given.as_str().unwrap_or_default();
    let known = options.iter().map(|option| format!("`{option}`")).collect::<Vec<_>>().join(", ");
    let same = options.iter().find(|option| option.eq_ignore_ascii_case(text)).copied();
    let meant = same.or_else(|| hint::similar(text, options.iter().copied()));
    let hint = meant.map(|meant| format!("did you mean `{meant}`?"));
    (format!("must be one of {known}"), hint)
}
