//! A drawing as a Mermaid flowchart (<https://mermaid.js.org/syntax/flowchart.html>).

use super::drawing::{Drawing, Edge, GraphNode, NodeKind};

/// The text of the flowchart.
pub(super) fn draw(drawing: &Drawing) -> String {
    let mut text = format!("---\ntitle: {}\n---\nflowchart TD\n", drawing.title);
    for node in &drawing.nodes {
        text.push_str(&format!("    {}\n", shape(node)));
    }
    for Edge { from, to, label } in &drawing.edges {
        let id = |index: &usize| drawing.nodes.get(*index).map(|node| node.id('_'));
        let Some((from, to)) = id(from).zip(id(to)) else { continue };
        let arrow = if label.is_empty() { "-->".to_owned() } else { format!("-->|{label}|") };
        text.push_str(&format!("    {from} {arrow} {to}\n"));
    }
    text.push_str(&class_lines(drawing, "many", "stroke-dasharray: 6 3", |node| node.is_many));
    text.push_str(&class_lines(drawing, "noReturn", "stroke-width: 4px", |node| {
        node.is_point_of_no_return
    }));
    text
}

/// The lines that assign a class to the nodes for which `is_marked` is true; empty if there are none.
fn class_lines(
    drawing: &Drawing,
    class: &str,
    style: &str,
    is_marked: impl Fn(&GraphNode) -> bool,
) -> String {
    let marked = drawing.nodes.iter().filter(|node| is_marked(node));
    let marked: Vec<_> = marked.map(|node| node.id('_')).collect();
    if marked.is_empty() {
        return String::new();
    }
    format!("    classDef {class} {style}\n    class {} {class}\n", marked.join(","))
}

fn shape(node: &GraphNode) -> String {
    let (open, close) = match node.kind {
        NodeKind::Call => ("[", "]"),
        NodeKind::Callback => ("[/", "/]"),
        NodeKind::Wait => ("([", "])"),
        NodeKind::Child => ("[[", "]]"),
        NodeKind::Condition => ("{", "}"),
    };
    let lines: Vec<_> = node.lines.iter().map(|line| escaped(line)).collect();
    format!("{}{open}\"{}\"{close}", node.id('_'), lines.join("<br/>"))
}

/// Escapes a quoted text: characters with a meaning in Mermaid, Markdown or HTML become character codes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' ' | '.' | ',' | ':' | '/' | '-' | '_' | '=' | '?' | '+' => escaped.push(c),
            c if c.is_alphanumeric() => escaped.push(c),
            c => escaped.push_str(&format!("#{};", u32::from(c))),
        }
    }
    escaped
}
