//! What a rank is doing now: how far its groups are, and the place at which it stands. The progress file says it each second, and the control
//! server when it is asked.
//!
//! It makes no call that could wait for a GPU, and takes no lock that a thread holds during such a call. It reads the numbers that launching
//! threads have left in their process groups, and the snapshots of open zones.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::identity::{Identity, unix_ns};
use warpline_core::clock::now_ns;
use warpline_core::collective::ProcessGroup;
use warpline_core::collective::groups;
use warpline_core::collective::ledger::{Call, Entered};
use warpline_core::hashing::fnv1a64;
use warpline_core::record::open::{OpenState, OpenZoneRecord};
use warpline_core::stream::context::StreamContext;
use warpline_core::stream::recorder::Recorder;
use warpline_core::stream::snapshot::OpenZoneSnapshot;

/// The most bytes that it takes.
pub(super) const MOST_BYTES: usize = 4096;

/// The most open zones that are looked at.
const MOST_OPEN: usize = 4096;

/// The check of a text before it has one.
const NO_CHECK: &str = "0000000000000000";

/// The longest path of a flight recorder that is said.
const LONGEST_PATH: usize = 1024;

/// The state of a rank, which can be read at any time.
pub(super) struct Standing {
    pub(super) identity: Identity,
    recorder: Arc<Recorder>,
    /// The process, by which a reader on this machine finds it and its socket.
    process: Option<String>,
    /// The file of the flight recorder.
    flight: Option<String>,
    notes: Vec<(Arc<StreamContext>, Vec<Arc<OpenZoneSnapshot>>)>,
}

impl Standing {
    pub(super) fn new(identity: Identity, recorder: Arc<Recorder>, flight: Option<PathBuf>) -> Standing {
        let flight = flight.map(|path| std::path::absolute(&path).unwrap_or(path).display().to_string());
        let flight = flight.filter(|path| path.len() <= LONGEST_PATH);
        Standing { identity, recorder, process: process(), flight, notes: Vec::new() }
    }

    /// Returns it as JSON of at most [`MOST_BYTES`], without a line's end.
    pub(super) fn text(&mut self, is_over: bool) -> String {
        let mut groups = groups();
        // Handles of one communicator count apart; the one that is ahead is the one that is used.
        groups.sort_by(|(a, of_a), (b, of_b)| a.comm().cmp(b.comm()).then(of_b.entered.cmp(&of_a.entered)));
        groups.dedup_by(|(a, _), (b, _)| a.comm() == b.comm());
        let open = if is_over { None } else { self.oldest() };
        // The communicators that the open zone and the unfinished collectives are of come first: they stay if there is no room.
        let rank = |(group, entered): &(ProcessGroup, Entered)| {
            let is_open =
                open.as_ref().and_then(|open| open.collective.as_ref()).is_some_and(|(comm, _)| comm == group.comm());
            (!is_open, entered.completed == Some(entered.entered))
        };
        groups.sort_by_key(rank);
        for (recent, comms, fields) in
            [(8, usize::MAX, true), (2, 16, true), (0, 16, false), (0, 4, false), (0, 1, false)]
        {
            let is_cut = recent < 8;
            let text = self.json(is_over, &groups, open.as_ref(), (recent, comms, fields), is_cut).to_string();
            if text.len() < MOST_BYTES {
                return checked(text);
            }
        }
        checked(self.json(is_over, &[], None, (0, 0, false), true).to_string())
    }

    fn json(
        &self,
        is_over: bool,
        groups: &[(ProcessGroup, Entered)],
        open: Option<&OpenZoneRecord>,
        (recent, comms, with_fields): (usize, usize, bool),
        is_cut: bool,
    ) -> Value {
        let Identity { rank, host, process_id, boot_id, .. } = &self.identity;
        let groups: Vec<Value> =
            groups.iter().take(comms).map(|(group, entered)| comm(group, entered, recent)).collect();
        json!({
            // Before all texts of the program, so that none of them is taken for it.
            "check": NO_CHECK,
            "version": 1,
            "rank": rank,
            "host": host,
            "pid": process_id,
            "boot_id": boot_id,
            "process": self.process,
            "flight": self.flight,
            "updated_boottime_ns": now_ns(),
            "updated_realtime_ns": unix_ns(),
            "ended": is_over,
            "step": self.recorder.steps().current(),
            "comms": groups,
            "open": open.map(|open| self.open(open, with_fields)),
            "truncated": is_cut,
        })
    }

    fn open(&self, open: &OpenZoneRecord, with_fields: bool) -> Value {
        let thread = self.recorder.thread(open.thread);
        let name = open.range.map_or("?", |range| range.name());
        let place = open.place.map(|place| (place.file(), place.line()));
        let place = place.or(open.range.map(|range| (range.file(), range.line())));
        let said = open.fields.iter().filter(|_| with_fields);
        let mut fields: Map<_, _> = said.map(|(name, value)| (name.clone(), value.to_string().into())).collect();
        if let Some(label) = open.label.as_ref().filter(|_| with_fields) {
            fields.insert("label".to_owned(), label.as_str().into());
        }
        json!({
            "name": name,
            "file": place.map(|(file, _)| file),
            "line": place.map(|(_, line)| line),
            "thread": thread.name.clone().unwrap_or_else(|| format!("thread {}", open.thread)),
            "since_ns": open.begin_ns,
            "fields": fields,
            "launched": open.state == OpenState::OnStream,
            "comm": open.collective.as_ref().map(|(comm, _)| comm),
            "seq": open.collective.as_ref().map(|(_, seq)| seq),
            "kind": open.transfer.as_ref().map(|(kind, _)| kind),
            "peer": open.transfer.as_ref().map(|(_, rank)| rank),
        })
    }

