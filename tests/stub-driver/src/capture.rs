//! Stream capture: what is being captured, and which calls of which threads break it.

use crate::code::Code;
use crate::driver::{Driver, StreamId};
use crate::graph::Kind;
use crate::table::Handle;
use crate::thread;

/// `CUstreamCaptureMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Global = 0,
    ThreadLocal = 1,
    Relaxed = 2,
}

impl Mode {
    pub fn from_raw(mode: i32) -> Result<Mode, Code> {
        match mode {
            0 => Ok(Mode::Global),
            1 => Ok(Mode::ThreadLocal),
            2 => Ok(Mode::Relaxed),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

/// Names a capture.
pub type CaptureId = u64;

/// A capture that has begun and not ended.
pub struct Capture {
    mode: Mode,
    origin: StreamId,
    tid: i32,
    is_invalidated: bool,
    pub graph: Handle,
}

/// Where a stream stands in its capture.
pub struct Place<'a> {
    pub capture: CaptureId,
    pub graph: Handle,
    /// What the next node depends on.
    pub frontier: &'a [Handle],
}

/// `CUgraphEdgeData` of launch order: from port 2 to port 0, of type 1.
const BY_LAUNCH: Handle = 2 | 1 << 16;

/// The data of the edge from a node.
pub fn edge(by_launch: &[Handle], from: Handle) -> Handle {
    if by_launch.contains(&from) { BY_LAUNCH } else { 0 }
}

/// `CUstreamCaptureStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    None = 0,
    Active = 1,
    Invalidated = 2,
}

impl Driver {
    /// Begins a capture on a stream that was made for work.
    /// It is into a graph that is there, behind these nodes of it, or into a new one.
    pub fn begin_capture(
        &mut self,
        stream: StreamId,
        mode: Mode,
        into: Option<(Handle, Vec<Handle>)>,
    ) -> Result<(), Code> {
        if self.is_legacy(stream) {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        let id = self.new_id();
        let of = self.stream_mut(stream)?;
        if of.capture.is_some() {
            return Err(Code::ILLEGAL_STATE);
        }
        of.capture = Some(id);
        let (graph, deps) = into.unwrap_or_else(|| (self.new_graph(), Vec::new()));
        self.stream_mut(stream)?.frontier = deps;
        let capture = Capture { mode, origin: stream, tid: thread::tid(), is_invalidated: false, graph };
        self.captures.insert(id, capture);
        Ok(())
    }

    /// Ends the capture on all streams that take part in it. What the others stand behind must have been joined.
    pub fn end_capture(&mut self, stream: StreamId) -> Result<Handle, Code> {
        let id = self.stream_mut(stream)?.capture.ok_or(Code::ILLEGAL_STATE)?;
        let capture = self.captures.get(&id).ok_or(Code::UNKNOWN)?;
        if capture.origin != stream {
            return Err(Code::CAPTURE_UNMATCHED);
        }
        if capture.mode != Mode::Relaxed && capture.tid != thread::tid() {
            return Err(Code::CAPTURE_WRONG_THREAD);
        }
        let (graph, is_invalidated) = (capture.graph, capture.is_invalidated);
        let is_joined = self.is_joined(id, stream)?;
        self.end(id);
        let broken = match (is_invalidated, is_joined) {
            (true, _) => Code::CAPTURE_INVALIDATED,
            (false, false) => Code::CAPTURE_UNJOINED,
            (false, true) => return Ok(graph),
        };
        self.destroy_graph(graph)?;
        Err(broken)
    }

    /// Whether all that the streams of a capture stand behind comes before what this one stands behind.
    fn is_joined(&mut self, id: CaptureId, origin: StreamId) -> Result<bool, Code> {
        let mut open = self.stream_mut(origin)?.frontier.clone();
        let mut before = std::collections::HashSet::new();
        while let Some(node) = open.pop() {
            if before.insert(node) {
                open.extend(&self.nodes.get(node)?.deps);
            }
        }
        let mut others = self.streams.values().filter(|stream| stream.capture == Some(id));
        Ok(others.all(|stream| stream.frontier.iter().all(|node| before.contains(node))))
    }

    /// From now on the stream stands behind these nodes of its capture, and no others.
    pub fn stand(&mut self, stream: StreamId, nodes: Vec<Handle>, edges: &[Handle]) -> Result<(), Code> {
        let id = self.stream_mut(stream)?.capture.ok_or(Code::ILLEGAL_STATE)?;
        let capture = self.captures.get(&id).ok_or(Code::UNKNOWN)?;
        if capture.is_invalidated {
            return Err(Code::CAPTURE_INVALIDATED);
        }
        let graph = capture.graph;
        for node in &nodes {
            if self.nodes.get(*node)?.graph != graph {
                return Err(Code::INVALID_VALUE);
            }
        }
        let by_launch =
            nodes.iter().zip(edges).filter(|(_, edge)| **edge == BY_LAUNCH).map(|(node, _)| *node).collect();
        let of = self.stream_mut(stream)?;
        (of.frontier, of.by_launch) = (nodes, by_launch);
        Ok(())
    }

    /// The state of a stream's capture. Asking for the legacy stream's while another blocking stream captures is an
    /// error, which breaks nothing.
    pub fn capture_status(&mut self, stream: StreamId) -> Result<Status, Code> {
        if !self.captures_that_legacy_work_breaks(stream)?.is_empty() {
            return Err(Code::CAPTURE_IMPLICIT);
        }
        let capture = self.stream_mut(stream)?.capture;
        Ok(match capture.and_then(|id| self.captures.get(&id)) {
            None => Status::None,
            Some(capture) if capture.is_invalidated => Status::Invalidated,
            Some(_) => Status::Active,
        })
    }

    /// Before work is put on a stream: the capture that takes it up, if there is one.
    pub fn capture_of_work(&mut self, stream: StreamId) -> Result<Option<CaptureId>, Code> {
        let broken = self.captures_that_legacy_work_breaks(stream)?;
        if !broken.is_empty() {
            self.invalidate(&broken);
            return Err(Code::CAPTURE_IMPLICIT);
        }
        let Some(id) = self.stream_mut(stream)?.capture else { return Ok(None) };
        if self.captures.get(&id).ok_or(Code::UNKNOWN)?.is_invalidated {
            return Err(Code::CAPTURE_INVALIDATED);
        }
        Ok(Some(id))
    }

    /// Where a stream stands in its capture: the capture, the graph, and what the next node depends on.
    pub fn capture_place(&mut self, stream: StreamId) -> Result<Option<Place<'_>>, Code> {
        let of = self.streams.get(&stream).ok_or(Code::INVALID_HANDLE)?;
        let Some(id) = of.capture else { return Ok(None) };
        let graph = self.captures.get(&id).ok_or(Code::UNKNOWN)?.graph;
        Ok(Some(Place { capture: id, graph, frontier: &of.frontier }))
    }

