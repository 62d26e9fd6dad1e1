//! The progress file of a rank, as docs/ranks-tables.md states it: the contract between the rank, which writes it each second,
//! and the reader of a job that hangs. The writer's test reads its file with this type and writes it again,
//! `warpline-ranks generate` writes it with this type, and `warpline-ranks hang` reads it. A file may lack keys that
//! have a default here.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// The most ranks that one group may have.
pub const MOST_MEMBERS: usize = 1 << 20;

/// The last progress that a rank wrote.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct Progress {
    /// A hash of the text.
    #[serde(default)]
    pub check: Option<String>,
    /// The form of the file.
    #[serde(default)]
    pub version: u32,
    /// The rank.
    pub rank: u32,
    /// Its host.
    #[serde(default)]
    pub host: String,
    /// Its process.
    #[serde(default)]
    pub pid: i64,
    /// The boot of its host: ranks with one share a clock.
    #[serde(default)]
    pub boot_id: String,
    /// Its process, as the name of its socket says it.
    #[serde(default)]
    pub process: Option<String>,
    /// The file of its flight recorder.
    #[serde(default)]
    pub flight: Option<String>,
    /// When it wrote, on its clock.
    #[serde(default)]
    pub updated_boottime_ns: i64,
    /// When it wrote.
    #[serde(default)]
    pub updated_realtime_ns: i64,
    /// Its session is over.
    #[serde(default)]
    pub ended: bool,
    /// The step that it is in.
    #[serde(default)]
    pub step: Option<i64>,
    /// Its groups.
    #[serde(default)]
    pub comms: Vec<Group>,
    /// Its oldest open zone.
    #[serde(default)]
    pub open: Option<Open>,
    /// Something had no room.
    #[serde(default)]
    pub truncated: bool,
    /// When the file was changed, by the clock of its file system: no key of the file.
    #[serde(skip)]
    pub changed: Option<SystemTime>,
}

/// How far a rank is in a group.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct Group {
    /// The group.
    pub comm: String,
    /// How many ranks it has.
    #[serde(default)]
    pub size: u32,
    /// Its ranks, as a list such as `0-7,16`.
    #[serde(default)]
    pub members: Option<String>,
    /// The last number that the host launched.
    #[serde(default)]
    pub entered: Option<i64>,
    /// The last number that the device is known to have begun, from its end.
    #[serde(default)]
    pub started: Option<i64>,
    /// The last number that the device ended.
    #[serde(default)]
    pub completed: Option<i64>,
    /// The first number that its signatures cover; none for a group that has only called transfers between two ranks.
    #[serde(default)]
    pub first: Option<i64>,
    /// The signature of all calls from the first one on.
    #[serde(default)]
    pub signature: String,
    /// The last calls, without transfers.
    #[serde(default)]
    pub recent: Vec<Call>,
}

/// A call: number, operation, type, items, root, and the signature of all calls up to it.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Call(
    pub i64,
    pub String,
    #[serde(default)] pub Option<String>,
    #[serde(default)] pub Option<i64>,
    #[serde(default)] pub Option<i64>,
    #[serde(default)] pub String,
);

/// An open zone.
#[derive(Debug, Clone, Default, Deserialize, Serialize, PartialEq)]
pub struct Open {
    /// The range.
    pub name: String,
    /// The source file.
    #[serde(default)]
    pub file: Option<String>,
    /// Its line.
    #[serde(default)]
    pub line: Option<u32>,
    /// The thread.
    #[serde(default)]
    pub thread: String,
    /// Since when, on the host's clock.
    #[serde(default)]
    pub since_ns: i64,
    /// Its fields.
    #[serde(default)]
    pub fields: BTreeMap<String, String>,
    /// The thread has left it, and the device has not.
    #[serde(default)]
    pub launched: bool,
    /// The group, of a collective or a transfer.
    #[serde(default)]
    pub comm: Option<String>,
    /// Its number.
    #[serde(default)]
    pub seq: Option<i64>,
    /// For a transfer between two ranks: the operation.
    #[serde(default)]
    pub kind: Option<String>,
    /// The rank at its other end.
    #[serde(default)]
    pub peer: Option<u32>,
}

