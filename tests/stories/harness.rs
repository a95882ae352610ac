//! Reads and runs stories. The test target `stories` checks each story; `transition_coverage` checks what all stories cover
//! together.

mod decision_text;
mod event_parser;
mod story_file;
mod story_run;

use std::path::Path;

use steward_core::{
    engine::{decision::Transition, event::Event},
    model::task::Task,
};

use story_file::{Story, display_name};
use story_run::{DocumentPlaces, StoryRun};

/// Runs a story twice: with its documents in the item of the task, and with separate documents. The decisions are the same.
/// `observer` is called for every decision with the task before it, the event, and the decision.
///
/// # Errors
/// All unexpected decisions and wrong documents, with file and line. A violated invariant of the engine is a panic.
pub(crate) fn check(
    file: &Path,
    mut observer: impl FnMut(&Task, &Event, &Transition),
) -> Result<(), String> {
    let story = Story::read(file)?;
    check_run(file, &story, StoryRun::new(&story, DocumentPlaces::InItem, &mut observer))?;
    check_run(file, &story, StoryRun::new(&story, DocumentPlaces::Separate, observer))
        .map_err(|failures| format!("with separate documents: {failures}"))
}

fn check_run<F: FnMut(&Task, &Event, &Transition)>(
    file: &Path,
    story: &Story,
    mut run: StoryRun<'_, F>,
) -> Result<(), String> {
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
