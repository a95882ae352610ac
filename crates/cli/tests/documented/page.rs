//! Runs the commands of a page, and compares what they print.

use std::{
    env, fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    blocks::{Block, blocks},
    output::{matches, normalised, without_numbers},
};

/// How long to wait for a server, or for what a command is expected to print.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program that serves.
struct Program {
    /// How the command begins on the pages.
    name: &'static str,
    /// What runs in its place.
    program: &'static str,
    /// Its address on the pages, unless the command has `--listen`.
    address: &'static str,
}

const SERVERS: [Program; 4] = [
    Program {
        name: "cargo run -p steward-demo --example services",
        program: "services",
        address: "127.0.0.1:9000",
    },
    Program { name: "steward local", program: "steward local", address: "127.0.0.1:4566" },
    Program { name: "python3 shop.py", program: "python3 shop.py", address: "127.0.0.1:18099" },
    Program { name: "python3 desk.py", program: "python3 desk.py", address: "127.0.0.1:9000" },
];

/// The addresses in pages at which servers listen.
const ADDRESSES: [&str; 4] =
    ["127.0.0.1:4566", "127.0.0.1:9000", "127.0.0.1:14566", "127.0.0.1:18099"];

/// Commands that show a state that may come later, or refuse until it has come. They are repeated until they print what is
/// expected.
const REPEATED: [&str; 9] = [
    "curl -s $URL -d ",
    "curl -s $URL/tasks/",
    "steward approve ",
    "steward dlq list",
    "steward list",
    "steward show ",
    "steward tenants",
    "steward workflow list",
    "steward workflow unpublish ",
];

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs the blocks of a page that have one of these flags; returns what differs.
///
/// A page in a folder with a README whose blocks are run continues that README.
pub(crate) fn differences(page: &str, flags: &[&str]) -> Vec<String> {
    let mut running = RunningPage::new(page);
    let mut found = Vec::new();
    let readme = Path::new(page).with_file_name("README.md");
    if readme.as_path() != Path::new(page) && repository().join(&readme).exists() {
        found = running.run_file(readme.to_str().unwrap(), flags);
    }
    found.extend(running.run_file(page, flags));
    found
}

/// A page while its commands run.
struct RunningPage {
    folder: TempDir,
    /// The variables and the working directory that the commands before have left.
    shell_state: TempDir,
    /// The exit code of the last command.
    exit_code: i32,
    addresses: Vec<Address>,
    servers: Vec<Server>,
}

/// An address of the page, and the one that is used in its place.
struct Address {
    documented: &'static str,
    used: String,
}

/// A program that runs until it is dropped.
struct Server {
    /// The beginning of the command. Of the programs with the same beginning, one runs at a time.
    name: &'static str,
    process: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Address {
    /// A free port that the system does not give to connections: between this and the start of the server it stays free.
    fn of_page(documented: &'static str) -> Self {
        static PORTS: AtomicU32 = AtomicU32::new(0);
        let first = 10_000 + std::process::id() % 200 * 100;
        loop {
            let port = first + PORTS.fetch_add(1, Ordering::Relaxed);
            let used = format!("127.0.0.1:{port}");
            if TcpListener::bind(&used).is_ok() {
                return Self { documented, used };
            }
        }
    }
}

impl RunningPage {
    fn new(page: &str) -> Self {
        let shell_state = TempDir::new().unwrap();
        fs::write(shell_state.path().join("state"), "").unwrap();
        let addresses = ADDRESSES.into_iter().map(Address::of_page).collect();
        let folder = folder_of(page);
        Self { folder, shell_state, exit_code: 0, addresses, servers: Vec::new() }
    }

    /// Runs the blocks of a file that have one of these flags; returns what differs.
    fn run_file(&mut self, file: &str, flags: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        let text = fs::read_to_string(repository().join(file)).unwrap();
        let mut renewed = text.clone();
        for block in blocks(&text) {
            if let Some(name) = block.file_name() {
                write(self.folder.path(), name, &block.text);
            }
            if !block.is_any(flags) {
                continue;
            }
            for (command, expected) in block.commands() {
                let Some(printed) = self.difference(&block, &command, &expected) else { continue };
                found.push(format!("{file}:{}: $ {command}{printed}", block.line));
                let shown = |output: &str| format!("$ {command}{output}");
                renewed = renewed.replacen(&shown(&expected), &shown(&printed), 1);
            }
        }
        if env::var_os("STEWARD_RENEW").is_some() && renewed != text {
            fs::write(repository().join(file), renewed).unwrap();
        }
        found
    }

