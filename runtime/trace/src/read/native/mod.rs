//! Reads a Perfetto trace that PyTorch's profiler wrote (`export_chrome_trace("trace.pftrace")`) as the Chrome JSON that the same profiler
//! writes, so that the readers of Chrome JSON read it, too.
//!
//! The file is read once more than JSON: `layout` first finds the tracks and the ends of slices, then `events`
//! translates packet by packet, in each reading. `packets` refuses what the profiler does not write, `messages` reads what only it writes, and `names` keeps the interned names. Memory is 8 bytes for each slice, the names, and the
//! largest packet.

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

/// A Perfetto trace, read as Chrome JSON.
pub struct Translated<R> {
    packets: Packets<R>,
    events: Events,
    names: AllNames,
    /// What is translated and not yet read, from `at`.
    text: Vec<u8>,
    at: usize,
    is_first: bool,
    is_done: bool,
}

impl<R: Read> Translated<R> {
    /// `input` is the file from which the layout was read.
    pub fn new(input: R, layout: Rc<Layout>) -> Translated<R> {
        let events = Events::new(layout);
        let mut text = b"{\"schemaVersion\":1,\"baseTimeNanoseconds\":0,\"traceEvents\":[".to_vec();
        let mut is_first = true;
        events.metadata(|event| put(&mut text, &mut is_first, &event));
        Translated {
            packets: Packets::new(input),
            events,
            names: AllNames::new(),
            text,
            at: 0,
            is_first,
            is_done: false,
        }
    }

    /// Translates the next packet, or ends the document.
    fn translate(&mut self) -> io::Result<()> {
        self.at = 0;
        self.text.clear();
        let (names, events) = (&mut self.names, &mut self.events);
        let (text, is_first) = (&mut self.text, &mut self.is_first);
        let mut add = |event: Value| put(text, is_first, &event);
        let read = next(&mut self.packets, |packet| {
            let (names, ns) = (names.take(packet)?, packet.timestamp.unwrap_or(0));
            if let Some(event) = packet.event {
                events.track_event(&TrackEvent::read(event)?, ns, names, &mut add)?;
            }
            if let Some(stage) = packet.stage {
                events.render_stage(&RenderStage::read(stage)?, ns, names, &mut add)?;
            }
            if let Some(counters) = packet.counters {
                events.counters(counters, ns, names, &mut add)?;
            }
            Ok(())
        })?;
        if read.is_none() {
            self.text.extend_from_slice(b"\n]}\n");
            self.is_done = true;
        }
        Ok(())
    }
}

fn put(text: &mut Vec<u8>, is_first: &mut bool, event: &Value) {
    text.extend_from_slice(if std::mem::take(is_first) { b"\n" } else { b",\n" });
    let mut event = event.to_string();
    ["\"ts\":\"", "\"dur\":\""].iter().for_each(|begin| unquote(&mut event, begin));
    text.extend_from_slice(event.as_bytes());
}

/// Makes a number of a text behind `begin`, the name of a member and a quote: no float holds all times exactly, and readers want numbers. Within a text, the
/// quotes of `begin` would have a backslash.
fn unquote(event: &mut String, begin: &str) {
    if let Some(at) = event.find(begin) {
        let from = at + begin.len();
        let end = event[from..].find('"').map_or(event.len(), |length| from + length);
        event.remove(end);
        event.remove(from - 1);
    }
}

impl<R: Read> BufRead for Translated<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.at == self.text.len() && !self.is_done {
            self.translate()?;
        }
        Ok(&self.text[self.at..])
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
