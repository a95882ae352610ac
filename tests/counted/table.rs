//! A table of what was counted before, and what is held against it.

use std::{env, fmt::Write as _, fs, path::PathBuf, process::Command};

use crate::say;

/// The variable that has the tables written anew.
const RENEW: &str = "STEWARD_RENEW";

/// The command that renews the tables.
const COMMAND: &str = "STEWARD_RENEW=1 cargo test --workspace --test counted";

/// How much more, or less, in percent: what differs between machines and runs is well below it.
const TOLERANCE_PERCENT: u64 = 5;

/// What the line with the compiler begins with.
const COMPILER: &str = "# compiler: ";

/// What each case costs.
pub(crate) type Costs = Vec<(String, Vec<u64>)>;

/// A table in a file beside this one.
pub(crate) struct Table {
    file: PathBuf,
    columns: &'static [&'static str],
    /// Whether another compiler counts otherwise.
    of_one_compiler: bool,
}

impl Table {
    pub(crate) fn new(file: &str, columns: &'static [&'static str]) -> Self {
        let file = [env!("CARGO_MANIFEST_DIR"), "counted", file].iter().collect();
        Self { file, columns, of_one_compiler: false }
    }

    /// One whose figures are the compiler's work too: what is counted with another is not judged.
    pub(crate) fn of_one_compiler(self) -> Self {
        Self { of_one_compiler: true, ..self }
    }

    /// Fails if what was counted is not what the table says, or writes the table anew.
    ///
    /// Another profile than that of `cargo test` makes other code: what was counted there is not judged.
    pub(crate) fn hold(&self, counted: Costs) {
        let compiler = compiler();
        if env::var_os(RENEW).is_some() {
            fs::write(&self.file, self.text(&compiler, &counted)).unwrap();
            return;
        }
        let name = self.file.display();
        let Ok(text) = fs::read_to_string(&self.file) else {
            say(&format!("not judged: there is no {name}. To make it: {COMMAND}"));
            return;
        };
        let of = text.lines().find_map(|line| line.strip_prefix(COMPILER)).unwrap_or_default();
        let is_other = self.of_one_compiler && of != compiler;
        if is_other || !cfg!(debug_assertions) {
            say(&format!("not judged: {name} is of a debug build by {of}. To renew it: {COMMAND}"));
            return;
        }
        let wrong = judge(self.columns, &read(&text), &counted);
        assert!(
            wrong.is_empty(),
            "{name} says otherwise:\n{}\nIf that is meant: {COMMAND}",
            wrong.join("\n")
        );
    }

    fn text(&self, compiler: &str, counted: &Costs) -> String {
        let mut text =
            format!("# What each case costs. To renew: {COMMAND}\n{COMPILER}{compiler}\n");
        write!(text, "{:<42}", "#").unwrap();
        self.columns.iter().for_each(|column| write!(text, "{column:>14}").unwrap());
        text.push('\n');
        for (name, costs) in counted {
            write!(text, "{name:<42}").unwrap();
            costs.iter().for_each(|cost| write!(text, "{cost:>14}").unwrap());
            text.push('\n');
        }
        text
    }
}

fn read(text: &str) -> Costs {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        Some((name, words.map(|cost| cost.parse().unwrap()).collect()))
    };
    lines.filter_map(row).collect()
}

/// What is not as it was.
fn judge(columns: &[&str], before: &Costs, now: &Costs) -> Vec<String> {
    let costs =
        |of: &Costs, name: &str| of.iter().find(|row| row.0 == name).map(|row| row.1.clone());
    let gone = before.iter().filter(|(name, _)| costs(now, name).is_none());
    let mut wrong: Vec<_> = gone.map(|(name, _)| format!("{name}: there is none")).collect();
    for (name, now) in now {
        let Some(before) = costs(before, name) else {
            wrong.push(format!("{name}: not in the table"));
            continue;
        };
        for ((column, now), before) in columns.iter().zip(now).zip(before) {
            if now.abs_diff(before) * 100 > before * TOLERANCE_PERCENT {
                let percent = (*now as f64 / before as f64 - 1.0) * 100.0;
                wrong.push(format!("{name}: {now} {column}, not {before} ({percent:+.1} %)"));
            }
        }
    }
    wrong
}

/// The compiler, as it says itself.
fn compiler() -> String {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    version.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

#[test]
fn an_increase_a_decrease_and_an_unknown_case_all_fail() {
    let row = |name: &str, cost| (name.to_owned(), vec![cost]);
    let before = vec![row("same", 100), row("more", 100), row("less", 100), row("gone", 100)];
    let now = vec![row("same", 105), row("more", 106), row("less", 94), row("new", 1)];
    assert_eq!(
        judge(&["bytes"], &before, &now),
        [
            "gone: there is none",
            "more: 106 bytes, not 100 (+6.0 %)",
            "less: 94 bytes, not 100 (-6.0 %)",
            "new: not in the table",
        ]
    );
}
