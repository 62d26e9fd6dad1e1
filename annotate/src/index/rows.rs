//! The rows of a trace: the processes and threads of its events, with the names from its metadata.

use std::borrow::Cow;
use std::collections::HashMap;

use warpline_trace::read::budget::MemoryBudget;
use warpline_trace::read::event::{Event, scalar};

/// The approximate memory of a row without its names.
const ENTRY: usize = 160;

/// Whether the event belongs to others by an id, and not by its thread.
pub(super) fn is_asynchronous(event: &Event<'_>) -> bool {
    matches!(&*event.phase, "b" | "n" | "e" | "S" | "T" | "p" | "F")
}

#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) pid: String,
    pub(crate) name: Option<String>,
    pub(crate) labels: Option<String>,
    pub(crate) sort: Option<i64>,
}

impl Process {
    /// Whether it is a device, by its label.
    pub(crate) fn is_device(&self) -> bool {
        self.labels.as_deref().is_some_and(|labels| labels.starts_with("GPU"))
    }

    /// The name that a user sees. Never empty: a group of rows without a name cannot be found.
    pub(crate) fn title(&self) -> Cow<'_, str> {
        let given = [&self.labels, &self.name].into_iter().flatten().find(|name| !name.is_empty());
        given.map_or_else(|| numbered("process", &self.pid, "(no process)"), |name| name.into())
    }
}

#[derive(Debug)]
pub(crate) struct EventRow {
    pub(crate) process: u32,
    /// The id in the events; none for a row of asynchronous events, which has a name.
    pub(crate) tid: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) sort: Option<i64>,
    /// The number of lanes of its slices.
    pub(crate) lanes: u16,
    /// Whether anything is on it.
    pub(crate) is_used: bool,
}

impl EventRow {
    /// The name that a user sees. Never empty.
    pub(crate) fn title(&self, of: &Process) -> Cow<'_, str> {
        let given = self.name.as_deref().filter(|name| !name.is_empty());
        let what = if of.is_device() { "stream" } else { "thread" };
        given.map_or_else(|| numbered(what, self.tid.as_deref().unwrap_or_default(), "events"), Cow::from)
    }
}

/// A title made from an id. Ids that are numbers get a prefix that says what they number.
fn numbered<'a>(what: &str, id: &'a str, without: &'a str) -> Cow<'a, str> {
    match id {
        "" => without.into(),
        id if id.parse::<i64>().is_ok() => format!("{what} {id}").into(),
        id => id.into(),
    }
}

/// The names and rows exceed the memory limit.
#[derive(Debug)]
pub(crate) struct TooMany;

#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) processes: Vec<Process>,
    pub(crate) rows: Vec<EventRow>,
    process_ids: HashMap<String, u32>,
    row_ids: HashMap<String, u32>,
    key: String,
    purse: MemoryBudget,
}

impl Rows {
    pub(super) fn new(purse: MemoryBudget) -> Rows {
        Rows {
            processes: Vec::new(),
            rows: Vec::new(),
            process_ids: HashMap::new(),
            row_ids: HashMap::new(),
            key: String::new(),
            purse,
        }
    }

    pub(crate) fn process(&mut self, pid: &str) -> Result<u32, TooMany> {
        if let Some(id) = self.process_ids.get(pid) {
            return Ok(*id);
        }
        self.spend(2 * pid.len() + ENTRY)?;
        let id = self.processes.len() as u32;
        self.processes.push(Process { pid: pid.to_owned(), ..Process::default() });
        self.process_ids.insert(pid.to_owned(), id);
        Ok(id)
    }

    /// The row of a thread's events.
    pub(crate) fn thread(&mut self, pid: &str, tid: &str) -> Result<u32, TooMany> {
        set_key(&mut self.key, &[pid, "t", tid]);
        self.row(pid, Some(tid), None)
    }

