//! Keeps the published JSON Schema and the reference documentation consistent with the types.

use serde_json::Value;
use steward_core::definition::workflow::json_schema;

use super::*;

fn file(name: &str) -> String {
    std::fs::read_to_string(repository().join(name)).unwrap()
}

/// To update the file: `steward workflow schema > docs/workflow.schema.json`.
#[test]
fn the_published_schema_is_up_to_date() {
    let published = file("docs/workflow.schema.json");
    assert!(
        published == format!("{:#}\n", json_schema()),
        "docs/workflow.schema.json is out of date"
    );
}

#[test]
fn the_schema_is_valid_and_accepts_the_shipped_definitions() {
    let schema = json_schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    for entry in std::fs::read_dir(repository().join("workflows")).unwrap() {
        let path = entry.unwrap().path();
        if is_test_file(&path) {
            continue;
        }
        let definition: Value = read(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert!(validator.is_valid(&definition), "{}", path.display());
    }
}

/// Only `steps` has keys that the schema does not list: their names match a pattern instead.
#[test]
fn every_mapping_of_the_schema_refuses_unknown_keys() {
    let schema = json_schema();
    let mappings = schema["$defs"].as_object().unwrap().values().chain([&schema]);
    let mut count = 0;
    for mapping in mappings.filter(|mapping| mapping["properties"].is_object()) {
        assert_eq!(mapping["additionalProperties"], false, "{mapping}");
        count += 1;
    }
    assert_eq!(count, 23);
    assert_eq!(schema["properties"]["steps"]["additionalProperties"], false);
}

fn keys(schema: &Value) -> Vec<String> {
    let mappings = schema["$defs"].as_object().unwrap().values().chain([schema]);
    let keys = mappings.filter_map(|mapping| mapping["properties"].as_object());
    let keys = keys.flat_map(|keys| keys.keys());
    keys.cloned().collect()
}

#[test]
fn the_reference_names_every_key() {
    let reference = file("docs/workflows.md");
    for key in keys(&json_schema()) {
        assert!(
            reference.contains(&format!("`{key}`")),
            "docs/workflows.md does not document `{key}`"
        );
    }
}

/// The code blocks of a page in `language`. Each has its info string, which starts with the language, and its
/// text.
fn blocks(page: &str, language: &str) -> Vec<(String, String)> {
    let page = file(page);
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in page.lines() {
        open = match (open, line.strip_prefix("```")) {
            (Some(block), Some(_)) => {
                blocks.push(block);
                None
            }
            (Some((info, text)), None) => Some((info, text + line + "\n")),
            (None, Some(info)) => Some((info.to_owned(), String::new())),
            (None, None) => None,
        };
    }
    blocks.retain(|(info, _)| info.split(' ').next() == Some(language));
    blocks
}

/// Completes a fragment to a definition: adds the workflow, the step around it and the steps that it names.
fn complete(info: &str, text: &str) -> String {
    let indented = |by: usize| {
        let lines = text.lines().map(|line| format!("{}{line}\n", " ".repeat(by)));
        lines.collect::<String>()
    };
    let others = "  \
  reserve: { agent: inventory, request: { path: /reservations } }
  charge: { agent: payment, after: [reserve], request: { path: /charges } }
";
    match info.split(' ').nth(1) {
        Some("definition") => text.to_owned(),
        Some("steps") => format!("name: x\nversion: 1\nsteps:\n{others}{}", indented(2)),
        Some("step") => {
            format!(
                "name: x\nversion: 1\ncomplete_within: 7d\nsteps:\n{others}  it:\n    after: [charge]\n{}",
                indented(4)
            )
        }
        Some("call") => format!(
            "name: x\nversion: 1\nsteps:\n{others}  it:\n    agent: x\n    after: [charge]\n    request: {{ path: / }}\n{}",
            indented(4)
        ),
        Some("top") => format!("name: x\nversion: 1\n{text}steps:\n{others}"),
        _ => panic!("unknown kind of example: ```{info}"),
    }
}

#[test]
fn the_examples_of_the_reference_and_of_the_cookbook_are_valid() {
    for (page, number) in [("docs/workflows.md", 16), ("docs/cookbook.md", 9)] {
        let blocks = blocks(page, "yaml");
        assert!(blocks.len() >= number, "{page}: {}", blocks.len());
        for (info, text) in blocks {
            assert_eq!(errors_in(&complete(&info, &text)), "", "{page}: {info}\n{text}");
        }
    }
}

#[test]
fn the_definitions_of_the_other_pages_are_valid() {
    for page in ["docs/tutorial.md", "docs/from-step-functions.md", "docs/failures.md"] {
        let mut definitions = blocks(page, "yaml");
        definitions.retain(|(info, _)| info.split(' ').nth(1) == Some("definition"));
        assert!(!definitions.is_empty(), "{page}");
        for (info, text) in definitions {
            assert_eq!(errors_in(&complete(&info, &text)), "", "{page}\n{text}");
        }
    }
}

#[test]
fn the_errors_in_the_tutorials_draft_are_reported() {
    let drafts = blocks("docs/tutorial.md", "yaml");
    let (_, draft) = drafts.iter().find(|(info, _)| info == "yaml file=flows/send.yaml").unwrap();
    let errors = errors_in(draft);
    for text in ["14:5: steps.fly: unknown key `aftr`", "did you mean `task`?"] {
        assert!(errors.contains(text), "{errors}");
    }
}

#[test]
fn the_errors_of_the_invalid_example_are_as_documented() {
    let blocks = blocks("docs/workflows.md", "text");
    let [(_, file), (_, errors)] = blocks.as_slice() else { panic!("{blocks:?}") };
    assert_eq!(parse(Path::new("order.yaml"), file).unwrap_err().to_string(), errors.trim_end());
}
