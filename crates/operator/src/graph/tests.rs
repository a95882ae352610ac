//! One workflow in both formats, random workflows as SVG, and the graph of a task.

use crate::view::TaskView;
use roxmltree::Document;
use serde_json::{Value, json};
use steward_core::{definition::workflow::Workflow, model::task::Task};

use super::{drawing::Drawing, element, mermaid, svg};

fn workflow(steps: Value) -> Workflow {
    let workflow = json!({ "name": "delivery", "version": 3, "steps": steps });
    let workflow: Workflow = serde_json::from_value(workflow).unwrap();
    assert_eq!(workflow.problems(), []);
    workflow
}

fn drawing(steps: Value) -> Drawing {
    Drawing::of(&workflow(steps))
}

/// A workflow with every kind of step.
fn every_kind() -> Workflow {
    workflow(json!({
        "end": {
            "agent": "stock", "request": { "method": "PUT", "path": "/reservations/${ task.id }" },
            "undo": { "request": { "path": "/releases" } },
        },
        "pack": {
            "agent": "stock", "after": ["end"], "request": { "path": "/packs" },
            "for_each": { "items": "${ input.items }", "at_once": 5 },
        },
        "pause": { "after": ["pack"], "wait": "${ input.until }" },
        "express": {
            "agent": "drones", "after": ["pause"], "when": "${ input.note == \"<&`#\" }",
            "callback": { "within": "1h" }, "point_of_no_return": true,
            "request": { "path": "/flights", "body": "${ callback.token }" },
        },
        "notify": { "after": ["pause", "express"], "workflow": { "name": "notify", "version": 2 } },
    }))
}

#[test]
fn mermaid_has_a_shape_for_each_kind_of_step() {
    let expected = r##"---
title: delivery version 3
---
flowchart TD
    step_end["end<br/>stock: PUT /reservations/#123;task.id#125;<br/>undo: POST /releases"]
    step_pack["pack<br/>stock: POST /packs<br/>#91;#42;#93; each of input.items, 5 at once"]
    step_pause(["pause<br/>wait input.until"])
    when_express{"when input.note == #34;#60;#38;#96;#35;#34;"}
    step_express[/"express<br/>drones: POST /flights<br/>callback within 1h<br/>point of no return"/]
    step_notify[["notify<br/>workflow notify version 2<br/>undo: undoes the child task"]]
    when_express -->|true| step_express
    step_end --> step_pack
    step_pack --> step_pause
    step_pause --> when_express
    step_express --> step_notify
    classDef many stroke-dasharray: 6 3
    class step_pack many
    classDef noReturn stroke-width: 4px
    class step_express noReturn
"##;
    assert_eq!(mermaid::draw(&Drawing::of(&every_kind())), expected);
}

#[test]
fn svg_is_valid_xml_with_every_step_and_every_edge() {
    let drawing = Drawing::of(&every_kind());
    let text = svg::file(&drawing);
    let document = Document::parse(&text).unwrap();
    let root = document.root_element();
    assert_eq!(root.tag_name().name(), "svg");
    let named =
        |name: &str| root.descendants().filter(|node| node.has_tag_name(name)).collect::<Vec<_>>();
    let of_tag =
        |name: &'static str| root.descendants().filter(move |node| node.tag_name().name() == name);
    assert!(named("script").is_empty());
    let texts: Vec<_> = of_tag("text").filter_map(|node| node.text()).collect();
    for line in drawing.nodes.iter().flat_map(|node| &node.lines) {
        assert!(texts.contains(&line.as_str()), "no `{line}` in {texts:?}");
    }
    assert!(texts.contains(&"true"), "{texts:?}");
    let with_class = |class: &'static str| {
        of_tag("path").filter(move |node| {
            node.attribute("class").is_some_and(|all| all.split(' ').any(|one| one == class))
        })
    };
    assert_eq!(with_class("edge").count(), drawing.edges.len());
    // A stack has three outlines.
    assert_eq!(with_class("node").count(), drawing.nodes.len() + 2);
    for (class, count) in
        [("callback", 1), ("wait", 1), ("child", 1), ("condition", 1), ("no-return", 1)]
    {
        assert_eq!(with_class(class).count(), count, "{class}");
    }
}

#[test]
fn characters_that_xml_does_not_allow_are_replaced() {
    let steps = json!({ "a": { "agent": "x", "request": { "path": "/a\u{ffff}]]>" } } });
    let text = svg::file(&drawing(steps));
    let document = Document::parse(&text).unwrap();
    assert!(document.descendants().any(|node| node.text() == Some("x: POST /a\u{fffd}]]>")));
}

