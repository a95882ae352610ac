//! Who is to answer an awaited callback, for people.

use serde_json::Value;

use crate::{
    definition::plan::Plan,
    engine::{
        documents::{LoadedDocuments, NeededDocuments},
        values::{DocumentCache, ValueError, ValueSources},
    },
    limits::{REASON_CHARS_MAX, short_line},
    model::{attempt::Action, names::Part, task::Task},
};

/// Who is to answer the callback of `part`, by `callback.from` of its step. `None` if the definition does not say it.
///
/// # Errors
/// The text reads these documents too. Repeat the call with them.
pub fn callback_from(
    plan: &Plan,
    task: &Task,
    documents: &LoadedDocuments,
    part: &Part,
) -> Result<Option<String>, NeededDocuments> {
    let callback = plan.find(&part.step).and_then(|step| step.callback());
    let Some(from) = callback.and_then(|callback| callback.from.as_ref()) else { return Ok(None) };
    let cache = DocumentCache::new(documents);
    let sources =
        ValueSources { plan, task, new_documents: &[], cache: &cache, callback_urls: None };
    let values = sources.values_for_part(part, Action::Do, std::iter::once(from));
    let text = values.and_then(|values| {
        from.render(values.scope()).map_err(|error| ValueError::Invalid(error.to_string()))
    });
    let text = match text {
        Ok(Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(ValueError::Invalid(reason)) => format!("unknown, because {reason}"),
        Err(ValueError::NotLoaded) => String::new(),
    };
    let needed = cache.needed();
    if needed.is_empty() {
        Ok(Some(short_line(&text, REASON_CHARS_MAX)))
    } else {
        Err(NeededDocuments(needed))
    }
}
