//! How ranks find each other: threads of one process share a room; of several processes, rank 0 listens on a socket, and the
//! others know its address from the launcher, or from a file that rank 0 writes.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use super::meeting::{Meeting, PATIENCE, Seat};
use crate::error::Error;

/// One rank's way to the others.
#[derive(Debug)]
pub struct Rendezvous {
    rank: u32,
    ranks: u32,
    /// This rank's number on its host, from 0.
    local_rank: u32,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Room(Seat),
    Address(String),
    File(PathBuf),
}

/// What launchers call rank, number of ranks, and rank on this host.
const LAUNCHERS: [[&str; 3]; 3] = [
    ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
    ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
];

/// Said by a rank to rank 0, and back: what answers otherwise is another program.
const HELLO: [u8; 8] = *b"tensor01";

/// Between two looks for another rank.
const PAUSE: Duration = Duration::from_millis(20);

impl Rendezvous {
    /// For ranks that are threads of this process, one for each.
    pub fn threads(ranks: u32) -> Vec<Rendezvous> {
        let place = |(rank, seat)| Rendezvous { rank, ranks, local_rank: rank, place: Place::Room(seat) };
        (0..).zip(Seat::assign(ranks)).map(place).collect()
    }

    /// For the rank that a launcher says this process is: `RANK`, `WORLD_SIZE` and `LOCAL_RANK`, or those that Open MPI and
    /// Slurm set. None if no launcher says anything. Rank 0 listens on `MASTER_ADDR` (`127.0.0.1`) and `MASTER_PORT` (29500).
    ///
    /// # Errors
    /// A variable is missing or no number, in words.
    pub fn from_env() -> Result<Option<Rendezvous>, String> {
        let Some([rank_name, ranks_name, local_name]) = LAUNCHERS.into_iter().find(|[_, ranks, _]| is_set(ranks))
        else {
            return Ok(None);
        };
        let (rank, ranks) = (number(rank_name)?, number(ranks_name)?);
        if rank >= ranks {
            return Err(format!("{rank_name} is {rank} and {ranks_name} is {ranks}: ranks count from 0"));
        }
        let local_rank = if is_set(local_name) { number(local_name)? } else { rank };
        let host = env::var("MASTER_ADDR").unwrap_or_else(|_| "127.0.0.1".to_owned());
        let port = if is_set("MASTER_PORT") { number("MASTER_PORT")? } else { 29_500 };
        Ok(Some(Rendezvous { rank, ranks, local_rank, place: Place::Address(format!("{host}:{port}")) }))
    }

    /// The same ranks, of processes of one host, meet by a file: rank 0 writes its address there.
    #[must_use]
    pub fn by_file(mut self, path: impl Into<PathBuf>) -> Rendezvous {
        self.place = Place::File(path.into());
        self
    }

    /// The same ranks meet at this address, as in `127.0.0.1:29500`: rank 0 listens there.
    #[must_use]
    pub fn by_address(mut self, address: impl Into<String>) -> Rendezvous {
        self.place = Place::Address(address.into());
        self
    }

    /// This rank's number, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// This rank's number on its host, from 0: that of its GPU, usually.
    pub fn local_rank(&self) -> u32 {
        self.local_rank
    }

    /// Waits until all ranks have come.
    pub(super) fn meet(self) -> Result<Meeting, Error> {
        let Rendezvous { rank, ranks, place, .. } = self;
        let found = match place {
            Place::Room(seat) => return Ok(Meeting::Threads(seat)),
            _ if ranks == 1 => return Ok(Meeting::First(Vec::new())),
            Place::Address(address) if rank == 0 => TcpListener::bind(&address)
                .and_then(|listener| gather(&listener, ranks))
                .map_err(|error| (address, error)),
            Place::Address(address) => {
                join(rank, ranks, || Ok(address.clone())).map_err(|error| (address.clone(), error))
            }
            Place::File(path) if rank == 0 => first_by_file(&path, ranks).map_err(|error| (said(&path), error)),
            Place::File(path) => join(rank, ranks, || fs::read_to_string(&path)).map_err(|error| (said(&path), error)),
        };
        found.map_err(|(place, error)| {
            Error::Ranks(format!(
                "rank {rank} of {ranks} does not find the others by {place}: {error}; start all, or name another place"
            ))
        })
    }
}

fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn number(name: &str) -> Result<u32, String> {
    let value = env::var(name).map_err(|_| format!("{name} is not set; the launcher sets it beside the others"))?;
    value.trim().parse().map_err(|_| format!("{name} is `{value}`, which is no whole number"))
}

fn said(path: &Path) -> String {
    path.display().to_string()
}

fn first_by_file(path: &Path, ranks: u32) -> io::Result<Meeting> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // Written aside and moved: nobody reads half of it. One that an earlier run left is replaced.
    let aside = path.with_extension(format!("{}.new", std::process::id()));
    fs::write(&aside, listener.local_addr()?.to_string())?;
    fs::rename(&aside, path)?;
    let meeting = gather(&listener, ranks);
    let _ = fs::remove_file(path);
    meeting
}

/// As rank 0: waits for all others.
fn gather(listener: &TcpListener, ranks: u32) -> io::Result<Meeting> {
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + PATIENCE;
    let mut others: Vec<Option<TcpStream>> = (1..ranks).map(|_| None).collect();
    while others.iter().any(Option::is_none) {
        match listener.accept() {
            // Who does not say hello as a rank of this group is none, and goes.
            Ok((socket, _)) => {
                if let Ok(rank) = welcome(&socket, ranks)
                    && let Some(place) = others.get_mut((rank as usize).wrapping_sub(1))
                {
                    *place = Some(socket);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if Instant::now() > deadline {
                    let missing = others.iter().filter(|other| other.is_none()).count();
                    return Err(too_late(&format!("{missing} of {ranks} ranks did not come")));
                }
                thread::sleep(PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Meeting::First(others.into_iter().flatten().collect()))
}

/// As another rank: looks for rank 0 until it is there.
fn join(rank: u32, ranks: u32, address: impl Fn() -> io::Result<String>) -> io::Result<Meeting> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let socket = address().and_then(TcpStream::connect).and_then(|socket| introduce(socket, rank, ranks));
        match socket {
            Ok(socket) => return Ok(Meeting::Other(socket, ranks)),
            Err(error) if Instant::now() > deadline => return Err(too_late(&format!("rank 0 is not there ({error})"))),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

fn too_late(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} within {PATIENCE:?}"))
}

/// A hello is short, and comes at once.
fn prepare(socket: &TcpStream, patience: Duration) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(patience))?;
    socket.set_write_timeout(Some(patience))
}

fn welcome(mut socket: &TcpStream, ranks: u32) -> io::Result<u32> {
    prepare(socket, Duration::from_secs(2))?;
    let (mut hello, mut rank) = ([0; 12], [0; 4]);
    socket.read_exact(&mut hello)?;
    socket.read_exact(&mut rank)?;
    if hello != greeting(ranks) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no rank of this group"));
    }
    socket.write_all(&greeting(ranks))?;
    prepare(socket, PATIENCE)?;
    Ok(u32::from_le_bytes(rank))
}

fn introduce(mut socket: TcpStream, rank: u32, ranks: u32) -> io::Result<TcpStream> {
    prepare(&socket, Duration::from_secs(2))?;
    let mut answer = [0; 12];
    socket.write_all(&greeting(ranks))?;
    socket.write_all(&rank.to_le_bytes())?;
    socket.read_exact(&mut answer)?;
    if answer != greeting(ranks) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "what answers there is another program, or another group",
        ));
    }
    prepare(&socket, PATIENCE)?;
    Ok(socket)
}

fn greeting(ranks: u32) -> [u8; 12] {
    let mut greeting = [0; 12];
    greeting[..8].copy_from_slice(&HELLO);
    greeting[8..].copy_from_slice(&ranks.to_le_bytes());
    greeting
}
