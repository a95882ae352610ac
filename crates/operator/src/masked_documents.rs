//! The documents of a task as people see them, with masked values hidden.
//!
//! A failure's document has what the remote service said. A service may repeat parts of its request in an error body, at
//! any place. So not only the pointers of the mask apply to it: each value that the mask hides in a document of the task is
//! hidden in the error body too. A text that has it only in an escaped form (JSON, HTML, URL) is hidden as a whole. Other
//! encodings are not recognised.

use std::borrow::Cow;

use serde_json::{Map, Value};
use steward_core::{
    definition::mask::Mask,
    model::{
        document::{Document, DocumentKey},
        error_detail::clean,
        escapes::{unescaped_html, unescaped_json, unescaped_url},
    },
};

use crate::mask::{MASK_TEXT, apply, values_at};

/// With which escapes for JSON, HTML and URLs begin.
const ESCAPES: [char; 4] = ['\\', '&', '%', '+'];

/// Shorter values are hidden only where they are a whole value: as a part of a text, they would hide most of it.
const PART_CHARS_MIN: usize = 4;

/// Returns the body of a document with its values masked. The reason of a failed attempt contains no payload, so
/// it is not masked. What the service said may contain payload: `hidden` are the masked values of the task's documents.
#[must_use]
pub fn masked_document(mask: &Mask, hidden: &HiddenValues, document: &Document) -> Value {
    let body = &document.body;
    match document.key {
        DocumentKey::Submission | DocumentKey::Input(_) => {
            let mut body = body.clone();
            if let Some(input) = body.get_mut("input") {
                *input = apply(mask, input);
            }
            mask_kept_outputs(mask, &mut body);
            body
        }
        DocumentKey::Output(_) | DocumentKey::OperatorOutput(..) | DocumentKey::Result(_) => {
            apply(mask, body)
        }
        // The places of a mask are places of the input, and the items of a list have other places.
        DocumentKey::Items { .. } if mask.pointers().next().is_some() => MASK_TEXT.into(),
        DocumentKey::Items { .. } => body.clone(),
        DocumentKey::Failure(_) | DocumentKey::Deferral(_) => {
            let mut body = body.clone();
            if let Some(detail) = body.get_mut("detail") {
                let text = detail.as_str().unwrap_or_default();
                *detail = hidden.hide_in_detail(mask, text);
            }
            body
        }
        DocumentKey::Claim(_) => body.clone(),
    }
}

/// The outputs that the submission of a rerun keeps, and their elements: a list may be the outputs of the items of a step.
fn kept_outputs(submission: &Value) -> impl Iterator<Item = &Value> {
    let kept = submission.pointer("/rerun/kept").and_then(Value::as_object);
    let outputs = kept.into_iter().flat_map(|kept| kept.values());
    outputs
        .flat_map(|output| std::iter::once(output).chain(output.as_array().into_iter().flatten()))
}

/// Masks these outputs.
fn mask_kept_outputs(mask: &Mask, submission: &mut Value) {
    let kept = submission.pointer_mut("/rerun/kept").and_then(Value::as_object_mut);
    for output in kept.into_iter().flat_map(|kept| kept.values_mut()) {
        *output = apply(mask, output);
        output.as_array_mut().into_iter().flatten().for_each(|item| *item = apply(mask, item));
    }
}

/// The values that the mask of a workflow hides in the documents of a task.
#[derive(Debug, Clone, Default)]
pub struct HiddenValues {
    /// As text, the longest first: a value may contain another one.
    texts: Vec<String>,
    /// Some of the task's documents were not read, and something is masked: error bodies are hidden as a whole.
    is_incomplete: bool,
}

