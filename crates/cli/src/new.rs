//! `steward new`: writes a project of the user's own, with a workflow, its tests, an agent, what deploys it, and what CI runs.
//!
//! The files are real ones, in `new/`: a project called `my-project` of release 0.0.0, which CI lints. Here only names,
//! version and addresses are replaced.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};

/// The longest name: `NAME-local-agent-NAME` is the name of a Lambda function, which has at most 64 characters.
const NAME_BYTES_MAX: usize = 20;

/// Where the release of this command is, if a release workflow built it.
const RELEASES: Option<&str> = option_env!("STEWARD_RELEASES");

/// Options of `steward new`.
#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// The name of the project, its workflow and its agent: a lower-case letter, then lower-case letters, digits and -, at most
    /// 20. The project is written to a folder of this name.
    #[arg(value_parser = parse_name)]
    name: ProjectName,
    /// The project's agent.
    #[arg(long, value_enum, default_value_t = Agent::Python)]
    agent: Agent,
    /// The folder to write to, instead of NAME. It must not exist, or be empty.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// The URL of Steward's releases: files are at URL/vVERSION/FILE. Without it the project deploys from a package on this
    /// machine only.
    #[arg(long, env = "STEWARD_RELEASES", default_value = RELEASES.unwrap_or_default())]
    releases: String,
}

/// The languages of the generated agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Agent {
    /// A Lambda function in Python.
    Python,
    /// A Lambda function in Rust, with the crate `steward-agent`.
    Rust,
    /// The agent that Steward includes, for a service that speaks HTTP.
    None,
}

/// The name of a project: valid for a workflow, an agent, stacks and a Cargo package.
#[derive(Debug, Clone)]
struct ProjectName(String);

fn parse_name(name: &str) -> Result<ProjectName> {
    let is_valid = name.len() <= NAME_BYTES_MAX
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.split('-').all(|word| {
            let is_lower_case = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            !word.is_empty() && word.chars().all(is_lower_case)
        });
    ensure!(
        is_valid,
        "expected a lower-case letter, then lower-case letters, digits and single `-`, at most {NAME_BYTES_MAX}, such as my-shop"
    );
    // Patterns of names tell Steward's own queues from those of agents.
    ensure!(
        !format!("{name}-").contains("-agent-"),
        "the name of a stack must not contain `-agent-`"
    );
    Ok(ProjectName(name.to_owned()))
}

/// A file of a project: its path, and its text. A script begins with `#!`.
type ProjectFile = (&'static str, &'static str);

/// The files of every project.
const COMMON: &[ProjectFile] = &[
    ("README.md", include_str!("new/project/README.md")),
    (".gitignore", include_str!("new/project/gitignore")),
    ("release.env", include_str!("new/project/release.env")),
    ("fetch", include_str!("new/project/fetch")),
    ("deploy", include_str!("new/project/deploy")),
    ("steward.toml", include_str!("new/project/steward.toml")),
    ("samconfig.toml", include_str!("new/project/samconfig.toml")),
    ("service.py", include_str!("new/project/service.py")),
    ("example.json", include_str!("new/project/example.json")),
    ("workflows/my-project.yaml", include_str!("new/project/workflows/my-project.yaml")),
    ("workflows/my-project.test.yaml", include_str!("new/project/workflows/my-project.test.yaml")),
    (".github/workflows/checks.yml", include_str!("new/project/.github/workflows/checks.yml")),
    (".github/workflows/deploy.yml", include_str!("new/project/.github/workflows/deploy.yml")),
];

