//! Where the nodes of a picture stand, and which way its edges take: layer by layer, by the library
//! `rust-sugiyama`. An edge over several layers gets a small node of its own in each of them, so that
//! the library finds it a way that leads through no other node.

use std::collections::HashMap;

use rust_sugiyama::{configure::Config, from_vertices_and_edges};

use super::drawing::Drawing;

/// Pixels between neighbours, and between parts that nothing joins.
const SPACING: f64 = 36.0;

/// Pixels more between layers, where edges turn and have labels.
const LAYERS_APART: f64 = 20.0;

/// The width and height of what holds the place of an edge.
const WAYPOINT: (f64, f64) = (12.0, 12.0);

pub(super) type Point = (f64, f64);

/// One part of a graph as the library gives it: vertices by number with their centres, and two counts.
type Part = (Vec<(usize, Point)>, f64, f64);

/// Centres, from the top left corner on.
#[derive(Debug)]
pub(super) struct Layout {
    /// One for each node.
    pub(super) nodes: Vec<Point>,
    /// One for each edge: where it starts, where it passes, where it ends.
    pub(super) ways: Vec<Vec<Point>>,
    /// The width and height of it all.
    pub(super) size: Point,
}

/// Finds a place for everything; `sizes` are the nodes' widths and heights.
pub(super) fn layout(drawing: &Drawing, sizes: &[Point]) -> Layout {
    let layers = layers(drawing);
    let sized = sizes.iter().map(|(width, height)| (*width, height + LAYERS_APART));
    let mut vertices: Vec<_> = (0_u32..).zip(sized).collect();
    let (mut edges, mut ways) = (Vec::new(), Vec::new());
    for edge in &drawing.edges {
        let layer = |place: usize| layers.get(place).copied().unwrap_or_default();
        let mut way = vec![id(edge.from)];
        for _ in layer(edge.from) + 1..layer(edge.to) {
            let waypoint = id(vertices.len());
            vertices.push((waypoint, WAYPOINT));
            way.push(waypoint);
        }
        way.push(id(edge.to));
        edges.extend(way.iter().copied().zip(way.iter().skip(1).copied()));
        ways.push(way);
    }
    let config = Config { vertex_spacing: SPACING, dummy_vertices: false, ..Config::default() };
    let (places, size) = beside(from_vertices_and_edges(&vertices, &edges, &config), &vertices);
    let at = |id: u32| places.get(&id).copied().unwrap_or_default();
    let height = |id: u32| {
        let size = usize::try_from(id).ok().and_then(|place| sizes.get(place));
        size.map_or(0.0, |(_, height)| *height)
    };
    let ways = ways.iter().map(|way| {
        let mut points: Vec<_> = way.iter().map(|id| at(*id)).collect();
        if let (Some(start), Some(from)) = (points.first_mut(), way.first()) {
            start.1 += height(*from) / 2.0;
        }
        if let (Some(end), Some(to)) = (points.last_mut(), way.last()) {
            end.1 -= height(*to) / 2.0;
        }
        points
    });
    let ways = ways.collect();
    Layout { nodes: (0..sizes.len()).map(|place| at(id(place))).collect(), ways, size }
}

fn id(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

/// How many nodes come before each node, on the longest way.
fn layers(drawing: &Drawing) -> Vec<usize> {
    let mut layers = vec![0; drawing.nodes.len()];
    // A way has at most as many edges as there are nodes.
    for _ in 0..drawing.nodes.len() {
        let mut is_done = true;
        for edge in &drawing.edges {
            let least = layers.get(edge.from).map_or(0, |layer: &usize| layer + 1);
            if let Some(layer) = layers.get_mut(edge.to).filter(|layer| **layer < least) {
                *layer = least;
                is_done = false;
            }
        }
        if is_done {
            break;
        }
    }
    layers
}

/// Puts the parts of a graph side by side; returns the centres and the size of it all.
fn beside(parts: Vec<Part>, vertices: &[(u32, Point)]) -> (HashMap<u32, Point>, Point) {
    let (mut places, mut right, mut bottom) = (HashMap::new(), 0.0_f64, 0.0_f64);
    for (part, ..) in parts {
        let sized = part.iter().filter_map(|(place, at)| Some((vertices.get(*place)?, at)));
        let corners: Vec<_> = sized
            .map(|((id, (w, h)), (x, y))| (*id, (*x, *y), (x - w / 2.0, y - h / 2.0), (w, h)))
            .collect();
        let least = |of: fn(&Point) -> f64| {
            corners.iter().map(|(_, _, corner, _)| of(corner)).fold(f64::INFINITY, f64::min)
        };
        let (left, top) = (least(|corner| corner.0), least(|corner| corner.1));
        let from = right + SPACING;
        for (id, (x, y), corner, (w, h)) in &corners {
            places.insert(*id, (x - left + from, y - top + SPACING));
            right = right.max(corner.0 - left + from + *w);
            bottom = bottom.max(corner.1 - top + SPACING + *h);
        }
    }
    (places, (right + SPACING, bottom + SPACING))
}
