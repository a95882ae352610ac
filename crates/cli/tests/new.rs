//! `steward new` writes a project whose files are valid and whose scripts work, and overwrites nothing. `.ci/new-project`
//! deploys one to an emulator.

#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and means test functions, not their helpers"
)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const RELEASES: &str = "https://github.example/shops/steward/releases/download";

fn steward(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
    command.args(arguments).current_dir(folder).env_remove("STEWARD_RELEASES").output().unwrap()
}

fn create(folder: &Path, agent: &str) -> PathBuf {
    let output = steward(folder, &["new", "shop", "--agent", agent, "--releases", RELEASES]);
    assert!(output.status.success(), "{output:?}");
    folder.join("shop")
}

/// All files below a folder, as paths from it.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().to_owned());
            }
        }
    }
    found
}

#[test]
fn no_placeholder_is_left_in_a_project() {
    for agent in ["python", "rust", "none"] {
        let folder = tempfile::tempdir().unwrap();
        let project = create(folder.path(), agent);
        for file in files(&project) {
            let text = fs::read_to_string(project.join(&file)).unwrap();
            for placeholder in
                ["my-project", ".invalid", "AGENT_SECTION", "LOCAL_AGENT", "=0.0.0", "\"v0.0.0\""]
            {
                assert!(!text.contains(placeholder), "{agent}: {}: {placeholder}", file.display());
                assert!(!file.display().to_string().contains(placeholder));
            }
        }
        let workflow = fs::read_to_string(project.join("workflows/shop.yaml")).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let schema = format!("$schema={RELEASES}/v{version}/steward-workflow.schema.json\n");
        assert!(workflow.starts_with(&format!("# yaml-language-server: {schema}")), "{workflow}");
        let release = fs::read_to_string(project.join("release.env")).unwrap();
        assert!(release.contains(&format!("STEWARD_VERSION={}\n", env!("CARGO_PKG_VERSION"))));
        assert!(release.contains(&format!("STEWARD_RELEASES={RELEASES}\n")));
    }
}

#[test]
fn the_workflow_of_a_project_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let project = create(folder.path(), "python");
    let checked = steward(&project, &["workflow", "check", "workflows/shop.yaml"]);
    assert!(checked.status.success(), "{checked:?}");
    // A warning would greet every new user.
    assert!(!String::from_utf8_lossy(&checked.stderr).contains("warning"), "{checked:?}");
    let example = fs::read(project.join("example.json")).unwrap();
    let example: serde_json::Value = serde_json::from_slice(&example).unwrap();
    assert_eq!(example["workflow"], "shop");
}

/// The README names every file, and every file that it names exists.
#[test]
fn the_readme_describes_the_files() {
    for agent in ["python", "rust", "none"] {
        let folder = tempfile::tempdir().unwrap();
        let project = create(folder.path(), agent);
        let readme = fs::read_to_string(project.join("README.md")).unwrap();
        for file in files(&project) {
            let file = file.to_str().unwrap();
            let is_described = readme.contains(file)
                || ["README.md", ".gitignore"].contains(&file)
                || ["agent/", ".github/workflows/"]
                    .iter()
                    .any(|folder| file.starts_with(folder) && readme.contains(folder));
            assert!(is_described, "{agent}: {file}");
        }
    }
}

