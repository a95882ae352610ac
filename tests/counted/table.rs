//! A table of baseline figures in a file, and the comparison with new figures.

use std::{env, fmt::Write as _, fs, io::Write as _, path::PathBuf, process::Command};

/// The environment variable that renews the tables.
const RENEW: &str = "STEWARD_RENEW";

/// The command that renews the tables.
const COMMAND: &str = "STEWARD_RENEW=1 cargo test --workspace --test counted";

/// The accepted difference in percent. Differences between machines and runs are well below it.
const TOLERANCE_PERCENT: u64 = 5;

/// The prefix of the line with the compiler.
const COMPILER: &str = "# compiler: ";

/// The name of each case, with its figure for each column.
pub(crate) type CaseFigures = Vec<(String, Vec<u64>)>;

/// A table of baseline figures, in a file of this directory.
pub(crate) struct BaselineTable {
    file: PathBuf,
    columns: &'static [&'static str],
    /// Whether the figures depend on the compiler.
    depends_on_compiler: bool,
}

impl BaselineTable {
    pub(crate) fn new(file: &str, columns: &'static [&'static str]) -> Self {
        let file = [env!("CARGO_MANIFEST_DIR"), "counted", file].iter().collect();
        Self { file, columns, depends_on_compiler: false }
    }

    /// The same table, with figures that depend on the compiler: figures of another compiler are not compared.
    pub(crate) fn for_one_compiler(self) -> Self {
        Self { depends_on_compiler: true, ..self }
    }

    /// Fails if the figures differ from the table, or renews the table.
    ///
    /// Figures of another profile than that of `cargo test` are not compared, because its code differs.
    pub(crate) fn check(&self, counted: CaseFigures) {
        let compiler = compiler();
        if env::var_os(RENEW).is_some() {
            fs::write(&self.file, self.text(&compiler, &counted)).unwrap();
            return;
        }
        let name = self.file.display();
        let Ok(text) = fs::read_to_string(&self.file) else {
            return self.report_not_compared(&format!("no such file. To create it: {COMMAND}"));
        };
        let table_compiler =
            text.lines().find_map(|line| line.strip_prefix(COMPILER)).unwrap_or_default();
        if !cfg!(debug_assertions) {
            return self.report_not_compared("the baseline is of a debug build, this is another");
        }
        if self.depends_on_compiler && table_compiler != compiler {
            return self.report_not_compared(&format!(
                "the baseline is of {table_compiler}, this is {compiler}. To renew it: {COMMAND}"
            ));
        }
        let differences = differences(self.columns, &read(&text), &counted);
        assert!(
            differences.is_empty(),
            "{name} differs:\n{}\nIf this is intended: {COMMAND}",
            differences.join("\n")
        );
    }

    pub(crate) fn report_not_compared(&self, reason: &str) {
        let name = self.file.file_name().unwrap_or_default();
        report_not_compared(&name.to_string_lossy(), reason);
    }

    fn text(&self, compiler: &str, counted: &CaseFigures) -> String {
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

/// Prints that figures are not compared, although the test passes. The line is not captured by the test harness, as those of
/// `println!` are, and begins on a new line, since the harness may have begun one. `.ci/run` repeats it.
pub(crate) fn report_not_compared(name: &str, reason: &str) {
    let line = format!("\ncounted: NOT COMPARED: {name}: {reason}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

fn read(text: &str) -> CaseFigures {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        Some((name, words.map(|cost| cost.parse().unwrap()).collect()))
    };
    lines.filter_map(row).collect()
}

/// The cases whose figures differ by more than the tolerance, and those that only one side has.
fn differences(columns: &[&str], before: &CaseFigures, now: &CaseFigures) -> Vec<String> {
    let costs = |figures: &CaseFigures, name: &str| {
        figures.iter().find(|row| row.0 == name).map(|row| row.1.clone())
    };
    let removed = before.iter().filter(|(name, _)| costs(now, name).is_none());
    let mut differences: Vec<_> =
        removed.map(|(name, _)| format!("{name}: in the table, but not counted")).collect();
    for (name, now) in now {
        let Some(before) = costs(before, name) else {
            differences.push(format!("{name}: counted, but not in the table"));
            continue;
        };
        for ((column, now), before) in columns.iter().zip(now).zip(before) {
            if now.abs_diff(before) * 100 > before * TOLERANCE_PERCENT {
                let percent = (*now as f64 / before as f64 - 1.0) * 100.0;
                differences.push(format!("{name}: {now} {column}, not {before} ({percent:+.1} %)"));
            }
        }
    }
    differences
}

/// The version text of the compiler.
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
        differences(&["bytes"], &before, &now),
        [
            "gone: in the table, but not counted",
            "more: 106 bytes, not 100 (+6.0 %)",
            "less: 94 bytes, not 100 (-6.0 %)",
            "new: counted, but not in the table",
        ]
    );
}
