//! Where a program's socket is, and what it is called. The program and the command `warpline` go by the same rules.
//!
//! One directory a user, with mode 0700: nobody else gets at what is in it. A socket is named after its process and after
//! when that began, so that a number that is used again is not taken for it.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The directory of a user: below the user's runtime directory, where there is one.
pub fn directory(runtime_dir: Option<&OsStr>, user: u32) -> PathBuf {
    let given = runtime_dir.map(Path::new).filter(|path| path.is_absolute());
    given.map_or_else(|| PathBuf::from(format!("/tmp/warpline-{user}")), |path| path.join("warpline"))
}

/// Why a directory is not used, if it should not be: whoever may write to it could put something else in a socket's place.
pub fn fault(metadata: &Metadata, user: u32) -> Option<String> {
    let mode = metadata.mode() & 0o7777;
    match () {
        () if metadata.is_symlink() => Some("it is a symlink".to_owned()),
        () if !metadata.is_dir() => Some("it is no directory".to_owned()),
        () if metadata.uid() != user => Some(format!("it belongs to user {}, and not to {user}", metadata.uid())),
        () if mode & 0o077 != 0 => Some(format!("others may use it: its mode is {mode:04o}, and not 0700")),
        () => None,
    }
}

/// Whether this is a socket of this user, and not a link to one.
pub fn is_socket_of(metadata: &Metadata, user: u32) -> bool {
    metadata.file_type().is_socket() && metadata.uid() == user
}

/// Who has a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketOwner {
    /// Its number, in its own namespace.
    pub process: u32,
    /// When it began, in ticks since the machine did.
    pub started: u64,
    /// The namespace of its number: in another one it means another process, or none.
    pub namespace: u64,
}

impl SocketOwner {
    /// A process by its name in `/proc`: `self` or a number.
    ///
    /// # Errors
    /// There is no such process, or the system does not say all of it.
    pub fn read(process: &str) -> io::Result<SocketOwner> {
        let seen = Seen::read(process)?;
        let namespace = seen.namespace?;
        Ok(SocketOwner { process: seen.innermost, started: seen.started, namespace })
    }

    /// The name of its socket.
    pub fn socket_name(&self) -> String {
        format!("{}-{}-{}.sock", self.process, self.started, self.namespace)
    }

    /// Whose socket a name is, if it is one.
    pub fn of_name(name: &OsStr) -> Option<SocketOwner> {
        let mut parts = name.to_str()?.strip_suffix(".sock")?.splitn(3, '-');
        let process = parts.next()?.parse().ok()?;
        let mut next = || parts.next()?.parse().ok();
        let owner = SocketOwner { process, started: next()?, namespace: next()? };
        (owner.socket_name().as_str() == name).then_some(owner)
    }
}

/// What `/proc` shows of a process.
#[derive(Debug)]
pub struct Seen {
    /// Its numbers, from the namespace that `/proc` shows to its own.
    numbers: Vec<u32>,
    innermost: u32,
    started: u64,
    /// Who may not look into a process is not told its namespace.
    namespace: io::Result<u64>,
}

impl Seen {
    /// A process by its name in `/proc`: `self` or a number.
    ///
    /// # Errors
    /// There is no such process, or the system does not show it.
    pub fn read(process: &str) -> io::Result<Seen> {
        let strange = || io::Error::other("`/proc` is not what Linux shows there");
        let started = started_in(&fs::read_to_string(format!("/proc/{process}/stat"))?).ok_or_else(strange)?;
        let numbers = numbers_in(&fs::read_to_string(format!("/proc/{process}/status"))?);
        let innermost = *numbers.last().ok_or_else(strange)?;
        let namespace = fs::metadata(format!("/proc/{process}/ns/pid")).map(|namespace| namespace.ino());
        Ok(Seen { numbers, innermost, started, namespace })
    }

    /// Whether a socket's name says this process. A namespace that cannot be read is not compared: then the kernel has to
    /// say who listens.
    pub fn is(&self, owner: &SocketOwner) -> bool {
        let is_in = |namespace: &u64| *namespace == owner.namespace;
        (self.innermost, self.started) == (owner.process, owner.started) && self.namespace.as_ref().map_or(true, is_in)
    }

    /// The name of its socket, if its namespace can be read.
    pub fn socket_name(&self) -> Option<String> {
        let namespace = *self.namespace.as_ref().ok()?;
        Some(SocketOwner { process: self.innermost, started: self.started, namespace }.socket_name())
    }
}

/// How this process sees others.
#[derive(Debug)]
pub struct ProcessView {
    /// This process itself.
    pub owner: SocketOwner,
    /// How many namespaces of PIDs `/proc` is above this process's own, as where nobody mounted it anew.
    depth: usize,
}

impl ProcessView {
    /// Looks at this process.
    ///
    /// # Errors
    /// `/proc` is not mounted, or does not show this process.
    pub fn look() -> io::Result<ProcessView> {
        let seen = Seen::read("self")?;
        let owner = SocketOwner { process: seen.innermost, started: seen.started, namespace: seen.namespace? };
        Ok(ProcessView { owner, depth: seen.numbers.len() - 1 })
    }

    /// Whether the process surely runs no more. Of processes of other namespaces, and where `/proc` shows the numbers of
    /// another one, nobody can tell.
    pub fn is_over(&self, owner: &SocketOwner) -> bool {
        self.depth == 0
            && self.owner.namespace == owner.namespace
            && fs::read_to_string(format!("/proc/{}/stat", owner.process)).map_or_else(
                |error| error.kind() == io::ErrorKind::NotFound,
                |stat| started_in(&stat) != Some(owner.started),
            )
    }

    /// The number of a process in this process's namespace, which is the one that the kernel says of a socket's peer. Where
    /// `/proc` shows the numbers of another namespace, only processes of this one have a number that can be told: the numbers
    /// of others are alike.
    pub fn number_of(&self, seen: &Seen) -> Option<u32> {
        match &seen.namespace {
            _ if self.depth == 0 => seen.numbers.first().copied(),
            Ok(namespace) if *namespace == self.owner.namespace => Some(seen.innermost),
            _ => None,
        }
    }

    /// The process that has this number in this process's namespace: its number in `/proc`, and what is shown of it.
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

/// The numbers of a process in the namespaces that it is in, its own last.
fn numbers_in(status: &str) -> Vec<u32> {
    let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
    let numbers = line("NSpid:").or_else(|| line("Pid:")).unwrap_or_default();
    numbers.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect()
}

/// The 22nd field of `/proc/PID/stat`. The second one, the program's name in brackets, may hold anything.
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
        let here = ProcessView::look().expect("this process");
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