    /// Runs a command, or starts a server; returns what it prints, if that is not what is expected.
    fn difference(&mut self, block: &Block, command: &str, expected: &str) -> Option<String> {
        let is_server = |server: &&Program| block.is("server") && command.starts_with(server.name);
        let server = SERVERS.iter().find(is_server);
        let output_of_server = server.map(|server| self.serve(server, command));
        let is_awaited = server.is_some() || REPEATED.iter().any(|read| command.starts_with(read));
        let is_shown = server.is_none() || !expected.is_empty();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let printed = match &output_of_server {
                Some(file) => self.with_documented(&fs::read_to_string(file).unwrap()),
                None => self.run(command, block.is("terminal")),
            };
            if !is_shown || is_expected(block, expected, &printed) {
                return None;
            }
            if !is_awaited || Instant::now() > deadline {
                return Some(printed);
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Runs a command after the one before; returns what it prints, output and errors.
    fn run(&mut self, command: &str, in_terminal: bool) -> String {
        let state = self.shell_state.path().join("state");
        let state = state.display();
        let command = self.with_used(command).replace("cargo run -- ", "steward ");
        let script = format!(
            "exec 2>&1\n. {state}\nset -a\n(exit {})\n{command}\ncode=$?\n\
             {{ export -p; echo \"cd '$PWD'\"; }} > {state}\nexit $code",
            self.exit_code
        );
        let (program, arguments) = if in_terminal {
            ("script", vec!["--quiet", "--return", "--command", &script, "/dev/null"])
        } else {
            ("sh", vec!["-c", &script])
        };
        let output = self.shell(program).args(arguments).output().unwrap();
        self.exit_code = output.status.code().unwrap();
        let printed = without_colours(&String::from_utf8(output.stdout).unwrap());
        let printed = self.with_documented(&printed);
        let printed = printed.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        if printed.is_empty() { printed } else { printed + "\n" }
    }

    /// A program in the folder of the page, with `steward` on its path. The user is Anna.
    fn shell(&self, program: &str) -> Command {
        let paths = env::var_os("PATH").unwrap();
        let built = [programs(), programs().join("examples")];
        let paths = built.into_iter().chain(env::split_paths(&paths));
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).env("PATH", env::join_paths(paths).unwrap());
        command.env("SHELL", "/bin/sh").env("USER", "anna");
        for variable in ["AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"] {
            command.env_remove(variable);
        }
        command
    }

    fn with_used(&self, command: &str) -> String {
        self.addresses.iter().fold(command.to_owned(), |command, address| {
            command.replace(address.documented, &address.used)
        })
    }

    fn with_documented(&self, printed: &str) -> String {
        self.addresses.iter().fold(printed.to_owned(), |printed, address| {
            printed.replace(&address.used, address.documented)
        })
    }

    /// Starts a server, and waits until it accepts connections; returns the file that it prints to.
    fn serve(&mut self, server: &Program, command: &str) -> PathBuf {
        let Program { name, program, address } = server;
        self.servers.retain(|server| server.name != *name);
        let arguments = command.trim_end().strip_prefix(name).unwrap();
        let arguments = arguments.strip_prefix(" -- ").unwrap_or(arguments);
        let listen = arguments.split_once("--listen ").and_then(|(_, at)| at.split(' ').next());
        let listens = listen.map_or(format!("--listen {address}"), |_| String::new());
        let address = listen.unwrap_or(address);
        let address = self.with_used(address);
        let script = self.with_used(&format!("exec {program} {listens} {arguments}"));
        let script = format!(". {}\n{script}", self.shell_state.path().join("state").display());
        let file = self.shell_state.path().join(name.replace(['/', ' '], "-"));
        let mut shell = self.shell("sh");
        let shell = shell.args(["-c", &script]).stdout(fs::File::create(&file).unwrap());
        let mut process = shell.stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(&address).is_err() {
            let ended = process.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "{script}: {ended:?}; its program is built by `cargo build --workspace --all-targets`"
            );
            thread::sleep(Duration::from_millis(20));
        }
        self.servers.push(Server { name, process });
        file
    }
}

/// Whether a command printed what its block expects.
fn is_expected(block: &Block, expected: &str, printed: &str) -> bool {
    let lines = |text: &str| match block.is("any-numbers") {
        true => normalised(&without_numbers(text)),
        false => normalised(text),
    };
    matches(&lines(expected), &lines(printed))
}

/// A folder with the files of a page: the repository's workflows, and those in `tests/documented` for the page and for the
/// folder that it is in.
fn folder_of(page: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::os::unix::fs::symlink(repository().join("workflows"), folder.path().join("workflows"))
        .unwrap();
    let described = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documented");
    let name = Path::new(page.trim_start_matches("docs/")).with_extension("");
    for part in name.ancestors().filter(|part| !part.as_os_str().is_empty()) {
        for file in described.join(part).read_dir().into_iter().flatten() {
            let file = file.unwrap();
            if file.file_type().unwrap().is_file() {
                fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
            }
        }
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

/// The text without the sequences that set a terminal's colours: `ESC [ … m`.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or(part, |(_, after)| after))
}
