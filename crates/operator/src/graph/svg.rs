//! A drawing as SVG: a standalone file with styles, or an element for a page with a stylesheet.

use super::{
    drawing::{Drawing, Edge, GraphNode, NodeKind},
    layout::{Point, layout},
};
use crate::escape_xml;

/// The height of a line of text, in pixels.
const LINE: f64 = 18.0;
/// The average width of a character, in pixels.
const CHAR: f64 = 7.6;

/// Pixels between a node's text and its outline.
const PADDING: f64 = 12.0;

/// The offset between the outlines of a stack, in pixels. A step with `for_each` is drawn as a stack.
const SHEET: f64 = 5.0;

const STYLE: &str = "<style>\n\
    text { font-family: ui-sans-serif, system-ui, sans-serif; fill: #1c2733; }\n\
    .name { font-weight: 600; }\n\
    .node { fill: #fff; stroke: #48617a; stroke-width: 1.5; }\n\
    .wait { fill: #f3f0fa; } .child { fill: #eef6ee; } .condition { fill: #fff8e1; }\n\
    .callback { fill: #eaf3fb; } .no-return { stroke: #a33; stroke-width: 4; }\n\
    .edge { fill: none; stroke: #48617a; stroke-width: 1.5; } .arrow { fill: #48617a; }\n\
    </style>\n\
    <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";

const MARKER: &str = "<defs><marker id=\"arrow\" markerWidth=\"10\" markerHeight=\"8\" refX=\"9\" refY=\"4\" \
    orient=\"auto\"><path class=\"arrow\" d=\"M 0 0 L 10 4 L 0 8 z\"/></marker></defs>\n";

/// The content of a standalone SVG file.
pub(super) fn file(drawing: &Drawing) -> String {
    let title = format!("<title>{}</title>\n{STYLE}", escape_xml(&drawing.title));
    svg(drawing, "xmlns=\"http://www.w3.org/2000/svg\"", &title)
}

/// An `<svg>` element, with a text description for screen readers.
pub(super) fn element(drawing: &Drawing, description: &str) -> String {
    let head = format!(
        "<title id=\"graph-title\">{}</title>\n<desc id=\"graph-words\">{}</desc>\n",
        escape_xml(&drawing.title),
        escape_xml(description)
    );
    let named = "class=\"graph\" aria-labelledby=\"graph-title\" aria-describedby=\"graph-words\"";
    svg(drawing, named, &head)
}

fn svg(drawing: &Drawing, attributes: &str, head: &str) -> String {
    let sizes: Vec<_> = drawing.nodes.iter().map(size).collect();
    let layout = layout(drawing, &sizes);
    let mut canvas = Canvas::default();
    for (edge, route) in drawing.edges.iter().zip(&layout.routes) {
        canvas.edge(edge, route);
    }
    for ((node, at), size) in drawing.nodes.iter().zip(&layout.nodes).zip(&sizes) {
        canvas.node(node, (at.0 - size.0 / 2.0, at.1 - size.1 / 2.0), *size);
    }
    let (width, height) = layout.size;
    format!(
        "<svg {attributes} width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         role=\"img\" font-size=\"13\" text-anchor=\"middle\">\n{head}{MARKER}{}</svg>\n",
        canvas.content
    )
}

/// The lines in a node, each with its CSS class. With a status: the step's name and the status only.
fn lines(node: &GraphNode) -> Vec<(&'static str, String)> {
    let name = node.lines.iter().take(1).map(|line| ("name", line.clone()));
    match &node.status {
        Some(status) => {
            let text = format!("{} {}", status.state.symbol(), status.text);
            name.chain([("status", text)]).collect()
        }
        None => name.chain(node.lines.iter().skip(1).map(|line| ("", line.clone()))).collect(),
    }
}

/// Width and height.
fn size(node: &GraphNode) -> Point {
    let lines = lines(node);
    let chars = lines.iter().map(|(_, line)| line.chars().count()).max().unwrap_or_default();
    let (w, h) = (chars as f64 * CHAR, lines.len() as f64 * LINE);
    // Shapes that are narrower at the text's top or bottom need more space at the sides.
    let sides = match node.kind {
        NodeKind::Call | NodeKind::Child => 2.0 * PADDING,
        NodeKind::Callback | NodeKind::Wait | NodeKind::Condition => 2.0 * PADDING + h / 2.0,
    };
    (w + sides, h + PADDING)
}

