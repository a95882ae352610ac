//! The formats of `steward workflow check` for editors and CI.

use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use steward_core::definition::lint::Severity;

use super::file_problem::FileProblem;

/// What a path of a URI may contain as it is.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b'~');

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

/// All problems as one JSON object.
pub(super) fn json(problems: &[FileProblem], files: usize) -> serde_json::Result<String> {
    let entry = |report: &FileProblem| {
        let problem = &report.located.problem;
        let mut entry = Map::new();
        entry.insert("file".to_owned(), json!(report.file));
        if let Some(location) = &report.located.location {
            entry.insert("line".to_owned(), json!(location.line));
            entry.insert("column".to_owned(), json!(location.column));
        }
        entry.insert("severity".to_owned(), json!(level(report.severity)));
        entry.insert("at".to_owned(), json!(problem.at));
        entry.insert("message".to_owned(), json!(problem.message));
        if let Some(hint) = &problem.hint {
            entry.insert("hint".to_owned(), json!(hint));
        }
        Value::Object(entry)
    };
    let problems: Vec<_> = problems.iter().map(entry).collect();
    serde_json::to_string_pretty(&json!({ "files": files, "problems": problems }))
}

/// A problem as a workflow command of GitHub Actions:
/// <https://docs.github.com/actions/reference/workflow-commands-for-github-actions>.
pub(super) fn github(report: &FileProblem) -> String {
    let FileProblem { file, severity, located } = report;
    let mut properties = vec![format!("file={}", property(&file.display().to_string()))];
    if let Some(location) = &located.location {
        properties.push(format!("line={}", location.line));
        properties.push(format!("col={}", location.column));
    }
    let text = escaped(&located.problem.to_string());
    format!("::{} {}::{text}", level(*severity), properties.join(","))
}

/// Escapes what would end a message.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes what would end a property too.
fn property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}

/// All problems as SARIF 2.1.0:
/// <https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>.
pub(super) fn sarif(problems: &[FileProblem]) -> serde_json::Result<String> {
    let rule = |id: &str, text: &str| json!({ "id": id, "shortDescription": { "text": text } });
    let result = |report: &FileProblem| {
        let mut place = Map::new();
        place.insert("artifactLocation".to_owned(), json!({ "uri": uri(&report.file) }));
        if let Some(location) = &report.located.location {
            let region = json!({ "startLine": location.line, "startColumn": location.column });
            place.insert("region".to_owned(), region);
        }
        let severity = level(report.severity);
        json!({
            "ruleId": format!("definition-{severity}"),
            "level": severity,
            "message": { "text": report.located.problem.to_string() },
            "locations": [{ "physicalLocation": place }],
        })
    };
    let rules = [
        rule("definition-error", "The file cannot be published"),
        rule("definition-warning", "The definition may not do what its author expects"),
        rule("definition-note", "A behaviour of the definition that is easily overlooked"),
    ];
    serde_json::to_string_pretty(&json!({
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "steward", "version": env!("CARGO_PKG_VERSION"), "rules": rules,
            } },
            "columnKind": "unicodeCodePoints",
            "results": problems.iter().map(result).collect::<Vec<_>>(),
        }],
    }))
}

/// A path as a relative reference.
fn uri(file: &Path) -> String {
    let path = file.to_string_lossy().replace('\\', "/");
    utf8_percent_encode(&path, PATH).to_string()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use steward_core::definition::problem::DefinitionProblem;
    use steward_definition_file::{LocatedProblem, SourceLocation};

    use super::*;

    fn problem() -> FileProblem {
        let problem = DefinitionProblem {
            at: "steps.charge.after.0".to_owned(),
            message: "there is no step `100%`".to_owned(),
            hint: Some("did you mean\n`reserve`?".to_owned()),
        };
        let location = Some(SourceLocation { line: 10, column: 13, bytes: 0..1 });
        FileProblem {
            file: PathBuf::from("a b/order:1.yaml"),
            severity: Severity::Error,
            located: LocatedProblem { problem, location },
        }
    }

    #[test]
    fn a_command_of_github_has_no_character_that_ends_it() {
        assert_eq!(
            github(&problem()),
            "::error file=a b/order%3A1.yaml,line=10,col=13::steps.charge.after.0: there is no step `100%25`; \
             did you mean%0A`reserve`?"
        );
    }

    #[test]
    fn a_result_of_sarif_has_a_rule_and_a_place() {
        let text =
            sarif(&[problem(), FileProblem { severity: Severity::Warning, ..problem() }]).unwrap();
        let sarif: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(sarif["version"], "2.1.0");
        let results = &sarif["runs"][0]["results"];
        assert_eq!(results[0]["level"], "error");
        assert_eq!(results[1]["ruleId"], "definition-warning");
        let place = &results[0]["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "a%20b/order%3A1.yaml");
        assert_eq!(place["region"], json!({ "startLine": 10, "startColumn": 13 }));
        let rules = sarif["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
        assert!(rules.iter().any(|rule| rule["id"] == results[1]["ruleId"]));
    }

    #[test]
    fn the_json_has_the_place_and_the_hint() {
        let value: Value = serde_json::from_str(&json(&[problem()], 1).unwrap()).unwrap();
        let entry = &value["problems"][0];
        assert_eq!((&entry["line"], &entry["severity"]), (&json!(10), &json!("error")));
        assert!(entry["hint"].as_str().unwrap().starts_with("did you mean"));
    }
}
