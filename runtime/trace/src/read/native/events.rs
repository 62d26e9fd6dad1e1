//! One packet of a Perfetto trace as events of Chrome's format, with the names and categories that PyTorch's profiler uses there.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::Text;
use super::layout::Layout;
use super::messages::{arguments, samples, sizes};
use super::names::Names;
use crate::read::fields::{name_of, value};
use crate::read::parts::{RenderStage, Track, TrackEvent};
use crate::read::wire::Malformed;
use crate::write::perfetto::proto::event::{COUNTER, INSTANT, SLICE_BEGIN, SLICE_END};

/// The deepest nesting of arguments.
const DEPTH: usize = 64;

/// The most rows of devices that get their names.
const NAMED: usize = 1 << 16;

/// Translates the packets of one trace, in the order of the file.
pub(super) struct Events {
    layout: Rc<Layout>,
    begins: usize,
    ends: usize,
    /// The rows of devices that have their names: the device, and the queue.
    named: HashSet<(i32, u64)>,
}

impl Events {
    pub(super) fn new(layout: Rc<Layout>) -> Events {
        Events { layout, begins: 0, ends: 0, named: HashSet::new() }
    }

    /// The names of processes and threads.
    pub(super) fn metadata(&self, out: &mut Text) {
        let mut tracks: Vec<_> = self.layout.tracks.values().collect();
        tracks.sort_unstable_by_key(|track| track.uuid);
        for track in tracks {
            let (pid, tid) = self.place(track);
            if let Some(process) = &track.process {
                name(out, "process_name", &pid, &json!(0), &process.name);
            }
            if let Some(thread) = &track.thread {
                name(out, "thread_name", &pid, &tid, thread.name.trim_end());
            }
        }
    }

    /// An event on a track of a thread or process.
    pub(super) fn track_event(
        &mut self,
        event: &TrackEvent<'_>,
        ns: u64,
        names: &Names,
        out: &mut Text,
    ) -> Result<(), Malformed> {
        // The end of a slice is with its begin.
        if event.kind == SLICE_END {
            self.ends += 1;
            if !self.layout.lone_ends.contains(&(self.ends - 1)) {
                return Ok(());
            }
        }
        let lone = Track { uuid: event.track, ..Track::default() };
        let track = self.layout.tracks.get(&event.track).unwrap_or(&lone);
        let (pid, tid) = self.place(track);
        let mut args = Map::new();
        for annotation in event.annotations() {
            let annotation = annotation?;
            args.insert(name_of(&annotation, names).to_owned(), value(&annotation, names, DEPTH)?);
        }
        let name = event.name.as_deref().or_else(|| names.events.get(&event.name_iid).map(String::as_str));
        let name = name.unwrap_or_default();
        let iids = event.category_iids()?;
        let interned = iids.iter().filter_map(|iid| names.categories.get(iid)).map(|name| name.as_str().into());
        let category = interned.chain(event.categories()).collect::<Vec<_>>().join(",");
        let mut whole = json!({"name": name, "pid": pid, "tid": tid, "args": args});
        let mut length_ns = None;
        if !category.is_empty() {
            whole["cat"] = category.into();
        }
        match event.kind {
            SLICE_BEGIN => {
                let end = self.layout.end(self.begins);
                self.begins += 1;
                length_ns = end.map(|end| end.saturating_sub(ns));
                whole["ph"] = if end.is_some() { "X" } else { "B" }.into();
            }
            SLICE_END => whole["ph"] = "E".into(),
            INSTANT => (whole["ph"], whole["s"]) = ("i".into(), "t".into()),
            COUNTER => {
                let value = event.counter.map(Value::from).or(event.double_counter.map(Value::from));
                let name = if name.is_empty() { &track.name } else { name };
                out.put(ns, None, &json!({"ph": "C", "name": name, "pid": pid, "args": {"value": value}}));
                return Ok(());
            }
            _ => return Ok(()),
        }
        out.put(ns, length_ns, &whole);
        let mut arrow = |phase, kind, id| arrow(out, ns, (&pid, &tid), phase, kind, id);
        let [flows, ended] = event.flows()?;
        flows.into_iter().for_each(|id| arrow("t", "flow", id));
        ended.into_iter().for_each(|id| arrow("f", "flow", id));
        event.submitted()?.into_iter().for_each(|id| arrow("s", "ac2g", id));
        Ok(())
    }

    /// The process and thread of a track. Waits of a device's streams are on tracks of a process that is called `GPU 0`.
    fn place(&self, track: &Track<'_>) -> (Value, Value) {
        match (self.layout.device(track), &track.thread) {
            (Some(device), thread) => (device.into(), thread.as_ref().map_or(0, |thread| thread.tid).into()),
            _ => (self.layout.pid(track).unwrap_or(0).into(), tid(track)),
        }
    }