impl Agent {
    fn files(self) -> &'static [ProjectFile] {
        match self {
            Self::Python => &[
                ("template.yaml", include_str!("new/python/template.yaml")),
                ("local.env", include_str!("new/python/local.env")),
                (
                    "agent/lambda_function.py",
                    include_str!("../../../examples/python-agent/lambda_function.py"),
                ),
                ("agent/work.py", include_str!("new/python/work.py")),
            ],
            Self::Rust => &[
                ("template.yaml", include_str!("new/rust/template.yaml")),
                ("local.env", include_str!("new/rust/local.env")),
                ("agent/Cargo.toml", include_str!("new/rust/Cargo.toml")),
                ("agent/src/main.rs", include_str!("new/rust/src/main.rs")),
            ],
            Self::None => &[("template.yaml", include_str!("new/none/template.yaml"))],
        }
    }

    /// The README's section on the agent.
    fn section(self) -> &'static str {
        match self {
            Self::Python => include_str!("new/python/agent.md"),
            Self::Rust => include_str!("new/rust/agent.md"),
            Self::None => include_str!("new/none/agent.md"),
        }
    }

    /// The option of `steward local` that names the agent.
    fn local_option(self) -> &'static str {
        match self {
            Self::Python | Self::Rust => "--queue-agent my-project",
            Self::None => "--agent my-project=http://127.0.0.1:8080",
        }
    }
}

/// The placeholders of the files and what replaces them in one project.
struct Replacements<'a> {
    name: &'a str,
    agent: Agent,
    releases: &'a str,
    repository: &'a str,
}

impl Replacements<'_> {
    fn apply(&self, text: &str) -> String {
        let steward = if self.repository.is_empty() {
            "Steward".to_owned()
        } else {
            format!("[Steward]({})", self.repository)
        };
        // The first line of a workflow and of its tests names a schema of the release, for editors.
        let schema_line = text.split_once('\n').filter(|(line, _)| line.contains("$schema="));
        let without_schema = schema_line.filter(|_| self.releases.is_empty());
        let text = without_schema.map_or(text, |(_, rest)| rest);
        text.replace("[Steward](https://repository.invalid)", &steward)
            .replace("AGENT_SECTION", self.agent.section())
            .replace("LOCAL_AGENT", self.agent.local_option())
            .replace("my-project", self.name)
            .replace("0.0.0", env!("CARGO_PKG_VERSION"))
            .replace("https://releases.invalid", self.releases)
            .replace("https://repository.invalid", self.repository)
    }
}

/// Writes the project.
pub(crate) fn run(args: &NewArgs) -> Result<()> {
    let name = args.name.0.as_str();
    let folder = args.folder.clone().unwrap_or_else(|| PathBuf::from(name));
    let releases = args.releases.trim_end_matches('/');
    let repository = releases.strip_suffix("/releases/download").unwrap_or_default();
    ensure!(
        args.agent != Agent::Rust || !repository.is_empty(),
        "an agent in Rust needs Steward's repository: give --releases https://github.com/OWNER/NAME/releases/download"
    );
    ensure_empty(&folder)?;
    let replacements = Replacements { name, agent: args.agent, releases, repository };
    let files = COMMON.iter().chain(args.agent.files());
    for (path, text) in files.clone() {
        let path = folder.join(path.replace("my-project", name));
        write(&path, &replacements.apply(text))
            .with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    outln!("{}: {} files; its README.md says how to go on", folder.display(), files.count());
    if releases.is_empty() {
        outln!(
            "release.env has no URL of releases: set STEWARD_RELEASES there, or deploy with STEWARD_PACKAGE=/PATH/FILE"
        );
    }
    Ok(())
}

/// Fails unless the folder is missing or empty: nothing is overwritten.
fn ensure_empty(folder: &Path) -> Result<()> {
    match fs::read_dir(folder) {
        Ok(mut entries) => {
            ensure!(
                entries.next().is_none(),
                "{} exists and is not empty: choose another name, or --folder",
                folder.display()
            );
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => bail!("{}: {error}", folder.display()),
    }
}

/// Creates a file that does not exist yet, with its folders.
fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut file = fs::File::create_new(path)?;
    file.write_all(text.as_bytes())?;
    if text.starts_with("#!") {
        make_executable(&file)?;
    }
    Ok(())
}

#[cfg(unix)]
fn make_executable(file: &fs::File) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(file.set_permissions(fs::Permissions::from_mode(0o755))?)
}

#[cfg(not(unix))]
fn make_executable(_: &fs::File) -> Result<()> {
    Ok(())
}
