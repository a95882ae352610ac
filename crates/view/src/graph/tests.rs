//! The same workflow in both pictures, and any workflow in the one that needs a layout.

use serde_json::{Value, json};
use steward_core::workflow::Workflow;

use super::{drawing::Drawing, mermaid, svg};

fn drawing(steps: Value) -> Drawing {
    let workflow = json!({ "name": "delivery", "version": 3, "steps": steps });
    let workflow: Workflow = serde_json::from_value(workflow).unwrap();
    assert_eq!(workflow.problems(), []);
    Drawing::of(&workflow)
}

/// A step of every kind.
fn every_kind() -> Drawing {
    drawing(json!({
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
        "tell": { "after": ["pause", "express"], "workflow": { "name": "tell", "version": 2 } },
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
    step_express[/"express<br/>drones: POST /flights<br/>answered within 1h<br/>point of no return"/]
    step_tell[["tell<br/>workflow tell version 2<br/>undo: its own"]]
    when_express -->|true| step_express
    step_end --> step_pack
    step_pack --> step_pause
    step_pause --> when_express
    step_express --> step_tell
    classDef many stroke-dasharray: 6 3
    class step_pack many
    classDef noReturn stroke-width: 4px
    class step_express noReturn
"##;
    assert_eq!(mermaid::draw(&every_kind()), expected);
}

#[test]
fn svg_is_xml_with_every_step_and_every_edge_in_it() {
    let drawing = every_kind();
    let text = svg::draw(&drawing);
    let document = roxmltree::Document::parse(&text).unwrap();
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
    // A stack is three sheets.
    assert_eq!(with_class("node").count(), drawing.nodes.len() + 2);
    for (class, count) in
        [("callback", 1), ("wait", 1), ("child", 1), ("condition", 1), ("no-return", 1)]
    {
        assert_eq!(with_class(class).count(), count, "{class}");
    }
}

#[test]
fn what_xml_cannot_have_is_replaced() {
    let steps = json!({ "a": { "agent": "x", "request": { "path": "/a\u{1}\u{ffff}]]>" } } });
    let text = svg::draw(&drawing(steps));
    let document = roxmltree::Document::parse(&text).unwrap();
    assert!(
        document.descendants().any(|node| node.text() == Some("x: POST /a\u{fffd}\u{fffd}]]>"))
    );
}

#[test]
fn any_graph_can_be_drawn() {
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..25 {
        // The first is as large as a definition may be; the second has as many arrows as one can have.
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
        let text = svg::draw(&drawing);
        let document = roxmltree::Document::parse(&text).unwrap();
        let ids = document.descendants().filter_map(|node| node.attribute("id"));
        assert_eq!(ids.filter(|id| *id != "arrow").count(), drawing.nodes.len());
    }
}
