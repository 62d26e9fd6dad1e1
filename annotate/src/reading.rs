//! The two readings of the trace: the first fills the index and joins, the second writes.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::io::BufRead;
use std::path::PathBuf;
use std::rc::Rc;

use serde_json::value::RawValue;
use warpline_trace::read::document::{Broken, Document, Piece, Position, TooLong};
use warpline_trace::read::event::{Event, Lenient, mended, scalar};
use warpline_trace::read::is_perfetto;
use warpline_trace::read::native::{Layout, Translated};

use crate::annotations::Annotations;
use crate::index::{Index, Indexer, Lost, TooMany};
use crate::join::{Join, Outcome};
use crate::open::open_within;
use crate::output::Output;
use crate::write::{FirstReading, Format, ReadEvent};
use crate::{AnnotateError, Observer, Options, Phase};

/// One event is allowed for so many decompressed bytes. It bounds the memory of the index.
const BYTES_PER_EVENT: u64 = 256;

/// Reads the trace.
pub(crate) struct Reading<'a> {
    options: &'a Options,
    observer: &'a dyn Observer,
    pub(crate) base_ns: Option<i64>,
    pub(crate) seed: u64,
    /// Where the trace is truncated.
    pub(crate) cut: Option<Position>,
    /// The layout of a Perfetto trace, from the first reading on.
    layout: OnceCell<Rc<Layout>>,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(options: &'a Options, observer: &'a dyn Observer) -> Reading<'a> {
        Reading { options, observer, base_ns: None, seed: 0, cut: None, layout: OnceCell::new() }
    }

    fn document(&self, phase: Phase) -> Result<Document<Box<dyn BufRead + 'a>>, AnnotateError> {
        let (observer, mut read) = (self.observer, 0);
        let on_bytes = move |bytes| {
            read += bytes;
            observer.progress(phase, read);
        };
        let failed = |error| AnnotateError::Read { path: self.path(), error };
        let mut bytes = open_within(&self.options.trace, self.options.limit, on_bytes)?;
        if !is_perfetto(bytes.fill_buf().map_err(failed)?) {
            return Ok(Document::new(bytes));
        }
        let (layout, bytes) = match self.layout.get() {
            Some(layout) => (Rc::clone(layout), bytes),
            None => {
                let layout =
                    Rc::new(Layout::read(bytes, self.most(), "raise the limit with `--limit`").map_err(failed)?);
                let layout = Rc::clone(self.layout.get_or_init(|| layout));
                (layout, open_within(&self.options.trace, self.options.limit, |_| ())?)
            }
        };
        Ok(Document::new(Box::new(Translated::new(bytes, layout))))
    }

    /// The largest number of events.
    fn most(&self) -> usize {
        usize::try_from(self.options.limit / BYTES_PER_EVENT).unwrap_or(usize::MAX).min(u32::MAX as usize / 2)
    }

    fn path(&self) -> PathBuf {
        self.options.trace.clone()
    }

    /// The first reading: builds the index, and joins kernels with nodes.
    pub(crate) fn first(&mut self, annotations: &Annotations) -> Result<(Index, Outcome), AnnotateError> {
        let mut document = self.document(Phase::Reading)?;
        let mut indexer = Indexer::new(Join::new(annotations, self.options.by));
        let most = self.most();
        let mut has_events = false;
        loop {
            // The position is that of the piece, which borrows the document.
            match document.next_piece() {
                Ok(None) => break,
                Ok(Some(Piece::Events)) => has_events = true,
                Ok(Some(Piece::Member(name, value))) => match whole_member(name, &json(value)) {
                    Ok(value) if name == b"\"baseTimeNanoseconds\"" => self.base_ns = scalar(value).parse().ok(),
                    Ok(_) => {}
                    Err(error) => {
                        let offset = offset(value, &error);
                        return Err(self.damaged(document.place(), offset, &error));
                    }
                },
                Ok(Some(Piece::Event(bytes))) => {
                    if indexer.events() == most {
                        let what = format!("more than {most} events");
                        return Err(AnnotateError::TooLarge { path: self.path(), what });
                    }
                    let mut room = None;
                    let Lenient { event, is_mended, .. } = Event::read_or_mend(bytes, &mut room);
                    let Some(event) = event else {
                        indexer.no_event();
                        continue;
                    };
                    if is_mended {
                        indexer.lose(Lost::Mended);
                    }
                    indexer.event(&event).map_err(|TooMany| AnnotateError::TooLarge {
                        path: self.path(),
                        what: "more names of processes and threads than 256 MiB".to_owned(),
                    })?;
                }
                Err(broken) => return Err(self.broken(broken)),
            }
        }
        if !has_events {
            let why = "it has no `traceEvents`".to_owned();
            return Err(AnnotateError::NotATrace { path: self.path(), why });
        }
        let (index, join) = indexer.finish();
        (self.seed, self.cut) = (index.seed(), document.cut());
        Ok((index, join.finish(&self.options.trace)?))
    }

    /// The second reading: writes the output. Returns the number of counter values that were left out.
    pub(crate) fn second(
        &self,
        known: &FirstReading<'_>,
        format: &mut dyn Format,
        output: &Output,
    ) -> Result<u64, AnnotateError> {
        let mut document = self.document(Phase::Writing)?;
        let changed = || AnnotateError::Changed { path: self.path() };
        let (mut links, mut joined) = (&known.index.links[..], &known.outcome.joined[..]);
        let mut number = 0;
        while let Some(piece) = document.next_piece().map_err(|broken| self.broken(broken))? {
            match piece {
                Piece::Events => Ok(()),
                Piece::Member(name, value) => format.member(name, &json(value)),
                Piece::Event(bytes) => {
                    let mut room = None;
                    let Lenient { event, bytes, .. } = Event::read_or_mend(bytes, &mut room);
                    let Some(event) = event else {
                        number += 1;
                        continue;
                    };
                    let fate = known.index.fate(number as usize).ok_or_else(changed)?;
                    let mine = links.iter().take_while(|link| link.number == number).count();
                    let (mine, rest) = links.split_at(mine);
                    links = rest;
                    let node = joined.first().filter(|joined| joined.number == number);
                    joined = &joined[usize::from(node.is_some())..];
                    let told = ReadEvent { bytes, event: &event, number, fate, joined: node, links: mine };
                    number += 1;
                    format.event(&told)
                }
            }
            .map_err(|error| output.failed(error))?;
        }
        if number as usize != known.index.events() {
            return Err(changed());
        }
        format.finish().map_err(|error| output.failed(error))
    }

    /// `at` is the position of the bytes that are not JSON.
    fn damaged(&self, at: Position, bytes: u64, error: &serde_json::Error) -> AnnotateError {
        let text = error.to_string();
        let why = text.rsplit_once(" at line ").map_or(&*text, |(why, _)| why).to_owned();
        let at = Position { byte: at.byte + bytes, line: at.line + (error.line() as u64).saturating_sub(1) };
        AnnotateError::Damaged { path: self.path(), at, why }
    }

    fn broken(&self, broken: Broken) -> AnnotateError {
        let path = self.path();
        match broken {
            Broken::Io(error) => AnnotateError::Read { path, error },
            Broken::TooLong(limit) => AnnotateError::TooLarge { path, what: TooLong(limit).to_string() },
            Broken::Short(at) => AnnotateError::Short { path, at },
            Broken::NoTrace(why) => AnnotateError::NotATrace { path, why: why.to_owned() },
            Broken::Wrong(at, why) => AnnotateError::Damaged { path, at, why: why.to_owned() },
            Broken::TooLarge(at) => AnnotateError::LargeEvent { path, at },
        }
    }
}

/// The bytes of a member if they are JSON or cannot be mended, else as they are mended.
fn json(bytes: &[u8]) -> Cow<'_, [u8]> {
    match serde_json::from_slice::<&RawValue>(bytes) {
        Ok(_) => bytes.into(),
        Err(_) => mended(bytes).map_or(bytes.into(), Cow::from),
    }
}

/// The position of an error in the bytes.
fn offset(bytes: &[u8], error: &serde_json::Error) -> u64 {
    let before = bytes.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1)).map(<[u8]>::len);
    before.sum::<usize>() as u64 + (error.column() as u64).saturating_sub(1)
}

/// The value of a member, if the value and the name are JSON.
fn whole_member<'a>(name: &[u8], value: &'a [u8]) -> serde_json::Result<&'a RawValue> {
    serde_json::from_slice::<Cow<'_, str>>(name)?;
    serde_json::from_slice(value)
}
