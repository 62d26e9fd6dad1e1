//! The bytes of a file, unpacked where they are packed, and never more of them than was said.
//!
//! Called once for each time that a file is read. What it opens must be a file that can be read twice; gzip is known by its
//! first bytes, not by its name.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;

use crate::AnnotateError;
use crate::document::TooLong;

const CHUNK: usize = 256 << 10;

/// The unpacked bytes of a file.
pub(super) type Bytes<'a> = Box<dyn BufRead + 'a>;

/// Opens a file. More than `limit` unpacked bytes are an error, which the reader meets as [`TooLong`]. `on_bytes` learns how many
/// bytes of the file each read takes.
pub(super) fn open<'a>(path: &Path, limit: u64, on_bytes: impl FnMut(u64) + 'a) -> Result<Bytes<'a>, AnnotateError> {
    let failed = |error| AnnotateError::Read { path: path.to_owned(), error };
    let mut file = File::open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(AnnotateError::NotAFile { path: path.to_owned() });
    }
    let mut magic = [0; 2];
    let is_packed = match file.read_exact(&mut magic) {
        Ok(()) => magic == [0x1F, 0x8B],
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
        Err(error) => return Err(failed(error)),
    };
    file.rewind().map_err(failed)?;
    let file = BufReader::with_capacity(CHUNK, Observed { inner: file, on_bytes });
    Ok(if is_packed {
        let unpacked = Limited { inner: MultiGzDecoder::new(file), left: limit, limit };
        Box::new(BufReader::with_capacity(CHUNK, unpacked))
    } else {
        Box::new(BufReader::with_capacity(CHUNK, Limited { inner: file, left: limit, limit }))
    })
}

/// Reports what is read.
struct Observed<R, F> {
    inner: R,
    on_bytes: F,
}

impl<R: Read, F: FnMut(u64)> Read for Observed<R, F> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(bytes)?;
        (self.on_bytes)(count as u64);
        Ok(count)
    }
}

struct Limited<R> {
    inner: R,
    left: u64,
    limit: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(bytes)?;
        self.left = match self.left.checked_sub(count as u64) {
            Some(left) => left,
            None => return Err(io::Error::other(TooLong(self.limit))),
        };
        Ok(count)
    }
}

/// Counts memory that is spent on what a file says, so that no file can make us take more than is allowed.
#[derive(Clone, Debug)]
pub(super) struct MemoryBudget(Rc<Cell<usize>>);

impl MemoryBudget {
    pub(super) fn new(bytes: usize) -> MemoryBudget {
        MemoryBudget(Rc::new(Cell::new(bytes)))
    }

    /// Whether there was so much left.
    pub(super) fn spend(&self, bytes: usize) -> bool {
        let left = self.0.get().checked_sub(bytes);
        self.0.set(left.unwrap_or(0));
        left.is_some()
    }
}
