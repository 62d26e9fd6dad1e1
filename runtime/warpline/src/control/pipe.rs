//! A bounded, non-blocking byte buffer from the collector to the connection of a recording client.
//!
//! A sink writes to it. When the buffer is full, the sink keeps the rest or counts it as lost. The server's thread reads it.

use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::waker::Waker;
use warpline_core::lock::lock;

/// Capacity of the buffer in bytes.
const MOST: usize = 2 << 20;

pub(super) struct Pipe {
    bytes: Mutex<Vec<u8>>,
    /// Whether the sink is finishing. Then the limit does not apply, because the sink holds a bounded amount of data.
    is_ending: AtomicBool,
    waker: Arc<Waker>,
}

impl Pipe {
    pub(super) fn new(waker: Arc<Waker>) -> Arc<Pipe> {
        Arc::new(Pipe { bytes: Mutex::default(), is_ending: AtomicBool::new(false), waker })
    }

    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.bytes).is_empty()
    }

    /// Removes and returns all buffered bytes.
    pub(super) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *lock(&self.bytes))
    }
}

/// The writing end of a [`Pipe`], for a sink.
pub(super) struct Writer(pub(super) Arc<Pipe>);

impl Write for Writer {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let Writer(pipe) = self;
        let mut bytes = lock(&pipe.bytes);
        let room = if pipe.is_ending.load(Ordering::Acquire) { from.len() } else { MOST.saturating_sub(bytes.len()) };
        let take = room.min(from.len());
        if take == 0 && !from.is_empty() {
            return Err(io::Error::new(ErrorKind::WouldBlock, "the reader is slower than the program"));
        }
        let was_empty = bytes.is_empty();
        bytes.extend_from_slice(&from[..take]);
        drop(bytes);
        if was_empty {
            pipe.waker.wake();
        }
        Ok(take)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_reads_is_bounded_and_the_end_still_has_room() {
        let (waker, _woken) = Waker::pair().expect("a pair of sockets");
        let pipe = Pipe::new(waker);
        let mut writer = Writer(Arc::clone(&pipe));
        let (piece, mut taken) = ([7; 10_000], 0);
        let refused = loop {
            match writer.write(&piece) {
                Ok(count) => taken += count,
                Err(error) => break error,
            }
        };
        assert_eq!((refused.kind(), taken), (ErrorKind::WouldBlock, MOST));
        pipe.end();
        assert_eq!(writer.write(&piece).expect("room"), piece.len());
        assert_eq!(pipe.take().len(), MOST + piece.len());
        assert!(pipe.is_empty());
    }
}
