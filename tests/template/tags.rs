//! Every way of deploying gives all resources the tag `steward:stack`, by which `infra/usage.py` finds a deployment in the bill.

/// Configurations of `sam deploy`. The stack of an agent has the tag of its deployment.
const CONFIGURATIONS: [(&str, &str); 4] = [
    ("samconfig.toml", include_str!("../../samconfig.toml")),
    ("steward.toml", include_str!("../../crates/cli/src/new/project/steward.toml")),
    ("the agent's samconfig.toml", include_str!("../../crates/cli/src/new/project/samconfig.toml")),
    ("deploy.md", include_str!("../../docs/operations/deploy.md")),
];

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
