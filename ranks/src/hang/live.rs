//! The processes of ranks on this machine: whether they run, and what they say now, by their control sockets. A rank
//! whose disk is full or stalls still answers there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::thread;
use std::time::{Duration, SystemTime};

use warpline_judge::progress::Progress;
use warpline_trace::control::ask::{Fate, ask, fate, socket};
use warpline_trace::control::protocol::ControlRequest;
use warpline_trace::control::socket::SocketOwner;

/// How long a process may take to answer.
const WITHIN: Duration = Duration::from_secs(3);

/// The most processes that are asked at one time.
const AT_ONCE: usize = 64;

/// The facts about the process of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It has ended.
    Gone,
    /// It runs.
    Runs,
    /// It runs, and has answered: its answer replaces its file.
    Answered,
}

/// Looks at the processes of this machine, and takes their answers in place of their files.
pub fn poll(files: &mut BTreeMap<u32, Progress>) -> BTreeMap<u32, Life> {
    let Ok(boot_id) = std::fs::read_to_string("/proc/sys/kernel/random/boot_id") else { return BTreeMap::new() };
    let boot_id = boot_id.trim();
    let here = files.iter().filter(|(_, file)| !file.ended && !boot_id.is_empty() && file.boot_id == boot_id);
    let owners: Vec<(u32, SocketOwner)> = here.filter_map(|(rank, file)| Some((*rank, owner(file)?))).collect();
    let mut lives = BTreeMap::new();
    for some in owners.chunks(AT_ONCE) {
        let asked: Vec<_> = some.iter().map(|(rank, owner)| (*rank, one(*owner))).collect();
        for (rank, (life, answer)) in asked {
            lives.extend(life.map(|life| (rank, life)));
            let Some(answer) = answer.and_then(|answer| answer.join().ok().flatten()) else { continue };
            // A socket proves nothing about a rank: its answer must match the file.
            if let Some(file) = files.get_mut(&rank).filter(|file| (file.rank, file.pid) == (answer.rank, answer.pid)) {
                *file = Progress { changed: Some(SystemTime::now()), ..answer };
                lives.insert(rank, Life::Answered);
            }
        }
    }
    lives
}

fn owner(file: &Progress) -> Option<SocketOwner> {
    SocketOwner::of_name(OsStr::new(&format!("{}.sock", file.process.as_deref()?)))
}

type Answer = thread::JoinHandle<Option<Progress>>;

fn one(owner: SocketOwner) -> (Option<Life>, Option<Answer>) {
    match fate(&owner) {
        Fate::Ended => (Some(Life::Gone), None),
        Fate::Unknown => (None, None),
        Fate::Runs => {
            let answer = socket(&owner).map(|socket| {
                thread::spawn(move || {
                    let answer = ask(&socket, &ControlRequest::Progress, WITHIN).ok()?;
                    serde_json::from_value(answer).ok()
                })
            });
            (Some(Life::Runs), answer)
        }
    }
}
