//! Matches the work of each launch with the nodes of a graph by order, for traces whose kernels have no node ids.
//!
//! A launch must have as many kernels, copies and fills as its graph has nodes that do work; otherwise nothing is joined. If the
//! annotations contain the names of the kernels, the first kernel of a name matches the first node of that name, and so on, so that
//! branches of a graph may run in any order. Without names, the kernels must begin in the order of the capture.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use super::names::Names;
use super::{Launch, Seen};
use crate::AnnotateError;
use crate::annotations::{Annotations, Graph, Work};
use crate::runtime::counted_as;

/// The nodes of a graph that do work.
struct Nodes {
    graph: u32,
    /// The number, the kind of work, and the name if all kernels have one.
    nodes: Vec<(u32, Work, Option<u32>)>,
}

/// Matches each piece of work of a launch with its node. Returns this work, and the number of launches without work.
pub(super) fn join(
    annotations: &Annotations,
    seen: Vec<Seen>,
    launches: &HashMap<u64, Launch>,
    names: &mut Names,
    trace: &Path,
) -> Result<(Vec<Seen>, u64), AnnotateError> {
    let graphs = candidates(annotations, names)?;
    let mut caused: HashMap<u64, Vec<Seen>> = launches.keys().map(|correlation| (*correlation, Vec::new())).collect();
    for seen in seen {
        if let Some(work) = seen.correlation.and_then(|correlation| caused.get_mut(&correlation)) {
            work.push(seen);
        }
    }
    if launches.is_empty() {
        return Err(AnnotateError::NoLaunches { path: trace.to_owned() });
    }
    let mut order: Vec<_> = launches.iter().collect();
    order.sort_unstable_by_key(|(_, launch)| (launch.begin_ns, launch.number));
    let (mut joined, mut idle) = (Vec::new(), 0);
    for (replay, (correlation, _)) in order.into_iter().enumerate() {
        let mut work = caused.remove(correlation).unwrap_or_default();
        if work.is_empty() {
            idle += 1;
            continue;
        }
        work.sort_unstable_by_key(|seen| (seen.begin_ns, seen.number));
        let mut fits = graphs.iter().filter_map(|nodes| Some((nodes, assign(nodes, &work).ok()?)));
        let Some((nodes, assigned)) = fits.next() else {
            return Err(refused(annotations, &graphs, &work, names, (replay + 1, *correlation)));
        };
        if let Some((other, _)) = fits.next() {
            let title = |nodes: &Nodes| annotations.graphs[nodes.graph as usize].title.clone();
            return Err(AnnotateError::TwoGraphs {
                correlation: *correlation,
                first: title(nodes),
                second: title(other),
            });
        }
        drop(fits);
        joined.extend(
            work.into_iter().zip(assigned).map(|(seen, node)| Seen { node: Some((nodes.graph, node)), ..seen }),
        );
    }
    Ok((joined, idle))
}

fn candidates(annotations: &Annotations, names: &mut Names) -> Result<Vec<Nodes>, AnnotateError> {
    let mut graphs = Vec::new();
    let mut why = None;
    for (graph, number) in annotations.graphs.iter().zip(0..) {
        match graph.no_order {
            Some(reason) => why = why.or(Some((graph.title.clone(), reason))),
            None => graphs.push(Nodes { graph: number, nodes: nodes(graph, names) }),
        }
    }
    graphs.retain(|nodes| !nodes.nodes.is_empty());
    match why {
        Some((graph, reason)) if graphs.is_empty() => Err(AnnotateError::NoOrder { graph, reason }),
        _ => Ok(graphs),
    }
}

fn nodes(graph: &Graph, names: &mut Names) -> Vec<(u32, Work, Option<u32>)> {
    let working = || graph.nodes.iter().zip(0..).filter_map(|(node, number)| Some((node, number, node.work?)));
    let named = working().all(|(node, _, work)| work != Work::Kernel || node.kernel.is_some());
    working()
        .map(|(node, number, work)| {
            let name = named.then(|| names.number(work, node.kernel.as_deref().unwrap_or_default()));
            (number, work, name)
        })
        .collect()
}

/// The first piece of work that matches no node.
struct UnknownWork(usize);

/// The node of each piece of work.
fn assign(nodes: &Nodes, work: &[Seen]) -> Result<Vec<u32>, Option<UnknownWork>> {
    if nodes.nodes.len() != work.len() {
        return Err(None);
    }
    if nodes.nodes.iter().any(|(_, _, name)| name.is_none()) {
        let pairs = work.iter().zip(&nodes.nodes).enumerate();
        let assigned = pairs.map(
            |(at, (seen, (node, work, _)))| if seen.work == *work { Ok(*node) } else { Err(Some(UnknownWork(at))) },
        );
        return assigned.collect();
    }
    let mut left: HashMap<(Work, u32), VecDeque<u32>> = HashMap::new();
    for (node, work, name) in &nodes.nodes {
        left.entry((*work, name.unwrap_or_default())).or_default().push_back(*node);
    }
    let next = |(at, seen): (usize, &Seen)| {
        left.get_mut(&(seen.work, seen.name)).and_then(VecDeque::pop_front).ok_or(Some(UnknownWork(at)))
    };
    work.iter().enumerate().map(next).collect()
}

