//! The commands of the documentation print what the documentation says. To renew the pages:
//! `STEWARD_RENEW=1 cargo test --workspace --test documented -- --include-ignored`.
//!
//! A block ```` ```console run ```` is run by a shell, in a folder of its own for each page. `run-long` blocks take minutes in a build
//! without optimisation, so they are run only with `--ignored`. The folder contains:
//!
//! - `workflows`, the repository's;
//! - the blocks of the page that have a name, such as ```` ```yaml definition file=order.yaml ````, from their place on. A page may write a
//!   file again;
//! - the files in `tests/documented/PAGE`, for files that a page describes and does not show.
//!
//! With `terminal` they run in a pseudo-terminal, by `script`. Output and errors are compared together. A duration after `in`, times, revisions,
//! the order of rows with a time, and the widths of columns may differ, and a line `…` stands for any lines.
//!
//! A page may need servers. A block `server` has one command, which runs until the page ends or the page starts the same program again.
//! The blocks that need a server are marked `served`. Servers get free ports in place of those of the page.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

use std::{
    env, fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// The beginnings of commands that need no deployment and no server: each such block is run.
const OFFLINE: [&str; 10] = [
    "steward new ",
    "steward workflow check ",
    "steward workflow diff ",
    "steward workflow failures ",
    "steward workflow graph ",
    "steward workflow import ",
    "steward workflow simulate ",
    "steward workflow test ",
    "steward cost ",
    "steward scale ",
];

/// A fenced block of a page.
struct Block {
    /// The line of its fence, from 1.
    line: usize,
    /// The words after the fence: a language and flags.
    info: Vec<String>,
    text: String,
}

impl Block {
    fn is(&self, flag: &str) -> bool {
        self.info.iter().any(|word| word == flag)
    }

    fn file_name(&self) -> Option<&str> {
        self.info.iter().find_map(|word| word.strip_prefix("file="))
    }

    /// The commands, each with what it is expected to print. A line that ends in `\` continues.
    fn commands(&self) -> Vec<(String, String)> {
        let mut commands: Vec<(String, String)> = Vec::new();
        let mut continues = false;
        for line in self.text.lines() {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((format!("{command}\n"), String::new())),
                (None, Some((command, _))) if continues => *command += &format!("{line}\n"),
                (None, Some((_, output))) => *output += &format!("{line}\n"),
                (None, None) => {} // A file is shown, or what happened before.
            }
            continues = line.ends_with('\\');
        }
        commands
    }

    fn runs_offline(&self) -> bool {
        let is_offline = |command: &str| OFFLINE.iter().any(|offline| command.starts_with(offline));
        let commands = self.commands();
        let deployed =
            |command: &str| command.contains("workflow diff") && !command.contains(".yaml ");
        self.is("console")
            && commands.iter().all(|(command, _)| is_offline(command) && !deployed(command))
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages of the documentation, relative to the repository.
fn pages() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "docs/*.md", "README.md"])
        .current_dir(repository())
        .output()
        .unwrap();
    String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in page.lines().enumerate() {
        open = match (open, line.strip_prefix("```")) {
            (Some(block), Some(_)) => {
                blocks.push(block);
                None
            }
            (Some(block), None) => Some(Block { text: block.text + line + "\n", ..block }),
            (None, Some(info)) => {
                let info = info.split(' ').map(str::to_owned).collect();
                Some(Block { line: index + 1, info, text: String::new() })
            }
            (None, None) => None,
        };
    }
    blocks
}

/// A folder with the files of a page.
fn folder_of(page: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::os::unix::fs::symlink(repository().join("workflows"), folder.path().join("workflows"))
        .unwrap();
    let name = page.trim_start_matches("docs/").trim_end_matches(".md").replace('/', "-");
    let described = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documented").join(name);
    for file in described.read_dir().into_iter().flatten() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    folder
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The folder of `steward`.
fn programs() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_steward")).parent().unwrap().to_owned()
}

/// A page while its commands run.
struct RunningPage {
    folder: TempDir,
    /// The exit code of the last command.
    exit_code: i32,
    servers: Vec<Server>,
}

