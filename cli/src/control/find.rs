//! Finds the sockets of programs that listen, and the reason if a program has none. `client` and `ps` call it.
//!
//! It removes sockets that killed programs left behind, in this user's directory only, and never follows links. The
//! name of a socket is only a claim: the code that connects must compare it with what the kernel says.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::error::ControlError;
use crate::output_file::PlaceError;
use crate::runtime::socket::{self, ProcessView, Seen, SocketOwner};

/// A process that has closed its connections ends within this time.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// The longest wait for a file of `/proc`. For some files the kernel reads the memory of the process, which the process
/// can block forever.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);

/// The most bytes that are read of a command line and of an environment.
const COMMAND_BYTES: u64 = 64 << 10;
const ENVIRONMENT_BYTES: u64 = 8 << 20;

/// A socket whose name says that a program listens there.
#[derive(Clone)]
pub(super) struct Found {
    /// The process that the name claims.
    pub(super) owner: SocketOwner,
    /// The number is from another PID namespace, where it may mean another process.
    pub(super) is_elsewhere: bool,
    pub(super) socket: PathBuf,
}

/// The result of `all`.
pub(super) struct All {
    pub(super) found: Vec<Found>,
    /// This process's view of PID namespaces, if it can be determined.
    pub(super) here: Option<ProcessView>,
    /// Why a directory could not be searched.
    pub(super) faults: Vec<String>,
}

/// The socket of a process.
pub(super) struct Program {
    pub(super) socket: PathBuf,
    /// The process that must listen there, as its number in this process's PID namespace, if it has one.
    pub(super) number: Option<u32>,
}

pub(super) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Runs work that may block forever in a thread of its own. When the time is up, the thread is left behind.
///
/// # Errors
/// The error of the work, a timeout, or that no thread could be started.
pub(super) fn within<T: Send + 'static>(
    time: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (say, said) = mpsc::channel();
    thread::Builder::new().spawn(move || drop(say.send(work())))?;
    said.recv_timeout(time).unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

/// The value, or none if the call failed. Only a lack of file descriptors is an error, because it is this process's
/// own.
fn ok<T>(result: io::Result<T>) -> Result<Option<T>, ControlError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => ControlError::of_descriptors(&error).map_or(Ok(None), Err),
    }
}

/// All sockets of this user in the directories that are searched.
///
/// # Errors
/// This process has no file descriptor left.
pub(super) fn all() -> Result<All, ControlError> {
    let (user, here) = (user(), ok(ProcessView::read())?);
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    for directory in directories(user) {
        match check(&directory, user) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(Fault::Hidden) => {
                faults.push(format!("{}: this user may not read it", directory.display()));
                continue;
            }
            Err(Fault::Unsafe(fault)) => {
                faults.push(format!("{}: {fault}; its sockets are ignored", directory.display()));
                continue;
            }
        }
        let entries =
            fs::read_dir(&directory).inspect_err(|error| faults.push(format!("{}: {error}", directory.display())));
        for entry in ok(entries)?.into_iter().flatten().flatten() {
            let Some(owner) = SocketOwner::of_name(&entry.file_name()) else { continue };
            let socket = entry.path();
            if !fs::symlink_metadata(&socket).is_ok_and(|metadata| socket::is_socket_of(&metadata, user)) {
                continue;
            }
            if here.as_ref().is_some_and(|here| here.is_over(&owner)) {
                let _ = fs::remove_file(&socket);
                continue;
            }
            let is_elsewhere = here.as_ref().is_none_or(|here| here.owner.namespace != owner.namespace);
            found.push(Found { owner, is_elsewhere, socket });
        }
    }
    found.sort_by_key(|found| (found.is_elsewhere, found.owner.process, found.owner.started));
    Ok(All { found, here, faults })
}

/// Expands the placeholders of the path for a process.
///
/// # Errors
/// The path has another placeholder.
pub(super) fn expand(path: &Path, process: u32) -> Result<PathBuf, PlaceError> {
    let environment = shown(process, "environ", ENVIRONMENT_BYTES).unwrap_or_default();
    crate::output_file::expand(path, process, |name| variable(&environment, name)?.into_string().ok())
}

