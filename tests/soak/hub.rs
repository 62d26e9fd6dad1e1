//! Where the collectives of all ranks meet: nobody leaves one before all have come. It records when each came, by one clock: the truth.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::clock::machine_ns;
use crate::rank::RANKS;

/// The group of all ranks, and that of a pair.
pub const WORLD: u8 = 0;
pub const PAIR: u8 = 1;

/// The answer to a rank whose meeting is complete.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    GoOn = 1,
    /// This step is the last one.
    Last = 2,
    /// The rank is to be late to the next step.
    BeLate = 3,
}

/// A collective, from the side of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Meeting {
    pub group: u8,
    pub seq: u64,
}

/// A rank has come to a meeting.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub meeting: Meeting,
    /// When it told so, on the machine's clock.
    pub at_ns: i64,
    /// When its stream had ended what was before: the collective began between the two. A busy machine may hold a thread up between them.
    pub from_ns: i64,
    /// How long its device has worked since the arrival before.
    pub worked_ns: i64,
}

const ARRIVAL_BYTES: usize = 33;

impl Arrival {
    pub fn to_bytes(self) -> [u8; ARRIVAL_BYTES] {
        let mut bytes = [self.meeting.group; ARRIVAL_BYTES];
        bytes[1..9].copy_from_slice(&self.meeting.seq.to_le_bytes());
        bytes[9..17].copy_from_slice(&self.at_ns.to_le_bytes());
        bytes[17..25].copy_from_slice(&self.from_ns.to_le_bytes());
        bytes[25..].copy_from_slice(&self.worked_ns.to_le_bytes());
        bytes
    }

    fn read(socket: &mut TcpStream) -> Option<Arrival> {
        let mut bytes = [0; ARRIVAL_BYTES];
        socket.read_exact(&mut bytes).ok()?;
        let long = |at: usize| bytes[at..].first_chunk().map(|bytes| i64::from_le_bytes(*bytes));
        let meeting = Meeting { group: bytes[0], seq: long(1)? as u64 };
        Some(Arrival { meeting, at_ns: long(9)?, from_ns: long(17)?, worked_ns: long(25)? })
    }
}

/// The group in the tables: all ranks, or the pair of a rank.
pub type Group = Option<u32>;

/// When a rank came to a meeting: not before the first time, and not after the second.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    pub from_ns: i64,
    pub at_ns: i64,
}

/// A meeting that is complete.
pub struct Met(BTreeMap<u32, Came>);

impl Met {
    /// By how much a rank came later than each other one, at most. Negative where another one came after it for certain, or where it has no part
    /// in the meeting.
    pub fn margin_ns(&self, rank: u32) -> i64 {
        let Some(its) = self.0.get(&rank) else { return -i64::MAX };
        let others = self.0.iter().filter(|(other, _)| **other != rank);
        its.at_ns - others.map(|(_, came)| came.from_ns).max().unwrap_or(its.at_ns)
    }

    pub fn ranks(&self) -> usize {
        self.0.len()
    }

    /// By how much a rank came later than the others on average, at most.
    pub fn late_ns(&self, rank: u32) -> i64 {
        let Some(its) = self.0.get(&rank) else { return -i64::MAX };
        let later = self.0.iter().filter(|(other, _)| **other != rank).map(|(_, came)| its.at_ns - came.from_ns);
        later.sum::<i64>() / (self.0.len() as i64 - 1).max(1)
    }
}

/// What happened.
#[derive(Default)]
pub struct Truth {
    /// By group and number.
    pub met: HashMap<(Group, u64), Met>,
    /// How long the device of each rank worked, step by step.
    pub worked: Vec<[i64; RANKS as usize]>,
    /// When the last meeting was complete.
    pub last_ns: i64,
}

#[derive(Default)]
struct State {
    truth: Truth,
    ranks: BTreeMap<u32, TcpStream>,
    /// Who waits in a meeting that is not complete.
    waiting: HashMap<(Group, u64), BTreeMap<u32, Came>>,
    /// The next number of each group.
    next: HashMap<Group, u64>,
    worked: [i64; RANKS as usize],
    /// The rank that is to be late.
    late: Option<u32>,
    is_ending: bool,
    last: Option<u64>,
}

/// The hub.
#[derive(Clone)]
pub struct Hub {
    state: Arc<Mutex<State>>,
    pub address: String,
}

impl Hub {
    pub fn start() -> std::io::Result<Hub> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let hub = Hub { state: Arc::default(), address: listener.local_addr()?.to_string() };
        let its = hub.clone();
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let hub = its.clone();
                thread::spawn(move || hub.serve(socket));
            }
        });
        Ok(hub)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the ranks end together, after the next step.
    pub fn end(&self) {
        self.state().is_ending = true;
    }

    /// Makes a rank come late from now on, or none.
    pub fn make_late(&self, rank: Option<u32>) {
        self.state().late = rank;
    }

    /// When the last meeting was complete, and how many there were.
    pub fn last(&self) -> (i64, usize) {
        let state = self.state();
        (state.truth.last_ns, state.truth.met.len())
    }

    /// Looks at the truth.
    pub fn truth<T>(&self, look: impl FnOnce(&Truth) -> T) -> T {
        look(&self.state().truth)
    }

    fn serve(&self, mut socket: TcpStream) -> Option<()> {
        let mut rank = [0; 4];
        socket.set_nodelay(true).ok()?;
        socket.read_exact(&mut rank).ok()?;
        let rank = u32::from_le_bytes(rank);
        {
            let mut state = self.state();
            for group in [None, Some(rank / 2)] {
                let next = state.next.get(&group).copied().unwrap_or(0);
                socket.write_all(&next.to_le_bytes()).ok()?;
            }
            // What a process of this rank did before it died does not count.
            state.waiting.values_mut().for_each(|came| {
                came.remove(&rank);
            });
            state.ranks.insert(rank, socket.try_clone().ok()?);
        }
        while let Some(arrival) = Arrival::read(&mut socket) {
            self.state().come(rank, arrival);
        }
        Some(())
    }
}

impl State {
    fn come(&mut self, rank: u32, Arrival { meeting, at_ns, from_ns, worked_ns }: Arrival) {
        if let Some(worked) = self.worked.get_mut(rank as usize) {
            *worked += worked_ns;
        }
        let group = (meeting.group == PAIR).then_some(rank / 2);
        let key = (group, meeting.seq);
        let came = self.waiting.entry(key).or_default();
        came.insert(rank, Came { from_ns, at_ns });
        if came.len() < if group.is_some() { 2 } else { RANKS as usize } {
            return;
        }
        let came = self.waiting.remove(&key).unwrap_or_default();
        // A step is a pair of numbers of all ranks: its second one ends it.
        let is_end = group.is_none() && meeting.seq % 2 == 1;
        if is_end {
            self.truth.worked.push(std::mem::take(&mut self.worked));
            if self.is_ending && self.last.is_none() {
                self.last = Some(meeting.seq);
            }
        }
        let answer = if self.last == Some(meeting.seq) && is_end { Answer::Last } else { Answer::GoOn };
        self.next.insert(group, meeting.seq + 1);
        for rank in came.keys() {
            let is_late = answer == Answer::GoOn && self.late == Some(*rank);
            let answer = if is_late { Answer::BeLate } else { answer };
            if let Some(socket) = self.ranks.get_mut(rank) {
                let _ = socket.write_all(&[answer as u8]);
            }
        }
        self.truth.met.insert(key, Met(came));
        self.truth.last_ns = machine_ns();
    }
}
