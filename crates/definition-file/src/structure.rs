//! Validates the structure of a definition with the JSON Schema of the language: unknown and missing keys,
//! and invalid types, names, numbers and durations.
//!
//! To find further problems in the same run, this module repairs each violation: it renames a misspelt key to
//! the most similar known key, and replaces a missing or invalid value by a valid placeholder. A repaired
//! definition is never used. It is only checked for further problems.

use std::{collections::BTreeSet, sync::LazyLock};

use jsonschema::{
    ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind as Kind},
    paths::LocationSegment,
};
use serde_json::{Value, json};
use steward_core::{
    definition::{problem::DefinitionProblem, workflow::json_schema},
    hint, limits,
};

use super::{location::LocatedProblem, source_map::SourceMap};

/// The maximum number of validations. Renaming a misspelt key makes its value visible to the next validation;
/// definitions do not nest deeper than this.
const ROUNDS_MAX: usize = 8;

/// The maximum length of a text that a message quotes.
const QUOTED_CHARS_MAX: usize = 60;

/// The format of workflow definitions.
pub(super) static DEFINITIONS: LazyLock<FileFormat> =
    LazyLock::new(|| FileFormat::new(json_schema()));

/// A format of YAML files, by its JSON Schema.
#[derive(Debug)]
pub struct FileFormat {
    schema: Value,
    /// `None` only if the schema itself were invalid. Tests check that it is valid.
    validator: Option<Validator>,
}

impl FileFormat {
    /// The format that a JSON Schema describes. The schema must use only the keywords that Steward's types produce.
    #[must_use]
    pub fn new(schema: Value) -> Self {
        Self { validator: jsonschema::validator_for(&schema).ok(), schema }
    }
}

/// The result of the validation.
#[derive(Default)]
pub(super) struct StructureReport {
    pub(super) problems: Vec<LocatedProblem>,
    /// The paths of values that were replaced or removed.
    repaired: Vec<String>,
}

/// One violation of the schema: its path in the definition, its text, and how to repair it.
struct Violation {
    path: Vec<String>,
    text: ViolationText,
    repair: Repair,
}

struct ViolationText {
    message: String,
    hint: Option<String>,
}

enum Repair {
    /// The key is unknown: rename it to `similar`, or remove it.
    RenameKey { name: String, similar: Option<String> },
    /// The key is missing: insert it with a placeholder.
    InsertKey(String),
    /// The value is invalid: replace it by a placeholder, or remove it.
    ReplaceValue,
}

/// Finds the violations of the schema in `definition`, and repairs it. Stops at one more than
/// [`PROBLEMS_MAX`](limits::PROBLEMS_MAX): to compare each with all others would take minutes in the largest file.
pub(super) fn check(
    format: &FileFormat,
    definition: &mut Value,
    source_map: &mut SourceMap,
) -> StructureReport {
    let mut report = StructureReport::default();
    let Some(validator) = format.validator.as_ref() else { return report };
    for _ in 0..ROUNDS_MAX {
        let mut violations = Vec::new();
        for error in validator.iter_errors(definition) {
            explain(format, &error, &mut violations);
            if violations.len() > limits::PROBLEMS_MAX {
                break;
            }
        }
        violations.truncate(limits::PROBLEMS_MAX + 1);
        if violations.is_empty() {
            break;
        }
        // In reverse order, so that removed list items do not change the paths of the other violations.
        for violation in violations.into_iter().rev() {
            report.add(violation, definition, source_map);
        }
        if report.is_full() {
            break;
        }
    }
    report
}

impl StructureReport {
    /// Whether there are more problems than a check reports.
    pub(super) fn is_full(&self) -> bool {
        self.problems.len() > limits::PROBLEMS_MAX
    }

