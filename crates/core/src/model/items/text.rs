//! The records of items in the format of the state store.
//!
//! ```text
//! { "n": 10000,                                      the number of items
//!   "c": 35, "h": 1234567890,                        slices of the list: items in each, fingerprint (left out if none)
//!   "z": 471100,                                     the bytes of the outputs in memory (left out if zero)
//!   "d": [ {"s":"c","a":1}, {"s":"r","a":1,"b":…} ],  the distinct records
//!   "l": "4711a3ba" }                                spans: how many items (left out if one), and the letters of their record
//! ```
//!
//! The records have the letters a–z, then Aa–Az, Ba–Bz and so on. The record of the most spans comes first, so that most
//! spans need one letter. Here 4,711 items completed, three run, and one more completed.

use std::num::NonZeroU32;

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeStruct};

use super::{ItemRecords, ListSlices, Span};
use crate::limits::ITEMS_MAX;

/// Characters of a letter's alphabet.
const ALPHABET: usize = 26;

/// Why stored records of items cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum RunsError {
    #[error("{0} items; the limit is {ITEMS_MAX}")]
    TooManyItems(u32),
    #[error("the slices of the list have no length or no fingerprint")]
    IncompleteSlices,
    #[error("more items have started than there are")]
    TooManyStarted,
    #[error("`{0}` is not the number of items of a span")]
    NoCount(String),
    #[error("the spans of items name no record `{0}`")]
    NoRecord(String),
    #[error("the spans of items end without a record")]
    Incomplete,
    #[error("no span of items has the record of position {0}")]
    Unused(usize),
}

/// The items as they are read.
#[derive(Deserialize)]
#[serde(bound = "R: Deserialize<'de>")]
struct StoredItems<R> {
    #[serde(rename = "n")]
    count: u32,
    #[serde(rename = "c", default)]
    slice_len: Option<NonZeroU32>,
    #[serde(rename = "h", default)]
    fingerprint: Option<u32>,
    #[serde(rename = "z", default)]
    output_memory_bytes: u64,
    #[serde(rename = "d", default)]
    distinct: Vec<R>,
    #[serde(rename = "l", default)]
    spans: String,
}

impl<'de, R: Deserialize<'de> + Clone + PartialEq> Deserialize<'de> for ItemRecords<R> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(StoredItems::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

impl<R: Serialize + Clone + PartialEq> Serialize for ItemRecords<R> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (distinct, spans) = write(self);
        let slices = if self.slices.is_some() { 2 } else { 0 };
        let runs_fields = if distinct.is_empty() { 0 } else { 2 };
        let fields = 1 + slices + usize::from(self.output_memory_bytes > 0) + runs_fields;
        let mut stored = to.serialize_struct("ItemRecords", fields)?;
        stored.serialize_field("n", &self.count)?;
        if let Some(ListSlices { len, fingerprint }) = &self.slices {
            stored.serialize_field("c", len)?;
            stored.serialize_field("h", fingerprint)?;
        }
        if self.output_memory_bytes > 0 {
            stored.serialize_field("z", &self.output_memory_bytes)?;
        }
        if !distinct.is_empty() {
            stored.serialize_field("d", &distinct)?;
            stored.serialize_field("l", &spans)?;
        }
        stored.end()
    }
}

/// The bytes of the text of this many spans with distinct records.
pub(crate) fn distinct_spans_bytes(count: u32) -> usize {
    (0..count as usize).map(|position| letters_of(position).len()).sum()
}

/// Returns the distinct records, and the text of the spans.
fn write<R: Clone + PartialEq>(items: &ItemRecords<R>) -> (Vec<&R>, String) {
    let mut distinct: Vec<(&R, usize)> = Vec::new();
    let mut spans: Vec<(u32, usize)> = Vec::new();
    for (len, record) in items.joined() {
        let known = distinct.iter_mut().enumerate().find(|(_, (known, _))| *known == record);
        let position = match known {
            Some((position, (_, uses))) => {
                *uses += 1;
                position
            }
            None => {
                distinct.push((record, 1));
                distinct.len() - 1
            }
        };
        spans.push((len, position));
    }
    // The sort is stable, so equal tasks have equal texts.
    let mut order: Vec<_> = distinct.iter().map(|(_, uses)| *uses).enumerate().collect();
    order.sort_by_key(|(_, uses)| std::cmp::Reverse(*uses));
    let mut letters = vec![String::new(); distinct.len()];
    for (rank, (position, _)) in order.iter().enumerate() {
        if let Some(letter) = letters.get_mut(*position) {
            *letter = letters_of(rank);
        }
    }
    let text = spans.iter().fold(String::new(), |mut text, (len, position)| {
        if *len > 1 {
            text.push_str(&len.to_string());
        }
        text.push_str(letters.get(*position).map_or("", String::as_str));
        text
    });
    let distinct = order
        .iter()
        .filter_map(|(position, _)| distinct.get(*position).map(|(record, _)| *record))
        .collect();
    (distinct, text)
}

