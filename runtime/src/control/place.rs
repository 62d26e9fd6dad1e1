//! Where a program's socket is, and what it is called. The program and the command `warpline` go by the same rules.
//!
//! One directory a user, with mode 0700: nobody else gets at what is in it. A socket is named after its process and after
//! when that began, so that a number that is used again is not taken for it.

use std::ffi::OsStr;
use std::fs::Metadata;
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
pub struct Owner {
    /// Its number, in its own namespace.
    pub process: u32,
    /// When it began, in ticks since the machine did.
    pub started: u64,
    /// The namespace of its number: in another one it means another process, or none.
    pub namespace: u64,
}

impl Owner {
    /// A process of the namespace that this one sees: `self` or a number. None where there is no such process.
    pub fn of(process: &str) -> Option<Owner> {
        let started = started_in(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)?;
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let namespace = std::fs::metadata(format!("/proc/{process}/ns/pid")).ok()?.ino();
        Some(Owner { process: innermost_number(&status)?, started, namespace })
    }

    /// Whether it surely runs no more. Of processes of other namespaces nobody can tell.
    pub fn is_over(&self, here: &Owner) -> bool {
        self.namespace == here.namespace
            && std::fs::read_to_string(format!("/proc/{}/stat", self.process)).map_or_else(
                |error| error.kind() == std::io::ErrorKind::NotFound,
                |stat| started_in(&stat) != Some(self.started),
            )
    }

    /// The name of its socket.
    pub fn socket_name(&self) -> String {
        format!("{}-{}-{}.sock", self.process, self.started, self.namespace)
    }

    /// Whose socket a name is, if it is one.
    pub fn of_name(name: &OsStr) -> Option<Owner> {
        let mut parts = name.to_str()?.strip_suffix(".sock")?.splitn(3, '-');
        let process = parts.next()?.parse().ok()?;
        let mut next = || parts.next()?.parse().ok();
        let owner = Owner { process, started: next()?, namespace: next()? };
        (owner.socket_name().as_str() == name).then_some(owner)
    }
}

/// The number that a process has in its own namespace.
fn innermost_number(status: &str) -> Option<u32> {
    let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
    line("NSpid:").or_else(|| line("Pid:"))?.split_ascii_whitespace().last()?.parse().ok()
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
        let owner = Owner { process: 12, started: 3456, namespace: 78 };
        assert_eq!(Owner::of_name(OsStr::new(&owner.socket_name())), Some(owner));
        for other in [
            "12-34.sock",
            "12-34-56",
            "12-34-56.sock~",
            "+12-34-56.sock",
            "012-34-56.sock",
            ".12-34-56.sock",
            "1-2-3-4.sock",
        ] {
            assert_eq!(Owner::of_name(OsStr::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_program_with_a_name_of_its_own_choice_has_begun_when_it_has() {
        let fields = (3..=52).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(started_in(&format!("7 (a) 1 2) (b) {fields}\n")), Some(22));
        assert_eq!(started_in("7 (a) S 1"), None);
        assert_eq!(innermost_number("Name:\tNSpid: 3\nPid:\t70\nNSpid:\t70\t5\n"), Some(5));
        assert_eq!(innermost_number("Name:\ta\nPid:\t70\n"), Some(70));
    }

    #[test]
    fn a_process_is_over_when_its_number_is_another_ones() {
        let here = Owner::of("self").expect("this process");
        assert_eq!(here.process, std::process::id());
        assert!(!here.is_over(&here));
        assert!(Owner { started: here.started + 1, ..here }.is_over(&here), "the number is used again");
        assert!(Owner { process: u32::MAX, ..here }.is_over(&here));
        assert!(!Owner { process: u32::MAX, namespace: 1, ..here }.is_over(&here), "nobody can tell");
    }
}