    /// Work on a device.
    pub(super) fn render_stage(
        &mut self,
        stage: &RenderStage<'_>,
        ns: u64,
        names: &Names,
        out: &mut Text,
    ) -> Result<(), Malformed> {
        let specification = |iid| names.specifications.get(&iid).map_or("", String::as_str);
        let of = specification(stage.stage_iid);
        let interned = || names.events.get(&stage.name_iid).or_else(|| names.kernels.get(&stage.kernel_iid));
        let title = stage.name.as_deref().or_else(|| interned().map(String::as_str)).unwrap_or(of);
        let category = match of {
            "Kernel" => "kernel",
            "Memcpy" => "gpu_memcpy",
            "Memset" => "gpu_memset",
            "Annotation" => "gpu_user_annotation",
            "EventRecord" => "graph_event_node",
            "HostNode" => "graph_host_node",
            other => other,
        };
        let (pid, (tid, row)) = (device(stage.gpu).into(), lane(specification(stage.queue_iid)));
        if self.named.len() < NAMED && self.named.insert((stage.gpu, stage.queue_iid)) {
            name(out, "thread_name", &pid, &tid, &row);
        }
        let mut args = Map::new();
        for extra in stage.extra() {
            let (name, text) = extra?;
            let name = match &*name {
                "device id" => "device",
                "context id" => "context",
                // A row may be one that the profiler made up for a part of a graph.
                "stream id" if tid.is_number() && number_or_text(&text) != tid => "original_stream",
                "stream id" => "stream",
                name => name,
            };
            args.insert(name.to_owned(), number_or_text(&text));
        }
        if args.contains_key("original_stream") {
            args.insert("stream".to_owned(), tid.clone());
        }
        let launch = stage.launch.unwrap_or_default();
        for (name, size) in ["grid", "block"].into_iter().zip(sizes(launch)) {
            if let Some(size) = size {
                args.insert(name.to_owned(), json!(size));
            }
        }
        for argument in arguments(launch) {
            let argument = argument?;
            let name = argument.name.as_deref().or_else(|| names.arguments.get(&argument.name_iid).map(String::as_str));
            // `registers_per_thread` is `registers per thread` in Chrome's form.
            args.insert(name.unwrap_or_default().replace('_', " "), argument.value);
        }
        let work = json!({"ph": "X", "cat": category, "name": title, "pid": pid, "tid": tid, "args": args});
        out.put(ns, Some(stage.duration_ns), &work);
        let mut arrow = |phase, kind, id| arrow(out, ns, (&pid, &tid), phase, kind, id);
        if self.layout.is_submitted(stage.event_id) {
            arrow("f", "ac2g", stage.event_id);
        }
        if self.layout.is_waited_for(stage.event_id) {
            arrow("s", WAIT, stage.event_id);
        }
        stage.waits_for()?.into_iter().for_each(|id| arrow("f", WAIT, id));
        Ok(())
    }

    /// Samples of a device's counters.
    pub(super) fn counters(&self, event: &[u8], ns: u64, names: &Names, out: &mut Text) -> Result<(), Malformed> {
        let unknown = (0, HashMap::new());
        let (of, counters) = samples(event);
        let (gpu, specs) = names.counters.get(&of).unwrap_or(&unknown);
        for counter in counters {
            let counter = counter?;
            let name = specs.get(&counter.id).cloned().unwrap_or_else(|| format!("counter {}", counter.id));
            let value = counter.int.map(Value::from).or(counter.double.map(Value::from));
            out.put(ns, None, &json!({"ph": "C", "name": name, "pid": device(*gpu), "args": {"value": value}}));
        }
        Ok(())
    }
}

/// A device is no process: its id is a text, which is also its title.
fn device(gpu: i32) -> String {
    format!("GPU {gpu}")
}

/// The category of an arrow from work to work that waits for it.
const WAIT: &str = "wait";

/// Names a process or a thread.
fn name(out: &mut Text, what: &str, pid: &Value, tid: &Value, name: &str) {
    if !name.is_empty() {
        out.put(out.zero_ns, None, &json!({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}));
    }
}

/// One end of an arrow, at an event of this process and thread.
fn arrow(out: &mut Text, ns: u64, (pid, tid): (&Value, &Value), phase: &str, kind: &str, id: u64) {
    let id = id.to_string();
    out.put(ns, None, &json!({"ph": phase, "bp": "e", "cat": kind, "name": kind, "id": id, "pid": pid, "tid": tid}));
}

/// The thread and the name of a hardware queue. The number in `[0007] stream 7` only sorts the queues, as do the zeros of `stream 0007`.
fn lane(queue: &str) -> (Value, String) {
    let (number, name) = queue.strip_prefix('[').and_then(|rest| rest.split_once("] ")).unwrap_or(("", queue));
    let stream = name.strip_prefix("stream ").and_then(|digits| digits.parse::<u64>().ok());
    let tid = number.parse().ok().or(stream).map_or_else(|| name.into(), Value::from);
    (tid, stream.map_or_else(|| name.to_owned(), |stream| format!("stream {stream}")))
}

/// The thread of a track; a track without a thread is a row of its own, with its name.
fn tid(track: &Track<'_>) -> Value {
    match &track.thread {
        Some(thread) => thread.tid.into(),
        None if track.process.is_some() => 0.into(),
        None if !track.name.is_empty() => (&*track.name).into(),
        None => format!("track {}", track.uuid).into(),
    }
}

/// The values of work on a device are texts in this format, and numbers in Chrome's.
fn number_or_text(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
}