/// Reads the stored items. Every mistake is an error, because fewer or other items than stored would start again.
fn read<R: Clone + PartialEq>(stored: StoredItems<R>) -> Result<ItemRecords<R>, RunsError> {
    let StoredItems { count, slice_len, fingerprint, output_memory_bytes, distinct, spans } =
        stored;
    let slices = match (slice_len, fingerprint) {
        (Some(len), Some(fingerprint)) => Some(ListSlices { len, fingerprint }),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => return Err(RunsError::IncompleteSlices),
    };
    if count > ITEMS_MAX {
        return Err(RunsError::TooManyItems(count));
    }
    let mut items = ItemRecords::new(count).with_slices(slices);
    items.output_memory_bytes = output_memory_bytes;
    let mut is_used = vec![false; distinct.len()];
    let (mut total, mut rest) = (0_u32, spans.as_str());
    while !rest.is_empty() {
        let (len, position);
        (len, position, rest) = read_run(rest)?;
        let unknown = || RunsError::NoRecord(letters_of(position));
        *is_used.get_mut(position).ok_or_else(unknown)? = true;
        let record = distinct.get(position).ok_or_else(unknown)?.clone();
        total = total.saturating_add(len);
        if total > count {
            return Err(RunsError::TooManyStarted);
        }
        items.append(Span { len, record });
    }
    match is_used.iter().position(|used| !used) {
        Some(position) => Err(RunsError::Unused(position)),
        None => Ok(items),
    }
}

