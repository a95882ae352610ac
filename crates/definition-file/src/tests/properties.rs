//! Whatever is handed in, check ends, and says where.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn shipped() -> Vec<String> {
    let dir = std::fs::read_dir(repository().join("workflows")).unwrap();
    let mut texts: Vec<_> =
        dir.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    texts.push(super::keys::EVERYTHING.to_owned());
    texts
}

/// Whatever is said has a place inside of the file, and a definition that is let through can be read
/// again from what is published.
fn assert_sound(text: &str) {
    match parse(Path::new("x"), text) {
        Ok(workflow) => {
            assert_eq!(workflow.problems(), []);
            let written = serde_json::to_string(&workflow).unwrap();
            assert_eq!(serde_json::from_str::<Workflow>(&written).unwrap(), workflow);
        }
        Err(DefinitionError::Invalid { found, .. }) => {
            assert!(!found.is_empty(), "{text}");
            for Found { place, .. } in found {
                let bytes = place.map_or(0..0, |place| place.bytes);
                assert!(bytes.end <= text.len() && text.is_char_boundary(bytes.start), "{text}");
            }
        }
        Err(DefinitionError::TooLarge { .. }) => {}
        Err(DefinitionError::Unreadable { .. }) => panic!("nothing was read from a file"),
    }
}

/// Words of the language, and what YAML is made of.
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

/// One edit of a text: at a place, so many characters less, and a text more.
fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, usize, String)>> {
    let new = prop_oneof![yaml_like(), any::<String>(), Just(String::new())];
    let short = new.prop_map(|text| text.chars().take(12).collect());
    prop::collection::vec((any::<prop::sample::Index>(), 0..12_usize, short), 1..4)
}

fn edit(text: &str, edits: Vec<(prop::sample::Index, usize, String)>) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for (at, less, more) in edits {
        let at = at.index(chars.len() + 1);
        let end = (at + less).min(chars.len());
        chars.splice(at..end, more.chars());
    }
    chars.into_iter().collect()
}

/// Any JSON where any JSON of a definition was.
fn swapped(mut definition: Value, which: prop::sample::Index, by: Value) -> Value {
    fn count(value: &Value) -> usize {
        1 + match value {
            Value::Array(items) => items.iter().map(count).sum(),
            Value::Object(fields) => fields.values().map(count).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }
    fn swap(value: &mut Value, left: &mut usize, by: &Value) {
        if *left == 0 {
            value.clone_from(by);
        }
        *left = left.wrapping_sub(1);
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| swap(item, left, by)),
            Value::Object(fields) => fields.values_mut().for_each(|field| swap(field, left, by)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut left = which.index(count(&definition));
    swap(&mut definition, &mut left, &by);
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
    fn no_bytes_make_check_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        assert_sound(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_text_like_yaml_makes_check_panic(text in yaml_like()) {
        assert_sound(&text);
    }

    #[test]
    fn no_edit_of_a_definition_makes_check_panic(which in 0..8_usize, edits in edits()) {
        let shipped = shipped();
        assert_sound(&edit(&shipped[which % shipped.len()], edits));
    }

    /// What the schema lets through can be read, but for a whole number written `1.0` and a part of
    /// a nanosecond.
    #[test]
    fn what_the_schema_takes_the_types_take(
        which in 0..8_usize,
        index in any::<prop::sample::Index>(),
        by in some_json(),
    ) {
        let shipped = shipped();
        let definition: Value = read(&shipped[which % shipped.len()]).unwrap();
        let definition = swapped(definition, index, by);
        assert_sound(&definition.to_string());
        if jsonschema::is_valid(&steward_core::definition::workflow::json_schema(), &definition)
            && let Err(problem) = Workflow::read(definition)
        {
            let known = ["floating point", "without a lack of precision"];
            prop_assert!(known.iter().any(|known| problem.message.contains(known)), "{problem}");
        }
    }
}
