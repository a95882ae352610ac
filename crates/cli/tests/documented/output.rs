//! Compares the output of commands, without what differs from run to run.

const RESUBMITTED: &str = "┆ resubmitted ┆";

/// After these, the state of a task differs: it depends on how fast services answer.
const BEFORE_A_STATE: [&str; 2] = [": done; ", RESUBMITTED];

/// A text of a known form that differs from run to run. In `form`, `0` is a digit, `f` a hexadecimal digit, and the
/// other characters are themselves.
struct Variable {
    form: &'static str,
    /// The characters that may follow.
    more: &'static str,
    name: &'static str,
}

const VARIABLES: [Variable; 5] = [
    Variable { form: "a-1/ask/i", more: "0123456789abcdefghijklmnopqrstuvwxyz", name: "TOKEN" },
    Variable { form: "0000-00-00T00:00:00", more: ".0123456789Z", name: "TIME" },
    Variable { form: "ffffffff-ffff-ffff-ffff-ffffffffffff", more: "", name: "ID" },
    Variable { form: ", revision 0", more: "0123456789", name: ", revision #" },
    Variable { form: "\"revision\":0", more: "0123456789", name: "\"revision\":#" },
];

/// The text without what differs from run to run.
pub(crate) fn normalised(text: &str) -> Vec<String> {
    let mut lines: Vec<_> = text.lines().map(normalised_line).collect();
    // Such events happen in any order.
    lines.chunk_by_mut(|one, other| is_event(one) && is_event(other)).for_each(<[_]>::sort);
    lines
}

/// The text with `#` in place of each number.
pub(crate) fn without_numbers(text: &str) -> String {
    let is_digit = |c: char| c.is_ascii_digit();
    let mut without = String::new();
    for c in text.chars() {
        match c {
            c if !is_digit(c) => without.push(c),
            _ if without.ends_with('#') => {}
            _ => without.push('#'),
        }
    }
    without
}

fn normalised_line(line: &str) -> String {
    for header in ["date: ", "content-length: "] {
        if line.starts_with(header) {
            return format!("{header}#");
        }
    }
    let line = match line.rsplit_once(" in ") {
        Some((before, after)) if after.ends_with(" s") => format!("{before} in # s"),
        Some(_) | None => line.to_owned(),
    };
    let end_of = |mark: &&str| Some(line.find(*mark)? + mark.len());
    let line = BEFORE_A_STATE.iter().find_map(end_of).map_or(line.as_str(), |end| &line[..end]);
    narrowed(&without_versions(&without_variables(line)))
}

/// Whether a line is a row of a table of what happens at almost the same time.
fn is_event(line: &str) -> bool {
    line.starts_with('│') && (line.contains("TIME") || line.ends_with(RESUBMITTED))
}

fn without_variables(line: &str) -> String {
    let mut without = String::new();
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let found = VARIABLES.iter().find_map(|variable| Some((variable, variable.end(rest)?)));
        if let Some((variable, after)) = found {
            without += variable.name;
            rest = after;
        } else {
            without.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    without
}

impl Variable {
    /// What follows this variable at the beginning of a text.
    fn end<'t>(&self, text: &'t str) -> Option<&'t str> {
        let has_form = text.len() >= self.form.len()
            && self.form.bytes().zip(text.bytes()).all(|(form, byte)| match form {
                b'0' => byte.is_ascii_digit(),
                b'f' => byte.is_ascii_hexdigit(),
                _ => byte == form,
            });
        has_form.then(|| text[self.form.len()..].trim_start_matches(|c| self.more.contains(c)))
    }
}

/// The line with `VERSION` in place of each word such as `0.2.0` or `0.3.0-dev`.
fn without_versions(line: &str) -> String {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_version = |word: &str| {
        let parts: Vec<_> = word.split_once('-').map_or(word, |(n, _)| n).split('.').collect();
        parts.len() == 3 && parts.iter().all(|part| is_number(part))
    };
    let words = line.split(' ').map(|word| if is_version(word) { "VERSION" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// The line without repeated fillers of tables.
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
pub(crate) fn matches(expected: &[String], printed: &[String]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == "…" => {
            (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..]))
        }
        Some((first, rest)) => printed.first() == Some(first) && matches(rest, &printed[1..]),
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

#[test]
fn what_differs_from_run_to_run_is_not_compared() {
    let same = |one: &str, other: &str| normalised(one) == normalised(other);
    assert!(same("\"at\":\"2026-11-22T22:22:03Z\"}", "\"at\":\"2027-01-01T00:00:00.1Z\"}"));
    assert!(same("│ shop ┆ 0.2.0 │", "│ shop ┆ 0.3.0-dev │"));
    assert!(!same("http://127.0.0.1/", "http://127.0.0.2/"));
    assert!(same("a: undo: done; Undoing, next: …", "a: undo: done; Undone, next: …"));
    assert!(!same("a: undo: done; Undone", "a: cancel: done; Undone"));
    assert!(same("│ a ┆ resubmitted ┆ Processed │", "│ a ┆ resubmitted ┆ Error │"));
    assert!(same("x, revision 5, failures 1", "x, revision 16, failures 1"));
    assert!(!same("x, revision 5, failures 1", "x, revision 5, failures 2"));
    assert_eq!(without_numbers("p99 │ 20890 ms"), "p# │ # ms");
}