/// A program that runs until it is dropped.
struct Server {
    /// The beginning of the command. Of the programs with the same beginning, one runs at a time.
    name: &'static str,
    /// Its address on the page.
    documented: &'static str,
    address: String,
    process: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The servers of pages: how the command begins, what runs in its place, and the address on the page.
const SERVERS: [(&str, &str, &str); 2] = [
    ("cargo run -p steward-demo --example services", "examples/services", "127.0.0.1:9000"),
    ("steward local", "steward local", "127.0.0.1:4566"),
];

impl RunningPage {
    fn new(page: &str) -> Self {
        Self { folder: folder_of(page), exit_code: 0, servers: Vec::new() }
    }

    /// Runs a command after the one before; returns what it prints, output and errors.
    fn run(&mut self, command: &str, in_terminal: bool) -> String {
        let script = format!("exec 2>&1\n(exit {})\n{}", self.exit_code, self.with_ports(command));
        let (program, arguments) = if in_terminal {
            ("script", vec!["--quiet", "--return", "--command", &script, "/dev/null"])
        } else {
            ("sh", vec!["-c", &script])
        };
        let output = self.shell(program).args(arguments).output().unwrap();
        self.exit_code = output.status.code().unwrap();
        let mut printed = without_colours(&String::from_utf8(output.stdout).unwrap());
        for Server { documented, address, .. } in &self.servers {
            printed = printed.replace(address.as_str(), documented);
        }
        let printed = printed.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        if printed.is_empty() { printed } else { printed + "\n" }
    }

    /// A program in the folder of the page, with `steward` on its path.
    fn shell(&self, program: &str) -> Command {
        let paths = env::var_os("PATH").unwrap();
        let paths = [programs()].into_iter().chain(env::split_paths(&paths));
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).env("PATH", env::join_paths(paths).unwrap());
        for server in self.servers.iter().filter(|server| server.name == "steward local") {
            command.env("AWS_ENDPOINT_URL", format!("http://{}", server.address));
        }
        command
    }

    fn with_ports(&self, command: &str) -> String {
        self.servers.iter().fold(command.to_owned(), |command, server| {
            command.replace(server.documented, &server.address)
        })
    }

    /// Starts a server, and waits until it accepts connections.
    fn serve(&mut self, command: &str) {
        let (name, program, documented) =
            SERVERS.into_iter().find(|(name, ..)| command.starts_with(name)).unwrap();
        self.servers.retain(|server| server.name != name);
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let arguments = self.with_ports(command.trim_end().strip_prefix(name).unwrap());
        let program = format!("exec {}/{program}", programs().display());
        let script = format!("{program} --listen {address} {arguments}");
        let mut shell = self.shell("sh");
        let shell = shell.args(["-c", &script]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = shell.spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(&address).is_err() {
            let ended = process.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "{script}: {ended:?}; its program is built by `cargo build --workspace --all-targets`"
            );
            thread::sleep(Duration::from_millis(20));
        }
        self.servers.push(Server { name, documented, address, process });
    }
}

/// The text without the sequences that set a terminal's colours: `ESC [ … m`.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or(part, |(_, after)| after))
}

/// The text without what differs from run to run: durations, times, and the width of columns.
fn normalised(text: &str) -> Vec<String> {
    let duration = |line: &str| match line.rsplit_once(" in ") {
        Some((before, after)) if after.ends_with(" s") => format!("{before} in # s"),
        Some(_) | None => line.to_owned(),
    };
    let revision = |line: String| match line.split_once(", revision ") {
        Some((before, after)) => {
            format!(
                "{before}, revision #{}",
                after.trim_start_matches(|c: char| c.is_ascii_digit())
            )
        }
        None => line,
    };
    let line = |line: &str| revision(without_times(&duration(line)));
    let mut lines: Vec<_> = text.lines().map(line).collect();
    // What happens at almost the same time happens in any order.
    lines.chunk_by_mut(|one, other| has_time(one) && has_time(other)).for_each(<[_]>::sort);
    lines
}

/// Whether a line is a row of a table with a time.
fn has_time(line: &str) -> bool {
    line.starts_with('│') && line.contains("TIME")
}

