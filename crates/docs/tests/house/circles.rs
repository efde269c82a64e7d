//! Circles among the modules of a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::source::{Crate, Name};

/// Who names whom.
pub type Graph<T> = BTreeMap<T, BTreeSet<T>>;

/// Modules or files that name each other, also by way of others.
pub type Circle<T> = BTreeSet<T>;

/// Returns the graph of a crate's files. What a file names of its own children is left out.
pub fn of_files(source: &Crate) -> Graph<PathBuf> {
    let mut graph = Graph::new();
    for (name, module) in &source.modules {
        let to: &mut BTreeSet<PathBuf> = graph.entry(module.file.clone()).or_default();
        let homes = source.named_by(name).iter();
        let homes = homes.filter(|home| !home.starts_with(name));
        to.extend(homes.map(|home| source.modules[home].file.clone()));
    }
    graph
}

/// Returns the circles of a crate that cross a folder, each with the folder that its members lie
/// in.
///
/// A circle may join files of one folder. It crosses a folder if one of its members is a folder
/// that has files of its own; a file and the folder of its name are one member. What holds the
/// members, such as `mod.rs` or `lib.rs`, is none of them.
pub fn across_folders(source: &Crate) -> Vec<(Name, Circle<String>)> {
    let mut found = Vec::new();
    for parent in source.modules.keys() {
        let graph = of_children(source, parent);
        let is_folder = |child: &String| {
            let path = [parent.clone(), vec![child.clone()]].concat();
            let mut below = source
                .modules
                .iter()
                .filter(|(name, _)| name.starts_with(&path));
            below.any(|(_, module)| module.file != source.modules[&path].file)
        };
        for circle in circles(&graph) {
            if circle.iter().any(is_folder) {
                found.push((parent.clone(), circle));
            }
        }
    }
    found
}

/// Returns the graph of a module's children, each with all that lies below it.
fn of_children(source: &Crate, parent: &Name) -> Graph<String> {
    let child = |name: &Name| match name.strip_prefix(parent.as_slice())? {
        [] => None,
        [child, ..] => Some(child.clone()),
    };
    let mut graph = Graph::new();
    for name in source.modules.keys() {
        let Some(from) = child(name) else { continue };
        let to = source
            .named_by(name)
            .iter()
            .filter_map(child)
            .collect::<Vec<_>>();
        let edges: &mut BTreeSet<String> = graph.entry(from.clone()).or_default();
        edges.extend(to.into_iter().filter(|to| *to != from));
    }
    graph
}

/// Returns the circles of a graph: its strongly connected parts of more than one node.
pub fn circles<T: Ord + Clone>(graph: &Graph<T>) -> Vec<Circle<T>> {
    let reached: BTreeMap<&T, BTreeSet<&T>> = graph
        .keys()
        .map(|node| (node, reachable(graph, node)))
        .collect();
    let mut left: BTreeSet<&T> = graph.keys().collect();
    let mut found = Vec::new();
    while let Some(node) = left.pop_first() {
        let there = reached[node].iter();
        let circle: Circle<T> = there
            .filter(|other| reached.get(*other).is_some_and(|back| back.contains(node)))
            .map(|other| (*other).clone())
            .collect();
        if circle.len() > 1 {
            left.retain(|other| !circle.contains(*other));
            found.push(circle);
        }
    }
    found
}

fn reachable<'a, T: Ord>(graph: &'a Graph<T>, from: &'a T) -> BTreeSet<&'a T> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(node) = next.pop() {
        for to in graph.get(node).into_iter().flatten() {
            if seen.insert(to) {
                next.push(to);
            }
        }
    }
    seen
}
