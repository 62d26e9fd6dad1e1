//! Puts the kernels that CUPTI saw beside the nodes that were captured.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use warpline::graph::{GraphNode, GraphZones, NodeKind, ZoneLabel};
use warpline::record::{KernelRecord, ReplayRecord, ReplayedZone};

/// Where the table counts a node: its lane, and the zone that is there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Section {
    /// None is that of the stream.
    pub lane: Option<String>,
    /// None is outside all zones.
    pub zone: Option<&'static str>,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lane = self.lane.as_deref().unwrap_or("the stream");
        write!(f, "{} on {lane}", self.zone.unwrap_or("what is in no zone"))
    }
}

/// A node that does work on the device.
pub struct Work {
    pub section: Section,
    /// The kernel's name, where the driver tells it.
    pub name: Option<Arc<str>>,
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

/// The nodes that do work on the device, which CUPTI has records of, in the order of the capture.
pub fn works(nodes: impl Iterator<Item = GraphNode>) -> Vec<Work> {
    nodes
        .filter(|node| matches!(node.kind, NodeKind::Kernel | NodeKind::Memcpy | NodeKind::Memset))
        .map(|node| Work { section: section(&node.zones), name: node.kernel })
        .collect()
}

/// How many of them each section has.
pub fn sections(works: &[Work]) -> Vec<(Section, usize)> {
    let mut sections: Vec<(Section, usize)> = Vec::new();
    for Work { section, .. } in works {
        match sections.iter_mut().find(|(known, _)| known == section) {
            Some((_, nodes)) => *nodes += 1,
            None => sections.push((section.clone(), 1)),
        }
    }
    sections
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
pub fn check(works: &[Work], seen: &Seen, replays: usize) -> Result<String, String> {
    let wrong = |what: String| Err(format!("{what}; please report this"));
    if seen.replays != replays {
        return wrong(format!("{replays} launches of the graph, and CUPTI saw {}", seen.replays));
    }
    let distinct: BTreeSet<_> = seen.kernels.iter().map(|kernel| kernel.node).collect();
    if distinct.len() != seen.kernels.len() {
        return wrong(format!("{} kernels are of {} nodes of all replays", seen.kernels.len(), distinct.len()));
    }
    // Copies and fills have no names of a driver's, and no kernel has before CUDA 12.3.
    let names: BTreeSet<&str> = works.iter().filter_map(|work| work.name.as_deref()).collect();
    let mut counts: BTreeMap<(&Section, Option<&str>), [usize; 2]> = BTreeMap::new();
    for work in works {
        counts.entry((&work.section, work.name.as_deref())).or_default()[0] += replays;
    }
    for kernel in &seen.kernels {
        let name = names.get(kernel.name.as_str()).copied();
        counts.entry((&kernel.section, name)).or_default()[1] += 1;
    }
    for ((section, name), [wanted, is]) in &counts {
        if wanted != is {
            let what = name.map_or_else(|| "without a known name".to_owned(), |name| format!("`{name}`"));
            return wrong(format!("{section} has {wanted} kernels {what}, and CUPTI saw {is}"));
        }
    }
    let named: usize = counts.iter().filter(|((_, name), _)| name.is_some()).map(|(_, [_, is])| is).sum();
    Ok(format!(
        "all {} kernels of {replays} replays are in the zones and lanes of their {} nodes; CUPTI's counts are the graph's, and so \
         are {named} names",
        seen.kernels.len(),
        works.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section_of(zone: &'static str) -> Section {
        Section { lane: None, zone: Some(zone) }
    }

    fn kernel(replay: u32, node: u32, zone: &'static str, name: &str) -> SeenKernel {
        SeenKernel {
            name: name.to_owned(),
            node: (replay, node),
            section: section_of(zone),
            ns: 1_000,
            has_zone: false,
        }
    }

    fn seen(kernels: Vec<SeenKernel>, replays: usize) -> Seen {
        Seen { stream: "stream 7".to_owned(), replays, kernels, collectives: Vec::new() }
    }

    /// Two kernels and a fill, in two zones.
    fn works() -> Vec<Work> {
        let work = |zone, name: Option<&str>| Work { section: section_of(zone), name: name.map(Arc::from) };
        vec![work("a", Some("norm")), work("b", Some("norm")), work("b", None)]
    }

    fn replay(number: u32) -> Vec<SeenKernel> {
        vec![kernel(number, 0, "a", "norm"), kernel(number, 1, "b", "norm"), kernel(number, 2, "b", "Memset (Device)")]
    }

    #[test]
    fn replays_that_are_whole_pass() {
        let kernels = (1..=5).flat_map(replay).collect();
        let said = "all 15 kernels of 5 replays are in the zones and lanes of their 3 nodes; CUPTI's counts are the graph's, and so \
                    are 10 names";
        assert_eq!(check(&works(), &seen(kernels, 5), 5).as_deref(), Ok(said));
    }

    #[test]
    fn what_is_missing_twice_or_elsewhere_is_found() {
        let wrong = |kernels, because: &str| {
            let error = check(&works(), &seen(kernels, 1), 1).unwrap_err();
            assert_eq!(error, format!("{because}; please report this"));
        };
        let mut kernels = replay(1);
        kernels.push(kernel(1, 1, "b", "norm"));
        wrong(kernels, "4 kernels are of 3 nodes of all replays");
        let mut kernels = replay(1);
        kernels.remove(0);
        wrong(kernels, "a on the stream has 1 kernels `norm`, and CUPTI saw 0");
        let mut kernels = replay(1);
        kernels[1].section = section_of("a");
        wrong(kernels, "a on the stream has 1 kernels `norm`, and CUPTI saw 2");
        let mut kernels = replay(1);
        kernels[1].name = "gelu".to_owned();
        wrong(kernels, "b on the stream has 1 kernels without a known name, and CUPTI saw 2");
        let error = check(&works(), &seen(replay(1), 1), 2).unwrap_err();
        assert_eq!(error, "2 launches of the graph, and CUPTI saw 1; please report this");
    }

    #[test]
    fn a_section_has_as_many_nodes_as_were_captured_in_it() {
        assert_eq!(sections(&works()), [(section_of("a"), 1), (section_of("b"), 2)]);
        assert_eq!(section(&[]), Section { lane: None, zone: None });
    }
}
