//! Reads the catalog back from a trace that a session wrote, for users who have the trace and not the program.
//!
//! The command `catalog` calls it. `perfetto` and `chrome` read the two formats, also compressed with gzip or zstd, and
//! `facts` checks what they find. A trace can be gigabytes in size, truncated, or hostile: it is read once from the
//! front, the limits of a binary's catalog ([`record`](warpline_core::catalog::record)) apply, all texts together are
//! bounded by [`MAX_TEXTS`], and nothing here panics.

mod chrome;
mod facts;
mod perfetto;

use std::collections::BTreeSet;
use std::io::{self, BufRead, Read};
use std::path::Path;

use warpline_core::catalog::record::MAX_RANGES;
use warpline_core::catalog::{NamespaceRecord, RangeRecord, Records};
use warpline_trace::files;

use crate::inputs;
use crate::trace;

/// The maximum memory of the catalog of one trace, in bytes.
pub(crate) const MAX_TEXTS: usize = 64 << 20;

/// Why no catalog could be read from a trace.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CatalogError {
    /// The operating system or the decompression reported an error.
    #[error("{0}; name a binary, or a trace that a session wrote")]
    Io(#[from] io::Error),
    /// The file begins like a trace and is not one.
    #[error("neither a binary nor a trace: {0}; name a binary, or a trace that a session wrote")]
    NotATrace(String),
    /// A Perfetto trace without a catalog.
    #[error(
        "no catalog in the trace; sessions of warpline 0.1 or newer write one unless their program has no ranges; name the program's binary"
    )]
    NotInPerfetto,
    /// A Chrome trace without a catalog.
    #[error(
        "no catalog in the trace; only a finished session writes it into a Chrome trace; name the program's binary"
    )]
    NotInChrome,
    /// No session wrote the file.
    #[error("no catalog: the file is {0}; name a binary, or a trace that a session wrote")]
    Other(&'static str),
    /// A fact is malformed, or a limit is exceeded.
    #[error("the catalog in the trace is damaged: {0}; name the program's binary")]
    Damaged(&'static str),
}

/// Whether the file begins like a trace, and so not like a binary.
pub(crate) fn is_trace(path: &Path) -> bool {
    // The reader of binaries says what a pipe is.
    let Ok(Some(file)) = files::regular(path) else { return false };
    let mut begin = Vec::new();
    let read = file.take(64).read_to_end(&mut begin);
    read.is_ok() && (inputs::is_compressed(&begin) || trace::is_perfetto(&begin) || trace::is_json(&begin))
}

/// Reads the catalog of the trace at `path`. Also returns how many ranges and namespaces the session had that are not
/// in the trace.
///
/// # Errors
/// The reason, with the remedy.
pub(crate) fn open(path: &Path) -> Result<(Records, u64), CatalogError> {
    let bar = inputs::bar_of(path);
    let found = inputs::open(path, &bar).map_err(Into::into).and_then(read);
    bar.finish_and_clear();
    found.map_err(|error| match error {
        CatalogError::NotInPerfetto | CatalogError::NotInChrome => {
            trace::other(path).map_or(error, CatalogError::Other)
        }
        error => error,
    })
}

/// Puts the catalogs of two traces together. Equal entries are one.
///
/// # Errors
/// Together they exceed a limit of one.
pub(crate) fn merged(one: Records, other: Records) -> Result<Records, CatalogError> {
    let (mut found, unreadable) = (Found::default(), one.unreadable + other.unreadable);
    one.ranges.into_iter().chain(other.ranges).try_for_each(|range| found.range(range))?;
    one.namespaces.into_iter().chain(other.namespaces).try_for_each(|space| found.namespace(space))?;
    let (ranges, namespaces) = (found.ranges.into_iter().collect(), found.namespaces.into_iter().collect());
    Ok(Records { ranges, namespaces, unreadable })
}

fn read(mut trace: impl BufRead) -> Result<(Records, u64), CatalogError> {
    let mut found = Found::default();
    let is_json = trace::is_json(trace.fill_buf()?);
    if is_json {
        chrome::read(trace, &mut found)?;
    } else {
        perfetto::read(trace, &mut found)?;
    }
    if found.ranges.is_empty() && found.namespaces.is_empty() {
        return Err(if is_json { CatalogError::NotInChrome } else { CatalogError::NotInPerfetto });
    }
    let held = (found.ranges.len() + found.namespaces.len()) as u64;
    let missing = found.declared.saturating_sub(held);
    let records = Records {
        ranges: found.ranges.into_iter().collect(),
        namespaces: found.namespaces.into_iter().collect(),
        unreadable: 0,
    };
    Ok((records, missing))
}

/// The catalog that was found in a trace. Pieces and processes repeat entries, and equal entries are one.
#[derive(Default)]
struct Found {
    ranges: BTreeSet<RangeRecord>,
    namespaces: BTreeSet<NamespaceRecord>,
    /// The number of ranges and namespaces in the largest catalog of the trace.
    declared: u64,
    /// The memory of the entries.
    memory: usize,
}

impl Found {
    fn range(&mut self, range: RangeRecord) -> Result<(), CatalogError> {
        let texts = [&range.name, &range.version, &range.module, &range.file, &range.namespace, &range.description];
        let lists = range.fields.iter().chain(&range.undescribed).map(|name| name.len() + size_of::<String>());
        let memory = texts.map(String::len).iter().sum::<usize>() + lists.sum::<usize>() + size_of::<RangeRecord>();
        if self.ranges.insert(range) {
            self.spend(memory)?;
        }
        if self.ranges.len() > MAX_RANGES { Err(TOO_MANY) } else { Ok(()) }
    }

    fn namespace(&mut self, space: NamespaceRecord) -> Result<(), CatalogError> {
        let texts = [&space.name, &space.version, &space.module, &space.file, &space.about, &space.package];
        let memory = texts.map(String::len).iter().sum::<usize>() + size_of::<NamespaceRecord>();
        if self.namespaces.insert(space) {
            self.spend(memory)?;
        }
        if self.namespaces.len() > MAX_RANGES { Err(TOO_MANY) } else { Ok(()) }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), CatalogError> {
        self.memory = self.memory.saturating_add(bytes);
        if self.memory > MAX_TEXTS { Err(CatalogError::Damaged("more than 64 MiB of texts")) } else { Ok(()) }
    }
}

const TOO_MANY: CatalogError = CatalogError::Damaged("more than 65,536 ranges or namespaces");

#[cfg(test)]
mod tests;
