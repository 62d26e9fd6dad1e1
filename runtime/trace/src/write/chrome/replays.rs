//! Converts replays of graphs to events, and the zones that were captured into them.

use std::io;

use super::document::Events;
use super::json::Args;
use super::rows::{Owner, Whose};
use super::trace::Trace;
use crate::write::lanes::part_of;
use warpline_core::replay::ReplayRecord;
use warpline_core::sorting;

impl Trace {
    pub(super) fn replay(&mut self, record: &ReplayRecord, out: &mut Events) -> io::Result<()> {
        let stream = &record.stream;
        if let Some(launch) = &record.launch {
            let key = (Owner::Thread(launch.thread.id), None);
            let place = self.rows.place(key, Whose::thread(&launch.thread), launch.host, out)?;
            let name = format!("launch of {}", record.title());
            self.named_slice("user_annotation", &name, launch.host, place, out)?;
            let mut args = Args::open(out)?;
            args.add("correlation", record.correlation)?;
            args.close()?;
        }
        let place = self.rows.place((Owner::Replays(stream.id, 0), None), Whose::stream(stream), record.gpu, out)?;
        self.named_slice("gpu_user_annotation", &record.title(), record.gpu, place, out)?;
        let mut args = Args::open(out)?;
        args.add("graph id", record.exec)?;
        args.add("correlation", record.correlation)?;
        args.add("kernels", record.kernels)?;
        args.add_some("unplaced", Some(record.unplaced).filter(|unplaced| *unplaced > 0))?;
        args.add("timed by", record.timed_by.as_str())?;
        args.add_some("zone", record.zone.map(|zone| zone.range.name()))?;
        args.close()?;
        let mut zones: Vec<_> = record.zones.iter().collect();
        sorting::sort_by_key(&mut zones, |replayed| {
            replayed.zone.gpu.map(|gpu| (gpu.begin_ns, -gpu.end_ns, replayed.zone.depth))
        });
        for replayed in zones {
            let Some(gpu) = replayed.zone.gpu else { continue };
            let lane = replayed.lane.as_ref();
            let lane = lane.map_or(0, |name| self.rows.replay_lane(name, part_of(&replayed.zone)));
            let whose = Whose { lane: replayed.lane.as_deref(), ..Whose::stream(stream) };
            let place = self.rows.place((Owner::Replays(stream.id, lane), None), whose, gpu, out)?;
            self.slice("gpu_user_annotation", &replayed.zone, gpu, place, out)?;
            let mut args = Args::open(out)?;
            args.add("kernels", replayed.kernels)?;
            args.add("graph correlation", record.correlation)?;
            args.add_fields(&replayed.zone)?;
            args.close()?;
        }
        Ok(())
    }
}
