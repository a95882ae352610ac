//! The commands of the documentation print what the documentation says. To renew the pages:
//! `STEWARD_RENEW=1 cargo test --workspace --test documented -- --include-ignored`.
//!
//! Every ```` ```console ```` block is run, or has a flag `not-run=REASON`. The reasons are in `blocks.rs`.
//!
//! A block ```` ```console run ```` is run by a shell, in a folder of its own for each page. `run-long` blocks take minutes in a build
//! without optimisation, so they are run only with `--ignored`. The folder contains:
//!
//! - `workflows`, the repository's;
//! - the blocks of the page that have a name, such as ```` ```yaml definition file=order.yaml ````, from their place on. A page may write a
//!   file again;
//! - the files in `tests/documented/PAGE`, for files that a page describes and does not show, and those beside that folder for the
//!   pages of one folder, such as `tests/documented/operations`.
//!
//! Variables and the working directory last until the page ends. With `terminal` commands run in a pseudo-terminal, by `script`. Output and
//! errors are compared together. What differs from run to run is not compared ([`output`]), and with `any-numbers` no number is. A line `…`
//! stands for any lines.
//!
//! A page may need servers. A command of a block `server` that starts one runs until the page ends or the page starts the same
//! program again. The blocks that need a server are marked `served`. Servers get free ports in place of those of the page. A page in a folder
//! with a README begins with the blocks of that README: the pages of `docs/operations` share a deployment.

#![cfg(test)]

mod blocks;
mod output;
mod page;

use std::{fs, process::Command, thread};

use blocks::blocks;
use page::{differences, repository};

/// The pages of the documentation, relative to the repository. Their commands are run.
const PAGES: [&str; 3] = ["docs/*.md", "README.md", "examples/skill/*.md"];

/// Other pages with commands.
const OTHER_PAGES: [&str; 3] = ["infra/*.md", "examples/*.md", "benches/*.md"];

fn pages(patterns: &[&str]) -> Vec<String> {
    let listed = Command::new("git")
        .arg("ls-files")
        .args(patterns)
        .current_dir(repository())
        .output()
        .unwrap();
    String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The pages that have a block with this flag.
fn pages_with(flag: &str) -> Vec<String> {
    let has_block = |page: &String| {
        let text = fs::read_to_string(repository().join(page)).unwrap();
        blocks(&text).iter().any(|block| block.is(flag))
    };
    pages(&PAGES).into_iter().filter(has_block).collect()
}

/// Runs the blocks with one of these flags, of all pages that have a block with the first, at the same time; returns what
/// differs.
fn differences_of_pages(flags: &[&str]) -> Vec<String> {
    let pages = pages_with(flags[0]);
    thread::scope(|scope| {
        let run = |page| scope.spawn(move || differences(page, flags));
        let running: Vec<_> = pages.iter().map(String::as_str).map(run).collect();
        running.into_iter().flat_map(|page| page.join().unwrap()).collect()
    })
}

#[test]
fn commands_print_what_the_documentation_says() {
    let found = differences_of_pages(&["run"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// One after the other, because each uses the whole machine.
#[test]
#[ignore = "long"]
fn long_commands_print_what_the_documentation_says() {
    let pages = pages_with("run-long");
    let found: Vec<_> = pages.iter().flat_map(|page| differences(page, &["run-long"])).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Pages with servers are run from the beginning to the end.
#[test]
fn commands_for_servers_print_what_the_documentation_says() {
    let found = differences_of_pages(&["served", "server", "run"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_console_block_is_run_or_says_why_not() {
    for page in pages(&[&PAGES[..], &OTHER_PAGES].concat()) {
        for block in blocks(&fs::read_to_string(repository().join(&page)).unwrap()) {
            let wrong = block.wrong_flags();
            assert!(wrong.is_none(), "{page}:{}: {}", block.line, wrong.unwrap_or_default());
        }
    }
}
