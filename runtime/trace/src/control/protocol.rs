//! Frames, requests and refusals on the socket. `docs/control.md` describes them for other clients.
//!
//! The program and the command `warpline` use it. No input is trusted: a frame that is too long, or an invalid request,
//! is refused with a text that gives the reason, and memory is bounded by the frame size.

use std::fmt;

use serde_json::{Map, Value, json};

/// The version of the protocol. A program refuses any other version, and reports its own.
pub const VERSION: u64 = 1;

/// The longest frame that a program accepts.
pub const MAX_REQUEST_BYTES: usize = 16 << 10;

/// The longest frame that a program sends.
pub const MAX_REPLY_BYTES: usize = 1 << 20;

/// The longest duration that a request may name.
pub const MAX_MS: u64 = 24 * 60 * 60 * 1000;

/// The largest number of zones in one request.
pub const MAX_ZONES: u32 = 10_000;

/// The code of a refusal while the program starts or ends a session: the same request is accepted a moment later.
pub const CHANGING: &str = "changing";

/// The kind of a frame's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A JSON object.
    Json,
    /// A piece of a trace.
    Trace,
}

impl Kind {
    const fn byte(self) -> u8 {
        match self {
            Kind::Json => b'J',
            Kind::Trace => b'T',
        }
    }

    const fn from_byte(byte: u8) -> Option<Kind> {
        match byte {
            b'J' => Some(Kind::Json),
            b'T' => Some(Kind::Trace),
            _ => None,
        }
    }
}

/// Appends a frame to `out`: the length of the rest in four bytes, little-endian, the kind in one byte, and the body.
pub fn frame(kind: Kind, body: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(body.len() as u32 + 1).to_le_bytes());
    out.push(kind.byte());
    out.extend_from_slice(body);
}

/// Why bytes are not a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The frame's length is zero or exceeds the maximum.
    Length(u32),
    /// The kind is unknown.
    Kind(u8),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Length(length) => write!(f, "a frame of {length} bytes is not part of this protocol"),
            FrameError::Kind(kind) => write!(f, "a frame of kind {kind} is not part of this protocol"),
        }
    }
}

/// Takes bytes as they arrive and returns frames.
#[derive(Debug)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// The maximum length of a body and its kind.
    most: usize,
}

impl Decoder {
    /// Creates a decoder for bodies of at most this many bytes.
    pub fn new(most: usize) -> Decoder {
        Decoder { bytes: Vec::new(), most: most + 1 }
    }

    /// Returns how many more bytes the decoder takes before a frame must be taken out: never more than one frame.
    pub fn room(&self) -> usize {
        (4 + self.most).saturating_sub(self.bytes.len())
    }

    /// Adds bytes, at most [`room`](Self::room).
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether no partial frame is buffered.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the next complete frame, or none if it has not fully arrived.
    ///
    /// # Errors
    /// The bytes are not a valid frame, and no later bytes can be one.
    pub fn take(&mut self) -> Result<Option<(Kind, Vec<u8>)>, FrameError> {
        let Some(length) = self.bytes.first_chunk::<4>().map(|length| u32::from_le_bytes(*length)) else {
            return Ok(None);
        };
        if length == 0 || length as usize > self.most {
            return Err(FrameError::Length(length));
        }
        let Some(&byte) = self.bytes.get(4) else { return Ok(None) };
        let kind = Kind::from_byte(byte).ok_or(FrameError::Kind(byte))?;
        let end = 4 + length as usize;
        let Some(body) = self.bytes.get(5..end) else { return Ok(None) };
        let body = body.to_vec();
        self.bytes.drain(..end);
        Ok(Some((kind, body)))
    }
}

/// A request to a program. Each connection carries one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    /// Asks for the program's identity and what it currently records.
    Status,
    /// Asks for a trace from now until the time is up, the other end closes its side, or a client asks to stop.
    Record {
        /// The duration in ms; if absent, as long as the connection lasts.
        for_ms: Option<u64>,
        /// Patterns for range names, separated by commas; empty for all.
        filter: String,
        /// Whether to record kernels and copies, too.
        kernels: bool,
    },
    /// Ends every recording that a client requested.
    Stop,
    /// Records the next zones of a range.
    Arm {
        /// The range's full name.
        range: String,
        /// The number of zones.
        zones: u32,
        /// The time limit, in ms.
        for_ms: u64,
    },
    /// Asks for figures of the running ranges, repeated as long as the connection lasts.
    Watch {
        /// The time between two sets of figures, in ms.
        every_ms: u64,
    },
    /// Asks for the contents of the flight recorder.
    Dump,
    /// Asks what the rank is doing, as its progress file says it.
    Progress,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// A one-word code for programs.
    pub code: &'static str,
    /// A text for people: the problem and the remedy.
    pub text: String,
}

impl Refusal {
    /// Creates a refusal with this text.
    pub fn new(code: &'static str, text: impl Into<String>) -> Refusal {
        Refusal { code, text: text.into() }
    }