impl HiddenValues {
    /// The values in these documents.
    #[must_use]
    pub fn of(mask: &Mask, documents: &[Document]) -> Self {
        let mut texts = Vec::new();
        for document in documents {
            let values = match &document.key {
                DocumentKey::Submission | DocumentKey::Input(_) => {
                    let kept = kept_outputs(&document.body);
                    let values = document.body.get("input").into_iter().chain(kept);
                    Some(values.flat_map(|value| values_at(mask, value)).collect::<Vec<_>>())
                }
                DocumentKey::Output(_)
                | DocumentKey::OperatorOutput(..)
                | DocumentKey::Result(_) => Some(values_at(mask, &document.body)),
                // The values of a list are values of the input or of an output.
                DocumentKey::Items { .. }
                | DocumentKey::Failure(_)
                | DocumentKey::Deferral(_)
                | DocumentKey::Claim(_) => None,
            };
            values.into_iter().flatten().for_each(|value| add_texts(value, &mut texts));
        }
        texts.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        texts.dedup();
        Self { texts, is_incomplete: false }
    }

    /// The same, if these are all documents of the task. Otherwise any error body may repeat a value that is not known here.
    #[must_use]
    pub fn of_all_documents(self, mask: &Mask, are_all: bool) -> Self {
        Self { is_incomplete: !are_all && mask.pointers().next().is_some(), ..self }
    }

    /// An error body with the hidden values replaced. A body that is JSON is returned as JSON. JSON that is cut off is hidden
    /// as a whole if anything is masked: its texts may be escaped in more than one way.
    #[must_use]
    pub fn hide_in_detail(&self, mask: &Mask, detail: &str) -> Value {
        if self.is_incomplete {
            return MASK_TEXT.into();
        }
        match serde_json::from_str(detail) {
            Ok(value @ (Value::Object(_) | Value::Array(_))) => self.hide(&apply(mask, &value)),
            Ok(Value::String(text)) => self.hide_in_text(&text).into(),
            Err(_) if detail.starts_with(['{', '[']) && mask.pointers().next().is_some() => {
                MASK_TEXT.into()
            }
            Ok(_) | Err(_) => self.hide_in_text(detail).into(),
        }
    }