#[test]
fn the_scripts_of_a_project_say_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let output = steward(folder.path(), &["new", "shop"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("STEWARD_PACKAGE"), "{output:?}");
    let project = folder.path().join("shop");
    let workflow = fs::read_to_string(project.join("workflows/shop.yaml")).unwrap();
    assert!(!workflow.contains("$schema="), "{workflow}");
    let run = |script: &str, argument: &str| {
        let output = Command::new(project.join(script)).arg(argument).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(run("fetch", "package").contains("set it to the URL of the releases"));
    assert!(run("fetch", "release").contains("package or command"));
    assert!(run("deploy", "staging").contains("steward.toml has no [staging.deploy.parameters]"));
}

/// A deployment package with this version and this content.
fn package(folder: &Path, version: &str, content: &str) -> PathBuf {
    let root = folder.join(format!("{version}-{content}/steward"));
    fs::create_dir_all(&root).unwrap();
    fs::write(root.join("version"), version).unwrap();
    fs::write(root.join("content"), content).unwrap();
    let file = folder.join(format!("{version}-{content}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(&file).arg("-C").arg(root.parent().unwrap()).arg("steward");
    assert!(tar.status().unwrap().success());
    file
}

#[test]
fn another_package_leaves_the_one_before_in_place_for_a_running_emulator() {
    let folder = tempfile::tempdir().unwrap();
    assert!(steward(folder.path(), &["new", "shop"]).status.success());
    let project = folder.path().join("shop");
    let fetch = |package: Option<&Path>| {
        let mut command = Command::new(project.join("fetch"));
        command.arg("package").env_remove("STEWARD_PACKAGE");
        let output = command.envs(package.map(|file| ("STEWARD_PACKAGE", file))).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let content = || fs::read_to_string(project.join(".steward/content")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(fetch(Some(&package(folder.path(), version, "one"))), (true, String::new()));
    let first = project.join(".steward").canonicalize().unwrap();
    fs::write(project.join(".steward/local.env"), "export A=1").unwrap();

    let (fetched, error) = fetch(Some(&package(folder.path(), "9.9.9", "wrong")));
    assert!(!fetched && error.contains("the package has version 9.9.9"), "{error}");
    assert_eq!(content(), "one");
    assert_eq!(fetch(Some(&package(folder.path(), version, "two"))), (true, String::new()));
    assert_eq!((content().as_str(), first.join("content").exists()), ("two", true));
    assert!(
        project.join(".steward/local.env").exists(),
        "the variables of an environment are kept"
    );
    assert_eq!(fetch(None), (true, String::new()), "a package that was given stays");
    assert_eq!(content(), "two");
    let left = fs::read_dir(project.join(".releases")).unwrap().count();
    assert_eq!(left, 2, "nothing else is left");
}

#[test]
fn a_command_of_another_version_deploys_nothing() {
    let folder = tempfile::tempdir().unwrap();
    assert!(steward(folder.path(), &["new", "shop"]).status.success());
    let project = folder.path().join("shop");
    fs::write(project.join("release.env"), "STEWARD_VERSION=9.9.9\nSTEWARD_RELEASES=\n").unwrap();
    let commands = Path::new(env!("CARGO_BIN_EXE_steward")).parent().unwrap().display();
    let path = format!("{commands}:{}", std::env::var("PATH").unwrap());
    let deploy = Command::new(project.join("deploy")).arg("local").env("PATH", path).output();
    let error = String::from_utf8(deploy.unwrap().stderr).unwrap();
    assert!(error.starts_with("deploy: release.env has 9.9.9, and the command is"), "{error}");
}

#[test]
fn nothing_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("shop")).unwrap();
    fs::write(folder.path().join("shop/notes"), "mine").unwrap();
    let output = steward(folder.path(), &["new", "shop"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("not empty"), "{output:?}");
    assert_eq!(files(&folder.path().join("shop")), BTreeSet::from([PathBuf::from("notes")]));
    // An empty folder is what `git clone` of a new repository leaves, but for `.git`.
    fs::create_dir(folder.path().join("empty")).unwrap();
    assert!(steward(folder.path(), &["new", "shop", "--folder", "empty"]).status.success());
}

#[test]
fn names_that_stacks_agents_or_workflows_refuse_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "Shop",
        "my_shop",
        "9shop",
        "shop-",
        "my--shop",
        "../shop",
        "my-agent-shop",
        "my-agent",
        "a-name-of-21-letters-",
    ] {
        let output = steward(folder.path(), &["new", name]);
        assert_eq!(output.status.code(), Some(2), "{name}: {output:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("at most 20") || name.contains("-agent"), "{error}");
    }
    assert!(files(folder.path()).is_empty());
    let rust = steward(folder.path(), &["new", "shop", "--agent", "rust"]);
    assert!(String::from_utf8_lossy(&rust.stderr).contains("--releases"), "{rust:?}");
}
