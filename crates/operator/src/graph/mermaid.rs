//! A picture as a Mermaid flowchart (<https://mermaid.js.org/syntax/flowchart.html>).

use super::drawing::{Drawing, Edge, Kind, Node};

/// The text of the flowchart.
pub(super) fn draw(drawing: &Drawing) -> String {
    let mut text = format!("---\ntitle: {}\n---\nflowchart TD\n", drawing.title);
    for node in &drawing.nodes {
        text.push_str(&format!("    {}\n", shape(node)));
    }
    for Edge { from, to, label } in &drawing.edges {
        let id = |place: &usize| drawing.nodes.get(*place).map(|node| node.id('_'));
        let Some((from, to)) = id(from).zip(id(to)) else { continue };
        let arrow = if label.is_empty() { "-->".to_owned() } else { format!("-->|{label}|") };
        text.push_str(&format!("    {from} {arrow} {to}\n"));
    }
    text.push_str(&marked(drawing, "many", "stroke-dasharray: 6 3", |node| node.is_many));
    text.push_str(&marked(drawing, "noReturn", "stroke-width: 4px", |node| {
        node.is_point_of_no_return
    }));
    text
}

/// The lines that give a class to the nodes of one kind, if there are any.
fn marked(
    drawing: &Drawing,
    class: &str,
    style: &str,
    is_marked: impl Fn(&Node) -> bool,
) -> String {
    let marked = drawing.nodes.iter().filter(|node| is_marked(node));
    let marked: Vec<_> = marked.map(|node| node.id('_')).collect();
    if marked.is_empty() {
        return String::new();
    }
    format!("    classDef {class} {style}\n    class {} {class}\n", marked.join(","))
}

fn shape(node: &Node) -> String {
    let (open, close) = match node.kind {
        Kind::Call => ("[", "]"),
        Kind::Callback => ("[/", "/]"),
        Kind::Wait => ("([", "])"),
        Kind::Child => ("[[", "]]"),
        Kind::Condition => ("{", "}"),
    };
    let lines: Vec<_> = node.lines.iter().map(|line| escaped(line)).collect();
    format!("{}{open}\"{}\"{close}", node.id('_'), lines.join("<br/>"))
}

/// A text within quotes: everything that Mermaid, Markdown or HTML would read is a character code.
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
