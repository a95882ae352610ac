//! The positions of nodes and the routes of edges: a layered layout by the library `rust-sugiyama`. An edge across several
//! layers gets a small dummy node in each of them, so that the library routes it around the other nodes.

use std::collections::HashMap;

use rust_sugiyama::{configure::Config, from_vertices_and_edges};

use super::drawing::Drawing;

/// Pixels between neighbouring nodes, and between disconnected components.
const SPACING: f64 = 36.0;

/// Additional pixels between layers, for the bends and labels of edges.
const LAYER_SPACING: f64 = 20.0;

/// The width and height of an edge's dummy node.
const WAYPOINT: (f64, f64) = (12.0, 12.0);

/// `x` and `y`, or width and height, in pixels.
pub(super) type Point = (f64, f64);

/// A connected component as the library returns it: vertex indices with their centres, and two sizes.
type Component = (Vec<(usize, Point)>, f64, f64);

/// The positions of everything, relative to the top left corner.
#[derive(Debug)]
pub(super) struct Layout {
    /// The centre of each node.
    pub(super) nodes: Vec<Point>,
    /// The points of each edge: start, bends, end.
    pub(super) routes: Vec<Vec<Point>>,
    /// The width and height of the picture.
    pub(super) size: Point,
}

/// Lays out a drawing. `sizes` are the widths and heights of its nodes.
pub(super) fn layout(drawing: &Drawing, sizes: &[Point]) -> Layout {
    let layers = layers(drawing);
    let sized = sizes.iter().map(|(width, height)| (*width, height + LAYER_SPACING));
    let mut vertices: Vec<_> = (0_u32..).zip(sized).collect();
    let (mut edges, mut routes) = (Vec::new(), Vec::new());
    for edge in &drawing.edges {
        let layer = |index: usize| layers.get(index).copied().unwrap_or_default();
        let mut route = vec![id(edge.from)];
        for _ in layer(edge.from) + 1..layer(edge.to) {
            let waypoint = id(vertices.len());
            vertices.push((waypoint, WAYPOINT));
            route.push(waypoint);
        }
        route.push(id(edge.to));
        edges.extend(route.iter().copied().zip(route.iter().skip(1).copied()));
        routes.push(route);
    }
    let config = Config { vertex_spacing: SPACING, dummy_vertices: false, ..Config::default() };
    let (centres, size) = arrange(from_vertices_and_edges(&vertices, &edges, &config), &vertices);
    let at = |id: u32| centres.get(&id).copied().unwrap_or_default();
    let height = |id: u32| {
        let size = usize::try_from(id).ok().and_then(|index| sizes.get(index));
        size.map_or(0.0, |(_, height)| *height)
    };
    let routes = routes.iter().map(|route| {
        let mut points: Vec<_> = route.iter().map(|id| at(*id)).collect();
        if let (Some(start), Some(from)) = (points.first_mut(), route.first()) {
            start.1 += height(*from) / 2.0;
        }
        if let (Some(end), Some(to)) = (points.last_mut(), route.last()) {
            end.1 -= height(*to) / 2.0;
        }
        points
    });
    let routes = routes.collect();
    Layout { nodes: (0..sizes.len()).map(|index| at(id(index))).collect(), routes, size }
}

/// The library's vertex id of a node.
fn id(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// The layer of each node: the number of nodes before it on the longest path.
fn layers(drawing: &Drawing) -> Vec<usize> {
    let mut layers = vec![0; drawing.nodes.len()];
    // A path has fewer edges than there are nodes, so this many passes suffice.
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

/// Puts the components of a graph side by side. Returns the centres of the vertices, and the size of the picture.
fn arrange(components: Vec<Component>, vertices: &[(u32, Point)]) -> (HashMap<u32, Point>, Point) {
    let (mut centres, mut right, mut bottom) = (HashMap::new(), 0.0_f64, 0.0_f64);
    for (component, ..) in components {
        let sized = component.iter().filter_map(|(index, at)| Some((vertices.get(*index)?, at)));
        let corners: Vec<_> = sized
            .map(|((id, (w, h)), (x, y))| (*id, (*x, *y), (x - w / 2.0, y - h / 2.0), (w, h)))
            .collect();
        let least = |of: fn(&Point) -> f64| {
            corners.iter().map(|(_, _, corner, _)| of(corner)).fold(f64::INFINITY, f64::min)
        };
        let (left, top) = (least(|corner| corner.0), least(|corner| corner.1));
        let from = right + SPACING;
        for (id, (x, y), corner, (w, h)) in &corners {
            centres.insert(*id, (x - left + from, y - top + SPACING));
            right = right.max(corner.0 - left + from + *w);
            bottom = bottom.max(corner.1 - top + SPACING + *h);
        }
    }
    (centres, (right + SPACING, bottom + SPACING))
}
