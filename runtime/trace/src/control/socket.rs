//! The path and name of a program's socket. The program and the command `warpline` use the same rules.
//!
//! Each user has a directory with mode 0700, so no other user can open its contents. A socket is named after its
//! process and the start time of that process, so that a reused process id cannot be mistaken for it.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Returns the user's directory: below the user's runtime directory, if there is one.
pub fn directory(runtime_dir: Option<&OsStr>, user: u32) -> PathBuf {
    let given = runtime_dir.map(Path::new).filter(|path| path.is_absolute());
    given.map_or_else(|| PathBuf::from(format!("/tmp/warpline-{user}")), |path| path.join("warpline"))
}

/// Returns why a directory must not be used, if so: anyone who can write to it could replace a socket.
pub fn fault(metadata: &Metadata, user: u32) -> Option<String> {
    let mode = metadata.mode() & 0o7777;
    match () {
        () if metadata.is_symlink() => Some("it is a symlink".to_owned()),
        () if !metadata.is_dir() => Some("it is not a directory".to_owned()),
        () if metadata.uid() != user => Some(format!("it belongs to user {}, and not to {user}", metadata.uid())),
        () if mode & 0o077 != 0 => Some(format!("others may use it: its mode is {mode:04o}, and not 0700")),
        () => None,
    }
}

/// Whether this is a socket of this user, and not a link to one.
pub fn is_socket_of(metadata: &Metadata, user: u32) -> bool {
    metadata.file_type().is_socket() && metadata.uid() == user
}

/// The process that owns a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketOwner {
    /// The process id in the process's own namespace.
    pub process: u32,
    /// The start time, in ticks since the machine started.
    pub started: u64,
    /// The PID namespace of the process id. In another namespace, the same id belongs to another process, or to none.
    pub namespace: u64,
}

impl SocketOwner {
    /// Reads the owner for a process, given its name in `/proc`: `self` or a number.
    ///
    /// # Errors
    /// The process does not exist, or the system does not show all of these facts.
    pub fn read(process: &str) -> io::Result<SocketOwner> {
        let seen = Seen::read(process)?;
        let namespace = seen.namespace?;
        Ok(SocketOwner { process: seen.innermost, started: seen.started, namespace })
    }

    /// Returns the name of the process's socket.
    pub fn socket_name(&self) -> String {
        format!("{}.sock", self.text())
    }

    /// Returns the process as text, without the ending of a socket's name: `PID-START-NAMESPACE`.
    pub fn text(&self) -> String {
        format!("{}-{}-{}", self.process, self.started, self.namespace)
    }

    /// Returns the owner of a socket with this name, if the name is valid.
    pub fn of_name(name: &OsStr) -> Option<SocketOwner> {
        let mut parts = name.to_str()?.strip_suffix(".sock")?.splitn(3, '-');
        let process = parts.next()?.parse().ok()?;
        let mut next = || parts.next()?.parse().ok();
        let owner = SocketOwner { process, started: next()?, namespace: next()? };
        (owner.socket_name().as_str() == name).then_some(owner)
    }
}

/// The facts that `/proc` shows about a process.
#[derive(Debug)]
pub struct Seen {
    /// The process ids, from the namespace of `/proc` to the process's own.
    numbers: Vec<u32>,
    innermost: u32,
    started: u64,
    /// An error if this process may not inspect the other one.
    namespace: io::Result<u64>,
}

impl Seen {
    /// Reads the facts about a process, given its name in `/proc`: `self` or a number.
    ///
    /// # Errors
    /// The process does not exist, or the system does not show it.
    pub fn read(process: &str) -> io::Result<Seen> {
        let strange = || io::Error::other("`/proc` is not what Linux shows there");
        let started = started_in(&fs::read_to_string(format!("/proc/{process}/stat"))?).ok_or_else(strange)?;
        let numbers = numbers_in(&fs::read_to_string(format!("/proc/{process}/status"))?);
        let innermost = *numbers.last().ok_or_else(strange)?;
        let namespace = fs::metadata(format!("/proc/{process}/ns/pid")).map(|namespace| namespace.ino());
        Ok(Seen { numbers, innermost, started, namespace })
    }

    /// Whether the owner in a socket's name is this process. A namespace that cannot be read is not compared: the
    /// kernel must then identify the listener.
    pub fn is(&self, owner: &SocketOwner) -> bool {
        let is_in = |namespace: &u64| *namespace == owner.namespace;
        (self.innermost, self.started) == (owner.process, owner.started) && self.namespace.as_ref().map_or(true, is_in)
    }

    /// Returns the name of the process's socket, if its namespace can be read.
    pub fn socket_name(&self) -> Option<String> {
        let namespace = *self.namespace.as_ref().ok()?;
        Some(SocketOwner { process: self.innermost, started: self.started, namespace }.socket_name())
    }
}

/// How this process sees other processes.
#[derive(Debug)]
pub struct ProcessView {
    /// The owner facts of this process.
    pub owner: SocketOwner,
    /// The number of PID namespaces from the one of `/proc` down to this process's own. Not zero if `/proc` was not
    /// remounted in a new namespace.
    depth: usize,
}

