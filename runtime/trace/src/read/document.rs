//! Splits a Chrome trace into its members and events, one at a time.
//!
//! It finds the begin and end of each event and returns the bytes between them; the callers parse them. A trace of any size therefore
//! takes the memory of its largest event, and each error has a position in the file. A trace is an object with a member
//! `traceEvents`, or an array of events. An array may end anywhere: a killed program leaves an array without an end, whose last event may
//! be truncated. A session that is killed while it finishes leaves an array that is followed by the last members of an object.

use std::io::{self, BufRead};

/// The maximum size of an event, and of a member beside the events.
pub const MAX_VALUE: usize = 16 << 20;

/// A position in the decompressed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The number of bytes before it.
    pub byte: u64,
    /// The line, from 1.
    pub line: u64,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "byte {} (line {})", self.byte, self.line)
    }
}

/// A file has more bytes than the limit.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("it has more than {} when it is decompressed", Limit(*.0))]
pub struct TooLong(pub u64);

/// A limit in bytes, which is shown in the largest binary unit that divides it.
pub struct Limit(pub u64);

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
        let unit = (self.0.trailing_zeros() / 10).min(4);
        write!(f, "{} {}", self.0 >> (10 * unit), units[unit as usize])
    }
}

/// Why a trace in another format cannot be read as a document; it names the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Why a document cannot be read any further.
#[derive(Debug)]
pub enum Broken {
    Io(io::Error),
    TooLong(u64),
    /// The document is truncated.
    Short(Position),
    /// The document does not begin like a trace.
    NoTrace(&'static str),
    /// The syntax is wrong there.
    Wrong(Position, &'static str),
    TooLarge(Position),
}

/// A piece of a trace.
#[derive(Debug)]
pub enum Piece<'a> {
    /// A member other than the events: its name as JSON, and its value.
    Member(&'a [u8], &'a [u8]),
    /// The begin of the member `traceEvents`, or of the array if the trace is one.
    Events,
    Event(&'a [u8]),
}

/// What was found. The piece is in the buffers of the document.
enum Step {
    Member,
    Events,
    Event,
    End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ParserState {
    Begin,
    /// In the object. The flag says whether a member came before.
    Object(bool),
    /// In the events. The flags say whether an event came before, and whether the events are in an object.
    Events {
        any: bool,
        inner: bool,
    },
    End,
}

pub struct Document<R> {
    input: R,
    at: Position,
    state: ParserState,
    /// The end may be missing.
    may_be_cut: bool,
    is_array: bool,
    /// Where the document is truncated.
    cut: Option<Position>,
    key: Vec<u8>,
    value: Vec<u8>,
    value_at: Position,
}

impl<R: BufRead> Document<R> {
    pub fn new(input: R) -> Document<R> {
        Document {
            input,
            at: Position { byte: 0, line: 1 },
            state: ParserState::Begin,
            may_be_cut: false,
            is_array: false,
            cut: None,
            key: Vec::new(),
            value: Vec::new(),
            value_at: Position { byte: 0, line: 1 },
        }
    }

    /// Accepts a truncated object, too.
    pub fn may_be_cut(mut self) -> Document<R> {
        self.may_be_cut = true;
        self
    }

    /// Where the last piece begins.
    pub fn place(&self) -> Position {
        self.value_at
    }

    /// Whether the trace is an array. Known after the first piece.
    pub fn is_array(&self) -> bool {
        self.is_array
    }

    /// Where the trace is truncated, in an event or a member that is left out. Known after the last piece.
    pub fn cut(&self) -> Option<Position> {
        self.cut
    }

    /// The next piece; none after the last one.
    pub fn next_piece(&mut self) -> Result<Option<Piece<'_>>, Broken> {
        let step = match self.step() {
            Err(Broken::Short(at)) if self.may_be_cut => {
                self.state = ParserState::End;
                self.cut = Some(at);
                Step::End
            }
            step => step?,
        };
        Ok(match step {
            Step::Member => Some(Piece::Member(&self.key, &self.value)),
            Step::Events => Some(Piece::Events),
            Step::Event => Some(Piece::Event(&self.value)),
            Step::End => None,
        })
    }

    fn step(&mut self) -> Result<Step, Broken> {
        loop {
            match self.state {
                ParserState::Begin => match self.peek_begin()? {
                    Some(b'{') => {
                        self.skip_one();
                        self.state = ParserState::Object(false);
                    }
                    Some(b'[') => {
                        self.skip_one();
                        (self.is_array, self.may_be_cut) = (true, true);
                        self.state = ParserState::Events { any: false, inner: false };
                        return Ok(Step::Events);
                    }
                    _ => return Err(Broken::NoTrace("neither an object nor an array")),
                },
                ParserState::Object(any) => {
                    let Some(byte) = self.peek()? else { return Err(Broken::Short(self.at)) };
                    match byte {
                        b'}' => {
                            self.skip_one();
                            self.state = ParserState::End;
                            continue;
                        }
                        b',' if any => {
                            self.skip_one();
                            if self.peek()? == Some(b'}') {
                                return Err(Broken::Wrong(self.at, "`}` after a comma"));
                            }
                        }
                        _ if any => return Err(Broken::Wrong(self.at, "no `,` or `}` after a member")),
                        _ => {}
                    }
                    if self.required()? != b'"' {
                        return Err(Broken::Wrong(self.at, "a member without a name"));
                    }
                    self.read_value()?;
                    std::mem::swap(&mut self.key, &mut self.value);
                    if self.required()? != b':' {
                        return Err(Broken::Wrong(self.at, "no `:` after the name of a member"));
                    }
                    self.skip_one();
                    let first = self.required()?;
                    if self.key == b"\"traceEvents\"" {
                        if first != b'[' {
                            return Err(Broken::Wrong(self.at, "`traceEvents` is not an array"));
                        }
                        self.skip_one();
                        self.state = ParserState::Events { any: false, inner: true };
                        return Ok(Step::Events);
                    }
                    self.read_value()?;
                    self.state = ParserState::Object(true);
                    return Ok(Step::Member);
                }
                ParserState::Events { any, inner } => {
                    let Some(mut byte) = self.peek()? else {
                        if inner {
                            return Err(Broken::Short(self.at));
                        }
                        self.state = ParserState::End;
                        continue;
                    };
                    if byte == b',' && any {
                        self.skip_one();
                        match self.peek()? {
                            None if !inner => {
                                self.state = ParserState::End;
                                continue;
                            }
                            None => return Err(Broken::Short(self.at)),
                            Some(b']') => return Err(Broken::Wrong(self.at, "`]` after a comma")),
                            Some(next) => byte = next,
                        }
                    } else if byte == b']' {
                        self.skip_one();
                        let has_members = inner || matches!(self.peek()?, Some(b',' | b'}'));
                        self.state = if has_members { ParserState::Object(true) } else { ParserState::End };
                        continue;
                    } else if any {
                        return Err(Broken::Wrong(self.at, "no `,` or `]` after an event"));
                    }
                    if byte != b'{' {
                        return Err(Broken::Wrong(self.at, "an event that is not an object"));
                    }
                    self.read_value()?;
                    self.state = ParserState::Events { any: true, inner };
                    return Ok(Step::Event);
                }
                ParserState::End => {
                    return match self.peek()? {
                        None => Ok(Step::End),
                        Some(_) => Err(Broken::Wrong(self.at, "data after the end of the trace")),
                    };
                }
            }
        }
    }

    fn required(&mut self) -> Result<u8, Broken> {
        self.peek()?.ok_or(Broken::Short(self.at))
    }

    /// The first byte that is neither whitespace nor of a mark.
    fn peek_begin(&mut self) -> Result<Option<u8>, Broken> {
        let begin = fill(&mut self.input)?;
        let mark = begin.len() - without_mark(begin).len();
        self.at.byte += mark as u64;
        self.input.consume(mark);
        self.peek()
    }

    /// The next byte that is not whitespace.
    fn peek(&mut self) -> Result<Option<u8>, Broken> {
        loop {
            let chunk = fill(&mut self.input)?;
            if chunk.is_empty() {
                return Ok(None);
            }
            let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
            let blank = chunk.iter().position(|byte| !is_blank(byte)).unwrap_or(chunk.len());
            self.at.line += newlines(&chunk[..blank]);
            self.at.byte += blank as u64;
            let found = chunk.get(blank).copied();
            self.input.consume(blank);
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Skips a byte that was peeked at.
    fn skip_one(&mut self) {
        self.at.byte += 1;
        self.input.consume(1);
    }

    /// Reads the value that begins at the next byte, and nothing after it.
    fn read_value(&mut self) -> Result<(), Broken> {
        self.value.clear();
        self.value_at = self.at;
        let mut scan = Scan::default();
        loop {
            let chunk = fill(&mut self.input)?;
            if chunk.is_empty() {
                return Err(Broken::Short(self.at));
            }
            let (count, done) = scan.run(chunk);
            if self.value.len() + count > MAX_VALUE {
                return Err(Broken::TooLarge(self.value_at));
            }
            self.value.extend_from_slice(&chunk[..count]);
            self.at.line += newlines(&chunk[..count]);
            self.at.byte += count as u64;
            self.input.consume(count);
            if done {
                return Ok(());
            }
        }
    }
}

/// The begin of a file without the byte order mark of UTF-8, which some editors and Windows' programs write.
pub(super) fn without_mark(begin: &[u8]) -> &[u8] {
    begin.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(begin)
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

fn fill(input: &mut impl BufRead) -> Result<&[u8], Broken> {
    loop {
        match input.fill_buf() {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let too_long = error.get_ref().and_then(|inner| inner.downcast_ref::<TooLong>()).copied();
                return Err(too_long.map_or(Broken::Io(error), |limit| Broken::TooLong(limit.0)));
            }
        }
    }
    // The buffer is filled, so this reads nothing.
    input.fill_buf().map_err(Broken::Io)
}

/// Finds the end of a value by its brackets and quotes alone. Whether the bytes between them are JSON is checked by the caller.
#[derive(Default)]
struct Scan {
    depth: u64,
    in_string: bool,
    escaped: bool,
    scalar: bool,
}

impl Scan {
    /// The number of these bytes that belong to the value, and whether the value ends with them.
    fn run(&mut self, bytes: &[u8]) -> (usize, bool) {
        for (at, byte) in bytes.iter().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => {
                        self.in_string = false;
                        if self.depth == 0 {
                            return (at + 1, true);
                        }
                    }
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' | b',' | b' ' | b'\t' | b'\n' | b'\r' if self.depth == 0 && self.scalar => {
                    return (at, true);
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return (at + 1, true);
                    }
                }
                _ if self.depth == 0 => self.scalar = true,
                _ => {}
            }
        }
        (bytes.len(), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_shown_as_it_was_given() {
        let shown = [500_000_000, 20 << 10, 64 << 30, 3 << 40].map(|bytes| Limit(bytes).to_string());
        assert_eq!(shown, ["500000000 bytes", "20 KiB", "64 GiB", "3 TiB"]);
    }
}
