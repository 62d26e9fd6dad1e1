//! Where ranks meet: each brings bytes, and each leaves with those of all. Nobody waits for another for ever.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;

/// How long a rank waits for the others.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// More than any rank brings here: who says more is no rank.
const MOST_BYTES: u64 = 1 << 30;

/// One rank's place in a meeting. Who drops it is gone, and the others are told.
#[derive(Debug)]
pub(super) enum Meeting {
    /// The ranks are threads of one process: they meet in memory.
    Threads(Seat),
    /// Rank 0 of several processes: a socket to each other rank, in their order.
    First(Vec<TcpStream>),
    /// Another rank: a socket to rank 0, and how many ranks there are.
    Other(TcpStream, u32),
}

impl Meeting {
    /// Brings `mine`, and returns what all ranks brought, in their order.
    pub(super) fn exchange(&self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, Error> {
        match self {
            Meeting::Threads(seat) => seat.exchange(mine),
            Meeting::First(others) => from_the_first(others, mine).map_err(lost),
            Meeting::Other(first, ranks) => from_another(first, *ranks, &mine).map_err(lost),
        }
    }
}

fn lost(error: io::Error) -> Error {
    Error::Ranks(format!("another rank is lost: {error}"))
}

fn from_the_first(others: &[TcpStream], mine: Vec<u8>) -> io::Result<Vec<Vec<u8>>> {
    let mut all = vec![mine];
    for other in others {
        all.push(receive(other)?);
    }
    let mut message = Vec::new();
    all.iter().for_each(|bytes| frame(bytes, &mut message));
    others.iter().try_for_each(|mut other| other.write_all(&message))?;
    Ok(all)
}

fn from_another(mut first: &TcpStream, ranks: u32, mine: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let mut message = Vec::new();
    frame(mine, &mut message);
    first.write_all(&message)?;
    (0..ranks).map(|_| receive(first)).collect()
}

/// A length of 8 bytes, then so many.
fn frame(bytes: &[u8], message: &mut Vec<u8>) {
    message.extend((bytes.len() as u64).to_le_bytes());
    message.extend(bytes);
}

fn receive(mut from: &TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it says that it sends {length} bytes")));
    }
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A thread's place in a room.
#[derive(Debug)]
pub(super) struct Seat {
    room: Arc<Room>,
    rank: usize,
}

#[derive(Debug)]
struct Room {
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Debug)]
struct Table {
    /// What each rank has brought, until all have.
    brought: Vec<Option<Vec<u8>>>,
    /// What all brought last; it stays until all have brought again, so nobody misses it.
    all: Vec<Vec<u8>>,
    /// How often all have met.
    meetings: u64,
    gone: Option<usize>,
}

impl Seat {
    /// Places for so many ranks.
    pub(super) fn assign(ranks: u32) -> Vec<Seat> {
        let brought = vec![None; ranks as usize];
        let table = Mutex::new(Table { brought, all: Vec::new(), meetings: 0, gone: None });
        let room = Arc::new(Room { table, changed: Condvar::new() });
        (0..ranks as usize).map(|rank| Seat { room: Arc::clone(&room), rank }).collect()
    }

    fn exchange(&self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, Error> {
        let mut table = self.room.table();
        let meeting = table.meetings;
        table.brought[self.rank] = Some(mine);
        if table.brought.iter().all(Option::is_some) {
            table.all = table.brought.iter_mut().filter_map(Option::take).collect();
            table.meetings += 1;
            self.room.changed.notify_all();
            return Ok(table.all.clone());
        }
        let deadline = Instant::now() + PATIENCE;
        while table.meetings == meeting {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(gone) = table.gone {
                return Err(Error::Ranks(format!("another rank is lost: rank {gone} is gone")));
            }
            if left.is_zero() {
                return Err(Error::Ranks(format!("another rank is lost: it did not come for {PATIENCE:?}")));
            }
            table = self.room.changed.wait_timeout(table, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(table.all.clone())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.room.table().gone.get_or_insert(self.rank);
        self.room.changed.notify_all();
    }
}

impl Room {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
