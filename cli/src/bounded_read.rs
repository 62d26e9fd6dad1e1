//! Bounded reads of a file. `binary.rs` reads files only through this module.
//!
//! `object` requests the ranges that the file's headers name, and headers may contain anything. A [`Source`] reads only what is
//! requested, refuses ranges outside the file, and stops when all reads together exceed a limit. It never maps the file into memory: if
//! the file shrinks while it is read, the result is an error and not a signal.

use std::cell::Cell;
use std::io::{Read, Seek};
use std::ops::Range;

use object::read::{ReadCache, ReadRef};

/// A file, and how many more bytes may be read from it.
pub(crate) struct Source<F: Read + Seek> {
    cache: ReadCache<F>,
    limit: u64,
    left: Cell<u64>,
}

impl<F: Read + Seek> Source<F> {
    pub(crate) fn new(file: F, limit: u64) -> Source<F> {
        Source { cache: ReadCache::new(file), limit, left: Cell::new(limit) }
    }

    /// The whole file.
    pub(crate) fn whole(&self) -> Result<Window<'_, F>, ()> {
        Ok(Window { source: self, start: 0, len: (&self.cache).len()? })
    }

    /// Whether a read was refused because the limit was reached.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.left.get() == 0
    }

    /// The bytes that were read, with the memory that keeping them takes.
    pub(crate) fn spent(&self) -> u64 {
        self.limit - self.left.get()
    }

    fn spend(&self, bytes: u64) -> Result<(), ()> {
        let left = self.left.get().saturating_sub(bytes);
        self.left.set(left);
        if left == 0 { Err(()) } else { Ok(()) }
    }
}

/// A part of a [`Source`]: the file, or one member of an archive.
pub(crate) struct Window<'a, F: Read + Seek> {
    source: &'a Source<F>,
    start: u64,
    len: u64,
}

impl<'a, F: Read + Seek> Window<'a, F> {
    /// The part of `len` bytes at `offset`, if it is within this window.
    pub(crate) fn part(self, offset: u64, len: u64) -> Result<Window<'a, F>, ()> {
        let end = offset.checked_add(len).ok_or(())?;
        if end > self.len {
            return Err(());
        }
        Ok(Window { source: self.source, start: self.start + offset, len })
    }
}

impl<F: Read + Seek> Clone for Window<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Read + Seek> Copy for Window<'_, F> {}

impl<'a, F: Read + Seek> ReadRef<'a> for Window<'a, F> {
    fn len(self) -> Result<u64, ()> {
        Ok(self.len)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        let part = self.part(offset, size)?;
        // The bytes that are kept, and the entry in the table of the cache.
        self.source.spend(size.saturating_add(32))?;
        (&self.source.cache).read_bytes_at(part.start, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let part = self.part(range.start, range.end.checked_sub(range.start).ok_or(())?)?;
        let found = (&self.source.cache).read_bytes_at_until(part.start..part.start + part.len, delimiter)?;
        // The bytes that are kept, and the entry in the table of the cache.
        self.source.spend(found.len() as u64 + 64)?;
        Ok(found)
    }
}
