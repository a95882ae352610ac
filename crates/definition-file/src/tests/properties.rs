//! Property tests: for any input, parsing ends without a panic, and errors have valid locations.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn shipped() -> Vec<String> {
    let dir = std::fs::read_dir(repository().join("workflows")).unwrap();
    let paths = dir.map(|entry| entry.unwrap().path()).filter(|path| !is_test_file(path));
    let mut texts: Vec<_> = paths.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    texts.push(super::keys::EVERYTHING.to_owned());
    texts
}

/// Checks that each problem has a location inside the text, and that an accepted definition is the same after
/// serialisation.
fn assert_sound(text: &str) {
    match parse(Path::new("x"), text) {
        Ok(workflow) => {
            assert_eq!(workflow.problems(), []);
            let written = serde_json::to_string(&workflow).unwrap();
            assert_eq!(serde_json::from_str::<Workflow>(&written).unwrap(), workflow);
        }
        Err(DefinitionError::Invalid { problems, .. }) => {
            assert!(!problems.is_empty(), "{text}");
            for LocatedProblem { location, .. } in problems {
                let bytes = location.map_or(0..0, |location| location.bytes);
                assert!(bytes.end <= text.len() && text.is_char_boundary(bytes.start), "{text}");
            }
        }
        Err(DefinitionError::TooLarge { .. }) => {}
        Err(DefinitionError::Unreadable { .. }) => panic!("no file was read"),
    }
}

/// Words of the language mixed with YAML syntax.
fn yaml_like() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "name",
        "version",
        "steps",
        "agent",
        "after",
        "request",
        "path",
        "body",
        "recovery",
        "attempts",
        "undo",
        "when",
        "for_each",
        "items",
        "wait",
        "workflow",
        "callback",
        "within",
        "defaults",
        "order",
        "1",
        "0.5",
        "-3",
        "10s",
        "null",
        "true",
        "~",
        ".nan",
        "0x1F",
        ": ",
        ":",
        "\n",
        "\n  ",
        "\n    ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "\"",
        "'",
        "|\n",
        ">\n",
        "&a ",
        "*a",
        "<<: ",
        "!!str ",
        "# ",
        "---\n",
        "? ",
        "${ input.x }",
        "${",
        "}",
        "%",
        "@",
        "\t",
        "ü",
        "\u{feff}",
        "\r\n",
        "\\",
        "/",
    ]);
    prop::collection::vec(word, 0..60).prop_map(|words| words.concat())
}

/// Edits of a text: each has a position, a number of characters to remove, and a text to insert.
fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, usize, String)>> {
    let inserted = prop_oneof![yaml_like(), any::<String>(), Just(String::new())];
    let short = inserted.prop_map(|text| text.chars().take(12).collect());
    prop::collection::vec((any::<prop::sample::Index>(), 0..12_usize, short), 1..4)
}

fn edit(text: &str, edits: Vec<(prop::sample::Index, usize, String)>) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for (position, removed, inserted) in edits {
        let start = position.index(chars.len() + 1);
        let end = (start + removed).min(chars.len());
        chars.splice(start..end, inserted.chars());
    }
    chars.into_iter().collect()
}

/// Replaces one value of a definition, chosen by `which`.
fn with_replacement(
    mut definition: Value,
    which: prop::sample::Index,
    replacement: Value,
) -> Value {
    fn count(value: &Value) -> usize {
        1 + match value {
            Value::Array(items) => items.iter().map(count).sum(),
            Value::Object(fields) => fields.values().map(count).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }
    fn replace(value: &mut Value, remaining: &mut usize, replacement: &Value) {
        if *remaining == 0 {
            value.clone_from(replacement);
        }
        *remaining = remaining.wrapping_sub(1);
        match value {
            Value::Array(items) => {
                items.iter_mut().for_each(|item| replace(item, remaining, replacement));
            }
            Value::Object(fields) => {
                fields.values_mut().for_each(|field| replace(field, remaining, replacement));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut remaining = which.index(count(&definition));
    replace(&mut definition, &mut remaining, &replacement);
    definition
}

fn some_json() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        (0..20_u32).prop_map(Value::from),
        any::<f32>().prop_map(Value::from),
        (0..9_u8).prop_map(|whole| Value::from(f64::from(whole))),
        "[a-z]{0,3}".prop_map(Value::from),
        "[0-9]{1,3}(\\.[0-9])? ?(s|m|h|d|weeks|ns|month|x)?".prop_map(Value::from),
        yaml_like().prop_map(Value::from),
        Just(serde_json::json!([])),
        Just(serde_json::json!({})),
        Just(serde_json::json!(["reserve", 1])),
        Just(serde_json::json!({ "path": "/", "attempts": 1 })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        assert_sound(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn yaml_like_text_does_not_panic(text in yaml_like()) {
        assert_sound(&text);
    }

    #[test]
    fn edited_definitions_do_not_panic(which in 0..8_usize, edits in edits()) {
        let shipped = shipped();
        assert_sound(&edit(&shipped[which % shipped.len()], edits));
    }

    /// The only exceptions are integers written as `1.0` and durations with fractions of a nanosecond.
    #[test]
    fn what_the_schema_accepts_deserialises(
        which in 0..8_usize,
        index in any::<prop::sample::Index>(),
        replacement in some_json(),
    ) {
        let shipped = shipped();
        let definition: Value = read(&shipped[which % shipped.len()]).unwrap();
        let definition = with_replacement(definition, index, replacement);
        assert_sound(&definition.to_string());
        if jsonschema::is_valid(&steward_core::definition::workflow::json_schema(), &definition)
            && let Err(problem) = Workflow::read(definition)
        {
            let known = ["floating point", "without a lack of precision"];
            prop_assert!(known.iter().any(|known| problem.message.contains(known)), "{problem}");
        }
    }
}
