//! `docs/operations/parameters.md` lists every parameter of every template that people deploy. Names, defaults and meanings
//! are those of the templates; people write the last column, when to change a parameter. `STEWARD_RENEW=1` rewrites the
//! other columns.

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

use serde_json::Value;

use super::parse_yaml;

/// The templates, in the order of the page.
const TEMPLATES: [(&str, &str); 5] = [
    ("template.yaml", include_str!("../../template.yaml")),
    ("infra/agent.yaml", include_str!("../../infra/agent.yaml")),
    ("infra/schedule.yaml", include_str!("../../infra/schedule.yaml")),
    ("infra/domain.yaml", include_str!("../../infra/domain.yaml")),
    ("infra/deployment-role.yaml", include_str!("../../infra/deployment-role.yaml")),
];

/// Templates that `template.yaml` nests, and whose parameters it sets.
const NESTED: [&str; 2] = ["example-agents.yaml", "operations.yaml"];

const HEADER: &str = "| parameter | default | meaning | change it |\n| --- | --- | --- | --- |\n";

fn page() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/operations/parameters.md")
}

/// The last column of the page, by template and parameter.
fn written_advice(page: &str) -> BTreeMap<(String, String), String> {
    let mut template = String::new();
    let mut advice = BTreeMap::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## `").and_then(|line| line.strip_suffix('`')) {
            heading.clone_into(&mut template);
        }
        let Some(row) = line.strip_prefix("| `") else { continue };
        let (name, rest) = row.split_once("` |").expect("a parameter");
        let (_, last) = rest.trim_end_matches(" |").rsplit_once("| ").expect("four columns");
        advice.insert((template.clone(), name.to_owned()), last.trim().to_owned());
    }
    advice
}

fn default_of(parameter: &Value) -> String {
    match &parameter["Default"] {
        Value::Null => "required".to_owned(),
        Value::String(text) if text.is_empty() => "none".to_owned(),
        Value::String(text) => format!("`{text}`"),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            format!("`{other}`")
        }
    }
}

fn meaning_of(parameter: &Value) -> String {
    let text = parameter["Description"].as_str().expect("a description").trim_end_matches('.');
    let mut meaning = text.replace('*', "\\*").replace('|', "\\|");
    let texts = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Some(values) = parameter["AllowedValues"].as_array() {
        let values: Vec<_> = values.iter().map(|value| format!("`{}`", texts(value))).collect();
        write!(meaning, ". One of {}", values.join(", ")).unwrap();
    }
    if let Some(max) = parameter["MaxLength"].as_u64() {
        write!(meaning, ". At most {max} characters").unwrap();
    }
    if let (Some(min), Some(max)) = (parameter["MinValue"].as_i64(), parameter["MaxValue"].as_i64())
    {
        write!(meaning, ". From {min} to {max}").unwrap();
    }
    meaning
}

/// The page with the tables that the templates demand.
fn renewed(page: &str) -> String {
    let advice = written_advice(page);
    let mut text = page.to_owned();
    for (path, template) in TEMPLATES {
        let template = parse_yaml(template);
        let mut table = HEADER.to_owned();
        for (name, parameter) in template["Parameters"].as_object().unwrap() {
            let advice = advice.get(&(path.to_owned(), name.clone()));
            let advice = advice.map_or("", String::as_str);
            let (default, meaning) = (default_of(parameter), meaning_of(parameter));
            writeln!(table, "| `{name}` | {default} | {meaning} | {advice} |").unwrap();
        }
        let heading = format!("## `{path}`\n");
        let (before, section) = text.split_once(&heading).unwrap_or_else(|| panic!("no {heading}"));
        let (intro, rows) =
            section.split_once(HEADER).unwrap_or_else(|| panic!("{path}: no table"));
        let end = rows.find("\n\n").map_or(rows.len(), |end| end + 1);
        text = format!("{before}{heading}{intro}{table}{}", &rows[end..]);
    }
    text
}

#[test]
fn the_page_of_parameters_lists_those_of_all_templates() {
    let written = std::fs::read_to_string(page()).unwrap();
    let expected = renewed(&written);
    if std::env::var_os("STEWARD_RENEW").is_some() {
        std::fs::write(page(), &expected).unwrap();
    } else {
        assert_eq!(
            written, expected,
            "run: STEWARD_RENEW=1 cargo test --workspace --test steward parameters"
        );
    }
    for ((template, name), advice) in written_advice(&expected) {
        assert!(!advice.is_empty(), "{template}: {name}: write when to change it");
    }
}

#[test]
fn every_template_of_infra_is_listed() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../infra");
    let listed =
        |name: &str| TEMPLATES.iter().any(|(path, _)| path.strip_prefix("infra/") == Some(name));
    let unlisted = folder.read_dir().unwrap().map(|file| file.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with(".yaml")
            && std::fs::read_to_string(path).unwrap().contains("AWSTemplateFormatVersion")
            && !listed(name)
            && !NESTED.contains(&name)
    });
    assert_eq!(unlisted.collect::<Vec<_>>(), Vec::<PathBuf>::new());
}