/// The socket of a process, and the process that must listen there.
///
/// # Errors
/// The process has no socket; the error says why and what to do.
pub(super) fn program(process: u32) -> Result<Program, ControlError> {
    let user = user();
    let proc = PathBuf::from(format!("/proc/{process}"));
    let metadata = fs::metadata(&proc).map_err(|_| ControlError::NoProcess { process })?;
    let environment = ok(shown(process, "environ", ENVIRONMENT_BYTES))?.unwrap_or_default();
    let its = |name: &str| variable(&environment, name);
    let (here, seen) = (ok(ProcessView::read())?, ok(Seen::read(&process.to_string()))?);
    let number = here.as_ref().zip(seen.as_ref()).and_then(|(here, seen)| here.number_of(seen));
    let mut places: Vec<PathBuf> = directories(user);
    let of_it: Vec<_> = [its("XDG_RUNTIME_DIR"), None].map(|given| socket::directory(given.as_deref(), user)).into();
    // In the process's own root these names may lead to other files.
    let in_its_root = of_it.iter().filter_map(|path| Some(proc.join("root").join(path.strip_prefix("/").ok()?)));
    let in_its_root: Vec<_> = in_its_root.collect();
    places.extend(of_it);
    places.extend(in_its_root);
    let (mut fault, mut hidden) = (None, None);
    for directory in places {
        match check(&directory, user) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(Fault::Hidden) => {
                hidden.get_or_insert(format!("{}: this user may not read it", directory.display()));
                continue;
            }
            Err(Fault::Unsafe(why)) => {
                fault.get_or_insert(format!("{}: {why}", directory.display()));
                continue;
            }
        }
        let names = match &seen {
            None => Vec::new(),
            Some(seen) => match seen.socket_name() {
                Some(name) => vec![OsString::from(name)],
                // Its namespace is not visible: match by the rest of the name. The kernel confirms who listens.
                None => named(&directory, seen)?,
            },
        };
        for name in names {
            let socket = directory.join(name);
            match fs::symlink_metadata(&socket) {
                Ok(metadata) if socket::is_socket_of(&metadata, user) => return Ok(Program { socket, number }),
                Ok(_) => fault = Some(format!("{} is not a socket of this user", socket.display())),
                Err(_) => {}
            }
        }
    }
    if metadata.uid() != user {
        return Err(ControlError::AnotherUser { process, user: metadata.uid() });
    }
    if let Some(fault) = fault {
        return Err(ControlError::Directory { process, fault });
    }
    if let Some(fault) = hidden {
        return Err(ControlError::Hidden { process, fault });
    }
    let settings = its("WARPLINE").unwrap_or_default();
    let settings = settings.to_string_lossy();
    if settings.split(',').any(|setting| setting.trim() == "control") {
        return Err(ControlError::NotYet { process });
    }
    Err(ControlError::NotListening { process })
}

fn named(directory: &Path, seen: &Seen) -> Result<Vec<OsString>, ControlError> {
    let names = ok(fs::read_dir(directory))?.into_iter().flatten().flatten().map(|entry| entry.file_name());
    Ok(names.filter(|name| SocketOwner::of_name(name).is_some_and(|owner| seen.is(&owner))).collect())
}

/// The directories in which programs of this user put their sockets.
fn directories(user: u32) -> Vec<PathBuf> {
    let given = std::env::var_os("XDG_RUNTIME_DIR");
    let mut directories = vec![socket::directory(given.as_deref(), user), socket::directory(None, user)];
    directories.dedup();
    directories
}

/// Why the sockets of a directory are ignored.
enum Fault {
    /// This user may not read it.
    Hidden,
    /// Another user could have created files in it.
    Unsafe(String),
}

/// Whether the directory exists. It is a fault if others than this user can write to it.
fn check(directory: &Path, user: u32) -> Result<bool, Fault> {
    match fs::symlink_metadata(directory) {
        Ok(metadata) => socket::fault(&metadata, user).map_or(Ok(true), |fault| Err(Fault::Unsafe(fault))),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Fault::Hidden),
        Err(_) => Ok(false),
    }
}

/// A variable of a process's initial environment.
fn variable(environment: &[u8], name: &str) -> Option<OsString> {
    let mut variables = environment.split(|byte| *byte == 0);
    variables.find_map(|line| {
        let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(OsString::from_vec(value.to_vec()))
    })
}

/// Reads a file of a process in `/proc`, up to `most` bytes.
fn shown(process: u32, file: &str, most: u64) -> io::Result<Vec<u8>> {
    let path = format!("/proc/{process}/{file}");
    within(SHOWN_WITHIN, move || {
        let mut bytes = Vec::new();
        File::open(path)?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    })
}

/// The command line of a process, if the kernel shows it.
pub(super) fn command(process: u32) -> Option<String> {
    let line = shown(process, "cmdline", COMMAND_BYTES).ok()?;
    let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    let line = words.collect::<Vec<_>>().join(" ");
    Some(line.trim_end().to_owned()).filter(|line| !line.is_empty())
}

/// Whether a process has ended, or ends within a moment: it closes its files before the kernel reports its end.
pub(super) fn is_over(process: u32) -> bool {
    let until = Instant::now() + ENDS_WITHIN;
    loop {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"));
        // The state follows the name, which may contain anything. `Z` is a process that has ended and was not reaped.
        let is_there = match stat {
            Ok(stat) => stat.rsplit_once(") ").is_none_or(|(_, rest)| !rest.starts_with(['Z', 'X', 'x'])),
            // Another error says nothing about the process.
            Err(error) => {
                error.kind() != ErrorKind::NotFound
                    && rustix::io::Errno::from_io_error(&error) != Some(rustix::io::Errno::SRCH)
            }
        };
        if !is_there || Instant::now() >= until {
            return !is_there;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The last part of a path.
pub(super) fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(OsStr::to_str).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_whole() {
        let environment = b"A=1\0XWARPLINE=no\0WARPLINE=control,summary\0WARPLINE2=x\0";
        assert_eq!(variable(environment, "WARPLINE"), Some("control,summary".into()));
        assert_eq!(variable(environment, "XDG_RUNTIME_DIR"), None);
    }
}
