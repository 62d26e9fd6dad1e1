//! Reads a Perfetto trace that PyTorch's profiler wrote (`export_chrome_trace("trace.pftrace")`) as the Chrome JSON that the same profiler
//! writes, so that the readers of Chrome JSON read it, too.
//!
//! The file is read once more than JSON: `layout` first finds the tracks and the ends of slices, then `events`
//! translates packet by packet, in each reading. `packets` refuses what the profiler does not write, `messages` reads what only it writes, and
//! `names` keeps the interned names. Memory is 8 bytes for each slice and each end of an arrow, the names, and the largest packet.

mod events;
mod layout;
mod messages;
mod names;
mod packets;
#[cfg(test)]
mod tests;

use std::io::{self, BufRead, Read};
use std::rc::Rc;

use serde_json::Value;

use events::Events;
pub use layout::Layout;
use names::AllNames;
use packets::next;

use super::event::us;
use super::packets::Packets;
use super::parts::{Packet, RenderStage, TrackEvent};

/// How much of a trace is looked at to tell of which program it is, in bytes.
const LOOKED_AT: u64 = 64 << 20;

/// Whether a Perfetto trace is of PyTorch's profiler, and not of warpline: it has facts of kernels where only the profiler writes them. A trace
/// without work on a device has none, and is read as that of any other tool.
///
/// # Errors
/// The file cannot be read.
pub fn is_native(trace: impl Read) -> io::Result<bool> {
    let mut packets = Packets::new(trace);
    while packets.place() < LOOKED_AT
        && let Some(bytes) = packets.next_packet()?
    {
        let Ok(packet) = Packet::read(bytes) else { continue };
        if packet.attributes().flatten().any(|(key, _)| key == "warpline.version") {
            return Ok(false);
        }
        let submits = |event| TrackEvent::read(event).is_ok_and(|event| event.submits());
        let has_facts =
            |stage| RenderStage::read(stage).is_ok_and(|stage| stage.kernel_iid != 0 || stage.extra().next().is_some());
        if packet.event.is_some_and(submits)
            || packet.stage.is_some_and(has_facts)
            || packet.interned().flatten().any(|entry| entry.number == messages::KERNELS)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The events of the document that are translated and not yet read.
struct Text {
    bytes: Vec<u8>,
    /// The times of the document are relative to this one, so that a reader's float holds them.
    zero_ns: u64,
    is_first: bool,
}

impl Text {
    /// Adds an event at a time, with its length if it has one: both as text, because no float holds all times exactly.
    fn put(&mut self, ns: u64, length_ns: Option<u64>, event: &Value) {
        self.bytes.extend_from_slice(if std::mem::take(&mut self.is_first) { b"\n" } else { b",\n" });
        let us = |ns: u64| us(i64::try_from(ns).unwrap_or(i64::MAX));
        let length = length_ns.map_or_else(String::new, |ns| format!(",\"dur\":{}", us(ns)));
        let begin = format!("{{\"ts\":{}{length},", us(ns.saturating_sub(self.zero_ns)));
        self.bytes.extend_from_slice(begin.as_bytes());
        self.bytes.extend_from_slice(event.to_string().trim_start_matches('{').as_bytes());
    }
}

/// A Perfetto trace, read as Chrome JSON.
pub struct Translated<R> {
    packets: Packets<R>,
    events: Events,
    names: AllNames,
    text: Text,
    /// What is read of the text.
    at: usize,
    is_done: bool,
}

impl<R: Read> Translated<R> {
    /// `input` is the file from which the layout was read.
    pub fn new(input: R, layout: Rc<Layout>) -> Translated<R> {
        let base = layout.base_ns().map_or_else(String::new, |ns| format!("\"baseTimeNanoseconds\":{ns},"));
        let bytes = format!("{{\"schemaVersion\":1,{base}\"traceEvents\":[").into_bytes();
        let mut text = Text { bytes, zero_ns: layout.first_ns(), is_first: true };
        let events = Events::new(layout);
        events.metadata(&mut text);
        Translated { packets: Packets::new(input), events, names: AllNames::new(), text, at: 0, is_done: false }
    }

    /// Translates the next packet, or ends the document.
    fn translate(&mut self) -> io::Result<()> {
        self.at = 0;
        self.text.bytes.clear();
        let (names, events, text) = (&mut self.names, &mut self.events, &mut self.text);
        let read = next(&mut self.packets, |packet| {
            let (names, ns) = (names.take(packet)?, packet.timestamp.unwrap_or(0));
            if let Some(event) = packet.event {
                events.track_event(&TrackEvent::read(event)?, ns, names, text)?;
            }
            if let Some(stage) = packet.stage {
                events.render_stage(&RenderStage::read(stage)?, ns, names, text)?;
            }
            if let Some(counters) = packet.counters {
                events.counters(counters, ns, names, text)?;
            }
            Ok(())
        })?;
        if read.is_none() {
            self.text.bytes.extend_from_slice(b"\n]}\n");
            self.is_done = true;
        }
        Ok(())
    }
}

impl<R: Read> BufRead for Translated<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.at == self.text.bytes.len() && !self.is_done {
            self.translate()?;
        }
        Ok(&self.text.bytes[self.at..])
    }

    fn consume(&mut self, count: usize) {
        self.at += count;
    }
}

impl<R: Read> Read for Translated<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(bytes)?;
        self.consume(count);
        Ok(count)
    }
}
