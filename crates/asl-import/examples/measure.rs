//! Imports all state machines of a folder, and counts how many are complete and why the others are not. A file that is
//! no state machine counts as unreadable. `docs/import.md` has the figures for public examples.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command's output")]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use steward_asl_import::{Level, Options, Status, import};

fn main() {
    let details = std::env::var_os("DETAILS").is_some();
    for dir in std::env::args().skip(1) {
        let mut counts = BTreeMap::new();
        let mut reasons: BTreeMap<(Level, String), BTreeSet<String>> = BTreeMap::new();
        let mut unreadable = 0;
        let mut files: Vec<_> =
            std::fs::read_dir(Path::new(&dir)).into_iter().flatten().flatten().collect();
        files.sort_by_key(std::fs::DirEntry::path);
        for file in files {
            let path = file.path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let name =
                path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into());
            let options =
                Options { name, region: "REGION".into(), substitutions: substitutions(&text) };
            match import(&text, &options) {
                Err(error) => {
                    unreadable += 1;
                    eprintln!("{}: {error}", path.display());
                }
                Ok(import) => {
                    *counts.entry(import.report.status()).or_insert(0) += 1;
                    for finding in import.report.findings {
                        if finding.level >= Level::Decision {
                            if details {
                                println!("{}: {finding}", path.display());
                            }
                            let key = (finding.level, without_names(&finding.message));
                            reasons.entry(key).or_default().insert(path.display().to_string());
                        }
                    }
                }
            }
        }
        let count = |status| counts.get(&status).copied().unwrap_or(0);
        println!(
            "{dir}: {} complete, {} need decisions, {} cannot be translated completely, {unreadable} unreadable",
            count(Status::Complete),
            count(Status::NeedsDecisions),
            count(Status::Incomplete)
        );
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, files)| std::cmp::Reverse(files.len()));
        for ((level, reason), files) in reasons.into_iter().take(40) {
            println!("{:5} {level:?}: {reason}", files.len());
        }
    }
}

/// With `SET=1`, a value for each substitution of the deployment.
fn substitutions(text: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    if std::env::var_os("SET").is_none() {
        return all;
    }
    for part in text.split("${").skip(1) {
        if let Some((name, _)) = part.split_once('}') {
            let short: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
            let arn = format!("arn:aws:lambda:eu-west-1:123456789012:function:{short}");
            let lower = name.to_lowercase();
            let is_arn = ["arn", "function", "lambda"].iter().any(|part| lower.contains(part))
                || text.contains(&format!("\"Resource\": \"${{{name}}}\""));
            all.insert(name.to_owned(), if is_arn { arn } else { short });
        }
    }
    all
}

/// The message without the names in it, to count equal reasons.
fn without_names(message: &str) -> String {
    let mut parts = message.split('`');
    let mut text = parts.next().unwrap_or_default().to_owned();
    while let (Some(_), Some(after)) = (parts.next(), parts.next()) {
        text.push('…');
        text.push_str(after);
    }
    text.chars().take(110).collect()
}
