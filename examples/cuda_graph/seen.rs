//! Puts the kernels that CUPTI saw beside the nodes that were captured.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;

use warpline::graph::{GraphNode, GraphZones, NodeKind, ZoneLabel};
use warpline::{KernelRecord, ReplayRecord, ReplayedZone};

/// Where the table counts a node: its lane, and the zone that is there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Section {
    /// None is that of the stream.
    pub lane: Option<String>,
    /// None is outside all zones.
    pub zone: Option<&'static str>,
}

/// The replays of one graph.
pub struct Seen {
    pub stream: String,
    pub replays: usize,
    pub kernels: Vec<SeenKernel>,
    pub collectives: Vec<ReplayedZone>,
}

/// A kernel, copy or fill of a replay.
pub struct SeenKernel {
    pub name: String,
    /// The launch, and the node in the executable graph.
    pub node: (u32, u32),
    pub section: Section,
    pub ns: i64,
    /// The profiler itself knows of a zone, or of none: that of the launch.
    pub has_zone: bool,
}

/// The innermost zone that has a lane, a collective that of its group; or else the outermost zone, on the stream itself.
pub fn section(zones: &[ZoneLabel]) -> Section {
    let lane = |zone: &ZoneLabel| {
        let group = || Some(zone.message.as_ref()?.group.as_ref()?.lane().to_owned());
        zone.range.lane().map(str::to_owned).or_else(group)
    };
    let with_lane = zones.iter().rev().find_map(|zone| Some((lane(zone)?, zone.range.name())));
    match with_lane {
        Some((lane, zone)) => Section { lane: Some(lane), zone: Some(zone) },
        None => Section { lane: None, zone: zones.first().map(|zone| zone.range.name()) },
    }
}

/// How many nodes that do work on the device each section has, in the order of the capture.
pub fn sections(nodes: &[GraphNode]) -> Vec<(Section, usize)> {
    let mut sections: Vec<(Section, usize)> = Vec::new();
    for node in nodes.iter().filter(|node| does_work(node.kind)) {
        let section = section(&node.zones);
        match sections.iter_mut().find(|(known, _)| *known == section) {
            Some((_, nodes)) => *nodes += 1,
            None => sections.push((section, 1)),
        }
    }
    sections
}

/// What CUPTI has records of.
fn does_work(kind: NodeKind) -> bool {
    matches!(kind, NodeKind::Kernel | NodeKind::Memcpy | NodeKind::Memset)
}

/// The replays of the graph of this number, and of their kernels the zones that the executable graph says.
///
/// # Errors
/// A kernel is of no node that the graph has.
pub fn of_graph(
    graph: u32,
    exec: *mut c_void,
    kernels: &[KernelRecord],
    replays: &[ReplayRecord],
) -> Result<Seen, String> {
    let own: Vec<&ReplayRecord> = replays.iter().filter(|replay| replay.graph == graph).collect();
    let launches: BTreeSet<u32> = own.iter().map(|replay| replay.correlation).collect();
    let of_launch = kernels.iter().filter(|kernel| launches.contains(&kernel.correlation));
    let seen = |kernel: &KernelRecord| {
        // Its low half is the node's index in the executable graph.
        let node = kernel.graph.map(|id| id.node as u32);
        let zones = node.and_then(|node| GraphZones::find(exec, node));
        let (Some(node), Some(zones)) = (node, zones) else {
            return Err(format!("CUPTI's kernel `{}` is of no node of the graph; please report this", kernel.name));
        };
        Ok(SeenKernel {
            name: kernel.name.to_string(),
            node: (kernel.correlation, node),
            section: section(&zones),
            ns: kernel.duration_ns(),
            has_zone: kernel.zone.is_some(),
        })
    };
    Ok(Seen {
        stream: own.first().map_or_else(|| "-".to_owned(), |replay| replay.stream.name.clone()),
        replays: own.len(),
        kernels: of_launch.map(seen).collect::<Result<_, _>>()?,
        collectives: own
            .iter()
            .flat_map(|replay| &replay.zones)
            .filter(|of| of.zone.message.is_some())
            .cloned()
            .collect(),
    })
}

/// Holds CUPTI's kernels against the nodes: each node once a replay, in every section as many, and of the names that the driver
/// says. Returns what was compared, in words.
///
/// # Errors
/// What is not so.
pub fn check(nodes: &[GraphNode], seen: &Seen, replays: usize) -> Result<String, String> {
    let wrong = |what: String| Err(format!("{what}; please report this"));
    if seen.replays != replays {
        return wrong(format!("{replays} launches of the graph, and CUPTI saw {}", seen.replays));
    }
    let mut wanted: BTreeMap<Section, (usize, Vec<String>)> = BTreeMap::new();
    for node in nodes.iter().filter(|node| does_work(node.kind)) {
        let (count, names) = wanted.entry(section(&node.zones)).or_default();
        *count += replays;
        names.extend(node.kernel.iter().flat_map(|name| std::iter::repeat_n(name.to_string(), replays)));
    }
    let distinct: BTreeSet<_> = seen.kernels.iter().map(|kernel| kernel.node).collect();
    if distinct.len() != seen.kernels.len() {
        return wrong(format!("{} kernels are of {} nodes of all replays", seen.kernels.len(), distinct.len()));
    }
    let mut named = 0;
    for (section, (count, mut names)) in wanted {
        let own = || seen.kernels.iter().filter(|kernel| kernel.section == section);
        if own().count() != count {
            return wrong(format!("{section:?} has {count} kernels, and CUPTI saw {}", own().count()));
        }
        // Copies and fills have no names of a driver's, and no kernel has before CUDA 12.3.
        for kernel in own() {
            if let Some(at) = names.iter().position(|name| *name == kernel.name) {
                names.swap_remove(at);
                named += 1;
            }
        }
        if let Some(name) = names.first() {
            return wrong(format!("{section:?} has a kernel `{name}`, and CUPTI saw none of that name there"));
        }
    }
    let nodes = distinct.len() / replays;
    Ok(format!(
        "all {} kernels of {replays} replays are in the zones and lanes of their {nodes} nodes; CUPTI's counts are the graph's, \
         and so are {named} names",
        seen.kernels.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(replay: u32, node: u32, zone: &'static str) -> SeenKernel {
        let section = Section { lane: None, zone: Some(zone) };
        SeenKernel { name: "k".to_owned(), node: (replay, node), section, ns: 1_000, has_zone: false }
    }

    fn seen(kernels: Vec<SeenKernel>, replays: usize) -> Seen {
        Seen { stream: "stream 7".to_owned(), replays, kernels, collectives: Vec::new() }
    }

    #[test]
    fn replays_that_are_missing_or_counted_twice_are_found() {
        assert!(
            check(&[], &seen(Vec::new(), 4), 5).unwrap_err().starts_with("5 launches of the graph, and CUPTI saw 4")
        );
        let twice = seen(vec![kernel(1, 3, "a"), kernel(1, 3, "a")], 1);
        assert!(check(&[], &twice, 1).unwrap_err().starts_with("2 kernels are of 1 nodes"));
    }

    #[test]
    fn what_is_in_no_zone_is_on_the_stream() {
        assert_eq!(section(&[]), Section { lane: None, zone: None });
    }
}