    /// The row of a group of asynchronous events.
    pub(crate) fn asynchronous(&mut self, event: &Event<'_>) -> Result<u32, TooMany> {
        let id = event.id.as_deref().unwrap_or("");
        set_key(&mut self.key, &[&event.pid, "a", &event.category, id]);
        self.row(&event.pid, None, Some(&event.name))
    }

    /// The number of a known process.
    pub(crate) fn find_process(&self, pid: &str) -> Option<u32> {
        self.process_ids.get(pid).copied()
    }

    /// The row of an event that the first reading found. `key` is a buffer.
    pub(crate) fn find(&self, event: &Event<'_>, key: &mut String) -> Option<u32> {
        if is_asynchronous(event) {
            set_key(key, &[&event.pid, "a", &event.category, event.id.as_deref().unwrap_or("")]);
        } else {
            set_key(key, &[&event.pid, "t", &event.tid]);
        }
        self.row_ids.get(key.as_str()).copied()
    }

    fn row(&mut self, pid: &str, tid: Option<&str>, name: Option<&str>) -> Result<u32, TooMany> {
        if let Some(id) = self.row_ids.get(&self.key) {
            return Ok(*id);
        }
        let process = self.process(pid)?;
        self.spend(self.key.len() + tid.or(name).map_or(0, str::len) + ENTRY)?;
        let id = self.rows.len() as u32;
        self.rows.push(EventRow {
            process,
            tid: tid.map(str::to_owned),
            name: name.map(str::to_owned),
            sort: None,
            lanes: 0,
            is_used: false,
        });
        self.row_ids.insert(self.key.clone(), id);
        Ok(id)
    }

    /// Reads metadata of processes and threads. Returns false for any other metadata.
    pub(super) fn metadata(&mut self, event: &Event<'_>) -> Result<bool, TooMany> {
        let Some(args) = event.members_of_args() else { return Ok(false) };
        let key = match &*event.name {
            "process_name" | "thread_name" => "name",
            "process_labels" => "labels",
            "process_sort_index" | "thread_sort_index" => "sort_index",
            _ => return Ok(false),
        };
        // Other arguments would be lost.
        let ([(_, _)], Some(value)) = (&*args.0, args.get(key).map(scalar)) else { return Ok(false) };
        let text = |value: Cow<'_, str>| Some(value.trim().to_owned()).filter(|text| !text.is_empty());
        self.spend(value.len())?;
        if event.name.starts_with("process") {
            let process = self.process(&event.pid)? as usize;
            let process = &mut self.processes[process];
            match &*event.name {
                "process_name" => process.name = text(value),
                "process_labels" => process.labels = text(value),
                _ => process.sort = value.parse().ok(),
            }
        } else {
            let row = self.thread(&event.pid, &event.tid)? as usize;
            let row = &mut self.rows[row];
            match &*event.name {
                "thread_name" => row.name = text(value),
                _ => row.sort = value.parse().ok(),
            }
        }
        Ok(true)
    }

    fn spend(&self, bytes: usize) -> Result<(), TooMany> {
        if self.purse.spend(bytes) { Ok(()) } else { Err(TooMany) }
    }
}

fn set_key(key: &mut String, parts: &[&str]) {
    key.clear();
    for part in parts {
        key.push_str(part);
        key.push('\0');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_name_has_a_title() {
        let process = |pid: &str, name: Option<&str>, labels: Option<&str>| {
            let [name, labels] = [name, labels].map(|text| text.map(str::to_owned));
            Process { pid: pid.to_owned(), name, labels, sort: None }.title().into_owned()
        };
        assert_eq!(process("0", Some("python"), Some("GPU 0")), "GPU 0");
        assert_eq!(process("0", Some("python"), None), "python");
        assert_eq!(process("-1", None, Some("")), "process -1");
        assert_eq!(process("Spans", None, None), "Spans");
        assert_eq!(process("", None, None), "(no process)");
        assert_eq!(numbered("thread", "0", "events"), "thread 0");
        assert_eq!(numbered("thread", "", "events"), "events");
    }
}
