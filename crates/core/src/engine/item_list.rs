//! The list of a step with `for_each`.
//!
//! The list is the value of an expression. It may come from a large document, or from the outputs of thousands of items. So
//! it is evaluated once, when the step starts, and stored in *slices*: documents of a few kilobytes with successive items. A
//! later start or undo of an item reads one slice. A short list has no slices: it is evaluated again whenever it is needed.
//!
//! An edit of the input may replace items that it resubmits and that have not run. It stores the slices of the new list under the id of its
//! command, and each item reads the list of the edit that it started with.

use serde_json::Value;

use crate::{
    definition::step::ForEach,
    engine::values::{ValueError, ValueSources},
    limits,
    model::{
        command::CommandId,
        document::{Document, DocumentKey, ItemListVersion},
        hash::fnv1a,
        items::ListSlices,
        names::StepName,
    },
};

use jiff::Timestamp;

/// Bytes of the items in one slice. With its key and attributes a slice stays below 4 KB, which is one read unit.
const SLICE_BYTES: usize = 3_500;

/// Slices of one list. The decision that starts the step writes all of them, so one large item among thousands of small
/// ones must not lead to thousands of slices.
const SLICES_MAX: usize = 1_000;

/// How the list of a starting step is divided into slices. `None` if the list is short.
pub(crate) fn slices_of(list: &[Value]) -> Option<ListSlices> {
    let texts: Vec<_> = list.iter().map(Value::to_string).collect();
    let bytes: usize = texts.iter().map(|text| text.len() + 1).sum();
    if bytes <= limits::ITEMS_INLINE_BYTES {
        return None;
    }
    let largest = texts.iter().map(String::len).max()?;
    let len = (SLICE_BYTES / (largest + 1)).max(list.len().div_ceil(SLICES_MAX)).max(1);
    // Two schedulers may start the step with different lists, or divide it differently during an upgrade. Only one of
    // them can save the task.
    let fingerprint = fnv1a(&format!("{len}:{}", texts.join(",")));
    Some(ListSlices { len: u32::try_from(len).ok()?.try_into().ok()?, fingerprint })
}

/// The documents of the slices of a list.
pub(crate) fn slice_documents(
    step: &StepName,
    version: &ItemListVersion,
    slices: ListSlices,
    list: &[Value],
    at: Timestamp,
) -> Result<Vec<Document>, String> {
    let (len, max) = (slices.len.get(), limits::DOCUMENT_BYTES_MAX);
    let document = |(slice, items): (u32, &[Value])| {
        let body = Value::Array(items.to_vec());
        if body.to_string().len() > max {
            let first = slice.saturating_mul(len);
            let items = match items {
                [_] => format!("item {first} has"),
                items => format!("the {} items from item {first} on have", items.len()),
            };
            return Err(format!("{items} more than {max} bytes"));
        }
        let (step, version) = (step.clone(), version.clone());
        Ok(Document::new(DocumentKey::Items { step, version, slice }, at, body))
    };
    (0..).zip(list.chunks(len as usize)).map(document).collect()
}

impl ValueSources<'_> {
    /// One item of a step with `for_each`. `edit` is the edit of the input that the item started with.
    pub(crate) fn item(
        self,
        step: &StepName,
        each: &ForEach,
        index: u32,
        edit: Option<&CommandId>,
    ) -> Result<Value, ValueError> {
        let missing = || ValueError::Invalid(format!("there is no item {index}"));
        let record = self.task.steps.get(step);
        let slices = record.and_then(|record| Some((record, record.items.as_ref()?.slices()?)));
        let Some((record, slices)) = slices else {
            let items = self.items(step, each, edit)?;
            return items.get(index as usize).cloned().ok_or_else(missing);
        };
        let version = match edit {
            Some(edit) if record.forward.input_edit_id.as_ref() != Some(edit) => {
                ItemListVersion::Edited(edit.clone())
            }
            Some(_) | None => ItemListVersion::Started(slices.fingerprint),
        };
        let slice = index / slices.len;
        let body = self.document(&DocumentKey::Items { step: step.clone(), version, slice })?;
        body.get((index % slices.len) as usize).cloned().ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests;