    /// Returns the refusal as a reply.
    pub fn to_json(&self) -> String {
        json!({"is": "error", "protocol": VERSION, "code": self.code, "text": self.text}).to_string()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl ControlRequest {
    /// Returns the request in the form in which it is sent.
    pub fn to_json(&self) -> String {
        let mut object = match self {
            ControlRequest::Status => json!({"ask": "status"}),
            ControlRequest::Record { for_ms: None, filter, kernels } => {
                json!({"ask": "record", "filter": filter, "kernels": kernels})
            }
            ControlRequest::Record { for_ms: Some(for_ms), filter, kernels } => {
                json!({"ask": "record", "for_ms": for_ms, "filter": filter, "kernels": kernels})
            }
            ControlRequest::Stop => json!({"ask": "stop"}),
            ControlRequest::Arm { range, zones, for_ms } => {
                json!({"ask": "arm", "range": range, "zones": zones, "for_ms": for_ms})
            }
            ControlRequest::Watch { every_ms } => json!({"ask": "watch", "every_ms": every_ms}),
            ControlRequest::Dump => json!({"ask": "dump"}),
            ControlRequest::Progress => json!({"ask": "progress"}),
        };
        object["protocol"] = VERSION.into();
        object.to_string()
    }

    /// Parses a request. Unknown members are refused, not ignored: with an unknown filter left out, the program would
    /// record data that the client did not request.
    ///
    /// # Errors
    /// What is wrong with the request, and the valid alternatives.
    pub fn parse(body: &[u8]) -> Result<ControlRequest, Refusal> {
        let wrong = |text: String| Refusal::new("request", text);
        let value: Value = serde_json::from_slice(body).map_err(|error| wrong(format!("it is not JSON: {error}")))?;
        let Value::Object(mut object) = value else { return Err(wrong("a request is a JSON object".to_owned())) };
        match object.remove("protocol").as_ref().and_then(Value::as_u64) {
            Some(VERSION) => {}
            Some(other) => {
                let text = format!(
                    "this program uses protocol {VERSION} (warpline {}), but the request uses protocol {other}; use the command \
                     `warpline` of the program's version",
                    env!("CARGO_PKG_VERSION")
                );
                return Err(Refusal::new("protocol", text));
            }
            None => return Err(Refusal::new("protocol", "a request needs `protocol`, a number")),
        }
        let ask = match object.remove("ask") {
            Some(Value::String(ask)) => ask,
            _ => return Err(wrong("a request needs `ask`, the name of the command".to_owned())),
        };
        let request = match ask.as_str() {
            "status" => ControlRequest::Status,
            "record" => ControlRequest::Record {
                for_ms: time(&mut object, "for_ms", 1)?,
                filter: text(&mut object, "filter")?.unwrap_or_default(),
                kernels: flag(&mut object, "kernels")?,
            },
            "stop" => ControlRequest::Stop,
            "arm" => ControlRequest::Arm {
                range: text(&mut object, "range")?.ok_or_else(|| wrong("`arm` needs a `range`".to_owned()))?,
                zones: zones(&mut object)?,
                for_ms: time(&mut object, "for_ms", 1)?.unwrap_or(10_000),
            },
            "watch" => ControlRequest::Watch { every_ms: time(&mut object, "every_ms", 100)?.unwrap_or(1_000) },
            "dump" => ControlRequest::Dump,
            "progress" => ControlRequest::Progress,
            other => {
                let asks = "status, record, stop, arm, watch, dump and progress";
                let text = format!("there is no command `{}`; there are {asks}", other.escape_debug());
                return Err(Refusal::new("unknown", text));
            }
        };
        match object.keys().next() {
            Some(key) => Err(Refusal::new("unknown", format!("`{ask}` has no parameter `{}`", key.escape_debug()))),
            None => Ok(request),
        }
    }
}

fn wrong(key: &str, what: &str) -> Refusal {
    Refusal::new("request", format!("`{key}` must be {what}"))
}

fn text(object: &mut Map<String, Value>, key: &str) -> Result<Option<String>, Refusal> {
    match object.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong(key, "a text")),
    }
}

fn flag(object: &mut Map<String, Value>, key: &str) -> Result<bool, Refusal> {
    match object.remove(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(flag),
        Some(_) => Err(wrong(key, "true or false")),
    }
}

fn time(object: &mut Map<String, Value>, key: &str, least: u64) -> Result<Option<u64>, Refusal> {
    match object.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().filter(|ms| (least..=MAX_MS).contains(ms)) {
            Some(ms) => Ok(Some(ms)),
            None => Err(wrong(key, &format!("a number of ms from {least} to {MAX_MS}, which is a day"))),
        },
    }
}

