//! What collectives make of the ranks' elements, from their definitions. It runs on in-process streams.

use std::sync::{Mutex, OnceLock, PoisonError};

use super::meeting::Meeting;
use crate::error::Error;

/// A rank's end.
#[derive(Debug)]
pub(super) struct Ranks {
    rank: u32,
    /// One collective at a time.
    meeting: Mutex<Meeting>,
    /// The first failure. After it nothing is moved any more, as nobody knows where the other ranks are.
    failure: OnceLock<Error>,
}

impl Ranks {
    pub(super) fn new(meeting: Meeting, rank: u32) -> Ranks {
        Ranks { rank, meeting: Mutex::new(meeting), failure: OnceLock::new() }
    }

    /// A closure on a stream can return no error: it is kept for who asks.
    pub(super) fn failure(&self) -> Result<(), Error> {
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// `elements` become the sum over the ranks: added up in the order of their numbers, so that all get the same.
    pub(super) fn sum(&self, elements: &mut [f32]) {
        let Some(all) = self.exchange(bytes_of(elements)) else { return };
        elements.fill(0.0);
        for of_rank in &all {
            for (sum, element) in elements.iter_mut().zip(elements_of(of_rank)) {
                *sum += element;
            }
        }
    }

    /// `elements` become the root's.
    pub(super) fn broadcast(&self, elements: &mut [f32], root: u32) {
        let mine = if self.rank == root { bytes_of(elements) } else { Vec::new() };
        let Some(all) = self.exchange(mine) else { return };
        for (element, of_root) in elements.iter_mut().zip(elements_of(&all[root as usize])) {
            *element = of_root;
        }
    }

    fn exchange(&self, mine: Vec<u8>) -> Option<Vec<Vec<u8>>> {
        if self.failure.get().is_some() {
            return None;
        }
        let exchanged = self.meeting.lock().unwrap_or_else(PoisonError::into_inner).exchange(mine);
        exchanged.map_err(|error| _ = self.failure.set(error)).ok()
    }
}

fn bytes_of(elements: &[f32]) -> Vec<u8> {
    elements.iter().flat_map(|element| element.to_le_bytes()).collect()
}

fn elements_of(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}
