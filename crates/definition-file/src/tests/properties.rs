//! Property tests: for any input, parsing ends without a panic, and errors have valid locations.

use proptest::prelude::*;
use serde_json::{Value, json};

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

/// The JSON pointers of all values in `value`, which is at `at`.
fn pointers(at: String, value: &Value) -> Vec<String> {
    let inner = match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.flat_map(|(index, item)| pointers(format!("{at}/{index}"), item)).collect()
        }
        Value::Object(fields) => {
            let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
            let inner =
                |(name, value): (&String, _)| pointers(format!("{at}/{}", escaped(name)), value);
            fields.iter().flat_map(inner).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    [vec![at], inner].concat()
}

/// Values that a person could write in the wrong place, and the edges of what is right.
fn replacements() -> [Value; 26] {
    [
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1),
        json!(1.0),
        json!(0.5),
        json!(i32::MAX),
        json!(u64::MAX),
        json!(1e300),
        json!(""),
        json!("a"),
        json!("A-1"),
        json!("aws"),
        json!("404"),
        json!("/a"),
        json!("10 s"),
        json!("0.5ns"),
        json!("1 month"),
        json!("2.0000000001 weeks"),
        json!("${ input.x }"),
        json!("ü\n"),
        json!([]),
        json!({}),
        json!(["reserve", 1]),
        json!({ "path": "/", "attempts": 1 }),
    ]
}

/// Each value of a definition that has every key, replaced. The only exceptions are integers written as `1.0`.
#[test]
fn what_the_schema_accepts_deserialises() {
    let schema = steward_core::definition::workflow::json_schema();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let definition: Value = read(super::keys::EVERYTHING).unwrap();
    for at in pointers(String::new(), &definition) {
        for replacement in replacements() {
            let mut definition = definition.clone();
            *definition.pointer_mut(&at).unwrap() = replacement.clone();
            if schema.is_valid(&definition)
                && let Err(problem) = Workflow::read(definition)
            {
                let known = problem.message.contains("floating point");
                assert!(known, "{at}: {replacement}: {problem}");
            }
        }
    }
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
}