    fn hide(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.hide_in_text(text).into(),
            Value::Number(number) if self.contains(&number.to_string()) => MASK_TEXT.into(),
            Value::Array(items) => items.iter().map(|item| self.hide(item)).collect(),
            Value::Object(fields) => {
                let fields =
                    fields.iter().map(|(key, value)| (self.hide_in_text(key), self.hide(value)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn contains(&self, text: &str) -> bool {
        self.texts.iter().any(|hidden| hidden == text)
    }

    fn hide_in_text(&self, text: &str) -> String {
        if self.contains(text) {
            return MASK_TEXT.to_owned();
        }
        let parts = self.texts.iter().filter(|hidden| hidden.chars().count() >= PART_CHARS_MIN);
        let is_read = |read: &[String], hidden: &str| read.iter().any(|text| text.contains(hidden));
        let read = readings(text);
        let is_escaped =
            |hidden: &String| !text.contains(hidden.as_str()) && is_read(&read, hidden);
        if parts.clone().any(is_escaped) {
            return MASK_TEXT.to_owned();
        }
        let mut text = text.to_owned();
        for hidden in parts.clone() {
            text = hide_at_cut(text.replace(hidden, MASK_TEXT), hidden);
        }
        // A value may be there twice, or its escaped form may be cut off.
        let is_cut = text.ends_with('…') && text.contains(ESCAPES) && !self.texts.is_empty();
        let read = readings(&text);
        match is_cut || parts.clone().any(|hidden| is_read(&read, hidden)) {
            true => MASK_TEXT.to_owned(),
            false => text,
        }
    }
}

/// Replaces the beginning of a hidden value at the end of a text that was cut.
fn hide_at_cut(text: String, hidden: &str) -> String {
    let Some(kept) = text.strip_suffix('…') else { return text };
    let beginnings = hidden.char_indices().skip(PART_CHARS_MIN).map(|(end, _)| end);
    let mut beginnings = beginnings.filter_map(|end| hidden.get(..end)).collect::<Vec<_>>();
    beginnings.reverse();
    match beginnings.into_iter().find_map(|beginning| kept.strip_suffix(beginning)) {
        Some(before) => format!("{before}{MASK_TEXT}…"),
        None => text,
    }
}

/// A text as readers may understand it who undo up to two escapes, for JSON, HTML or URLs.
fn readings(text: &str) -> Vec<String> {
    let mut all = vec![text.to_owned()];
    if !text.contains(ESCAPES) {
        return all;
    }
    for _ in 0..2 {
        let undone = |text: &String| {
            let unescaped = [unescaped_json(text), unescaped_html(text), unescaped_url(text)];
            unescaped.map(Cow::into_owned)
        };
        let more: Vec<_> = all.iter().flat_map(undone).collect();
        all.extend(more);
        all.sort_unstable();
        all.dedup();
    }
    all
}

/// Adds the texts and numbers in a hidden value, and its keys that are no plain names: those of a map may be values too.
fn add_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => add_text(text, texts),
        Value::Number(number) => texts.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| add_texts(item, texts)),
        Value::Object(fields) => {
            let is_name = |c: char| c.is_ascii_alphabetic() || c == '_' || c == '-';
            fields
                .keys()
                .filter(|key| !key.chars().all(is_name))
                .for_each(|key| add_text(key, texts));
            fields.values().for_each(|value| add_texts(value, texts));
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// Adds a text as it is, and as an error body contains it.
fn add_text(text: &str, texts: &mut Vec<String>) {
    texts.extend([text.to_owned(), clean(text)].into_iter().filter(|text| !text.is_empty()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use serde_json::json;
    use steward_core::model::error_detail::ErrorDetail;

    fn hidden() -> (Mask, HiddenValues) {
        let mask = serde_json::from_value(json!(["/card", "/pin", "/names/*"])).unwrap();
        let input = json!({
            "card": { "number": "4111-2222", "cvc": 123, "valid": true }, "pin": "77", "amount": 20,
            "names": ["Ann \"A\" Lee"],
        });
        let document =
            |key: &str, body| Document::new(key.parse().unwrap(), Timestamp::UNIX_EPOCH, body);
        let documents = [
            document("submission", json!({ "input": input })),
            document("step/charge/1/output", json!({ "pin": "tok-9" })),
        ];
        let hidden = HiddenValues::of(&mask, &documents);
        (mask, hidden)
    }

    fn shown(detail: &str) -> Value {
        let (mask, hidden) = hidden();
        hidden.hide_in_detail(&mask, detail)
    }

    #[test]
    fn the_outputs_that_a_rerun_keeps_are_masked() {
        let (mask, _) = hidden();
        let kept = json!({ "charge": { "pin": "tok-8", "n": 1 }, "ship": [{ "pin": "tok-7" }], "wait": null });
        let body = json!({ "input": { "pin": 1 }, "rerun": { "task_id": "t", "kept": kept } });
        let key = "submission".parse().unwrap();
        let document = Document::new(key, Timestamp::UNIX_EPOCH, body);
        let hidden = HiddenValues::of(&mask, std::slice::from_ref(&document));
        let shown = masked_document(&mask, &hidden, &document);
        let kept = json!({ "charge": { "pin": "••••", "n": 1 }, "ship": [{ "pin": "••••" }], "wait": null });
        assert_eq!(
            shown,
            json!({ "input": { "pin": "••••" }, "rerun": { "task_id": "t", "kept": kept } })
        );
        assert_eq!(hidden.hide_in_detail(&mask, "tok-8, tok-7"), "••••, ••••");
    }

    #[test]
    fn masked_values_are_hidden_wherever_an_error_repeats_them() {
        let detail = json!({
            "error": "card 4111-2222 of Ann \"A\" Lee refused", "amount": 20, "cvc": 123, "code": "77",
            "pin": "other", "list": ["tok-9", { "4111-2222": 1 }, 1234, true],
        });
        let expected = json!({
            "error": "card •••• of •••• refused", "amount": 20, "cvc": "••••", "code": "••••",
            "pin": "••••", "list": ["••••", { "••••": 1 }, 1234, true],
        });
        assert_eq!(shown(&detail.to_string()), expected);
    }

    #[test]
    fn masked_values_are_hidden_in_text_and_json_that_is_cut_off_is_hidden() {
        assert_eq!(shown("<p>4111-2222</p>, 77, tok-9"), "<p>••••</p>, 77, ••••");
        assert_eq!(shown("card 4111-2…"), "card ••••…");
        assert_eq!(shown(r#"{"to":"Ann \u0022A\u0022 Lee","#), "••••");
        assert_eq!(shown("at 4…"), "at 4…");
        assert_eq!(shown("123"), "••••");
    }

    #[test]
    fn masked_values_are_hidden_in_their_escaped_forms() {
        let mask = mask_of(&["/name"]);
        let name = "Zoë \"Z\" O'Hara <z@x.org>";
        let input = json!({ "input": { "name": name } });
        let document = Document::new("submission".parse().unwrap(), Timestamp::UNIX_EPOCH, input);
        let hidden = HiddenValues::of(&mask, &[document]);
        let json = Value::from(name).to_string();
        for detail in [
            json.clone(),
            format!("bad request: {{\"to\":{json}}}"),
            json!({ "body": format!("{{\"to\":{json}}}") }).to_string(),
            r#"refused: {"to":"Zo\u00eb \"Z\" O'Hara <z@x.org>"}"#.to_owned(),
            "<p>Zoë &quot;Z&quot; O&#39;Hara &lt;z@x.org&gt;</p>".to_owned(),
            "<p>Zoë &quot;Z&quot; O'Hara &lt;z@x.org&gt;</p>".to_owned(),
            "no such page: /to/Zo%C3%AB%20%22Z%22%20O'Hara%20%3Cz%40x.org%3E".to_owned(),
            "no such page: /?to=Zo%c3%ab+%22Z%22+O%27Hara+%3Cz%40x.org%3E".to_owned(),
            r#"refused: Zo\u00EB \u0022Z\u0022 O\u0027Hara \u003Cz@x.org\u003E"#.to_owned(),
            "<p>Zo&#235; &#34;Z&#34; O&#x27;Hara &lt;z@x.org&gt;</p>".to_owned(),
            r#"<pre>{&quot;n&quot;: &quot;Zo\u00eb \&quot;Z\&quot; O'Hara &lt;z@x.org&gt;"#
                .to_owned(),
            "to Zo%C3%AB %22Z%22 O'Hara…".to_owned(),
            format!("{name}, that is Zoë &quot;Z&quot; O'Hara &lt;z@x.org&gt;"),
        ] {
            let shown = hidden.hide_in_detail(&mask, &detail).to_string();
            assert!(shown.contains(MASK_TEXT) && !shown.contains("Hara"), "{detail}: {shown}");
        }
    }

    /// The shorter value is not escaped, and must not make the longer one visible.
    #[test]
    fn a_value_inside_an_escaped_one_hides_both() {
        let mask = mask_of(&["/card", "/name"]);
        let input = json!({ "input": { "card": "Lee-77", "name": "Ann \"A\" Lee-77" } });
        let document = Document::new("submission".parse().unwrap(), Timestamp::UNIX_EPOCH, input);
        let hidden = HiddenValues::of(&mask, &[document]);
        let shown = hidden.hide_in_detail(&mask, r#"refused: "Ann \"A\" Lee-77""#);
        assert_eq!(shown, MASK_TEXT);
        assert_eq!(hidden.hide_in_detail(&mask, "refused: Lee-77"), "refused: ••••");
    }

    /// An error body has no control characters, and may be a list of keys.
    #[test]
    fn values_with_control_characters_and_keys_are_hidden() {
        let mask = mask_of(&["/note", "/map"]);
        let note = "Line One 4711\r\nLine Two 0815\u{202e}";
        let input = json!({ "input": { "note": note, "map": { "ann@x.org": true, "name": 1 } } });
        let document = Document::new("submission".parse().unwrap(), Timestamp::UNIX_EPOCH, input);
        let hidden = HiddenValues::of(&mask, &[document]);
        for body in [format!("refused: {note}"), r#"{"unknown":["ann@x.org"]}"#.to_owned()] {
            let detail = ErrorDetail::of_body(body.as_bytes()).unwrap();
            let shown = hidden.hide_in_detail(&mask, detail.as_str()).to_string();
            assert!(
                shown.contains(MASK_TEXT) && !shown.contains("4711") && !shown.contains("ann"),
                "{shown}"
            );
        }
        assert_eq!(hidden.hide_in_detail(&mask, "no name"), "no name");
        let cut = "no such page: /?to=Ann+Lee…";
        assert_eq!(hidden.hide_in_detail(&mask, cut), MASK_TEXT);
        let partial = hidden.of_all_documents(&mask, false);
        assert_eq!(partial.hide_in_detail(&mask, "no name"), MASK_TEXT);
        let unmasked = HiddenValues::default().of_all_documents(&Mask::default(), false);
        assert_eq!(unmasked.hide_in_detail(&Mask::default(), "no name"), "no name");
    }

    #[test]
    fn without_a_mask_nothing_is_hidden() {
        let (mask, hidden) = (Mask::default(), HiddenValues::default());
        assert_eq!(hidden.hide_in_detail(&mask, "4111"), "4111");
        assert_eq!(hidden.hide_in_detail(&mask, r#"{"pin":1"#), r#"{"pin":1"#);
        assert_eq!(hidden.hide_in_detail(&mask, r#"{"pin":1}"#), json!({ "pin": 1 }));
    }

    fn mask_of(places: &[&str]) -> Mask {
        serde_json::from_value(json!(places)).unwrap()
    }

    #[test]
    fn inputs_are_masked_within_their_document_and_outputs_from_the_root() {
        let (mask, at) = (mask_of(&["/pin"]), jiff::Timestamp::UNIX_EPOCH);
        let shown = |key: &str, body| {
            masked_document(
                &mask,
                &HiddenValues::default(),
                &Document::new(key.parse().unwrap(), at, body),
            )
        };
        let inside = json!({ "task_id": "t", "input": { "pin": 1 } });
        let covered = json!({ "task_id": "t", "input": { "pin": MASK_TEXT } });
        assert_eq!(shown("submission", inside.clone()), covered);
        assert_eq!(shown("input/c-1", inside), covered);
        for key in ["step/a/1/output", "undo/a/1/output", "result/00000000"] {
            assert_eq!(shown(key, json!({ "pin": 1 })), json!({ "pin": MASK_TEXT }), "{key}");
        }
    }

    #[test]
    fn a_slice_of_a_list_is_hidden_as_a_whole_if_anything_is_masked() {
        let key = "items/ship/00c0ffee/0".parse().unwrap();
        let document = Document::new(key, jiff::Timestamp::UNIX_EPOCH, json!([{ "secret": 1 }]));
        let shown = |mask: &Mask| masked_document(mask, &HiddenValues::default(), &document);
        assert_eq!(shown(&mask_of(&["/items/*/secret"])), json!(MASK_TEXT));
        assert_eq!(shown(&mask_of(&[])), document.body);
    }

    #[test]
    fn a_failure_and_a_deferral_show_what_the_service_said_without_masked_values() {
        let mask = mask_of(&["/pin"]);
        let document = |key: &str, body: Value| {
            Document::new(key.parse().unwrap(), jiff::Timestamp::UNIX_EPOCH, body)
        };
        let submission = document("submission", json!({ "input": { "pin": "s3cret" } }));
        let body =
            json!({ "reason": "HTTP 402", "verdict": "undo", "detail": "pin s3cret is wrong" });
        let hidden = HiddenValues::of(&mask, &[submission]);
        let expected =
            json!({ "reason": "HTTP 402", "verdict": "undo", "detail": "pin •••• is wrong" });
        for key in ["step/charge/1/failure", "step/charge/1/deferral"] {
            let shown = masked_document(&mask, &hidden, &document(key, body.clone()));
            assert_eq!(shown, expected, "{key}");
        }
    }
}
