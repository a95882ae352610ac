//! Tests of names and ids.

use super::*;

#[test]
fn task_id_has_only_characters_that_fit_in_a_header_and_in_a_key() {
    assert!("order-2026:11.20_7".parse::<TaskId>().is_ok());
    for bad in ["", "-a", "a/b", "a b", "a\nb", "ü", &"a".repeat(TASK_ID_CHARS_MAX + 1)] {
        assert!(bad.parse::<TaskId>().is_err(), "{bad:?} was accepted");
    }
}

#[test]
fn error_of_an_invalid_name_contains_the_rule() {
    let error = "reserve-stock".parse::<StepName>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "step name `reserve-stock` is not valid: a lower-case letter, then lower-case letters, \
         digits and `_`, at most 40 characters"
    );
}

#[test]
fn part_reads_back_as_written() {
    for text in ["ship", "ship[0]", "ship[9999]"] {
        assert_eq!(text.parse::<Part>().unwrap().to_string(), text);
    }
    for bad in ["ship[]", "ship[-1]", "ship[01]", "ship[10000]", "ship[3", "[3]", "ship[3]x"] {
        assert!(bad.parse::<Part>().is_err(), "{bad:?} was accepted");
    }
}

#[test]
fn callback_token_reads_back_as_written() {
    let incarnation = "0mpvd1ym8".parse().unwrap();
    for (text, item, edit) in [
        ("order-7/approve/i0mpvd1ym8", None, None),
        ("order-7/approve[3]/i0mpvd1ym8/c-1", Some(3), "c-1".parse().ok()),
    ] {
        let token: CallbackToken = text.parse().unwrap();
        assert_eq!((token.step.item, token.incarnation, &token.edit), (item, incarnation, &edit));
        assert_eq!(token.to_string(), text);
    }
    for bad in [
        "order-7/approve",
        "order-7/approve/2",
        "order-7/approve/2/0mpvd1ym8",
        "order-7/approve/x",
        "order-7/approve/i",
        "order-7/approve/i0mpvd1ym8/",
        "order-7/approve/i0mpvd1ym8/c/d",
        "/approve/1",
    ] {
        assert!(bad.parse::<CallbackToken>().is_err(), "{bad:?} was accepted");
    }
}

#[test]
fn incarnation_reads_back_as_written_and_sorts_by_time() {
    let of = |ms| Incarnation::recorded_at(jiff::Timestamp::from_millisecond(ms).unwrap());
    let texts = [0, 1, 1_780_315_200_000, 1_780_315_200_001, 2_821_109_907_456]
        .map(|ms| (of(ms), of(ms).to_string()));
    for (incarnation, text) in &texts {
        assert_eq!((text.len(), text.parse()), (INCARNATION_CHARS, Ok(*incarnation)));
    }
    assert!(texts.is_sorted_by_key(|(_, text)| text), "{texts:?}");
    let last = Incarnation::recorded_at(jiff::Timestamp::MAX).to_string();
    assert_eq!((last.as_str(), last.parse()), ("zzzzzzzzz", Ok(Incarnation(Incarnation::MAX))));
    for bad in ["", "1", "00000000A", "-00000001", "0000000000"] {
        assert!(bad.parse::<Incarnation>().is_err(), "{bad:?} was accepted");
    }
}

#[test]
fn name_is_validated_when_it_is_deserialised() {
    assert!(serde_json::from_str::<StepName>("\"Charge\"").is_err());
    assert_eq!(serde_json::from_str::<StepName>("\"charge\"").unwrap().as_str(), "charge");
}