    /// Reports a violation and repairs it.
    fn add(&mut self, violation: Violation, definition: &mut Value, source_map: &mut SourceMap) {
        let Violation { path: keys, text, repair } = violation;
        let path = keys.join(".");
        let location = match &repair {
            Repair::RenameKey { name, .. } => {
                source_map.key_location(&keys, name).or_else(|| source_map.location(&path))
            }
            Repair::InsertKey(_) | Repair::ReplaceValue => source_map.location(&path),
        };
        // An invalid value without a placeholder was removed, so its key is missing now.
        let removed = match &repair {
            Repair::InsertKey(key) => Some(join(&path, key)),
            Repair::RenameKey { .. } | Repair::ReplaceValue => None,
        };
        let is_consequence = self.repaired.iter().any(|repaired| {
            is_within(&path, repaired) || removed.as_ref().is_some_and(|key| key == repaired)
        });
        if !is_consequence {
            let problem =
                DefinitionProblem { at: path.clone(), message: text.message, hint: text.hint };
            self.problems.push(LocatedProblem { problem, location });
        }
        match repair {
            Repair::RenameKey { name, similar } => {
                let Some(Value::Object(fields)) = get_mut(definition, &keys) else { return };
                let Some(value) = fields.shift_remove(&name) else { return };
                match similar.filter(|similar| !fields.contains_key(similar)) {
                    Some(similar) => {
                        source_map.rename(&keys, &name, &similar);
                        fields.insert(similar, value);
                    }
                    None => self.repaired.push(join(&path, &name)),
                }
            }
            Repair::InsertKey(key) => {
                let Some(Value::Object(fields)) = get_mut(definition, &keys) else { return };
                if !fields.contains_key(&key) {
                    self.repaired.push(join(&path, &key));
                    fields.insert(key.clone(), placeholder(&key).unwrap_or_default());
                }
            }
            Repair::ReplaceValue => {
                self.repaired.push(path);
                replace(definition, &keys, source_map);
            }
        }
    }

    /// Whether a problem is only a consequence of a violation that was reported.
    pub(super) fn is_consequence(&self, problem: &DefinitionProblem) -> bool {
        self.repaired.iter().any(|repaired| {
            let parent = repaired.rsplit_once('.').map_or("", |(parent, _)| parent);
            let step_of_callback = problem.at.strip_suffix(".callback");
            is_within(&problem.at, repaired)
                || problem.at == parent
                || step_of_callback.is_some_and(|step| is_within(repaired, &join(step, "request")))
        })
    }
}

fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn get_mut<'v>(value: &'v mut Value, path: &[String]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, key| match value {
        Value::Object(keys) => keys.get_mut(key),
        Value::Array(items) => items.get_mut(key.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// Replaces an invalid value by a placeholder, or removes it.
fn replace(definition: &mut Value, path: &[String], source_map: &mut SourceMap) {
    let Some((key, parents)) = path.split_last() else { return };
    let is_step = matches!(parents, [steps] if steps == "steps");
    match get_mut(definition, parents) {
        Some(Value::Object(keys))
            if key == "after" && keys.get(key).is_some_and(Value::is_string) =>
        {
            let name = keys.get(key).cloned();
            keys.insert(key.clone(), name.into_iter().collect());
        }
        Some(Value::Object(keys)) => {
            match if is_step { placeholder_step() } else { placeholder(key) } {
                Some(value) => keys.insert(key.clone(), value),
                None => keys.shift_remove(key),
            };
        }
        Some(Value::Array(items)) => {
            if let Ok(index) = key.parse::<usize>()
                && index < items.len()
            {
                items.remove(index);
                source_map.remove_item(parents, index);
            }
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => {}
    }
}

fn placeholder_step() -> Option<Value> {
    Some(json!({ "agent": "x", "request": { "path": "/" } }))
}

/// A valid value for a required key, or for a key that determines the kind of a step.
fn placeholder(key: &str) -> Option<Value> {
    Some(match key {
        "name" | "agent" | "source" | "detail_type" => json!("x"),
        "version" => json!(1),
        "steps" => json!({ "x": placeholder_step() }),
        "path" => json!("/"),
        "aws" => json!("dynamodb:PutItem"),
        "request" => json!({ "path": "/" }),
        "within" => json!("30d"),
        "wait" => json!("1m"),
        "items" => json!("${ input }"),
        "for_each" => json!({ "items": "${ input }" }),
        "until" => json!("${ item == null }"),
        "at_most" => json!(1),
        "repeat" => json!({ "until": "${ item == null }", "at_most": 1 }),
        "callback" => json!({ "within": "30d" }),
        "workflow" => json!({ "name": "x" }),
        _ => return None,
    })
}

/// Translates a validation error into violations, one for each change that the author has to make.
fn explain(format: &FileFormat, error: &ValidationError<'_>, violations: &mut Vec<Violation>) {
    let path = segments(error);
    let mut add = |message: String, hint: Option<String>, repair: Repair| {
        let text = ViolationText { message, hint };
        violations.push(Violation { path: path.clone(), text, repair });
    };
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign, non-exhaustive enum")]
    match error.kind() {
        Kind::AdditionalProperties { unexpected } => {
            for name in unexpected.iter().take(limits::PROBLEMS_MAX + 1) {
                let (message, hint, similar) = unknown_key(format, error, &path, name);
                add(message, hint, Repair::RenameKey { name: name.clone(), similar });
            }
        }
        Kind::Required { property } => {
            let key = property.as_str().unwrap_or_default().to_owned();
            add(format!("missing key `{key}`"), None, Repair::InsertKey(key));
        }
        // An optional value is a type or null. The error is about the type. A value with a short and a long form is a
        // string or a mapping. The error is about the form that the author chose, or else about both.
        Kind::AnyOf { context } => {
            let is_null = |errors: &&Vec<ValidationError<'static>>| {
                errors.iter().any(|error| is_null_wanted(error.kind()))
            };
            let is_other_form = |errors: &Vec<ValidationError<'static>>| {
                let of_value =
                    |of: &ValidationError<'_>| of.instance_path() == error.instance_path();
                // A name is a string.
                let is_no_name = !error.instance().is_string();
                let is_of_form = |kind: &Kind| match kind {
                    Kind::Type { .. } => true,
                    Kind::OneOfNotValid { .. } => is_no_name,
                    _ => false,
                };
                errors.iter().any(|of| of_value(of) && is_of_form(of.kind()))
            };
            let forms: Vec<_> = context.iter().filter(|errors| !is_null(errors)).collect();
            let chosen = forms.iter().any(|errors| !is_other_form(errors));
            for error in
                forms.iter().filter(|errors| !chosen || !is_other_form(errors)).copied().flatten()
            {
                explain(format, error, violations);
            }
        }
        _ => {
            let (message, hint) =
                invalid_value(format, error, path.last().map_or("", String::as_str));
            add(message, hint, Repair::ReplaceValue);
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

/// The schema with the keyword that failed.
fn schema_of<'f>(format: &'f FileFormat, error: &ValidationError<'_>) -> &'f Value {
    let path = error.schema_path().to_string();
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    format.schema.pointer(parent).unwrap_or(&Value::Null)
}

fn unknown_key(
    format: &FileFormat,
    error: &ValidationError<'_>,
    path: &[String],
    name: &str,
) -> (String, Option<String>, Option<String>) {
    let quoted = quote(name);
    if matches!(path, [steps] if steps == "steps") {
        let schema = format.schema.pointer("/$defs/StepName").unwrap_or(&Value::Null);
        let (message, hint) = invalid_string(format, schema, &json!(name));
        return (message, hint, None);
    }
    if IMPORT_MARKS.iter().any(|mark| name.starts_with(mark)) {
        let message = format!("{quoted} is a mark of `steward workflow import`");
        let hint = "do what its text says, then delete the key".to_owned();
        return (message, Some(hint), None);
    }
    let known = schema_of(format, error).get("properties").and_then(Value::as_object);
    let known: Vec<_> =
        known.into_iter().flat_map(|keys| keys.keys().map(String::as_str)).collect();
    let similar = hint::closest_match(name, known.clone()).map(str::to_owned);
    (format!("unknown key {quoted}"), hint::suggestion(name, known), similar)
}

/// How the keys begin that an import leaves where it could not decide.
const IMPORT_MARKS: [&str; 2] = ["decide_", "cannot_translate_"];

fn quote(text: &str) -> String {
    let escaped = text.escape_debug().to_string();
    format!("`{}`", limits::short_line(&escaped, QUOTED_CHARS_MAX))
}

fn invalid_value(
    format: &FileFormat,
    error: &ValidationError<'_>,
    key: &str,
) -> (String, Option<String>) {
    let (schema, given) = (schema_of(format, error), error.instance().as_ref());
    let limit = |name: &str| schema.get(name).map(ToString::to_string).unwrap_or_default();
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign, non-exhaustive enum")]
    match error.kind() {
        Kind::Type { kind } => invalid_type(kind, given, key),
        Kind::Pattern { .. } => invalid_string(format, schema, given),
        Kind::Enum { options } => one_of(options.as_array().into_iter().flatten(), given),
        Kind::OneOfNotValid { .. } => {
            let options = schema.get("oneOf").and_then(Value::as_array).into_iter().flatten();
            one_of(options.filter_map(|option| option.get("const")), given)
        }
        Kind::Minimum { .. } | Kind::Maximum { .. } => {
            let maximum = schema.get("maximum").and_then(Value::as_f64);
            match maximum == Some(f64::from(u32::MAX)) {
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
        Kind::UniqueItems => {
            let items = given.as_array().into_iter().flatten().filter_map(Value::as_str);
            let mut seen = BTreeSet::new();
            let repeated = items.filter(|item| !seen.insert(*item)).map(quote).next();
            (format!("{} is listed twice", repeated.unwrap_or_default()), None)
        }
        // The schema has no other keywords. The masked text does not contain the value.
        _ => (error.masked_with("it").to_string(), None),
    }
}

/// Removes `.0` from a number.
fn whole(number: &str) -> &str {
    number.strip_suffix(".0").unwrap_or(number)
}

fn invalid_type(kind: &TypeKind, given: &Value, key: &str) -> (String, Option<String>) {
    let is = |json: jsonschema::JsonType| match kind {
        TypeKind::Single(one) => *one == json,
        TypeKind::Multiple(several) => several.contains(json),
    };
    let wanted = [
        (jsonschema::JsonType::Object, "a mapping"),
        (jsonschema::JsonType::Array, "a list"),
        (jsonschema::JsonType::Integer, "an integer"),
        (jsonschema::JsonType::Number, "a number"),
        (jsonschema::JsonType::String, "a string"),
        (jsonschema::JsonType::Boolean, "`true` or `false`"),
    ];
    let wanted: Vec<_> =
        wanted.iter().filter(|(json, _)| is(*json)).map(|(_, text)| *text).collect();
    let given = match given {
        Value::Null => "null",
        Value::Bool(_) => "`true` or `false`",
        Value::Number(number) if number.is_f64() && !is(jsonschema::JsonType::Number) => {
            "a fraction"
        }
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    };
    let hint = match (is(jsonschema::JsonType::Array), key, given) {
        (true, "lifecycle_events", _) => {
            Some("list the events, such as `[processed, undone, error]`".to_owned())
        }
        (true, ..) => Some("write it as `[a, b]`".to_owned()),
        (
            false,
            "complete_within" | "warn_after" | "within" | "heartbeat" | "retention" | "first"
            | "max" | "wait" | "at" | "until" | "at_least" | "at_most",
            "a number",
        ) => Some("a duration needs a unit, such as `90s` or `15m`".to_owned()),
        (false, ..) => None,
    };
    (format!("must be {}, not {given}", wanted.join(" or ")), hint)
}

/// The message and hint for an invalid name or duration.
fn invalid_string(format: &FileFormat, schema: &Value, given: &Value) -> (String, Option<String>) {
    let text = given.as_str().unwrap_or_default();
    let rule = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    if format.schema.pointer("/$defs/Duration/pattern") == schema.get("pattern") {
        let units = "write numbers with units, such as `90s`, `15m`, `2h` or `1d 12h`".to_owned();
        return (format!("{} is not a duration", quote(text)), Some(units));
    }
    let corrected = text.to_lowercase().replace([' ', '-'], "_");
    let pattern = schema.get("pattern").and_then(Value::as_str).unwrap_or_default();
    let fits = jsonschema::validator_for(&json!({ "pattern": pattern }))
        .is_ok_and(|validator| validator.is_valid(&json!(corrected)));
    let hint = (fits && corrected.len() <= limits::NAME_CHARS_MAX)
        .then(|| format!("did you mean {}?", quote(&corrected)));
    (format!("{} is not a valid name: {rule}", quote(text)), hint)
}

fn one_of<'v>(options: impl Iterator<Item = &'v Value>, given: &Value) -> (String, Option<String>) {
    let options: Vec<_> = options.filter_map(Value::as_str).collect();
    let text = given.as_str().unwrap_or_default();
    let known = options.iter().map(|option| format!("`{option}`")).collect::<Vec<_>>().join(", ");
    let same = options.iter().find(|option| option.eq_ignore_ascii_case(text)).copied();
    let similar = same.or_else(|| hint::closest_match(text, options.iter().copied()));
    let hint = similar.map(|similar| format!("did you mean `{similar}`?"));
    (format!("must be one of {known}"), hint)
}