/// The line with `TIME` in place of each time such as `2026-11-25T12:00:00.5Z`, and without repeated fillers of tables.
fn without_times(line: &str) -> String {
    if !line.contains("Z") {
        return narrowed(line);
    }
    let words = line.split(' ').map(|word| {
        let time = word.trim_end_matches(['.', ',', ')']);
        let is_time = time.len() >= 20 && time.ends_with('Z') && time.as_bytes()[10] == b'T';
        if is_time { word.replace(time, "TIME") } else { word.to_owned() }
    });
    narrowed(&words.collect::<Vec<_>>().join(" "))
}

fn narrowed(line: &str) -> String {
    let mut narrow = String::new();
    for c in line.chars() {
        if !(matches!(c, ' ' | '─' | '═') && narrow.ends_with(c)) {
            narrow.push(c);
        }
    }
    narrow
}

/// Whether a command printed what is expected, where a line `…` stands for any lines.
fn matches(expected: &[String], printed: &[String]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == "…" => {
            (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..]))
        }
        Some((first, rest)) => printed.first() == Some(first) && matches(rest, &printed[1..]),
    }
}

/// Runs the blocks with one of these flags, of all pages that have a block with the first; returns what differs.
fn differences(flags: &[&str]) -> Vec<String> {
    let renews = env::var_os("STEWARD_RENEW").is_some();
    let mut found = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(repository().join(&page)).unwrap();
        let blocks = blocks(&text);
        if !blocks.iter().any(|block| block.is(flags[0])) {
            continue;
        }
        let mut running = RunningPage::new(&page);
        let mut renewed = text.clone();
        for block in blocks {
            if let Some(name) = block.file_name() {
                write(running.folder.path(), name, &block.text);
            }
            if !flags.iter().any(|flag| block.is(flag)) {
                continue;
            }
            for (command, expected) in block.commands() {
                if block.is("server") {
                    running.serve(&command);
                    continue;
                }
                let printed = running.run(&command, block.is("terminal"));
                if matches(&normalised(&expected), &normalised(&printed)) {
                    continue;
                }
                found.push(format!("{page}:{}: $ {command}{printed}", block.line));
                let shown = |output: &str| format!("$ {command}{output}");
                renewed = renewed.replacen(&shown(&expected), &shown(&printed), 1);
            }
        }
        if renews {
            fs::write(repository().join(&page), renewed).unwrap();
        }
    }
    found
}

#[test]
fn commands_print_what_the_documentation_says() {
    let differences = differences(&["run"]);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
#[ignore = "long"]
fn long_commands_print_what_the_documentation_says() {
    let differences = differences(&["run-long"]);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Pages with servers are run from the beginning to the end.
#[test]
fn commands_for_servers_print_what_the_documentation_says() {
    let differences = differences(&["server", "served", "run"]);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn every_command_that_needs_no_server_is_run() {
    for page in pages() {
        for block in blocks(&fs::read_to_string(repository().join(&page)).unwrap()) {
            let is_run = block.is("run") || block.is("run-long");
            let shows_output = block.text.lines().any(|line| !line.starts_with("$ "));
            assert!(
                is_run || !shows_output || !block.runs_offline(),
                "{page}:{}: mark it: ```console run",
                block.line
            );
        }
    }
}

#[test]
fn other_output_is_noticed() {
    let lines = |text: &str| normalised(text);
    assert!(matches(&lines("a\n1 case passed in 0.13 s"), &lines("a\n1 case passed in 2 s")));
    assert!(matches(&lines("a\n…\nz"), &lines("a\nb\nc\nz")));
    assert!(!matches(&lines("a\n…\nz"), &lines("a\nb\nc")));
    assert!(!matches(&lines("a"), &lines("a\nb")));
    assert!(!matches(&lines("a\nb"), &lines("a")));
    let table = |time: &str, state: &str| lines(&format!("│ {time} ┆ {state} │"));
    let (early, late) = ("2026-11-22T22:22:03.36Z", "2026-11-25T12:00:00.123456Z ");
    assert!(matches(&table(early, "Undone"), &table(late, "Undone ")));
    assert!(!matches(&table(early, "Undone"), &table(early, "Error")));
}
