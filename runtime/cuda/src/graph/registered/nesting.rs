//! The places of labels among the zones of nodes: a zone with more nodes is around one with fewer.
//!
//! Nothing here calls the driver. `GraphState::walk` calls it when the paths of captured zones are known.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::read::numbered;
use super::state::GraphState;

impl GraphState {
    /// Adds the zones from `first` on, which are labels, to the paths of their nodes and of the nodes inside these.
    pub(super) fn place_labels(&mut self, first: usize) {
        let by_handle = numbered(&self.nodes);
        let mut labels: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for (zone, label) in (0..).zip(&self.zones).skip(first) {
            for node in label.nodes.iter().flat_map(|nodes| nodes.iter()).filter_map(|node| by_handle.get(node)) {
                labels[*node as usize].push(zone);
            }
        }
        // A node comes after the one that contains it.
        for index in self.own..self.nodes.len() {
            let Some(outer) = self.nodes[index].within else { continue };
            let more: Vec<u32> =
                labels[outer as usize].iter().filter(|zone| !labels[index].contains(zone)).copied().collect();
            labels[index].extend(more);
        }
        let mut sizes = vec![0_u32; self.zones.len()];
        let zones_of = |index: usize, of: &[u32]| self.paths[of[index] as usize].iter().chain(&labels[index]);
        for index in 0..self.nodes.len() {
            zones_of(index, &self.of).for_each(|zone| sizes[*zone as usize] += 1);
        }
        let mut known: HashMap<Vec<u32>, u32> = HashMap::new();
        for (index, mut labels) in labels.into_iter().enumerate().filter(|(_, labels)| !labels.is_empty()) {
            labels.sort_by_key(|zone| (Reverse(sizes[*zone as usize]), *zone));
            let mut path = self.paths[self.of[index] as usize].clone();
            let mut place = 0;
            for label in labels {
                let size = sizes[label as usize];
                let is_inside = |zone: &u32| sizes[*zone as usize] <= size;
                place += path[place..].iter().position(is_inside).unwrap_or(path.len() - place);
                path.insert(place, label);
                place += 1;
            }
            let paths = &mut self.paths;
            self.of[index] = *known.entry(path).or_insert_with_key(|path| {
                paths.push(path.clone());
                paths.len() as u32 - 1
            });
        }
    }
}
