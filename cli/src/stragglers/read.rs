//! Collects the collectives of a Perfetto trace, as the one reader of traces finds them.
//!
//! A trace can be gigabytes in size, truncated, or hostile. Memory is bounded by the limits of the reader,
//! [`MAX_TEXTS`] and [`MAX_CALLS`]. Each trace starts with its clocks, so concatenated traces are read as separate
//! traces.

use std::collections::HashMap;
use std::io::{self, Read};

use warpline_trace::read::{Fact, Fault, Message, Name, Names, Rows, Slice, Visitor};
use warpline_trace::read::{Skipped as Unread, read_perfetto};

use super::{Call, Calls, Session};

/// The most bytes of names that are kept for all traces together.
pub const MAX_TEXTS: usize = 256 << 20;

/// The most collectives that are kept for all traces together.
pub const MAX_CALLS: usize = 10_000_000;

/// The approximate memory overhead of a name, in bytes.
pub(super) const ENTRY: usize = 64;

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The operating system reported an error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not a Perfetto trace.
    #[error("not a Perfetto trace; record one with `WARPLINE=perfetto=FILE`")]
    NotATrace,
    /// The clocks at the beginning of the trace are missing.
    #[error("a trace without the clocks that warpline writes at its beginning; name the whole file of a session")]
    NoClocks,
    /// The names exceed [`MAX_TEXTS`], or the limit of the reader.
    #[error("the names in the trace have more than {} MiB; is the file damaged?", MAX_TEXTS >> 20)]
    TooManyNames,
    /// The collectives exceed [`MAX_CALLS`].
    #[error("more than {MAX_CALLS} collectives; record less with `WARPLINE=filter=…`")]
    TooManyCalls,
}

impl From<Fault> for TraceError {
    fn from(fault: Fault) -> TraceError {
        match fault {
            Fault::Io(error) => error.into(),
            Fault::TooManyNames => TraceError::TooManyNames,
            Fault::NotATrace(_) | Fault::Refused(_) => TraceError::NotATrace,
        }
    }
}

/// What was left out of one trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// What the reader left out.
    pub unread: Unread,
    /// Collectives whose marks give no group.
    pub ungrouped: u64,
    /// Collectives that give a group, but not their rank, sequence number and a known kind.
    pub calls: u64,
    /// Zones that the sessions dropped before they had begun, as they report at their ends. Such a collective takes no sequence number.
    pub dropped: u64,
}

/// Reads the whole trace into `calls`. A truncated last packet is accepted, because a killed process leaves one.
pub(super) fn read(trace: impl Read, calls: &mut Calls) -> Result<Skipped, TraceError> {
    let mut reader = Reader {
        calls,
        session: None,
        groups: HashMap::new(),
        uncertain_ns: 0,
        skipped: Skipped::default(),
        error: None,
    };
    let unread = read_perfetto(trace, &mut Names::default(), &mut reader)?;
    reader.error.map_or(Ok(Skipped { unread, ..reader.skipped }), Err)
}

/// The state of one trace while it is read.
struct Reader<'a> {
    calls: &'a mut Calls,
    /// The index of the session, once its clocks are known.
    session: Option<u32>,
    /// The groups by communicator, name and ranks: the list of ranks is parsed once.
    groups: HashMap<(Option<u64>, Name, Name), u32>,
    /// The largest error of the session's times, as far as its account has been read.
    uncertain_ns: i64,
    skipped: Skipped,
    /// Why nothing more is taken.
    error: Option<TraceError>,
}

impl Visitor for Reader<'_> {
    fn slice(&mut self, slice: &Slice<'_>, _: &Rows, names: &mut Names) {
        if slice.args.collective.is_some() && self.error.is_none() {
            self.error = self.collective(slice, names).err();
        }
    }

    fn fact(&mut self, fact: Fact) {
        if let Fact::Clocks { boot_ns, wall_ns } = fact {
            // This is the beginning of another trace.
            self.uncertain_ns = 0;
            match self.calls.session(Session { boot_ns, wall_ns, ..Session::default() }) {
                Ok(session) => self.session = Some(session),
                Err(error) => drop(self.error.get_or_insert(error)),
            }
            return;
        }
        let Some(session) = self.session.and_then(|id| self.calls.sessions.get_mut(id as usize)) else { return };
        match fact {
            Fact::Process(id) => session.process = Some(id),
            Fact::Attribute(name, text) => match &*name {
                "warpline.boot_id" if (1..ENTRY).contains(&text.len()) => session.boot_id = Some(text),
                "warpline.host" if text.len() < ENTRY => session.host = text,
                _ => {}
            },
            Fact::Number(name, number) if name == "dropped" => {
                self.skipped.dropped = self.skipped.dropped.saturating_add(number.max(0) as u64);
            }
            // These had begun, and taken their numbers.
            Fact::Number(name, number) if matches!(&*name, "dropped.unfinished" | "dropped.stream_failed") => {
                self.skipped.dropped = self.skipped.dropped.saturating_sub(number.max(0) as u64);
            }
            // A session on in-process streams has no device clock: its times are those of the host clock.
            Fact::Number(name, number) if name.ends_with(".clock_uncertainty_ns") => {
                self.uncertain_ns = self.uncertain_ns.max(number);
            }
            Fact::Ended(_) => session.uncertain_ns = Some(std::mem::take(&mut self.uncertain_ns)),
            _ => {}
        }
    }

    fn has_enough(&self) -> bool {
        self.error.is_some()
    }
}

impl Reader<'_> {
    fn collective(&mut self, slice: &Slice<'_>, names: &Names) -> Result<(), TraceError> {
        let session = self.session.ok_or(TraceError::NoClocks)?;
        let args = slice.args;
        let Some(group) = args.group else {
            self.skipped.ungrouped += 1;
            return Ok(());
        };
        let rank = args.rank.and_then(|rank| u32::try_from(rank).ok());
        let (Some(seq), Some(ranks), Some(rank), Ok(kind)) =
            (args.seq, args.ranks, rank, Message::kind_of(args, names))
        else {
            self.skipped.calls += 1;
            return Ok(());
        };
        let key = (args.comm_id, group, ranks);
        let group = match self.groups.get(&key) {
            Some(id) => *id,
            None => {
                let id = self.calls.group(names.text(group), names.text(ranks), args.comm_id)?;
                self.groups.insert(key, id);
                id
            }
        };
        let range = self.calls.range(names.text(slice.name))?;
        self.calls.add(Call {
            group,
            seq,
            rank,
            kind,
            session,
            range,
            begin_ns: slice.span.begin_ns,
            length_ns: slice.span.duration_ns(),
            uncertain_ns: args.end_early_by_ns.unwrap_or(0),
            bytes: Message::bytes_of(args, names).unwrap_or(0),
            failed: args.has_failed,
            is_replayed: args.has_correlation,
            turn: 0,
            is_unmatched: false,
        })
    }
}
