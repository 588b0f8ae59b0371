//! The modules of the machine form layers: the `crate::` paths among the files and folders of `machine/src` form no
//! circle. Files of one folder may name each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Modules that a folder's file exports under the crate's own name.
const EXPORTED: [(&str, &str); 2] = [("model", "board"), ("world", "board")];

/// Each module with the modules that it names.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The circles of the machine's modules; every finding is one.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let mut graph = Graph::new();
    for entry in fs::read_dir(root.join("machine/src")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().trim_end_matches(".rs").to_owned();
        if !matches!(name.as_str(), "lib" | "tests") {
            read(&entry.path(), graph.entry(name).or_default());
        }
    }
    circle(&graph).map(|path| format!("machine/src: a circle of modules: {}", path.join(" -> "))).into_iter().collect()
}

/// Gathers the modules that a file, or every file of a folder, names. Tests may name anything.
fn read(path: &Path, named: &mut BTreeSet<String>) {
    if path.file_stem().is_some_and(|name| name == "tests") {
        return;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        read(&entry.path(), named);
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    for line in product.lines().filter_map(|line| line.split("//").next()) {
        for rest in line.split("crate::").skip(1) {
            let name = rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or_default();
            let module = EXPORTED.iter().find(|(exported, _)| *exported == name).map_or(name, |(_, folder)| folder);
            named.insert(module.to_owned());
        }
    }
}

/// Some circle, if there is one: a path that ends where it begins.
fn circle(graph: &Graph) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    graph.keys().find_map(|start| walk(graph, start, &mut Vec::new(), &mut done))
}

fn walk<'a>(
    graph: &'a Graph,
    module: &'a str,
    path: &mut Vec<&'a str>,
    done: &mut BTreeSet<&'a str>,
) -> Option<Vec<String>> {
    if let Some(start) = path.iter().position(|earlier| *earlier == module) {
        return Some(path[start..].iter().chain([&module]).map(|name| (*name).to_owned()).collect());
    }
    if !done.insert(module) {
        return None;
    }
    path.push(module);
    let next = graph.get(module).into_iter().flatten().filter(|other| *other != module);
    let found = next.into_iter().find_map(|other| walk(graph, other, path, done));
    path.pop();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &[&str])]) -> Graph {
        edges.iter().map(|(from, to)| ((*from).into(), to.iter().map(|name| (*name).into()).collect())).collect()
    }

    #[test]
    fn a_circle_is_found_and_layers_are_none() {
        let layers = graph(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &["c", "hal"])]);
        assert_eq!(circle(&layers), None);
        let around = graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])]);
        assert_eq!(circle(&around), Some(["b", "c", "b"].map(String::from).to_vec()));
    }

    #[test]
    fn the_machine_has_layers() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a room of the house");
        assert_eq!(check(root), Vec::<String>::new());
    }
}
