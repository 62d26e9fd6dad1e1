//! One packet of a Perfetto trace as events of Chrome's format, with the names and categories that PyTorch's profiler uses there.

use std::collections::HashMap;
use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::layout::Layout;
use super::messages::{samples, sizes};
use super::names::Names;
use crate::perfetto::proto::event::{COUNTER, INSTANT, SLICE_BEGIN, SLICE_END};
use crate::read::parts::{Annotation, RenderStage, Said, Track, TrackEvent};
use crate::read::wire::Malformed;

/// The deepest nesting of arguments.
const DEPTH: usize = 64;

/// Translates the packets of one trace, in the order of the file.
pub(super) struct Events {
    layout: Rc<Layout>,
    begins: usize,
    ends: usize,
}

impl Events {
    pub(super) fn new(layout: Rc<Layout>) -> Events {
        Events { layout, begins: 0, ends: 0 }
    }

    /// The names of processes and threads.
    pub(super) fn metadata(&self, mut put: impl FnMut(Value)) {
        let mut tracks: Vec<_> = self.layout.tracks.values().collect();
        tracks.sort_unstable_by_key(|track| track.uuid);
        for track in tracks {
            if self.layout.device(track).is_some() {
                continue;
            }
            let pid = self.layout.pid(track).unwrap_or(0);
            let mut name = |what: &str, tid: Value, name: &str| {
                if !name.is_empty() {
                    put(json!({"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}}));
                }
            };
            if let Some(process) = &track.process {
                name("process_name", json!(0), &process.name);
            }
            if let Some(thread) = &track.thread {
                name("thread_name", json!(thread.tid), &thread.name);
            }
        }
    }

    /// An event on a track of a thread or process.
    pub(super) fn track_event(
        &mut self,
        event: &TrackEvent<'_>,
        ns: u64,
        names: &Names,
        mut put: impl FnMut(Value),
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
            args.insert(name_of(&annotation, names), value(&annotation, names, DEPTH)?);
        }
        let name = event.name.as_deref().or_else(|| names.events.get(&event.name_iid).map(String::as_str));
        let name = name.unwrap_or_default();
        let iids = event.category_iids()?;
        let interned = iids.iter().filter_map(|iid| names.categories.get(iid)).map(|name| name.as_str().into());
        let category = interned.chain(event.categories()).collect::<Vec<_>>().join(",");
        let mut whole = json!({"name": name, "pid": pid, "tid": tid, "ts": us(ns), "args": args});
        if !category.is_empty() {
            whole["cat"] = category.into();
        }
        match event.kind {
            SLICE_BEGIN => {
                let end = self.layout.end(self.begins);
                self.begins += 1;
                match end {
                    Some(end) => (whole["ph"], whole["dur"]) = ("X".into(), us(end.saturating_sub(ns))),
                    None => whole["ph"] = "B".into(),
                }
            }
            SLICE_END => whole["ph"] = "E".into(),
            INSTANT => (whole["ph"], whole["s"]) = ("i".into(), "t".into()),
            COUNTER => {
                let value = event.counter.map(Value::from).or(event.double_counter.map(Value::from));
                let name = if name.is_empty() { &track.name } else { name };
                put(json!({"ph": "C", "name": name, "pid": pid, "ts": us(ns), "args": {"value": value}}));
                return Ok(());
            }
            _ => return Ok(()),
        }
        put(whole);
        let mut arrow = |phase: &str, kind: &str, id: u64| {
            put(
                json!({"ph": phase, "bp": "e", "cat": kind, "name": kind, "id": id.to_string(), "pid": pid, "tid": tid, "ts": us(ns)}),
            );
        };
        let [flows, ended] = event.flows()?;
        flows.into_iter().for_each(|id| arrow("t", "flow", id));
        ended.into_iter().for_each(|id| arrow("f", "flow", id));
        event.submitted()?.into_iter().for_each(|id| arrow("s", "ac2g", id));
        Ok(())
    }

    /// The process and thread of a track. Waits of a device's streams are on tracks of a process that is called `GPU 0`.
    fn place(&self, track: &Track<'_>) -> (Value, Value) {
        match (self.layout.device(track), &track.thread) {
            (Some(device), Some(thread)) => (device.into(), stream(thread.name.trim_end()).into()),
            _ => (self.layout.pid(track).unwrap_or(0).into(), tid(track)),
        }
    }

    /// Work on a device.
    pub(super) fn render_stage(
        &self,
        stage: &RenderStage<'_>,
        ns: u64,
        names: &Names,
        mut put: impl FnMut(Value),
    ) -> Result<(), Malformed> {
        let specification = |iid| names.specifications.get(&iid).map_or("", String::as_str);
        let of = specification(stage.stage_iid);
        let interned = || names.events.get(&stage.name_iid).or_else(|| names.kernels.get(&stage.kernel_iid));
        let name = stage.name.as_deref().or_else(|| interned().map(String::as_str)).unwrap_or(of);
        let category = match of {
            "Kernel" => "kernel",
            "Memcpy" => "gpu_memcpy",
            "Memset" => "gpu_memset",
            "Annotation" => "gpu_user_annotation",
            other => other,
        };
        let mut args = Map::new();
        for extra in stage.extra() {
            let (name, text) = extra?;
            args.insert(name.into_owned(), number_or_text(&text));
        }
        // The one that its launch has, and that Chrome's form has on both sides.
        if category != "gpu_user_annotation" {
            args.entry("correlation").or_insert_with(|| stage.event_id.into());
        }
        for (name, size) in ["grid", "block"].into_iter().zip(sizes(stage.launch.unwrap_or_default())) {
            if let Some(size) = size {
                args.insert(name.to_owned(), json!(size));
            }
        }
        let (pid, tid) = (device(stage.gpu), stream(specification(stage.queue_iid)));
        let dur = us(stage.duration_ns);
        put(
            json!({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": us(ns), "dur": dur, "args": args}),
        );
        if category != "gpu_user_annotation" {
            let id = stage.event_id.to_string();
            put(
                json!({"ph": "f", "bp": "e", "cat": "ac2g", "name": "ac2g", "id": id, "pid": pid, "tid": tid, "ts": us(ns)}),
            );
        }
        Ok(())
    }

    /// Samples of a device's counters.
    pub(super) fn counters(
        &self,
        event: &[u8],
        ns: u64,
        names: &Names,
        mut put: impl FnMut(Value),
    ) -> Result<(), Malformed> {
        let unknown = (0, HashMap::new());
        let (of, counters) = samples(event);
        let (gpu, specs) = names.counters.get(&of).unwrap_or(&unknown);
        for counter in counters {
            let counter = counter?;
            let name = specs.get(&counter.id).cloned().unwrap_or_else(|| format!("counter {}", counter.id));
            let value = counter.int.map(Value::from).or(counter.double.map(Value::from));
            put(json!({"ph": "C", "name": name, "pid": device(*gpu), "ts": us(ns), "args": {"value": value}}));
        }
        Ok(())
    }
}

/// A device is no process: its id is a text, which is also its title.
fn device(gpu: i32) -> String {
    format!("GPU {gpu}")
}

/// The name of a hardware queue without the zeros that only sort it: `stream 0007` is `stream 7`.
fn stream(queue: &str) -> String {
    let number = queue.strip_prefix("stream ").and_then(|digits| digits.parse::<u64>().ok());
    number.map_or_else(|| queue.to_owned(), |number| format!("stream {number}"))
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

/// Nanoseconds as decimal microseconds, exactly.
fn us(ns: u64) -> Value {
    let text = format!("{}.{:03}", ns / 1000, ns % 1000);
    text.into()
}

/// The values of work on a device are texts in this format, and numbers in Chrome's.
fn number_or_text(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
}

fn name_of(annotation: &Annotation<'_>, names: &Names) -> String {
    let name = annotation.name.as_deref().or_else(|| names.annotations.get(&annotation.name_iid).map(String::as_str));
    name.unwrap_or_default().to_owned()
}

fn value(annotation: &Annotation<'_>, names: &Names, depth: usize) -> Result<Value, Malformed> {
    if depth == 0 {
        return Ok(Value::Null);
    }
    let mut entries = Map::new();
    for entry in annotation.entries() {
        let entry = entry?;
        entries.insert(name_of(&entry, names), value(&entry, names, depth - 1)?);
    }
    if !entries.is_empty() {
        return Ok(entries.into());
    }
    Ok(match &annotation.value {
        None => annotation.values().map(|one| value(&one?, names, depth - 1)).collect::<Result<_, _>>()?,
        Some(Said::Bool(value)) => (*value).into(),
        Some(Said::Uint(value)) => (*value).into(),
        Some(Said::Int(value)) => (*value).into(),
        Some(Said::Double(value)) => (*value).into(),
        Some(Said::Text(text)) => (&**text).into(),
        Some(Said::Pointer(value)) => format!("{value:#x}").into(),
        Some(Said::Json(text)) => serde_json::from_str(text).unwrap_or_else(|_| (&**text).into()),
        Some(Said::TextIid(iid)) => names.texts.get(iid).map(String::as_str).into(),
    })
}
