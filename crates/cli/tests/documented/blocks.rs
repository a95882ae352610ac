//! The fenced blocks of a page, and the commands in them.

/// Why a block is not run by these tests. No other reasons exist.
const NOT_RUN: [(&str, &str); 6] = [
    ("aws", "it needs an AWS account"),
    ("ci", "another step of CI runs it"),
    ("emulator", "it deploys the functions to an emulator"),
    ("internet", "it downloads something"),
    ("long", "it compiles or measures for minutes"),
    ("service", "it needs a service of the reader"),
];

/// The flags of blocks that are run.
const RUN: [&str; 4] = ["run", "run-long", "server", "served"];

/// A fenced block of a page.
pub(crate) struct Block {
    /// The line of its fence, from 1.
    pub(crate) line: usize,
    /// The words after the fence: a language and flags.
    info: Vec<String>,
    pub(crate) text: String,
}

impl Block {
    pub(crate) fn is(&self, flag: &str) -> bool {
        self.info.iter().any(|word| word == flag)
    }

    pub(crate) fn is_any(&self, flags: &[&str]) -> bool {
        flags.iter().any(|flag| self.is(flag))
    }

    pub(crate) fn file_name(&self) -> Option<&str> {
        self.value("file=")
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.info.iter().find_map(|word| word.strip_prefix(key))
    }

    /// The commands, each with what it is expected to print. A line that ends in `\` continues.
    pub(crate) fn commands(&self) -> Vec<(String, String)> {
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

    /// What is wrong with the flags of a console block: it is run, or says why not.
    pub(crate) fn wrong_flags(&self) -> Option<String> {
        let is_run = self.is_any(&RUN);
        let reasons = NOT_RUN.map(|(reason, why)| format!("`not-run={reason}`: {why}")).join("; ");
        match self.value("not-run=") {
            Some(reason) if !NOT_RUN.iter().any(|(known, _)| *known == reason) => {
                Some(format!("unknown reason `{reason}`; the reasons are {reasons}"))
            }
            Some(_) if is_run => Some("it is run: remove `not-run=`".to_owned()),
            None if self.is("console") && !is_run => {
                Some(format!("mark it with one of {RUN:?}, or say why it is not run ({reasons})"))
            }
            Some(_) | None => None,
        }
    }
}

/// The fenced blocks of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
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

#[test]
fn console_blocks_are_run_or_say_why_not() {
    let is_wrong = |flags: &str, text: &str| {
        blocks(&format!("```{flags}\n{text}\n```"))[0].wrong_flags().is_some()
    };
    let shows = "$ steward list\nno tasks";
    assert!(is_wrong("console", shows));
    assert!(is_wrong("console", "$ cargo build\n$ steward list\nno tasks"));
    assert!(!is_wrong("console served", shows));
    assert!(!is_wrong("console not-run=aws", shows));
    assert!(is_wrong("console not-run=later", shows));
    assert!(is_wrong("console run not-run=aws", shows));
    assert!(is_wrong("console", "$ steward local \\\n    --data state"));
    assert!(!is_wrong("text", shows));
}
