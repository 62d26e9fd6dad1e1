//! Converts replays to slices: each launch of a graph, and the captured zones in it.
//!
//! A replay is a slice on the row `replays` of its stream, with an arrow from its launch. Its zones are slices within it; zones
//! with their own lane are on a row for that lane below. The sink calls this module for each record.

use std::collections::HashMap;
use std::sync::Arc;

use super::annotations::{text, uint};
use super::category::Category;
use super::proto::{Buffer, event};
use super::tables::{Tables, keep, keep_below};
use super::track::range_iid;
use super::zones::write_zone;
use crate::write::lanes::part_of;
use warpline_core::replay::ReplayRecord;
use warpline_core::sorting;

/// The name of the row below a stream.
const ROW: &str = "replays";

/// The state of replays while the trace is written.
#[derive(Debug, Default)]
pub(super) struct Replays {
    /// The row of each stream.
    rows: HashMap<u32, usize>,
    /// The rows of lanes below those rows, including rows for parts of large batches.
    lanes: HashMap<(usize, Arc<str>, u32), usize>,
}

impl Replays {
    pub(super) fn write(&mut self, record: &ReplayRecord, tables: &mut Tables, buffer: &mut Buffer) {
        tables.end_ns = tables.end_ns.max(record.gpu.end_ns);
        let row = tables.below_stream(&mut self.rows, &record.stream, ROW, buffer);
        let flow = record.launch.as_ref().map(|launch| (tables.session.ids.next(), launch));
        if let Some((flow, launch)) = flow {
            tables.end_ns = tables.end_ns.max(launch.host.end_ns);
            let thread = tables.thread(&launch.thread, buffer);
            let lane = tables.tracks[thread].lane(launch.host, &mut tables.session, buffer);
            lane.define_category(Category::Launch, buffer);
            lane.slice(launch.host, buffer, |slice| {
                slice.text(event::NAME, &format!("launch of {}", record.title()));
                Category::Launch.write(slice);
                slice.fixed(ends(launch.host.begin_ns <= record.gpu.begin_ns).0, flow);
            });
        }
        let lane = tables.tracks[row].lane(record.gpu, &mut tables.session, buffer);
        lane.define_category(Category::Replay, buffer);
        lane.slice(record.gpu, buffer, |slice| {
            slice.text(event::NAME, &record.title());
            Category::Replay.write(slice);
            if let Some((flow, launch)) = flow {
                slice.fixed(ends(launch.host.begin_ns <= record.gpu.begin_ns).1, flow);
            }
            let numbers = [("correlation", record.correlation), ("graph_id", record.exec), ("kernels", record.kernels)];
            let unplaced = Some(("unplaced", record.unplaced)).filter(|_| record.unplaced > 0);
            for (name, number) in numbers.into_iter().chain(unplaced) {
                uint(slice, name, u64::from(number));
            }
            text(slice, "timed_by", record.timed_by.as_str());
            if let Some(zone) = record.zone {
                text(slice, "zone", zone.range.name());
            }
        });
        let mut zones: Vec<_> = record.zones.iter().collect();
        // Outer zones come first: if two slices begin together, a reader takes the first for the outer one.
        sorting::sort_by_key(&mut zones, |replayed| {
            replayed.zone.gpu.map(|gpu| (gpu.begin_ns, -gpu.end_ns, replayed.zone.depth))
        });
        for replayed in zones {
            let Some(gpu) = replayed.zone.gpu else { continue };
            let row = match &replayed.lane {
                Some(lane) => self.lane(row, (lane, part_of(&replayed.zone)), tables, buffer),
                None => row,
            };
            let range = tables.ranges.object(replayed.zone.range);
            let Tables { tracks, session, texts, .. } = &mut *tables;
            let lane = tracks[row].lane(gpu, session, buffer);
            lane.define_range(range, replayed.zone.range, buffer);
            write_zone(lane, range, &replayed.zone, (gpu, true), texts, buffer, |slice| {
                slice.uint(event::SOURCE_LOCATION_IID, range_iid(range));
                for (name, number) in [("kernels", replayed.kernels), ("correlation", record.correlation)] {
                    uint(slice, name, u64::from(number));
                }
            });
        }
    }

    fn lane(&mut self, row: usize, (name, part): (&Arc<str>, u32), tables: &mut Tables, buffer: &mut Buffer) -> usize {
        let key = (row, Arc::clone(name), part);
        if let Some(lane) = self.lanes.get(&key) {
            return tables.known(*lane, buffer);
        }
        let lane = tables.add_below(row, (name, part), name, buffer);
        self.lanes.insert(key, lane);
        lane
    }

    /// Updates the rows after tracks have moved or were forgotten.
    pub(super) fn keep(&mut self, places: &[Option<usize>]) {
        keep(&mut self.rows, places);
        keep_below(&mut self.lanes, places, |(above, name, part), place| Some((place(above)?, name, part)));
    }
}

/// Returns the flow fields of a launch and of its replay: the flow leads from the earlier event to the later one.
fn ends(launch_first: bool) -> (u32, u32) {
    match launch_first {
        true => (event::FLOW_IDS, event::TERMINATING_FLOW_IDS),
        false => (event::TERMINATING_FLOW_IDS, event::FLOW_IDS),
    }
}
