//! Every way of deploying gives all resources the tag `steward:stack`, by which `infra/usage.py` finds a deployment in the bill.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Configurations of `sam deploy`. The stack of an agent has the tag of its deployment.
const CONFIGURATIONS: [(&str, &str); 4] = [
    ("samconfig.toml", include_str!("../../samconfig.toml")),
    ("steward.toml", include_str!("../../crates/cli/src/new/project/steward.toml")),
    ("the agent's samconfig.toml", include_str!("../../crates/cli/src/new/project/samconfig.toml")),
    ("deploy.md", include_str!("../../docs/operations/deploy.md")),
];

/// The commands `sam deploy` in the console blocks of these pages, each with its page.
fn deploy_commands(pages: impl Iterator<Item = PathBuf>) -> Vec<(String, String)> {
    let mut commands = vec![];
    for page in pages {
        let text = fs::read_to_string(&page).unwrap().replace("\\\n", " ");
        let lines = text.lines().filter_map(|line| line.strip_prefix("$ "));
        let lines = lines.filter(|line| line.starts_with("sam deploy"));
        commands.extend(lines.map(|line| (page.display().to_string(), line.to_owned())));
    }
    commands
}

/// All pages below a folder.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut pages = vec![];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages.extend(self::pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages
}

/// A command without a configuration has the tag and the prefix itself. Configurations have it: see the test below.
#[test]
fn every_documented_deployment_passes_the_tag_or_a_configuration() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pages =
        ["docs", "infra", "examples"].into_iter().flat_map(|folder| pages(&root.join(folder)));
    let commands = deploy_commands(pages.chain([root.join("README.md")]));
    for (page, command) in &commands {
        let words: Vec<_> = command.split_whitespace().collect();
        let after = |option: &str| {
            let at = words.iter().position(|word| *word == option)?;
            words.get(at + 1).copied()
        };
        // The `default` of samconfig.toml, or the section that the command names.
        let has_configuration = words == ["sam", "deploy", "--guided"]
            || words.iter().any(|word| word.starts_with("--config-"));
        if !has_configuration {
            let of_agent = words.iter().find_map(|word| word.strip_prefix("Steward="));
            let stack = of_agent.or_else(|| after("--stack-name"));
            let stack = stack.unwrap_or_else(|| panic!("{page}: {command}: no stack"));
            let tag = format!("steward:stack={stack}");
            assert_eq!(after("--tags"), Some(&*tag), "{page}: {command}");
            // Otherwise the deletion of one stack would delete the code of another.
            // A guided deployment takes its stack's name.
            let prefix = after("--s3-prefix")
                .or(after("--stack-name").filter(|_| words.contains(&"--guided")));
            assert_eq!(prefix, after("--stack-name"), "{page}: {command}");
        }
    }
    assert!(commands.len() >= 8, "{commands:?}");
}

/// The text value of a key in a section.
fn value<'a>(section: &'a str, key: &str) -> Option<&'a str> {
    section
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'))
}

#[test]
fn every_environment_is_deployed_with_the_tag_of_its_deployment() {
    let mut environments = 0;
    for (file, text) in CONFIGURATIONS {
        let sections =
            text.split("\n[").filter_map(|text| text.split_once(".deploy.parameters]\n"));
        // Emulators send no bills.
        for (environment, section) in sections.filter(|(environment, _)| *environment != "local") {
            let section = section.split("\n\n").next().unwrap();
            let parameters = value(section, "parameter_overrides").unwrap_or_default();
            let of_agent = parameters.split(' ').find_map(|one| one.strip_prefix("Steward="));
            let stack = of_agent.or_else(|| value(section, "stack_name"));
            let stack = stack.unwrap_or_else(|| panic!("{file}: {environment} has no stack"));
            let tag = format!("steward:stack={stack}");
            assert_eq!(value(section, "tags"), Some(&*tag), "{file}: {environment}");
            environments += 1;
        }
    }
    assert_eq!(environments, 9);
    let deploy = include_str!("../../infra/deploy");
    assert!(deploy.contains("tags=(\"steward:stack=$deployment\")"));
    let options = deploy.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(
        options.filter(|line| line.contains("--tags")).count(),
        1,
        "sam keeps only the last"
    );
    let usage = include_str!("../../infra/usage.py");
    assert!(usage.contains("TAG = \"steward:stack\""));
}