    /// Returns the oldest open zone that has no other open zone inside it: the place at which the rank stands.
    fn oldest(&mut self) -> Option<OpenZoneRecord> {
        let contexts = self.recorder.contexts();
        self.notes.retain(|(known, _)| contexts.iter().any(|context| Arc::ptr_eq(context, known)));
        for context in contexts {
            if !self.notes.iter().any(|(known, _)| Arc::ptr_eq(known, &context)) {
                self.notes.push((context, Vec::new()));
            }
        }
        let mut open: Vec<OpenZoneRecord> = Vec::new();
        for (context, notes) in &mut self.notes {
            context.add_snapshots(notes);
            let zones = notes.iter().filter(|note| note.is_open()).filter_map(|note| OpenZoneSnapshot::read(note));
            open.extend(zones.take(MOST_OPEN.saturating_sub(open.len())));
        }
        open.sort_by_key(|zone| (zone.begin_ns, zone.sequence));
        let position =
            open.iter().enumerate().position(|(at, zone)| !open[at + 1..].iter().any(|later| is_inside(later, zone)));
        position.map(|at| open.swap_remove(at))
    }
}

/// Puts the hash of the whole text, in which the check is zeros, in the place of the check.
fn checked(text: String) -> String {
    let check = format!("{:016x}", fnv1a64(text.as_bytes()));
    text.replacen(&format!(r#""check":"{NO_CHECK}""#), &format!(r#""check":"{check}""#), 1)
}

/// Returns this process as the name of its socket says it.
#[cfg(target_os = "linux")]
fn process() -> Option<String> {
    warpline_trace::control::socket::SocketOwner::read("self").ok().map(|owner| owner.text())
}

#[cfg(not(target_os = "linux"))]
fn process() -> Option<String> {
    None
}

/// Returns whether a zone that began later is inside the other one.
fn is_inside(later: &OpenZoneRecord, zone: &OpenZoneRecord) -> bool {
    let ended_before = zone.state == OpenState::OnStream && later.begin_ns >= zone.launched_ns;
    later.thread == zone.thread && !ended_before
}

fn comm(group: &ProcessGroup, entered: &Entered, recent: usize) -> Value {
    let Entered { entered, completed, first, signature, recent: calls } = entered;
    let call = |Call { seq, kind, dtype, items, root, signature }: &Call| {
        json!([seq, kind.as_str(), dtype.map(|dtype| dtype.as_str()), items, root, format!("{signature:016x}")])
    };
    let calls: Vec<Value> = calls.iter().skip(calls.len().saturating_sub(recent)).map(call).collect();
    json!({
        "comm": group.comm(),
        "size": group.size(),
        "members": group.members(),
        "entered": entered,
        "started": completed,
        "completed": completed,
        "first": first,
        "signature": format!("{signature:016x}"),
        "recent": calls,
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::path::Path;

    use warpline_core::backend::Limits;
    use warpline_core::collective::{CollectiveKind, DataType};
    use warpline_core::timing::EndMode;
    use warpline_judge::progress::Progress;
    use warpline_report::fixture;

    use super::*;

    /// Who reads it takes each key, and misses none.
    #[test]
    fn the_keys_are_those_of_the_contract() {
        let limits = Limits { zones: 16, events: 16, ends: EndMode::Eager, watch: true };
        let recorder = Arc::new(Recorder::new(NonZeroU32::MIN, limits));
        let identity = Identity::new(Path::new("ranks"), &fixture::session());
        let standing = Standing::new(identity, recorder, Some("rank.flight".into()));
        let group = ProcessGroup::new("contract", 0..4, 1);
        let call = Call {
            seq: 6,
            kind: CollectiveKind::Broadcast,
            dtype: Some(DataType::F32),
            items: Some(7),
            root: Some(2),
            signature: 8,
        };
        let entered = Entered { entered: 6, completed: Some(5), first: Some(1), signature: 8, recent: vec![call] };
        let open = OpenZoneRecord {
            state: OpenState::OnStream,
            range: None,
            thread: 1,
            begin_ns: 9,
            launched_ns: 10,
            sequence: 11,
            place: None,
            fields: vec![("layer".to_owned(), 5_u64.into())],
            label: None,
            collective: Some((group.comm().to_owned(), 6)),
            transfer: Some(("recv".to_owned(), 3)),
        };
        // A zone whose range is in no catalog has no place.
        for open in [Some(&open), None] {
            let written = standing.json(false, &[(group.clone(), entered.clone())], open, (8, usize::MAX, true), false);
            let read: Progress = serde_json::from_value(written.clone()).expect("the contract");
            assert_eq!(serde_json::to_value(read).expect("JSON"), written);
        }
    }
}