fn refused(
    annotations: &Annotations,
    graphs: &[Nodes],
    work: &[Seen],
    names: &Names,
    (replay, correlation): (usize, u64),
) -> AnnotateError {
    let mut why = Vec::new();
    for nodes in graphs {
        let title = &annotations.graphs[nodes.graph as usize].title;
        why.push(match assign(nodes, work) {
            Err(Some(UnknownWork(at))) => {
                format!(
                    "{title} has as many nodes that do work, but no node left for number {} of them, `{}`",
                    at + 1,
                    names.text(work[at].name)
                )
            }
            _ => {
                let nodes = counted_as(nodes.nodes.len() as u64, "node that does work", "nodes that do work");
                format!("{title} has {nodes}")
            }
        });
    }
    let others = annotations.graphs.iter().filter_map(|graph| Some((&graph.title, graph.no_order?)));
    why.extend(others.map(|(title, reason)| format!("{title} cannot be joined by order ({reason})")));
    AnnotateError::OtherCount { replay, correlation, kernels: work.len(), graphs: why.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::Node;

    /// A graph of these nodes, in order.
    fn graph(title: &str, nodes: &[(Work, Option<&str>)], no_order: Option<&'static str>) -> Graph {
        let node = |(work, kernel): &(Work, Option<&str>)| Node {
            work: Some(*work),
            kernel: kernel.map(str::to_owned),
            zones: Vec::new(),
        };
        Graph { title: title.to_owned(), nodes: nodes.iter().map(node).collect(), no_order, ..Graph::default() }
    }

    /// Joins work, given by its launch, kind and name, with two launches that are numbered 1 and 2.
    fn joined(graphs: Vec<Graph>, seen: &[(u64, Work, &str)]) -> Result<(Vec<(u32, u32)>, u64), AnnotateError> {
        let mut annotations = Annotations::default();
        annotations.graphs = graphs;
        let mut names = Names::new();
        let seen = seen.iter().zip(0..).map(|((correlation, work, name), number)| Seen {
            number,
            row: 0,
            process: 0,
            begin_ns: i64::from(number) * 100,
            end_ns: i64::from(number) * 100 + 50,
            correlation: Some(*correlation),
            exec_id: None,
            node: None,
            work: *work,
            name: names.number(*work, name),
        });
        let seen = seen.collect();
        let launches = [1, 2].map(|at| (at, Launch { number: at as u32, begin_ns: at as i64 })).into_iter().collect();
        let (work, idle) = join(&annotations, seen, &launches, &mut names, Path::new("t.json"))?;
        Ok((work.iter().map(|seen| seen.node.expect("each has one")).collect(), idle))
    }

    const KERNEL: Work = Work::Kernel;
    const COPY: Work = Work::Memcpy;

    #[test]
    fn a_launch_whose_work_is_not_in_the_trace_is_counted() {
        let step = || vec![graph("step", &[(KERNEL, Some("a")), (KERNEL, Some("b"))], None)];
        let work = [(1, KERNEL, "b"), (1, KERNEL, "a"), (2, KERNEL, "a"), (2, KERNEL, "b")];
        assert_eq!(joined(step(), &work).expect("it fits"), (vec![(0, 1), (0, 0), (0, 0), (0, 1)], 0));
        assert_eq!(joined(step(), &work[2..]).expect("it fits"), (vec![(0, 0), (0, 1)], 1));
        assert_eq!(joined(step(), &[]).expect("nothing is wrong"), (Vec::new(), 2));
    }

    #[test]
    fn without_names_the_kinds_of_work_are_in_the_order_of_the_capture() {
        let step = || vec![graph("step", &[(KERNEL, None), (COPY, None)], None)];
        assert_eq!(joined(step(), &[(1, KERNEL, "a"), (1, COPY, "")]).expect("it fits"), (vec![(0, 0), (0, 1)], 1));
        let error = joined(step(), &[(1, COPY, ""), (1, KERNEL, "a")]).expect_err("it does not").to_string();
        assert!(
            error.contains("step has as many nodes that do work, but no node left for number 1 of them"),
            "{error}"
        );
    }

    #[test]
    fn a_graph_that_cannot_be_joined_by_order_says_why_unless_another_one_can() {
        let unknown = || graph("loop", &[(KERNEL, Some("a"))], Some("it has conditional nodes"));
        let error = joined(vec![unknown()], &[(1, KERNEL, "a")]).expect_err("it cannot");
        assert!(
            matches!(&error, AnnotateError::NoOrder { graph, reason } if graph == "loop" && reason.contains("conditional")),
            "{error}"
        );
        let step = graph("step", &[(KERNEL, Some("b"))], None);
        assert_eq!(joined(vec![unknown(), step], &[(1, KERNEL, "b")]).expect("one can"), (vec![(1, 0)], 1));
    }
}