#[test]
fn any_graph_can_be_drawn() {
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..25 {
        // The first has the largest number of steps, the second the largest number of edges.
        let count = if round <= 1 { 100 } else { random.usize(1..30) };
        let density = random.f64() * 0.3;
        let steps: serde_json::Map<_, _> = (0..count)
            .map(|n| {
                let mut is_before = |before| match round {
                    1 => n >= 50 && before < 50,
                    _ => random.f64() < density,
                };
                let after: Vec<_> = (0..n)
                    .filter(|before| is_before(*before))
                    .map(|before| format!("s{before}"))
                    .collect();
                let mut step = json!({ "after": after, "wait": "1m" });
                if random.bool() {
                    step["when"] = json!("${ input.x }");
                }
                (format!("s{n}"), step)
            })
            .collect();
        let drawing = drawing(Value::Object(steps));
        let text = svg::file(&drawing);
        let document = Document::parse(&text).unwrap();
        let ids = document.descendants().filter_map(|node| node.attribute("id"));
        assert_eq!(ids.filter(|id| *id != "arrow").count(), drawing.nodes.len());
    }
}

/// A task of the workflow with these step records.
fn task(records: &Value) -> TaskView {
    let task = json!({
        "task_id": "42", "workflow": "delivery", "v": 3, "i": 0, "k": 0, "process_state": "Processing", "revision": 7,
        "submitted_at": 0, "complete_by": 0, "steps": records,
    });
    TaskView::of(&serde_json::from_value::<Task>(task).unwrap())
}

/// The id, the class and the texts of each group.
fn boxes(text: &str) -> Vec<(String, String, Vec<String>)> {
    let document = Document::parse(text).unwrap();
    let groups = document.descendants().filter(|node| node.tag_name().name() == "g");
    let attribute =
        |node: roxmltree::Node<'_, '_>, name| node.attribute(name).unwrap_or_default().to_owned();
    let boxes = groups.map(|group| {
        let texts = group.children().filter(|node| node.tag_name().name() == "text");
        let texts = texts.filter_map(|node| node.text()).map(str::to_owned).collect();
        (attribute(group, "id"), attribute(group, "class"), texts)
    });
    boxes.collect()
}

#[test]
fn each_step_of_a_task_has_the_symbol_and_name_of_its_state() {
    let records = json!({
        "end": { "s": "c", "a": 1 },
        "pack": { "s": "e", "p": { "n": 3, "d": [{ "s": "c", "a": 1 }, { "s": "k", "a": 0 }, { "s": "r", "a": 4, "b": 0 }], "l": "abc" } },
        "pause": { "s": "f", "a": 3, "x": { "s": "w", "a": 2, "u": 0 } },
        "express": { "s": "k", "a": 0 },
    });
    let text = element(&every_kind(), Some(&task(&records)));
    let found = boxes(&text);
    let found: Vec<_> = found
        .iter()
        .map(|(id, class, texts)| (id.as_str(), class.as_str(), texts.join("|")))
        .collect();
    let expected = [
        ("step-end", "state-completed", "end|✓ completed"),
        ("step-pack", "state-running", "pack|◐ running, 2 of 3 done"),
        ("step-pause", "state-undo-waiting", "pause|○ undo waiting, attempt 2"),
        ("when-express", "", "when input.note == \"<&`#\""),
        ("step-express", "state-skipped", "express|– skipped"),
        ("step-notify", "state-not-started", "notify|○ not started"),
    ];
    assert_eq!(found, expected.map(|(id, class, text)| (id, class, text.to_owned())));
}

#[test]
fn an_element_has_no_styles_and_a_text_description() {
    let records = json!({ "end": { "s": "c", "a": 1 }, "pack": { "s": "r", "a": 2, "b": 0 } });
    let of_task = element(&every_kind(), Some(&task(&records)));
    let of_workflow = element(&every_kind(), None);
    for (text, title, begins) in [
        (
            &of_task,
            "42, delivery version 3",
            "end: completed. pack after end: running, attempt 2. pause after pack: not started. ",
        ),
        (&of_workflow, "delivery version 3", "end. pack after end. pause after pack. "),
    ] {
        let document = Document::parse(text).unwrap();
        let root = document.root_element();
        assert_eq!(root.attribute("role"), Some("img"));
        for node in root.descendants() {
            assert!(
                node.tag_name().name() != "style" && node.attribute("style").is_none(),
                "{node:?}"
            );
            assert!(node.attributes().all(|one| !one.name().starts_with("on")), "{node:?}");
        }
        let label = |by: &str| {
            let id = root.attribute(by);
            root.children().find(|node| node.attribute("id") == id).and_then(|node| node.text())
        };
        assert_eq!(label("aria-labelledby"), Some(title));
        let words = label("aria-describedby").unwrap();
        assert!(words.starts_with(begins), "{words}");
    }
    // What a step does is in its box, or in its tooltip.
    for text in [of_task, of_workflow] {
        assert!(text.contains("stock: PUT /reservations/{task.id}"), "{text}");
    }
}
