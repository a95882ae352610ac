//! The tests beside the workflows of the repository.

use std::path::{Path, PathBuf};

use steward_definition_file::is_test_file;
use steward_scripted_runs::workflow_test::{describe, json_schema, read_tests, run_tests};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_shipped_workflows_pass_their_tests() {
    for entry in std::fs::read_dir(repository().join("workflows")).unwrap() {
        let path = entry.unwrap().path();
        if !is_test_file(&path) {
            assert!(path.with_extension("test.yaml").exists(), "{} has no tests", path.display());
            continue;
        }
        let tests = read_tests(&path).unwrap_or_else(|error| panic!("{error}"));
        let result = run_tests(&tests);
        let failed: String = result
            .cases
            .iter()
            .filter(|case| !case.outcome.is_passed())
            .map(|case| format!("{}:{}: {}\n{}", result.file, case.line, case.name, describe(case)))
            .collect();
        assert!(failed.is_empty(), "{failed}");
        assert!(!result.cases.is_empty());
    }
}

/// To update the file: `steward workflow test --schema > docs/workflow-test.schema.json`.
#[test]
fn the_published_schema_is_up_to_date() {
    let path = repository().join("docs/workflow-test.schema.json");
    let published = std::fs::read_to_string(path).unwrap_or_default();
    let current = serde_json::to_string_pretty(&json_schema()).unwrap() + "\n";
    assert!(published == current, "docs/workflow-test.schema.json is out of date");
}