    /// Puts a node into the capture that takes up a stream's work, behind what the stream has captured.
    pub fn capture_node(&mut self, stream: StreamId, capture: CaptureId, kind: Kind, ns: i64) -> Result<(), Code> {
        let graph = self.captures.get(&capture).ok_or(Code::UNKNOWN)?.graph;
        let of = self.stream_mut(stream)?;
        let (deps, by_launch) = (std::mem::take(&mut of.frontier), std::mem::take(&mut of.by_launch));
        let node = self.add_node(graph, kind, &deps)?;
        let of = self.nodes.get(node)?;
        of.ns = ns;
        // Only a kernel waits for a launch.
        if kind.number() == 0 {
            of.by_launch = by_launch;
        }
        self.stream_mut(stream)?.frontier = vec![node];
        Ok(())
    }

    /// Before a call that asks a stream how far it is: no capture may be under way that this thread's mode respects.
    /// If there is one, it is broken, as in the real driver.
    pub fn check_unsafe_call(&mut self) -> Result<(), Code> {
        let (tid, mode) = (thread::tid(), thread::mode());
        let is_broken = |capture: &Capture| match mode {
            Mode::Relaxed => false,
            Mode::ThreadLocal => capture.tid == tid && capture.mode != Mode::Relaxed,
            Mode::Global if capture.tid == tid => capture.mode != Mode::Relaxed,
            Mode::Global => capture.mode == Mode::Global,
        };
        let broken: Vec<_> =
            self.captures.iter().filter(|(_, capture)| is_broken(capture)).map(|(&id, _)| id).collect();
        self.invalidate(&broken);
        if broken.is_empty() { Ok(()) } else { Err(Code::CAPTURE_UNSUPPORTED) }
    }

    /// Before a call that asks how far this very stream is: it must not be capturing.
    pub fn check_not_capturing(&mut self, stream: StreamId) -> Result<(), Code> {
        let Some(id) = self.stream_mut(stream)?.capture else { return Ok(()) };
        self.invalidate(&[id]);
        Err(Code::CAPTURE_UNSUPPORTED)
    }

    /// Before a call that asks which stream it is: that breaks its capture, in every mode (seen on driver 580.159.04).
    #[cfg(not(feature = "old"))]
    pub fn check_identity(&mut self, stream: StreamId) -> Result<(), Code> {
        let broken = self.captures_that_legacy_work_breaks(stream)?;
        if !broken.is_empty() {
            self.invalidate(&broken);
            return Err(Code::CAPTURE_IMPLICIT);
        }
        self.check_not_capturing(stream)
    }

    /// Ends captures without a graph.
    pub fn forget_capture(&mut self, id: CaptureId) {
        if let Some(graph) = self.captures.get(&id).map(|capture| capture.graph) {
            let _ = self.destroy_graph(graph);
        }
        self.end(id);
    }

    fn end(&mut self, id: CaptureId) {
        self.captures.remove(&id);
        for stream in self.streams.values_mut().filter(|stream| stream.capture == Some(id)) {
            stream.capture = None;
            stream.frontier.clear();
            stream.by_launch.clear();
            (stream.told, stream.told_edges) = (None, None);
        }
    }

    /// Breaks captures; they end with an error.
    pub fn invalidate(&mut self, ids: &[CaptureId]) {
        for id in ids {
            if let Some(capture) = self.captures.get_mut(id) {
                capture.is_invalidated = true;
            }
        }
    }

    /// Work on a legacy stream waits for all blocking streams of its context: it cannot while one of them captures.
    fn captures_that_legacy_work_breaks(&mut self, stream: StreamId) -> Result<Vec<CaptureId>, Code> {
        if !self.is_legacy(stream) {
            return Ok(Vec::new());
        }
        let context = self.stream_mut(stream)?.context;
        let blocking = self.streams.values().filter(|other| other.context == context && other.is_blocking);
        Ok(blocking.filter_map(|other| other.capture).collect())
    }
}