impl ProcessView {
    /// Reads the view of this process.
    ///
    /// # Errors
    /// `/proc` is not mounted, or does not show this process.
    pub fn read() -> io::Result<ProcessView> {
        let seen = Seen::read("self")?;
        let owner = SocketOwner { process: seen.innermost, started: seen.started, namespace: seen.namespace? };
        Ok(ProcessView { owner, depth: seen.numbers.len() - 1 })
    }

    /// Whether the process has certainly ended. This is unknown for processes in other namespaces, and if `/proc` shows
    /// the ids of another namespace.
    pub fn is_over(&self, owner: &SocketOwner) -> bool {
        self.depth == 0
            && self.owner.namespace == owner.namespace
            && fs::read_to_string(format!("/proc/{}/stat", owner.process)).map_or_else(
                |error| error.kind() == io::ErrorKind::NotFound,
                |stat| started_in(&stat) != Some(owner.started),
            )
    }

    /// Returns a process's id in this process's namespace, as the kernel reports it for the peer of a socket. If
    /// `/proc` shows the ids of another namespace, only processes of this namespace have a known id: ids in other
    /// namespaces can be equal.
    pub fn number_of(&self, seen: &Seen) -> Option<u32> {
        match &seen.namespace {
            _ if self.depth == 0 => seen.numbers.first().copied(),
            Ok(namespace) if *namespace == self.owner.namespace => Some(seen.innermost),
            _ => None,
        }
    }

    /// Finds the process with this id in this process's namespace. Returns its id in `/proc` and the facts about it.
    pub fn find(&self, number: u32) -> Option<(u32, Seen)> {
        if self.depth == 0 {
            return Some((number, Seen::read(&number.to_string()).ok()?));
        }
        let processes = fs::read_dir("/proc").ok()?.flatten();
        let shown = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut seen = shown.filter_map(|process| Some((process, Seen::read(&process.to_string()).ok()?)));
        seen.find(|(_, seen)| self.number_of(seen) == Some(number))
    }
}

/// Parses the ids of a process in all its namespaces, its own namespace last.
fn numbers_in(status: &str) -> Vec<u32> {
    let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
    let numbers = line("NSpid:").or_else(|| line("Pid:")).unwrap_or_default();
    numbers.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect()
}

/// Parses the 22nd field of `/proc/PID/stat`. The second field, the program's name in brackets, may contain anything.
fn started_in(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_below_the_runtime_directory_or_in_tmp() {
        assert_eq!(directory(Some(OsStr::new("/run/user/7")), 7), Path::new("/run/user/7/warpline"));
        for none in [None, Some(OsStr::new("")), Some(OsStr::new("run"))] {
            assert_eq!(directory(none, 7), Path::new("/tmp/warpline-7"));
        }
    }

    #[test]
    fn a_name_says_the_process_and_when_it_began() {
        let owner = SocketOwner { process: 12, started: 3456, namespace: 78 };
        assert_eq!(SocketOwner::of_name(OsStr::new(&owner.socket_name())), Some(owner));
        for other in [
            "12-34.sock",
            "12-34-56",
            "12-34-56.sock~",
            "+12-34-56.sock",
            "012-34-56.sock",
            ".12-34-56.sock",
            "1-2-3-4.sock",
        ] {
            assert_eq!(SocketOwner::of_name(OsStr::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_program_with_a_name_of_its_own_choice_has_begun_when_it_has() {
        let fields = (3..=52).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(started_in(&format!("7 (a) 1 2) (b) {fields}\n")), Some(22));
        assert_eq!(started_in("7 (a) S 1"), None);
        assert_eq!(numbers_in("Name:\tNSpid: 3\nPid:\t70\nNSpid:\t70\t5\n"), [70, 5]);
        assert_eq!(numbers_in("Name:\ta\nPid:\t70\n"), [70]);
    }

    #[test]
    fn a_process_is_over_when_its_number_is_another_ones() {
        let here = ProcessView::read().expect("this process");
        let me = here.owner;
        assert_eq!((me.process, here.depth), (std::process::id(), 0));
        assert!(!here.is_over(&me));
        assert!(here.is_over(&SocketOwner { started: me.started + 1, ..me }), "the number is used again");
        assert!(here.is_over(&SocketOwner { process: u32::MAX, ..me }));
        assert!(!here.is_over(&SocketOwner { process: u32::MAX, namespace: 1, ..me }), "nobody can tell");
        let seen = |namespace| Seen { numbers: vec![70, 5], innermost: 5, started: 1, namespace: Ok(namespace) };
        assert_eq!(here.number_of(&seen(1)), Some(70), "in a container of this one");
        let outside = ProcessView { depth: 1, ..here };
        assert_eq!(outside.number_of(&seen(me.namespace)), Some(5));
        assert_eq!(outside.number_of(&seen(1)), None, "in a container beside this one");
        assert!(!outside.is_over(&SocketOwner { process: u32::MAX, ..me }), "`/proc` shows other numbers");
    }
}
