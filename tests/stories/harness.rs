//! Reads and runs stories. The test target `stories` checks each story; `transition_coverage` checks what all stories cover
//! together.

mod decision_text;
mod event_parser;
mod invariants;
mod story_file;
mod story_run;

use std::path::Path;

use steward_core::{
    engine::{decision::Transition, event::Event},
    model::task::Task,
};

use story_file::{Story, display_name};
use story_run::StoryRun;

/// Runs a story. `observer` is called for every decision with the task before it, the event, and the decision.
///
/// # Errors
/// All unexpected decisions and violated invariants, with file and line.
pub(crate) fn check(
    file: &Path,
    observer: impl FnMut(&Task, &Event, &Transition),
) -> Result<(), String> {
    let story = Story::read(file)?;
    let mut run = StoryRun::new(&story, observer);
    let mut failures = Vec::new();
    for line in &story.lines {
        let decision = run.run(line);
        let violated = run.violated.drain(..);
        let mut problems: Vec<_> =
            violated.map(|text| format!("\n  invariant violated: {text}")).collect();
        match decision {
            Ok(decision) if decision == line.expected => {}
            Ok(decision) => {
                problems.push(format!("\n  expected: {}\n  got:      {decision}", line.expected))
            }
            Err(problem) => problems.push(format!("\n  {problem}")),
        }
        if !problems.is_empty() {
            let (file, number, problems) = (display_name(file), line.number, problems.concat());
            failures.push(format!("{file}:{number}\n  {}{problems}", line.event));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}
