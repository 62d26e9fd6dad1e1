//! Finds the sockets of programs that listen, and says what is wrong where there is none.
//!
//! A socket that a program left behind when it was killed is removed, in this user's directory and nowhere else; links are
//! never followed.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use warpline::__private::place::{self, Owner};

use super::client::ControlError;
use crate::place::PlaceError;

/// A process that has closed its connections is over by then.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// A program that has a socket.
pub(super) struct Found {
    pub(super) owner: Owner,
    /// Its number is another namespace's: it may mean another process here.
    pub(super) is_elsewhere: bool,
    pub(super) socket: PathBuf,
}

pub(super) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// All programs of this user that have a socket where this process looks, and what kept it from looking.
pub(super) fn all() -> (Vec<Found>, Vec<String>) {
    let (user, here) = (user(), Owner::of("self"));
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    for directory in directories(user) {
        match check(&directory, user) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(Fault::Hidden) => {
                faults.push(format!("{}: this user may not look there", directory.display()));
                continue;
            }
            Err(Fault::Unsafe(fault)) => {
                faults.push(format!("{}: {fault}; sockets in it are left alone", directory.display()));
                continue;
            }
        }
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Some(owner) = Owner::of_name(&entry.file_name()) else { continue };
            let socket = entry.path();
            if !fs::symlink_metadata(&socket).is_ok_and(|metadata| place::is_socket_of(&metadata, user)) {
                continue;
            }
            if here.is_some_and(|here| owner.is_over(&here)) {
                let _ = fs::remove_file(&socket);
                continue;
            }
            let is_elsewhere = here.is_none_or(|here| here.namespace != owner.namespace);
            found.push(Found { owner, is_elsewhere, socket });
        }
    }
    found.sort_by_key(|found| (found.is_elsewhere, found.owner.process, found.owner.started));
    (found, faults)
}

/// The path with what its placeholders stand for in a process.
///
/// # Errors
/// The path has another placeholder.
pub(super) fn expand(path: &Path, process: u32) -> Result<PathBuf, PlaceError> {
    let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    crate::place::expand(path, process, |name| variable(&environment, name)?.into_string().ok())
}

/// The socket of a process.
///
/// # Errors
/// Why there is none, and what to do.
pub(super) fn of(process: u32) -> Result<PathBuf, ControlError> {
    let user = user();
    let proc = PathBuf::from(format!("/proc/{process}"));
    let metadata = fs::metadata(&proc).map_err(|_| ControlError::NoProcess { process })?;
    let environment = fs::read(proc.join("environ")).unwrap_or_default();
    let its = |name: &str| variable(&environment, name);
    let owner = Owner::of(&process.to_string());
    let mut places: Vec<PathBuf> = directories(user);
    let of_it: Vec<_> = [its("XDG_RUNTIME_DIR"), None].map(|given| place::directory(given.as_deref(), user)).into();
    // What it sees under these names may be other files than what is seen here.
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
                hidden.get_or_insert(format!("{}: this user may not look there", directory.display()));
                continue;
            }
            Err(Fault::Unsafe(why)) => {
                fault.get_or_insert(format!("{}: {why}", directory.display()));
                continue;
            }
        }
        let names = match owner {
            Some(owner) => vec![OsString::from(owner.socket_name())],
            // Where the kernel does not say, the number alone has to do.
            None => named(&directory, process),
        };
        for name in names {
            let socket = directory.join(name);
            match fs::symlink_metadata(&socket) {
                Ok(metadata) if place::is_socket_of(&metadata, user) => return Ok(socket),
                Ok(_) => fault = Some(format!("{} is no socket of yours", socket.display())),
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

fn named(directory: &Path, process: u32) -> Vec<OsString> {
    let names = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| Owner::of_name(name).is_some_and(|owner| owner.process == process)).collect()
}

/// Where programs of this user put their sockets.
fn directories(user: u32) -> Vec<PathBuf> {
    let given = std::env::var_os("XDG_RUNTIME_DIR");
    let mut directories = vec![place::directory(given.as_deref(), user), place::directory(None, user)];
    directories.dedup();
    directories
}

/// Why sockets in a directory are left alone.
enum Fault {
    /// The kernel does not let this user look.
    Hidden,
    /// Another user could have put something there.
    Unsafe(String),
}

/// Whether a directory is there and this user's alone.
fn check(directory: &Path, user: u32) -> Result<bool, Fault> {
    match fs::symlink_metadata(directory) {
        Ok(metadata) => place::fault(&metadata, user).map_or(Ok(true), |fault| Err(Fault::Unsafe(fault))),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Fault::Hidden),
        Err(_) => Ok(false),
    }
}

/// A variable of the environment that a process was started with.
fn variable(environment: &[u8], name: &str) -> Option<OsString> {
    let mut variables = environment.split(|byte| *byte == 0);
    variables.find_map(|line| {
        let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(OsString::from_vec(value.to_vec()))
    })
}

/// The command line of a process, as far as the kernel tells.
pub(super) fn command(process: u32) -> Option<String> {
    let line = fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    let line = words.collect::<Vec<_>>().join(" ");
    Some(line.trim_end().to_owned()).filter(|line| !line.is_empty())
}

/// Whether a process is over, or is within a moment: it closes what it has open before the kernel says that it is no more.
pub(super) fn is_over(process: u32) -> bool {
    let until = Instant::now() + ENDS_WITHIN;
    loop {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"));
        // Behind the name, which may hold anything: `Z` is over and not yet asked about by who started it.
        let is_there =
            stat.is_ok_and(|stat| stat.rsplit_once(") ").is_none_or(|(_, rest)| !rest.starts_with(['Z', 'X', 'x'])));
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