/// The SVG elements drawn so far.
#[derive(Default)]
struct Canvas {
    content: String,
}

impl Canvas {
    /// Draws an edge as a curve that is vertical at each of its points.
    fn edge(&mut self, edge: &Edge, route: &[Point]) {
        let [(x, y), rest @ ..] = route else { return };
        let (mut line, mut from) = (format!("M {x:.1} {y:.1}"), (*x, *y));
        for (x, y) in rest {
            let middle = f64::midpoint(from.1, *y);
            line.push_str(&format!(
                " C {:.1} {middle:.1} {x:.1} {middle:.1} {x:.1} {y:.1}",
                from.0
            ));
            from = (*x, *y);
        }
        self.content
            .push_str(&format!("<path class=\"edge\" d=\"{line}\" marker-end=\"url(#arrow)\"/>\n"));
        if let ([(ax, ay), (bx, by), ..], false) = (route, edge.label.is_empty()) {
            let (x, y, label) = (
                f64::midpoint(*ax, *bx) + 20.0,
                f64::midpoint(*ay, *by) + 4.0,
                escape_xml(edge.label),
            );
            self.content.push_str(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\">{label}</text>\n"));
        }
    }

    fn node(&mut self, node: &GraphNode, (x, y): (f64, f64), (w, h): (f64, f64)) {
        let class = match node.kind {
            NodeKind::Call => "node",
            NodeKind::Callback => "node callback",
            NodeKind::Wait => "node wait",
            NodeKind::Child => "node child",
            NodeKind::Condition => "node condition",
        };
        let last = if node.is_point_of_no_return { " no-return" } else { "" };
        self.content.push_str(&format!("<g id=\"{}\"", node.id('-')));
        match &node.status {
            // What the step does is in the tooltip.
            Some(status) => self.content.push_str(&format!(
                " class=\"{}\">\n<title>{}</title>\n",
                status.state.css_class(),
                escape_xml(&node.lines.join(", "))
            )),
            None => self.content.push_str(">\n"),
        }
        let sheets = if node.is_many { 2 } else { 0 };
        for sheet in (0..=sheets).rev() {
            let by = f64::from(sheet) * SHEET;
            let outline = outline(node.kind, (x + by, y + by), (w, h));
            self.content.push_str(&format!("<path class=\"{class}{last}\" d=\"{outline}\"/>\n"));
        }
        for (n, (class, line)) in lines(node).iter().enumerate() {
            let (x, y) = (x + w / 2.0, y + PADDING / 2.0 + LINE * (n as f64 + 0.75));
            self.content.push_str(&format!(
                "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>\n",
                escape_xml(line)
            ));
        }
        self.content.push_str("</g>\n");
    }
}

/// The outline of a node, as a path.
fn outline(kind: NodeKind, (x, y): (f64, f64), (w, h): (f64, f64)) -> String {
    let (right, bottom, middle) = (x + w, y + h, y + h / 2.0);
    let slant = h.min(w) / 5.0;
    match kind {
        NodeKind::Call => format!("M {x:.1} {y:.1} H {right:.1} V {bottom:.1} H {x:.1} Z"),
        NodeKind::Callback => {
            let (top_left, bottom_right) = (x + slant, right - slant);
            format!(
                "M {top_left:.1} {y:.1} H {right:.1} L {bottom_right:.1} {bottom:.1} H {x:.1} Z"
            )
        }
        NodeKind::Wait => {
            let r = h / 2.0;
            let (from, to) = (x + r, right - r);
            format!(
                "M {from:.1} {y:.1} H {to:.1} A {r:.1} {r:.1} 0 0 1 {to:.1} {bottom:.1} H {from:.1} \
                 A {r:.1} {r:.1} 0 0 1 {from:.1} {y:.1} Z"
            )
        }
        NodeKind::Child => {
            let (left, inner) = (x + 8.0, right - 8.0);
            format!(
                "M {x:.1} {y:.1} H {right:.1} V {bottom:.1} H {x:.1} Z M {left:.1} {y:.1} V {bottom:.1} \
                 M {inner:.1} {y:.1} V {bottom:.1}"
            )
        }
        NodeKind::Condition => {
            let (from, to) = (x + h / 2.0, right - h / 2.0);
            format!(
                "M {x:.1} {middle:.1} L {from:.1} {y:.1} H {to:.1} L {right:.1} {middle:.1} \
                 L {to:.1} {bottom:.1} H {from:.1} Z"
            )
        }
    }
}