fn zones(object: &mut Map<String, Value>) -> Result<u32, Refusal> {
    match object.remove("zones") {
        None | Some(Value::Null) => Ok(1),
        Some(value) => {
            let zones = value.as_u64().and_then(|zones| u32::try_from(zones).ok());
            let zones = zones.filter(|zones| (1..=MAX_ZONES).contains(zones));
            zones.ok_or_else(|| wrong("zones", &format!("a number from 1 to {MAX_ZONES}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some_request() -> impl Strategy<Value = ControlRequest> {
        prop_oneof![
            Just(ControlRequest::Status),
            Just(ControlRequest::Stop),
            Just(ControlRequest::Dump),
            Just(ControlRequest::Progress),
            (proptest::option::of(1..=MAX_MS), ".*", any::<bool>())
                .prop_map(|(for_ms, filter, kernels)| ControlRequest::Record { for_ms, filter, kernels }),
            (".*", 1..=MAX_ZONES, 1..=MAX_MS).prop_map(|(range, zones, for_ms)| ControlRequest::Arm {
                range,
                zones,
                for_ms
            }),
            (100..=MAX_MS).prop_map(|every_ms| ControlRequest::Watch { every_ms }),
        ]
    }

    proptest! {
        #[test]
        fn a_request_comes_as_it_was_sent(request in some_request(), cut in any::<prop::sample::Index>()) {
            let mut bytes = Vec::new();
            frame(Kind::Json, request.to_json().as_bytes(), &mut bytes);
            let (first, second) = bytes.split_at(cut.index(bytes.len()));
            let mut decoder = Decoder::new(MAX_REPLY_BYTES);
            decoder.feed(first);
            prop_assert_eq!(decoder.take(), Ok(None));
            decoder.feed(second);
            let (kind, body) = decoder.take().expect("a frame").expect("a whole one");
            prop_assert_eq!((kind, ControlRequest::parse(&body)), (Kind::Json, Ok(request)));
            prop_assert!(decoder.is_empty());
        }

        #[test]
        fn any_bytes_are_a_frame_or_refused(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..32)) {
            let mut decoder = Decoder::new(MAX_REQUEST_BYTES);
            for piece in &pieces {
                prop_assert!(piece.len() <= decoder.room());
                decoder.feed(piece);
                match decoder.take() {
                    Ok(Some((_, body))) => { let _ = ControlRequest::parse(&body); }
                    Ok(None) => prop_assert!(decoder.room() > 0, "what cannot become whole is refused"),
                    Err(error) => { prop_assert!(!error.to_string().is_empty()); break }
                }
            }
        }

        #[test]
        fn any_text_is_a_request_or_refused(text in ".*") {
            if let Err(refusal) = ControlRequest::parse(text.as_bytes()) {
                let reply: Value = serde_json::from_str(&refusal.to_json()).expect("JSON");
                prop_assert_eq!(&reply["is"], "error");
            }
        }
    }

    fn refused(text: &str) -> String {
        let refusal = ControlRequest::parse(text.as_bytes()).expect_err(text);
        format!("{}: {refusal}", refusal.code)
    }

    #[test]
    fn what_is_not_known_is_refused_and_named() {
        assert_eq!(
            refused(r#"{"protocol":1,"ask":"quit"}"#),
            "unknown: there is no command `quit`; there are status, record, stop, arm, watch, dump and progress"
        );
        assert_eq!(
            refused(r#"{"protocol":1,"ask":"record","level":"coarse"}"#),
            "unknown: `record` has no parameter `level`"
        );
        assert_eq!(refused(r#"{"protocol":1,"ask":"record","kernels":1}"#), "request: `kernels` must be true or false");
        assert_eq!(refused(r#"{"protocol":1,"ask":"arm"}"#), "request: `arm` needs a `range`");
        assert_eq!(
            refused(r#"{"protocol":1,"ask":"arm","range":"a","zones":0}"#),
            "request: `zones` must be a number from 1 to 10000"
        );
        assert!(
            refused(r#"{"protocol":1,"ask":"record","for_ms":0}"#)
                .starts_with("request: `for_ms` must be a number of ms from 1")
        );
        assert!(
            refused(r#"{"protocol":2,"ask":"status"}"#)
                .starts_with("protocol: this program uses protocol 1 (warpline ")
        );
        assert_eq!(refused("[]"), "request: a request is a JSON object");
    }

    #[test]
    fn what_other_protocols_say_first_is_no_frame() {
        for greeting in
            [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x03\x01\x02\x00\x01\x00", b"SSH-2.0-x", &[0; 16], &[0xff; 16]]
        {
            let mut decoder = Decoder::new(MAX_REQUEST_BYTES);
            decoder.feed(greeting);
            assert!(decoder.take().is_err(), "{greeting:?}");
        }
        let mut decoder = Decoder::new(MAX_REQUEST_BYTES);
        decoder.feed(&[2, 0, 0, 0, b'X', b'x']);
        assert_eq!(decoder.take(), Err(FrameError::Kind(b'X')));
    }
}
