//! Files of the largest size with as many problems as fit: each problem costs the same, however many there are.

use steward_core::limits;

use super::*;

/// A file of the largest size: `head`, many of `part`, and `tail`.
fn filled(head: &str, part: impl Fn(usize) -> String, tail: &str) -> String {
    let mut text = head.to_owned();
    for n in 0.. {
        let part = part(n);
        if text.len() + part.len() + tail.len() > limits::DEFINITION_BYTES_MAX {
            break;
        }
        text.push_str(&part);
    }
    text + tail
}

const STEP: &str = "  a:\n    agent: a\n    request: { path: /x }\n";

/// The number of problems of `text`. The last one says that there are more.
fn reported(text: &str) -> usize {
    let Err(DefinitionError::Invalid { problems, .. }) = parse(Path::new("x.yaml"), text) else {
        panic!("the file is accepted");
    };
    let last = problems.last().unwrap();
    assert!(
        last.location.is_some()
            && problems.is_sorted_by_key(|p| p.location.as_ref().map(|l| l.line))
    );
    assert_eq!(
        last.problem.to_string(),
        "more than 200 problems; only these are reported; correct them, and check the file again"
    );
    problems.len()
}

#[test]
fn a_file_with_many_problems_reports_the_first_ones() {
    let head = format!("name: big\nversion: 1\nsteps:\n{STEP}");
    let body = "     body:\n";
    let texts = [
        filled(&head, |n| format!("k{n}: 1\n"), ""),
        filled(&head, |n| format!("    k{n}: 1\n"), ""),
        filled(&format!("{head}    after: ["), |_| "1, ".to_owned(), "a]\n"),
        filled(&format!("{head}    after: ["), |_| "{}, ".to_owned(), "a]\n"),
        filled(&format!("{head}    after: ["), |n| format!("q{n}, "), "a]\n"),
        filled(&format!("{head}lifecycle_events: ["), |n| format!("x{n}, "), "z]\n"),
        filled("name: big\nversion: 1\nsteps:\n", |n| format!("  s{n}:\n"), ""),
        filled(
            &format!(
                "name: big\nversion: 1\nsteps:\n  a:\n    agent: a\n    request:\n     path: /x\n{body}"
            ),
            |n| format!("      k{n}: '${{ inptu.x }}'\n"),
            "",
        ),
    ];
    for text in texts {
        assert_eq!(reported(&text), limits::PROBLEMS_MAX + 1, "{}", &text[..200]);
    }
}

#[test]
fn a_file_with_too_many_steps_has_only_this_problem() {
    let step = |n: usize| {
        format!("  s{n}: {{ agent: a, after: [s{}], request: {{ path: /x }} }}\n", n + 1)
    };
    let text = filled("name: big\nversion: 1\nsteps:\n", step, "");
    let count = text.matches("agent").count();
    assert_eq!(errors_in(&text), format!("3:1: steps: {count} steps; the limit is 100"));
}

/// Each problem is compared with the others, so a check that went on would take time that grows with their square.
#[test]
fn the_check_itself_stops_at_the_limit() {
    let found = limits::PROBLEMS_MAX + 1;
    let keys: String = (0..1_000).map(|n| format!("k{n}: 1\n")).collect();
    let text = format!("name: big\nversion: 1\nsteps:\n{STEP}{keys}");
    let (mut definition, mut source_map) = (read(&text).unwrap(), read(&text).unwrap());
    let report = structure::check(&structure::DEFINITIONS, &mut definition, &mut source_map);
    assert_eq!(report.problems.len(), found);
    let after: Vec<_> = (0..1_000).map(|n| format!("q{n}")).collect();
    let text = format!("name: big\nversion: 1\nsteps:\n{STEP}    after: [{}]\n", after.join(", "));
    assert_eq!(Workflow::read(read(&text).unwrap()).unwrap().problems().len(), found);
}
