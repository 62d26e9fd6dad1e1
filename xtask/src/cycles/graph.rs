//! The dependencies between siblings, and the cycles in them. The step calls it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;

use super::modules::{ModuleId, Modules, Reference};

/// The shortest cycle of a set of modules that all lead to each other.
pub struct Cycle {
    /// The path of each module, and why it depends on the next one. The last one depends on the first.
    steps: Vec<(String, String)>,
    /// How many modules lead to each other.
    modules: usize,
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a cycle of {} modules, the shortest of a knot of {}:", self.steps.len(), self.modules)?;
        let next = self.steps.iter().cycle().skip(1);
        for (at, ((module, reason), (next, _))) in self.steps.iter().zip(next).enumerate() {
            let begin = if at == 0 { format!("  {module}") } else { "   ".to_owned() };
            write!(f, "\n{begin} -> {next} ({reason})")?;
        }
        Ok(())
    }
}

/// The first reference from one sibling to another.
type Edges<'a> = BTreeMap<ModuleId, BTreeMap<ModuleId, &'a Reference>>;

/// The shortest cycle of each knot, those of the root first.
pub fn cycles(modules: &Modules) -> Vec<Cycle> {
    let edges = edges(modules);
    let reach: HashMap<_, _> = edges.keys().map(|module| (*module, reached(&edges, *module))).collect();
    let leads = |from: &ModuleId, to: &ModuleId| reach.get(from).is_some_and(|reached| reached.contains(to));
    let mut seen = HashSet::new();
    let mut cycles = Vec::new();
    for module in edges.keys().filter(|module| leads(module, module)) {
        if seen.contains(module) {
            continue;
        }
        let knot: Vec<_> = edges.keys().copied().filter(|other| leads(module, other) && leads(other, module)).collect();
        seen.extend(knot.iter().copied());
        let shortest = knot.iter().filter_map(|begin| around(&edges, *begin)).min_by_key(Vec::len);
        cycles.extend(shortest.map(|cycle| {
            let next = cycle.iter().cycle().skip(1);
            let steps = cycle.iter().zip(next).map(|(from, to)| (modules.path_of(*from), reason(edges[from][to])));
            (modules.line_of(cycle[0]).len(), Cycle { steps: steps.collect(), modules: knot.len() })
        }));
    }
    cycles.sort_by_key(|(depth, _)| *depth);
    cycles.into_iter().map(|(_, cycle)| cycle).collect()
}

fn edges(modules: &Modules) -> Edges<'_> {
    let mut edges = Edges::new();
    for reference in &modules.references {
        let Some(target) = modules.target(reference) else { continue };
        let (from, to) = (modules.line_of(reference.from), modules.line_of(target));
        // The siblings at which the two paths part; none between a module and its ancestor.
        let Some((from, to)) = from.into_iter().zip(to).find(|(from, to)| from != to) else { continue };
        edges.entry(from).or_default().entry(to).or_insert(reference);
    }
    edges
}

fn reason(reference: &Reference) -> String {
    format!("{}:{} `{}`", reference.file.display(), reference.line, reference.path.join("::"))
}

/// What can be reached in one step or more.
fn reached(edges: &Edges<'_>, begin: ModuleId) -> HashSet<ModuleId> {
    let mut reached = HashSet::new();
    let mut open = vec![begin];
    while let Some(at) = open.pop() {
        open.extend(edges.get(&at).into_iter().flat_map(BTreeMap::keys).filter(|next| reached.insert(**next)));
    }
    reached
}

/// The shortest way from a module back to itself.
fn around(edges: &Edges<'_>, begin: ModuleId) -> Option<Vec<ModuleId>> {
    let mut from = HashMap::new();
    let mut open = VecDeque::from([begin]);
    while let Some(at) = open.pop_front() {
        for next in edges.get(&at).into_iter().flat_map(BTreeMap::keys) {
            if *next == begin {
                let mut way: Vec<_> = std::iter::successors(Some(at), |at| from.get(at).copied()).collect();
                way.reverse();
                return Some(way);
            }
            from.entry(*next).or_insert_with(|| {
                open.push_back(*next);
                at
            });
        }
    }
    None
}
