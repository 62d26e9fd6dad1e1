//! Which tool wrote a trace, for messages about one in which no zones are found. Only its begin is looked at.

use std::io::{self, BufRead};
use std::path::Path;

use indicatif::ProgressBar;

use super::document::{Document, Piece};
use super::event::{Event, scalar};
use super::inputs;
use super::kinds::Kind;
use super::packets::Packets;
use super::parts::Packet;
use super::wire::Fields;
use super::{is_json, is_perfetto, native};

/// The most events or packets that are looked at.
const MOST: usize = 10_000;

/// The field of a packet that has events of the kernel: `TracePacket.ftrace_events`.
const FTRACE: u32 = 1;

/// Returns what a file is that no session of warpline wrote, such as `a trace of viztracer`; none if a session wrote it, or if that is not known.
pub fn other(path: &Path) -> Option<&'static str> {
    let open = || inputs::open(path, &ProgressBar::hidden());
    let mut file = open().ok()?;
    let begin = file.fill_buf().ok()?;
    if is_json(begin) {
        of_json(file)
    } else if is_perfetto(begin) {
        match open().and_then(native::is_native) {
            Ok(true) => Some("a trace of PyTorch's profiler"),
            _ => of_perfetto(file).ok().flatten(),
        }
    } else {
        None
    }
}

fn of_json(file: impl BufRead) -> Option<&'static str> {
    let mut document = Document::new(file).may_be_cut();
    let (mut has_events, mut is_empty) = (false, true);
    for _ in 0..MOST {
        match document.next_piece() {
            Ok(Some(Piece::Member(b"\"viztracer_metadata\"", _))) => return Some("a trace of viztracer"),
            Ok(Some(Piece::Member(b"\"deviceProperties\"" | b"\"distributedInfo\"", _))) => {
                return Some("a trace of PyTorch's profiler");
            }
            Ok(Some(Piece::Member(..))) => {}
            Ok(Some(Piece::Events)) => has_events = true,
            Ok(Some(Piece::Event(bytes))) => {
                is_empty = false;
                match Event::read(bytes) {
                    Ok(event) if event.name == "warpline_session" => return None,
                    Ok(event) => {
                        if let Some(tool) = of_event(&event) {
                            return Some(tool);
                        }
                    }
                    Err(_) => {}
                }
            }
            Ok(None) | Err(_) if has_events && is_empty => return None,
            Ok(None) | Err(_) if has_events => return Some("a Chrome trace of another tool"),
            Ok(None) | Err(_) => return Some("JSON without `traceEvents`, and no trace"),
        }
    }
    Some("a Chrome trace of another tool")
}

/// The tool that writes such events, as far as they tell.
fn of_event(event: &Event<'_>) -> Option<&'static str> {
    let argument =
        |key: &str| event.members_of_args().and_then(|args| args.get(key).map(|value| scalar(value).into_owned()));
    match &*event.category {
        "FEE" => return Some("a trace of viztracer"),
        "Session" if event.name.starts_with("model_loading") || event.name == "session_initialization" => {
            return Some("a trace of ONNX Runtime");
        }
        "Node" if argument("op_name").is_some() => return Some("a trace of ONNX Runtime"),
        "cuda_runtime" | "python_function" => return Some("a trace of PyTorch's profiler"),
        category if matches!(Kind::of_category(category), Kind::Kernel | Kind::Copy | Kind::HostZone) => {
            return Some("a trace of PyTorch's profiler");
        }
        _ => {}
    }
    let is_of_xla = |name: String| name.starts_with("/host:") || name.starts_with("/device:");
    if event.name == "process_name" && argument("name").is_some_and(is_of_xla) {
        return Some("a trace of JAX or TensorFlow");
    }
    event.rest.iter().any(|(key, _)| key == ".file").then_some("a trace of tracing-chrome")
}

fn of_perfetto(file: impl BufRead) -> io::Result<Option<&'static str>> {
    let mut packets = Packets::new(file);
    for _ in 0..MOST {
        let Some(bytes) = packets.next_packet()? else { break };
        if Fields(bytes).flatten().any(|(number, _)| number == FTRACE) {
            return Ok(Some("a Perfetto trace of the system (ftrace)"));
        }
        let attributes = Packet::read(bytes).map(|packet| packet.attributes());
        if attributes.into_iter().flatten().flatten().any(|(key, _)| key == "warpline.version") {
            return Ok(None);
        }
    }
    Ok(Some("a Perfetto trace of another tool"))
}