impl Call {
    /// The call in words.
    pub fn sentence(&self) -> String {
        let kind = self.2.as_deref().unwrap_or("?");
        let items = self.3.map_or("?".to_owned(), |items| items.to_string());
        let root = self.4.map_or(String::new(), |root| format!(", root {root}"));
        format!("{} of {items} {kind}{root}", self.1)
    }
}

impl Open {
    /// Its range and its place in the source.
    pub fn place(&self) -> String {
        let place = self.file.as_deref().filter(|file| !file.is_empty());
        let place = place.map_or(String::new(), |file| format!(" at {file}:{}", self.line.unwrap_or(0)));
        format!("`{}`{place}", self.name)
    }

    /// The same, with its fields and its thread.
    pub fn sentence(&self) -> String {
        let fields: Vec<String> = self.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let fields = if fields.is_empty() { String::new() } else { format!(" ({})", fields.join(", ")) };
        let thread = if self.thread.is_empty() { String::new() } else { format!(", thread `{}`", self.thread) };
        format!("{}{fields}{thread}", self.place())
    }

    /// Whether it is this collective.
    pub fn is_in(&self, comm: &str, seq: i64) -> bool {
        self.comm.as_deref() == Some(comm) && self.seq == Some(seq)
    }
}

impl Group {
    /// Its ranks, of a list such as `0-7,16`; none where the list is missing, damaged or longer than any job's.
    pub fn ranks(&self) -> Vec<u32> {
        let mut ranks: Vec<u32> = self.ranges().into_iter().flatten().flat_map(|(first, last)| first..=last).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// The first and the last ranks of the parts of its list.
    pub fn ranges(&self) -> Option<Vec<(u32, u32)>> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (first <= last).then_some((first, last))
        };
        let parts = self.members.as_deref()?.split(',').filter(|part| !part.is_empty());
        let ranges = parts.map(range).collect::<Option<Vec<(u32, u32)>>>()?;
        let count: usize = ranges.iter().map(|(first, last)| (last - first) as usize + 1).sum();
        (!ranges.is_empty() && count <= MOST_MEMBERS).then_some(ranges)
    }

    /// Whether it is known to have called transfers between two ranks: they take numbers, and are not among the calls.
    pub fn has_transfers(&self) -> bool {
        let is_apart = |two: &[Call]| two[1].0 != two[0].0 + 1;
        let after = self.recent.last().is_some_and(|last| self.entered > Some(last.0));
        self.entered.is_some() && (self.first.is_none() || after || self.recent.windows(2).any(is_apart))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_ranks_is_read_and_bounded() {
        let group = |members: &str| Group { members: Some(members.to_owned()), ..Group::default() };
        assert_eq!(group("0-3,16, 2-4").ranks(), [0, 1, 2, 3, 4, 16]);
        assert_eq!(group("0-1048575").ranks().len(), 1 << 20);
        for wrong in ["", "a", "3-1", "0-", "-1", "0-1048576", "0-1048575,7", "0-4294967295,0-4294967295"] {
            assert!(group(wrong).ranks().is_empty(), "{wrong}");
        }
    }

    #[test]
    fn a_call_says_what_is_known_of_it() {
        let call = |dtype: Option<&str>, count, root| {
            Call(7, "broadcast".to_owned(), dtype.map(str::to_owned), count, root, String::new()).sentence()
        };
        assert_eq!(call(Some("f32"), Some(1_000), Some(3)), "broadcast of 1000 f32, root 3");
        assert_eq!(call(None, None, None), "broadcast of ? ?");
    }

    #[test]
    fn numbers_that_are_no_calls_are_transfers() {
        let group = |first, entered, numbers: &[i64]| {
            let recent = numbers.iter().map(|seq| Call(*seq, String::new(), None, None, None, String::new())).collect();
            Group { first, entered: Some(entered), recent, ..Group::default() }
        };
        assert!(!group(Some(0), 9, &[8, 9]).has_transfers() && !group(Some(0), 9, &[]).has_transfers());
        assert!(group(Some(0), 9, &[7, 9]).has_transfers() && group(Some(0), 9, &[7, 8]).has_transfers());
        assert!(group(None, 9, &[]).has_transfers());
    }
}