/// Reads the first span of a text: its number of items, the position of its record, and the rest of the text.
fn read_run(text: &str) -> Result<(u32, usize, &str), RunsError> {
    let (digits, rest) = split(text, |c| c.is_ascii_digit());
    let len = match digits {
        "" => 1,
        digits => {
            let is_exact = |len: &u32| *len > 0 && len.to_string() == digits;
            let len = digits.parse().ok().filter(is_exact);
            len.ok_or_else(|| RunsError::NoCount(digits.to_owned()))?
        }
    };
    let (high, rest) = split(rest, |c| c.is_ascii_uppercase());
    let mut characters = rest.chars();
    let low = characters.next().ok_or(RunsError::Incomplete)?;
    let position = position_of(high, low);
    let position = position.ok_or_else(|| RunsError::NoRecord(format!("{high}{low}")))?;
    Ok((len, position, characters.as_str()))
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

/// The letters of a record: a–z, Aa–Az, Ba–Zz, AAa and so on.
fn letters_of(position: usize) -> String {
    let letter = |first: u8, value: usize| {
        // The value is below 26.
        char::from(first.saturating_add(u8::try_from(value % ALPHABET).unwrap_or_default()))
    };
    let mut letters = vec![letter(b'a', position)];
    let mut high = position / ALPHABET;
    while high > 0 {
        letters.push(letter(b'A', high - 1));
        high = (high - 1) / ALPHABET;
    }
    letters.iter().rev().collect()
}

fn position_of(high: &str, low: char) -> Option<usize> {
    let value = |character: char, first: char| {
        let value = u32::from(character).checked_sub(first.into())? as usize;
        (value < ALPHABET).then_some(value)
    };
    let high = high.chars().try_fold(0_usize, |sum, character| {
        sum.checked_mul(ALPHABET)?.checked_add(value(character, 'A')? + 1)
    });
    high?.checked_mul(ALPHABET)?.checked_add(value(low, 'a')?)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::model::step::{Progress, StepRecord, StepState};

    fn state(kind: u8, number: u32) -> StepState {
        let complete_by = Timestamp::from_millisecond(i64::from(number) * 1_000).unwrap();
        match kind {
            0 => StepState::Running { attempt: number + 1, complete_by },
            1 => StepState::waiting(Some(number + 1), complete_by),
            2 => StepState::Skipped { attempt: None },
            _ => StepState::Completed { attempt: Some(number + 1) },
        }
    }

    prop_compose! {
        fn record()(kind in 0_u8..6, number in 0_u32..40, undo in proptest::option::of(0_u8..6), ran in any::<bool>())
            -> StepRecord {
            let mut record = StepRecord::new(state(kind, number));
            record.forward.may_have_run = ran;
            record.undo = undo.map(|kind| Progress::new(state(kind, number)));
            record
        }
    }

    prop_compose! {
        /// Items in spans of any length, of few or of many distinct records, up to 10,000.
        fn items()(
            records in proptest::collection::vec(record(), 1..80),
            picks in proptest::collection::vec((any::<prop::sample::Index>(), 1_u32..200), 0..300),
            not_started in 0_u32..100,
            slices in proptest::option::of((any::<NonZeroU32>(), any::<u32>())),
            output_memory_bytes in proptest::sample::select(vec![0, 1, u64::MAX]),
        ) -> ItemRecords<StepRecord> {
            let mut items = ItemRecords::new(0);
            for (pick, len) in picks {
                let len = len.min(ITEMS_MAX - items.started());
                if len > 0 {
                    items.append(Span { len, record: pick.get(&records).clone() });
                }
            }
            items.count = (items.started() + not_started).min(ITEMS_MAX);
            items.slices = slices.map(|(len, fingerprint)| ListSlices { len, fingerprint });
            items.output_memory_bytes = output_memory_bytes;
            items
        }
    }

    fn read_back(stored: &Value) -> Result<ItemRecords<StepRecord>, String> {
        serde_json::from_value(stored.clone()).map_err(|error| error.to_string())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

        #[test]
        fn records_read_back_as_stored(items in items()) {
            let stored = serde_json::to_value(&items).unwrap();
            let read = read_back(&stored).unwrap();
            prop_assert_eq!(&read, &items);
            prop_assert!(read.iter().eq(items.iter()));
            prop_assert_eq!(serde_json::to_value(&read).unwrap(), stored);
        }

        /// Damage is an error, or it leaves all items and their number intact. It never causes a start of items that have
        /// started.
        #[test]
        fn a_text_that_is_cut_short_is_never_read_as_other_records(items in items(), at in any::<prop::sample::Index>()) {
            prop_assume!(items.started() > 0);
            let mut stored = serde_json::to_value(&items).unwrap();
            let text = stored["l"].as_str().unwrap().to_owned();
            let cut = at.index(text.len());
            stored["l"] = text[..cut].into();
            if let Ok(read) = read_back(&stored) {
                // Only whole spans at the end are missing, and all distinct records are still in use.
                prop_assert!(read.iter().zip(items.iter()).all(|(read, item)| read == item));
            }
        }
    }

    fn stored(text: &str) -> Value {
        json!({ "n": 10, "d": [{ "s": "c", "a": 1 }, { "s": "k", "a": 0 }], "l": text })
    }

    #[test]
    fn the_format_is_that_of_the_module_description() {
        let items = read_back(&stored("4a3ba")).unwrap();
        assert_eq!((items.count(), items.started()), (10, 8));
        assert_eq!(serde_json::to_value(&items).unwrap(), stored("4a3ba"));
        let spans: Vec<_> = items.spans().map(|(items, _)| items).collect();
        assert_eq!(spans, [0..4, 4..7, 7..8]);
        assert_eq!(
            serde_json::to_value(ItemRecords::<StepRecord>::new(7)).unwrap(),
            json!({ "n": 7 })
        );
        assert_eq!(read_back(&json!({ "n": 7 })).unwrap(), ItemRecords::new(7));
    }

    #[test]
    fn the_record_of_most_runs_has_the_first_letter() {
        let of = |attempt| StepRecord::new(StepState::Completed { attempt: Some(attempt) });
        let items = ItemRecords::with_started(9, [of(2), of(1), of(3), of(1), of(2), of(1)]);
        let stored = serde_json::to_value(&items).unwrap();
        assert_eq!(stored["l"], "bacaba");
        assert_eq!(stored["d"][0], json!({ "s": "c", "a": 1 }));
    }

    #[test]
    fn a_damaged_text_of_runs_is_an_error() {
        for (text, reason) in [
            ("4ab3", "end without a record"),
            ("4a3bA", "end without a record"),
            ("0ab", "`0` is not the number"),
            ("04ab", "`04` is not the number"),
            ("99999999999ab", "`99999999999` is not the number"),
            ("4294967295aab", "more items have started"),
            ("4a3bc", "no record `c`"),
            ("4a3bAa", "no record `Aa`"),
            ("4a 3b", "no record ` `"),
            ("4a3é", "no record `é`"),
            ("4a-3b", "no record `-`"),
            ("8a3b", "more items have started"),
            ("9a", "no span of items has the record of position 1"),
            ("", "no span of items has the record of position 0"),
        ] {
            let error = read_back(&stored(text)).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        for (damaged, reason) in [
            (json!({ "n": 10_001 }), "10001 items"),
            (json!({ "l": "a" }), "missing field `n`"),
            (json!({ "n": 1, "c": 3 }), "no length or no fingerprint"),
            (json!({ "n": 1, "c": 0, "h": 1 }), "zero"),
            (json!({ "n": 1, "l": 1 }), "expected a string"),
            (json!({ "n": 1, "l": null }), "expected a string"),
            (json!({ "n": 1, "l": [{ "s": "c", "a": 1 }] }), "expected a string"),
        ] {
            let error = read_back(&damaged).unwrap_err();
            assert!(error.contains(reason), "{damaged}: {error}");
        }
    }

    #[test]
    fn every_position_has_letters_of_its_own() {
        for (position, letters) in
            [(0, "a"), (25, "z"), (26, "Aa"), (51, "Az"), (52, "Ba"), (701, "Zz"), (702, "AAa")]
        {
            assert_eq!(letters_of(position), letters);
        }
        for position in 0..ITEMS_MAX as usize {
            let letters = letters_of(position);
            let (high, low) = letters.split_at(letters.len() - 1);
            assert_eq!(position_of(high, low.chars().next().unwrap()), Some(position));
        }
    }
}
